"""ex08b: a stream that ranks and their workers share out. Nobody needs to communicate.

Any way of sharing out will do, so `derive` puts all shares together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tensors, Tiers, all_close, known

CASES = {"several": 5, "one": 1}  # workers of each rank: more than ranks, and none of its own
Owns = Callable[[int, int, int, int, int], bool]  # (place, rank, ranks, worker, workers)


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Samples are numbers that do not tell their place."""
    shared: Tensors = {}
    for case, workers in CASES.items():
        size = 4 * ranks * workers + int(random.integers(1, ranks * workers))
        shared[f"{case}/samples"] = random.choice(10_000, size=size, replace=False)
        shared[f"{case}/workers"] = np.array(workers)
    return [shared for _ in range(ranks)]


def _derive(inputs: PerRank, outputs: PerRank) -> PerRank:
    """all: the samples that all took, sorted; even: whether shares differ by one at most; lazy:
    whether no more was read than up to everybody's first sample."""
    if not all(outputs):
        return [{} for _ in outputs]
    derived = [dict(mine) for mine in outputs]
    for case, workers in CASES.items():
        every = np.sort(np.concatenate([mine[f"{case}/taken"] for mine in outputs]))
        counts = np.concatenate([mine[f"{case}/counts"] for mine in outputs])
        for mine in derived:
            mine[f"{case}/all"] = every
            mine[f"{case}/even"] = np.array(int(np.ptp(counts) <= 1))
            ahead = int(mine[f"{case}/read ahead"])
            mine[f"{case}/lazy"] = np.array(int(ahead <= len(inputs) * workers))
    return derived


def _of(inputs: PerRank, owns: Owns) -> PerRank:
    """What the ranks' outputs are if each worker takes the places that it owns."""
    outputs: list[Tensors] = [{} for _ in inputs]
    for rank, (mine, got) in enumerate(zip(inputs, outputs, strict=True)):
        for case, workers in CASES.items():
            samples = mine[f"{case}/samples"]
            shares = [
                [i for i in range(len(samples)) if owns(i, rank, len(inputs), worker, workers)]
                for worker in range(workers)
            ]
            got[f"{case}/taken"] = samples[np.array([i for share in shares for i in share], int)]
            got[f"{case}/counts"] = np.array([len(share) for share in shares])
            got[f"{case}/read ahead"] = np.array(1)
    return _derive(inputs, outputs)


def _right(place: int, rank: int, ranks: int, worker: int, workers: int) -> bool:
    return place % (ranks * workers) == rank * workers + worker


def _everything(place: int, rank: int, ranks: int, worker: int, workers: int) -> bool:
    return True


def _by_rank(place: int, rank: int, ranks: int, worker: int, workers: int) -> bool:
    return place % ranks == rank


def _by_worker(place: int, rank: int, ranks: int, worker: int, workers: int) -> bool:
    return place % workers == worker


def _added(place: int, rank: int, ranks: int, worker: int, workers: int) -> bool:
    return place % (ranks * workers) == rank + worker


def _ranks_for_workers(place: int, rank: int, ranks: int, worker: int, workers: int) -> bool:
    first = rank * ranks + worker
    return place >= first and (place - first) % (ranks * workers) == 0


def _named(inputs: PerRank, owns: Owns, *names: str) -> PerRank:
    wanted = [f"{case}/{name}" for case in CASES for name in names]
    return [{name: mine[name] for name in wanted} for mine in _of(inputs, owns)]


def _only(name: str) -> Callable[[PerRank], PerRank]:
    return lambda inputs: _named(inputs, _right, name)


def _follows(owns: Owns) -> Callable[[PerRank, PerRank], bool]:
    return lambda inputs, outputs: all_close(outputs, _named(inputs, owns, "all"))


def _pieces(inputs: PerRank, outputs: PerRank) -> bool:
    """All read first, then cut: each once, but not as it comes."""
    return all_close(outputs, _named(inputs, _right, "all")) and any(
        not mine[f"{case}/lazy"] for mine in outputs for case in CASES
    )


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not all(outputs)


def _flags(inputs: PerRank, name: str) -> PerRank:
    one: Array = np.array(1)
    return [{f"{case}/{name}": one for case in CASES} for _ in inputs]


EXERCISE = Exercise(
    name="ex08b",
    stem="ex08b_shard_stream",
    function="shard",
    title="Share out a stream",
    lesson="08",
    difficulty="easy",
    minutes=10,
    ranks=3,
    draw=_draw,
    derive=_derive,
    checks=(
        Check(
            id="cover",
            title="each sample of the stream goes to one worker of one rank",
            why="an iterable data set has no sampler: whoever iterates gets everything",
            points=2,
            expected=_only("all"),
            shown=("several/workers", "several/all"),
        ),
        Check(
            id="even",
            title="no share is larger than another by more than one sample",
            why="the rank with less data ends its epoch first, and the others hang",
            points=1,
            expected=lambda inputs: _flags(inputs, "even"),
            shown=("several/workers", "several/even"),
            depends=("cover",),
        ),
        Check(
            id="lazy",
            title="samples are passed on as they come",
            why="a stream may be larger than memory, or endless",
            points=1,
            expected=lambda inputs: _flags(inputs, "lazy"),
            shown=("several/workers", "several/lazy"),
            depends=("cover",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "nothing returned": _nothing_returned,
            "everything for everybody": _follows(_everything),
            "shared among ranks only": _follows(_by_rank),
            "shared among workers only": _follows(_by_worker),
            "rank and worker added": _follows(_added),
            "ranks counted in place of workers": _follows(_ranks_for_workers),
            "all read first": _pieces,
        },
    ),
    errors={
        "has no len": "A stream does not know its length. Take samples as they come, in steps.",
        "not subscriptable": "A stream has no places to jump to. Count as its samples come.",
    },
    hang_hint="No rank needs to wait for another here: the arguments say everything.",
    calls=None,
    talks=False,
    tiers=Tiers(
        question="How many readers are there in all, and what is the number of this one?",
        api="itertools.islice(stream, first, None, step); enumerate(stream).",
        skeleton="readers = …                            # on all ranks together\n"
        "mine = …                               # this worker's number among them\n"
        "return itertools.islice(stream, mine, None, readers)",
    ),
)
