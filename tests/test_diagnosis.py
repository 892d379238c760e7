"""Right in kind, rank and collective where something is wrong; silent where nothing is."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from launching import PATIENCE_S, script, until
from recorded import CASES, replay

from ddp_course import diagnose
from ddp_course.diagnosis import diagnose as rules
from ddp_course.diagnosis import kinds, messages
from ddp_course.diagnosis.diagnose import Diagnosis, Evidence, explain, failure_of
from ddp_course.launcher.launch import launch
from ddp_course.observe.ledger import Entry, Frame, Ledger, Pair, Raised
from ddp_course.observe.output import Lines, Observed, is_halted
from ddp_course.run.reader import Line
from ddp_course.run.run import Run

T0 = 1.8e9  # some time of day
BROKEN = "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:1."


# The gallery: each kind, from the job that produces it (recorded.py), and a few of them live


WAITS_S = 4.0, 20.0  # the second for a machine that is too busy to get past the start in the first
LIVE = "hang_missing_rank", "crash_one_rank-raises", "wrong_wrapping-module", "healthy-train_ddp"


@pytest.mark.parametrize("name", CASES)
def test_the_gallery(tmp_path: Path, name: str) -> None:
    judge(name, replay(name, tmp_path))


@pytest.mark.parametrize("name", LIVE)
def test_the_gallery_live(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded is what this torch and this launcher do today."""
    case = dict(CASES[name])
    knobs = case.get("knobs", {})
    for wait_s in WAITS_S:
        given = {**knobs, "timeout_s": wait_s} if "timeout_s" in knobs else knobs
        run = launch(case["job"], ranks=case["ranks"], limit_s=60, **given)
        found = diagnose(run)
        if found.kind == case["kind"]:
            break
    judge(name, run.folder)
    if run.failure is not None:
        assert (run.failure.what, run.failure.rank) == (found.sentence, found.rank), "one voice"


def judge(name: str, folder: Path) -> None:
    """A run's folder must be diagnosed as its case says."""
    case, run = CASES[name], Run.open(folder)
    found = diagnose(run)
    assert found == diagnose(str(folder)), "reopened"
    assert found.kind == case["kind"], str(found)
    assert found.healthy == (case["kind"] == "healthy")
    if found.healthy:
        assert (found.remedy, found.lesson, found.rank) == ("", "", None)
        return
    assert found.remedy
    assert "0.0 s" not in found.sentence
    assert "rank" not in case or found.rank == (None if case["rank"] < 0 else case["rank"])
    assert found.collective == case.get("collective", found.collective), str(found)
    assert re.search(case.get("says", ""), found.sentence), found.sentence


def test_a_run_cut_off_while_it_progressed_was_slow() -> None:
    for limit_s in WAITS_S:
        run = launch("hello_ranks", ranks=2, steps=100_000, pause_ms=10.0, limit_s=limit_s)
        assert run.failure is not None and run.failure.kind == "too-slow"
        if "slow, not stuck" in run.failure.what:
            break
    assert "slow, not stuck" in run.failure.what and "limit_s" in run.failure.what


def test_a_live_run_is_asked_and_goes_on(tmp_path: Path) -> None:
    """A script that knows nothing of the course: first well, then one rank stays away."""
    job = script(
        tmp_path,
        """
        import os, time
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        while not os.path.exists("stay-away") or dist.get_rank() != 1:
            dist.all_reduce(torch.ones(8))
            time.sleep(0.01)
        while not os.path.exists("come-back"):
            time.sleep(0.01)
        dist.all_reduce(torch.ones(8))
        """,
        "train.py",
    )
    run = launch(job, ranks=2, limit_s=300, wait=False, env={"PWD": str(tmp_path)})
    try:
        here = Path.cwd()
        until(lambda: any(lane.pid for lane in run.lanes()), "the ranks")
        until(lambda: diagnose(run).kind == "running", "a live diagnosis")
        (here / "stay-away").touch()
        found = until(lambda: _if(diagnose(run), "never-arrived"), "the hang", PATIENCE_S)
        assert found.rank == 1 and re.match(r"rank 1 never entered all_reduce #\d+", found.sentence)
        assert "rank 0 waited" in found.sentence and "train.py" in found.sentence
        assert not run.done, "nothing has ended"
    finally:
        (here / "stay-away").unlink(missing_ok=True)
        run.stop()
    assert diagnose(run.wait()).kind == "stopped"


def _if(found: Diagnosis, kind: str) -> Diagnosis | None:
    return found if found.kind == kind else None


def test_what_the_learner_did_comes_first() -> None:
    run = launch("hello_ranks", ranks=2, steps=100_000, pause_ms=5.0, limit_s=60, wait=False)
    run.wait_for_step(2).kill(1)
    found = diagnose(run.wait())
    assert (found.kind, found.rank) == ("killed-by-you", 1), str(found)
    assert found.sentence.startswith("rank 1 was killed by you (SIGKILL)")
    for limit_s in (6, 40):
        paused = launch(
            "hello_ranks", ranks=2, steps=100_000, pause_ms=5.0, limit_s=limit_s, wait=False
        )
        paused.wait_for_step(2).pause(1)
        found = diagnose(paused.wait())
        if found.kind == "paused":
            break
    assert (found.kind, found.rank) == ("paused", 1), str(found)
    assert found.sentence.startswith("you paused rank 1 and did not resume it")
    assert paused.failure is not None and paused.failure.what == found.sentence


# Made-up evidence, where a real run would be slow, rare or need other machines


def at(line: int, code: str, file: str = "/home/me/train.py", function: str = "main") -> Frame:
    return Frame(file, line, function, code)


STEP = at(31, "loss.backward()  # averages")
INSIDE = Frame("/v/site-packages/torch/distributed/distributed_c10d.py", 9, "all_reduce", "")


def entry(
    n: int, t: float, op: str = "all_reduce", line: Frame | None = STEP, **more: Any
) -> Entry:
    return Entry(n, "0", op, ((8,),), ("float32",), 32, T0 + t, line=line, **more)


def kept(rank: int, t: float, *entries: Entry, why: str = "terminated",
         stack: tuple[Frame, ...] = (), **more: Any) -> Ledger:  # fmt: skip
    return Ledger(rank, 0, why, T0 + t, entries, stack=stack, **more)


def steps(count: int, every_s: float = 0.1) -> tuple[Entry, ...]:
    return tuple(entry(n, n * every_s) for n in range(1, count + 1))


def raised(rank: int, error: str, t_s: float = 11.0) -> list[Line]:
    texts = ["Traceback (most recent call last):", '  File "train.py", line 31, in main', error]
    return [Line(t_s, rank, "stderr", f"[rank{rank}]: {text}") for text in texts]


def gave_up(ranks: tuple[int, ...], seconds: int = 10) -> list[Line]:
    error = f"RuntimeError: [a/b.cc:78] Timed out waiting {seconds}000ms for recv operation"
    return [line for rank in ranks for line in raised(rank, error)]


def evidence(ledgers: list[Ledger], codes: dict[int, int], **more: Any) -> Evidence:
    given: dict[str, Any] = {
        "ranks": len(ledgers), "ended": "failed", "codes": codes, "began": T0,
        "script": Path("/home/me/train.py"), "ledgers": {one.rank: one for one in ledgers},
    } | more  # fmt: skip
    return Evidence(**given | {"lines": Lines(given.get("lines", ()))})


def absent_rank(stack: tuple[Frame, ...], waited: float = 10.0, **more: Any) -> Evidence:
    """Four ranks; rank 1 does not come to the fourth all-reduce."""
    waiting = entry(4, 0.4, part="gradient bucket 2")
    ledgers = [
        kept(rank, 0.4 + waited, *steps(3), waiting, why="exception", stack=(STEP, INSIDE))
        for rank in (0, 2, 3)
    ]
    ledgers.insert(1, kept(1, 0.5 + waited, *steps(3), stack=stack))
    lines = gave_up((0, 2, 3), int(waited))
    return evidence(ledgers, {0: 1, 1: -15, 2: 1, 3: 1}, **{"lines": lines, **more})


def test_the_sentence_that_was_promised() -> None:
    found = explain(absent_rank((at(12, "lock.acquire()"),)))
    assert found.sentence == (
        "rank 1 never entered all_reduce #4 (gradient bucket 2) at train.py:31 "
        "(`loss.backward()`); "
        "ranks 0, 2 and 3 waited 10.0 s; rank 1 was at train.py:12 (`lock.acquire()`)"
    )
    assert (found.kind, found.rank, found.collective) == ("never-arrived", 1, "all_reduce #4")
    assert found.consequences.keys() == {0, 2, 3}


