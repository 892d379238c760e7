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

from ddp_course.diagnosis import symptoms
from ddp_course.diagnosis.clues import (
    activity,
    blocked_in,
    brought,
    call_name,
    call_text,
    counted_times,
    elsewhere,
    faulted_at,
    in_function,
    in_loader,
    in_seconds,
    in_spawn,
    is_importing,
    last_step,
    named,
    quoted,
    raised_at,
    shortened,
    standing,
    standing_at,
    threshold,
    told_t,
    waited_s,
    waiting_for,
    without_folders,
)
from ddp_course.diagnosis.findings import Diagnosis, Evidence
from ddp_course.diagnosis.standstill import (
    GROUPS,
    crossed_pairs,
    inside_join,
    left_early,
    standstill,
)
from ddp_course.observe import ledger
from ddp_course.observe import output as failures
from ddp_course.observe.ledger import pairs
from ddp_course.observe.output import Observed
from ddp_course.run.run import Failure, Run, check_run, counted, exit_text

__all__ = ["Diagnosis", "Evidence", "diagnose", "evidence_of", "explain", "failure_of"]


def diagnose(run: Run | str | Path) -> Diagnosis:
    """What happened in a run, or is happening: a live run's ranks are asked where they are.

    run  a Run, live or finished, or the folder of a finished one

    Raises NoSuchRun if the folder is not a finished run.
    """
    if isinstance(run, str | Path):
        run = Run.open(run)
    check_run(run)
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
        return _unlike(e) or _diverged(e) or _healthy(e)
    if e.ended == "stopped":  # whatever came after that is no failure
        return Diagnosis("stopped", e.told or "stopped by you")
    rules = (
        _launcher_told, _killed_by_learner, inside_join, _ended_by_itself, _halted, _started_again,
        crossed_pairs, standstill, left_early, _at_start, _progressing, _at_work, _by_message,
    )  # fmt: skip
    found = next(filter(None, (rule(e) for rule in rules)), None) or _unknown(e)
    found = _with_printed(found, e)
    if e.ended == "running":
        return _with_pause(found, e)
    if e.ended == "time-out" and "limit_s" not in found.sentence:
        found = replace(found, sentence=found.sentence + _limit(e))
    return _with_pause(_with_consequences(found, e), e)


def failure_of(found: Diagnosis, e: Evidence) -> Failure:
    """The same as a run's failure: one voice."""
    first = found.rank
    raised = found.kind not in _WAITING_KINDS and e.ended != "time-out"
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
        and (not failures.followed(e.lines, rank) or _lost_worker(e, rank))
    ]
    rank = failures.first_rank(e.lines, e.observed, e.codes, ended) if ended else None
    if rank is None:
        return None
    if e.codes[rank] < 0:
        return _killed_by_signal(e, rank, -e.codes[rank])
    return _raised(e, rank)


def _lost_worker(e: Evidence, rank: int) -> bool:
    """Whether a connection that a rank lost was to a worker of its own DataLoader."""
    mine = e.ledgers.get(rank)
    said = failures.exception_of(e.lines, rank)
    return mine is not None and mine.why == "exception" and in_loader(e, rank) and (
        said.startswith(("ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError",
                         "EOFError", "FileNotFoundError: [Errno 2] No such file or directory"))
    )  # fmt: skip


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
            "end the script with ddp_course.rank.report.run_rank(main)",
            rank=rank,
        )
    if number == signal.SIGABRT and (found := symptoms.find([words])):
        symptom, means = found  # Gloo ends a rank that gets a tensor of another size
        if (better := standstill(e)) and better.kind != "stuck":
            return better
        last = e.ledgers[rank].entries[-1:] if rank in e.ledgers else ()
        call = f" in {call_text(last[0])}" if last else ""
        uneven = bool(last) and last[0].op.startswith("all_to_all")
        return Diagnosis(
            symptom.kind,
            f"{means}{call}: rank {rank} was {exit_text(-number)}",
            "what rank i sends to rank j (its input_split_sizes[j]) must be what j expects from i "
            "(its output_split_sizes[i]); exchange the counts first, by an all_to_all of their own"
            if uneven
            else symptom.remedy,
            symptom.lesson,
            rank,
            call_name(last[0]) if last else "",
        )
    if number == signal.SIGABRT and not _ABORTS.search(words) and not _gave_up_in_cpp(e, rank):
        return Diagnosis(
            "native-crash",
            f"rank {rank} was aborted (SIGABRT, -6){at}, and no library said why: either native "
            "code called abort(), or somebody sent the signal (kill -ABRT, a watchdog)"
            f"{waiting_for(e, rank)}",
            "look at that line, and run it on one rank first: if it ends there too, it is the "
            "code; if not, ask who watches the job",
            "06 Where is the cause written down?",
            rank,
        )
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


