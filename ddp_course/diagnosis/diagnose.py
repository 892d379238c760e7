"""diagnose(): what happened in a run, in the lesson's words.

    evidence → the first rule that has a cause → one sentence, what to do, where it is taught

The loudest rank is seldom the culprit: a rank that dies of "connection closed by peer" has lost
somebody else. So evidence is asked in the order of its weight: what the learner did; a rank that
ended by itself; the ranks' calls, aligned, where one lacks what the others wait in; where each rank
stands; and last, known messages. Whatever else the ranks said is a consequence, and folded.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddp_course.diagnosis import busy, ends, exchange, finished, order, start, waits
from ddp_course.diagnosis.evidence import Evidence, limit, raised_at, standing
from ddp_course.diagnosis.kinds import Cause, Diagnosis, fill, say, words_of
from ddp_course.diagnosis.words import named, shortened, without_folders
from ddp_course.observe import ledger, output
from ddp_course.observe.output import Observed
from ddp_course.run.failure import Failure, exit_text
from ddp_course.run.run import Run, check_run

__all__ = [
    "Diagnosis",
    "Evidence",
    "diagnose",
    "evidence_of",
    "explain",
    "failure_of",
    "first_failure",
]

Rule = Callable[[Evidence], Cause | None]

# The order of weight. The first rule that has a cause decides.
RULES: tuple[Rule, ...] = (
    ends.launcher_told,
    ends.killed_by_learner,
    waits.inside_join,
    ends.outside_group,
    ends.ended_by_itself,
    ends.halted,
    start.started_again,
    order.other_roots,
    exchange.crossed_pairs,
    waits.standstill,
    ends.left_early,
    start.at_start,
    busy.progressing,
    busy.at_work,
    ends.by_message,
    ends.unknown,
)
# The same for a run that ended with exit code 0.
RULES_IF_FINISHED: tuple[Rule, ...] = (
    ends.outside_group,
    finished.unlike,
    order.other_roots,
    order.swapped,
    finished.diverged,
    finished.healthy,
)
# Kinds in which the rank at fault may be one that waits, or lives.
_WAITING = frozenset({
    "never-arrived", "uneven-steps", "one-rank-only", "straggler", "crossed-pairs", "exit-early",
    "dataloader-worker", "different-collectives", "paused", "too-slow", "stuck", "peer-lost",
    "other-order", "skipped-step", "wrong-group", "different-roots",
})  # fmt: skip
# Kinds for which an error that the rank has printed and outlived may be the reason.
_OUTLIVED = frozenset({
    "never-arrived", "uneven-steps", "different-collectives", "exit-early", "stuck", "straggler",
    "skipped-step",
})  # fmt: skip


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
        "copy": run.folder / "job.py",
        "limit_s": float(asked.get("limit_s", 0.0)),
        "env": asked.get("env", {}),
    }
    if not run.done:
        return _live_evidence(run, common)
    result, lines, kept = run.result, run.lines, ledger.read(run.folder)
    failure = result.get("failure") or {}
    told = failure.get("what", "") if failure.get("kind") in ("launcher", "stopped") else ""
    starts = [line.attempt for line in lines] + [one.attempt for one in kept.values()]
    return Evidence(
        ended=run.ended,
        lines=output.Lines(lines),
        events=run.events,
        codes=run.exit_codes,
        observed=Observed.of(result.get("observed", {})),
        ledgers=kept,
        began=float(result.get("began", 0.0)),
        attempts=1 + max([*starts, 0]),
        told=told,
        **common,
    )


def _live_evidence(run: Run, common: dict[str, Any]) -> Evidence:
    run.ask()
    lanes = run.lanes()
    seen = Observed(
        paused={lane.rank for lane in lanes if lane.state == "paused"},
        started={lane.rank for lane in lanes if lane.pid is not None},
        halted={lane.rank for lane in lanes if output.is_halted(lane.pid)},
    )
    seen.halted -= seen.paused
    return Evidence(
        ended="running",
        lines=output.Lines(run.tail(10_000)),
        events=list(run.reader.events),
        observed=seen,
        ledgers=ledger.read(run.folder),
        began=time.time() - run.elapsed_s,
        **common,
    )


def explain(e: Evidence) -> Diagnosis:
    """The first cause, in words."""
    if e.ended == "stopped":  # whatever came after that is no failure
        return say(Cause("stopped", facts={"told": e.told or "stopped by you"}))
    if e.ended == "finished":
        return say_with_evidence(cause_of(e, RULES_IF_FINISHED), e)
    cause = cause_of(e, RULES)
    found = _with_error(say_with_evidence(cause, e), cause, e)
    if e.ended == "running":
        return _with_pause(found, e)
    if e.ended == "time-out" and "limit_s" not in found.sentence:
        found = _noted(found, "limit", {"limit": limit(e)})
    return _with_pause(_with_consequences(found, e), e)


def cause_of(e: Evidence, rules: tuple[Rule, ...]) -> Cause:
    """The cause that the first of these rules has."""
    return next(cause for rule in rules if (cause := rule(e)) is not None)


def say_with_evidence(cause: Cause, e: Evidence) -> Diagnosis:
    told = tuple(filter(None, cause.facts.get("digests", "").splitlines()))
    return say(cause, standing(e) if cause.standing else told)


def first_failure(run: Run) -> Failure:
    """What went wrong first in a run that has failed; a Run asks for it (ddp_course.HOOKS)."""
    evidence = evidence_of(run)
    return failure_of(explain(evidence), evidence)


def failure_of(found: Diagnosis, e: Evidence) -> Failure:
    """The same as a run's failure: one voice."""
    first = found.rank
    raised = found.kind not in _WAITING and e.ended != "time-out"
    rank = first if first is not None else output.first_rank(e.lines, e.observed, e.codes)
    code = None if rank is None else e.codes.get(rank)
    traceback = ""
    if raised and rank is not None and code not in (0, -signal.SIGKILL):
        traceback = output.traceback_of(e.lines, rank)
    elif raised and rank is None:
        traceback = "\n".join([text for text in e.agent if text.strip()][-20:])
    where = output.places(e.lines, e.observed, e.ranks, e.script) if e.ended == "time-out" else {}
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


