"""Ranks that ended by themselves: by a signal, by an exception, with an exit code.

Each rule answers with a Cause, or None if this is not what happened.
"""

from __future__ import annotations

import re
import signal

from ddp_course.diagnosis import messages
from ddp_course.diagnosis.evidence import (
    Evidence,
    faulted_at,
    has_left,
    in_call,
    in_loader,
    limit,
    raised_at,
    waiting_for,
)
from ddp_course.diagnosis.kinds import Cause
from ddp_course.diagnosis.messages import Message
from ddp_course.diagnosis.start import at_start
from ddp_course.diagnosis.waits import standstill
from ddp_course.diagnosis.words import (
    call_name,
    call_text,
    counted,
    named,
    place_text,
    quoted,
    seconds,
    shortened,
)
from ddp_course.observe import output
from ddp_course.run.failure import exit_text

# What glibc, C++ or an assertion say before they abort.
_ABORTS = re.compile(
    r"terminate called|free\(\):|malloc|double free|corrupted|stack smashing|[Aa]ssert|panicked"
    r"|what\(\):|Check failed|FATAL"
)
_STRANGER = re.compile(
    r"Running (?P<op>\w+) on global rank \d+ which does not belong to the given group"
)
_NATIVE = signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


def launcher_told(e: Evidence) -> Cause | None:
    return Cause("launcher", facts={"told": e.told}) if e.told else None


def killed_by_learner(e: Evidence) -> Cause | None:
    rank = output.first_rank(e.lines, e.observed, e.codes)
    if rank is None or rank not in e.observed.killed:
        return None
    name = signal.Signals(e.observed.killed[rank]).name
    facts = {"who": f"rank {rank}", "signal": name, "waiting": waiting_for(e, rank)}
    return Cause("killed-by-you", rank, facts)


def ended_by_itself(e: Evidence) -> Cause | None:
    """A rank that ended for a reason of its own, not because others were gone."""
    ended = [
        rank
        for rank, code in e.codes.items()
        if code not in (0, -signal.SIGTERM)
        and not (e.ended == "time-out" and code in (-signal.SIGABRT, -signal.SIGKILL))
        and (not output.followed(e.lines, rank) or _lost_worker(e, rank))
    ]
    rank = output.first_rank(e.lines, e.observed, e.codes, ended) if ended else None
    if rank is None:
        return None
    return _by_signal(e, rank, -e.codes[rank]) if e.codes[rank] < 0 else _raised(e, rank)


def _by_signal(e: Evidence, rank: int, number: int) -> Cause | None:
    words, said = e.stderr(rank), output.exception_of(e.lines, rank)
    facts = {
        "who": f"rank {rank}", "ended": exit_text(-number), "at": faulted_at(e, rank),
        "waiting": waiting_for(e, rank), "said": said,
    }  # fmt: skip
    if number == signal.SIGKILL:
        return Cause("killed", rank, facts)
    if number == signal.SIGABRT and output.ABORT_AT_EXIT in words:
        return Cause("abort-at-exit", rank, facts)
    if number == signal.SIGABRT and (found := messages.find([words])):
        if found[0].kind == "different-collectives":
            return _wrong_size(e, rank, facts)
        return by_message_of(e, rank, *found)
    if number == signal.SIGSEGV and "_ddp_init_helper" in words:
        return Cause("detail-crash", rank, facts)
    mine = e.ledgers.get(rank)
    in_cpp = mine is not None and mine.why == "aborted"
    if number == signal.SIGABRT and not _ABORTS.search(words) and not in_cpp:
        return Cause("native-crash.unexplained", rank, facts)
    if number in _NATIVE:
        return Cause("native-crash", rank, facts)
    return Cause("killed.other", rank, facts)


def _wrong_size(e: Evidence, rank: int, facts: dict[str, str]) -> Cause:
    """Gloo ends a rank that gets a tensor of another size."""
    better = standstill(e)
    if better is not None and better.kind != "stuck":
        return better
    last = e.last(rank)
    facts["call"] = call_text(last) if last else ""
    uneven = last is not None and last.op.startswith("all_to_all")
    name = f"different-collectives.{'split' if uneven else 'size'}"
    return Cause(name, rank, facts, call_name(last) if last else "")