def test_where_a_rank_stands_tells_the_kind() -> None:
    loader = Frame("/v/site-packages/torch/utils/data/dataloader.py", 5, "_try_get_data", "")
    kinds = {
        "never-arrived": (at(12, "time.sleep(1000)"),),
        "dataloader-worker": (at(11, "for x in loader:"), loader),
        "different-collectives": (at(40, "dist.barrier(group)"), INSIDE),
    }
    assert {explain(absent_rank(stack)).kind for stack in kinds.values()} == set(kinds)


def test_a_rank_that_was_late_before_is_slow() -> None:
    late = tuple(entry(n, n * 3.0 + 2.5) for n in range(1, 4))
    early = tuple(entry(n, n * 3.0) for n in range(1, 5))
    ledgers = [
        kept(0, 15.0, *early, why="exception", stack=(STEP, INSIDE)),
        kept(1, 15.1, *late, stack=(at(20, "x = augment(x)"),)),
    ]
    found = explain(evidence(ledgers, {0: 1, 1: -15}, lines=gave_up((0,), 3)))
    assert (found.kind, found.rank) == ("straggler", 1)
    assert "slow, not stuck" in found.sentence and "augment" in found.sentence


def test_an_evaluation_that_ends_late_is_no_hang_while_it_lives() -> None:
    """A moment's difference between live ranks is what every job looks like."""
    ledgers = [
        kept(0, 0.45, *steps(4), why="asked", stack=(STEP, INSIDE)),
        kept(1, 0.45, *steps(3), why="asked", stack=(at(20, "x = augment(x)"),)),
    ]
    assert explain(evidence(ledgers, {}, ended="running", now=T0 + 0.5)).kind == "running"
    slow = [
        kept(0, 42.0, *steps(4, 9.0), why="asked", stack=(STEP, INSIDE)),
        kept(1, 42.0, *steps(3, 9.0), why="asked", stack=(at(20, "x = augment(x)"),)),
    ]
    found = explain(evidence(slow, {}, ended="running", now=T0 + 42))
    assert found.kind == "running", "6 s of waiting are nothing where a step takes 9 s"


def test_messages_that_nobody_sends_or_that_meet_in_a_circle() -> None:
    def waits(rank: int, peer: int, direction: str) -> Ledger:
        call = entry(1, 1.0, direction, at(8, f"dist.{direction}(x, {peer})"),
                     p2p=Pair(peer, direction))  # fmt: skip
        return kept(rank, 11.0, call, why="exception", stack=(at(8, "dist.recv(x)"),))

    ring = [waits(0, 1, "recv"), waits(1, 2, "recv"), waits(2, 0, "recv")]
    found = explain(evidence(ring, {0: 1, 1: 1, 2: 1}, lines=gave_up((0, 1, 2))))
    assert found.kind == "crossed-pairs" and found.sentence.count("is in recv from rank") == 3
    lonely = [kept(0, 11.0, stack=(at(9, "lock.acquire()"),)), waits(1, 0, "recv")]
    found = explain(evidence(lonely, {0: -15, 1: 1}, lines=gave_up((1,))))
    assert (found.kind, found.rank) == ("never-arrived", 0)
    assert found.sentence.startswith("rank 0 never sent: rank 1 waited 10.0 s in recv from rank 0")


def test_messages_that_were_begun_and_never_answered() -> None:
    """Both ranks stand in wait() on what isend and irecv gave them; the tags differ."""
    here = (at(9, "handle.wait()"),)
    sent = entry(1, 1.0, "send", at(8, "dist.isend(x, 1, tag=1)"), p2p=Pair(1, "send", 1))
    wanted = entry(1, 1.0, "recv", at(8, "dist.irecv(x, 0, tag=2)"), p2p=Pair(0, "recv", 2))
    e = evidence([kept(0, 9.0, sent, stack=here), kept(1, 9.0, wanted, stack=here)], {})
    found = explain(replace(e, ended="time-out"))
    assert found.kind == "crossed-pairs" and "same tag" in found.remedy
    assert "rank 0 is in send to rank 1 with tag 1" in found.sentence
    fits = replace(wanted, p2p=Pair(0, "recv", 1))
    e = evidence([kept(0, 9.0, sent, stack=here), kept(1, 9.0, fits, stack=here)], {})
    assert explain(replace(e, ended="time-out")).kind != "crossed-pairs", "they fit"


def test_some_of_the_messages_were_sent() -> None:
    sent, got, wanted = (
        entry(n, float(n), way, at(8, f"dist.{way}(x)"), p2p=Pair(peer, way))
        for n, way, peer in ((1, "send", 1), (1, "recv", 0), (2, "recv", 0))
    )
    ledgers = [
        kept(0, 2.0, sent, why="exit", exit_code=0),
        kept(1, 12.0, got, wanted, why="exception", stack=(at(8, "dist.recv(x)"),)),
    ]
    found = explain(evidence(ledgers, {0: 0, 1: 1}, lines=gave_up((1,))))
    assert found.rank == 0 and found.sentence.startswith("rank 0 sent only 1 message: rank 1")


EVALUATION = """
import torch.distributed as dist

r, world = dist.get_rank(), dist.get_world_size()
def evaluate(model):
    return model(x)
def train(model):
    model(x).backward()
if r == 0:
    evaluate(model)
{other}train(model)
"""


@pytest.mark.parametrize("apart", [True, False])
def test_a_call_of_one_rank_that_met_another_call(tmp_path: Path, apart: bool) -> None:
    """Rank 0 evaluates the DDP object alone; its broadcast looks like the one of training."""
    other = "" if apart else "else:\n    "
    file = str(script(tmp_path, EVALUATION.format(other=other), "train.py"))
    alone, common = at(6, "return model(x)", file), at(8, "model(x).backward()", file)
    ledgers = [
        kept(0, 9.0, entry(1, 1.0, "broadcast", alone), entry(2, 1.2, "broadcast", common),
             stack=(common, INSIDE)),
        kept(1, 9.0, entry(1, 1.1, "broadcast", common), entry(2, 1.3, "all_reduce", common),
             stack=(common, INSIDE)),
    ]  # fmt: skip
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    if apart:
        assert (found.kind, found.rank, found.collective) == ("one-rank-only", 0, "broadcast #1")
        assert "inside `if r == 0:`; it met broadcast #1" in found.sentence
    else:
        assert found.kind == "different-collectives", found.sentence


CLEANUP = """
class Trainer:
    def end_of_epoch(self):
        if self.rank != 0:
            return
        self.report()
    def report(self):
        dist.all_gather(out, x)
    def train(self):
        try:
            dist.all_reduce(x)
        finally:
            dist.barrier()
"""


def went_on(file: str, call: Frame, rank: int = 0) -> Diagnosis:
    """After two steps in line 11, one rank makes this call and the other a third step."""
    step = at(11, "dist.all_reduce(x)", file)
    lines = {rank: call, 1 - rank: step}
    ledgers = [
        kept(r, 9.0, *(entry(n, n, line=step) for n in (1, 2)),
             entry(3, 3.0, "all_reduce" if lines[r] is step else "barrier", lines[r]),
             stack=(lines[r], INSIDE))
        for r in (0, 1)
    ]  # fmt: skip
    return explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))


def test_a_call_after_an_early_return_on_the_rank(tmp_path: Path) -> None:
    """Two calls away from the condition, in another method."""
    file = str(script(tmp_path, CLEANUP, "train.py"))
    found = went_on(file, at(8, "dist.all_gather(out, x)", file))
    assert (found.kind, found.rank) == ("one-rank-only", 0)
    assert "after `if self.rank != 0: return`" in found.sentence
    sometimes = CLEANUP.replace("self.rank != 0", "self.rank != 0 and self.step == 7")
    Path(file).write_text(sometimes)
    assert went_on(file, at(8, "dist.all_gather(out, x)", file)).kind != "one-rank-only"


