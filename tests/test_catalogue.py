"""Knobs are read from the script without running it, and checked before anything starts."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddp_course.errors import BadArgument
from ddp_course.launcher import catalogue, knobs

DECLARATIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20, help="optimizer steps")
parser.add_argument("--bucket-mb", type=float, default=25)
parser.add_argument("-d", "--data", default="digits")
parser.add_argument("--mode", choices=["sum", "mean"], default="sum")
parser.add_argument("--size", type=int, choices=(1, 2, 4))
parser.add_argument("--shuffle", action="store_true")
parser.add_argument("--rates", type=float, nargs="+")
parser.add_argument("--names", nargs="*")
parser.add_argument("--odd", type=lambda text: text.upper())
parser.add_argument("--pair", type=float, nargs=2)
parser.add_argument("--tag", action="append")
parser.add_argument("--verbose", action="count", default=0)
parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
parser.add_argument("positional", nargs="?")
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("jobs") / "job.py"
    path.write_text(DECLARATIONS)
    return path


def parse(words: list[str]) -> argparse.Namespace:
    """What the job itself would make of these words."""
    names: dict[str, Any] = {}
    exec(DECLARATIONS, names)
    result = names["parser"].parse_args(words)
    assert isinstance(result, argparse.Namespace)
    return result


def write(folder: Path, source: str | bytes, name: str = "job.py") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path


KINDS = {
    "steps": "int", "bucket_mb": "float", "data": "str", "mode": "str", "size": "int",
    "shuffle": "flag", "rates": "float", "names": "str", "odd": "any", "pair": "float",
    "tag": "str", "verbose": "count", "amp": "switch",
}  # fmt: skip


def test_every_knob_is_found_with_its_kind(script: Path) -> None:
    found = knobs.knobs_of(script)
    assert {name: knob.kind for name, knob in found.items()} == KINDS
    assert found["steps"].help == "optimizer steps"
    assert found["steps"].default == 20
    assert found["size"].choices == (1, 2, 4)
    assert found["rates"].many
    assert not found["steps"].many


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("steps", 3, 3),
        ("steps", -3, -3),
        ("bucket_mb", 1, 1.0),
        ("bucket_mb", -1e-5, -1e-5),
        ("bucket_mb", float("-inf"), float("-inf")),
        ("data", "", ""),
        ("data", "--steps", "--steps"),
        ("data", "-d", "-d"),
        ("data", "a b'\"\n$HOME", "a b'\"\n$HOME"),
        ("data", "naïve 漢字", "naïve 漢字"),
        ("data", Path("some/where"), "some/where"),
        ("mode", "mean", "mean"),
        ("size", 4, 4),
        ("shuffle", True, True),
        ("shuffle", False, False),
        ("rates", [0.1, -0.5], [0.1, -0.5]),
        ("rates", (1,), [1.0]),
        ("rates", 0.3, [0.3]),
        ("names", ["a", "b c"], ["a", "b c"]),
        ("names", [Path("x")], ["x"]),
        ("odd", "up", "UP"),
        ("odd", 3, "3"),
        ("rates", [0.1, -1e-5, 1e300], [0.1, -1e-5, 1e300]),
        ("pair", [1, -2.5e-7], [1.0, -2.5e-7]),
        ("tag", ["a", "-b"], ["a", "-b"]),
        ("tag", "a", ["a"]),
        ("verbose", 2, 2),
        ("verbose", 0, 0),
        ("amp", True, True),
        ("amp", False, False),
    ],
)
def test_a_good_value_arrives_as_it_was_given(
    script: Path, name: str, value: Any, parsed: Any
) -> None:
    words = knobs.flags(script, {name: value})
    assert getattr(parse(words), name) == parsed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 1.0), ("steps", True), ("steps", "3"), ("steps", None), ("steps", [3]),
        pytest.param("steps", 10**5000, id="huge"),
        ("bucket_mb", "1"), ("bucket_mb", True), ("bucket_mb", 1j),
        pytest.param("bucket_mb", 10**400, id="beyond"),
        ("data", 3), ("data", b"digits"), ("data", "a\0b"), ("data", "\ud800"), ("data", {}),
        ("mode", "max"), ("mode", ""), ("mode", ["sum"]), ("size", 3), ("size", True),
        ("shuffle", 1), ("shuffle", "yes"), ("shuffle", None),
        ("rates", []), ("rates", ["0.1"]), ("rates", [True]), ("rates", {0.1}), ("rates", "0.1"),
        ("rates", [float("-inf")]), ("pair", [1]), ("pair", [1, 2, 3]), ("pair", 1), ("tag", []),
        ("tag", ["--"]), ("verbose", -1), ("verbose", True), ("verbose", 10**9), ("amp", 1),
        pytest.param("data", "x" * 131072, id="longer than a word may be"),
        ("names", ["a", "--shuffle"]), ("names", ["-x"]), ("names", ["a\0"]),
        ("odd", object()), ("odd", None), ("odd", "a\0b"),
    ],
)  # fmt: skip
def test_a_bad_value_names_the_knob_and_its_type(script: Path, name: str, value: Any) -> None:
    with pytest.raises(BadArgument, match=name) as caught:
        knobs.flags(script, {name: value})
    assert "What to do" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("step", "steps"), ("bucketmb", "bucket_mb"), ("Shuffle", "shuffle"), ("dta", "data")],
)
def test_a_misspelt_knob_is_answered_with_the_right_one(
    script: Path, wrong: str, right: str
) -> None:
    with pytest.raises(BadArgument) as caught:
        knobs.flags(script, {wrong: 1})
    assert f"did you mean '{right}'?" in str(caught.value)
    assert "bucket_mb: float" in str(caught.value), "the knobs that there are"


def test_whatever_lies_in_the_folder_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.py")
    write(tmp_path, b"print(1)\n" + catalogue.FROM_CELL.encode(), "my_cell.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "empty.py").touch()
    with pytest.raises(BadArgument, match="my_cell"):
        catalogue.find_job("nope")
    assert catalogue.cell_jobs() == ["my_cell"]
    for there in ("pipe.py", "folder.py"):
        with pytest.raises(BadArgument, match="is not a Python file"):
            catalogue.find_job(there)


def test_torchrun_takes_no_flag_of_a_script_for_its_own(script: Path) -> None:
    """Judged by torchrun's own parser, for the course's jobs, which go without `--`, too."""
    words = ["--num", "1", "--log=x", "--max", "2", "--", "--start"]
    commands = [knobs.after_options(script, words)]
    for job in map(catalogue.find_job, catalogue.names()):
        flags = [knob.flag for knob in knobs.knobs_of(job).values()]
        commands.append(knobs.after_options(job, flags))
    parse = """
        import json, sys
        from torch.distributed.run import get_args_parser
        for words in json.load(sys.stdin):
            given = get_args_parser().parse_args(["--standalone", "--nproc-per-node=2", *words])
            print(json.dumps([given.training_script, *given.training_script_args]))
        """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(parse)],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    arrived = list(map(json.loads, ended.stdout.splitlines()))
    assert arrived == [words if words[0] != "--" else words[1:] for words in commands]
    assert arrived[0] == [str(script), *words]


def test_a_job_without_knobs_says_so(tmp_path: Path) -> None:
    job = write(tmp_path, "print('hello')\n")
    assert knobs.flags(job, {}) == []
    with pytest.raises(BadArgument, match="declares none"):
        knobs.flags(job, {"steps": 1})


KNOB_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
    st.complex_numbers(), st.integers(min_value=10**4299, max_value=10**4305),
    st.text(st.characters(codec=None), max_size=5),
    st.lists(st.one_of(st.floats(), st.text(max_size=4), st.booleans(), st.none()), max_size=4),
    st.tuples(st.floats()), st.sets(st.integers()), st.dictionaries(st.text(), st.integers()),
    st.just(object()), st.just(Path("-x")),
    st.sampled_from(["sum", "mean", "--", "-", "-1", "=", ""]),
)  # fmt: skip
KNOB_NAMES = st.one_of(
    st.sampled_from(list(KINDS)),
    st.text(),
)


@settings(max_examples=400, deadline=None)
@given(given_knobs=st.dictionaries(KNOB_NAMES, KNOB_VALUES, max_size=4))
def test_any_knobs_are_refused_or_survive_the_command_line(
    script: Path, given_knobs: dict[str, Any]
) -> None:
    try:
        words = knobs.flags(script, given_knobs)
    except BadArgument as refused:
        str(refused).encode()  # it can be shown
        return
    for word in words:
        os.fsencode(word)
        assert "\0" not in word
    parsed = parse(words)
    for name, value in given_knobs.items():
        arrived = getattr(parsed, name)
        if name == "odd":
            assert arrived == str(value).upper()
        elif isinstance(arrived, list):
            values = value if isinstance(value, list | tuple) else [value]
            assert list(map(repr, arrived)) == [
                repr(type(a)(v)) for a, v in zip(arrived, values, strict=True)
            ]
        else:
            assert repr(arrived) == repr(type(arrived)(value))


@settings(max_examples=300, deadline=None)
@given(
    source=st.one_of(
        st.binary(),
        st.text().map(str.encode),
        st.builds(
            "parser.add_argument({})\n".format,
            st.sampled_from(
                [
                    "", "*words", "**words", "'--x', type=float if y else int", "'--'",
                    "'--x', **k",
                    "'--x', default={[]: 1}", "'--x', choices={[1]}", "'--x', choices={**a}",
                    "'--x', choices=range(3)", "'--x', choices='abc'", "'--x', nargs=2", "b'--x'",
                    "'--x', default=-'a'", "'--x', default=" + "-" * 5000 + "1",
                    "'--a-b c', help=3",
                    "'--x', choices=[[1], {}]", "'--x', type=int, choices=['a']", "'--x', action=A",
                ]
            ),
        ).map(str.encode),
    )
)  # fmt: skip
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, source: bytes
) -> None:
    job = write(tmp_path_factory.getbasetemp(), source)
    try:
        found = knobs.knobs_of(job)
        for knob in found.values():
            assert str(knob)
        knobs.flags(job, dict.fromkeys(found, 1))
    except BadArgument:
        pass


def test_a_script_with_a_syntax_error_is_left_for_the_ranks_to_report(tmp_path: Path) -> None:
    job = write(tmp_path, "def broken(:\n")
    assert knobs.flags(job, {}) == []
    assert knobs.flags(job, {"steps": 3}) == [], "nobody can tell whether it has this knob"


def test_a_script_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="cannot be read"):
        knobs.knobs_of(tmp_path)


def test_declarations_are_found_wherever_they_stand(tmp_path: Path) -> None:
    job = write(
        tmp_path,
        "def knobs():\n"
        "    group = parser.add_mutually_exclusive_group()\n"
        "    group.add_argument('--inner', type=int)\n"
        "    add_argument('--not-a-method')\n"
        "    parser.add_argument(f'--{name}')\n"
        "    # parser.add_argument('--comment')\n",
    )
    assert list(knobs.knobs_of(job)) == ["inner"]


class TestFindJob:
    def test_by_name(self) -> None:
        found = catalogue.find_job("hello_ranks")
        assert found.name == "hello_ranks.py" and found.is_relative_to(catalogue.JOBS)

    def test_by_name_in_a_lesson_s_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deep = write(tmp_path, "pass\n", "02_basic/train.py")
        flat = write(tmp_path, "pass\n", "hello.py")
        write(tmp_path, "pass\n", "02_basic/_not_a_job.py")
        monkeypatch.setattr(catalogue, "JOBS", tmp_path)
        assert catalogue.course_jobs() == {"hello": flat, "train": deep}
        assert catalogue.find_job("train") == deep and catalogue.is_ours(deep)
        assert knobs.after_options(deep, ["--num", "1"]) == [str(deep), "--num", "1"]

    def test_no_two_jobs_have_one_name(self) -> None:
        files = [path.stem for path in catalogue.JOBS.rglob("*.py") if path.stem[0] != "_"]
        assert sorted(files) == catalogue.names()

    def test_every_job_of_the_course_is_found_and_read(self) -> None:
        assert len(catalogue.names()) >= 5
        for name in catalogue.names():
            knobs.knobs_of(catalogue.find_job(name))

    @pytest.mark.parametrize("name", ["my job.py", "größe 漢字.py", "-x.py", "a'b\"c.py"])
    def test_by_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        job = write(tmp_path, "pass\n", name)
        monkeypatch.chdir(tmp_path)
        for given_path in (str(job), job, name, Path(name), f"./{name}"):
            assert catalogue.find_job(given_path) == job.resolve()

    def test_a_cell_job_of_this_folder_by_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        write(tmp_path, "pass\n" + catalogue.FROM_CELL, "mine.py")
        write(tmp_path, "pass\n", "other.py")
        assert catalogue.find_job("mine") == tmp_path / "mine.py"
        with pytest.raises(BadArgument, match=r"did you mean 'other\.py'"):
            catalogue.find_job("other")  # a file beside the notebook is named by its path

    @pytest.mark.parametrize(
        "wrong",
        [
            "", " ", "nope", "hello_rank", "../hello_ranks", "no/such/file.py", ".", "..", "/",
            "x" * 5000, "x" * 300 + ".py", "a\0b", "\ud800", "~nobody-of-this-name/x.py", "~",
            "train_ddp.txt", None, 3, b"hello_ranks", ["hello_ranks"], Path(), Path("train_ddp"),
        ],
    )  # fmt: skip
    def test_anything_else_is_refused_with_what_there_is(self, wrong: Any) -> None:
        with pytest.raises(BadArgument) as caught:
            catalogue.find_job(wrong)
        str(caught.value).encode()

    def test_a_near_miss_is_answered(self) -> None:
        with pytest.raises(BadArgument, match="did you mean 'hello_ranks'"):
            catalogue.find_job("hello_rank")

    def test_a_folder_is_not_a_job(self, tmp_path: Path) -> None:
        (tmp_path / "folder.py").mkdir()
        with pytest.raises(BadArgument):
            catalogue.find_job(tmp_path / "folder.py")

    def test_a_folder_that_is_gone_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gone = tmp_path / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        with pytest.raises(BadArgument):
            catalogue.find_job("nope")
        assert catalogue.find_job("hello_ranks").is_file()
