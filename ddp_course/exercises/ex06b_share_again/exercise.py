"""ex06b: the rest of an epoch, shared out again among the ranks that are there.

The ranks play three starts of one job: all of them from the beginning, all but the last after it
was lost, and all of them again. Any way of sharing out a step's samples will do, so `derive` puts
the ranks' shares of each step together. Nobody needs to communicate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import (
    Check,
    Exercise,
    PerRank,
    Tensors,
    Tiers,
    all_close,
    known,
)

CASES = {"start": 0, "fewer": 2, "again": 4}  # how many steps were done before each
STEPS = 7  # of an epoch; what is left then is dropped
Batches = list[list[int]]
Rule = Callable[[list[int], int, int, int, int], Batches]


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """A global batch that divides by both world sizes, and an epoch that it does not divide."""
    batch = ranks * (ranks - 1) * int(random.integers(2, 4))
    size = STEPS * batch + int(random.integers(1, batch))
    shared: Tensors = {"order": random.permutation(size), "batch": np.array(batch)}
    for case, steps in CASES.items():
        shared[f"{case}/done"] = np.array(steps * batch)
        shared[f"{case}/world"] = np.array(ranks - (case == "fewer"))
    return [shared for _ in range(ranks)]


def _well_formed(mine: Tensors) -> bool:
    return all(
        f"{case}/indices" in mine
        and mine.get(f"{case}/counts", np.zeros((0, 0))).ndim == 1
        and mine[f"{case}/counts"].min(initial=0) >= 0
        and mine[f"{case}/indices"].shape == (mine[f"{case}/counts"].sum(),)
        for case in CASES
    )


def _together(shares: list[list[Array]]) -> Array:
    """The samples of all ranks, step by step, sorted within each step."""
    steps = range(max(map(len, shares)))
    taken = [np.concatenate([one[k] for one in shares if k < len(one)]) for k in steps]
    result: Array = np.concatenate([np.zeros(0, np.int64), *map(np.sort, taken)])
    return result


def _derive(inputs: PerRank, outputs: PerRank) -> PerRank:
    """all: the samples of all ranks, sorted; steps: the same, sorted within each step only."""
    if not all(map(_well_formed, outputs)):
        return [{} for _ in outputs]
    derived = [dict(mine) for mine in outputs]
    for case in CASES:
        shares = [
            np.split(mine[f"{case}/indices"], np.cumsum(mine[f"{case}/counts"])[:-1])
            if len(mine[f"{case}/counts"])
            else []
            for mine in outputs
        ]
        steps = _together(shares)
        for mine in derived:
            mine[f"{case}/steps"], mine[f"{case}/all"] = steps, np.sort(steps)
    return derived


def _of(inputs: PerRank, rule: Rule) -> PerRank:
    """What the ranks' outputs are if they follow a rule."""
    outputs: list[Tensors] = [{} for _ in inputs]
    for rank, (mine, got) in enumerate(zip(inputs, outputs, strict=True)):
        order, batch = mine["order"].tolist(), int(mine["batch"])
        for case in CASES:
            done, world = int(mine[f"{case}/done"]), int(mine[f"{case}/world"])
            batches = rule(order, done, batch, rank, world) if rank < world else []
            got[f"{case}/counts"] = np.array([len(one) for one in batches], np.int64)
            got[f"{case}/indices"] = np.array([i for one in batches for i in one], np.int64)
    return _derive(inputs, outputs)


def _in_steps(rest: list[int], batch: int) -> Batches:
    return [rest[first : first + batch] for first in range(0, len(rest) - batch + 1, batch)]


def _right(order: list[int], done: int, batch: int, rank: int, world: int) -> Batches:
    return [step[rank::world] for step in _in_steps(order[done:], batch)]


def _from_the_beginning(order: list[int], done: int, batch: int, rank: int, world: int) -> Batches:
    return _right(order, 0, batch, rank, world)


def _own_count_skipped(order: list[int], done: int, batch: int, rank: int, world: int) -> Batches:
    return _right(order, done // world, batch, rank, world)


def _short_step_kept(order: list[int], done: int, batch: int, rank: int, world: int) -> Batches:
    rest = order[done:]
    return [rest[i : i + batch][rank::world] for i in range(0, len(rest), batch)]


def _all_on_every_rank(order: list[int], done: int, batch: int, rank: int, world: int) -> Batches:
    return _in_steps(order[done:], batch)


def _global_batch_each(order: list[int], done: int, batch: int, rank: int, world: int) -> Batches:
    return _in_steps(order[done:][rank::world], batch)


def _pieces(order: list[int], done: int, batch: int, rank: int, world: int) -> Batches:
    rest = order[done:]
    size = len(rest) // world
    return _in_steps(rest[rank * size : (rank + 1) * size], batch // world)


def _named(inputs: PerRank, rule: Rule, *names: str) -> PerRank:
    wanted = [f"{case}/{name}" for case in CASES for name in names]
    return [{n: mine[n] for n in wanted} for mine in _of(inputs, rule)]


def _only(name: str) -> Callable[[PerRank], PerRank]:
    return lambda inputs: _named(inputs, _right, name)


def _follows(rule: Rule) -> Callable[[PerRank, PerRank], bool]:
    """Whichever samples of a step each rank takes."""
    return lambda inputs, outputs: all_close(outputs, _named(inputs, rule, "steps", "counts"))


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not all(outputs)


EXERCISE = Exercise(
    name="ex06b",
    stem="ex06b_share_again",
    function="my_batches",
    title="Share again",
    lesson="06",
    difficulty="medium",
    minutes=10,
    ranks=3,
    draw=_draw,
    derive=_derive,
    checks=(
        Check(
            id="cover",
            title="what is left of the epoch is trained on once, however many ranks there are",
            why="a sample that is repeated or lost at each restart changes what is learned",
            points=2,
            expected=_only("all"),
            shown=("fewer/done", "fewer/all"),
        ),
        Check(
            id="steps",
            title="each step has the global batch that an undisturbed job would take",
            why="only then does the job end where one process ends",
            points=2,
            expected=_only("steps"),
            shown=("fewer/world", "fewer/steps"),
            depends=("cover",),
        ),
        Check(
            id="equal",
            title="all ranks have equally many samples in a step",
            why="DDP averages over ranks, so samples in a smaller share would count more",
            points=1,
            expected=_only("counts"),
            shown=("fewer/world", "fewer/counts"),
            depends=("cover", "steps"),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "nothing returned": _nothing_returned,
            "the epoch begins again": _follows(_from_the_beginning),
            "only its own count skipped": _follows(_own_count_skipped),
            "the short last step kept": _follows(_short_step_kept),
            "the whole step on every rank": _follows(_all_on_every_rank),
            "a global batch for each rank": _follows(_global_batch_each),
            "a piece of the rest for each rank": _follows(_pieces),
        },
    ),
    errors={
        "slice indices must be integers": "Positions are whole numbers: divide with //.",
    },
    hang_hint="No rank needs to wait for another here: the arguments say everything.",
    calls=None,
    talks=False,
    tiers=Tiers(
        question="Which samples does the next step take, if you forget the ranks? Only then: which "
        "of them are this rank's?",
        api="order[done:] is what is left; range(0, len(rest) - global_batch + 1, global_batch) "
        "are the places where full steps begin; step[rank::world_size] is a share.",
        skeleton="rest = …                               # what is left of the epoch\n"
        "firsts = range(…)                      # where each full step begins\n"
        "return [… for first in firsts]         # this rank's share of each step",
    ),
)