def _raised(e: Evidence, rank: int) -> Cause | None:
    """An exception of the rank's own, or an exit code."""
    said = output.last_words(e.lines, rank)
    facts = {
        "who": f"rank {rank}", "said": said, "ended": exit_text(e.codes[rank]),
        "at": raised_at(e, rank, said), "waiting": waiting_for(e, rank),
    }  # fmt: skip
    if _lost_worker(e, rank):
        return Cause("dataloader-worker.died", rank, facts | {"said": quoted(said)})
    if "Dist" in said and (better := at_start(e)):  # DistStoreError, DistNetworkError
        return better
    if _races(e, rank, said):
        return Cause("file-race", rank, facts | {"said": quoted(said)})
    if found := messages.find_anywhere(e.stderr(rank)) or messages.find(message_of(e, rank)):
        if found[0].kind in ("different-collectives", "never-arrived") and (
            better := standstill(e)
        ):
            return better
        return by_message_of(e, rank, *found)
    mine = e.ledgers.get(rank)
    raised = output.exception_of(e.lines, rank) or (mine is not None and mine.exception)
    if not said:
        return Cause("exit-code.silent", rank, facts)
    first = _first_of_chain(e, rank)
    facts["said"] = shortened(said)
    if first and raised:
        facts |= {"first": shortened(first, 200), "at": raised_at(e, rank, first) or facts["at"]}
    facts["others"] = "the other ranks" if e.ranks > 1 else ""
    loud = ".loud" if facts["waiting"] else ""
    return Cause(f"exception{loud}" if raised else "exit-code", rank, facts)


def _races(e: Evidence, rank: int, said: str) -> bool:
    """Whether torch.load met a file that other ranks found whole, or that is cut short."""
    alone = any(output.exception_of(e.lines, other) != said for other in range(e.ranks))
    read = "torch/serialization.py" in e.stderr(rank)
    return read and alone and said.startswith(("EOFError", "FileNotFoundError"))


def _lost_worker(e: Evidence, rank: int) -> bool:
    """Whether a connection that a rank lost was to a worker of its own DataLoader."""
    mine = e.ledgers.get(rank)
    said = output.exception_of(e.lines, rank)
    return mine is not None and mine.why == "exception" and in_loader(e, rank) and (
        said.startswith(("ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError",
                         "EOFError", "FileNotFoundError: [Errno 2] No such file or directory"))
    )  # fmt: skip


def message_of(e: Evidence, rank: int) -> list[str]:
    """What a rank's exceptions say, the first of a chain first; else the end of what it wrote."""
    texts = e.stderr(rank).splitlines()
    last = output.exception_of(e.lines, rank)
    if last not in texts:
        return ["\n".join(texts[-40:])]
    begins = [max(0, i - 2) for i, text in enumerate(texts) if text in _LINKS]
    return ["\n".join(texts[begin:]) for begin in [*begins[:1], texts.index(last)]]


def _first_of_chain(e: Evidence, rank: int) -> str:
    """The first of a chain of exceptions, if the last one came while it was handled."""
    texts = e.stderr(rank).splitlines()
    links = [i for i, text in enumerate(texts) if text in _LINKS]
    before = texts[: links[0]] if links else []
    return next((text for text in reversed(before) if output.is_exception(text)), "")


def outside_group(e: Evidence) -> Cause | None:
    """A rank that used a group of others: its call does nothing, and nothing says so aloud."""
    for rank, mine in e.ledgers.items():
        for one in mine.outside:
            at = place_text(one.line.file, one.line.line, one.line.code) if one.line else ""
            facts = {"who": f"rank {rank}", "op": one.op, "at": at}
            return Cause("not-in-group", rank, facts, standing=True)
        if told := _STRANGER.search(e.stderr(rank)):
            facts = {"who": f"rank {rank}", "op": told["op"]}
            return Cause("not-in-group", rank, facts, standing=True)
    return None


def halted(e: Evidence) -> Cause | None:
    """Ranks that somebody outside stopped: before they tell anything, they are let go on."""
    ranks = {rank for rank in e.observed.halted if 0 <= rank < e.ranks}
    if not ranks or e.ended not in ("time-out", "running"):
        return None
    return Cause("paused.outside", min(ranks), {"who": named(ranks), "limit": limit(e)})


