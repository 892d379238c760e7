"""ex09: a communication hook that averages gradients in bfloat16.

bfloat16 has eight binary digits: gradients of order 1 come back within TOLERANCE of the mean.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.agreed import BALLAST
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tiers, all_close, known

TOLERANCE = 0.06
WHOLE = 4 * BALLAST  # bytes of the gradients in float32


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    drawn = [random.uniform(-2, 2, size=BALLAST).astype(np.float32) for _ in range(ranks)]
    return [{"gradient": gradient} for gradient in drawn]


def _derive(inputs: PerRank, outputs: PerRank) -> PerRank:
    """halved: whether something was summed, and in no more than half the bytes."""
    if not all(outputs):
        return [{} for _ in outputs]
    return [
        mine | {"halved": np.array(int(0 < int(mine["bytes"]) <= WHOLE // 2))} for mine in outputs
    ]


def _sum(inputs: PerRank) -> Array:
    total: Array = np.sum([mine["gradient"].astype(np.float64) for mine in inputs], axis=0)
    return total


def _mean(inputs: PerRank) -> PerRank:
    return [{"mean": _sum(inputs) / len(inputs)} for _ in inputs]


def _halved(inputs: PerRank) -> PerRank:
    return [{"halved": np.array(1)} for _ in inputs]


def _scaled(power: int) -> Callable[[PerRank], PerRank]:
    """The sum divided so many times by the number of ranks."""
    return lambda inputs: [{"mean": _sum(inputs) / len(inputs) ** power} for _ in inputs]


def _own(inputs: PerRank) -> PerRank:
    return [{"mean": mine["gradient"]} for mine in inputs]


def _own_divided(inputs: PerRank) -> PerRank:
    return [{"mean": mine["gradient"] / len(inputs)} for mine in inputs]


def _equals(rule: Callable[[PerRank], PerRank]) -> Callable[[PerRank, PerRank], bool]:
    return lambda inputs, outputs: all_close(outputs, rule(inputs), 4 * TOLERANCE)


def _in_full(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, [{"halved": np.array(0)} for _ in inputs])


EXERCISE = Exercise(
    name="ex09",
    stem="ex09_compress_gradients",
    function="compress",
    title="Compress the gradients",
    lesson="09",
    difficulty="medium",
    minutes=15,
    ranks=3,
    draw=_draw,
    derive=_derive,
    moves=lambda ranks: 2 * (ranks - 1) * WHOLE // 2,
    checks=(
        Check(
            id="mean",
            title="every rank gets the mean gradient, as exactly as bfloat16 can tell it",
            why="a hook takes the place of DDP's all-reduce, and of its division",
            points=2,
            expected=_mean,
            shown=("gradient", "mean"),
            tolerance=TOLERANCE,
        ),
        Check(
            id="bytes",
            title="it travels in half the bytes",
            why="on a slow link the bytes are the step time",
            points=2,
            expected=_halved,
            # The weights once, from DDP's constructor, and the gradients in three quarters.
            most=lambda ranks: (ranks - 1) * (WHOLE + 2 * WHOLE * 3 // 4),
            shown=("gradient", "halved"),
            depends=("mean",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "no future returned": lambda inputs, outputs: not all(outputs),
            "sum instead of mean": _equals(_scaled(0)),
            "divided twice": _equals(_scaled(2)),
            "not reduced": _equals(_own),
            "divided but not reduced": _equals(_own_divided),
            "sent in full": _in_full,
        },
    ),
    errors={
        "has no attribute 'get_future'": "Without async_op=True all_reduce waits and returns None.",
    },
    hang_hint="DDP calls the hook on every rank, once for each bucket. Each call starts the same "
    "all-reduce: is there an `if rank == …` around yours?",
    calls=lambda inputs: 1,
    tiers=Tiers(
        question="What does DDP do with a bucket without a hook, and where do 16 bits come in?",
        api="bucket.buffer(), tensor.bfloat16(), dist.all_reduce(tensor, async_op=True)"
        ".get_future(), future.then(function), done.value()[0], tensor.copy_(other).",
        skeleton="small = …                              # this rank's part, as bfloat16\n"
        "future = dist.all_reduce(…).get_future()\n"
        "return future.then(…)                  # back into the bucket's buffer",
    ),
)
