"""What the evidence of a run tells about its ranks: where they stood, how long, in whose code.

Everything here reads an `Evidence`: ledgers, stacks and output of the ranks, and the learner's own
source for the line that a rank stood at. Nothing judges; `standstill` and `diagnosis` do.
"""

from __future__ import annotations

import ast
import itertools
import re
import signal
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ddp_course import disk as untrusted
from ddp_course.diagnosis.findings import Evidence
from ddp_course.disk import PACKAGE
from ddp_course.observe import ledger
from ddp_course.observe import output as failures
from ddp_course.observe.ledger import Entry, Ledger
from ddp_course.run.run import exit_text

_TOO_EARLY_S = 2.0  # of waiting, before a live rank is called late


_SHORT_S = 2.5  # an absence that says nothing yet of a rank that is at work


_RANKED = re.compile(
    r"\b\w*_?rank\b|\bis_main\w*|\bmain_process\b|\bis_master\b|\bmaster\b|\bis_primary\w*"
    r"|\b(?:is_)?rank_?(?:0|zero)\b|\bis_(?:global_zero|chief|root)\b|\bgpu(?:_id)? == 0"
)
_RANKS_SOURCE = re.compile(r"\bget_(?:local_|node_|global_)?rank\(|\b(?:LOCAL_|GROUP_)?RANK\b")


_TRACEBACK = "Traceback (most recent call"
_TRACED = re.compile(r'  File "(.+)", line (\d+), in ')


# Files in whose functions a rank waits for something that is not a collective.
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


def faulted_at(e: Evidence, rank: int) -> str:
    """ " at train.py:12 (`code`)", from the stack that faulthandler printed."""
    own = [frame for frame in failures.stack_of(e.lines, rank) if _is_learners(frame[0], e)]
    if not own:
        return ""
    file, line, _ = own[-1]
    return f" at {place_text(file, line, _source_line(e, file, line))}"


def waiting_for(e: Evidence, rank: int) -> str:
    """ ", while ranks 0 and 2 waited for it in all_reduce #4 (…)", if the ledgers tell."""
    entered = _entered_without(e, rank)
    if not entered:
        return ""
    verb = "waited" if e.ended != "running" else "wait" if len(entered) > 1 else "waits"
    return f", while {named(entered)} {verb} for it in {call_text(next(iter(entered.values())))}"


def _entered_without(e: Evidence, rank: int) -> dict[int, Entry]:
    """The collective in which others were that this rank had not entered: {rank: entry}."""
    if rank in e.ledgers:
        for row in e.rows:
            entered = {r: n for r, n in row.entries.items() if n is not None and r != rank}
            mine = row.entries.get(rank)
            apart = mine is None or mine.op != next(iter(entered.values()), mine).op
            if entered and rank in row.entries and apart:
                return entered
        return {}
    last = {r: mine.entries[-1] for r, mine in e.ledgers.items() if mine.entries}
    if len({(n.group, n.n, n.op, n.p2p) for n in last.values()}) != 1:
        return {}
    return {r: n for r, n in last.items() if n.p2p is None}


def someone_failed(e: Evidence) -> bool:
    return any(code not in (0, -signal.SIGTERM) for code in e.codes.values()) and (
        e.ended == "failed"
    )


def threshold(e: Evidence) -> float:
    """How long a rank must have waited to be called waiting: not in a job that is merely busy."""
    return max(_TOO_EARLY_S if e.ended == "running" else 1.0, 4 * activity(e)[1])


def activity(e: Evidence) -> tuple[dict[int, float], float]:
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


def told_t(e: Evidence) -> float:
    """When the ranks were asked, or ended; one that left well told its own end, long before."""
    stayed = [mine.t for mine in e.ledgers.values() if mine.why != "exit"]
    return min(stayed or (mine.t for mine in e.ledgers.values()), default=e.now)


def last_step(e: Evidence, rank: int) -> int | None:
    steps = [n["step"] for n in e.events if n["rank"] == rank and isinstance(n.get("step"), int)]
    return steps[-1] if steps else None


