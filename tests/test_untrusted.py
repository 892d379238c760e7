"""What a rank leaves in a run's folder is data: taken or refused with a sentence, never more.

Pipes that nobody writes to, devices, links, gigabytes, JSON that is cut off, nested too deep or of
the wrong kind: every reader answers with a CourseError or a result, at once, and runs nothing.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launching import script
from test_runs import ASKED, RESULT

import ddp_course
from ddp_course import disk as untrusted
from ddp_course import launch
from ddp_course.checks.evidence import Malformed, split, unpack
from ddp_course.diagnosis.diagnose import diagnose
from ddp_course.errors import CourseError, NoEvidence
from ddp_course.observe import trace as traces
from ddp_course.run.reader import Reader
from ddp_course.run.run import Run
from ddp_course.show.attempts import attempts
from ddp_course.show.timeline import timeline

# On a busy machine nothing is too slow.
FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
PACKAGE = Path(ddp_course.__file__).parent

Make = Callable[[Path], object]

OTHER_THINGS: dict[str, Make] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to a pipe": lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")),
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a socket": lambda path: _bind(path),
    "a file of the kernel": lambda path: path.symlink_to("/proc/self/mem"),
}


def _bind(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path holds 107 bytes at most
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("kind", OTHER_THINGS)
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    OTHER_THINGS[kind](path)
    with pytest.raises(OSError):
        untrusted.read_json(path)


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b'"abcdefgh"')
    assert untrusted.read_json(path, 10) == "abcdefgh"
    with pytest.raises(OSError, match="More than"):
        untrusted.read_json(path, 9)
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="More than 16 MB"):
        untrusted.read_json(path)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, "1" * 10_000, "", "{", b"\xff"])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        untrusted.parse_json(text)


@pytest.mark.parametrize("kind", OTHER_THINGS)
def test_what_is_written_goes_nowhere_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    OTHER_THINGS[kind](path)
    with pytest.raises(OSError):
        untrusted.append(path, "x")
    if kind == "a folder":
        with pytest.raises(OSError):
            untrusted.write(path, "x")
    else:
        untrusted.write(path, "x")
        untrusted.append(path, "y")
        assert untrusted.read_bytes(path, 9) == b"xy"
    assert not list(tmp_path.glob(".*"))


def test_a_rank_cannot_lead_our_own_writing_astray(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("untouched")
    job = script(
        tmp_path,
        f"""
        import os, time
        from pathlib import Path
        folder = Path(os.environ["DDP_COURSE_RUN"])
        os.mkfifo(folder / "lines.jsonl")
        (folder / "result.json").symlink_to({str(mine)!r})
        os.mkfifo(folder / "events-1.jsonl")
        (folder / "torchrun.log").unlink()
        os.mkfifo(folder / "torchrun.log")
        print("done", flush=True)
        """,
    )
    run = launch(job, ranks=1, limit_s=240)
    assert run.ok, run
    assert mine.read_text() == "untouched"
    assert run.lines_of(0, "stdout") == ["done"]
    assert Run.open(run.folder).lines_of(0, "stdout") == ["done"]


# The package as a whole

DANGEROUS_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
DANGEROUS_CALLS = {
    "eval", "exec", "torch.load", "yaml.load", "np.load", "numpy.load", "os.system",
    "pickle.load", "pickle.loads", "pickle.Unpickler",
}  # fmt: skip
# A rank runs its script, and reads torch's own record of it, refusing any object in it.
RANK_SIDE = {"host.py": {"exec"}, "calls.py": {"pickle"}}


def test_nothing_unpickles_or_evaluates() -> None:
    """Apart from jobs and wrong answers, which are learners' programs, and a rank's own script."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        if {"jobs", "wrong"} & {*path.parts}:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [one.name.split(".")[0] for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Call):
                names = [ast.unparse(node.func)]
                if any(word.arg == "allow_pickle" for word in node.keywords):
                    names.append("pickle")
            bad = set(names) & (DANGEROUS_MODULES | DANGEROUS_CALLS)
            found += [f"{path.name}: {name}" for name in bad - RANK_SIDE.get(path.name, set())]
    assert found == []


# A run's folder


def write_run(path: Path, asked: Any = ASKED, result: Any = RESULT) -> Path:
    logs = path / "logs" / "x_y" / "attempt_0" / "1"
    logs.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(asked))
    (path / "result.json").write_text(json.dumps(result))
    (path / "torchrun.log").write_text("torchrun says\n")
    (logs / "stderr.log").write_text("Traceback (most recent call last):\nValueError: boom\n")
    (path / "lines.jsonl").write_text('{"t_s": 1, "rank": 1, "stream": "stderr", "text": "x"}\n')
    (path / "events-1.jsonl").write_text('{"t": 1.0, "rank": 1, "event": "log", "loss": 1}\n')
    return path


