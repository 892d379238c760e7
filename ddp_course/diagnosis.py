"""diagnose(): what happened in a run, in the lesson's words.

    evidence → the first cause → one sentence, what to do, where it is taught

The loudest rank is seldom the culprit: who dies of "connection closed by peer" has lost somebody
else. So evidence is asked in the order of its weight: what the learner did; a rank that ended by
itself (its signal, its exception); the ranks' ledgers of collectives, aligned, where one lacks what
the others wait in; where each rank stands; and last, known messages (`symptoms`). Whatever else the
ranks said is a consequence, and folded.
"""

from __future__ import annotations

import ast
import html
import itertools
import re
import signal
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ddp_course import failures, ledger, symptoms, untrusted
from ddp_course.failures import Observed
from ddp_course.ledger import Entry, Ledger
from ddp_course.runs import Failure, Line, Run, advice_html, counted, exit_text

HEALTHY = frozenset({"healthy", "running"})
_TOO_EARLY_S = 2.0  # of waiting, before a live rank is called late
_SHORT_S = 2.5  # an absence that says nothing yet of a rank that is at work
_RANKED = re.compile(
    r"\b\w*_?rank\b|\bis_main\w*|\bmain_process\b|\bis_master\b|\bmaster\b|\bis_primary\w*|\brank0\b"
)
# Functions in whose frames a rank waits for something that is not a collective.
_WAITS = {
    "threading.py": "a lock or a thread",
    "queue.py": "a queue",
    "selectors.py": "input",
    "socket.py": "the network",
    "subprocess.py": "another program",
    "connection.py": "another process",
    "popen_fork.py": "another process",
    "process.py": "another process",
    "filelock.py": "a file's lock",
    "_unix.py": "a file's lock",
}


_ALONE = (
    "take the collective out of the `if`, so that all ranks call it; what one rank does alone "
    "(saving, printing, evaluating model.module) must not communicate"
)


@dataclass(frozen=True)
class Diagnosis:
    """What happened in a run: `str()` says it all, and a notebook shows the same."""

    kind: str  # "healthy", "never-arrived", "uneven-steps", …
    sentence: str
    remedy: str = ""
    lesson: str = ""  # number and section, "03 What if a rank runs out of data?"
    rank: int | None = None  # the first at fault; None: no single one
    collective: str = ""  # "all_reduce #4"
    evidence: tuple[str, ...] = ()
    consequences: dict[int, str] = field(default_factory=dict)  # rank -> what it said afterwards
    table: str = ""  # torchrun's own account

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return self.kind in HEALTHY

    def __str__(self) -> str:
        parts = [f"DIAGNOSIS ({self.kind}): {self.sentence}"]
        parts += [f"WHAT TO DO: {self.remedy}"] if self.remedy else []
        parts += [f"LESSON: {self.lesson}"] if self.lesson else []
        for title, lines in self._folded():
            parts += ["", f"{title}:", *(f"  {line}" for line in lines)]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        colour = "#117733" if self.healthy else "#aa3344"
        parts = [
            f"<div style='font-size:120%'><b style='color:{colour}'>Diagnosis</b> "
            f"({html.escape(self.kind)}): <b>{html.escape(self.sentence)}</b></div>",
            advice_html(self.remedy, self.lesson),
        ]
        for title, lines in self._folded():
            told = html.escape("\n".join(lines))
            parts.append(
                f"<details><summary>{html.escape(title)}</summary>"
                f"<pre style='white-space:pre-wrap'>{told}</pre></details>"
            )
        return f"<div class='ddp-diagnosis'>{''.join(parts)}</div>"

    def _folded(self) -> Iterator[tuple[str, list[str]]]:
        if self.evidence:
            yield "evidence", list(self.evidence)
        if self.consequences:
            followed = [f"rank {rank}: {text}" for rank, text in self.consequences.items()]
            yield "what followed", followed
        if self.table:
            yield "torchrun's own account", self.table.splitlines()


def diagnose(run: Run | str | Path) -> Diagnosis:
    """What happened in a run, or is happening: a live run's ranks are asked where they are.

    run  a Run, live or finished, or the folder of a finished one

    Raises NoSuchRun if the folder is not a finished run.
    """
    if not isinstance(run, Run):
        run = Run.open(run)
    return explain(evidence_of(run))


@dataclass(frozen=True)
class Evidence:
    """All that a diagnosis may use."""

    ranks: int
    ended: str  # "finished", "failed", "time-out", "stopped" or "running"
    script: Path = Path("job.py")
    limit_s: float = 0.0
    lines: Sequence[Line] = ()
    events: Sequence[Mapping[str, Any]] = ()
    codes: Mapping[int, int] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    ledgers: Mapping[int, Ledger] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    began: float = 0.0  # time of day of the launch
    now: float = field(default_factory=time.time)
    attempts: int = 1
    told: str = ""  # what the launcher itself has to say

    def stderr(self, rank: int) -> str:
        """A rank's own words, of its last start."""
        return "\n".join(line.text for line in failures.stderr_of(self.lines, rank))

    def agent(self) -> list[str]:
        """torchrun's own lines."""
        return [line.text for line in self.lines if line.rank is None]


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
        )
        return Evidence(
            ended="running",
            lines=run.tail(10_000),
            events=list(run._record.events),
            ledgers=ledger.read(run.folder),
            began=time.time() - run.elapsed_s,
            **common,
        )
    result, lines = run.result, run.lines
    failure = result.get("failure") or {}
    told = failure.get("what", "") if failure.get("kind") in ("launcher", "stopped") else ""
    return Evidence(
        ended=run.ended,
        lines=lines,
        events=run.events,
        codes=run.exit_codes,
        observed=Observed.of(result.get("observed", {})),
        ledgers=ledger.read(run.folder),
        began=float(result.get("began", 0.0)),
        attempts=1 + max((line.attempt for line in lines), default=0),
        told=told,
        **common,
    )


