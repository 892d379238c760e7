"""ex03: a loss for shares of unequal size that DDP's average turns into the global mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.agreed import MESSAGE, ROUNDS
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tensors, Tiers, all_close, known

FEATURES = 4
CASES = ("uneven", "empty")  # in the second, one rank has no samples


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """The model is the same on all ranks, as after a DDP constructor; samples differ."""
    weight = {"weight": random.normal(size=FEATURES).astype(np.float32)}
    return [
        weight
        | {"rounds/count": random.integers(1, 6, size=ROUNDS)}
        | {
            f"{case}/{name}": random.normal(size=shape).astype(np.float32)
            for case in CASES
            for name, shape in _shapes(_count(case, rank)).items()
        }
        for rank in range(ranks)
    ]


def _shapes(count: int) -> dict[str, tuple[int, ...]]:
    return {"x": (count, FEATURES), "y": (count,)}


def _count(case: str, rank: int) -> int:
    return 0 if case == "empty" and rank == 1 else (2, 5, 1, 3)[rank % 4]


def _sum(mine: Tensors, case: str) -> Array:
    """One rank's sum of gradients: of (x·w - y)² / 2, that is (x·w - y) x."""
    x, y, weight = (mine[name].astype(np.float64) for name in (f"{case}/x", f"{case}/y", "weight"))
    total: Array = (x @ weight - y) @ x
    return total


Factor = Callable[[int, list[int]], float]  # (rank, how many samples each rank has) → its weight


def _gradient(inputs: PerRank, case: str, factor: Factor) -> PerRank:
    """What DDP makes of losses.sum() * factor: the mean over ranks, on all of them."""
    counts = [len(mine[f"{case}/x"]) for mine in inputs]
    parts = [_sum(mine, case) * factor(rank, counts) for rank, mine in enumerate(inputs)]
    mean: Array = np.sum(parts, axis=0) / len(inputs)
    return [{f"{case}/gradient": mean} for _ in inputs]


def _right(rank: int, counts: list[int]) -> float:
    return len(counts) / sum(counts)


def _uneven(inputs: PerRank) -> PerRank:
    counts = np.stack([mine["rounds/count"] for mine in inputs])  # (ranks, rounds)
    values = counts * len(inputs) / counts.sum(axis=0)
    return [
        one | {"rounds/loss": mine}
        for one, mine in zip(_gradient(inputs, "uneven", _right), values, strict=True)
    ]


def _empty(inputs: PerRank) -> PerRank:
    finite = {"empty/finite": np.array(1)}  # the returned loss: neither NaN nor infinite
    return [mine | finite for mine in _gradient(inputs, "empty", _right)]


def _is(factor: Factor) -> Callable[[PerRank, PerRank], bool]:
    """Recognises a factor, where all ranks have samples."""
    return lambda inputs, outputs: all_close(outputs, _gradient(inputs, "uneven", factor))


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not any(outputs)


def _not_a_number(inputs: PerRank, outputs: PerRank) -> bool:
    return any("empty/finite" in mine and not mine["empty/finite"].all() for mine in outputs)


EXERCISE = Exercise(
    name="ex03",
    stem="ex03_weight_batches",
    function="weighted_loss",
    title="Weight uneven batches",
    lesson="03",
    difficulty="medium",
    minutes=10,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: ROUNDS * MESSAGE * 2 * (ranks - 1),
    checks=(
        Check(
            id="uneven",
            title="the gradient is that of the mean over all samples",
            why="a sample must not count for more because it lies on a rank that has few of them",
            points=3,
            expected=_uneven,
            shown=("uneven/x", "uneven/gradient"),
        ),
        Check(
            id="empty",
            title="the same holds when one rank has no samples, and its loss is not NaN",
            why="the last samples of an epoch need not reach all ranks, and one NaN turns whatever "
            "is averaged with it into NaN",
            points=1,
            expected=_empty,
            shown=("empty/x", "empty/gradient"),
            depends=("uneven",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "no loss returned": _nothing_returned,
            "mean of the means": _is(lambda rank, counts: 1 / counts[rank]),
            "world size forgotten": _is(lambda rank, counts: 1 / sum(counts)),
            "sum instead of mean": _is(lambda rank, counts: 1.0),
            "sum over all samples": _is(lambda rank, counts: float(len(counts))),
            "own count times the world size": _is(lambda rank, counts: len(counts) / counts[rank]),
            "rank 0's count for all": _is(lambda rank, counts: 1 / counts[0]),
            "the largest count for all": _is(lambda rank, counts: 1 / max(counts)),
            "mean of no samples": _not_a_number,
        },
    ),
    errors={
        "does not require grad": "The loss that you returned has lost its graph: .item(), float() "
        "and detach() cut it off. Communicate the count, which needs no gradient.",
    },
    hang_hint="A collective returns only when every rank has called it, the same one and as often: "
    "a rank without samples, too. Is there an `if` around yours?",
    calls=lambda inputs: 2 + len(inputs[0]["rounds/count"]),
    tiers=Tiers(
        question="DDP divides the sum over ranks by their number. By what should the sum of all "
        "losses be divided, and what undoes DDP's division?",
        api="losses.sum(), which is 0 for no samples; dist.all_reduce(tensor); "
        "dist.get_world_size().",
        skeleton="samples = torch.tensor(…, device=losses.device)\n"
        "dist.…                                 # now of all ranks\n"
        "return losses.sum() * … / …",
    ),
)