def test_two_groups_in_another_order(tmp_path: Path) -> None:
    """Each rank has its own branch, and waits in a group of its own."""
    text = (
        "if rank == 0:\n    dist.all_reduce(x, group=a)\nelse:\n    dist.all_reduce(x, group=b)\n"
    )
    file = str(script(tmp_path, text, "train.py"))
    lines = [at(2, "dist.all_reduce(x, group=a)", file), at(4, "dist.all_reduce(x, group=b)", file)]
    ledgers = [
        kept(rank, 9.0, replace(entry(1, 1.0, line=lines[rank]), group=str(rank + 1)),
             stack=(lines[rank], INSIDE), groups={"1": (0, 1), "2": (0, 1)})
        for rank in (0, 1)
    ]  # fmt: skip
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    assert found.kind == "different-collectives" and "same order" in found.remedy


def test_a_rank_that_still_imports() -> None:
    """The files of torch.distributed are imported too: that is no collective."""
    loads = Frame("<frozen importlib._bootstrap>", 9, "_find_and_load", "")
    deep = Frame("/v/site-packages/torch/distributed/tensor/ops.py", 9, "register", "")
    ledgers = [kept(rank, 9.0, why="asked", stack=(loads, deep)) for rank in (0, 1)]
    texts = ["Current thread 0x01 (most recent call first):", f'  File "{deep.file}", line 9 in f']
    lines = [Line(9.0, 0, "stderr", text) for text in texts]
    found = explain(evidence(ledgers, {}, ended="time-out", lines=lines, limit_s=9))
    assert found.kind == "too-slow" and "ranks 0 and 1 still imported modules" in found.sentence
    assert "rank 0 was in register (ops.py)" in found.evidence


def test_a_call_while_cleaning_up_may_hide_an_exception(tmp_path: Path) -> None:
    file = str(script(tmp_path, CLEANUP, "train.py"))
    found = went_on(file, at(13, "dist.barrier()", file), rank=1)
    assert (found.kind, found.rank) == ("uneven-steps", 1)
    assert "stands in `finally`" in found.sentence and "exception" in found.remedy


def test_validation_of_another_length_before_the_next_epoch() -> None:
    """Both lines were seen by all: who goes on to the other line has made fewer steps here."""
    train, check = at(31, "loss.backward()"), at(40, "dist.all_reduce(correct)")
    plan = {0: (train, check, train), 1: (train, check, check)}
    ledgers = [
        kept(rank, 9.0, *(
            replace(entry(n, n, line=line), sizes=((8 if line is train else 1,),))
            for n, line in enumerate(lines, start=1)
        ), stack=(lines[-1], INSIDE))
        for rank, lines in plan.items()
    ]  # fmt: skip
    found = explain(evidence(ledgers, {}, ended="time-out"))
    assert (found.kind, found.rank) == ("uneven-steps", 0) and "train.py:40" in found.sentence


def test_a_rank_that_somebody_else_has_stopped() -> None:
    """At the limit it is let go on, to tell its ledger; so all seem to make progress."""
    ledgers = [kept(rank, 9.0, *steps(90), why="asked") for rank in (0, 1)]
    seen = Observed(halted={1})
    e = evidence(ledgers, {}, ended="time-out", limit_s=9, observed=Observed.of(seen.record()))
    found = explain(e)
    assert (found.kind, found.rank) == ("paused", 1) and "rank 1 stood still" in found.sentence


def test_a_stopped_process_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert not is_halted(process.pid)
        process.send_signal(signal.SIGSTOP)
        until(lambda: is_halted(process.pid), "the stop")
        process.kill()
    assert not is_halted(process.pid) and not is_halted(None)


def test_a_thread_that_does_not_end() -> None:
    """One rank has left, as it should; the other waits for its own thread."""
    waits = Frame("/usr/lib/python3.11/threading.py", 9, "_shutdown", "")
    ledgers = [
        kept(0, 0.5, *steps(2), why="exit", exit_code=0),
        kept(1, 9.0, *steps(2), why="asked", stack=(waits,)),
    ]
    found = explain(evidence(ledgers, {0: 0, 1: -6}, ended="time-out", limit_s=9))
    assert (found.kind, found.rank) == ("stuck", 1) and "thread of its own" in found.sentence


def test_a_connection_that_a_living_rank_closed() -> None:
    """It has destroyed its group: neither slow nor late."""
    ledgers = [
        kept(0, 1.0, *steps(4), why="exception", stack=(STEP, INSIDE)),
        kept(1, 1.0, *steps(3), stack=(at(12, "time.sleep(100)"),)),
    ]
    found = explain(evidence(ledgers, {0: 1, 1: -15}, lines=raised(0, BROKEN)))
    assert (found.kind, found.rank) == ("never-arrived", 1) and "alive" in found.sentence
    assert "destroy_process_group" in found.remedy
    left = kept(2, 0.9, *steps(3), why="exit", exit_code=0)
    found = explain(evidence([*ledgers, left], {0: 1, 1: -15, 2: 0}, lines=raised(0, BROKEN)))
    assert found.kind != "straggler" and found.rank == 2, "not the one that was still at work"


def test_a_group_that_not_all_ranks_make() -> None:
    making = Frame("/v/torch/distributed/distributed_c10d.py", 9, "new_group", "")
    found = explain(absent_rank((at(12, "dist.new_group([0, 1])"), making)))
    assert (found.kind, found.rank) == ("never-arrived", 1) and "new_group" in found.remedy


def test_a_call_that_all_ranks_are_in() -> None:
    """One broadcast, from a source that each rank takes for itself."""
    stack = (at(8, "dist.broadcast(x, src=rank)"), INSIDE)
    call = entry(1, 1.0, "broadcast", stack[0])
    where = '  File "/v/torch/distributed/distributed_c10d.py", line 9 in broadcast'
    texts = ["Current thread 0x01 (most recent call first):", where]
    lines = [Line(9.0, rank, "stderr", text) for rank in (0, 1) for text in texts]
    ledgers = [kept(rank, 9.0, call, stack=stack) for rank in (0, 1)]
    found = explain(evidence(ledgers, {}, ended="time-out", lines=lines))
    assert found.kind == "stuck" and "src" in found.remedy and "elsewhere" not in found.remedy


def test_the_first_of_a_chain_of_exceptions_tells_more() -> None:
    first = raised(1, "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ")
    link = "The above exception was the direct cause of the following exception:"
    last = raised(1, "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly")
    between = [Line(11.0, 1, "stderr", text) for text in ("", link, "")]
    found = explain(evidence([], {0: -15, 1: 1}, ranks=2, lines=[*first, *between, *last]))
    assert found.kind == "out-of-memory"


def test_a_known_message_is_told_with_its_line() -> None:
    line = at(7, "model.cuda()")
    mine = kept(0, 1.0, why="exception", exception=Raised("RuntimeError", "no", line))
    said = raised(0, "AssertionError: Torch not compiled with CUDA enabled")
    found = explain(evidence([mine], {0: 1}, lines=said))
    assert found.kind == "no-gpu" and found.sentence.endswith(" at train.py:7 (`model.cuda()`)")


def test_an_exception_may_be_long_and_an_end_wordless() -> None:
    found = explain(evidence([], {0: 1}, ranks=1, lines=raised(0, "ValueError: " + "y" * 90_000)))
    assert found.kind == "exception" and len(found.sentence) < 1000
    found = explain(evidence([], {0: 3}, ranks=1))
    assert "said nothing" in found.sentence and "says" not in found.remedy
    found = explain(evidence([], {0: -14}, ranks=1))
    assert "SIGALRM" in found.sentence and found.remedy


def test_a_rank_that_left_without_a_word() -> None:
    """os._exit(0): no ledger, and to torchrun a success."""
    ledgers = [kept(0, 2.0, *steps(4), why="exception", stack=(STEP, INSIDE))]
    broken = raised(0, BROKEN, 2.0)
    codes, seen = {0: 1, 1: 0}, Observed(deaths=[(1.9, 1, 0), (2.0, 0, 1)])
    found = explain(evidence(ledgers, codes, ranks=2, lines=broken, observed=seen))
    assert (found.kind, found.rank) == ("exit-early", 1)
    assert found.consequences[0].startswith("RuntimeError: [pair.cc:561] Connection closed")
    assert "2.00 s after the launch" in str(found)


def test_a_rank_that_somebody_asked_to_end() -> None:
    seen = Observed(deaths=[(1.1, 0, -15), (1.0, 1, -15)])
    found = explain(evidence([], {0: -15, 1: -15}, ranks=2, observed=seen))
    assert (found.kind, found.rank) == ("killed", 1) and "SIGTERM (-15)" in found.sentence


