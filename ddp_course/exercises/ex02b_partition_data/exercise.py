"""ex02b: each rank's indices for an epoch, what a DistributedSampler does.

Any shuffle and any way of sharing out will do, so the ranks' indices are not compared with an
oracle's but counted: `derive` makes of them what all right answers have in common. Nobody needs to
communicate, as the rule and its inputs are the same everywhere, so there is no witness.
Sizes and epochs are drawn, and each rank is asked for its own share only: the counts come out right
if all ranks follow one right rule, and there is nothing that a cheat could copy instead.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tensors, Tiers, known

CASES = ("even", "uneven", "tiny")  # in the last there are fewer samples than ranks
EPOCHS = 4  # of each case; the first is asked for once more at the end


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Shares of eight or more, so that two shuffles are not equal by chance; seeds differ by rank,
    so that a shuffle without a seed is another one on every rank."""
    share = int(random.integers(8, 13))
    sizes = {
        "even": share * ranks,
        "uneven": share * ranks + int(random.integers(1, ranks)),
        "tiny": ranks - 1,
    }
    first = int(random.integers(0, 1000))
    shared = {f"{case}/size": np.array(size) for case, size in sizes.items()}
    shared["epochs"] = np.array([*range(first, first + EPOCHS), first])
    seeds = random.choice(2**31, size=ranks, replace=False)
    return [
        shared | {"rank": np.array(rank), "seed": np.array(int(seeds[rank]))}
        for rank in range(ranks)
    ]


def _size(inputs: PerRank, case: str) -> int:
    return int(inputs[0][f"{case}/size"])