def left_early(e: Evidence) -> Cause | None:
    """A rank that left with exit code 0 while others still needed it."""
    dead = {rank: t_s for t_s, rank, code in e.observed.deaths if code == 0}
    left = sorted(rank for rank in range(e.ranks) if has_left(e, rank))
    if not left or not e.failed:
        return None
    if e.ended == "time-out" and e.ledgers and not any(in_call(e, rank) for rank in e.failed):
        return None  # it is by itself that the rest did not end
    first = min(left, key=lambda rank: dead.get(rank, 0.0))
    facts = {"who": f"rank {first}", "others": named(e.failed), "waiting": waiting_for(e, first)}
    return Cause("exit-early.needed", first, facts)


def by_message(e: Evidence) -> Cause | None:
    """Known words, where nothing else tells more."""
    for echoes in (False, True):
        for rank in e.failed:
            if found := messages.find(message_of(e, rank), echoes=echoes):
                return by_message_of(e, rank, *found)
        if not e.failed and (found := messages.find(e.agent, echoes=echoes)):
            facts = {"who": "torchrun", "means": found[1], **_advice(found[0])}
            return Cause("message", None, {**facts, "kind": found[0].kind})
    return None


def by_message_of(e: Evidence, rank: int, message: Message, means: str) -> Cause:
    """A known message in a rank's own words."""
    said = output.last_words(e.lines, rank)
    told = re.search(r"rank (\d+) did not come", means)
    at_fault = int(told[1]) if told and int(told[1]) < e.ranks else rank
    if odd := _odd_model(e) if message.kind == "different-models" else None:
        at_fault, means = odd[0], f"{means} ({odd[1]})"
    facts = {
        "kind": message.kind, "who": f"rank {rank}", "means": means, "said": quoted(said),
        "at": raised_at(e, rank, said), **_advice(message),
    }  # fmt: skip
    return Cause("message", at_fault, facts)


def _odd_model(e: Evidence) -> tuple[int, str] | None:
    """The rank whose model has another number of parameters than most, and how many each has."""
    by_count: dict[str, list[int]] = {}
    for rank in range(e.ranks):
        if found := re.search(rf"Rank {rank} has (\d+) params", output.last_words(e.lines, rank)):
            by_count.setdefault(found[1], []).append(rank)
    if len(by_count) < 2:
        return None
    sides = sorted(by_count.items(), key=lambda side: len(side[1]))
    told = [
        f"{named(ranks)} {'has' if len(ranks) == 1 else 'have'} {counted(int(count), 'parameter')}"
        for count, ranks in sides
    ]
    return sides[0][1][0], ", ".join(told)


def _advice(message: Message) -> dict[str, str]:
    unverified = (
        "" if message.verified else "known from reports; not verified on a machine like this"
    )
    return {"do": message.do, "lesson": message.lesson, "unverified": unverified}


def unknown(e: Evidence) -> Cause:
    """What is left to say."""
    rank = output.first_rank(e.lines, e.observed, e.codes)
    ended = [rank for _, rank, code in sorted(e.observed.deaths) if code == -signal.SIGTERM]
    if rank is None and ended:  # torchrun ends the others so, after the first
        facts = {
            "who": f"rank {ended[0]}", "ended": exit_text(-signal.SIGTERM),
            "waiting": waiting_for(e, ended[0]),
        }  # fmt: skip
        return Cause("killed.asked", ended[0], facts)
    if rank is None:
        said = output.agent_said([text for text in e.agent if text.strip()])
        return Cause("torchrun", facts={"told": said})
    said = output.last_words(e.lines, rank)
    facts = {"who": f"rank {rank}", "said": said, "ended": exit_text(e.codes[rank])}
    if waited := re.search(r"Timed out waiting (\d+)ms", said):
        facts |= {"waited": seconds(int(waited[1]) / 1000), "said": quoted(said)}
        return Cause("never-arrived.unknown", rank, facts, standing=True)
    return Cause("exit-code", rank, facts)