# What is said beside the cause


def _noted(found: Diagnosis, note: str, facts: dict[str, str]) -> Diagnosis:
    """The same with a note of kinds.toml behind the sentence and before the remedy."""
    name = f"note.{note}"
    return replace(
        found,
        sentence=found.sentence + fill(words_of(name, "says"), facts),
        remedy=fill(words_of(name, "do"), facts) + found.remedy,
    )


def _with_error(found: Diagnosis, cause: Cause, e: Evidence) -> Diagnosis:
    """An error that the rank at fault handles, or has printed and outlived, may be the reason."""
    if cause.facts.get("cleanup"):
        return _noted(found, "cleanup", dict(cause.facts))
    if found.rank is None or found.kind not in _OUTLIVED:
        return found
    mine = e.ledgers.get(found.rank)
    error = mine.handling if mine is not None and found.kind == "never-arrived" else None
    if error is not None and not output.is_about_others(error.text):
        said = shortened(f"{error.type}: {error.text}", 200)
        return _noted(found, "handling", {"said": said})
    said, thread = output.printed_exception(e.lines, found.rank)
    if not said or said in found.sentence:
        return found
    facts = {
        "who": f"rank {found.rank}", "said": shortened(said, 200), "thread": thread,
        "at": raised_at(e, found.rank, said),
    }  # fmt: skip
    return _noted(found, "thread" if thread else "printed", facts)


def _with_consequences(found: Diagnosis, e: Evidence) -> Diagnosis:
    followed = output.consequences(e.lines, e.codes, found.rank)
    if found.rank is not None and found.kind not in _WAITING:
        followed.pop(found.rank, None)
    elif found.rank is not None and (code := e.codes.get(found.rank, 0)) not in (
        0, -signal.SIGTERM,
    ):  # fmt: skip
        own = output.exception_of(e.lines, found.rank) or exit_text(code)
        followed = dict(sorted({**followed, found.rank: own}.items()))
    if e.ended == "time-out":
        followed = {}  # the launcher ended them; where they were is told instead
    followed = {rank: without_folders(text) for rank, text in followed.items()}
    evidence = (*found.evidence, *_first_to_fail(e))
    return replace(found, consequences=followed, table=output.table_of(e.agent), evidence=evidence)


def _first_to_fail(e: Evidence) -> list[str]:
    """When the first rank failed, if anybody saw it."""
    failed = [(t_s, rank, code) for t_s, rank, code in e.observed.deaths if code != 0]
    if not failed or e.ended == "time-out":
        return []
    t_s, rank, code = min(failed)
    return [f"the first to fail was rank {rank}, {t_s:.2f} s after the launch: {exit_text(code)}"]


def _with_pause(found: Diagnosis, e: Evidence) -> Diagnosis:
    """A pause that was forgotten is the cause of whatever came after it."""
    paused = e.observed.paused
    if not paused:
        return found
    facts = {"who": named(paused), "sentence": found.sentence}
    told = say(Cause("paused", min(paused), facts))
    return replace(
        found, kind=told.kind, sentence=told.sentence, remedy=told.remedy, lesson=told.lesson,
        rank=told.rank,
    )  # fmt: skip
