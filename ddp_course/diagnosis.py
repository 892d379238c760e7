"""diagnose(): what happened in a run, in the lesson's words.

    evidence → the first cause → one sentence, what to do, where it is taught

The loudest rank is seldom the culprit: who dies of "connection closed by peer" has lost somebody
else. So evidence is asked in the order of its weight: what the learner did; a rank that ended by
itself (its signal, its exception); the ranks' ledgers of collectives, aligned, where one lacks what
the others wait in (`standstill`); where each rank stands; and last, known messages (`symptoms`).
Whatever else the ranks said is a consequence, and folded.
"""

from __future__ import annotations

import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddp_course import failures, ledger, symptoms
from ddp_course.clues import (
    activity,
    blocked_in,
    counted_times,
    elsewhere,
    faulted_at,
    in_function,
    in_loader,
    in_seconds,
    is_importing,
    last_step,
    named,
    place_text,
    quoted,
    shortened,
    standing,
    standing_at,
    told_t,
    waited_s,
    waiting_for,
    without_folders,
)
from ddp_course.failures import Observed
from ddp_course.findings import Diagnosis, Evidence
from ddp_course.runs import Failure, Run, counted, exit_text
from ddp_course.standstill import crossed_pairs, left_early, standstill

__all__ = ["Diagnosis", "Evidence", "diagnose", "evidence_of", "explain", "failure_of"]


def diagnose(run: Run | str | Path) -> Diagnosis:
    """What happened in a run, or is happening: a live run's ranks are asked where they are.

    run  a Run, live or finished, or the folder of a finished one

    Raises NoSuchRun if the folder is not a finished run.
    """
    if not isinstance(run, Run):
        run = Run.open(run)
    return explain(evidence_of(run))


def evidence_of(run: Run) -> Evidence:
    """Gather the evidence of a run; the ranks of a live one are asked for their ledgers."""
    asked = run.asked
    common: dict[str, Any] = {
        "ranks": run.ranks,
        "script": Path(asked.get("script", "job.py")),
        "limit_s": float(asked.get("limit_s", 0.0)),
        "env": asked.get("env", {}),
    }
    if not run.done:
        run.ask()
        lanes = run.lanes()
        common["observed"] = Observed(
            paused={lane.rank for lane in lanes if lane.state == "paused"},
            started={lane.rank for lane in lanes if lane.pid is not None},
            halted={lane.rank for lane in lanes if failures.is_halted(lane.pid)},
        )
        common["observed"].halted -= common["observed"].paused
        return Evidence(
            ended="running",
            lines=failures.Lines(run.tail(10_000)),
            events=list(run._record.events),
            ledgers=ledger.read(run.folder),
            began=time.time() - run.elapsed_s,
            **common,
        )
    result, lines, kept = run.result, run.lines, ledger.read(run.folder)
    failure = result.get("failure") or {}
    told = failure.get("what", "") if failure.get("kind") in ("launcher", "stopped") else ""
    return Evidence(
        ended=run.ended,
        lines=failures.Lines(lines),
        events=run.events,
        codes=run.exit_codes,
        observed=Observed.of(result.get("observed", {})),
        ledgers=kept,
        began=float(result.get("began", 0.0)),
        attempts=1
        + max([line.attempt for line in lines] + [n.attempt for n in kept.values()] + [0]),
        told=told,
        **common,
    )


def explain(e: Evidence) -> Diagnosis:
    """The first cause: the first rule, in the order of weight, that has an answer."""
    if e.ended == "finished":
        return _diverged(e) or _healthy(e)
    if e.ended == "stopped":  # whatever came after that is no failure
        return Diagnosis("stopped", e.told or "stopped by you")
    rules = (
        _launcher_told, _killed_by_learner, _ended_by_itself, _halted, crossed_pairs, standstill,
        left_early, _at_start, _progressing, _at_work, _by_message,
    )  # fmt: skip
    found = next(filter(None, (rule(e) for rule in rules)), None) or _unknown(e)
    if e.ended == "running":
        return _with_pause(found, e)
    if e.ended == "time-out" and "limit_s" not in found.sentence:
        found = replace(found, sentence=found.sentence + _limit(e))
    return _with_pause(_with_consequences(found, e), e)