def use(path: Path) -> bool:
    """Open the run, and ask it all that a page or a grader asks; False if it was refused."""
    try:
        run = Run.open(path)
    except CourseError as error:
        assert "What to do" in str(error)
        return False
    assert str(run) + run._repr_html_() + run.summary() + repr(run)
    assert run.exit_codes is not None
    assert (run.lanes(), run.tail(), run.lines, run.metrics, run.ok, run.wall_s) is not None
    for rank in range(min(run.ranks, 4)):
        run.lines_of(rank, "stderr")
        run.values("loss", rank=rank)
    run.by_rank("loss")
    for view in (diagnose, attempts, timeline):
        with contextlib.suppress(CourseError):
            shown: Any = view(run)
            assert str(shown)
            shown._repr_html_()
    return True


FILES = {
    "run.json": False, "result.json": False, "lines.jsonl": True, "events-1.jsonl": True,
    "events-7.jsonl": True, "trace-1.json": True, "ledger-1-0.json": True, "torchrun.log": True,
    "logs/x_y/attempt_0/1/stderr.log": True, "logs/x_y/attempt_0/1/error.json": True,
    "verdict.json": True,
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHER_THINGS)
@pytest.mark.parametrize("name", FILES)
def test_other_things_in_place_of_a_file(tmp_path: Path, name: str, kind: str) -> None:
    path = write_run(tmp_path / "run")
    (path / name).unlink(missing_ok=True)
    OTHER_THINGS[kind](path / name)
    assert use(path) == FILES[name]