def test_an_abort_at_exit_is_no_mistake() -> None:
    lines = [Line(3.0, 0, "stderr", "terminate called without an active exception")]
    found = explain(evidence([], {0: -6, 1: 0}, ranks=2, lines=lines))
    assert found.kind == "abort-at-exit" and "no mistake of yours" in found.sentence


def test_replicas_are_compared_check_by_check_in_the_last_start() -> None:
    def noted(rank: int, value: str, attempt: int = 0, name: str = "model") -> dict[str, Any]:
        return {"event": "digest", "rank": rank, "attempt": attempt, "name": name,
                "digest": value, "t": T0}  # fmt: skip

    equal = [noted(0, "a"), noted(1, "a"), noted(0, "b"), noted(1, "b"), noted(0, "c", name="own")]
    assert explain(evidence([], {}, ranks=2, ended="finished", events=equal)).healthy
    apart = [*equal, noted(0, "d"), noted(1, "e")]
    found = explain(evidence([], {}, ranks=2, ended="finished", events=apart))
    assert (found.kind, found.rank) == ("replicas-diverge", 1) and "check 3" in found.sentence
    again = [noted(0, "a"), noted(1, "x"), noted(0, "b", 1), noted(1, "b", 1)]
    assert explain(evidence([], {}, ranks=2, ended="finished", events=again)).healthy


LEARNERS = """
    import contextlib, inspect
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    def main(through):
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        assert list(inspect.signature(DDP).parameters)[:2] == ["module", "device_ids"]
        frozen = nn.Linear(4, 4).requires_grad_(False)
        model = DDP(nn.Sequential(frozen, nn.BatchNorm1d(4), nn.Linear(4, 1)))
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(8):  # accumulated: one synchronisation in four steps
            last = step % 4 == 3
            with contextlib.nullcontext() if last else model.no_sync():
                (model if through == "ddp" else model.module)(torch.randn(8, 4)).sum().backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        pair = dist.new_group([0, 1])
        if rank < 2:  # what only a part of the ranks does
            dist.all_reduce(torch.ones(1), group=pair)
        with model.join(enable=through == "ddp"):  # its end makes the replicas equal
            for _ in range(2 + rank if through == "ddp" else 0):
                model(torch.randn(8, 4)).sum().backward()
        gathered = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, "x" * rank)
        dist.destroy_process_group()

    main("THROUGH")
"""


@pytest.mark.parametrize(("through", "kind"), [("ddp", "healthy"), ("module", "replicas-diverge")])
def test_a_learners_own_script(tmp_path: Path, through: str, kind: str) -> None:
    """It knows nothing of the course; nothing fails; the second one trains three models."""
    job = script(tmp_path, LEARNERS.replace("THROUGH", through), "train.py")
    run = launch(job, ranks=3, limit_s=120)
    assert run.ok, str(run)
    found = diagnose(run)
    assert found.kind == kind, str(found)
    if kind != "healthy":
        assert "1.weight and 1 more of DDP(Sequential) on ranks 1 and 2 are not what" in (
            found.sentence
        )


def test_a_rank_that_waits_in_a_group_is_not_the_first(tmp_path: Path) -> None:
    """Rank 3 leaves out the call of its group; rank 1 waits for it, and the others for rank 1."""
    text = "for x in data:\n    if mine:\n        dist.all_reduce(x, group=g)\n    dist.barrier()\n"
    file = str(script(tmp_path, text, "train.py"))
    pair, all_ = at(3, "dist.all_reduce(x, group=g)", file), at(4, "dist.barrier()", file)

    def both(n: int, t: float) -> list[Entry]:
        return [replace(entry(n, t, line=pair), group="1"), entry(n, t + 0.5, "barrier", all_)]

    outside = [entry(n, n + 0.5, "barrier", all_) for n in (1, 2, 3)]
    third = replace(entry(3, 4.0, line=pair), group="1")
    ledgers = [
        kept(0, 9.0, *outside, stack=(all_, INSIDE)),
        kept(1, 9.0, *both(1, 1.0), *both(2, 2.0), third, stack=(pair, INSIDE),
             groups={"1": (1, 3)}),
        kept(2, 9.0, *outside, stack=(all_, INSIDE)),
        kept(3, 9.0, *both(1, 1.0), *both(2, 2.0), outside[2], stack=(all_, INSIDE),
             groups={"1": (1, 3)}),
    ]  # fmt: skip
    e = evidence(ledgers, {}, ended="time-out", script=Path(file))
    found = explain(e)
    assert (found.rank, found.collective) == (3, "all_reduce #3 of group 1"), found.sentence
    asleep = kept(3, 9.0, *both(1, 1.0), *both(2, 2.0), stack=(at(9, "sleep(9)", file),))
    found = explain(replace(e, ledgers={**e.ledgers, 3: asleep}))
    assert found.rank == 3 and found.sentence.startswith("rank 3 never entered"), found.sentence


def test_a_group_that_means_different_ranks() -> None:
    call = replace(entry(1, 1.0), group="1")
    made = {0: (0, 1), 1: (0, 1), 2: (1, 2)}
    ledgers = [
        kept(rank, 9.0, *([call] if rank else []), stack=(STEP, INSIDE), groups={"1": ranks})
        for rank, ranks in made.items()
    ]
    found = explain(evidence(ledgers, {}, ended="time-out"))
    assert found.kind == "different-groups" and "new_group" in found.remedy
    assert "ranks 0 and 1 made it of ranks 0 and 1; rank 2 made it of ranks 1 and 2" in (
        found.sentence
    )


STEPS = """
def train(callbacks):
    for step in range(9):
        loss.backward()
        if random() < 0.5:
            dist.broadcast(x)
        for callback in callbacks:
            callback(step)
def report(step):
    dist.reduce(x)
if len(part) > 0:
    dist.gather_object(part)
dist.barrier()
"""


@pytest.mark.parametrize(
    ("few", "many", "kind", "words"),
    [
        ([(6, "broadcast")], [(4, "all_reduce")], "different-collectives",
         r"inside `if random\(\) < 0.5:`; ranks 1 and 2 went on to"),
        ([(8, "reduce"), (10, "reduce")], [(4, "all_reduce")], "one-rank-only",
         "rank 0 alone entered reduce #3 .* which no other rank calls"),
        ([(13, "barrier")], [(12, "all_gather")], "different-collectives",
         r"ranks 1 and 2 called all_gather .* inside `if len\(part\) > 0:`; rank 0 went on to"),
    ],
)  # fmt: skip
def test_a_call_that_only_some_ranks_make_in_a_step_of_all(
    tmp_path: Path, few: list[Any], many: list[Any], kind: str, words: str
) -> None:
    file = str(script(tmp_path, STEPS, "train.py"))
    step = at(4, "loss.backward()", file)
    lines = {rank: few if rank == 0 else many for rank in range(3)}
    ledgers = [
        kept(rank, 9.0, *(entry(n, n, line=step) for n in (1, 2)),
             entry(3, 3.0, path[-1][1], at(path[-1][0], "call()", file)),
             stack=(*(at(line, "call()", file) for line, _ in path), INSIDE))
        for rank, path in lines.items()
    ]  # fmt: skip
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    assert found.kind == kind and re.search(words, found.sentence), str(found)


def test_a_call_of_ones_own_inside_join() -> None:
    """It met one of Join's, and seemed to fit."""
    join = entry(1, 1.0, line=at(7, "with model.join():"), part="who still has inputs, for Join")
    own = entry(1, 1.0, line=at(9, "dist.all_reduce(loss)"))
    later = [entry(2, 2.0, "broadcast", STEP), entry(2, 2.0, "all_reduce", STEP)]
    ledgers = [
        kept(rank, 9.0, first, second, why="exception", stack=(STEP, INSIDE))
        for rank, (first, second) in enumerate(zip((join, own), later, strict=True))
    ]
    found = explain(evidence(ledgers, {0: 1, 1: 1}, lines=gave_up((0, 1))))
    assert (found.kind, found.rank) == ("different-collectives", 1), str(found)
    assert found.sentence.startswith("inside Join, rank 1 called all_reduce #1")
    assert "use Join" not in found.remedy