def failure_of(found: Diagnosis, e: Evidence) -> Failure:
    """The same as a run's failure: one voice."""
    first = found.rank
    raised = found.kind not in _WAITING_KINDS
    rank = first if first is not None else failures.first_rank(e.lines, e.observed, e.codes)
    code = None if rank is None else e.codes.get(rank)
    traceback = ""
    if raised and rank is not None and code not in (0, -signal.SIGKILL):
        traceback = failures.traceback_of(e.lines, rank)
    elif raised and rank is None:
        traceback = "\n".join([text for text in e.agent if text.strip()][-20:])
    where = failures.places(e.lines, e.observed, e.ranks, e.script) if e.ended == "time-out" else {}
    return Failure(
        rank=first,
        what=found.sentence,
        exit_code=None if first is None else code,
        traceback=traceback,
        where=where,
        consequences=dict(found.consequences),
        kind=found.kind,
        remedy=found.remedy,
        lesson=found.lesson,
        table=found.table,
    )


def _launcher_told(e: Evidence) -> Diagnosis | None:
    return Diagnosis("launcher", e.told) if e.told else None


def _killed_by_learner(e: Evidence) -> Diagnosis | None:
    rank = failures.first_rank(e.lines, e.observed, e.codes)
    if rank is None or rank not in e.observed.killed:
        return None
    name = signal.Signals(e.observed.killed[rank]).name
    return Diagnosis(
        "killed-by-you",
        f"rank {rank} was killed by you ({name}){waiting_for(e, rank)}",
        "nothing, if you meant it; a job that shall survive needs restarts=1 and checkpoints",
        "06 What happens when a rank is killed?",
        rank,
    )


def _ended_by_itself(e: Evidence) -> Diagnosis | None:
    """A rank that ended for a reason of its own, not because others were gone."""
    ended = [
        rank
        for rank, code in e.codes.items()
        if code not in (0, -signal.SIGTERM)
        and not (e.ended == "time-out" and code in (-signal.SIGABRT, -signal.SIGKILL))
        and not failures.followed(e.lines, rank)
    ]
    rank = failures.first_rank(e.lines, e.observed, e.codes, ended) if ended else None
    if rank is None:
        return None
    if e.codes[rank] < 0:
        return _killed_by_signal(e, rank, -e.codes[rank])
    return _raised(e, rank)