def explain(e: Evidence) -> Diagnosis:
    """The first cause: the first rule, in the order of weight, that has an answer."""
    if e.ended == "finished":
        return _diverged(e) or _healthy(e)
    rules = (
        _launcher_told, _killed_by_learner, _ended_by_itself, _crossed_pairs, _standstill,
        _left_early, _at_start, _progressing, _at_work, _by_message,
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
        traceback = "\n".join([text for text in e.agent() if text.strip()][-20:])
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
    )


# What the learner did, and ranks that ended by themselves


def _launcher_told(e: Evidence) -> Diagnosis | None:
    return Diagnosis("stopped" if e.ended == "stopped" else "launcher", e.told) if e.told else None


def _killed_by_learner(e: Evidence) -> Diagnosis | None:
    rank = failures.first_rank(e.lines, e.observed, e.codes)
    if rank is None or rank not in e.observed.killed:
        return None
    name = signal.Signals(e.observed.killed[rank]).name
    return Diagnosis(
        "killed-by-you",
        f"rank {rank} was killed by you ({name}){_waiting_for(e, rank)}",
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
    words, at = e.stderr(rank), _faulted_at(e, rank)
    if number == signal.SIGKILL:
        return Diagnosis(
            "killed",
            f"rank {rank} was {exit_text(-number)} and not from here; the usual sender is the "
            f"system, when memory runs out{_waiting_for(e, rank)}",
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
        if better := _standstill(e):
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
            f"rank {rank} crashed in native code ({name}, -{number}){at}{_waiting_for(e, rank)}",
            "look at that line: an extension, a wrong index given to native code, a broken "
            "installation; run it on one rank first",
            "06 Where is the cause written down?",
            rank,
        )
    said = failures.exception_of(e.lines, rank)
    told = f": {said}" if said else ""
    return Diagnosis(
        "killed",
        f"rank {rank} ended: {exit_text(-number)}{told}{at}{_waiting_for(e, rank)}",
        rank=rank,
    )


def _raised(e: Evidence, rank: int) -> Diagnosis | None:
    """An exception of the rank's own, or an exit code."""
    said = failures.last_words(e.lines, rank)
    text = f"rank {rank}: {said} ({exit_text(e.codes[rank])})"
    if "Dist" in said and (better := _at_start(e)):  # DistStoreError, DistNetworkError
        return better
    found = symptoms.find([_message(e, rank)])
    if found is None:
        if not said:
            text = f"rank {rank} ended with {exit_text(e.codes[rank])}, and said nothing"
        raised = bool(failures.exception_of(e.lines, rank))
        return Diagnosis(
            "exception" if raised else "exit-code",
            text + _raised_at(e, rank) + _waiting_for(e, rank),
            f"mend what rank {rank} says; what the other ranks said follows from it",
            "06 Where is the cause written down?",
            rank,
        )
    symptom, means = found
    if symptom.kind in ("different-collectives", "never-arrived") and (better := _standstill(e)):
        return better
    at_fault = re.search(r"rank (\d+) did not come", means)
    return Diagnosis(
        symptom.kind,
        f"rank {rank}: {means} ({_quoted(said)}){_unverified(symptom)}",
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
    return f" at {_place(line.file, line.line, line.code)}"


def _message(e: Evidence, rank: int) -> str:
    """The text of a rank's exception, which may have several lines, else all that it wrote."""
    texts = e.stderr(rank).splitlines()
    last = failures.exception_of(e.lines, rank)
    return "\n".join(texts[texts.index(last) :]) if last in texts else "\n".join(texts[-40:])


def _faulted_at(e: Evidence, rank: int) -> str:
    """ " at train.py:12 (`code`)", from the stack that faulthandler printed."""
    own = [frame for frame in failures.stack_of(e.lines, rank) if _is_learners(frame[0], e)]
    if not own:
        return ""
    file, line, _ = own[-1]
    return f" at {_place(file, line, _source_line(e, file, line))}"


def _waiting_for(e: Evidence, rank: int) -> str:
    """ ", while ranks 0 and 2 waited for it in all_reduce #4 (…)", if the ledgers tell."""
    entered = _entered_without(e, rank)
    if not entered:
        return ""
    verb = "waited" if e.ended != "running" else "wait" if len(entered) > 1 else "waits"
    return f", while {_named(entered)} {verb} for it in {_call(next(iter(entered.values())))}"


def _entered_without(e: Evidence, rank: int) -> dict[int, Entry]:
    """The collective in which others were that this rank had not entered: {rank: entry}."""
    if rank in e.ledgers:
        for row in ledger.align(e.ledgers):
            entered = {r: n for r, n in row.entries.items() if n is not None and r != rank}
            if entered and rank in row.entries and row.entries[rank] is None:
                return entered
        return {}
    last = {r: mine.entries[-1] for r, mine in e.ledgers.items() if mine.entries}
    if len({(n.group, n.n, n.op, n.p2p) for n in last.values()}) != 1:
        return {}
    return {r: n for r, n in last.items() if n.p2p is None}


# Who waits for whom


def _crossed_pairs(e: Evidence) -> Diagnosis | None:
    """Ranks that wait for each other's messages, in a circle."""
    talks = {rank: talk for rank in range(e.ranks) if (talk := _talk(e, rank))}
    circle = _circle({rank: talk.peer for rank, talk in talks.items()})
    if not circle and len(talks) > 1 and all(talk.peer is None for talk in talks.values()):
        circle = sorted(talks) if len({talk.direction for talk in talks.values()}) == 1 else []
    if not circle or _waited(e, circle) < _threshold(e):
        return None
    told = "; ".join(f"rank {rank} is in {talks[rank].told}" for rank in circle)
    directions = {talks[rank].direction for rank in circle}
    end = {
        frozenset({"recv"}): "and none of them sends",
        frozenset({"send"}): "and none of them receives",
    }.get(frozenset(directions), "and no two of them fit together")
    return Diagnosis(
        "crossed-pairs",
        f"{_named(circle)} wait for each other: {told}, {end}; "
        f"they waited {_seconds(_waited(e, circle))}",
        "let one side send first and the other receive first, or begin both at once: isend and "
        "irecv, or batch_isend_irecv",
        "05 What must two ranks hand over?",
        circle[0],
        talks[circle[0]].direction,
        evidence=_standing(e),
    )


@dataclass(frozen=True)
class _Talk:
    """A message that a rank waits for, or waits to get rid of."""

    direction: str
    peer: int | None
    told: str


def _talk(e: Evidence, rank: int) -> _Talk | None:
    """The point-to-point call in which a rank is blocked, or was when it gave up."""
    mine = e.ledgers.get(rank)
    if mine is None or mine.why == "exit":
        return None
    inside = _in_function(mine, ("send", "recv", "batch_isend_irecv"))
    last = mine.entries[-1] if mine.entries else None
    if last is not None and last.p2p is not None and (inside or _gave_up(mine)):
        peer = None if last.p2p.peer == ledger.ANY_RANK else last.p2p.peer
        return _Talk(last.p2p.direction, peer, _call(last))
    if not inside:
        return None
    own = _own_frame(mine, e)
    place = f" ({_place(own.file, own.line, own.code)})" if own else ""
    return _Talk(inside, None, f"{inside}{place}")


def _circle(peers: Mapping[int, int | None]) -> list[int]:
    for start in sorted(peers):
        path = [start]
        while (after := peers.get(path[-1])) is not None and after in peers:
            if after in path:
                return path[path.index(after) :]
            path.append(after)
    return []


def _standstill(e: Evidence) -> Diagnosis | None:
    """The first collective that some ranks entered and others did not, or not alike."""
    rows = [row for row in ledger.align(e.ledgers) if row.verdict != "same"]
    rows = [row for row in rows if any(row.entries.values())]
    if not rows:
        return _waits_for_message(e)
    row = min(rows, key=lambda row: min(n.t for n in row.entries.values() if n is not None))
    entered = {rank: entry for rank, entry in row.entries.items() if entry is not None}
    lacking = sorted(rank for rank, entry in row.entries.items() if entry is None)
    if lacking:
        return _missing(e, entered, lacking)
    return _different(e, entered)


def _missing(e: Evidence, entered: dict[int, Entry], lacking: list[int]) -> Diagnosis | None:
    waited = _waited(e, entered)
    if waited < _threshold(e) and not _someone_failed(e):
        return None
    entry = next(iter(entered.values()))
    call, rank = _call(entry), lacking[0]
    their = f"{_named(entered)} waited {_seconds(waited)}"
    if waited < 0.05:
        their = f"{_named(entered)} lost the connection"
    common: dict[str, Any] = {
        "rank": rank, "collective": _name(entry), "evidence": _standing(e),
    }  # fmt: skip
    never = f"{_named(lacking)} never entered {call}; {their}"
    if len(entered) == 1 and (alone := _guarded(e, entered)):
        only = next(iter(entered))
        return Diagnosis(
            "one-rank-only",
            f"rank {only} alone entered {call}, inside `{alone}`, and waited "
            f"{_seconds(waited)}; {_named(lacking)} never did{_elsewhere(e, lacking)}",
            _ALONE,
            _lesson_for_alone(entry),
            **{**common, "rank": only},
        )
    steps = _count(e.ledgers[rank], entry) if rank in e.ledgers else 0
    theirs = max((_count(e.ledgers[r], entry) for r in entered if r in e.ledgers), default=0)
    over = all(_has_left(e, r) for r in lacking)
    past = (over and not _left_in_the_middle(e, rank)) or _is_past(e, rank, entry)
    if steps and theirs > steps and past:
        other = _other_call(e, rank)
        went_on = f" and went on to {other}" if other else ""
        return _uneven(e, lacking, entered, entry, steps, went_on, common)
    if over:
        return Diagnosis(
            "exit-early",
            f"{never}: {_named(lacking)} had left with exit code 0 before",
            "find out why it left (sys.exit, os._exit, return, an exception that was caught); to "
            "torchrun exit code 0 is success, so it lets the others wait",
            "03 May a rank stop when it likes?",
            **common,
        )
    if _in_loader(e, rank):
        return Diagnosis(
            "dataloader-worker",
            f"{never}; rank {rank} waited for a worker of its DataLoader{_at(e, rank)}",
            "num_workers=0 shows whether it is the worker; DataLoader(timeout=…) turns the wait "
            "into an error; a lock held when workers are forked is a usual reason: "
            "multiprocessing_context='spawn'",
            "03 How long may a rank wait?",
            **common,
        )
    if rank in e.observed.paused:
        return Diagnosis("paused", never, "resume it: run.resume(rank)", **common)
    if message := _waits_for_message(e):
        return message
    other = _other_call(e, rank)
    if other:
        return Diagnosis(
            "different-collectives",
            f"{never}; rank {rank} was in {other} instead",
            "bring all ranks to the same collectives in the same order",
            "03 May one rank wait alone?",
            **common,
        )
    if _is_slow(e, rank, waited):
        return Diagnosis(
            "straggler",
            f"rank {rank} is slow, not stuck: it had not yet entered {call} when {their}; it was "
            f"still at work{_at(e, rank)}",
            "allow for the longest work that is legitimate (init_process_group(…, timeout=…)), or "
            "give that rank less to do",
            "03 How long may a rank wait?",
            **common,
        )
    return Diagnosis(
        "never-arrived",
        f"{never}{_elsewhere(e, lacking)}",
        "look at what that rank does instead; if it is only slow, allow more time: "
        "init_process_group(…, timeout=…)",
        "03 How long may a rank wait?",
        **common,
    )


def _different(e: Evidence, entered: dict[int, Entry]) -> Diagnosis | None:
    """Every rank came, but not with the same call."""
    groups: dict[Any, list[int]] = {}
    for rank, entry in entered.items():
        groups.setdefault((entry.op, entry.elements, entry.dtypes), []).append(rank)
    if len(groups) < 2:
        return None
    if e.ended == "finished" or (_waited(e, entered) < _threshold(e) and not _someone_failed(e)):
        return None
    sides = sorted(groups.values(), key=lambda ranks: (len(ranks), -ranks[0]))
    odd, most = sides[0], sides[-1]
    a, b = entered[odd[0]], entered[most[0]]
    common: dict[str, Any] = {
        "rank": odd[0], "collective": _name(b), "evidence": _standing(e),
    }  # fmt: skip
    for few, many in ((odd, most), (most, odd)):  # with two ranks either may be the odd one
        mine, theirs = entered[few[0]], entered[many[0]]
        if (alone := _guarded(e, {r: entered[r] for r in few})) and not _guarded(
            e, {r: entered[r] for r in many}
        ):
            return Diagnosis(
                "one-rank-only",
                f"{_named(few)} alone entered {_call(mine)}, inside `{alone}`; {_named(many)} went "
                f"on to {_call(theirs)}; they waited {_seconds(_waited(e, entered))}",
                _ALONE,
                _lesson_for_alone(mine),
                **{**common, "rank": few[0], "collective": _name(mine)},
            )
    for few, many in ((odd, most), (most, odd)):
        mine, theirs = entered[few[0]], entered[many[0]]
        steps = _count(e.ledgers[few[0]], theirs)
        if (
            steps
            and _count(e.ledgers[many[0]], theirs) > steps
            and not _seen(e.ledgers[many[0]], mine)
        ):
            common |= {"rank": few[0], "collective": _name(theirs)}
            went_on = f" and went on to {_call(mine)}"
            waiting = {r: entered[r] for r in many}
            return _uneven(e, few, waiting, theirs, steps, went_on, common)
    if a.op != b.op:
        calls = f"{_named(odd)} called {_call(a)} where {_named(most)} called {_call(b)}"
    else:
        brought = "; ".join(f"{_named(side)} brought {_brought(entered, side)}" for side in sides)
        calls = f"in {_call(b)}, {brought}"
    outcome = "" if any(
        code == -signal.SIGABRT for code in e.codes.values()
    ) else f"; they waited {_seconds(_waited(e, entered))}"  # fmt: skip
    return Diagnosis(
        "different-collectives",
        f"the ranks came to the same place with different collectives: {calls}{outcome}",
        "bring all ranks to the same collective, with the same shape and dtype",
        "03 May one rank wait alone?",
        **common,
    )


def _uneven(
    e: Evidence, few: list[int], entered: dict[int, Entry], entry: Entry, steps: int,
    went_on: str, common: dict[str, Any],
) -> Diagnosis:  # fmt: skip
    place = ""
    if entry.line is not None:
        place = f" (`{_code(entry.line.code)}`, {Path(entry.line.file).name}:{entry.line.line})"
    done = " and was done" if len(few) == 1 else " and were done"
    return Diagnosis(
        "uneven-steps",
        f"{_named(few)} made {_times(steps)}{place}{went_on or done}; "
        f"{_named(entered)} began one more, and waited {_seconds(_waited(e, entered))} in "
        f"{_call(entry, place=False)}, which {_named(few)} never entered",
        "give all ranks equally many batches (DistributedSampler), use Join, or let all ranks "
        "decide together when to stop",
        "03 What if a rank runs out of data?",
        **common,
    )


def _waits_for_message(e: Evidence) -> Diagnosis | None:
    """One rank waits for a message that its peer never sends."""
    for rank in range(e.ranks):
        talk = _talk(e, rank)
        if talk is None or talk.peer is None or not 0 <= talk.peer < e.ranks:
            continue
        waited = _waited(e, [rank])
        if _talk(e, talk.peer) or (waited < _threshold(e) and not _someone_failed(e)):
            continue
        does = "sent" if talk.direction == "recv" else "received"
        return Diagnosis(
            "never-arrived",
            f"rank {talk.peer} never {does}: rank {rank} waited {_seconds(waited)} in {talk.told}"
            f"{_elsewhere(e, [talk.peer])}",
            "every send needs its recv, on the peer, in the same order",
            "05 What must two ranks hand over?",
            talk.peer,
            talk.direction,
            evidence=_standing(e),
        )
    return None


def _left_early(e: Evidence) -> Diagnosis | None:
    """A rank that left with exit code 0 while others still needed it."""
    dead = {rank: t_s for t_s, rank, code in e.observed.deaths if code == 0}
    left = sorted(rank for rank in range(e.ranks) if _has_left(e, rank))
    failed = [rank for rank, code in e.codes.items() if code not in (0, -signal.SIGTERM)]
    if not left or not failed:
        return None
    first = min(left, key=lambda rank: dead.get(rank, 0.0))
    return Diagnosis(
        "exit-early",
        f"rank {first} left with exit code 0 while {_named(failed)} still needed it"
        f"{_waiting_for(e, first)}",
        "find out why it left (os._exit, sys.exit, return, an exception that was caught); to "
        "torchrun exit code 0 is success, so it lets the others go on alone",
        "03 May a rank stop when it likes?",
        first,
    )


# Before there is a group


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
    for texts in ([e.stderr(rank) for rank in failed], e.agent()):
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
    inside = [r for r, mine in e.ledgers.items() if _in_function(mine, ("init_process_group",))]
    absent = sorted(set(e.ledgers) - set(inside))
    if inside and not any(mine.entries for mine in e.ledgers.values()):
        if absent:
            return _not_in_store(e, absent[0], _waited(e, inside), inside)
        if e.ended == "time-out":
            return Diagnosis(
                "rank-never-started",
                f"{_named(inside)} waited in init_process_group for a rank that did not start"
                f"{_limit(e)}",
                "WORLD_SIZE must be the number of processes; under torchrun leave it alone",
                "02 How do the ranks find each other?",
                collective="init_process_group",
                evidence=_standing(e),
            )
    return None


def _not_in_store(e: Evidence, absent: int, waited: float, failed: list[int]) -> Diagnosis:
    waiting = [rank for rank in failed if rank != absent]
    if absent >= e.ranks:
        return Diagnosis(
            "rank-never-started",
            f"the process group waited {_seconds(waited)} for rank {absent}, which was never "
            f"started: this launch has {counted(e.ranks)}, and the script asked for more",
            "leave world_size (WORLD_SIZE) to torchrun, or start as many ranks as you ask for",
            "02 How do the ranks find each other?",
            None,
            "init_process_group",
            evidence=_standing(e),
        )
    code = e.codes.get(absent)
    gone = f": it had left with {exit_text(code)}" if code == 0 else _elsewhere(e, [absent])
    return Diagnosis(
        "never-arrived",
        f"rank {absent} never came to init_process_group; {_named(waiting)} waited "
        f"{_seconds(waited)}{gone}",
        "every rank must call init_process_group, and at about the same time: move what takes "
        "long (downloads, reading data) behind it, or allow more time",
        "02 How do the ranks find each other?",
        absent,
        "init_process_group",
        evidence=_standing(e),
    )


# Runs that were ended, or that go on


def _progressing(e: Evidence) -> Diagnosis | None:
    """The ranks still make steps."""
    if e.ended not in ("time-out", "running"):
        return None
    until = _snapshot_t(e)
    latest, interval = _activity(e)
    if not latest or until - max(latest.values()) > max(1.0, 4 * interval):
        return None
    steps = {rank: step for rank in range(e.ranks) if (step := _step(e, rank)) is not None}
    reached = f" (step {min(steps.values())})" if steps else ""
    if e.ended == "running":
        return Diagnosis("running", f"nothing is wrong so far: the ranks make progress{reached}")
    return Diagnosis(
        "too-slow",
        f"the run was slow, not stuck: its ranks still made progress{reached} when its limit of "
        f"{e.limit_s:g} s (limit_s) ended it",
        f"allow more time (limit_s={10 * e.limit_s:g}, in a shell --limit), or give it fewer steps",
        "03 How long may a rank wait?",
        evidence=_standing(e),
    )


def _at_work(e: Evidence) -> Diagnosis | None:
    """No progress was seen, and no rank lacks what others have."""
    if e.ended not in ("time-out", "running"):
        return None
    loaders = [rank for rank in range(e.ranks) if _in_loader(e, rank)]
    if loaders:
        return Diagnosis(
            "dataloader-worker",
            f"{_named(loaders)} waited for a worker of the DataLoader{_at(e, loaders[0])}"
            f"{_limit(e)}",
            "num_workers=0 shows whether it is the worker; a lock held when workers are forked is "
            "a usual reason: multiprocessing_context='spawn'",
            "03 How long may a rank wait?",
            loaders[0] if len(loaders) < e.ranks else None,
            evidence=_standing(e),
        )
    blocked = {rank: what for rank in range(e.ranks) if (what := _blocked_in(e, rank))}
    if blocked:
        rank = min(blocked)
        return Diagnosis(
            "stuck",
            f"{_named(blocked)} waited for {blocked[rank]}{_at(e, rank)}{_limit(e)}",
            "look at that line: nothing that it waits for came",
            "03 How long may a rank wait?",
            rank if len(blocked) < e.ranks else None,
            evidence=_standing(e),
        )
    inside = {rank: text for rank in range(e.ranks) if (text := _stack_in_collective(e, rank))}
    if inside:
        told = "; ".join(f"rank {rank} was {text}" for rank, text in inside.items())
        return Diagnosis(
            "stuck",
            f"the run did not end within its limit of {e.limit_s:g} s (limit_s): {told}"
            f"{_elsewhere(e, [rank for rank in range(e.ranks) if rank not in inside])}",
            "the rank that is elsewhere is the one to look at",
            "03 How long may a rank wait?",
            evidence=_standing(e),
        )
    if e.ended == "running":
        return Diagnosis(
            "running", "nothing is wrong so far: the ranks are at work", evidence=_standing(e)
        )
    return Diagnosis(
        "too-slow",
        f"the run did not end within its limit of {e.limit_s:g} s (limit_s), and no rank waits for "
        "another: it is slow, or a loop has no end",
        f"allow more time (limit_s={10 * e.limit_s:g}, in a shell --limit), or look at the lines "
        "where the ranks were",
        "03 How long may a rank wait?",
        evidence=_standing(e),
    )


def _stack_in_collective(e: Evidence, rank: int) -> str:
    """ "in barrier, called from train.py:12 (…)", from the stack that faulthandler printed."""
    frames = failures.stack_of(e.lines, rank)
    inside = [f for f in frames if "torch/distributed/" in f[0] or f[2] == "_engine_run_backward"]
    return f"in {inside[-1][2]}{_faulted_at(e, rank)}" if inside else ""


def _limit(e: Evidence) -> str:
    if e.ended == "time-out":
        return f"; the run was ended at its limit of {e.limit_s:g} s (limit_s)"
    return ""


# What is left when no better evidence speaks


def _by_message(e: Evidence) -> Diagnosis | None:
    failed = [rank for rank, code in e.codes.items() if code not in (0, -signal.SIGTERM)]
    for echoes in (False, True):
        for rank in failed:
            if found := symptoms.find([_message(e, rank)], echoes=echoes):
                symptom, means = found
                said = _quoted(failures.last_words(e.lines, rank))
                return Diagnosis(
                    symptom.kind,
                    f"rank {rank}: {means} ({said}){_unverified(symptom)}",
                    symptom.remedy,
                    symptom.lesson,
                    rank,
                )
        if not failed and (found := symptoms.find(e.agent(), echoes=echoes)):
            symptom, means = found
            return Diagnosis(
                symptom.kind, f"torchrun: {means}{_unverified(symptom)}",
                symptom.remedy, symptom.lesson,
            )  # fmt: skip
    return None


def _unknown(e: Evidence) -> Diagnosis:
    if e.ended == "stopped":
        return Diagnosis("stopped", "stopped by you")
    rank = failures.first_rank(e.lines, e.observed, e.codes)
    if rank is None:
        said = [text for text in e.agent() if text.strip()]
        return Diagnosis("torchrun", failures.agent_said(said))
    said_last = failures.last_words(e.lines, rank)
    waited = re.search(r"Timed out waiting (\d+)ms", said_last)
    if waited:
        return Diagnosis(
            "never-arrived",
            f"rank {rank} waited {_seconds(int(waited[1]) / 1000)} for the other ranks, and gave "
            f"up: {_quoted(said_last)}",
            "look at where each rank was: the odd one out is the one to look at",
            "03 How long may a rank wait?",
            evidence=_standing(e),
        )
    return Diagnosis(
        "exit-code", f"rank {rank}: {said_last} ({exit_text(e.codes[rank])})", rank=rank
    )


# Runs that ended well


def _healthy(e: Evidence) -> Diagnosis:
    pairs = any(entry.p2p for mine in e.ledgers.values() for entry in mine.entries)
    made = [] if pairs else [len(n.entries) + n.dropped for n in e.ledgers.values()]
    collectives = ""
    if made and min(made) == max(made) > 0:
        collectives = f", after {made[0]} collectives each" if e.ranks > 1 else ""
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
            f"{_named(odd)} are not those on rank {min(by_rank)}",
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
        for name, value in (getattr(mine, "digests", None) or {}).items():
            found.setdefault(name, {})[rank] = value
    return found


# Consequences, and small things


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
    followed = {rank: _without_folders(text) for rank, text in followed.items()}
    table = failures.table_of(e.agent())
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


def _someone_failed(e: Evidence) -> bool:
    return any(code not in (0, -signal.SIGTERM) for code in e.codes.values()) and (
        e.ended == "failed"
    )


def _threshold(e: Evidence) -> float:
    """How long a rank must have waited to be called waiting: not in a job that is merely busy."""
    return max(_TOO_EARLY_S if e.ended == "running" else 1.0, 4 * _activity(e)[1])


def _activity(e: Evidence) -> tuple[dict[int, float], float]:
    """({rank: when it last did something that left a trace}, the usual time between two)."""
    times: dict[int, list[float]] = {}
    for rank, mine in e.ledgers.items():
        times.setdefault(rank, []).extend(entry.t for entry in mine.entries)
    for event in e.events:
        times.setdefault(event["rank"], []).append(float(event["t"]))
    steps: list[float] = []
    for mine_t in times.values():
        mine_t.sort()
        last = mine_t[-12:]
        gaps = [b - a for a, b in itertools.pairwise(last)]
        steps.append(max(gaps, default=0.0))
    latest = {rank: mine_t[-1] for rank, mine_t in times.items() if mine_t}
    return latest, min(statistics.median(steps), 30.0) if steps else 0.0


def _snapshot_t(e: Evidence) -> float:
    return min((mine.t for mine in e.ledgers.values()), default=e.now)


def _step(e: Evidence, rank: int) -> int | None:
    steps = [n["step"] for n in e.events if n["rank"] == rank and isinstance(n.get("step"), int)]
    return steps[-1] if steps else None


def _waited(e: Evidence, waiting: Iterable[int]) -> float:
    """The longest time that one of these ranks had waited in its last call when it told."""
    times = [0.0]
    for rank in waiting:
        mine = e.ledgers.get(rank)
        if mine is not None and mine.entries:
            times.append(mine.t - mine.entries[-1].t)
        said = re.search(r"Timed out waiting (\d+)ms", failures.last_words(e.lines, rank))
        if said:
            times.append(int(said[1]) / 1000)
    return max(times)


def _has_left(e: Evidence, rank: int) -> bool:
    """Whether a rank ended well before the others; of a plain launch only its ledger tells."""
    mine = e.ledgers.get(rank)
    told = mine is not None and mine.why == "exit" and mine.exit_code in (None, 0)
    return e.codes.get(rank) == 0 or (told and rank not in e.codes and e.ended != "finished")


def _left_in_the_middle(e: Evidence, rank: int) -> bool:
    """Whether a rank that ended well did so by an exit inside its loop, not at the script's end."""
    mine, source = e.ledgers.get(rank), _readable(str(e.script), e)
    if mine is None:
        return True  # os._exit leaves no word
    return bool(mine.groups) and ("destroy_process_group" in source or _exits_inside(source))


@lru_cache(maxsize=8)
def _exits_inside(source: str) -> bool:
    """Whether a script calls exit() in a loop, or under a condition on the rank."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for outer in ast.walk(tree):
        ranked = isinstance(outer, ast.If) and _RANKED.search(ast.unparse(outer.test))
        if ranked or isinstance(outer, ast.For | ast.While):
            calls = [ast.unparse(n.func) for n in ast.walk(outer) if isinstance(n, ast.Call)]
            if {"exit", "quit", "sys.exit", "os._exit"} & set(calls):
                return True
    return False


def _gave_up(mine: Ledger) -> bool:
    return mine.why == "exception"


def _in_function(mine: Ledger, names: Sequence[str]) -> str:
    """The innermost of these functions of torch.distributed in which a rank is, or ""."""
    inside = [f.function for f in mine.stack if "torch/distributed" in f.file]
    return next((name for name in reversed(inside) if name in names), "")


def _in_loader(e: Evidence, rank: int) -> bool:
    mine = e.ledgers.get(rank)
    if mine is not None:
        return any(
            f.file.endswith("torch/utils/data/dataloader.py") and "get_data" in f.function
            for f in mine.stack
        )
    return any(
        file.endswith("torch/utils/data/dataloader.py") and "get_data" in function
        for file, _, function in failures.stack_of(e.lines, rank)
    )


def _other_call(e: Evidence, rank: int) -> str:
    """The collective or message in which a rank is that others wait for elsewhere."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.entries or not _in_collective(mine):
        return ""
    return _call(mine.entries[-1])


def _in_collective(mine: Ledger) -> bool:
    return any("torch/distributed/distributed_c10d.py" in f.file for f in mine.stack[-4:])


def _is_past(e: Evidence, rank: int, entry: Entry) -> bool:
    """Whether a rank has gone on to another collective, at another line."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.entries or entry.line is None:
        return False
    last = mine.entries[-1]
    return _in_collective(mine) and last.line is not None and last.line.line != entry.line.line


def _is_slow(e: Evidence, rank: int, waited: float) -> bool:
    """Whether a late rank is slow rather than stuck: at work, and late before or not late long."""
    mine = e.ledgers.get(rank)
    if mine is None or _blocked_in(e, rank) or not mine.stack:
        return False
    lags = _lags(e, rank)
    late_before = [lag for lag in lags[-6:] if lag > max(0.05, 0.1 * waited)]
    return len(late_before) >= 2 or waited <= _SHORT_S


def _lags(e: Evidence, rank: int) -> list[float]:
    """By how much a rank was the last to enter each collective."""
    lags = []
    for row in ledger.align(e.ledgers):
        times = [entry.t for entry in row.entries.values() if entry is not None]
        mine = row.entries.get(rank)
        if mine is not None and len(times) > 1 and mine.t == max(times):
            lags.append(mine.t - min(times))
    return lags


def _blocked_in(e: Evidence, rank: int) -> str:
    """What a rank waits for that is no collective: "a lock or a thread"; "" if it is at work."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.stack:
        return ""
    inner = mine.stack[-1]
    if not _is_learners(inner.file, e):
        return _WAITS.get(Path(inner.file).name, "")
    waits = re.search(r"\.(acquire|wait|join|get|recv|read|readline)\(|\binput\(", inner.code or "")
    return "something that did not come" if waits else ""


def _count(mine: Ledger, entry: Entry) -> int:
    """How many steps a rank made at the line of this entry."""
    if entry.line is None:
        return 0
    same = [n for n in mine.entries if n.line is not None and _key(n) == _key(entry)]
    first = {n.part for n in same[:1]}
    return sum(n.part in first for n in same)


def _seen(mine: Ledger, entry: Entry) -> bool:
    return any(_key(n) == _key(entry) for n in mine.entries) if entry.line else False


def _key(entry: Entry) -> tuple[str, int] | None:
    return None if entry.line is None else (entry.line.file, entry.line.line)


def _guarded(e: Evidence, entered: Mapping[int, Entry]) -> str:
    """The `if` on the rank inside which these ranks made their call, or ""."""
    for rank, entry in entered.items():
        places = [(entry.line.file, entry.line.line)] if entry.line else []
        mine = e.ledgers.get(rank)
        if mine is not None and mine.entries and _key(mine.entries[-1]) == _key(entry):
            places += [(f.file, f.line) for f in mine.stack if _is_learners(f.file, e)]
        for file, line in places:
            if test := _rank_test(_readable(file, e), line):
                return f"if {test}:"
    return ""


@lru_cache(maxsize=64)
def _rank_test(source: str, line: int) -> str:
    """The condition on the rank of the innermost `if` around a line."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    found = ""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.body[0].lineno <= line <= (node.end_lineno or 0):
            in_body = line <= (node.body[-1].end_lineno or 0)
            test = ast.get_source_segment(source, node.test) or ""
            if in_body and _RANKED.search(test):
                found = " ".join(test.split())[:60]
    return found


def _readable(file: str, e: Evidence) -> str:
    """The source of a learner's file, or ""."""
    if not _is_learners(file, e):
        return ""
    try:
        with untrusted.open_file(Path(file)) as source:
            return source.read(1 << 20).decode(errors="replace")
    except OSError:
        return ""


def _source_line(e: Evidence, file: str, line: int) -> str:
    lines = _readable(file, e).splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _is_learners(file: str, e: Evidence) -> bool:
    """Whether a file is the learner's: not installed, not Python's own, not this package's."""
    if Path(file) == e.script:
        return True
    path = Path(file)
    installed = any(part in ("site-packages", "dist-packages") for part in path.parts)
    ours = path.parent == Path(__file__).parent
    python = any(re.fullmatch(r"python3(\.\d+)?t?", part) for part in path.parts[:-1])
    return not (installed or ours or python or file.startswith("<"))


def _own_frame(mine: Ledger, e: Evidence) -> Any:
    own = [frame for frame in mine.stack if _is_learners(frame.file, e)]
    return own[-1] if own else None


def _standing(e: Evidence) -> tuple[str, ...]:
    """Where each rank was, one line a rank."""
    told = []
    for rank, mine in sorted(e.ledgers.items()):
        last = f"; its last collective: {_call(mine.entries[-1])}" if mine.entries else ""
        code = f" ({exit_text(e.codes[rank])})" if rank in e.codes else ""
        where = _at(e, rank).strip() or "nowhere that was noted"
        told.append(f"rank {rank}{code} was {where}{last}")
    return tuple(told)


def _at(e: Evidence, rank: int) -> str:
    """ " at train.py:12 (`code`)": the learner's line at which a rank is."""
    mine = e.ledgers.get(rank)
    if mine is None:
        return _faulted_at(e, rank)
    own = _own_frame(mine, e)
    if own is None:
        return ""
    inner = mine.stack[-1]
    via = "" if inner is own else f", in {inner.function}"
    return f" at {_place(own.file, own.line, own.code)}{via}"


def _elsewhere(e: Evidence, lacking: list[int]) -> str:
    """ "; rank 1 was at train.py:12 (`lock.acquire()`)"."""
    told = [f"rank {rank} was{at}" for rank in lacking[:2] if (at := _at(e, rank))]
    return "; " + ", ".join(told) if told else ""


def _lesson_for_alone(entry: Entry) -> str:
    if entry.op == "broadcast":
        return "03 May rank 0 evaluate alone?"
    return "03 May one rank wait alone?"


def _call(entry: Entry, *, place: bool = True) -> str:
    """ "all_reduce #4 (gradient bucket 2, called from line `loss.backward()` of train.py:31)"."""
    inside = [entry.part] if entry.part else []
    if place and entry.line is not None:
        name = Path(entry.line.file).name
        code = f"line `{_code(entry.line.code)}` of " if entry.line.code else ""
        inside.append(f"called from {code}{name}:{entry.line.line}")
    return _name(entry) + (f" ({', '.join(inside)})" if inside else "")


def _name(entry: Entry) -> str:
    if entry.p2p is not None:
        peer = "any rank" if entry.p2p.peer == ledger.ANY_RANK else f"rank {entry.p2p.peer}"
        return f"{entry.p2p.direction} {'from' if entry.p2p.direction == 'recv' else 'to'} {peer}"
    return f"{entry.op} #{entry.n}" + ("" if entry.group in ("", "0") else f" of {entry.group}")


def _place(file: str, line: int, code: str) -> str:
    text = _code(code)
    return f"{Path(file).name}:{line}" + (f" (`{text}`)" if text else "")


def _code(code: str, most: int = 80) -> str:
    """A line of code without its comment."""
    text = re.sub(r"\s{2,}#.*", "", code.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _brought(entered: Mapping[int, Entry], side: list[int]) -> str:
    """ "4×3 numbers of float32"."""
    entry = entered[side[0]]
    return f"{_shapes(entry)} of {', '.join(dict.fromkeys(entry.dtypes)) or 'no type'}"


def _shapes(entry: Entry) -> str:
    shapes = ["×".join(map(str, size)) or "1" for size in entry.sizes]
    return " and ".join(shapes) + (" number" if entry.elements == 1 else " numbers")


def _named(ranks: Iterable[int]) -> str:
    """ "rank 1", "ranks 0, 2 and 3"."""
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) > 8:
        names = [*names[:6], f"{len(names) - 6} others"]
    if len(names) < 2:
        return f"rank {names[0]}" if names else "no rank"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _times(count: int) -> str:
    return counted_times(count, "step")


def counted_times(count: int, noun: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _without_folders(text: str) -> str:
    return re.sub(r"\[[^\]]*/(?=[\w.]+\.(?:cc|cpp):\d+\])", "[", text)


def _quoted(text: str, most: int = 150) -> str:
    """An error's first sentence, without the folders of the machine that built torch."""
    text = re.split(r"(?<=[a-z)])\. (?=[A-Z])", _without_folders(text), maxsplit=1)[0]
    return f'"{text}"' if len(text) <= most else f'"{text[: most - 1]}…"'


def _unverified(symptom: symptoms.Symptom) -> str:
    return "" if symptom.verified else " (known from reports; not verified on a machine like this)"