def test_a_call_that_all_enter_and_some_do_not_leave() -> None:
    """dst is not the same on all ranks; the rank that only sends comes out."""
    reduce, barrier = at(5, "dist.reduce(x, dst=best)"), at(6, "dist.barrier()")
    first = entry(1, 1.0, "reduce", reduce)
    ledgers = [
        kept(0, 9.0, first, why="exception", stack=(reduce, INSIDE)),
        kept(1, 9.0, first, stack=(reduce, INSIDE)),
        kept(2, 9.0, first, entry(2, 1.1, "barrier", barrier), stack=(barrier, INSIDE)),
    ]
    found = explain(evidence(ledgers, {0: 1, 1: -15, 2: -15}, lines=gave_up((0,), 8)))
    assert (found.kind, found.collective) == ("stuck", "reduce #1"), str(found)
    assert "rank 2 came out of it" in found.sentence and "dst" in found.remedy
    found = explain(evidence(ledgers[:2], {0: 1, 1: -15}, lines=gave_up((0,), 8)))
    assert (found.kind, found.collective) == ("stuck", "reduce #1"), "also where all are in it"


def test_a_rank_that_came_when_the_others_had_given_up() -> None:
    """All ledgers are alike, and all ranks lost a connection."""
    ledgers = [
        kept(rank, 5.0, *steps(3), entry(4, 4.5 if rank == 1 else 0.4), why="exception",
             stack=(STEP, INSIDE))
        for rank in range(3)
    ]  # fmt: skip
    lines = gave_up((0, 2), 4) + raised(1, BROKEN)
    found = explain(evidence(ledgers, {0: 1, 1: 1, 2: 1}, lines=lines))
    assert (found.kind, found.rank, found.collective) == ("straggler", 1, "all_reduce #4")
    assert "4.1 s after the first" in found.sentence


def test_a_message_to_the_wrong_rank() -> None:
    def talks(rank: int, peer: int, way: str) -> Ledger:
        line = at(8 + rank, f"dist.{way}(x, {peer})")
        call = entry(1, 1.0, way, line, p2p=Pair(peer, way))
        return kept(rank, 9.0, call, why="exception", stack=(line,))

    ledgers = [talks(0, 2, "recv"), kept(1, 9.0, stack=(at(12, "dist.barrier()"),)),
               talks(2, 1, "send")]  # fmt: skip
    codes = {0: 1, 1: -15, 2: 1}
    found = explain(evidence(ledgers, codes, lines=gave_up((0, 2))))
    assert (found.kind, found.rank) == ("crossed-pairs", 2), str(found)
    assert "rank 0 waited" in found.sentence and "right rank" in found.remedy
    begun = entry(1, 1.0, "send", p2p=Pair(0, "send"))
    left = kept(2, 1.2, begun, why="exit", exit_code=0)
    e = evidence([talks(0, 2, "recv"), left], {0: 1, 2: 0}, ranks=3, lines=raised(0, BROKEN))
    found = explain(e)
    assert (found.kind, found.rank) == ("exit-early", 2) and "wait()" in found.remedy, str(found)


HANDLED = "During handling of the above exception, another exception occurred:"


def test_an_error_that_came_before_the_wait_that_failed() -> None:
    """Its `finally` waited for the others in vain; both are printed, the first one is the cause."""
    link = [Line(11.0, 2, "stderr", text) for text in ("", HANDLED, "")]
    gave = "RuntimeError: Application timeout caused pair closure"
    lines = raised(2, "KeyError: 'image.png'") + link + gave_up((2,)) + raised(0, gave)
    found = explain(evidence([], {0: 1, 1: -15, 2: 1}, ranks=3, lines=lines))
    assert (found.kind, found.rank) == ("exception", 2), str(found)
    assert "KeyError: 'image.png'" in found.sentence


def test_an_error_that_was_printed_and_outlived() -> None:
    head = Line(0.5, 1, "stderr", "Exception in thread Thread-1 (produce):")
    e = absent_rank((at(12, "batch = queue.get()"),))
    e = replace(e, lines=Lines([*e.lines, head, *raised(1, "OSError: no route", 0.5)]))
    found = explain(e)
    assert (found.kind, found.rank) == ("never-arrived", 1)
    assert "a thread of rank 1 (Thread-1) had ended with OSError: no route" in found.sentence
    assert "that error first" in found.remedy


def test_a_message_that_fills_half_a_tensor() -> None:
    sent = replace(entry(1, 1.0, "send", p2p=Pair(1, "send")), sizes=((5,),), bytes=20)
    got = entry(1, 1.0, "recv", p2p=Pair(0, "recv"))
    ledgers = [kept(0, 2.0, sent, why="exit"), kept(1, 2.0, got, why="exit")]
    found = explain(evidence(ledgers, {0: 0, 1: 0}, ended="finished"))
    assert found.kind == "different-collectives" and "5 numbers" in found.sentence
    whole = replace(sent, sizes=((8,),), bytes=32)
    ledgers = [kept(0, 2.0, whole, why="exit"), kept(1, 2.0, got, why="exit")]
    assert explain(evidence(ledgers, {0: 0, 1: 0}, ended="finished")).healthy
    absent = kept(2, 0.1, why="exit")  # it never joined the group
    e = evidence([kept(0, 2.0, entry(1, 1.0)), kept(1, 2.0, entry(1, 1.0)), absent], {},
                 ended="finished")  # fmt: skip
    assert explain(e).healthy


def test_an_abort_that_nobody_explains() -> None:
    found = explain(evidence([], {0: -6}, ranks=1))
    assert found.kind == "native-crash" and "somebody sent the signal" in found.sentence
    lines = [Line(1.0, 0, "stderr", "free(): invalid pointer")]
    found = explain(evidence([], {0: -6}, ranks=1, lines=lines))
    assert found.kind == "native-crash" and "somebody" not in found.sentence


def test_a_worker_that_died_is_lost_by_its_own_rank() -> None:
    loader = Frame("/v/site-packages/torch/utils/data/dataloader.py", 5, "_try_get_data", "")
    said = "ConnectionResetError: [Errno 104] Connection reset by peer"
    error = Raised("ConnectionResetError", said.partition(": ")[2], at(9, "for x in loader:"))
    ledgers = [
        kept(0, 2.0, *steps(4), stack=(STEP, INSIDE)),
        kept(1, 2.0, *steps(3), why="exception", stack=(at(9, "for x in loader:"), loader),
             exception=error),
    ]  # fmt: skip
    found = explain(evidence(ledgers, {0: -15, 1: 1}, lines=raised(1, said)))
    assert (found.kind, found.rank) == ("dataloader-worker", 1), str(found)
    assert "died" in found.sentence and "train.py:9" in found.sentence


def test_a_rank_that_came_to_the_start_as_another() -> None:
    start = Frame("/v/torch/distributed/distributed_c10d.py", 9, "init_process_group", "")
    stack = (at(4, "dist.init_process_group(rank=0)"), start)
    ledgers = [kept(rank, 5.0, why="exception", stack=stack) for rank in (0, 1)]
    error = "torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /default_pg/0//0/1"
    found = explain(evidence(ledgers, {0: 1, 1: 1}, lines=raised(0, error) + raised(1, error)))
    assert (found.kind, found.rank) == ("rank-never-started", 1), str(found)
    assert "different number" in found.sentence


def test_ranks_that_have_not_started_are_not_at_work() -> None:
    e = evidence([], {}, ranks=2, ended="running")
    assert "no rank has started yet" in explain(e).sentence
    e = replace(e, observed=Observed(started={0}))
    assert "rank 1 has not started yet" in explain(e).sentence
    e = replace(e, observed=Observed(started={0, 1}))
    assert "at work" in explain(e).sentence


@pytest.mark.parametrize("word", ["if work:", "with work:"])
def test_a_call_that_one_rank_has_left_out(tmp_path: Path, word: str) -> None:
    """Always all_reduce before barrier, but not this time."""
    text = f"for i in range(9):\n    {word}\n        dist.all_reduce(x)\n    dist.barrier()\n"
    file = str(script(tmp_path, text, "train.py"))
    call, wait = at(3, "dist.all_reduce(x)", file), at(4, "dist.barrier()", file)
    before = [
        entry(n, n, "all_reduce" if n % 2 else "barrier", call if n % 2 else wait)
        for n in (1, 2, 3, 4)
    ]
    ledgers = [
        kept(rank, 9.0, *before,
             entry(5, 5.0, "barrier" if rank == 1 else "all_reduce", wait if rank == 1 else call),
             stack=(wait if rank == 1 else call, INSIDE))
        for rank in range(3)
    ]  # fmt: skip
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    assert (found.rank, found.collective) == (1, "all_reduce #5"), found.sentence
    told = "inside `if work:`" if "if" in word else "rank 1 left out all_reduce #5 at train.py:3"
    assert told in found.sentence