def _killed_by_signal(e: Evidence, rank: int, number: int) -> Diagnosis | None:
    words, at = e.stderr(rank), faulted_at(e, rank)
    if number == signal.SIGKILL:
        return Diagnosis(
            "killed",
            f"rank {rank} was {exit_text(-number)} and not from here; the usual sender is the "
            f"system, when memory runs out{waiting_for(e, rank)}",
            "watch the memory (`free -m`, `dmesg | tail`): a smaller batch, fewer ranks, fewer "
            "DataLoader workers",
            "06 What happens when a rank is killed?",
            rank,
        )
    if number == signal.SIGABRT and failures.ABORT_AT_EXIT in words:
        return Diagnosis(
            "abort-at-exit",
            f"rank {rank} aborted while Python was shutting down, after its work was done: a race "
            "with Gloo's threads, no mistake of yours",
            "end the script with ddp_course.report.run_rank(main)",
            rank=rank,
        )
    if number == signal.SIGABRT and (found := symptoms.find([words])):
        symptom, means = found  # Gloo ends a rank that gets a tensor of another size
        if better := standstill(e):
            return better
        return Diagnosis(
            symptom.kind, f"{means}: rank {rank} was {exit_text(-number)}",
            symptom.remedy, symptom.lesson, rank,
        )  # fmt: skip
    if number == signal.SIGSEGV and "_ddp_init_helper" in words:
        return Diagnosis(
            "detail-crash",
            f"rank {rank} crashed (SIGSEGV, -11) in DDP's constructor: "
            "TORCH_DISTRIBUTED_DEBUG=DETAIL does that in this torch, and it is no mistake of yours",
            "TORCH_DISTRIBUTED_DEBUG=INFO, or dist.set_debug_level(dist.DebugLevel.DETAIL) after "
            "init_process_group",
            rank=rank,
        )
    if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        name = signal.Signals(number).name
        return Diagnosis(
            "native-crash",
            f"rank {rank} crashed in native code ({name}, -{number}){at}{waiting_for(e, rank)}",
            "look at that line: an extension, a wrong index given to native code, a broken "
            "installation; run it on one rank first",
            "06 Where is the cause written down?",
            rank,
        )
    said = failures.exception_of(e.lines, rank)
    told = f": {said}" if said else ""
    return Diagnosis(
        "killed",
        f"rank {rank} ended: {exit_text(-number)}{told}{at}{waiting_for(e, rank)}",
        "find out who sends that signal: the script itself (signal.alarm, os.kill), a library, "
        "somebody outside",
        "06 What happens when a rank is killed?",
        rank,
    )


def _halted(e: Evidence) -> Diagnosis | None:
    """Ranks that somebody outside stopped: before they tell anything, they are let go on."""
    halted = {rank for rank in e.observed.halted if 0 <= rank < e.ranks}
    if not halted or e.ended not in ("time-out", "running"):
        return None
    return Diagnosis(
        "paused",
        f"{named(halted)} stood still, stopped by a signal that did not come from here "
        f"(kill -STOP, Ctrl-Z, a debugger){_limit(e)}",
        "`kill -CONT PID` lets a process go on; `ps -o pid,stat,cmd` shows T for one that is "
        "stopped",
        "00 What do the others do while one rank stands still?",
        min(halted),
    )


def _raised(e: Evidence, rank: int) -> Diagnosis | None:
    """An exception of the rank's own, or an exit code."""
    said = failures.last_words(e.lines, rank)
    text = f"rank {rank}: {shortened(said)} ({exit_text(e.codes[rank])})"
    if "Dist" in said and (better := _at_start(e)):  # DistStoreError, DistNetworkError
        return better
    found = symptoms.find([_message(e, rank)])
    if found is None:
        remedy = f"mend what rank {rank} says; what the other ranks said follows from it"
        if not said:
            text = f"rank {rank} ended with {exit_text(e.codes[rank])}, and said nothing"
            remedy = "look for what ends it without a word: sys.exit, os._exit, a library"
        raised = bool(failures.exception_of(e.lines, rank))
        return Diagnosis(
            "exception" if raised else "exit-code",
            text + _raised_at(e, rank) + waiting_for(e, rank),
            remedy,
            "06 Where is the cause written down?",
            rank,
        )
    symptom, means = found
    if symptom.kind in ("different-collectives", "never-arrived") and (better := standstill(e)):
        return better
    at_fault = re.search(r"rank (\d+) did not come", means)
    return Diagnosis(
        symptom.kind,
        f"rank {rank}: {means} ({quoted(said)}){_raised_at(e, rank)}{_unverified(symptom)}",
        symptom.remedy,
        symptom.lesson,
        int(at_fault[1]) if at_fault and int(at_fault[1]) < e.ranks else rank,
    )


def _raised_at(e: Evidence, rank: int) -> str:
    """ " at train.py:12 (`code`)", where the exception was raised, in the learner's code."""
    mine = e.ledgers.get(rank)
    if mine is None or mine.exception is None or mine.exception.line is None:
        return ""
    line = mine.exception.line
    return f" at {place_text(line.file, line.line, line.code)}"