def waited_s(e: Evidence, waiting: Iterable[int]) -> float:
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


def has_left(e: Evidence, rank: int) -> bool:
    """Whether a rank ended well before the others; of a plain launch only its ledger tells."""
    mine = e.ledgers.get(rank)
    told = mine is not None and mine.why == "exit" and mine.exit_code in (None, 0)
    return e.codes.get(rank) == 0 or (told and rank not in e.codes and e.ended != "finished")


def left_in_the_middle(e: Evidence, rank: int) -> bool:
    """Whether a rank that ended well did so by an exit inside its loop, not at the script's end."""
    mine, source = e.ledgers.get(rank), _readable(str(e.script), e)
    if mine is None:
        return True  # os._exit leaves no word
    return bool(mine.groups) and ("destroy_process_group" in source or _exits_inside(source))


@lru_cache(maxsize=8)
def _exits_inside(source: str) -> bool:
    """Whether a script calls exit() in a loop, or under a condition on the rank."""
    leave = {"exit", "quit", "sys.exit", "os._exit"}
    leave |= {
        node.name
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.FunctionDef) and leave & _calls(node) and node.name != "main"
    }
    for outer in ast.walk(_parsed(source)):
        ranked = isinstance(outer, ast.If) and _RANKED.search(ast.unparse(outer.test))
        if (ranked or isinstance(outer, ast.For | ast.While)) and leave & _calls(outer):
            return True
    return False


