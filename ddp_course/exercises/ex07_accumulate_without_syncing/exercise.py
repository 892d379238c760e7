"""ex07: accumulate gradients over micro-batches under DDP, with one all-reduce."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.agreed import BALLAST
from ddp_course.checks.manifest import (
    Check,
    Exercise,
    PerRank,
    Tensors,
    Tiers,
    all_close,
    all_reduced,
    close,
    known,
)

WINDOWS = {"long": 4, "short": 2}  # micro-batches in each
NAMES = ("weight", "bias")
SAMPLES = 3  # in a micro-batch
SINGLE = 3  # micro-batches for the model that goes forward and backward with each, in turn

Gradients = list[Tensors]  # one entry a micro-batch
Mixed = Callable[[list[Gradients], int], Tensors]  # (every rank's, this rank) → what it would hold


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Weights are the same on all ranks, as after a DDP constructor; samples differ."""
    weights: Tensors = {
        "weight/weight": random.normal(size=(2, 4)).astype(np.float32),
        "weight/bias": random.normal(size=2).astype(np.float32),
    }
    return [weights | _samples(random, weights) for _ in range(ranks)]


def _samples(random: np.random.Generator, weights: Tensors) -> Tensors:
    drawn: Tensors = {}
    for window, count in {**WINDOWS, "single": SINGLE}.items():
        drawn[f"micro_batches/{window}"] = np.array(count)
        drawn[f"x/{window}"] = random.normal(size=(count, SAMPLES, 4)).astype(np.float32)
        drawn[f"y/{window}"] = random.normal(size=(count, SAMPLES, 2)).astype(np.float32)
    alone = _mean(_gradients(weights | drawn, "long"))
    return drawn | {f"alone/{name}": alone[name].astype(np.float32) for name in NAMES}


def _gradients(mine: Tensors, window: str) -> Gradients:
    """Each micro-batch's gradient of the mean squared error of x @ weight.T + bias, in float64."""
    weight, bias = (mine[f"weight/{name}"].astype(np.float64) for name in NAMES)
    found: Gradients = []
    for x, y in zip(mine[f"x/{window}"], mine[f"y/{window}"], strict=True):
        slope = 2 * (x.astype(np.float64) @ weight.T + bias - y) / y.size
        found.append({"weight": slope.T @ x, "bias": slope.sum(axis=0)})
    return found


def _gradients_single(mine: Tensors) -> Gradients:
    """The same of tanh(z), z = (x - x.mean(0)) @ (weight + before).T + bias, where `before` is the
    gradient of the micro-batches before, of length 1, and counts as a constant."""
    weight, bias = (mine[f"weight/{name}"].astype(np.float64) for name in NAMES)
    found: Gradients = []
    total = np.zeros_like(weight)
    for x, y in zip(mine["x/single"].astype(np.float64), mine["y/single"], strict=True):
        centred, before = x - x.mean(axis=0), total / (np.linalg.norm(total) or 1.0)
        output = np.tanh(centred @ (weight + before).T + bias)
        slope = 2 * (output - y) / y.size * (1 - output**2)
        found.append({"weight": slope.T @ centred, "bias": slope.sum(axis=0)})
        total = total + found[-1]["weight"]
    return found


def _each_single(inputs: PerRank) -> Tensors:
    mean = _mean([one for mine in inputs for one in _gradients_single(mine)])
    return {f"single/{name}": array for name, array in mean.items()}


def _sum(gradients: Gradients) -> Tensors:
    return {name: np.sum([one[name] for one in gradients], axis=0) for name in NAMES}


def _mean(gradients: Gradients) -> Tensors:
    return _times(_sum(gradients), 1 / len(gradients))


def _times(gradient: Tensors, factor: float) -> Tensors:
    return {name: array * factor for name, array in gradient.items()}


def _outcome(inputs: PerRank, mixed: Mixed, windows: tuple[str, ...] = tuple(WINDOWS)) -> PerRank:
    """What every rank would report if its gradient were `mixed` of everybody's."""
    outcome: list[Tensors] = [{} for _ in inputs]
    for window in windows:
        everybody = [_gradients(mine, window) for mine in inputs]
        for rank, report in enumerate(outcome):
            gradient = mixed(everybody, rank)
            report |= {f"{window}/{name}": array for name, array in gradient.items()}
    return outcome


def _right(everybody: list[Gradients], _: int) -> Tensors:
    return _mean([one for gradients in everybody for one in gradients])


def _expected(inputs: PerRank) -> PerRank:
    return _outcome(inputs, _right)


def _counts(inputs: PerRank) -> PerRank:
    counts = _each_single(inputs)
    for window, count in {**WINDOWS, "single": SINGLE}.items():
        counts[f"{window}/all_reduces"] = np.array(1)
        counts[f"{window}/backwards"] = np.array(count)
    return [counts for _ in inputs]


def _looks_like(mixed: Mixed) -> Callable[[PerRank, PerRank], bool]:
    return lambda inputs, outputs: all_close(outputs, _outcome(inputs, mixed))


def _alone(everybody: list[Gradients], rank: int) -> Tensors:
    return _mean(everybody[rank])


def _first_only(everybody: list[Gradients], rank: int) -> Tensors:
    first = _mean([gradients[0] for gradients in everybody])
    count = len(everybody[rank])
    return _times(_sum([first, *everybody[rank][1:]]), 1 / count)


def _all_but_the_last(everybody: list[Gradients], rank: int) -> Tensors:
    averaged = _mean([_sum(gradients[:-1]) for gradients in everybody])
    return _times(_sum([averaged, everybody[rank][-1]]), 1 / len(everybody[rank]))


