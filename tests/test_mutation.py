"""The judgement, judged: whatever is taken out of the verifier, some case of evidence notices.

The cases are evidence as it arrives, without processes: what ranks reported, and what they send to
a supervisor. A mutant is the verifier's own source with one fragment replaced.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import socket
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from ddp_course.checks import evidence, files, judge, manifest, supervisor, verdict
from ddp_course.checks.evidence import SOCKET, Malformed, Message, pack, split, unpack
from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.manifest import Exercise, PerRank, Tensors
from ddp_course.checks.supervisor import Gathered, Observation, Supervisor
from ddp_course.checks.verdict import Result, Verdict
from ddp_course.errors import CourseError
from ddp_grading import results, witness
from ddp_grading.roster import Student

ROOT = Path(__file__).resolve().parent.parent
SUM, MEAN, KILLED = EXERCISES["ex00"], EXERCISES["ex02"], EXERCISES["ex06"]
MOST = next(one.most(3) for one in KILLED.checks if one.most)


def inputs_of(exercise: Exercise) -> PerRank:
    return exercise.draw(np.random.default_rng(7), exercise.ranks)


def right(exercise: Exercise, inputs: PerRank) -> list[Tensors]:
    """What every rank of a right answer reports."""
    outputs: list[Tensors] = [{} for _ in inputs]
    for check in exercise.checks:
        for mine, wanted in zip(outputs, check.expected(inputs), strict=True):
            mine.update({name: np.array(array) for name, array in wanted.items()})
    return outputs


def gathered(exercise: Exercise, change: Callable[[list[Observation]], None] | None = None,
             **fields: Any) -> Gathered:  # fmt: skip
    """The evidence of a right answer, with a change."""
    inputs = inputs_of(exercise)
    seen = [
        Observation(rank, "returned", outputs, calls=10_000, place=rank + 1)
        for rank, outputs in enumerate(right(exercise, inputs))
    ]
    if change:
        change(seen)
    usual = {"bytes_moved": 2 * exercise.moves(len(seen)), "attempt": exercise.restarts}
    return Gathered(inputs, seen, **{**usual, **fields})


def graded(exercise: Exercise, found: Gathered) -> tuple[str, int, tuple[str, ...]]:
    """Status, points and every check's status, as in grading."""
    judged = judge.assess(exercise, found)
    heeded = witness.heed(exercise, judged, {"traffic": witness.traffic(exercise, found)})
    spared = witness.spare(exercise, heeded, found)
    whole = Verdict(exercise.name, exercise.title, spared)
    return whole.status, whole.points, tuple(one.status for one in spared)


def put(name: str, value: Any, rank: int = 1) -> Callable[[list[Observation]], None]:
    def change(seen: list[Observation]) -> None:
        if value is None:
            del seen[rank].outputs[name]
        else:
            seen[rank].outputs[name] = value(seen[rank].outputs[name])

    return change


def state(name: str, rank: int = 1) -> Callable[[list[Observation]], None]:
    def change(seen: list[Observation]) -> None:
        seen[rank].state = name

    return change


def fewer_calls(seen: list[Observation]) -> None:
    seen[2].calls = 0