_CAUSE = "The above exception was the direct cause of the following exception:"


def _message(e: Evidence, rank: int) -> str:
    """The text of a rank's exception, which may have several lines, else all that it wrote."""
    texts = e.stderr(rank).splitlines()
    last = failures.exception_of(e.lines, rank)
    if last not in texts:
        return "\n".join(texts[-40:])
    begin = texts.index(last)
    if _CAUSE in texts[:begin]:  # the first of a chain tells more than the last
        begin = max(0, texts.index(_CAUSE) - 2)
    return "\n".join(texts[begin:])


_START_KINDS = frozenset({
    "port-in-use", "wrong-address", "unknown-host", "rank-never-started", "no-such-interface",
    "no-address", "loopback-name", "no-connection", "no-libuv",
})  # fmt: skip


_STORE = re.compile(r"wait timeout after (?P<ms>\d+)ms, keys: \S*?/(?P<rank>\d+)\s*$", re.MULTILINE)


def _at_start(e: Evidence) -> Diagnosis | None:
    """The ranks did not find each other in init_process_group."""
    failed = [rank for rank, code in e.codes.items() if code not in (0, -signal.SIGTERM)]
    for rank in failed:
        if found := _STORE.search(_message(e, rank)):
            return _not_in_store(e, int(found["rank"]), float(found["ms"]) / 1000, failed)
    for texts in ([e.stderr(rank) for rank in failed], e.agent):
        found_symptom = symptoms.find(texts)
        if found_symptom and found_symptom[0].kind in _START_KINDS:
            symptom, means = found_symptom
            who = failed[0] if len(failed) == 1 else None
            return Diagnosis(
                symptom.kind,
                f"the ranks could not meet: {means}{_unverified(symptom)}",
                symptom.remedy,
                symptom.lesson,
                who,
                "init_process_group",
            )
    inside = [r for r, mine in e.ledgers.items() if in_function(mine, ("init_process_group",))]
    absent = sorted(set(e.ledgers) - set(inside))
    if inside and not any(mine.entries for mine in e.ledgers.values()):
        if absent:
            return _not_in_store(e, absent[0], waited_s(e, inside), inside)
        if e.ended == "time-out":
            return Diagnosis(
                "rank-never-started",
                f"{named(inside)} waited in init_process_group for a rank that did not start"
                f"{_limit(e)}",
                "WORLD_SIZE must be the number of processes; under torchrun leave it alone",
                "02 How do the ranks find each other?",
                collective="init_process_group",
                evidence=standing(e),
            )
    return None


def _not_in_store(e: Evidence, absent: int, waited: float, failed: list[int]) -> Diagnosis:
    waiting = [rank for rank in failed if rank != absent]
    if absent >= e.ranks:
        return Diagnosis(
            "rank-never-started",
            f"the process group waited {in_seconds(waited)} for rank {absent}, which was never "
            f"started: this launch has {counted(e.ranks)}, and the script asked for more",
            "leave world_size (WORLD_SIZE) to torchrun, or start as many ranks as you ask for",
            "02 How do the ranks find each other?",
            None,
            "init_process_group",
            evidence=standing(e),
        )
    code = e.codes.get(absent)
    gone = f": it had left with {exit_text(code)}" if code == 0 else elsewhere(e, [absent])
    return Diagnosis(
        "never-arrived",
        f"rank {absent} never came to init_process_group; {named(waiting)} waited "
        f"{in_seconds(waited)}{gone}",
        "every rank must call init_process_group, and at about the same time: move what takes "
        "long (downloads, reading data) behind it, or allow more time",
        "02 How do the ranks find each other?",
        absent,
        "init_process_group",
        evidence=standing(e),
    )