def test_a_loop_over_parameters_is_no_loop_over_batches(tmp_path: Path) -> None:
    text = "for p in model.parameters():\n    dist.broadcast(p.data, 0)\ndist.barrier()\n"
    file = str(script(tmp_path, text, "train.py"))
    one, end = at(2, "dist.broadcast(p.data, 0)", file), at(3, "dist.barrier()", file)
    ledgers = [
        kept(rank, 9.0, *(entry(n, n, "broadcast", one) for n in (1, 2)),
             entry(3, 3.0, "barrier" if rank else "broadcast", end if rank else one),
             stack=(end if rank else one, INSIDE))
        for rank in (0, 1)
    ]  # fmt: skip
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    assert (found.kind, found.rank) == ("different-models", 1), str(found)
    assert "rank 1 had fewer of `model.parameters()` than rank 0" in found.sentence


def test_two_branches_with_the_same_call_of_another_size(tmp_path: Path) -> None:
    """Two models, whose backwards come in another order."""
    text = "if r == 1:\n    b.backward()\nelse:\n    a.backward()\n"
    file = str(script(tmp_path, text, "train.py"))
    lines = [at(4, "a.backward()", file), at(2, "b.backward()", file)]
    ledgers = [
        kept(rank, 9.0, replace(entry(1, 1.0, line=lines[rank]), sizes=((8 + rank,),)),
             stack=(lines[rank], INSIDE))
        for rank in (0, 1)
    ]  # fmt: skip
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    assert found.kind == "different-collectives" and "same order" in found.remedy, str(found)
    assert "(`b.backward()`) with 9 numbers of float32, rank 0 all_reduce" in found.sentence


def test_an_exit_inside_a_function_of_the_loop(tmp_path: Path) -> None:
    """Not the end of its data."""
    text = "def done():\n    quit()\nfor i in range(9):\n    dist.all_reduce(x)\n    done()\n"
    file = str(script(tmp_path, text, "train.py"))
    call = at(4, "dist.all_reduce(x)", file)
    ledgers = [
        kept(0, 2.0, *(entry(n, n / 9, line=call) for n in (1, 2, 3)), why="exception",
             stack=(call, INSIDE)),
        kept(1, 0.3, *(entry(n, n / 9, line=call) for n in (1, 2)), why="exit", exit_code=0,
             in_group=True),
    ]  # fmt: skip
    e = evidence(ledgers, {0: 1, 1: 0}, lines=raised(0, BROKEN), script=Path(file))
    assert (explain(e).kind, explain(e).rank) == ("exit-early", 1), str(explain(e))


def test_a_process_group_that_is_made_again() -> None:
    """It reads the addresses of the first one."""
    start = Frame(
        "/v/site-packages/torch/distributed/distributed_c10d.py", 9, "init_process_group", ""
    )
    stack = (at(20, "dist.init_process_group('gloo')"), start)
    ledgers = [kept(rank, 9.0, *steps(3), why="asked", stack=stack) for rank in (0, 1)]
    found = explain(evidence(ledgers, {}, ended="time-out"))
    assert found.kind == "rank-never-started" and "a second time at train.py:20" in found.sentence
    error = "RuntimeError: Gloo connectFullMesh failed with no error, remote=[127.0.0.1]:7"
    found = explain(evidence(ledgers, {0: 1, 1: -15}, lines=raised(0, error)))
    assert "second time" in found.sentence and "of its own" in found.remedy


def test_a_group_that_waits_for_its_members() -> None:
    making = Frame("/v/site-packages/torch/distributed/distributed_c10d.py", 9, "new_group", "")
    ledgers = [
        kept(0, 9.0, why="exception", stack=(at(9, "pair = dist.new_group([0, 1])"), making)),
        kept(1, 9.0, entry(1, 1.0), stack=(STEP, INSIDE)),
    ]
    error = "torch.distributed.DistStoreError: wait timeout after 3000ms, keys: /default_pg/0//2//1"
    found = explain(evidence(ledgers, {0: 1, 1: -15}, lines=raised(0, error)))
    assert (found.kind, found.rank) == ("different-groups", 0), str(found)
    assert "init_process_group" not in found.sentence and "new_group" in found.remedy


def test_processes_that_a_rank_starts_are_no_ranks() -> None:
    spawn = Frame("/v/site-packages/torch/multiprocessing/spawn.py", 9, "join", "")
    wait = Frame("/usr/lib/python3.11/multiprocessing/connection.py", 9, "wait", "")
    select = Frame("/usr/lib/python3.11/selectors.py", 9, "select", "")
    stack = (at(9, "mp.spawn(worker, nprocs=2)"), spawn, wait, select)
    found = explain(evidence([kept(0, 9.0, why="asked", stack=stack)], {}, ended="time-out"))
    assert found.kind == "stuck" and "another process that it started" in found.sentence
    assert "--ranks N" in found.remedy


def test_what_a_late_rank_handles_is_told() -> None:
    e = absent_rank((at(12, "time.sleep(1)"),))
    error = Raised("ConnectionError", "503 slow down", None)
    e = replace(e, ledgers={**e.ledgers, 1: replace(e.ledgers[1], handling=error)})
    found = explain(e)
    assert (found.kind, found.rank) == ("never-arrived", 1)
    assert "ConnectionError: 503 slow down" in found.sentence


def test_a_call_after_the_loop_that_met_one_of_the_loop(tmp_path: Path) -> None:
    """Both are of one size; or the rank that met it has gone on since."""
    text = "def train():\n    for x in data:\n        step(x)\ntrain()\nreduce(x)\nbarrier()\n"
    file = str(script(tmp_path, text, "train.py"))
    step, after, end = at(3, "step(x)", file), at(5, "reduce(x)", file), at(6, "barrier()", file)
    made = [entry(n, n, line=step) for n in (1, 2, 3)]
    met = [entry(3, 3.0, line=after), entry(4, 4.0, "barrier", end)]
    later = [*made, entry(4, 4.0, line=after)]
    ledgers = [
        kept(0, 9.0, *later, stack=(after, INSIDE)),
        kept(1, 9.0, *made[:2], *met, stack=(end, INSIDE)),
    ]
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    assert (found.kind, found.rank, found.collective) == ("uneven-steps", 1, "all_reduce #3")
    assert found.sentence.startswith("rank 1 made 2 steps at train.py:3 (`step(x)`) and went")
    small = replace(met[0], sizes=((1,),))
    ledgers = [
        kept(0, 9.0, *made, stack=(step, INSIDE)),
        kept(1, 9.0, *made[:2], small, entry(4, 4.0, line=step), stack=(step, INSIDE)),
    ]
    found = explain(evidence(ledgers, {}, ended="time-out", script=Path(file)))
    assert (found.kind, found.rank) == ("uneven-steps", 1), str(found)


def test_torchruns_own_failure_has_no_rank() -> None:
    lines = [Line(1.0, None, "stderr", "ValueError: Unsupported nproc_per_node value: x")]
    e = evidence([], {}, ranks=2, lines=lines)
    found = explain(e)
    assert found.rank is None and "torchrun" in found.sentence
    assert failure_of(found, e).traceback == lines[0].text


# What people report, by the message alone