ALL = ("pass", "pass")
FIRST = ("fail", 0, ("fail", "blocked"))
# evidence, and what comes of it
EVIDENCE: dict[
    str, tuple[Callable[[], tuple[Exercise, Gathered]], tuple[str, int, tuple[str, ...]]]
] = {
    "right": (lambda: (SUM, gathered(SUM)), ("pass", 3, ALL)),
    "right, another exercise": (lambda: (MEAN, gathered(MEAN)), ("pass", 4, ALL)),
    "just right": (
        lambda: (SUM, gathered(SUM, put("result", lambda x: x + 5e-6))),
        ("pass", 3, ALL),
    ),
    "off by a thousandth": (
        lambda: (SUM, gathered(SUM, put("result", lambda x: x + 1e-3))),
        FIRST,
    ),
    "too small by a thousandth": (
        lambda: (SUM, gathered(SUM, put("result", lambda x: x - 1e-3))),
        FIRST,
    ),
    "the last rank wrong": (
        lambda: (SUM, gathered(SUM, put("result", lambda x: x + 1, rank=2))),
        FIRST,
    ),
    "not a number": (lambda: (SUM, gathered(SUM, put("result", lambda x: x * np.nan))), FIRST),
    "infinite": (lambda: (SUM, gathered(SUM, put("result", lambda x: x + np.inf))), FIRST),
    "another shape": (lambda: (SUM, gathered(SUM, put("result", lambda x: x[None]))), FIRST),
    "no result on one rank": (lambda: (SUM, gathered(SUM, put("result", None))), FIRST),
    "the large one wrong": (
        lambda: (SUM, gathered(SUM, put("bulk/result", lambda x: x * 0))),
        FIRST,
    ),
    "the second check wrong": (
        lambda: (SUM, gathered(SUM, put("argument", lambda x: x + 1))),
        ("fail", 2, ("pass", "fail")),
    ),
    "too few bytes": (lambda: (SUM, gathered(SUM, bytes_moved=5_000)), FIRST),
    "one byte too few": (
        lambda: (SUM, gathered(SUM, bytes_moved=SUM.moves(3) - 1)),
        FIRST,
    ),
    "just enough bytes": (
        lambda: (SUM, gathered(SUM, bytes_moved=SUM.moves(3))),
        ("pass", 3, ALL),
    ),
    "far too many bytes": (lambda: (SUM, gathered(SUM, bytes_moved=1 << 40)), FIRST),
    "nobody counted bytes": (
        lambda: (SUM, gathered(SUM, bytes_moved=None)),
        ("infra", 0, ("infra", "infra")),
    ),
    "wrong and nobody counted": (
        lambda: (SUM, gathered(SUM, put("result", lambda x: x + 1), bytes_moved=None)),
        FIRST,
    ),
    "no collective": (lambda: (SUM, gathered(SUM, fewer_calls)), FIRST),
    "no kill": (
        lambda: (KILLED, gathered(KILLED, attempt=0)),
        ("fail", 0, ("fail", "blocked", "blocked")),
    ),
    "one byte more than a right answer moves": (
        lambda: (KILLED, gathered(KILLED, bytes_moved=MOST + 1)),
        ("fail", 0, ("fail", "blocked", "blocked")),
    ),
    "killed once too seldom": (
        lambda: (KILLED, gathered(KILLED, attempt=1)),
        ("fail", 0, ("fail", "blocked", "blocked")),
    ),
    "killed": (lambda: (KILLED, gathered(KILLED)), ("pass", 6, ("pass",) * 3)),
    "a rank left": (
        lambda: (SUM, gathered(SUM, state("gone"))),
        ("error", 0, ("error", "blocked")),
    ),
    "a rank raised": (
        lambda: (SUM, gathered(SUM, state("raised"))),
        ("error", 0, ("error", "blocked")),
    ),
    "a rank sent nonsense": (
        lambda: (SUM, gathered(SUM, state("malformed"))),
        ("error", 0, ("error", "blocked")),
    ),
    "a rank never came back": (
        lambda: (SUM, gathered(SUM, state("computing"))),
        ("timeout", 0, ("timeout", "blocked")),
    ),
    "a rank never came": (
        lambda: (SUM, gathered(SUM, state("absent"))),
        ("timeout", 0, ("timeout", "blocked")),
    ),
    "nothing began": (
        lambda: (SUM, gathered(SUM, began=False)),
        ("infra", 0, ("infra", "infra")),
    ),
    "ended for what it took": (
        lambda: (SUM, gathered(SUM, stopped="too much memory")),
        ("error", 0, ("error", "blocked")),
    ),
}


def evidence_case(name: str) -> None:
    make, expected = EVIDENCE[name]
    assert graded(*make()) == expected


def refused(body: bytes) -> bool:
    try:
        evidence.unpack(body)
    except Malformed:
        return True
    return False


def frame(listed: list[dict[str, Any]], raw: bytes) -> bytes:
    import json

    header = json.dumps({"event": "returned", "tensors": listed}).encode()
    return len(header).to_bytes(4, "big") + header + raw