# What glibc, C++ or an assertion say before they abort.
_ABORTS = re.compile(
    r"terminate called|free\(\):|malloc|double free|corrupted|stack smashing|[Aa]ssert|panicked"
    r"|what\(\):|Check failed|FATAL"
)


def _gave_up_in_cpp(e: Evidence, rank: int) -> bool:
    return rank in e.ledgers and e.ledgers[rank].why == "aborted"


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
    at = raised_at(e, rank, said)
    if _lost_worker(e, rank):
        return Diagnosis(
            "dataloader-worker",
            f"a worker of rank {rank}'s DataLoader died, and the rank lost it{at} "
            f"({quoted(said)}){waiting_for(e, rank)}",
            "num_workers=0 shows its own error; if it was killed (no error at all), memory ran "
            "out: fewer workers, smaller batches, a larger /dev/shm",
            "10 What if the rank at fault waits, too?",
            rank,
        )
    if "Dist" in said and (better := _at_start(e)):  # DistStoreError, DistNetworkError
        return better
    found = symptoms.find([_message(e, rank)])
    if found is None:
        remedy = f"mend what rank {rank} says"
        if e.ranks > 1:
            remedy += "; what the other ranks said follows from it"
        if not said:
            text = f"rank {rank} ended with {exit_text(e.codes[rank])}, and said nothing"
            remedy = "look for what ends it without a word: sys.exit, os._exit, a library"
        mine = e.ledgers.get(rank)
        raised = failures.exception_of(e.lines, rank) or (mine is not None and mine.exception)
        return Diagnosis(
            "exception" if raised else "exit-code",
            text + at + waiting_for(e, rank),
            remedy,
            "10 Who failed first, and who is loudest?" if waiting_for(e, rank)
            else "06 Where is the cause written down?",
            rank,
        )  # fmt: skip
    symptom, means = found
    if symptom.kind in ("different-collectives", "never-arrived") and (better := standstill(e)):
        return better
    at_fault = re.search(r"rank (\d+) did not come", means)
    return Diagnosis(
        symptom.kind,
        f"rank {rank}: {means} ({quoted(said)}){at}{_unverified(symptom)}",
        symptom.remedy,
        symptom.lesson,
        int(at_fault[1]) if at_fault and int(at_fault[1]) < e.ranks else rank,
    )


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


