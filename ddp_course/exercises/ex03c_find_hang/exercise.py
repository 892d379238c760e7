"""ex03c: a training loop that hangs when one rank's batch is empty; the learner repairs it.

As given, the rank without samples leaves out a backward, and with it an all-reduce. From then on
the ranks' gradients are those of different steps, and the last all-reduce of the others never ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.agreed import BALLAST
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

STEPS, SIZE, FEATURES = 5, 3, 3
LEARNING_RATE = 0.1
CASES = ("hole", "full")  # in the first, one batch of one rank is empty

Gradients = list[Array]  # of a step: the sum over each rank's samples
Rule = Callable[[Gradients, list[int]], Array | None]  # (sums, counts) → the step; None ends it


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """The hole comes after two whole steps, as DDP arranges its buckets anew after the first, and
    before the last: otherwise to stop there would be to leave out that step."""
    weight = random.normal(size=(1, FEATURES)).astype(np.float32)
    rank, step = int(random.integers(0, ranks)), int(random.integers(2, STEPS - 1))
    counts = np.full((ranks, STEPS), SIZE, dtype=np.int64)
    counts[rank, step] = 0
    return [
        {
            "weight": weight,
            "hole/count": counts[mine],
            "full/count": np.full(STEPS, SIZE, dtype=np.int64),
            **{
                f"{case}/{name}": random.normal(size=(STEPS, SIZE, width)).astype(np.float32)
                for case in CASES
                for name, width in (("x", FEATURES), ("y", 1))
            },
        }
        for mine in range(ranks)
    ]


def _trained(inputs: PerRank, case: str, rule: Rule) -> tuple[Array, Array]:
    """The weight after all steps and each rank's losses added up, in one process and float64.

    The loss is the mean squared error of x @ weight.T, so a sample's gradient is 2 (x·w - y) x.
    """
    weight = inputs[0]["weight"].astype(np.float64)
    losses = np.zeros(len(inputs))
    for step in range(STEPS):
        sums, counts = [], []
        for rank, mine in enumerate(inputs):
            count = int(mine[f"{case}/count"][step])
            x, y = (mine[f"{case}/{name}"][step, :count].astype(np.float64) for name in "xy")
            error = x @ weight.T - y
            losses[rank] += (error**2).sum() / max(1, count)
            sums.append(2 * error.T @ x)
            counts.append(count)
        change = rule(sums, counts)
        if change is None:
            break
        weight = weight - LEARNING_RATE * change
    return weight, losses


def _means(sums: Gradients, counts: list[int]) -> Gradients:
    return [total / max(1, count) for total, count in zip(sums, counts, strict=True)]


def _right(sums: Gradients, counts: list[int]) -> Array:
    mean: Array = np.mean(_means(sums, counts), axis=0)
    return mean


def _nothing(sums: Gradients) -> Array:
    return np.zeros_like(sums[0])


def _skipped_by_all(sums: Gradients, counts: list[int]) -> Array:
    return _right(sums, counts) if all(counts) else _nothing(sums)


def _stopped(sums: Gradients, counts: list[int]) -> Array | None:
    return _right(sums, counts) if all(counts) else None


def _by_those_with_samples(sums: Gradients, counts: list[int]) -> Array:
    total: Array = np.sum(_means(sums, counts), axis=0)
    return total / max(1, sum(count > 0 for count in counts))


def _sum(sums: Gradients, counts: list[int]) -> Array:
    mean: Array = np.mean(sums, axis=0)
    return mean


def _alone(rank: int) -> Rule:
    return lambda sums, counts: _means(sums, counts)[rank]


def _only(case: str) -> Callable[[PerRank], PerRank]:
    def expected(inputs: PerRank) -> PerRank:
        weight, losses = _trained(inputs, case, _right)
        return [{f"{case}/weight": weight, f"{case}/loss": np.array(loss)} for loss in losses]

    return expected


def _is(rule: Rule) -> Callable[[PerRank, PerRank], bool]:
    return lambda inputs, outputs: all_close(
        outputs, [{"hole/weight": _trained(inputs, "hole", rule)[0]} for _ in inputs]
    )


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return _is(_right)(inputs, outputs) and not all("hole/loss" in mine for mine in outputs)


def _not_a_number(inputs: PerRank, outputs: PerRank) -> bool:
    return any("hole/loss" in mine and not np.isfinite(mine["hole/loss"]) for mine in outputs)


def _all_alone(inputs: PerRank, outputs: PerRank) -> bool:
    ranks = range(len(inputs))
    return all_close(
        outputs, [{"hole/weight": _trained(inputs, "hole", _alone(rank))[0]} for rank in ranks]
    )


def _never_emptied(inputs: PerRank, outputs: PerRank) -> bool:
    """Each step takes all gradients so far."""
    steps: Gradients = []

    def rule(sums: Gradients, counts: list[int]) -> Array:
        steps.append(_right(sums, counts))
        total: Array = np.sum(steps, axis=0)
        return total

    weight, _ = _trained(inputs, "hole", rule)
    return all_close(outputs, [{"hole/weight": weight} for _ in inputs])


def _other_loss(inputs: PerRank, outputs: PerRank) -> bool:
    return _is(_right)(inputs, outputs) and not all_close(
        outputs, [{"hole/loss": np.array(one)} for one in _trained(inputs, "hole", _right)[1]]
    )


def _apart(inputs: PerRank, outputs: PerRank) -> bool:
    return not all_close(outputs, [{"hole/weight": outputs[0]["hole/weight"]} for _ in outputs])


EXERCISE = Exercise(
    name="ex03c",
    stem="ex03c_find_hang",
    function="train",
    title="Find the hang",
    lesson="03",
    difficulty="medium",
    minutes=15,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: len(CASES) * STEPS * all_reduced(BALLAST, ranks),
    checks=(
        Check(
            id="hole",
            title="when one rank's batch is empty, all finish, with the right weights and losses",
            why="the last batches of an epoch need not reach every rank, and a hang says nothing",
            points=3,
            expected=_only("hole"),
            shown=("weight", "hole/weight"),
        ),
        Check(
            id="full",
            title="when none is empty, the training is what it was",
            why="a repair must not change what already worked",
            points=1,
            expected=_only("full"),
            shown=("weight", "full/weight"),
            depends=("hole",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "mean of no samples": _not_a_number,
            "no loss returned": _nothing_returned,
            "the step left out on all ranks": _is(_skipped_by_all),
            "stops at the first empty batch": _is(_stopped),
            "divided by the ranks that have samples": _is(_by_those_with_samples),
            "each rank trains alone": _all_alone,
            "nothing trained": _is(lambda sums, counts: _nothing(sums)),
            "sum instead of mean": _is(_sum),
            "gradients not emptied": _never_emptied,
            "another loss than the sum": _other_loss,
            "the ranks have drifted apart": _apart,
        },
    ),
    errors={
        "ZeroDivisionError": "The empty batch has length 0. max(1, len(x)) is a number that you "
        "can divide by, and the sum is 0 anyway.",
        "does not require grad": "The loss of a rank without samples must come from the model as "
        "well: a plain zero has no graph, and its backward makes no all-reduce.",
    },
    hang_hint="The ranks have not made equally many calls: backward() makes DDP's all-reduce, so "
    "no rank may leave it out. Which line lets one rank skip it?",
    calls=lambda inputs: len(CASES) * STEPS,
    given='raise NotImplementedError("train is yours to repair")  # without this line it may hang\n'
    "total = 0.0\n"
    "for x, y in batches:\n"
    "    if len(x) == 0:\n"
    "        continue  # the mean of no samples is not a number\n"
    "    optimizer.zero_grad()\n"
    "    loss = nn.functional.mse_loss(model(x), y)\n"
    "    loss.backward()\n"
    "    optimizer.step()\n"
    "    total += loss.item()\n"
    "return total\n",
    tiers=Tiers(
        question="Count the all-reduces that each rank makes in an epoch in which one of its "
        "batches is empty. Who waits for whom?",
        api="DDP communicates in backward(); tensor.sum() of no elements is 0 and has a graph; "
        "max(1, len(x)).",
        skeleton="total = 0.0\n"
        "for x, y in batches:\n"
        "    optimizer.zero_grad()\n"
        "    errors = (model(x) - y) ** 2       # of an empty batch: empty\n"
        "    loss = …                           # a number, on every rank\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    total += loss.item()\n"
        "return total",
    ),
)