def _summed(everybody: list[Gradients], rank: int) -> Tensors:
    return _times(_right(everybody, rank), 2 * SAMPLES)  # outputs of each sample


def _not_divided(everybody: list[Gradients], rank: int) -> Tensors:
    return _times(_right(everybody, rank), len(everybody[rank]))


def _divided_by_ranks(everybody: list[Gradients], rank: int) -> Tensors:
    return _times(_right(everybody, rank), 1 / len(everybody))


def _last_only(inputs: PerRank, outputs: PerRank) -> bool:
    def last(everybody: list[Gradients], _: int) -> Tensors:
        return _mean([gradients[-1] for gradients in everybody])

    def scaled(everybody: list[Gradients], rank: int) -> Tensors:
        return _times(last(everybody, rank), 1 / len(everybody[rank]))

    return _looks_like(last)(inputs, outputs) or _looks_like(scaled)(inputs, outputs)


def _no_gradient(inputs: PerRank, outputs: PerRank) -> bool:
    names = [f"{window}/{name}" for window in WINDOWS for name in NAMES]
    return not any(name in mine and np.any(mine[name]) for mine in outputs for name in names)


def _same_divisor(inputs: PerRank, outputs: PerRank) -> bool:
    long_is_right = all_close(outputs, _outcome(inputs, _right, ("long",)))
    return long_is_right and not all_close(outputs, _expected(inputs))


def _count_is(outputs: PerRank, name: str, wanted: Callable[[int], int]) -> bool:
    return all(
        f"{window}/{name}" in mine and close(mine[f"{window}/{name}"], np.array(wanted(count)))
        for mine in outputs
        for window, count in WINDOWS.items()
    )


def _is_right(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, _expected(inputs))


def _never(inputs: PerRank, outputs: PerRank) -> bool:
    """Divided by the number of micro-batches, or not."""

    def added(everybody: list[Gradients], rank: int) -> Tensors:
        return _sum(everybody[rank])

    return _looks_like(_alone)(inputs, outputs) or _looks_like(added)(inputs, outputs)


def _one_backward(inputs: PerRank, outputs: PerRank) -> bool:
    together = not all_close(outputs, [_each_single(inputs) for _ in inputs])
    once = _count_is(outputs, "backwards", lambda _: 1)
    return _is_right(inputs, outputs) and (once or together)


def _by_hand(inputs: PerRank, outputs: PerRank) -> bool:
    return _is_right(inputs, outputs) and _count_is(outputs, "all_reduces", lambda _: 0)


def _every(inputs: PerRank, outputs: PerRank) -> bool:
    none_is_quiet = _count_is(outputs, "quiet", lambda _: 0)
    always = _count_is(outputs, "all_reduces", lambda k: k)
    return _is_right(inputs, outputs) and always and none_is_quiet


def _forward_outside(inputs: PerRank, outputs: PerRank) -> bool:
    none_is_quiet = _count_is(outputs, "quiet", lambda _: 0)
    return _count_is(outputs, "all_reduces", lambda k: k) and not none_is_quiet


EXERCISE = Exercise(
    name="ex07",
    stem="ex07_accumulate_without_syncing",
    function="accumulate",
    title="Accumulate without syncing",
    lesson="07",
    difficulty="medium",
    minutes=15,
    ranks=3,
    draw=_draw,
    moves=lambda ranks: (len(WINDOWS) + 1) * all_reduced(BALLAST, ranks),
    checks=(
        Check(
            id="gradient",
            title="each gradient is that of one process with all micro-batches of all ranks",
            why="accumulation should save memory and messages, and not change the training",
            points=3,
            expected=_expected,
            shown=("alone/weight", "long/weight"),
        ),
        Check(
            id="once",
            title="a backward for each micro-batch, and one all-reduce for the window",
            why="all averages but the last are thrown away; each costs a journey of all gradients",
            points=2,
            expected=_counts,
            most=lambda ranks: (len(WINDOWS) + 3) * all_reduced(BALLAST, ranks),
            shown=("micro_batches/long", "long/all_reduces"),
            depends=("gradient",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "no gradients": _no_gradient,
            "never synchronised": _never,
            "synchronised on the first": _looks_like(_first_only),
            "the last one left out of the average": _looks_like(_all_but_the_last),
            "sum instead of mean": _looks_like(_summed),
            "not divided by the number of micro-batches": _looks_like(_not_divided),
            "divided by the world size, too": _looks_like(_divided_by_ranks),
            "only the last micro-batch counts": _last_only,
            "the short window is not divided by its own length": _same_divisor,
            "averaged by hand": _by_hand,
            "every micro-batch synchronised": _every,
            "forward outside no_sync": _forward_outside,
            "one backward for the whole window": _one_backward,
        },
    ),
    errors={
        "has no attribute 'no_sync'": "no_sync belongs to the DDP wrapper: model.no_sync(), not "
        "model.module.no_sync().",
        "backward through the graph a second time": "The same loss went through backward() twice. "
        "Compute a new loss for each micro-batch.",
    },
    hang_hint="Every rank must synchronise equally often. Does your choice of the last micro-batch "
    "depend on anything but the number of micro-batches, which all ranks share?",
    calls=lambda inputs: len(WINDOWS) + 1,
    tiers=Tiers(
        question="When does DDP decide whether a backward is averaged, and in which of the "
        "micro-batches should it be?",
        api="with model.no_sync(): …; contextlib.nullcontext(); nn.functional.mse_loss(model(x), "
        "y).",
        skeleton="for i, (x, y) in enumerate(micro_batches):\n"
        "    last = …\n"
        "    with … if last else …:\n"
        "        loss = …                       # the forward inside as well\n"
        "        (loss / …).backward()",
    ),
)