def _calls(tree: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def gave_up(mine: Ledger) -> bool:
    return mine.why == "exception"


def in_function(mine: Ledger, names: Sequence[str]) -> str:
    """The innermost of these functions of torch.distributed in which a rank is, or ""."""
    inside = [f.function for f in mine.stack if "torch/distributed" in f.file]
    return next((name for name in reversed(inside) if name in names), "")


def raised_at(e: Evidence, rank: int, said: str) -> str:
    """ " at train.py:12 (`code`)": where this exception came from, in the learner's code."""
    texts, mine = e.stderr(rank).splitlines(), e.ledgers.get(rank)
    end = len(texts) - 1 - texts[::-1].index(said) if said in texts else 0
    is_last = not any(text.startswith(_TRACEBACK) for text in texts[end + 1 :])
    if is_last and mine is not None and mine.exception is not None and mine.exception.line:
        at = mine.exception.line
        return f" at {place_text(at.file, at.line, at.code)}"
    for text in reversed(texts[:end]):
        frame = _TRACED.match(text)
        if frame and _is_learners(frame[1], e):
            line = int(frame[2])
            return f" at {place_text(frame[1], line, _source_line(e, frame[1], line))}"
        if text.startswith(_TRACEBACK):
            break
    return ""


def in_loader(e: Evidence, rank: int) -> bool:
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


def in_spawn(e: Evidence, rank: int) -> bool:
    """Whether a rank waits for processes of torch.multiprocessing.spawn."""
    mine = e.ledgers.get(rank)
    return mine is not None and any(
        f.file.endswith("torch/multiprocessing/spawn.py") for f in mine.stack
    )


def is_importing(e: Evidence, rank: int) -> bool:
    """Whether a rank was in the middle of an import, of no module of the learner's."""
    mine = e.ledgers.get(rank)
    stack = mine.stack if mine is not None else ()
    files = [frame.file for frame in stack] or [f[0] for f in failures.stack_of(e.lines, rank)]
    own = [i for i, file in enumerate(files) if _is_learners(file, e)]
    inner = files[own[-1] :] if own else files
    return any(file.startswith("<frozen importlib") for file in inner)


def other_call(e: Evidence, rank: int) -> str:
    """The collective or message in which a rank is that others wait for elsewhere."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.entries or not _in_collective(mine):
        return ""
    return call_text(mine.entries[-1])


def _in_collective(mine: Ledger) -> bool:
    return any("torch/distributed/distributed_c10d.py" in f.file for f in mine.stack[-4:])


def is_past(e: Evidence, rank: int, entry: Entry) -> bool:
    """Whether a rank has gone on to another collective, at another line."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.entries or entry.line is None:
        return False
    last = mine.entries[-1]
    return _in_collective(mine) and last.line is not None and last.line.line != entry.line.line


def is_slow(e: Evidence, rank: int, waited: float) -> bool:
    """Whether a late rank is slow rather than stuck: at work, and late before or not late long."""
    mine = e.ledgers.get(rank)
    if mine is None or blocked_in(e, rank) or not mine.stack:
        return False
    lags = _lags(e, rank)
    late_before = [lag for lag in lags[-6:] if lag > max(0.05, 0.1 * waited)]
    return len(late_before) >= 2 or waited <= _SHORT_S


def _lags(e: Evidence, rank: int) -> list[float]:
    """By how much a rank was the last to enter each collective."""
    lags = []
    for row in e.rows:
        times = [entry.t for entry in row.entries.values() if entry is not None]
        mine = row.entries.get(rank)
        if mine is not None and len(times) > 1 and mine.t == max(times):
            lags.append(mine.t - min(times))
    return lags


def blocked_in(e: Evidence, rank: int) -> str:
    """What a rank waits for that is no collective: "a lock or a thread"; "" if it is at work."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.stack:
        return ""
    inner = mine.stack[-1]
    if inner.function == "_shutdown" and Path(inner.file).name == "threading.py":
        return "a thread of its own that has not ended"
    if not _is_learners(inner.file, e):
        if any("/multiprocessing/" in f.file for f in mine.stack[-6:]):
            return "another process that it started"
        return _WAITS.get(Path(inner.file).name, "")
    waits = re.search(r"\.(acquire|wait|join|get|recv|read|readline)\(|\binput\(", inner.code or "")
    return "something that did not come" if waits else ""


def waits_on_handle(e: Evidence, rank: int) -> bool:
    """Whether a rank stands in wait() on what isend, irecv or async_op=True gave it."""
    mine = e.ledgers.get(rank)
    if mine is None or not mine.stack or not _is_learners(mine.stack[-1].file, e):
        return False
    return ".wait(" in mine.stack[-1].code


def steps_at(mine: Ledger, entry: Entry) -> int:
    """How many steps a rank made at the line of this entry."""
    if entry.line is None:
        return 0
    same = [n for n in mine.entries if n.line is not None and _key(n) == _key(entry)]
    first = {n.part for n in same[:1]}
    return sum(n.part in first for n in same)


def up_to(mine: Ledger, entry: Entry) -> Ledger:
    """A ledger as it was when its rank entered this call."""
    at = next((i for i, one in enumerate(mine.entries) if one is entry), len(mine.entries))
    return replace(mine, entries=mine.entries[: at + 1])


def habit_broken(mine: Ledger, lacked: Entry) -> bool:
    """Whether a rank made this call before each call such as its last one, but not this time."""
    inside, since, before = mine.entries[-1], list[Entry](), list[bool]()
    for entry in mine.entries:
        if (_key(entry), entry.group) == (_key(inside), inside.group):
            before.append(any((_key(n), n.group) == (_key(lacked), lacked.group) for n in since))
            since = []
        else:
            since.append(entry)
    return len(before) > 2 and all(before[:-1]) and not before[-1]


def has_seen(mine: Ledger, entry: Entry) -> bool:
    return any(_key(n) == _key(entry) for n in mine.entries) if entry.line else False


def _key(entry: Entry) -> tuple[str, int] | None:
    return None if entry.line is None else (entry.line.file, entry.line.line)


def rank_guard(e: Evidence, entered: Mapping[int, Entry]) -> str:
    """ "inside `if rank == 0:`", if these ranks made their call under such a condition, or ""."""
    for rank, entry in entered.items():
        places = [(entry.line.file, entry.line.line)] if entry.line else []
        mine = e.ledgers.get(rank)
        if mine is not None and mine.entries and _key(mine.entries[-1]) == _key(entry):
            places += [(f.file, f.line) for f in mine.stack if _is_learners(f.file, e)]
        for file, line in places:
            if found := _guard_of(_readable(file, e), line):
                return found.told
    return ""


def guarded_apart(e: Evidence, mine: Entry, theirs: Entry) -> str:
    """The condition on the rank of one of two calls that met, if the other is at no part of it."""
    found = None if mine.line is None else _guard_of(_readable(mine.line.file, e), mine.line.line)
    if found is None or found.leaves or theirs.line is None or branches(e, mine, theirs):
        return ""
    return found.told


def condition_apart(e: Evidence, mine: Ledger, theirs: Ledger) -> str:
    """The innermost `if` in which one rank's last call stands and the other's does not, or ""."""
    here, there = path_to_call(mine, e), path_to_call(theirs, e)
    for file, line in here:
        around = [
            node
            for node in ast.walk(_parsed(_readable(file, e)))
            if isinstance(node, ast.If)
            and node.lineno <= line <= (node.end_lineno or 0)
            and not any(
                f == file and node.lineno <= at <= (node.end_lineno or 0) for f, at in there
            )
        ]
        if around and there:
            inner = max(around, key=lambda node: node.lineno)
            test = " ".join(ast.unparse(inner.test).split())[:60]
            return "" if "__name__" in test else f"if {test}:"
    return ""


def in_same_loop(e: Evidence, mine: Ledger, theirs: Ledger) -> bool:
    """Whether one rank's last call stands in the innermost loop around the other's, or neither
    in any."""
    here, there = path_to_call(mine, e), path_to_call(theirs, e)
    around = next((loop for at in there if (loop := _loop_around(e, *at))), None)
    if around is None:
        once = all(one.entries and steps_at(one, one.entries[-1]) < 2 for one in (mine, theirs))
        return bool(here and there) and once and not any(_loop_around(e, *at) for at in here)
    file, first, last = around
    return any(f == file and first <= line <= last for f, line in here)


def loop_over(e: Evidence, entry: Entry) -> str:
    """What the innermost loop around a call goes over: "model.parameters()", or ""."""
    around = None if entry.line is None else _loop_around(e, entry.line.file, entry.line.line)
    if around is None:
        return ""
    tree = ast.walk(_parsed(_readable(around[0], e)))
    loops = [n for n in tree if isinstance(n, ast.For) and n.lineno == around[1]]
    return ast.unparse(loops[0].iter) if loops else ""


def _loop_around(e: Evidence, file: str, line: int) -> tuple[str, int, int] | None:
    """The innermost loop around a line: file, first and last line."""
    loops = [
        (file, node.lineno, node.end_lineno or 0)
        for node in ast.walk(_parsed(_readable(file, e)))
        if isinstance(node, ast.For | ast.While) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(loops, key=lambda loop: loop[1], default=None)


def path_to_call(mine: Ledger, e: Evidence) -> list[tuple[str, int]]:
    """The learner's lines that led to a rank's last call, innermost first; none if it is past."""
    if not mine.entries or mine.entries[-1].line is None:
        return []
    own = [(f.file, f.line) for f in reversed(mine.stack) if _is_learners(f.file, e)]
    return own if _key(mine.entries[-1]) in own else []


def branches(e: Evidence, mine: Entry, theirs: Entry) -> bool:
    """Whether two calls at different lines are what a script has for different ranks."""
    if mine.line is None or theirs.line is None or _key(mine) == _key(theirs):
        return False
    source = _readable(mine.line.file, e)
    found = _guard_of(source, mine.line.line)
    if found is None:
        return False
    if _guard_of(_readable(theirs.line.file, e), theirs.line.line):
        return True
    lines = [theirs.line.line, *_called_from(source, theirs.line.line)]
    same = theirs.line.file == mine.line.file
    return same and any(found.first <= line <= found.last for line in lines)


@dataclass(frozen=True)
class _Guard:
    """Lines that only some ranks reach."""

    told: str  # "inside `if rank == 0:`", "after `if rank != 0: return`"
    first: int
    body: int  # the last of these lines
    last: int  # that of the whole statement, `else` included
    leaves: bool  # the body ends by leaving, so that what follows is an `else`


def _guard_of(source: str, line: int) -> _Guard | None:
    """The innermost `if` on the rank around a line, or around every call of its function."""
    if found := _guard_at(source, line):
        return found
    guards = [_guard_at(source, call) for call in _called_from(source, line)]
    return guards[0] if guards and all(guards) else None


def _guard_at(source: str, line: int) -> _Guard | None:
    around = [guard for guard in _guards(source) if guard.first <= line <= guard.body]
    return max(around, key=lambda guard: guard.first, default=None)


@lru_cache(maxsize=64)
def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


@lru_cache(maxsize=64)
def _guards(source: str) -> list[_Guard]:
    tree, found = _parsed(source), []
    names = _names_of_rank(tree)
    for block in _blocks(tree):
        for node in block:
            if not isinstance(node, ast.If):
                continue
            test = ast.get_source_segment(source, node.test) or ""
            used = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
            if not _RANKED.search(test) and not used & names:
                continue
            told, end, last = f"if {' '.join(test.split())[:60]}:", node.body[-1], node.end_lineno
            leaves = isinstance(end, ast.Return | ast.Continue)
            lines = node.body[0].lineno, end.end_lineno or 0, last or 0
            found.append(_Guard(f"inside `{told}`", *lines, leaves))
            rest = block[block.index(node) + 1 :]
            always = not isinstance(node.test, ast.BoolOp)  # not "and step == 7"
            if leaves and always and rest and not node.orelse:
                word, to = type(end).__name__.lower(), rest[-1].end_lineno or 0
                told = f"after `{told} {word}`"
                found.append(_Guard(told, rest[0].lineno, to, to, leaves=True))
    return found


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def in_cleanup(e: Evidence, entry: Entry) -> str:
    """The `finally` or `except` in which a call stands, or ""."""
    if entry.line is None:
        return ""
    for node in ast.walk(_parsed(_readable(entry.line.file, e))):
        if isinstance(node, ast.Try):
            handlers = [stmt for handler in node.handlers for stmt in handler.body]
            for word, block in (("finally", node.finalbody), ("except", handlers)):
                if any(n.lineno <= entry.line.line <= (n.end_lineno or 0) for n in block):
                    return word
    return ""


def _names_of_rank(tree: ast.Module) -> set[str]:
    """The variables that a script gives its rank: r, in `r, w = get_rank(), get_world_size()`."""
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and _RANKS_SOURCE.search(ast.unparse(value)):
                    names.add(name.id)
    return names


@lru_cache(maxsize=256)
def _called_from(source: str, line: int) -> tuple[int, ...]:
    """The lines that call the function around this line, in the same file."""
    functions = [
        node
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.lineno < line <= (node.end_lineno or 0)
    ]
    if not functions:
        return ()
    inner = max(functions, key=lambda node: node.lineno)
    calls = [node for node in ast.walk(_parsed(source)) if isinstance(node, ast.Call)]
    names = [(ast.unparse(node.func).rpartition(".")[2], node.lineno) for node in calls]
    return tuple(at for name, at in names if name == inner.name)


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
    ours = path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "jobs")
    python = any(re.fullmatch(r"python3(\.\d+)?t?", part) for part in path.parts[:-1])
    return not (installed or ours or python or file.startswith("<"))


def own_frame(mine: Ledger, e: Evidence) -> Any:
    own = [frame for frame in mine.stack if _is_learners(frame.file, e)]
    return own[-1] if own else None


def standing(e: Evidence) -> tuple[str, ...]:
    """Where each rank was, one line a rank."""
    told = []
    for rank, mine in sorted(e.ledgers.items()):
        last = f"; its last collective: {call_text(mine.entries[-1])}" if mine.entries else ""
        code = f" ({exit_text(e.codes[rank])})" if rank in e.codes else ""
        own = own_frame(mine, e)
        here = own is not None and mine.entries and _key(mine.entries[-1]) == (own.file, own.line)
        if here and not blocked_in(e, rank):
            told.append(f"rank {rank}{code} was in {call_text(mine.entries[-1])}")
            continue
        where = standing_at(e, rank).strip() or _without_own_line(mine)
        told.append(f"rank {rank}{code} was {where}{last}")
    return tuple(told)


def _without_own_line(mine: Ledger) -> str:
    """Where a rank was, if in no line of the learner's."""
    if not mine.stack or mine.stack[-1].function == "_shutdown":
        return "at its end"
    return f"in {mine.stack[-1].function} ({Path(mine.stack[-1].file).name})"


def standing_at(e: Evidence, rank: int) -> str:
    """ " at train.py:12 (`code`)": the learner's line at which a rank is."""
    mine = e.ledgers.get(rank)
    if mine is None:
        return faulted_at(e, rank)
    own = own_frame(mine, e)
    if own is None:
        return ""
    inner = mine.stack[-1]
    via = "" if inner is own else f", in {inner.function}"
    return f" at {place_text(own.file, own.line, own.code)}{via}"


def elsewhere(e: Evidence, lacking: list[int]) -> str:
    """ "; rank 1 was at train.py:12 (`lock.acquire()`)"."""
    told = [f"rank {rank} was{at}" for rank in lacking[:2] if (at := standing_at(e, rank))]
    return "; " + ", ".join(told) if told else ""


def call_text(entry: Entry, *, place: bool = True) -> str:
    """ "all_reduce #4 (gradient bucket 2, called from line `loss.backward()` of train.py:31)"."""
    inside = [entry.part] if entry.part else []
    if place and entry.line is not None:
        name = Path(entry.line.file).name
        code = f"line `{code_of(entry.line.code)}` of " if entry.line.code else ""
        inside.append(f"called from {code}{name}:{entry.line.line}")
    return call_name(entry) + (f" ({', '.join(inside)})" if inside else "")


def call_name(entry: Entry) -> str:
    if entry.p2p is not None:
        peer = "any rank" if entry.p2p.peer == ledger.ANY_RANK else f"rank {entry.p2p.peer}"
        tag = f" with tag {entry.p2p.tag}" if entry.p2p.tag else ""
        where = "from" if entry.p2p.direction == "recv" else "to"
        return f"{entry.p2p.direction} {where} {peer}{tag}"
    group = "" if entry.group in ("", "0") else f" of group {entry.group[:12]}"
    return f"{entry.op} #{entry.n}{group}"


def place_text(file: str, line: int, code: str) -> str:
    text = code_of(code)
    return f"{Path(file).name}:{line}" + (f" (`{text}`)" if text else "")


def code_of(code: str, most: int = 80) -> str:
    """A line of code without its comment."""
    text = re.sub(r"\s{2,}#.*", "", code.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def brought(entered: Mapping[int, Entry], side: list[int]) -> str:
    """ "4×3 numbers of float32"."""
    entry = entered[side[0]]
    return f"{_shapes(entry)} of {', '.join(dict.fromkeys(entry.dtypes)) or 'no type'}"


def _shapes(entry: Entry) -> str:
    shapes = ["×".join(map(str, size)) or "1" for size in entry.sizes]
    return " and ".join(shapes) + (" number" if entry.elements == 1 else " numbers")


def named(ranks: Iterable[int]) -> str:
    """ "rank 1", "ranks 0, 2 and 3"."""
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) > 8:
        names = [*names[:6], f"{len(names) - 6} others"]
    if len(names) < 2:
        return f"rank {names[0]}" if names else "no rank"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def in_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"


def counted_times(count: int, noun: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def without_folders(text: str) -> str:
    return re.sub(r"\[[^\]]*/(?=[\w.]+\.(?:cc|cpp):\d+\])", "[", text)


def shortened(text: str, most: int = 500) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(text: str, most: int = 150) -> str:
    """An error's first sentence, without the folders of the machine that built torch."""
    text = re.split(r"(?<=[a-z)])\. (?=[A-Z])", without_folders(text), maxsplit=1)[0]
    return f'"{text}"' if len(text) <= most else f'"{text[: most - 1]}…"'