def _started_again(e: Evidence) -> Diagnosis | None:
    """The process group was destroyed and made anew, and met the addresses of the old one."""
    again = [
        rank
        for rank, mine in e.ledgers.items()
        if mine.entries and in_function(mine, ("init_process_group",))
    ]
    words = "\n".join(failures.last_words(e.lines, rank) for rank in e.ledgers)
    alone = len(again) < len(e.ledgers) and not re.search("connectFullMesh|Connection", words)
    if not again or alone or (e.ended == "running" and waited_s(e, again) < threshold(e)):
        return None
    return Diagnosis(
        "rank-never-started",
        f"{named(again)} made the process group a second time{standing_at(e, again[0])}, and the "
        "ranks did not find each other: torchrun's store outlives the group, and the addresses of "
        f"the first one were still in it{_limit(e)}",
        "make the process group once, and further groups by new_group; if it must be made anew, "
        "give each one a meeting place of its own: init_method='file:///tmp/NAME-2', with rank= "
        "and world_size=",
        "10 Can it hang before the first collective?",
        None,
        "init_process_group",
        evidence=standing(e),
    )


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
    making = [r for r, one in e.ledgers.items() if in_function(one, ("new_group",))]
    if making:
        others = sorted(set(e.ledgers) - set(making))
        return Diagnosis(
            "different-groups",
            f"{named(making)} waited {in_seconds(waited)} in new_group"
            f"{standing_at(e, making[0])}, and not all its members came to make that group"
            f"{elsewhere(e, others)}",
            GROUPS,
            "10 Must all ranks bring the same?",
            making[0] if len(making) == 1 else None,
            "new_group",
            evidence=standing(e),
        )
    waiting = [rank for rank in failed if rank != absent]
    mine = e.ledgers.get(absent)
    if mine is not None and not mine.entries and in_function(mine, ("init_process_group",)):
        return Diagnosis(
            "rank-never-started",
            f"the process group waited {in_seconds(waited)} for a rank {absent}, and none came, "
            f"though rank {absent} of this launch was there, too,"
            f"{standing_at(e, absent)}: it came with another number, or to another place",
            "leave rank and world_size to torchrun (RANK, WORLD_SIZE); a rank that is read from "
            "elsewhere, with 0 for want of it, is 0 on every process",
            "02 How do the ranks find each other?",
            absent,
            "init_process_group",
            evidence=standing(e),
        )
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
        "10 Can it hang before the first collective?",
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
            "10 What if the rank at fault waits, too?",
            loaders[0] if len(loaders) < e.ranks else None,
            evidence=standing(e),
        )
    blocked = {rank: what for rank in range(e.ranks) if (what := blocked_in(e, rank))}
    if blocked:
        rank = min(blocked)
        return Diagnosis(
            "stuck",
            f"{named(blocked)} waited for {blocked[rank]}{standing_at(e, rank)}{_limit(e)}",
            "what mp.spawn starts is no rank of this launch, and nothing is known of it: leave "
            "mp.spawn out, and start the worker itself by `run SCRIPT --ranks N`"
            if in_spawn(e, rank)
            else "look at that line: nothing that it waits for came"
            if standing_at(e, rank)
            else "Thread(…, daemon=True) ends with the script; a thread that is needed must be "
            "told to end",
            "10 What if the rank at fault waits, too?",
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
        late = sorted(set(range(e.ranks)) - e.observed.started - set(e.ledgers))
        doing = "the ranks are at work"
        if late:
            have = "has" if len(late) == 1 else "have"
            who = "no rank has" if len(late) == e.ranks else f"{named(late)} {have} not"
            doing = f"{who} started yet: torch is still being imported"
        return Diagnosis("running", f"nothing is wrong so far: {doing}", evidence=standing(e))
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


def _unlike(e: Evidence) -> Diagnosis | None:
    """All ended well, and yet their calls differ: an error was caught, or nobody waited for it."""
    rows = [row for row in e.rows if row.verdict != "same"]
    rows += [row for row in pairs(e.ledgers) if row.verdict == "differs"]
    for row in sorted(rows, key=lambda row: row.t):
        here = {rank: entry for rank, entry in row.entries.items() if entry is not None}
        lacking = sorted(rank for rank, n in row.entries.items() if n is None and _used(e, rank))
        rank, entry = next(iter(here.items()))
        if lacking:
            told = f"{named(lacking)} never entered {call_text(entry)}, as {named(here)} did"
        elif len({(n.bytes, n.op if n.p2p is None else "") for n in here.values()}) > 1:
            told = "; ".join(
                f"rank {r} was in {call_text(n)} with {brought({r: n}, [r])}"
                for r, n in here.items()
            )
        else:
            continue
        return Diagnosis(
            "different-collectives",
            f"all ranks ended with exit code 0, and yet their calls differ: {told}",
            "look for an error that was caught (try … except around a step) or a handle that "
            "nobody waits for; what came of that call, and of those after it, is not to be trusted"
            if entry.p2p is None
            else "receive into a tensor of the size that was sent: the rest of it stays as it was",
            "10 What can the diagnosis not see?",
            (lacking or [rank])[0],
            call_name(entry),
            evidence=standing(e),
        )
    return None


def _used(e: Evidence, rank: int) -> bool:
    """Whether a rank took part at all."""
    return bool(e.ledgers[rank].entries)


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


_OUTLIVED = frozenset({
    "never-arrived", "uneven-steps", "different-collectives", "exit-early", "stuck", "straggler",
})  # fmt: skip


def _with_printed(found: Diagnosis, e: Evidence) -> Diagnosis:
    """An exception that the rank at fault has printed and outlived may be why."""
    if found.rank is None or found.kind not in _OUTLIVED:
        return found
    mine = e.ledgers.get(found.rank)
    error = mine.handling if mine is not None and found.kind == "never-arrived" else None
    if error is not None and not failures.is_about_others(error.text):
        text = shortened(f"{error.type}: {error.text}", 200)
        return replace(found, sentence=f"{found.sentence}, where it handles {text}")
    said, thread = failures.printed_exception(e.lines, found.rank)
    if not said or said in found.sentence:
        return found
    told = f"{shortened(said, 200)}{raised_at(e, found.rank, said)}"
    who = f"a thread of rank {found.rank} ({thread}) had ended by" if thread else (
        f"rank {found.rank} had caught and printed"
    )  # fmt: skip
    return replace(
        found,
        sentence=f"{found.sentence}. Before, {who} {told}",
        remedy=f"mend that error first: what should have come of it did not; else: {found.remedy}",
    )


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