def _progressing(e: Evidence) -> Diagnosis | None:
    """The ranks still make steps."""
    if e.ended not in ("time-out", "running"):
        return None
    until = told_t(e)
    latest, interval = activity(e)
    if not latest or until - max(latest.values()) > max(1.0, 4 * interval):
        return None
    steps = {rank: step for rank in range(e.ranks) if (step := last_step(e, rank)) is not None}
    reached = f" (step {min(steps.values())})" if steps else ""
    if e.ended == "running":
        return Diagnosis("running", f"nothing is wrong so far: the ranks make progress{reached}")
    return Diagnosis(
        "too-slow",
        f"the run was slow, not stuck: its ranks still made progress{reached} when its limit of "
        f"{e.limit_s:g} s (limit_s) ended it",
        f"allow more time (limit_s={10 * e.limit_s:g}, in a shell --limit), or give it fewer steps",
        "03 How long may a rank wait?",
        evidence=standing(e),
    )


def _at_work(e: Evidence) -> Diagnosis | None:
    """No progress was seen, and no rank lacks what others have."""
    if e.ended not in ("time-out", "running"):
        return None
    loaders = [rank for rank in range(e.ranks) if in_loader(e, rank)]
    if loaders:
        return Diagnosis(
            "dataloader-worker",
            f"{named(loaders)} waited for a worker of the DataLoader{standing_at(e, loaders[0])}"
            f"{_limit(e)}",
            "num_workers=0 shows whether it is the worker; a lock held when workers are forked is "
            "a usual reason: multiprocessing_context='spawn'",
            "03 How long may a rank wait?",
            loaders[0] if len(loaders) < e.ranks else None,
            evidence=standing(e),
        )
    blocked = {rank: what for rank in range(e.ranks) if (what := blocked_in(e, rank))}
    if blocked:
        rank = min(blocked)
        return Diagnosis(
            "stuck",
            f"{named(blocked)} waited for {blocked[rank]}{standing_at(e, rank)}{_limit(e)}",
            "look at that line: nothing that it waits for came"
            if standing_at(e, rank)
            else "Thread(…, daemon=True) ends with the script; a thread that is needed must be "
            "told to end",
            "03 How long may a rank wait?",
            rank if len(blocked) < e.ranks else None,
            evidence=standing(e),
        )
    loading = [rank for rank in range(e.ranks) if is_importing(e, rank)]
    if loading and e.ended == "time-out":
        return Diagnosis(
            "too-slow",
            f"the run did not end within its limit of {e.limit_s:g} s (limit_s): {named(loading)} "
            f"still imported modules{standing_at(e, loading[0])}",
            f"allow more time (limit_s={10 * e.limit_s:g}, in a shell --limit): the first import "
            "of torch takes long, on a busy machine longer",
            "03 How long may a rank wait?",
            evidence=standing(e),
        )
    inside = {rank: text for rank in range(e.ranks) if (text := _stack_in_collective(e, rank))}
    if inside:
        told = "; ".join(f"rank {rank} was {text}" for rank, text in inside.items())
        others = [rank for rank in range(e.ranks) if rank not in inside]
        return Diagnosis(
            "stuck",
            f"the run did not end within its limit of {e.limit_s:g} s (limit_s): {told}"
            f"{elsewhere(e, others)}",
            "the rank that is elsewhere is the one to look at"
            if others
            else "all ranks are in the call: it must have the same src or dst, the same group and "
            "the same number of tensors on each",
            "03 How long may a rank wait?",
            evidence=standing(e),
        )
    if e.ended == "running":
        return Diagnosis(
            "running", "nothing is wrong so far: the ranks are at work", evidence=standing(e)
        )
    return Diagnosis(
        "too-slow",
        f"the run did not end within its limit of {e.limit_s:g} s (limit_s), and no rank waits for "
        "another: it is slow, or a loop has no end",
        f"allow more time (limit_s={10 * e.limit_s:g}, in a shell --limit), or look at the lines "
        "where the ranks were",
        "03 How long may a rank wait?",
        evidence=standing(e),
    )


