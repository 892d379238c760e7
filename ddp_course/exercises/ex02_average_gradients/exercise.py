"""ex02: average the gradients of a model over all ranks, by hand."""

from __future__ import annotations

import numpy as np

from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import (
    Check,
    Exercise,
    PerRank,
    Tiers,
    all_close,
    all_reduced,
    close,
    known,
)

SHAPES = {
    "0.weight": (3, 4), "0.bias": (3,), "1.weight": (2, 3), "1.bias": (2,), "2.weight": (128, 128)
}  # fmt: skip
FROZEN = "1.bias"  # has no gradient
TRAINED = [name for name in SHAPES if name != FROZEN]


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Weights are the same on all ranks, as after a DDP constructor; gradients differ."""
    weights = {
        f"weight/{name}": random.normal(size=shape).astype(np.float32)
        for name, shape in SHAPES.items()
    }
    return [
        weights
        | {f"grad/{name}": random.normal(size=SHAPES[name]).astype(np.float32) for name in TRAINED}
        for _ in range(ranks)
    ]


def _sums(inputs: PerRank) -> dict[str, Array]:
    return {
        f"grad/{name}": np.sum([mine[f"grad/{name}"].astype(np.float64) for mine in inputs], axis=0)
        for name in TRAINED
    }


def _mean(inputs: PerRank) -> PerRank:
    mean = {name: total / len(inputs) for name, total in _sums(inputs).items()}
    return [mean for _ in inputs]


def _weights(inputs: PerRank) -> PerRank:
    return [{f"weight/{name}": mine[f"weight/{name}"] for name in SHAPES} for mine in inputs]


def _left_alone(inputs: PerRank) -> PerRank:
    return [mine | {"frozen/without gradient": np.array(1)} for mine in _weights(inputs)]


def _own(inputs: PerRank, factor: float = 1.0) -> PerRank:
    return [{f"grad/{name}": mine[f"grad/{name}"] * factor for name in TRAINED} for mine in inputs]


def _scaled_sum(inputs: PerRank, factor: float) -> PerRank:
    return [{name: total * factor for name, total in _sums(inputs).items()} for _ in inputs]


def _weights_changed(inputs: PerRank, outputs: PerRank) -> bool:
    return not all_close(outputs, _weights(inputs))


def _frozen_has_one(inputs: PerRank, outputs: PerRank) -> bool:
    return not all_close(outputs, [{"frozen/without gradient": np.array(1)} for _ in inputs])


def _multiplied(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _scaled_sum(inputs, len(inputs)), tolerance=1e-4)


def _divisor_of_its_own(inputs: PerRank, outputs: PerRank) -> bool:
    """The same sums everywhere, divided by another number on each rank."""
    name = "grad/0.weight"
    total = _sums(inputs)[name]
    factors = [float(np.vdot(mine[name], total) / np.vdot(total, total)) for mine in outputs]
    scaled = [{name: total * factor} for factor in factors]
    return len(set(np.round(factors, 4))) == len(inputs) and all_close(outputs, scaled)


def _sum(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _scaled_sum(inputs, 1.0))


def _divided_by_a_fixed_number(inputs: PerRank, outputs: PerRank) -> bool:
    others = [number for number in (2, 3) if number != len(inputs)]
    return any(all_close(outputs, _scaled_sum(inputs, 1 / number)) for number in others)


def _divided_twice(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _scaled_sum(inputs, 1 / len(inputs) ** 2))


def _divided_only(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _own(inputs, 1 / len(inputs)))


def _unchanged(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _own(inputs))


def _rank_0_broadcast(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, [_own(inputs)[0] for _ in inputs])


def _one_rank_only(inputs: PerRank, outputs: PerRank) -> bool:
    right = [
        all_close([mine], [wanted]) for mine, wanted in zip(outputs, _mean(inputs), strict=True)
    ]
    return sum(right) == 1


def _some_parameters_only(inputs: PerRank, outputs: PerRank) -> bool:
    right = [
        all(
            close(mine[f"grad/{name}"], wanted[f"grad/{name}"])
            for mine, wanted in zip(outputs, _mean(inputs), strict=True)
        )
        for name in TRAINED
    ]
    return any(right) and not all(right)


EXERCISE = Exercise(
    name="ex02",
    stem="ex02_average_gradients",
    function="average_gradients",
    title="Average the gradients by hand",
    lesson="02",
    difficulty="easy",
    minutes=10,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: all_reduced(128 * 128, ranks),
    checks=(
        Check(
            id="mean",
            title="on every rank, each gradient is the mean over all ranks",
            why="equal gradients and equal weights give equal steps: that is what keeps the ranks' "
            "models one model",
            points=3,
            expected=_mean,
            shown=("grad/0.weight", "grad/0.weight"),
        ),
        Check(
            id="weights",
            title="the weights are left alone, and so is the frozen parameter",
            why="moving the weights is the optimizer's work; this function prepares its step",
            points=1,
            expected=_left_alone,
            shown=("weight/0.weight", "weight/0.weight"),
            depends=("mean",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "weights changed": _weights_changed,
            "sum instead of mean": _sum,
            "multiplied instead of divided": _multiplied,
            "divided by a number of its own on each rank": _divisor_of_its_own,
            "divided by a fixed number": _divided_by_a_fixed_number,
            "divided twice": _divided_twice,
            "divided but not reduced": _divided_only,
            "gradients unchanged": _unchanged,
            "rank 0's gradients everywhere": _rank_0_broadcast,
            "one rank has the mean": _one_rank_only,
            "some parameters only": _some_parameters_only,
            "a gradient for the frozen parameter": _frozen_has_one,
        },
    ),
    errors={
        "NoneType": "One parameter is frozen, so its .grad is None: skip it. It is None on every "
        "rank, so all ranks still make the same calls.",
    },
    hang_hint="A collective returns only when every rank has called it, the same one and as often. "
    "Is there an `if rank == …` around yours?",
    calls=lambda inputs: 1,
    tiers=Tiers(
        question="A mean is a sum and a division. Which of the two needs the other ranks, and for "
        "which tensors?",
        api="model.parameters(); parameter.grad, which may be None; dist.all_reduce(tensor); "
        "dist.get_world_size().",
        skeleton="for parameter in …:\n"
        "    if …:                              # it has a gradient\n"
        "        dist.…                         # the sum over ranks\n"
        "        parameter.grad …               # the mean",
    ),
)