# what a rank says last: its kind, and a word of the advice
MESSAGES = {
    "AttributeError: Can't get attribute 'train' on <module '__main__' (built-in)>":
        ("from-a-cell", "%%job"),
    "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
    "multiprocessing, you must use the 'spawn' start method": ("cuda-after-fork", "torchrun"),
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
    "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
    "message: address already in use": ("port-in-use", "MASTER_PORT"),
    "ModuleNotFoundError: No module named 'torchvision'": ("no-module", "interpreter"),
    "job.py: error: unrecognized arguments: --local-rank=0": ("local-rank-flag", "LOCAL_RANK"),
    "job.py: error: unrecognized arguments: --local_rank=0": ("local-rank-flag", "LOCAL_RANK"),
    "ValueError: DistributedDataParallel device_ids and output_device arguments only "
    "work with single-device/multiple-device GPU modules or CPU modules, but got "
    "device_ids [0]": ("device-ids", "device_ids=None"),
    "RuntimeError: Distributed package doesn't have NCCL built in": ("nccl-without-gpu", "gloo"),
    "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!":
        ("nccl-without-gpu", "gloo"),
    "RuntimeError: Tensors must be CUDA and dense": ("wrong-device", "device"),
    "RuntimeError: No backend type associated with device type cpu": ("wrong-device", "device"),
    "RuntimeError: CUDA error: invalid device ordinal": ("no-such-gpu", "GPUs"),
    "RuntimeError: use_libuv was requested but PyTorch was build without libuv support":
        ("no-libuv", "USE_LIBUV=0"),
    "torch.distributed.DistStoreError: use_libuv was requested but PyTorch was built "
    "without libuv support, run with USE_LIBUV=0 to disable it.": ("no-libuv", "USE_LIBUV=0"),
    "RuntimeError: makeDeviceForHostname(): unsupported gloo device": ("no-address", "WSL2"),
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms "
    "while trying to connect to (10.8.0.1, 29500).": ("wrong-address", "MASTER_ADDR"),
    "RuntimeError: Gloo connectFullMesh failed with [/x/pair.cc:144] no error; timed "
    "out, remote=[127.0.0.1]:1234": ("loopback-name", "GLOO_SOCKET_IFNAME"),
    "RuntimeError: [enforce fail at /x/device.cc:41] ifa != nullptr. Unable to find "
    "address for: nosuch0": ("no-such-interface", "interface"),
    "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. "
    "1/2 clients joined.": ("rank-never-started", "--nnodes"),
    "RuntimeError: Expected to have finished reduction in the prior iteration before "
    "starting a new one. This error indicates that your module has parameters":
        ("unused-parameters", "INFO"),
    "RuntimeError: [1]: DDP expects same model across all ranks, but Rank 1 has 2 "
    "params, while rank 0 has inconsistent 0 params.":
        ("different-models", "If a count is 0"),
    "RuntimeError: one of the variables needed for gradient computation has been "
    "modified by an inplace operation: [torch.FloatTensor [4]] is at version 3":
        ("buffer-overwritten", "one forward"),
    "RuntimeError: Expected to mark a variable ready only once. This error is caused by one of":
        ("parameter-twice", "use_reentrant=False"),
    "ValueError: SyncBatchNorm layers only work with GPU modules": ("needs-gpu", "GPU"),
    "RuntimeError: Error(s) in loading state_dict for Net:\n\tUnexpected key(s) in "
    'state_dict: "module.0.weight", "module.0.bias".': ("checkpoint-names", "model.module"),
    "RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in "
    'state_dict: "_orig_mod.module.0.weight".': ("checkpoint-names", "model.module"),
    "ValueError: sampler option is mutually exclusive with shuffle":
        ("shuffle-and-sampler", "leave shuffle out"),
    "RuntimeError: Dataset not found or corrupted. You can use download=True to download it":
        ("data-race", "before the launch"),
    "RuntimeError: [/x/pair.cc:445] op.preamble.length <= op.nbytes. 8 vs 4. Received "
    "data size doesn't match expected size. Is there a distributed collective mismatch "
    "in your code?": ("different-collectives", "same shape"),
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
    "collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE)":
        ("different-collectives", "same collective"),
    "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms":
        ("never-arrived", "every rank"),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has":
        ("out-of-memory", "smaller batch"),
    "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded":
        ("unsafe-checkpoint", "state_dict"),
    "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding "
    "central directory": ("broken-checkpoint", "os.replace"),
    "torch.distributed.DistBackendError: NCCL error, invalid usage: Duplicate GPU "
    "detected : rank 1 and rank 0 both on CUDA device 1000": ("shared-gpu", "set_device"),
    "ModuleNotFoundError: No module named 'einops'": ("no-module", ""),
    "EOFError: EOF when reading a line": ("no-input", ""),
    "AssertionError: Torch not compiled with CUDA enabled": ("no-gpu", ""),
    "RuntimeError: Wait timeout": ("rank-never-started", ""),
    "RuntimeError: Gloo connectFullMesh failed with [pair.cc:144] no error, "
    "remote=[127.0.0.1]:7": ("loopback-name", ""),
    "[W socket.cpp:752] The server socket on [host]:29500 has timed out, will retry.":
        ("no-connection", ""),
    "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError": ("rank-never-started", ""),
    "UserWarning: barrier(): using the device under current context. devices used by "
    "this process are currently unknown": ("unknown-device", ""),
    'RuntimeError: Error(s) in loading state_dict: unexpected key "module.0.weight"':
        ("checkpoint-names", ""),
    "Is there a distributed collective mismatch in your code?": ("different-collectives", ""),
    "RuntimeError: [Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 3000 ms":
        ("never-arrived", ""),
    "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000":
        ("shared-gpu", ""),
    "RuntimeError: CUDA error: device-side assert triggered": ("cuda-error", ""),
    "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error.":
        ("out-of-memory", ""),
    "RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly":
        ("dataloader-worker", ""),
    "RuntimeError: received 0 items of ancdata": ("too-many-files", ""),
    "OSError: [Errno 24] Too many open files: 'shard-7.bin'": ("too-many-files", ""),
    "ValueError: Global rank 2 is not part of group <ProcessGroup object>": ("not-in-group", ""),
    "ValueError: Invalid process group specified": ("not-in-group", ""),
    "RuntimeError: [enforce fail at /a/gloo/context.cc:23] rank < size. 2 vs 2":
        ("wrong-world-size", ""),
    "RuntimeError: expect_autograd_hooks_ INTERNAL ASSERT FAILED at reducer.cpp":
        ("static-graph-no-sync", "drop static_graph"),
    "ImportError: attempted relative import with no known parent package":
        ("relative-import", "full name"),
    "AttributeError: 'DistributedDataParallel' object has no attribute 'encode'":
        ("behind-ddp", "model.module"),
    "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: copying "
    "a param with shape torch.Size([3, 2]) from checkpoint": ("checkpoint-shapes", "fc.weight"),
    "ValueError: loaded state dict contains a parameter group that doesn't match the size of "
    "optimizer's group": ("checkpoint-optimizer", "unfreeze"),
    "RuntimeError: ProcessGroupGloo::allgather: invalid output tensor list at index 0 (expected "
    "length 2, got 1)": ("list-length", "has 1 tensors, and 2 ranks"),
    "RuntimeError: ProcessGroupGloo::scatter: Incorrect input list size 1. Input list size should "
    "be 2, same as size of the process group.": ("list-length", "chunk"),
    "ValueError: Argument ``scatter_list`` must NOT be specified on non-source ranks.":
        ("list-on-one-rank", "None on all others"),
    "RuntimeError: [enforce fail at /x/gloo/alltoallv.cc:138] inLengthPerRank[myRank] == "
    "outLengthPerRank[myRank]. ": ("split-sizes", "exchange the sizes first"),
    "RuntimeError: Trying to backward through the graph a second time (or directly access saved":
        ("backward-twice", "detach"),
    "RuntimeError: nccl2 requires at least one CUDA device": ("nccl-without-gpu", "gloo"),
    "ValueError: trying to initialize the default process group twice!":
        ("group-twice", "is_initialized"),
    "RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2_0>: No "
    "space left on device (28)": ("shm-full", "fewer workers"),
}  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_a_known_message_is_explained(message: str) -> None:
    kind, word = MESSAGES[message]
    found = messages.find([message])
    assert found is not None and found[0].kind == kind
    told = explain(evidence([], {0: 1, 1: -15}, ranks=2, lines=raised(0, message)))
    assert (told.kind == kind and told.remedy and told.lesson) or kind == "cuda-error"
    assert word in f"{told.sentence} {told.remedy}", str(told)
    assert "{" not in told.sentence, told.sentence
    assert ("not verified" in told.sentence) is not found[0].verified


def test_the_model_that_differs_from_most_is_named() -> None:
    said = "RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, while"
    lines = [
        line
        for rank, count in ((1, 4), (0, 6), (2, 4))
        for line in raised(rank, said.format(rank, count))
    ]
    found = explain(evidence([], {0: 1, 1: 1, 2: 1}, ranks=3, lines=lines))
    assert (found.kind, found.rank) == ("different-models", 0)
    assert "(rank 0 has 6 parameters, ranks 1 and 2 have 4 parameters)" in found.sentence


@pytest.mark.parametrize(
    "echo",
    [
        "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:1",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
    ],
)
def test_an_echo_is_never_the_cause(echo: str) -> None:
    lines = raised(0, echo, 1.0) + raised(1, "ValueError: boom", 2.0)
    found = explain(evidence([], {0: 1, 1: 1}, ranks=2, lines=lines))
    assert (found.kind, found.rank) == ("exception", 1)
    assert found.consequences == {0: echo}