def frames() -> None:
    one = {"name": "a", "dtype": "float32", "shape": [2]}
    assert evidence.unpack(frame([one], bytes(8))).tensors["a"].tolist() == [0.0, 0.0]
    assert refused(frame([{**one, "dtype": "object"}], bytes(8)))
    assert refused(frame([{**one, "dtype": "complex64"}], bytes(16)))
    assert refused(frame([{**one, "shape": [-2]}], bytes(8)))
    assert refused(frame([{**one, "shape": [2.0]}], bytes(8)))
    assert refused(frame([{**one, "shape": [True]}], bytes(4)))
    assert refused(frame([{**one, "shape": [1] * 70}], bytes(4)))
    assert refused(frame([{**one, "shape": [-2, -4]}], bytes(32)))
    assert refused(frame([one], bytes(9)))
    assert refused(frame([one], bytes(7)))
    assert refused(frame([one, one], bytes(16)))
    with pytest.raises(Malformed):
        evidence.split((1 << 40).to_bytes(8, "big"))


@dataclass
class Job:
    """A job that ends when it is told to, and after some seconds at last."""

    over: bool = False
    begun: float = 0.0

    @property
    def done(self) -> bool:
        self.begun = self.begun or time.monotonic()
        return self.over or time.monotonic() > self.begun + 5