def _stack_in_collective(e: Evidence, rank: int) -> str:
    """ "in barrier, called from train.py:12 (…)", from the stack that faulthandler printed."""
    frames = failures.stack_of(e.lines, rank)
    inside = [f for f in frames if "torch/distributed/" in f[0] or f[2] == "_engine_run_backward"]
    return f"in {inside[-1][2]}{faulted_at(e, rank)}" if inside else ""


def _limit(e: Evidence) -> str:
    if e.ended == "time-out":
        return f"; the run was ended at its limit of {e.limit_s:g} s (limit_s)"
    return ""


def _by_message(e: Evidence) -> Diagnosis | None:
    failed = [rank for rank, code in e.codes.items() if code not in (0, -signal.SIGTERM)]
    for echoes in (False, True):
        for rank in failed:
            if found := symptoms.find([_message(e, rank)], echoes=echoes):
                symptom, means = found
                said = quoted(failures.last_words(e.lines, rank))
                return Diagnosis(
                    symptom.kind,
                    f"rank {rank}: {means} ({said}){_unverified(symptom)}",
                    symptom.remedy,
                    symptom.lesson,
                    rank,
                )
        if not failed and (found := symptoms.find(e.agent, echoes=echoes)):
            symptom, means = found
            return Diagnosis(
                symptom.kind, f"torchrun: {means}{_unverified(symptom)}",
                symptom.remedy, symptom.lesson,
            )  # fmt: skip
    return None


def _unknown(e: Evidence) -> Diagnosis:
    rank = failures.first_rank(e.lines, e.observed, e.codes)
    ended = [rank for _, rank, code in sorted(e.observed.deaths) if code == -signal.SIGTERM]
    if rank is None and ended:  # torchrun ends the others so, after the first
        return Diagnosis(
            "killed",
            f"rank {ended[0]} was {exit_text(-signal.SIGTERM)}, and not from here nor by torchrun: "
            f"somebody or a scheduler asked it to end{waiting_for(e, ended[0])}",
            "find out who: a batch system's time limit or preemption, or `kill`; a script may save "
            "in a handler of SIGTERM",
            "06 What happens when a rank is killed?",
            ended[0],
        )
    if rank is None:
        said = [text for text in e.agent if text.strip()]
        return Diagnosis("torchrun", failures.agent_said(said))
    said_last = failures.last_words(e.lines, rank)
    waited = re.search(r"Timed out waiting (\d+)ms", said_last)
    if waited:
        return Diagnosis(
            "never-arrived",
            f"rank {rank} waited {in_seconds(int(waited[1]) / 1000)} for the other ranks, and gave "
            f"up: {quoted(said_last)}",
            "look at where each rank was: the odd one out is the one to look at",
            "03 How long may a rank wait?",
            evidence=standing(e),
        )
    return Diagnosis(
        "exit-code", f"rank {rank}: {said_last} ({exit_text(e.codes[rank])})", rank=rank
    )


def _healthy(e: Evidence) -> Diagnosis:
    pairs = any(entry.p2p for mine in e.ledgers.values() for entry in mine.entries)
    made = [] if pairs else [len(n.entries) + n.dropped for n in e.ledgers.values()]
    collectives = ""
    if made and min(made) == max(made) > 0:
        collectives = f", after {counted_times(made[0], 'collective')} each"
    again = f" (after {counted_times(e.attempts - 1, 'restart')})" if e.attempts > 1 else ""
    return Diagnosis(
        "healthy",
        f"nothing is wrong: {counted(e.ranks)} ended with exit code 0{collectives}{again}",
    )


