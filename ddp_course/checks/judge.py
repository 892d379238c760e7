"""From a learner's file to a verdict: look at it, run it once as real ranks, judge the evidence."""

from __future__ import annotations

import ast
import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from ddp_course.checks import (
    ex00_sum_over_ranks,
    ex01_wrap_for_any_device,
    ex02_average_gradients,
    ex03_weight_batches,
    ex03b_stop_together,
    ex04_resume_exactly,
    ex05_hand_over,
    ex06_survive_kill,
    ex07_accumulate_without_syncing,
)
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, all_close, close
from ddp_course.checks.supervisor import Gathered, Observation, Supervisor
from ddp_course.checks.verdict import Result, Verdict
from ddp_course.errors import BadArgument
from ddp_course.launcher import launch
from ddp_course.views import panel

EXERCISES = {
    one.name: one
    for one in (
        ex00_sum_over_ranks.EXERCISE,
        ex01_wrap_for_any_device.EXERCISE,
        ex02_average_gradients.EXERCISE,
        ex03_weight_batches.EXERCISE,
        ex03b_stop_together.EXERCISE,
        ex04_resume_exactly.EXERCISE,
        ex05_hand_over.EXERCISE,
        ex06_survive_kill.EXERCISE,
        ex07_accumulate_without_syncing.EXERCISE,
    )
}

ROOT = Path(__file__).parent.parent.parent
DRIVER = Path(__file__).with_name("driver.py")
PATIENCE_S = 10.0  # for a function that works in milliseconds; long enough for a busy machine
_LIMIT_S = 90.0


def judge(name: str) -> Verdict:
    """The verdict on exercise `name`, from one run of the learner's file."""
    if name not in EXERCISES:
        raise BadArgument(
            f"There is no exercise {name!r}.",
            action="choose one of " + ", ".join(sorted(EXERCISES)),
        )
    exercise = EXERCISES[name]
    path = exercise_file(exercise)
    reason = not_yet(path, exercise.function)
    if reason:
        return _verdict(exercise, path, _all(exercise, "ungradable", message=reason))
    for _ in range(2):  # what is our fault is tried once more
        gathered, folder = _run(exercise, path)
        results = assess(exercise, gathered)
        if results[0].status != "infra":
            break
    verdict = _verdict(exercise, path, results, folder)
    with suppress(OSError):
        (folder / "verdict.json").write_text(json.dumps(verdict.as_dict(), indent=1) + "\n")
    return verdict


def exercise_file(exercise: Exercise) -> Path:
    """Where the learner's answer is: `exercises/`, or what DDP_COURSE_EXERCISES names."""
    return ROOT / os.environ.get("DDP_COURSE_EXERCISES", "exercises") / f"{exercise.stem}.py"


def not_yet(path: Path, function: str) -> str:
    """Why there is nothing to run yet, or "": file missing, not Python, or untouched."""
    try:
        tree = ast.parse(path.read_bytes(), filename=path.name)
    except OSError:
        return f"{path} is not there. Restore it with: git checkout -- {path}"
    except (SyntaxError, ValueError) as error:
        return f"Python cannot read the file: {error}. Repair that first."
    found = next(
        (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function), None
    )
    if found is None:
        return f"The file no longer defines {function}(). Bring the name back: the check calls it."
    if all(_is_placeholder(statement) for statement in found.body):
        return f"{function}() is still to be written: open {path.name} and replace the TODO."
    return ""


def _is_placeholder(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(statement, ast.Pass) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    )


def _run(exercise: Exercise, path: Path) -> tuple[Gathered, Path]:
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
                exercise=exercise.name,
            )
        try:
            gathered = supervisor.gather(run, patience_s=PATIENCE_S)
            if not all(one.answered for one in gathered.observations):
                run.stop()
        except BaseException:
            run.stop()
            raise
        run.wait()
    return gathered, run.folder


def assess(exercise: Exercise, gathered: Gathered) -> tuple[Result, ...]:
    """Evidence against the oracle. Points come from the manifest and only with evidence."""
    seen = gathered.observations
    if not gathered.began:
        return _all(exercise, "infra", message="The ranks did not start. Ask doctor().")
    if gathered.stopped:
        return _first(exercise, "error", message=gathered.stopped)
    broken = sorted(
        (one for one in seen if one.state in ("raised", "gone", "malformed")), key=_place
    )
    if broken:
        return _failed_rank(exercise, seen, broken[0])
    if not all(one.state == "returned" for one in seen):
        return _first(exercise, "timeout", **_hang(exercise, gathered))
    return _compared(exercise, gathered)


