"""From a learner's file to a verdict: look at it, run it once as real ranks, judge the evidence."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ddp_course import disk as untrusted
from ddp_course.checks import live, record
from ddp_course.checks.agreed import BACK
from ddp_course.checks.evidence import Array
from ddp_course.checks.exercises import EXERCISES as EXERCISES
from ddp_course.checks.exercises import exercise_file, find
from ddp_course.checks.files import not_yet
from ddp_course.checks.manifest import (
    ERRORS,
    HINTS,
    LOOP,
    SILENT,
    STANDS,
    Check,
    Exercise,
    Mistake,
    PerRank,
    all_close,
    close,
)
from ddp_course.checks.supervisor import Gathered, Observation, Supervisor
from ddp_course.checks.verdict import Result, Verdict
from ddp_course.disk import Lock
from ddp_course.launcher.launch import launch
from ddp_course.run.folder import runs_folder
from ddp_course.show import panel

DRIVER = Path(__file__).with_name("driver.py")
PATIENCE_S = 5.0  # without any progress, for a function that works in milliseconds
_LIMIT_S = 240.0  # for the job; half of it, a collective's own time-out, is beyond any patience
# What outputs that no honest rank sends may raise where they are looked at; then they are nothing
# that is known.
_UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
KEEP_CHECKS = 20  # runs
_STOP_S = 20.0  # for everything to end after an interrupt; another interrupt waits no longer
_LEAVE_S = 5.0  # for the ranks to leave when all have answered; a thread of the learner's may stay

# What a rank says when another one has gone or does not answer.
_CONSEQUENCES = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "Socket closed",
)
_COMPARE = "Compare the columns: what would turn one into the other?"
_TERMINATED = -15  # torchrun ends the others so when one rank has gone


def judge(name: str, *, tell: Callable[[list[Observation]], None] | None = None) -> Verdict:
    """The verdict on exercise `name`, from one run of the learner's file.

    tell   called with what each rank does, while they do it
    """
    exercise = find(name)
    path = exercise_file(exercise)
    reason = not_yet(path, exercise.function)
    if reason:
        return _verdict(exercise, path, _all(exercise, "ungradable", message=reason))
    for _ in range(2):  # what is our fault is tried once more
        gathered, folder = run_ranks(exercise, path, tell)
        results = assess(exercise, gathered)
        if results[0].status != "infra":
            break
    verdict = _verdict(exercise, path, results, folder)
    with suppress(OSError):
        untrusted.write(folder / "verdict.json", json.dumps(verdict.as_dict(), indent=1) + "\n")
    return verdict


def tidy(root: Path) -> None:
    """Remove the runs of earlier checks but the newest, lest they push out the lessons' runs."""
    folders = sorted(root.glob(f"*-*-{DRIVER.stem}-????"), reverse=True)
    for folder in folders[KEEP_CHECKS:]:
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime < 60:
                continue  # it may be about to begin
            with Lock(folder, exclusive=True) as lock:
                if lock.held:
                    shutil.rmtree(folder, ignore_errors=True)


def check(exercise: str, *, quiet: bool = False) -> Verdict:
    """Judge it, show meanwhile what the ranks do unless `quiet`, and remember the result."""
    one = find(exercise)
    with live.shown(one.name) if not quiet else nullcontext() as tell:
        verdict = judge(one.name, tell=tell)
    tidy(runs_folder())
    problem = record.note(verdict)
    more = ""
    if verdict.status in ("fail", "error", "timeout"):
        more = f'Stuck? hint("{one.name}", more=True)'
    return replace(verdict, note="\n".join(filter(None, [verdict.note, more, problem])))


def run_ranks(
    exercise: Exercise, path: Path, tell: Callable[[list[Observation]], None] | None
) -> tuple[Gathered, Path]:
    """What the ranks of one job on the learner's file did, and the folder of that run."""
    with Supervisor(exercise.ranks, exercise.draw, restarts=exercise.restarts) as supervisor:
        with panel.hidden():
            run = launch(
                DRIVER,
                ranks=exercise.ranks,
                limit_s=_LIMIT_S,
                restarts=exercise.restarts,
                env=supervisor.env,
                wait=False,
                file=str(path),
                function=exercise.function,
                exercise=exercise.stem,
            )
        try:
            gathered = supervisor.gather(run, patience_s=PATIENCE_S, tell=tell)
            if not all(one.answered for one in gathered.observations) or not run.ends_within(
                _LEAVE_S
            ):
                run.stop()
        except BaseException:
            run.stop()
            run.ends_within(_STOP_S)
            raise
        run.wait()
    for one in gathered.observations:
        if one.state == "gone":
            code = run.exit_codes.get(one.rank)
            one.followed, one.error = code == _TERMINATED, ending(code)
    return gathered, run.folder


def ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return ""
    if code >= 0:
        return f"it ended with exit code {code}"
    with suppress(ValueError):
        return f"{signal.Signals(-code).name} ended it"
    return f"signal {-code} ended it"


def assess(exercise: Exercise, gathered: Gathered, witnesses: Any = None) -> tuple[Result, ...]:
    """Evidence against the oracle. Points come from the manifest and only with evidence."""
    seen = gathered.observations
    if not gathered.began:
        return _all(exercise, "infra", message="The ranks did not start. Ask doctor().")
    if gathered.stopped:
        return _first(exercise, "error", message=gathered.stopped)
    broken = sorted(
        (one for one in seen if one.state in ("raised", "gone", "malformed")), key=_order
    )
    hangs = any(one.state in ("importing", "computing") for one in seen)
    if broken and not (hangs and _follows(broken[0])):
        return _failed_rank(exercise, seen, broken[0])
    if not all(one.state == "returned" for one in seen):
        return _first(exercise, "timeout", **_hang(exercise, gathered))
    return _compared(exercise, gathered)


def _order(one: Observation) -> tuple[bool, float, int]:
    """The first at fault comes first: causes before consequences, then by the ranks' clock."""
    return _follows(one), one.t, one.place


def _follows(one: Observation) -> bool:
    """Whether this rank's end is what another one's end, or absence, brings about."""
    return one.followed or any(words in one.error for words in _CONSEQUENCES)


def _failed_rank(
    exercise: Exercise, seen: list[Observation], first: Observation
) -> tuple[Result, ...]:
    said = {
        "raised": f"Rank {first.rank} raised first: {first.error}",
        "gone": f"Rank {first.rank} left without an answer: "
        f"{first.error or 'by os._exit, or a crash'}.",
        "malformed": f"What rank {first.rank} returned cannot be judged: {first.error}.",
    }[first.state]
    errors = {**exercise.errors, **ERRORS}
    known = [hint for fragment, hint in errors.items() if fragment in first.error]
    if "raise NotImplementedError" in first.traceback:  # torch raises it too, for other reasons
        known.insert(0, HINTS[STANDS])
    return _first(
        exercise,
        "error",
        message=said,
        hint=next(iter(known), ""),
        traceback=first.traceback,
        **_table_of_acts(seen),
    )


def _table_of_acts(seen: list[Observation]) -> dict[str, Any]:
    """What each rank did, one beside the other."""
    head, rows = ["rank", "what it did"], [[str(one.rank), _did(one)] for one in seen]
    most = max(one.calls or 0 for one in seen)
    columns = {
        "where": [one.line if not one.answered and one.line != BACK else "" for one in seen],
        "collectives": [_calls(one, most) for one in seen],
    }
    for name, cells in columns.items():
        if any(cells):
            head.append(name)
            rows = [[*row, cell] for row, cell in zip(rows, cells, strict=True)]
    return {"head": tuple(head), "rows": tuple(map(tuple, rows))}


def _calls(one: Observation, most: int) -> str:
    """How many collectives a rank has started, marked if others have started more."""
    if one.calls is None:
        return ""
    return f"{one.calls} ✗" if one.calls < most else f"{one.calls}  "


def _did(one: Observation) -> str:
    words = {
        "absent": "did not start",
        "here": "had not begun",
        "importing": "is still importing your file",
        "loading": "was ready to begin",
        "computing": "is still inside your function",
        "returned": "returned",
        "gone": f"left without an answer{f': {one.error}' * bool(one.error)}",
        "malformed": "answered what cannot be judged",
    }
    state = "returned" if _is_back(one) else one.state
    return words.get(state) or f"raised {one.error.partition(chr(10))[0][:80]}"