def test_other_things_while_the_run_is_live(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    for number, make in enumerate(OTHER_THINGS.values()):
        make(path / f"events-{number + 2}.jsonl")
        (path / "logs" / "x_y" / "attempt_0" / str(number + 2)).mkdir()
        make(path / "logs" / "x_y" / "attempt_0" / str(number + 2) / "stdout.log")
    record = Reader(path)
    record.poll(0.0)
    record.poll(1.0, last=True)
    assert [line.text for line in record.lines] == [
        "Traceback (most recent call last):", "ValueError: boom", "torchrun says"
    ]  # fmt: skip
    assert len(record.events) == 1


CONTENTS = [
    b"", b"{", b"[]", b"null", b"3", b"NaN", b'"text"', b"{}", b"[" * 100_000, b"\xff\xfe\x00",
    b"1" * 5000, b'{"rank": NaN}', b"\x1f\x8b\x08 gzip", b"\x80\x04\x95pickle.", b"\n" * 1000,
]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_other_contents(tmp_path: Path, name: str) -> None:
    for number, content in enumerate(CONTENTS):
        path = write_run(tmp_path / str(number))
        (path / name).write_bytes(content)
        use(path)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_terabyte(tmp_path: Path, name: str) -> None:
    """It has no blocks, and is read no further than its reader's limit."""
    path = write_run(tmp_path / "run")
    with open(path / name, "ab") as file:
        file.truncate(1 << 40 if ".json" in name and ".jsonl" not in name else 1 << 28)
    use(path)


def test_a_rank_that_never_stops_printing_is_kept_within_limits(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run")
    (path / "lines.jsonl").unlink()
    log = path / "logs" / "x_y" / "attempt_0" / "1" / "stdout.log"
    with open(log, "wb") as file:
        for _ in range(60):
            file.write(b"x" * 99 + b"\n" * 1_000_00)
        file.write(b"its last words\n")
    run = Run.open(path)
    texts = run.lines_of(1, "stdout")
    assert len(texts) < 500_000
    assert texts[0] == "x" * 99
    assert any(str(log) in text for text in texts), "where all of it is"
    assert texts[-1] == "its last words"
    assert "ValueError: boom" in run.lines_of(1, "stderr"), "another file has its own room"


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["finished", "failed", "time-out", "stopped", "never", "0", "1", -9, 2**70,
                     float("inf"), 1e308, "<script>", "\ud800", "\0", "x" * 10_000]),
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
FULL_ASKED = {
    **ASKED, "script": "/x/job.py", "nodes": 1, "argv": ["--lr", "0.1"], "cwd": "/x",
    "env": {"OMP_NUM_THREADS": "1"}, "warm": True, "trace": True, "limit_s": 60.0, "created": 1e9,
    "restarts": 0,
}  # fmt: skip
FULL_RESULT = {
    **RESULT, "deaths": [{"t": 1e9, "rank": 1, "attempt": 0, "exit_code": 3}], "began": 1e9,
    "observed": {"deaths": [[1.0, 1, 3]], "killed": {"1": 9}, "paused": [0], "started": [0, 1]},
}  # fmt: skip
LEDGER = {
    "version": 1, "rank": 1, "attempt": 0, "why": "exit", "t": 1e9, "exit_code": 0, "dropped": 0,
    "entries": [{
        "n": 0, "group": "0", "op": "all_reduce", "sizes": [[4]], "dtypes": ["float32"],
        "bytes": 16, "t": 1e9, "end": None, "state": "scheduled", "p2p": None, "part": None,
        "line": {"file": "/x/job.py", "line": 3, "function": "main", "code": "reduce()"},
    }],
    "exception": {"type": "ValueError", "text": "boom", "line": None},
    "stack": [{"file": "/x/job.py", "line": 3, "function": "main", "code": "reduce()"}],
}  # fmt: skip
TRACE = {
    "baseTimeNanoseconds": 10**18,
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "forward", "tid": 1, "ts": 1.0, "dur": 5.0},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 1, "ts": 2.0, "dur": 2.0},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "tid": 2, "ts": 3.0,
         "dur": 3.0, "args": {"Input Dims": [[4]]}},
        {"ph": "X", "cat": "kernel", "name": "nccl", "tid": 3, "ts": 3.0, "dur": 3.0},
    ],
}  # fmt: skip
EVENT = {"t": 1e9, "rank": 1, "attempt": 0, "event": "log", "step": 1, "loss": 0.5}
WHOLE = {
    "run.json": FULL_ASKED, "result.json": FULL_RESULT, "ledger-1-0.json": LEDGER,
    "trace-1.json": TRACE, "events-1.jsonl": EVENT,
    "lines.jsonl": {"t_s": 1.0, "rank": 1, "stream": "stderr", "text": "x", "attempt": 0},
}  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value inside a JSON value."""
    inner: Any = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [here, *(way for key, one in inner for way in places(one, (*here, key)))]


def changed(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    if not way:
        return new
    value = copy.copy(value)
    value[way[0]] = changed(value[way[0]], way[1:], new)
    return value


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, Any]:
    """One file of a run, with one or two of its values replaced by others."""
    name = draw(st.sampled_from(sorted(WHOLE)))
    value: Any = copy.deepcopy(WHOLE[name])
    for _ in range(draw(st.integers(1, 2))):
        value = changed(value, draw(st.sampled_from(places(value))), draw(JSON))
    return name, value


@settings(FUZZ, max_examples=300)
@given(change=changes())
def test_any_value_in_any_place(
    tmp_path_factory: pytest.TempPathFactory, change: tuple[str, Any]
) -> None:
    path = write_run(tmp_path_factory.mktemp("fuzz"), FULL_ASKED, FULL_RESULT)
    for name, value in [*WHOLE.items(), change]:
        (path / name).write_text(json.dumps(value) + "\n")
    (path / "trace-0.json").write_text((path / "trace-1.json").read_text())
    use(path)


@settings(FUZZ, max_examples=100)
@given(data=st.data(), name=st.sampled_from(sorted(WHOLE)))
def test_a_file_that_is_cut_off_or_has_a_wrong_byte(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    path = write_run(tmp_path_factory.mktemp("cut"), FULL_ASKED, FULL_RESULT)
    raw = bytearray(json.dumps(WHOLE[name]).encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        del raw[at:]
    else:
        raw[at] = data.draw(st.integers(0, 255))
    (path / name).write_bytes(raw)
    use(path)


@settings(FUZZ, max_examples=200)
@given(value=JSON, at=st.sampled_from(places(TRACE)))
def test_a_trace_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: Any, at: tuple[Any, ...]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace-0.json"
    path.write_text(json.dumps(changed(TRACE, at, value)))
    with contextlib.suppress(NoEvidence):
        for step in traces.read({0: path}):
            for rank in step:
                assert rank.communication_ms >= 0
                assert rank.extent
                assert rank.hidden_share is None or 0 <= rank.hidden_share <= 1


@settings(FUZZ, max_examples=200)
@given(header=st.one_of(JSON, st.fixed_dictionaries({"tensors": st.lists(JSON, max_size=2)})),
       tensor=st.fixed_dictionaries({"name": JSON, "dtype": JSON, "shape": JSON}),
       raw=st.binary(max_size=30))  # fmt: skip
def test_evidence_is_taken_or_refused(header: Any, tensor: Any, raw: bytes) -> None:
    for one in (header, {"tensors": [tensor]}, {"tensors": [{**tensor, "dtype": "float32"}]}):
        text = json.dumps(one).encode()
        with contextlib.suppress(Malformed):
            unpack(len(text).to_bytes(4, "big") + text + raw)
    with contextlib.suppress(Malformed):
        unpack(raw)
        split(raw)
