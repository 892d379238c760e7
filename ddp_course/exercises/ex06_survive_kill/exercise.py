"""ex06: a training loop that goes on after a kill, judged by a run whose ranks are killed.

The driver kills rank 1 when three steps are done and saved, and after the restart rank 0 in the
middle of the save of the fifth. So the ranks start three times, and the last start finds four steps
done: STARTS has the step at which each start of a right answer begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddp_course.checks.agreed import SAVED_BALLAST
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import (
    Check,
    Exercise,
    PerRank,
    Tiers,
    all_close,
    all_reduced,
    known,
)

STEPS, SAMPLES, FEATURES = 8, 4, 3
LEARNING_RATE, MOMENTUM = 0.1, 0.9
STARTS = (0, 3, 5)  # 1 is the only number of steps between saves that leads to these
PARTS = range(3), range(3, 5), range(5, STEPS)  # what each of them adds


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """The weights are the same on all ranks, the data are not."""
    weight = random.normal(size=(1, FEATURES)).astype(np.float32)
    return [
        {
            "weight": weight,
            "x": random.normal(size=(STEPS, SAMPLES, FEATURES)).astype(np.float32),
            "y": random.normal(size=(STEPS, SAMPLES, 1)).astype(np.float32),
            "steps": np.array(STEPS),
        }
        for _ in range(ranks)
    ]


def _trained(inputs: PerRank, *starts: Sequence[int], forget: str = "") -> Array:
    """The weights after the batches of each start: one process, all data, float64.

    forget  "optimizer" or "model": which of the two begins anew with every start.
    The rule is that of torch.optim.SGD: v = 0.9 v + gradient, weight -= 0.1 v.
    """
    x = np.concatenate([mine["x"] for mine in inputs], axis=1).astype(np.float64)
    y = np.concatenate([mine["y"] for mine in inputs], axis=1).astype(np.float64)
    weight = first = inputs[0]["weight"].astype(np.float64)
    velocity = np.zeros_like(weight)
    for batches in starts:
        weight = first if forget == "model" else weight
        velocity = np.zeros_like(weight) if forget == "optimizer" else velocity
        for step in batches:
            error = x[step] @ weight.T - y[step]
            velocity = MOMENTUM * velocity + 2 * error.T @ x[step] / len(error)
            weight = weight - LEARNING_RATE * velocity
    result: Array = weight
    return result


def _everywhere(inputs: PerRank, weight: Array) -> PerRank:
    return [{"weight": weight} for _ in inputs]


def _uninterrupted(inputs: PerRank) -> PerRank:
    return _everywhere(inputs, _trained(inputs, range(STEPS)))


def _rest(inputs: PerRank) -> PerRank:
    return [{"forwards": np.array(STEPS - STARTS[-1])} for _ in inputs]


def _one_writer(inputs: PerRank) -> PerRank:
    return [{"writes": np.array(int(rank == 0))} for rank in range(len(inputs))]


def _from_zero(inputs: PerRank, outputs: PerRank) -> bool:
    whole = [{"forwards": np.array(STEPS)} for _ in inputs]
    return all_close(outputs, _uninterrupted(inputs)) and all_close(outputs, whole)


def _saved_seldom(inputs: PerRank, outputs: PerRank) -> bool:
    right = all_close(outputs, _uninterrupted(inputs))
    return right and not all_close(outputs, _rest(inputs))


def _optimizer_forgotten(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _everywhere(inputs, _trained(inputs, *PARTS, forget="optimizer")))


def _model_forgotten(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _everywhere(inputs, _trained(inputs, *PARTS, forget="model")))


def _step_forgotten(inputs: PerRank, outputs: PerRank) -> bool:
    _, second, third = STARTS
    batches = [*range(second), *range(third - second), *range(STEPS)]
    return all_close(outputs, _everywhere(inputs, _trained(inputs, batches)))


def _step_repeated(inputs: PerRank, outputs: PerRank) -> bool:
    # Each save says one step less than it holds: 0 1 2 | 2 3 | 3 4 … 7.
    _, second, third = STARTS
    batches = [*range(second), *range(second - 1, third - 1), *range(third - 2, STEPS)]
    return all_close(outputs, _everywhere(inputs, _trained(inputs, batches)))


def _step_skipped(inputs: PerRank, outputs: PerRank) -> bool:
    # Each start takes the number of steps done for the last one: 0 1 2 | 4 5 | 7.
    _, second, third = STARTS
    batches = [*range(second), *range(second + 1, third + 1), *range(third + 2, STEPS)]
    return all_close(outputs, _everywhere(inputs, _trained(inputs, batches)))


def _half_a_file(inputs: PerRank, outputs: PerRank) -> bool:
    return _from_zero(inputs, outputs) and all_close(
        outputs, [{"half": np.array(1)} for _ in inputs]
    )


def _all_write(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, [{"writes": np.array(1)} for _ in inputs])


HALF_A_FILE = (
    "A rank was killed in the middle of a save, and the next start found half a file. Save under "
    "another name, then put it in place: os.replace(draft, path)."
)

EXERCISE = Exercise(
    name="ex06",
    stem="ex06_survive_kill",
    function="train",
    title="Survive a kill",
    lesson="06",
    difficulty="hard",
    minutes=25,
    ranks=3,
    restarts=2,
    draw=_draw,
    # One step less than a right answer: who begins too late has communicated as well.
    moves=lambda ranks: (len(PARTS[-1]) - 1) * all_reduced(SAVED_BALLAST, ranks),
    checks=(
        Check(
            id="rest",
            title="after the last restart, only the steps that were still missing are taken",
            why="on a large job the steps between two failures are hours of many machines",
            points=2,
            expected=_rest,
            most=lambda ranks: STEPS * all_reduced(SAVED_BALLAST, ranks),
            shown=("steps", "forwards"),
        ),
        Check(
            id="weights",
            title="killed twice, every rank ends with the weights of a run that nobody killed",
            why="a restart that changes the result is a different training, not a continuation",
            points=3,
            expected=_uninterrupted,
            shown=("weight", "weight"),
            depends=("rest",),
        ),
        Check(
            id="writer",
            title="rank 0 saves, and no other rank",
            why="the ranks are equal, so one file says it all, and two writers can spoil it",
            points=1,
            expected=_one_writer,
            shown=("steps", "writes"),
            depends=("rest", "weights"),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "half a file passed over": _half_a_file,
            "begins again at step 0": _from_zero,
            "optimizer forgotten": _optimizer_forgotten,
            "step number forgotten": _step_forgotten,
            "one step repeated": _step_repeated,
            "one step left out": _step_skipped,
            "model forgotten": _model_forgotten,
            "every rank writes": _all_write,
            "not saved after every step": _saved_seldom,
        },
    ),
    errors={
        "PytorchStreamReader": HALF_A_FILE,
        "[Errno 22]": HALF_A_FILE,  # the same, where the cut leaves a directory that points outside
        "FileNotFoundError": "In the first start there is no file yet: ask path.exists(). And two "
        "ranks that save cannot share one draft: the first os.replace takes it away.",
    },
    hang_hint="Every rank must take the same steps: the gradients are averaged in each of them. Do "
    "all ranks load the same file, and begin at the same step?",
    calls=lambda inputs: STEPS - STARTS[-1],
    tiers=Tiers(
        question="The ranks may be killed between any two lines. What is in the file then, and "
        "what does the next start do with it?",
        api="path.exists(), torch.load(path), torch.save(dict, file), os.replace(draft, path); "
        "state_dict() and load_state_dict() of model and optimizer.",
        skeleton='done, draft = 0, path.with_suffix(".draft")\n'
        "if …:                                  # an earlier start has saved\n"
        "    saved = torch.load(path)\n"
        "    …                                  # model, optimizer, steps done\n"
        "for step in range(done, len(batches)):\n"
        "    take_step(model, optimizer, *batches[step])\n"
        "    if …:                              # one rank is enough\n"
        "        torch.save({…}, draft)\n"
        "        …                              # put it in place, all at once",
    ),
)
