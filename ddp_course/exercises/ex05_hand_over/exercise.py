"""ex05: one model on two ranks: hand the output forward and the gradient back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.agreed import BALLAST
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tensors, Tiers, all_close, known

SAMPLES, WIDTH = 4, 3
WHEN = ("first", "both")  # after the first micro-batch, and after both
NAMES = ("0.weight", "0.bias")


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Every rank has layers of its own; `data` are inputs on rank 0 and targets on rank 1."""
    shapes = {
        "weight/0.weight": (WIDTH, WIDTH),
        "weight/0.bias": (WIDTH,),
        **{f"data/{when}": (SAMPLES, WIDTH) for when in WHEN},
        "data/bulk": (BALLAST // WIDTH, WIDTH),  # a step of its own
    }
    return [
        {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(ranks)
    ]


def _same(array: Array) -> Array:
    return array


def _step(
    inputs: PerRank,
    when: str,
    hand_on: Callable[[Array], Array] = _same,
    hand_back: Callable[[Array], Array] = _same,
) -> list[list[Array]]:
    """Each rank's gradients of one micro-batch, weight and bias, in one process and float64.

    hand_on, hand_back: what becomes of rank 0's output, and of its gradient, on the way.
    """
    weights = [mine["weight/0.weight"].astype(np.float64) for mine in inputs]
    biases = [mine["weight/0.bias"].astype(np.float64) for mine in inputs]
    x, target = (mine[f"data/{when}"].astype(np.float64) for mine in inputs)
    hidden = np.tanh(x @ weights[0].T + biases[0])
    received = hand_on(hidden)
    output = np.tanh(received @ weights[1].T + biases[1])
    top = 2 * (output - target) / output.size * (1 - output**2)
    bottom = hand_back(top @ weights[1]) * (1 - hidden**2)
    return [[bottom.T @ x, bottom.sum(0)], [top.T @ received, top.sum(0)]]


def _named(when: str, gradients: list[Array]) -> Tensors:
    return {f"{when}/{name}": g for name, g in zip(NAMES, gradients, strict=True)}


def _first(inputs: PerRank) -> PerRank:
    return [_named("first", gradients) for gradients in _step(inputs, "first")]


def _both(inputs: PerRank) -> PerRank:
    pairs = zip(_step(inputs, "first"), _step(inputs, "both"), strict=True)
    return [
        _named("both", [one + two for one, two in zip(first, second, strict=True)])
        | _named("bulk", bulk)
        for (first, second), bulk in zip(pairs, _step(inputs, "bulk"), strict=True)
    ]


def _bottom_missing(inputs: PerRank, outputs: PerRank) -> bool:
    return "first/0.weight" not in outputs[0] and all_close(outputs[1:], _first(inputs)[1:])


def _top_missing(inputs: PerRank, outputs: PerRank) -> bool:
    return "first/0.weight" not in outputs[1]


def _back_with(change: Callable[[Array], Array]) -> Callable[[PerRank, PerRank], bool]:
    def recognise(inputs: PerRank, outputs: PerRank) -> bool:
        return all_close(
            outputs, [_named("first", g) for g in _step(inputs, "first", hand_back=change)]
        )

    return recognise


def _empty_buffer(inputs: PerRank, outputs: PerRank) -> bool:
    wanted = _named("first", _step(inputs, "first", hand_on=np.zeros_like)[1])
    return all_close(outputs[1:], [wanted])


def _inputs_handed_on(inputs: PerRank, outputs: PerRank) -> bool:
    x = inputs[0]["data/first"].astype(np.float64)
    wanted = _named("first", _step(inputs, "first", hand_on=lambda _: x)[1])
    return all_close(outputs[1:], [wanted])


def _mixed(inputs: PerRank, outputs: PerRank) -> bool:
    bottom, top = _step(inputs, "first")
    total = [one + two for one, two in zip(bottom, top, strict=True)]
    return any(
        all_close(outputs, [_named("first", [g * factor for g in total])] * 2)
        for factor in (1.0, 0.5)
    )


def _halved(inputs: PerRank, outputs: PerRank) -> bool:
    wanted = [_named("first", [g / 2 for g in mine]) for mine in _step(inputs, "first")]
    return all_close(outputs, wanted)


def _summed(inputs: PerRank, outputs: PerRank) -> bool:
    size = inputs[0]["data/first"].size
    wanted = [_named("first", [g * size for g in mine]) for mine in _step(inputs, "first")]
    return all_close(outputs, wanted, tolerance=1e-4)


def _last_one_only(inputs: PerRank, outputs: PerRank) -> bool:
    second = _step(inputs, "both")
    return any(
        all_close([mine], [_named("both", gradients)])
        for mine, gradients in zip(outputs, second, strict=True)
    )


EXERCISE = Exercise(
    name="ex05",
    stem="ex05_hand_over",
    function="train_step",
    title="Hand over between two stages",
    lesson="05",
    difficulty="hard",
    minutes=20,
    ranks=2,
    graded_ranks=2,  # two stages
    draw=_draw,
    moves=lambda ranks: 2 * 4 * (BALLAST // WIDTH * WIDTH),
    checks=(
        Check(
            id="first",
            title="each rank has the gradients that one process with the whole model gets",
            why="a cut in the middle of a model must not change what it learns",
            points=3,
            expected=_first,
            shown=("weight/0.weight", "first/0.weight"),
        ),
        Check(
            id="both",
            title="the gradients of a second micro-batch are added to those of the first",
            why="a pipeline's step has many micro-batches, and one optimizer step for all of them",
            points=1,
            expected=_both,
            shown=("weight/0.weight", "both/0.weight"),
            depends=("first",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "rank 0 never goes back": _bottom_missing,
            "rank 1 never goes back": _top_missing,
            "rank 0 goes back with ones": _back_with(np.ones_like),
            "rank 0 goes back with zeros": _back_with(np.zeros_like),
            "rank 1 computes with zeros": _empty_buffer,
            "the inputs are handed on": _inputs_handed_on,
            "the ranks' gradients are mixed": _mixed,
            "sum instead of mean": _summed,
            "halved": _halved,
            "only the last micro-batch counts": _last_one_only,
        },
    ),
    errors={
        "NoneType": "hidden.grad is None on rank 1 unless hidden.requires_grad_() was called "
        "before stage(hidden): what was received is not part of any graph.",
        "does not require grad": "What you call backward() on has no graph. On rank 0 it must be "
        "stage(data) itself, not its detached copy.",
        "only for scalar outputs": "hidden is no scalar, so backward needs the gradient that rank "
        "1 sent: hidden.backward(gradient).",
    },
    hang_hint="Each send needs a recv on the other side, in the same order: rank 0 sends, then "
    "receives; rank 1 receives, then sends.",
    calls=lambda inputs: 6,  # a send and a receive in each of three calls
    tiers=Tiers(
        question="Autograd ends where a tensor leaves the process. What must each rank tell the "
        "other so that backward can go on there?",
        api="dist.send(tensor, dst=rank), dist.recv(tensor, src=rank); tensor.detach(); "
        "tensor.requires_grad_(); hidden.backward(gradient).",
        skeleton="if dist.get_rank() == 0:\n"
        "    hidden = stage(data)\n"
        "    dist.send(…, dst=1)\n"
        "    gradient = torch.empty_like(hidden)\n"
        "    …                                  # receive, then go back\n"
        "else:\n"
        "    hidden = torch.empty_like(data)\n"
        "    …                                  # receive; its gradient will be needed\n"
        "    nn.functional.mse_loss(…).backward()\n"
        "    dist.send(…, dst=0)",
    ),
)