def _is_back(one: Observation) -> bool:
    """Whether a rank has come back from the function and waits for the others only."""
    return one.state == "computing" and one.line == BACK


def _late(one: Observation) -> bool:
    return not one.answered


def _hang(exercise: Exercise, gathered: Gathered) -> dict[str, object]:
    seen = gathered.observations
    what = {
        "computing": "had not come back from your function",
        "importing": "had not imported your file",
    }
    state = next((state for state in what if any(one.state == state for one in seen)), "")
    waiting = [str(one.rank) for one in seen if one.state == state or (not state and _late(one))]
    if not all(_is_back(seen[int(rank)]) for rank in waiting):
        waiting = [rank for rank in waiting if not _is_back(seen[int(rank)])]
    names = f"rank {waiting[0]}" if len(waiting) == 1 else f"ranks {', '.join(waiting)}"
    said = {
        "message": f"After {gathered.waited_s:.0f} s {names} "
        f"{what.get(state, 'had not come back after the restart')}.",
        **_table_of_acts(seen),
    }
    if silent := [one.rank for one in seen if one.silent]:
        who = f"Rank {silent[0]}" if len(silent) == 1 else "Ranks " + ", ".join(map(str, silent))
        return said | {
            "hint": f"{who} did not even say which line it was in: it was stopped by a signal, or "
            "compiled code did not let go of Python."
        }
    if any(one.busy for one in seen):
        return said | {"mistake": LOOP, "hint": HINTS[LOOP]}
    if state == "importing":
        return said | {
            "hint": "Importing your file must not wait: call nothing outside a function."
        }
    return said | {
        "mistake": "not every rank makes the same calls" if state else "",
        "hint": exercise.hang_hint,
    }


def _compared(exercise: Exercise, gathered: Gathered) -> tuple[Result, ...]:
    inputs = gathered.inputs
    outputs: PerRank = [one.outputs for one in gathered.observations]
    try:
        outputs = exercise.derive(inputs, outputs)
    except _UNFIT:  # what a rank has counted itself is no evidence
        outputs = [{} for _ in outputs]
    passed: set[str] = set()
    results: list[Result] = []
    for check in exercise.checks:
        if not passed.issuperset(check.depends):
            results.append(_result(check, "blocked"))
        elif not all_close(outputs, check.expected(inputs), check.tolerance):
            results.append(_wrong(exercise, check, inputs, outputs))
        elif silent := _spared(exercise, gathered) or _silent(exercise, gathered):
            results.append(_result(check, "fail", **silent))
        else:
            passed.add(check.id)
            results.append(_result(check, "pass"))
    return tuple(results)


def _wrong(exercise: Exercise, check: Check, inputs: PerRank, outputs: PerRank) -> Result:
    mistake = next((m for m in exercise.mistakes if _is(m, inputs, outputs)), None)
    head, rows = table_of(check, inputs, outputs)
    return _result(
        check,
        "fail",
        message="What each rank had, what it has now, and what one process with all the data gets:",
        mistake=mistake.name if mistake else "",
        hint=mistake.hint
        if mistake
        else "Compare the columns: what would turn one into the other?",
        head=head,
        rows=rows,
    )


def _is(mistake: Mistake, inputs: PerRank, outputs: PerRank) -> bool:
    with suppress(*_UNFIT):
        return mistake.recognise(inputs, outputs)
    return False


def _spared(exercise: Exercise, gathered: Gathered) -> dict[str, Any]:
    """What to say of right values after a run in which nothing was killed, though it should be."""
    if gathered.attempt == exercise.restarts:
        return {}
    return {
        "message": f"The values are right, but the ranks were to be killed {exercise.restarts} "
        f"times and started again, and that happened {gathered.attempt} times: the step or the "
        "save in which a kill comes never came, or something in your file kept it off.",
        "mistake": "not killed",
        "hint": "Save after every step, let the kill come, and go on from the checkpoint.",
    }


