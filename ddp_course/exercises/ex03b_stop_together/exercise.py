"""ex03b: all ranks stop as soon as one of them wants to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.agreed import MESSAGE, ROUNDS
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tiers, all_close, known

CASES = ("some", "none", "rounds")  # "none": no rank wants to stop; in the others at least one does


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Wishes by round, shuffled: each rank alone, each alone against it, and all at once.

    With three ranks or more, any two rules that a learner may follow differ in one of them.
    """
    alone = np.eye(ranks)
    some = random.permutation(np.concatenate([alone, 1 - alone, np.ones((1, ranks))]))
    none = np.zeros((2, ranks))
    more = random.permuted(random.integers(0, 2, (ROUNDS, ranks)) | (np.eye(1, ranks) > 0), axis=1)
    wishes = {"some/wish": some, "none/wish": none, "rounds/wish": more}
    return [
        {name: array[:, rank].astype(np.int64) for name, array in wishes.items()}
        for rank in range(ranks)
    ]


def _wishes(inputs: PerRank, case: str) -> Array:
    """Shape (ranks, rounds)."""
    return np.stack([mine[f"{case}/wish"] for mine in inputs])


def _answers(inputs: PerRank, rule: Callable[[Array], Array]) -> PerRank:
    """What all ranks answer if `rule` turns the wishes, (ranks, rounds), into one answer each."""
    answer = {f"{case}/stop": rule(_wishes(inputs, case)).astype(np.int64) for case in CASES}
    return [answer for _ in inputs]


def _any(wishes: Array) -> Array:
    reduced: Array = wishes.max(axis=0)
    return reduced


def _only(*cases: str) -> Callable[[PerRank], PerRank]:
    names = [f"{case}/stop" for case in cases]
    return lambda inputs: [{name: mine[name] for name in names} for mine in _answers(inputs, _any)]


def _all_follow(rule: Callable[[Array], Array]) -> Callable[[PerRank, PerRank], bool]:
    return lambda inputs, outputs: all_close(outputs, _answers(inputs, rule))


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not any(outputs)


def _own_wish(inputs: PerRank, outputs: PerRank) -> bool:
    own = [{f"{case}/stop": mine[f"{case}/wish"] for case in CASES} for mine in inputs]
    return all_close(outputs, own)


def _one_decides(inputs: PerRank, outputs: PerRank) -> bool:
    return any(
        all_close(outputs, [{f"{case}/stop": one[f"{case}/wish"] for case in CASES}] * len(outputs))
        for one in inputs
    )


def _the_majority(inputs: PerRank, outputs: PerRank) -> bool:
    """More than half of them, or half as well."""
    more = _all_follow(lambda wishes: wishes.mean(axis=0) > 0.5)
    half = _all_follow(lambda wishes: wishes.mean(axis=0) >= 0.5)
    return more(inputs, outputs) or half(inputs, outputs)


def _one_rank_only(inputs: PerRank, outputs: PerRank) -> bool:
    wanted = _answers(inputs, _any)
    return sum(all_close([o], [w]) for o, w in zip(outputs, wanted, strict=True)) == 1


EXERCISE = Exercise(
    name="ex03b",
    stem="ex03b_stop_together",
    function="agree_to_stop",
    title="Stop together",
    lesson="03",
    difficulty="easy",
    minutes=5,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: ROUNDS * MESSAGE * 2 * (ranks - 1),
    checks=(
        Check(
            id="some",
            title="when any rank wants to stop, all stop",
            why="a rank that leaves alone leaves the others waiting in their next collective",
            points=2,
            expected=_only("some", "rounds"),
            shown=("some/wish", "some/stop"),
        ),
        Check(
            id="none",
            title="when none wants to, nobody stops",
            why="an answer that is always yes agrees as well, after one step",
            points=1,
            expected=_only("none"),
            shown=("none/wish", "none/stop"),
            depends=("some",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "no answer returned": _nothing_returned,
            "own wish returned": _own_wish,
            "all instead of any": _all_follow(lambda wishes: wishes.min(axis=0)),
            "one rank decides": _one_decides,
            "the majority decides": _the_majority,
            "one wish and no more": _all_follow(lambda wishes: wishes.sum(axis=0) == 1),
            "never yes": _all_follow(lambda wishes: np.zeros(wishes.shape[1])),
            "one rank knows": _one_rank_only,
            "always yes": _all_follow(lambda wishes: np.ones(wishes.shape[1])),
        },
    ),
    errors={
        "'bool'": "A collective takes a tensor, not a bool: "
        "torch.tensor(float(wish), device=device).",
    },
    hang_hint="All ranks must call the collective in every step, whether they want to stop or not. "
    "Is there an `if wish` around yours?",
    calls=lambda inputs: sum(len(inputs[0][f"{case}/wish"]) for case in CASES),
    tiers=Tiers(
        question="What can all ranks compute from all wishes, so that one True is enough?",
        api="torch.tensor(float(wish), device=device); dist.all_reduce(tensor, "
        "op=dist.ReduceOp.MAX); bool(tensor).",
        skeleton="flag = …                               # this rank's wish as a tensor\n"
        "dist.…                                 # the largest of all flags\n"
        "return …",
    ),
)