def _diverged(e: Evidence) -> Diagnosis | None:
    """Replicas that should be equal and are not: nothing failed, and the training is wrong."""
    for name, by_rank in _digests(e).items():
        if len(by_rank) < 2 or len(set(by_rank.values())) == 1:
            continue
        reference = by_rank[min(by_rank)]
        odd = sorted(rank for rank, value in by_rank.items() if value != reference)
        return Diagnosis(
            "replicas-diverge",
            f"the replicas diverged, and nothing said so: the parameters of {name} on "
            f"{named(odd)} are not those on rank {min(by_rank)}",
            "every forward and backward must go through the DDP object, and the model must not "
            "change after wrapping: no model.module(x), no new or unfrozen layer, no half no_sync",
            "02 Can I step around DDP without noticing?",
            odd[0],
            evidence=tuple(f"rank {r}: digest {by_rank[r]}" for r in sorted(by_rank)),
        )
    return None


def _digests(e: Evidence) -> dict[str, dict[int, str]]:
    """{model: {rank: digest of its parameters}}: of report.digest(), and of the scribe."""
    found: dict[str, dict[int, str]] = {}
    last = max((event.get("attempt", 0) for event in e.events), default=0)
    seen: dict[tuple[int, str], int] = {}
    for event in e.events:
        if event["event"] != "digest" or event.get("attempt", 0) != last:
            continue
        rank, name, value = event["rank"], event.get("name"), event.get("digest")
        if isinstance(name, str) and isinstance(value, str):
            number = seen[rank, name] = seen.get((rank, name), 0) + 1
            found.setdefault(f"{name}, check {number}", {})[rank] = value
    for rank, mine in e.ledgers.items():
        for name, value in mine.digests.items():
            found.setdefault(name, {})[rank] = value
    return found


_WAITING_KINDS = frozenset({
    "never-arrived", "uneven-steps", "one-rank-only", "straggler", "crossed-pairs", "exit-early",
    "dataloader-worker", "different-collectives", "paused", "too-slow", "stuck", "peer-lost",
})  # fmt: skip


def _with_consequences(found: Diagnosis, e: Evidence) -> Diagnosis:
    followed = failures.consequences(e.lines, e.codes, found.rank)
    if found.kind not in _WAITING_KINDS and found.rank is not None:
        followed.pop(found.rank, None)
    if found.rank is not None and found.kind in _WAITING_KINDS and found.rank in e.codes:
        code = e.codes[found.rank]
        if code not in (0, -signal.SIGTERM):
            own = failures.exception_of(e.lines, found.rank) or exit_text(code)
            followed = dict(sorted({**followed, found.rank: own}.items()))
    if e.ended == "time-out":
        followed = {}  # the launcher ended them; where they were is told instead
    followed = {rank: without_folders(text) for rank, text in followed.items()}
    table = failures.table_of(e.agent)
    first = _first_fault(e, found)
    return replace(found, consequences=followed, table=table, evidence=(*found.evidence, *first))


def _first_fault(e: Evidence, found: Diagnosis) -> list[str]:
    """When the first rank failed, if anybody saw it."""
    failed = [(t_s, rank, code) for t_s, rank, code in e.observed.deaths if code != 0]
    if not failed or e.ended == "time-out":
        return []
    t_s, rank, code = min(failed)
    return [f"the first to fail was rank {rank}, {t_s:.2f} s after the launch: {exit_text(code)}"]


def _with_pause(found: Diagnosis, e: Evidence) -> Diagnosis:
    """A pause that was forgotten is the cause of whatever came after it."""
    if not e.observed.paused:
        return found
    ranks = ", ".join(map(str, sorted(e.observed.paused)))
    return replace(
        found,
        kind="paused",
        sentence=f"you paused rank {ranks} and did not resume it, and the others waited for it: "
        f"{found.sentence}",
        remedy="resume it (run.resume(rank), or ▶ in the panel) before the others lose patience",
        lesson="00 What do the others do while one rank stands still?",
        rank=min(e.observed.paused),
    )


def _unverified(symptom: symptoms.Symptom) -> str:
    return "" if symptom.verified else " (known from reports; not verified on a machine like this)"