def _share(inputs: PerRank, case: str) -> int:
    return -(-_size(inputs, case) // len(inputs))


def _by_epoch(mine: Tensors, case: str) -> list[Array]:
    """One rank's indices, epoch by epoch."""
    ends = np.cumsum(mine[f"{case}/counts"])
    return np.split(mine[f"{case}/indices"], ends[:-1])


def _well_formed(mine: Tensors) -> bool:
    return all(
        mine.get(f"{case}/counts", np.zeros(0)).shape == (EPOCHS + 1,)
        and f"{case}/indices" in mine
        and mine[f"{case}/counts"].min() >= 0
        and mine[f"{case}/indices"].shape == (mine[f"{case}/counts"].sum(),)
        for case in CASES
    )


def _derive(inputs: PerRank, outputs: PerRank) -> PerRank:
    """What is counted, of all ranks together or of each one.

    seen      of each epoch and sample: 1 if some rank has it
    outside   how many indices are no sample's
    changed   1 if the share is not made of the same samples in every epoch
    shuffled  1 if the indices of an epoch do not follow each other at one distance
    again     1 if the first epoch, asked for again, is the same
    """
    if not all(map(_well_formed, outputs)):
        return [{} for _ in outputs]
    derived: list[Tensors] = [dict(mine) for mine in outputs]
    for case in CASES:
        size = _size(inputs, case)
        everybody = [_by_epoch(mine, case) for mine in outputs]
        seen = np.zeros((EPOCHS + 1, size), dtype=np.int64)
        for mine in everybody:
            for epoch, indices in enumerate(mine):
                seen[epoch, indices[(indices >= 0) & (indices < size)]] = 1
        for result, mine in zip(derived, everybody, strict=True):
            flat = np.concatenate(mine)
            result[f"{case}/seen"] = seen
            result[f"{case}/outside"] = np.array(int(((flat < 0) | (flat >= size)).sum()))
            result[f"{case}/again"] = np.array(int(np.array_equal(mine[0], mine[-1])))
    for result in derived:
        mine = _by_epoch(result, "even")
        size = _size(inputs, "even")
        result["even/changed"] = np.array(int(len({tuple(np.sort(one)) for one in mine}) > 1))
        regular = [len(set(np.diff(one) % size)) <= 1 for one in mine]
        result["even/shuffled"] = np.array(int(not any(regular)))
    return derived


def _covered(inputs: PerRank) -> PerRank:
    wanted: Tensors = {}
    for case in CASES:
        wanted[f"{case}/outside"] = np.array(0)
        wanted[f"{case}/seen"] = np.ones((EPOCHS + 1, _size(inputs, case)), dtype=np.int64)
    return [wanted for _ in inputs]


def _equal(inputs: PerRank) -> PerRank:
    wanted = {
        f"{case}/counts": np.full(EPOCHS + 1, _share(inputs, case), dtype=np.int64)
        for case in CASES
    }
    return [wanted for _ in inputs]


def _mixed(inputs: PerRank) -> PerRank:
    wanted = {f"{case}/again": np.array(1) for case in CASES}
    return [wanted | {"even/changed": np.array(1), "even/shuffled": np.array(1)} for _ in inputs]


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not all(outputs)


def _if_whole(look: Callable[[PerRank, PerRank], object]) -> Callable[[PerRank, PerRank], bool]:
    """A mistake that only shows when every rank has returned indices."""
    return lambda inputs, outputs: all(outputs) and bool(look(inputs, outputs))


def _counts(outputs: PerRank, case: str) -> Array:
    """Shape (ranks, epochs)."""
    return np.stack([mine[f"{case}/counts"] for mine in outputs])


def _each(outputs: PerRank, name: str) -> list[int]:
    return [int(mine[name]) for mine in outputs]


def _beyond(inputs: PerRank, outputs: PerRank) -> bool:
    return any(sum(_each(outputs, f"{case}/outside")) for case in CASES)


def _everything(inputs: PerRank, outputs: PerRank) -> bool:
    return bool((_counts(outputs, "even") == _size(inputs, "even")).all())


def _same_share(inputs: PerRank, outputs: PerRank) -> bool:
    first, *others = (mine["even/indices"] for mine in outputs)
    right = (_counts(outputs, "even") == _share(inputs, "even")).all()
    return bool(right) and all(np.array_equal(first, other) for other in others)


def _rest_left_out(inputs: PerRank, outputs: PerRank) -> bool:
    floor = _size(inputs, "uneven") // len(inputs)
    return bool((_counts(outputs, "uneven") == floor).all())


def _unequal(inputs: PerRank, outputs: PerRank) -> bool:
    counts = _counts(outputs, "uneven")
    return bool((counts != counts[0]).any() and outputs[0]["uneven/seen"].all())


def _more_than_needed(inputs: PerRank, outputs: PerRank) -> bool:
    counts = _counts(outputs, "even")
    return bool((counts == counts[0, 0]).all() and counts[0, 0] > _share(inputs, "even"))


def _own_shuffle(inputs: PerRank, outputs: PerRank) -> bool:
    equal = (_counts(outputs, "even") == _share(inputs, "even")).all()
    return bool(equal and not outputs[0]["even/seen"].all())


def _never_shuffled(inputs: PerRank, outputs: PerRank) -> bool:
    return not any(_each(outputs, "even/shuffled"))


def _another_again(inputs: PerRank, outputs: PerRank) -> bool:
    return not all(_each(outputs, "even/again"))


def _own_share_shuffled(inputs: PerRank, outputs: PerRank) -> bool:
    first, second, *_ = _by_epoch(outputs[0], "even")
    return not any(_each(outputs, "even/changed")) and not np.array_equal(first, second)


def _one_order(inputs: PerRank, outputs: PerRank) -> bool:
    first, *others = _by_epoch(outputs[0], "even")
    return all(np.array_equal(first, other) for other in others)


EXERCISE = Exercise(
    name="ex02b",
    stem="ex02b_partition_data",
    function="my_indices",
    title="Partition the data",
    lesson="02b",
    difficulty="medium",
    minutes=15,
    ranks=3,
    draw=_draw,
    derive=_derive,
    checks=(
        Check(
            id="cover",
            title="in every epoch, each sample is on some rank, and nothing else is",
            why="a sample that no rank has is never learned from, and no error says so",
            points=2,
            expected=_covered,
            shown=("uneven/size", "uneven/seen"),
        ),
        Check(
            id="equal",
            title="all ranks have equally many, and no more than needed",
            why="a rank with one batch more than the others waits for them for ever",
            points=1,
            expected=_equal,
            shown=("uneven/size", "uneven/counts"),
        ),
        Check(
            id="shuffle",
            title="every epoch is shuffled anew, on all ranks alike, and the same when asked again",
            why="SGD wants another order in each epoch, and a run that is resumed wants its own",
            points=1,
            expected=_mixed,
            shown=("even/size", "even/changed"),
            depends=("cover", "equal"),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "no indices returned": _nothing_returned,
            "indices beyond the data": _if_whole(_beyond),
            "everything on every rank": _if_whole(_everything),
            "more than needed": _if_whole(_more_than_needed),
            "the same share on every rank": _if_whole(_same_share),
            "the rest left out": _if_whole(_rest_left_out),
            "unequal counts": _if_whole(_unequal),
            "each rank shuffles its own way": _if_whole(_own_shuffle),
            "not shuffled": _if_whole(_never_shuffled),
            "another order when asked again": _if_whole(_another_again),
            "own share shuffled": _if_whole(_own_share_shuffled),
            "the same order in every epoch": _if_whole(_one_order),
        },
    ),
    errors={
        "slice indices must be integers": "A share is a whole number: math.ceil(size / "
        "world_size), or // where it divides.",
        "'Tensor' object has no attribute": "torch.randperm gives a tensor; .tolist() makes a list "
        "of whole numbers of it.",
    },
    hang_hint="No rank needs to wait for another here: rank, world_size, size and epoch say all.",
    calls=None,
    talks=False,
    tiers=Tiers(
        question="If every rank can compute the whole order by itself, what must it know for all "
        "to get the same one, and which part of it is this rank's?",
        api="torch.Generator().manual_seed(number); torch.randperm(size, generator=generator)"
        ".tolist(); math.ceil(size / world_size); order[begin::step].",
        skeleton="order = …                              # all indices, shuffled by the epoch\n"
        "count = …                              # how many each rank gets, rounded up\n"
        "order += …                             # what is missing, from the beginning\n"
        "return …",
    ),
)