def _silent(exercise: Exercise, gathered: Gathered) -> dict[str, Any]:
    """What to say of right values without the collectives that they need; {} if all were seen."""
    if exercise.calls is None:
        return {}
    fewest, seen = exercise.calls(gathered.inputs), gathered.observations
    if all(one.calls is None or one.calls >= fewest for one in seen):
        return {}
    return {
        "message": f"The values are right, but a rank that communicates starts at least {fewest} "
        "collectives (or sends and receives) here, and not every rank did:",
        "mistake": SILENT,
        "hint": HINTS[SILENT],
        "head": ("rank", "collectives started", ""),
        "rows": tuple(
            (str(one.rank), str(one.calls), "✓" if (one.calls or 0) >= fewest else "✗")
            for one in seen
        ),
    }


def table_of(
    check: Check, inputs: PerRank, outputs: PerRank
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """One element of every rank, at the place of the first divergence."""
    had, got = check.shown
    wanted, tolerance = check.expected(inputs), check.tolerance
    if all_close([{got: o[got]} if got in o else {} for o in outputs],
                 [{got: w[got]} for w in wanted], tolerance):  # fmt: skip
        had = got = next(
            name for mine, want in zip(outputs, wanted, strict=True) for name in want
            if name not in mine or not close(mine[name], want[name], tolerance)
        )  # fmt: skip
    at = _first_difference([(o.get(got), w[got]) for o, w in zip(outputs, wanted, strict=True)])
    rows = []
    for rank, (mine, now, want) in enumerate(zip(inputs, outputs, wanted, strict=True)):
        right = got in now and close(now[got], want[got], tolerance)
        own = mine.get(had)
        before = _cell(own, at if own is None or own.ndim else ())
        cells = before, _cell(now.get(got), at), _cell(want[got], at)
        rows.append((str(rank), *cells, "✓" if right else "✗"))
    heads = f"had {_column(had, inputs, at)}", f"has {_column(got, wanted, at)}"
    return ("rank", *heads, "expected", ""), tuple(rows)


def _column(name: str, arrays: PerRank, at: tuple[int, ...]) -> str:
    """ "gradient[0, 2] (in uneven)" for the element of "uneven/gradient" that a table shows."""
    part, _, word = name.rpartition("/")
    whole = not at or all(one[name].ndim != len(at) for one in arrays if name in one)
    place = "" if whole else f"[{', '.join(map(str, at))}]"
    return f"{word}{place}{f' (in {part})' if part else ''}"


def _first_difference(pairs: Sequence[tuple[Array | None, Array]]) -> tuple[int, ...]:
    for got, want in pairs:
        if got is not None and got.shape == want.shape and got.size:
            far = np.abs(got.astype(np.float64) - want.astype(np.float64))
            worst = int(np.argmax(np.where(np.isnan(far), np.inf, far)))
            if not far.flat[worst] <= 1e-5:
                return tuple(int(i) for i in np.unravel_index(worst, want.shape))
    return (0,) * pairs[0][1].ndim


def _cell(array: Array | None, at: tuple[int, ...]) -> str:
    if array is None:
        return "nothing"
    if array.ndim and (
        array.ndim != len(at) or any(i >= n for i, n in zip(at, array.shape, strict=True))
    ):
        return "of shape " + "×".join(map(str, array.shape))
    number = array[at] if array.ndim else array[()]
    whole = np.issubdtype(array.dtype, np.integer) or array.dtype == np.bool_
    said = str(int(number)) if whole else f"{float(number):.6g}"
    return said if array.ndim == len(at) or not at else f"{said}, a single number"


def _result(check: Check, status: str, **more: object) -> Result:
    return Result(check.id, check.title, status, check.points, why=check.why, **more)  # type: ignore[arg-type]


def _first(exercise: Exercise, status: str, **more: object) -> tuple[Result, ...]:
    """The first check has this status, and those after it were not reached."""
    first, *rest = exercise.checks
    return (_result(first, status, **more), *(_result(check, "blocked") for check in rest))


def _all(exercise: Exercise, status: str, *, message: str) -> tuple[Result, ...]:
    return tuple(
        Result(check.id, check.title, status, check.points, message=message)
        for check in exercise.checks
    )


def _verdict(
    exercise: Exercise, path: Path, results: tuple[Result, ...], folder: Path | None = None
) -> Verdict:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = shlex.join([*words, f"--nproc-per-node={exercise.ranks}", str(path)])
    return Verdict(
        exercise.name, exercise.title, results, command, str(path), str(folder) if folder else ""
    )