class Line:
    """A rank's end of the socket, in the hand of a test."""

    def __init__(self, where: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(3)
        self.socket.connect(where)
        self.buffer = b""

    def send(self, event: str, rank: Any, attempt: Any = 0, tensors: Tensors | None = None) -> None:
        fields = {"event": event, "rank": rank, "attempt": attempt}
        with contextlib.suppress(OSError):
            self.socket.sendall(pack(Message(fields, tensors or {})))

    def hear(self, within_s: float = 3.0) -> Message | None:
        """The next message; None if the supervisor hung up or says nothing."""
        self.socket.settimeout(within_s)
        with contextlib.suppress(OSError):
            while True:
                body, self.buffer = split(self.buffer)
                if body is not None:
                    message = unpack(body)
                    if message.fields["event"] != "where":
                        return message
                    continue
                piece = self.socket.recv(65536)
                if not piece:
                    return None
                self.buffer += piece
        return None


@contextlib.contextmanager
def served(**more: Any) -> Iterator[tuple[Callable[[], Line], Job, list[Gathered], list[int]]]:
    """A supervisor of two ranks: a way to connect, its job, what it gathers, when it drew."""
    drawn: list[int] = []
    job, kept = Job(), list[Gathered]()

    def draw(random: np.random.Generator, ranks: int) -> PerRank:
        drawn.append(ranks)
        return [{"mine": np.full(2, rank, np.float32)} for rank in range(ranks)]

    with Supervisor(2, draw, **more) as watcher:
        where = watcher.env[SOCKET]

        def gather() -> None:
            with contextlib.suppress(Exception):  # of a mutant; then nothing is kept
                kept.append(watcher.gather(job, patience_s=60.0))

        thread = threading.Thread(target=gather, daemon=True)
        thread.start()
        lines: list[Line] = []

        def connect() -> Line:
            lines.append(Line(where))
            return lines[-1]

        try:
            yield connect, job, kept, drawn
            job.over = True
            thread.join(10)
        finally:
            job.over = True
            for line in lines:
                line.socket.close()
            thread.join(10)


def come(connect: Callable[[], Line]) -> list[Line]:
    lines = [connect(), connect()]
    for rank, line in enumerate(lines):
        line.send("here", rank)
    for line in lines:
        message = line.hear()
        assert message is not None and message.fields["event"] == "load"
    return lines


def inputs_come_last_and_are_ones_own() -> None:
    bytes_seen = iter((1000, 1700))
    with served(meter=lambda: next(bytes_seen)) as (connect, _, kept, drawn):
        first, second = come(connect)
        first.send("loaded", 0)
        assert first.hear(0.3) is None and drawn == [], "not before all have loaded"
        second.send("loaded", 1)
        for rank, line in enumerate((first, second)):
            message = line.hear()
            assert message is not None and message.tensors["mine"].tolist() == [rank, rank]
        for rank, line in enumerate((first, second)):
            line.send("returned", rank, tensors={"out": np.full(1, rank, np.float32)})
        assert first.hear() is not None
    assert [one.state for one in kept[0].observations] == ["returned", "returned"]
    assert kept[0].bytes_moved == 700
    assert kept[0].began


def nobody_loads_before_all_are_here() -> None:
    with served() as (connect, _, kept, _drawn):
        line = connect()
        line.send("here", 0)
        late = connect()
        late.send("here", 1, attempt=5)
        assert line.hear(0.3) is None
    assert not kept[0].began
    assert kept[0].observations[1].state == "absent"


def a_lost_meter_is_no_traffic() -> None:
    answers = iter((OSError(), 900, 0))

    def meter() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    with served(meter=meter) as (connect, _, kept, _drawn):
        lines = come(connect)
        for rank, line in enumerate(lines):
            line.send("loaded", rank)
        for rank, line in enumerate(lines):
            assert line.hear() is not None
            line.send("returned", rank)
        lines[0].hear()
    assert kept[0].bytes_moved is None


def an_impostor_is_sent_away() -> None:
    with served(restarts=2) as (connect, _, kept, _drawn):
        lines = come(connect)
        for rank in (0, 1, 2, -1, True, None, "0", 1.0):
            for attempt in (0, 1, 2, 9, None):
                stranger = connect()
                stranger.send("returned", rank, attempt, {"out": np.ones(1)})
                assert stranger.hear(0.5) is None
        for rank, line in enumerate(lines):
            line.send("loaded", rank)
        for line in lines:
            assert line.hear() is not None
    assert [one.state for one in kept[0].observations] == ["computing", "computing"]
    assert kept[0].attempt == 0


def an_answer_before_the_inputs_is_none() -> None:
    for early in ("returned", "loaded"):
        with served() as (connect, _, kept, drawn):
            line = connect()
            line.send("here", 0)
            line.send(early, 0, tensors={"out": np.ones(1)})
            line.hear(0.5)
        assert kept[0].observations[0].state == "malformed" and drawn == []


def whoever_leaves_is_gone() -> None:
    with served() as (connect, _, kept, _drawn):
        first, _second = come(connect)
        first.socket.close()
        time.sleep(0.2)
    assert kept[0].observations[0].state == "gone"


def an_answer_is_given_once() -> None:
    with served() as (connect, _, kept, _drawn):
        lines = come(connect)
        for rank, line in enumerate(lines):
            line.send("loaded", rank)
        assert lines[0].hear() is not None
        lines[0].send("returned", 0, tensors={"out": np.zeros(1)})
        lines[0].send("returned", 0, tensors={"out": np.ones(1)})
        lines[0].hear(0.5)
    assert kept[0].observations[0].outputs["out"].tolist() == [0.0]


def marks() -> None:
    found = Verdict(SUM.name, SUM.title, judge.assess(SUM, gathered(SUM)))
    good = results.record(Student("ada"), found, sandbox="x")
    assert (good.points, good.score) == (3, 3.0)
    renamed = tuple(replace(one, id=f"my-{one.id}") for one in good.checks)
    doubled = tuple(replace(one, max_points=9) for one in good.checks)
    for wrong in (
        {"penalty": -1},
        {"penalty": 1.5},
        {"penalty": float("nan")},
        {"checks": good.checks[:1]},
        {"checks": renamed},
        {"checks": doubled},
    ):
        with pytest.raises(CourseError):
            replace(good, **wrong)
    failed = tuple(replace(one, status="fail") for one in good.checks)
    assert (replace(good, checks=failed).points, replace(good, penalty=0.5).score) == (0, 1.5)


def points_need_a_pass() -> None:
    for status in ("fail", "error", "timeout", "blocked", "ungradable", "infra"):
        assert Result("a", "title", status, 5).points == 0
    both = (Result("a", "title", "pass", 5), Result("b", "title", "fail", 5))
    assert Verdict("ex00", "title", both).status == "fail"
    assert not Verdict("ex00", "title", both).passed


def stubs() -> None:
    for one in (SUM, MEAN, KILLED):
        assert files.not_yet(ROOT / "exercises" / f"{one.stem}.py", one.function)
        assert not files.not_yet(ROOT / "solutions" / f"{one.stem}.py", one.function)


CASES: dict[str, Callable[[], None]] = {
    **{name: lambda name=name: evidence_case(name) for name in EVIDENCE},  # type: ignore[misc]
    "frames": frames,
    "marks": marks,
    "points need a pass": points_need_a_pass,
    "stubs": stubs,
    "inputs come last": inputs_come_last_and_are_ones_own,
    "nobody loads alone": nobody_loads_before_all_are_here,
    "a lost meter": a_lost_meter_is_no_traffic,
    "an impostor": an_impostor_is_sent_away,
    "an early answer": an_answer_before_the_inputs_is_none,
    "a rank that leaves": whoever_leaves_is_gone,
    "a second answer": an_answer_is_given_once,
}

# what is changed, the fragment of its source, and what stands there instead
MUTANTS = [
    (manifest.close, "got.shape == expected.shape and ", ""),
    (manifest.close, "<= tolerance", "<= 1e6 * tolerance"),
    (manifest.close, "<= tolerance", "> tolerance"),
    (manifest.close, "np.abs(got", "(got"),
    (manifest.close, "np.all(np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= "
     "tolerance)", "not np.any(np.abs(got - expected) > tolerance)"),
    (manifest.all_close, "name in mine and close", "name not in mine or close"),
    (manifest.all_close, "return all(", "return any("),
    (manifest.all_close, "zip(got, expected, strict=True)", "[(got[0], expected[0])]"),
    (judge.assess, "not gathered.began", "False"),
    (judge.assess, "if gathered.stopped", "if False"),
    (judge.assess, '("raised", "gone", "malformed")', '("raised", "malformed")'),
    (judge.assess, '("raised", "gone", "malformed")', '("gone", "malformed")'),
    (judge.assess, '("raised", "gone", "malformed")', '("raised", "gone")'),
    (judge.assess, "if not all(", "if not any("),
    (judge._compared, "not passed.issuperset(check.depends)", "False"),
    (judge._compared, "if not passed", "if passed"),
    (judge._compared, "elif not all_close", "elif False and not all_close"),
    (judge._compared, "_spared(exercise, gathered) or ", ""),
    (judge._compared, " or _silent(exercise, gathered)", ""),
    (judge._spared, "gathered.attempt == exercise.restarts", "True"),
    (judge._silent, "one.calls >= fewest", "one.calls >= 0"),
    (judge._silent, "if all(", "if any("),
    (witness.traffic, "moved < least", "moved > least"),
    (witness.traffic, "moved < least", "moved < least // 1000"),
    (witness.traffic, "moved < least", "moved <= least"),
    (witness.traffic, "moved > most", "False"),
    (witness.traffic, "return None", "return Witness(True)"),
    (witness.heed, "if witness is None", "if False and witness is None"),
    (witness.heed, "if not witness.agrees", "if False"),
    (witness.heed, "for name in REQUIRED", "for name in ()"),
    (witness.heed, '"fail", witness.said', '"pass", witness.said'),
    (witness.heed, '_changed(one, "blocked", "")', "one"),
    (witness.spare, "moved > most", "False"),
    (witness.spare, "moved > most", "moved >= most"),
    (witness.spare, "not lost.isdisjoint(check.depends)", "False"),
    (witness.spare, '"fail", said', '"pass", said'),
    (witness.heed, "exercise.talks and any", "not exercise.talks and any"),
    (verdict.Result.points, 'if self.status == "pass" else 0', 'if self.status != "error" else 0'),
    (verdict.Verdict.status, 'one.status != "pass"), "pass"', 'one.status == "pass"), "pass"'),
    (evidence._tensor, "dtype not in _DTYPES", "False"),
    (evidence.unpack, "if at != len(body)", "if False"),
    (evidence.unpack, "is not array", "is None"),
    (evidence.split, "length > MAX_FRAME_BYTES", "False"),
    (Supervisor._introduce, "or rank in self._links", ""),
    (Supervisor._introduce, "type(rank) is not int or ", ""),
    (Supervisor._introduce, "if attempt != self._attempt", "if False"),
    (Supervisor._introduce, "later and self._awaits_restart()", "later"),
    (Supervisor._take, '"returned" and seen.state == "computing"', '"returned"'),
    (Supervisor._take, '"loaded" and seen.state == "importing"', '"loaded"'),
    (Supervisor._take, "after - before", "after"),
    (Supervisor._ready, "all(", "any("),
    (Supervisor._hand_out, "one.rank, Message", "1 - one.rank, Message"),
    (Supervisor._hand_out, "self._read_meter()", "self._read_meter() or 0"),
    (Supervisor.gather, 'if all(one.state == "here"', 'if any(one.state == "here"'),
    (Supervisor._hear, '"gone"', '"returned"'),
    (results.Record.__post_init__, "not 0 <= self.penalty <= 1", "self.penalty < 0"),
    (results.Record.__post_init__, "not 0 <= self.penalty <= 1", "self.penalty > 1"),
    (results.Record.__post_init__, "!= list(wanted.items())", "is None"),
    (files.not_yet, "found = next(", "return \"\"\n    found = next("),
]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_verifier_as_it_is_gets_every_case_right(name: str) -> None:
    CASES[name]()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("target", "old", "new"),
    MUTANTS,
    ids=[f"{n}-{getattr(one[0], '__name__', 'property')}" for n, one in enumerate(MUTANTS)],
)
def test_some_case_notices_the_mutant(
    target: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = target.fget if isinstance(target, property) else target
    mutant = mutated(original, old, new)
    replacement = property(mutant) if isinstance(target, property) else mutant
    spread(monkeypatch, target, replacement)
    noticed = []
    order = sorted(CASES, key=lambda name: CASES[name] is not marks and name not in EVIDENCE)
    for name in order:  # those that need no socket first
        try:
            CASES[name]()
        except (Exception, pytest.fail.Exception):
            noticed.append(name)
            break
    gc.collect()  # what a broken supervisor leaves open is reported here
    assert noticed, f"nothing notices {old!r} → {new!r}"


def mutated(function: FunctionType, old: str, new: str) -> FunctionType:
    """The function with one fragment of its source replaced, wherever the lines are broken."""
    source = textwrap.dedent(inspect.getsource(function))
    flat, wanted = " ".join(source.split()), " ".join(old.split())
    if old in source:
        source = source.replace(old, new, 1)
    else:
        assert wanted in flat, f"{function.__qualname__} has no {old!r} any more"
        source = unbroken(source, wanted, new)
    source = "\n".join(line for line in source.splitlines() if line.strip() != "@property")
    scope: dict[str, Any] = {}
    exec(compile("from __future__ import annotations\n" + source, "<mutant>", "exec"),
         function.__globals__, scope)  # fmt: skip
    return scope[function.__name__]  # type: ignore[no-any-return]


def unbroken(source: str, wanted: str, new: str) -> str:
    """Replace a fragment of which the source breaks the lines."""
    import re

    pattern = r"\s*".join(re.escape(word) for word in re.findall(r"\w+|[^\w\s]", wanted))
    return re.sub(pattern, lambda _: new, source, count=1)


def spread(monkeypatch: pytest.MonkeyPatch, target: Any, replacement: Any) -> None:
    """Put it wherever the original is known: in its class, or in every module of ours."""
    found = False
    for module in list(sys.modules.values()):
        if not getattr(module, "__name__", "").startswith(("ddp_course", "ddp_grading")):
            continue
        for name, value in list(vars(module).items()):
            if value is target:
                monkeypatch.setattr(module, name, replacement)
                found = True
            elif inspect.isclass(value):
                for member, inner in list(vars(value).items()):
                    if inner is target:
                        monkeypatch.setattr(value, member, replacement)
                        found = True
    assert found, "the original is nowhere"


def test_the_mutants_are_many_and_all_of_the_verifier() -> None:
    assert len(MUTANTS) >= 20
    touched = {one[0].__module__ for one in MUTANTS if not isinstance(one[0], property)}
    assert {"ddp_course.checks.judge", supervisor.__name__, witness.__name__} <= touched