def _place(one: Observation) -> int:
    return one.place


def _failed_rank(
    exercise: Exercise, seen: list[Observation], first: Observation
) -> tuple[Result, ...]:
    if first.error.startswith("NotImplementedError"):
        return _all(exercise, "ungradable", message=f"{first.error} (raised by rank {first.rank})")
    said = {
        "raised": f"Rank {first.rank} raised first: {first.error}",
        "gone": f"Rank {first.rank} left without an answer (os._exit, or a crash).",
        "malformed": f"What rank {first.rank} returned cannot be judged: {first.error}.",
    }[first.state]
    known = (hint for fragment, hint in exercise.errors.items() if fragment in first.error)
    return _first(
        exercise,
        "error",
        message=said,
        hint=next(known, ""),
        traceback=first.traceback,
        head=("rank", "what it did"),
        rows=tuple((str(one.rank), _did(one)) for one in seen),
    )


def _did(one: Observation) -> str:
    words = {
        "absent": "did not start",
        "here": "had not begun",
        "importing": "is still importing your file",
        "loading": "was ready to begin",
        "computing": "is still inside your function",
        "returned": "returned",
        "gone": "left without an answer",
        "malformed": "answered what cannot be judged",
    }
    return words.get(one.state) or f"raised {one.error.splitlines()[0][:80]}"


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
    names = f"rank {waiting[0]}" if len(waiting) == 1 else f"ranks {', '.join(waiting)}"
    return {
        "message": f"After {gathered.waited_s:.0f} s {names} "
        f"{what.get(state, 'had not come back after the restart')}.",
        "mistake": "not every rank makes the same calls" if state == "computing" else "",
        "hint": exercise.hang_hint,
        "head": ("rank", "what it did"),
        "rows": tuple((str(one.rank), _did(one)) for one in seen),
    }


def _compared(exercise: Exercise, gathered: Gathered) -> tuple[Result, ...]:
    inputs, outputs = gathered.inputs, [one.outputs for one in gathered.observations]
    passed: set[str] = set()
    results: list[Result] = []
    for check in exercise.checks:
        if not passed.issuperset(check.depends):
            results.append(_result(check, "blocked"))
            continue
        if all_close(outputs, check.expected(inputs), exercise.tolerance):
            passed.add(check.id)
            results.append(_result(check, "pass"))
            continue
        mistake = next((m for m in exercise.mistakes if m.recognise(inputs, outputs)), None)
        head, rows = _table(check, gathered, exercise.tolerance)
        results.append(
            _result(
                check,
                "fail",
                message="What each rank had, what it has now, and what one process with all the "
                "data gets:",
                mistake=mistake.name if mistake else "",
                hint=mistake.hint
                if mistake
                else "Compare the columns: what would turn one into the other?",
                head=head,
                rows=rows,
            )
        )
    return tuple(results)


def _table(
    check: Check, gathered: Gathered, tolerance: float
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """One element of every rank, at the place of the first divergence."""
    had, got = check.shown
    wanted = check.expected(gathered.inputs)
    outputs = [one.outputs for one in gathered.observations]
    if all_close([{got: o[got]} if got in o else {} for o in outputs],
                 [{got: w[got]} for w in wanted], tolerance):  # fmt: skip
        had = got = next(
            name for mine, want in zip(outputs, wanted, strict=True) for name in want
            if name not in mine or not close(mine[name], want[name], tolerance)
        )  # fmt: skip
    at = _first_difference([(o.get(got), w[got]) for o, w in zip(outputs, wanted, strict=True)])
    place = f"[{', '.join(map(str, at))}]" if at else ""
    rows = []
    for rank, (mine, now, want) in enumerate(zip(gathered.inputs, outputs, wanted, strict=True)):
        right = got in now and close(now[got], want[got], tolerance)
        cells = (_cell(mine.get(had), at), _cell(now.get(got), at), _cell(want[got], at))
        rows.append((str(rank), *cells, "✓" if right else "✗"))
    return ("rank", f"had {had}{place}", f"has {got}{place}", "expected", ""), tuple(rows)


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
    if array.ndim != len(at) or any(i >= n for i, n in zip(at, array.shape, strict=True)):
        return f"shape {array.shape}"
    return f"{float(array[at]):+.4f}"


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