@pytest.mark.parametrize(
    "note",
    [
        "NOTE: Redirects are currently not supported in Windows or MacOs.",
        "Warning: destroy_process_group() was not called before program exit",
        "Setting OMP_NUM_THREADS environment variable for each process to be 1",
    ],
)
def test_a_note_is_no_reason(note: str) -> None:
    assert messages.find([note], echoes=True) is None


def test_better_evidence_overrules_a_message() -> None:
    said = raised(0, "RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 3000 ms")
    e = absent_rank((at(12, "lock.acquire()"),))
    assert explain(replace(e, lines=Lines(said))).rank == 1


def variants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each kind and variant of kinds.toml, by its name."""
    for kind, words in kinds.table().items():
        yield kind, words
        yield from ((f"{kind}.{name}", own) for name, own in words.items() if isinstance(own, dict))


def test_every_lesson_that_is_named_has_its_section() -> None:
    text = "\n".join(path.read_text() for path in sorted((ROOT / "ddp_course").rglob("*.py")))
    named = set(re.findall(r"""["'](\d\d[a-z]? [A-Z][^"\n]*?\?)["']""", text))
    named |= {message.lesson for message in messages.MESSAGES if message.lesson}
    named |= {words["lesson"] for _, words in variants() if words.get("lesson")} - {"{lesson}"}
    assert len(named) > 15
    for lesson in named:
        number, _, section = lesson.partition(" ")
        source = next((ROOT / "notebooks" / "src").glob(f"{number}_*.py")).read_text()
        assert f"# ## {section}\n" in source, lesson


def test_rules_and_words_fit() -> None:
    """Each kind that a rule names has its words, and no words are left that no rule says."""
    folder = ROOT / "ddp_course" / "diagnosis"
    code = "\n".join(path.read_text() for path in folder.glob("*.py"))
    for name, words in variants():
        kind, _, variant = name.partition(".")
        if "says" in words or variant:
            assert {"says", "do", "lesson"} <= (words | kinds.table()[kind]).keys() | {"lesson"}
        said = variant or kind
        assert said in code or kind == "note" or "says" not in words, f"nothing says {name}"
    for name in set(re.findall(r'Cause\(\s*"([\w.-]+)"|_?cause\(\s*e?,?\s*"([\w.-]+)"', code)):
        assert kinds.words_of("".join(name), "says")


def test_what_is_not_known_is_left_out() -> None:
    facts = {"who": "rank [1]", "waited": "", "code": "{x}"}
    assert kinds.fill("{who}[ waited {waited}][ in {code}]", facts) == "rank [1] in {x}"


def test_the_order_of_weight_is_stated() -> None:
    """What the learner did first; a message only where nothing else tells more."""
    names = [rule.__name__ for rule in rules.RULES]
    assert len(set(names)) == len(names)
    told = (
        "killed_by_learner ended_by_itself crossed_pairs standstill left_early by_message unknown"
    )
    at = [names.index(name) for name in told.split()]
    assert at == sorted(at) and names[-1] == "unknown"
    assert [rule.__name__ for rule in rules.RULES_IF_FINISHED][-1] == "healthy"


# How it shows itself


def test_text_and_html_say_the_same() -> None:
    found = explain(absent_rank((at(12, "lock.acquire()"),)))
    shown = re.sub(r"<[^>]*>", " ", found._repr_html_())
    for piece in (found.sentence, found.remedy, found.lesson, *found.evidence):
        assert piece in str(found)
        assert " ".join(piece.split()) in " ".join(
            shown.replace("&#x27;", "'").replace("&quot;", '"').replace("&lt;", "<")
            .replace("&gt;", ">").split()
        )  # fmt: skip
    assert str(found).splitlines()[0] == f"DIAGNOSIS (never-arrived): {found.sentence}"
    assert "10_when_it_hangs.ipynb#What-does-a-waiting-rank-know?" in found._repr_html_()


def test_what_a_script_printed_is_text_and_nothing_else() -> None:
    lines = raised(0, "ValueError: <script>alert(1)</script>")
    found = explain(evidence([], {0: 1}, ranks=1, lines=lines))
    assert "<script>" in str(found) and "<script>" not in found._repr_html_()


def test_torchruns_table_is_kept_and_folded() -> None:
    table = [Line(1.0, None, "stderr", text) for text in ("=" * 60, "train.py FAILED", "=" * 60)]
    e = evidence([], {0: 1}, ranks=1, lines=[*raised(0, "ValueError: boom"), *table])
    found = explain(e)
    assert "train.py FAILED" in found.table and "train.py FAILED" in str(found)
    assert "train.py FAILED" in failure_of(found, e)._repr_html_()
    assert "<details><summary>torchrun&#x27;s own account</summary>" in found._repr_html_()
    assert "FIRST FAILURE: rank 0: ValueError: boom" in str(failure_of(found, e))


FRAMES = st.sampled_from([
    STEP, INSIDE, at(12, "lock.acquire()"), at(13, "dist.recv(x)", function="<module>"),
    Frame("/v/site-packages/torch/utils/data/dataloader.py", 5, "_try_get_data", ""),
    Frame("/usr/lib/python3.11/threading.py", 5, "wait", ""),
    Frame("/v/torch/distributed/distributed_c10d.py", 5, "init_process_group", ""),
])  # fmt: skip
ENTRIES = st.builds(
    Entry, n=st.integers(1, 6), group=st.sampled_from(["0", "1", "new_group"]),
    op=st.sampled_from(["all_reduce", "barrier", "broadcast", "send", "recv", "new_group"]),
    sizes=st.sampled_from([(), ((8,),), ((2, 3), (4,))]),
    dtypes=st.sampled_from([("float32",), ("int64",)]), bytes=st.integers(0, 99),
    t=st.floats(T0, T0 + 20), line=st.none() | FRAMES,
    p2p=st.none() | st.builds(Pair, st.integers(-1, 5), st.sampled_from(["send", "recv"])),
    part=st.sampled_from([None, "gradient bucket 0"]), root=st.none() | st.integers(0, 3),
    passes=st.integers(0, 3),
)  # fmt: skip
LEDGERS = st.builds(
    Ledger, st.integers(0, 3), st.integers(0, 1),
    st.sampled_from(["exit", "exception", "terminated", "aborted", "asked"]),
    st.floats(T0, T0 + 30), st.lists(ENTRIES, max_size=6).map(tuple), st.integers(0, 2),
    st.none() | st.integers(0, 3), st.none(), st.lists(FRAMES, max_size=4).map(tuple),
)  # fmt: skip
CODES = st.dictionaries(st.integers(0, 3), st.sampled_from([0, 1, 3, -6, -9, -11, -15, -2, 77]))
WORDS = st.lists(
    st.builds(Line, st.floats(0, 30), st.none() | st.integers(0, 3), st.just("stderr"),
              st.sampled_from([*MESSAGES, "Traceback (most recent call last):", BROKEN, "",
                               "ValueError: boom", "=" * 60])),
    max_size=6,
)  # fmt: skip


@given(st.lists(LEDGERS, max_size=4), CODES, WORDS,
       st.sampled_from(["failed", "time-out", "finished", "running", "stopped"]),
       st.builds(Observed, st.just([(1.0, 0, 1)]), st.dictionaries(st.integers(0, 3), st.just(9)),
                 st.sets(st.integers(0, 3))))  # fmt: skip
def test_any_evidence_has_an_answer(
    ledgers: list[Ledger], codes: dict[int, int], lines: list[Line], ended: str, seen: Observed
) -> None:
    e = evidence(ledgers, codes, ranks=4, lines=lines, ended=ended, observed=seen)
    found = explain(e)
    assert found.kind and found.sentence and found.sentence in str(found)
    assert found.rank is None or 0 <= found.rank < 4
    assert "Diagnosis" in found._repr_html_() and failure_of(found, e).what == found.sentence


def test_an_unreadable_script_is_no_obstacle(tmp_path: Path) -> None:
    strange = script(tmp_path, "def broken(:\n" + "(" * 5000, "strange.py")
    line = at(1, "def broken(:", str(strange))
    ledgers = [
        kept(0, 11.0, entry(1, 1.0, line=line), why="exception", stack=(line, INSIDE)),
        kept(1, 11.0, stack=(line,)),
    ]
    codes = {0: 1, 1: -15}
    found = explain(evidence(ledgers, codes, lines=gave_up((0,)), script=strange))
    assert found.kind == "never-arrived" and found.rank == 1
