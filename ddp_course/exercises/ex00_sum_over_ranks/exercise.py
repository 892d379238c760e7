"""ex00: sum a tensor over all ranks and leave the argument as it was."""

from __future__ import annotations

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
    close,
    known,
)


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    sizes = {"number": 3, "bulk/number": BALLAST}
    return [
        {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}
        for _ in range(ranks)
    ]


def _total(inputs: PerRank, name: str = "number") -> Array:
    total: Array = np.sum([mine[name].astype(np.float64) for mine in inputs], axis=0)
    return total


def _sum(inputs: PerRank) -> PerRank:
    total = {"result": _total(inputs), "bulk/result": _total(inputs, "bulk/number")}
    return [total for _ in inputs]


def _argument(inputs: PerRank) -> PerRank:
    return [{"argument": mine["number"]} for mine in inputs]


def _results_are(expected: list[Array], outputs: PerRank) -> bool:
    return all_close(outputs, [{"result": array} for array in expected])


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not any("result" in mine for mine in outputs)


def _own_number(inputs: PerRank, outputs: PerRank) -> bool:
    return _results_are([mine["number"] for mine in inputs], outputs)


def _scaled_own(inputs: PerRank, outputs: PerRank) -> bool:
    return _results_are([mine["number"] * len(inputs) for mine in inputs], outputs)


def _mean(inputs: PerRank, outputs: PerRank) -> bool:
    return _results_are([_total(inputs) / len(inputs) for _ in inputs], outputs)


def _rank_0_broadcast(inputs: PerRank, outputs: PerRank) -> bool:
    return _results_are([inputs[0]["number"] for _ in inputs], outputs)


def _other_operation(inputs: PerRank, outputs: PerRank) -> bool:
    """The largest, the smallest or the product of all, which all_reduce can deliver as well."""
    numbers = np.stack([mine["bulk/number"] for mine in inputs]).astype(np.float64)
    others = (numbers.max(axis=0), numbers.min(axis=0), numbers.prod(axis=0))
    return any(all_close(outputs, [{"bulk/result": one} for _ in inputs]) for one in others)


def _counted_twice(inputs: PerRank, outputs: PerRank) -> bool:
    total, n = _total(inputs), len(inputs)
    own = [total + mine["number"] for mine in inputs]
    return _results_are(own, outputs) or _results_are([total * n for _ in inputs], outputs)


def _not_added_up(inputs: PerRank, outputs: PerRank) -> bool:
    """All ranks' numbers, one beside the other."""
    numbers = np.stack([mine["number"] for mine in inputs])
    found = [mine["result"] for mine in outputs if "result" in mine and mine["result"].ndim]
    shaped = [{"result": one.reshape(-1)} for one in found if one.size == numbers.size]
    return len(shaped) == len(inputs) and all_close(
        shaped, [{"result": numbers.reshape(-1)} for _ in inputs]
    )


def _one_rank_only(inputs: PerRank, outputs: PerRank) -> bool:
    right = ["result" in mine and close(mine["result"], _total(inputs)) for mine in outputs]
    return sum(right) == 1


def _argument_changed(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, [{"argument": _total(inputs)} for _ in inputs])


EXERCISE = Exercise(
    name="ex00",
    stem="ex00_sum_over_ranks",
    function="sum_over_ranks",
    title="Sum a tensor over all ranks",
    lesson="00",
    difficulty="easy",
    minutes=5,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: all_reduced(BALLAST, ranks),
    checks=(
        Check(
            id="sum",
            title="every rank returns the sum over all ranks",
            why="a collective is only useful if all ranks go on with the same answer",
            points=2,
            expected=_sum,
            shown=("number", "result"),
        ),
        Check(
            id="argument",
            title="the argument is left as it was",
            why="the caller may still need its own number: all_reduce overwrites what it is given",
            points=1,
            expected=_argument,
            shown=("number", "argument"),
            depends=("sum",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "nothing returned": _nothing_returned,
            "own number returned": _own_number,
            "own number times the world size": _scaled_own,
            "mean instead of sum": _mean,
            "another operation than the sum": _other_operation,
            "rank 0's number everywhere": _rank_0_broadcast,
            "counted twice": _counted_twice,
            "gathered, not added up": _not_added_up,
            "one rank has the sum": _one_rank_only,
            "argument overwritten": _argument_changed,
        },
    ),
    errors={
        "NoneType": "Something was None where a tensor was needed. all_reduce returns None: it "
        "changes its argument in place.",
    },
    hang_hint="A collective returns only when every rank has called it, the same one and as often. "
    "Is there an `if rank == …` around yours?",
    calls=lambda inputs: 2,
    tiers=Tiers(
        question="After your function, which tensor holds the sum, and which one still belongs to "
        "the caller?",
        api="dist.all_reduce(tensor) sums over ranks in place and returns None; tensor.clone() is "
        "a copy.",
        skeleton="total = …              # a tensor of your own, with the caller's values\n"
        "dist.…                 # all ranks together\n"
        "return …",
    ),
)
