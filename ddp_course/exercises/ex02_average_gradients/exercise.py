"""ex02: average the gradients of a model over all ranks, by hand."""

from __future__ import annotations

import numpy as np

from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import (
    Check,
    Exercise,
    Mistake,
    PerRank,
    Tiers,
    all_close,
    all_reduced,
    close,
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
    mistakes=(
        Mistake(
            "weights changed",
            "The weights changed. Average parameter.grad, not the parameter: the optimizer turns "
            "equal gradients into equal weights by itself.",
            _weights_changed,
            question="Which line writes into a parameter itself, and whose work is that?",
        ),
        Mistake(
            "sum instead of mean",
            "These are the sums. all_reduce adds up; divide by dist.get_world_size() afterwards, "
            "or the step grows with the number of ranks.",
            _sum,
        ),
        Mistake(
            "multiplied instead of divided",
            "These are the sums times the world size. The mean is the sum divided by it.",
            _multiplied,
        ),
        Mistake(
            "divided by a number of its own on each rank",
            "The ranks hold the same sums, but each divided them by another number. All divide by "
            "dist.get_world_size(); dist.get_rank() is another one on each rank.",
            _divisor_of_its_own,
            question="Which number in your lines is not the same on all ranks?",
        ),
        Mistake(
            "divided by a fixed number",
            "You divided by a number that is not that of the ranks here; next time it may be "
            "another. Ask: dist.get_world_size().",
            _divided_by_a_fixed_number,
            question="What would your line do with another number of ranks?",
        ),
        Mistake(
            "divided twice",
            "Divided by the world size twice. ReduceOp.AVG divides already, and so does a division "
            "before all_reduce.",
            _divided_twice,
            question="How often is each gradient divided, counting what the collective does by "
            "itself?",
        ),
        Mistake(
            "divided but not reduced",
            "Each rank divided its own gradient, but nothing was added up. Which collective sums "
            "over ranks and leaves the result on all of them?",
            _divided_only,
        ),
        Mistake(
            "gradients unchanged",
            "Every rank still has its own gradients. all_reduce works in place: give it "
            "parameter.grad itself, and if you work on a copy, write the result back.",
            _unchanged,
        ),
        Mistake(
            "rank 0's gradients everywhere",
            "Every rank has rank 0's gradients: that is broadcast. The ranks now agree, but all "
            "data except rank 0's was thrown away.",
            _rank_0_broadcast,
        ),
        Mistake(
            "one rank has the mean",
            "Only one rank has the mean: that is reduce, which delivers to one rank. all_reduce "
            "delivers to all.",
            _one_rank_only,
        ),
        Mistake(
            "some parameters only",
            "Some gradients are averaged and others are not. Does your loop reach every parameter, "
            "or does it return after the first?",
            _some_parameters_only,
            question="When your function returns, which parameters has its loop seen?",
        ),
        Mistake(
            "a gradient for the frozen parameter",
            "The frozen parameter had no gradient, and now it has one. An optimizer takes zeros "
            "for a gradient, and moves by momentum or weight decay: leave None as it is.",
            _frozen_has_one,
            question="What does an optimizer do with a gradient of zeros, and what with None?",
        ),
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
