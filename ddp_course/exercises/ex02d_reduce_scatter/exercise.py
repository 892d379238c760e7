"""ex02d: a reduce-scatter by hand: every rank ends with the sum of one piece."""

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
    close,
    known,
)

SIZES = {"few": 3, "bulk": 16384}  # numbers in a piece


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    return [
        {f"pieces/{name}": random.normal(size=(ranks, n)).astype(np.float32)
         for name, n in SIZES.items()}
        for _ in range(ranks)
    ]  # fmt: skip


def _sums(inputs: PerRank, name: str) -> Array:
    """(ranks, size): the sum over ranks of every piece."""
    total: Array = np.sum([mine[f"pieces/{name}"].astype(np.float64) for mine in inputs], axis=0)
    return total


def _with(inputs: PerRank, rule: Callable[[str, int], Array]) -> PerRank:
    """What each rank returns, by a rule of (few or bulk, rank)."""
    return [{f"{name}/result": rule(name, r) for name in SIZES} for r in range(len(inputs))]


def _right(inputs: PerRank) -> PerRank:
    return _with(inputs, lambda name, rank: _sums(inputs, name)[rank])


def _sent(inputs: PerRank) -> PerRank:
    steps = len(inputs) - 1
    mine: Tensors = {f"{name}/sent": np.array(steps * size) for name, size in SIZES.items()}
    return [mine for _ in inputs]


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not any("few/result" in mine for mine in outputs)


def _all_sums(inputs: PerRank, outputs: PerRank) -> bool:
    found = [mine["few/result"].reshape(-1) for mine in outputs if "few/result" in mine]
    wanted = _sums(inputs, "few").reshape(-1)
    return len(found) == len(inputs) and all(close(one, wanted) for one in found)


def _mean(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _with(inputs, lambda n, r: _sums(inputs, n)[r] / len(inputs)))


def _others_sum(inputs: PerRank, outputs: PerRank) -> bool:
    ranks = len(inputs)
    return any(
        all_close(outputs, _with(inputs, lambda n, r: _sums(inputs, n)[(r + by) % ranks]))  # noqa: B023
        for by in range(1, ranks)
    )


def _nothing_added(inputs: PerRank, outputs: PerRank) -> bool:
    """Each rank's result is one rank's piece, as it was."""
    found = [mine.get("few/result", np.zeros(0)) for mine in outputs]
    pieces = [piece for mine in inputs for piece in mine["pieces/few"]]
    return all(any(close(one, piece) for piece in pieces) for one in found)


def _own_left_out(inputs: PerRank, outputs: PerRank) -> bool:
    def rule(name: str, rank: int) -> Array:
        wanted: Array = _sums(inputs, name)[rank] - inputs[rank][f"pieces/{name}"][rank]
        return wanted

    return all_close(outputs, _with(inputs, rule))


def _collective(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _right(inputs)) and not any(
        mine["few/sent"].any() for mine in outputs
    )


def _sent_too_much(inputs: PerRank, outputs: PerRank) -> bool:
    most = (len(inputs) - 1) * SIZES["few"]
    busiest = max(int(mine["few/sent"]) for mine in outputs)
    return all_close(outputs, _right(inputs)) and busiest > most


EXERCISE = Exercise(
    name="ex02d",
    stem="ex02d_reduce_scatter",
    function="reduce_scatter",
    title="Reduce-scatter by hand",
    lesson="02d",
    difficulty="medium",
    minutes=15,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: ranks * (ranks - 1) * 4 * SIZES["bulk"],
    checks=(
        Check(
            id="sum",
            title="each rank returns the sum, over ranks, of the piece with its own number",
            why="each rank then holds one piece of the result, and no rank has to hold all",
            points=3,
            expected=_right,
            shown=("pieces/few", "few/result"),
        ),
        Check(
            id="sent",
            title="each rank sends one piece less than there are ranks, by send or isend",
            why="the load is even: no rank, and no cable, is busier than the others",
            points=2,
            expected=_sent,
            shown=("pieces/few", "few/sent"),
            depends=("sum",),
            most=lambda ranks: ranks * (ranks - 1) * 10 * SIZES["bulk"],
        ),
    ),
    mistakes=known(
        __file__,
        {
            "nothing returned": _nothing_returned,
            "all sums returned": _all_sums,
            "mean instead of sum": _mean,
            "the sum of another piece": _others_sum,
            "passed on, not added up": _nothing_added,
            "the own piece left out": _own_left_out,
            "a collective does it": _collective,
            "more sent than needed": _sent_too_much,
        },
    ),
    errors={
        "Invalid destination rank": "A rank cannot send to itself. The next rank is "
        "(rank + 1) % world_size: after the last comes rank 0.",
        "Invalid source rank": "A rank cannot receive from itself. The rank before is "
        "(rank - 1) % world_size.",
        "list index out of range": "There are as many pieces as ranks: count them modulo "
        "world_size.",
    },
    hang_hint="If every rank calls send first, nobody receives, and no send returns. Begin with "
    "isend, then recv, then wait() for the send.",
    calls=lambda inputs: 2,
    tiers=Tiers(
        question="The complete sum of piece r must end on rank r. With which piece must rank r "
        "begin, so that n - 1 steps to the next rank lead there?",
        api="dist.isend(tensor, dst=rank) begins to send and returns an object with wait(); "
        "dist.recv(tensor, src=rank) fills a tensor that is there: torch.empty_like(tensor).",
        skeleton="passing = pieces[…]                # not my own: it must come home at the end\n"
        "for step in range(world_size - 1):\n"
        "    received = …\n"
        "    send = dist.isend(passing, dst=…)\n"
        "    dist.recv(received, src=…)\n"
        "    send.wait()\n"
        "    passing = received + pieces[…]     # my part of what has come\n"
        "return passing",
    ),
)
