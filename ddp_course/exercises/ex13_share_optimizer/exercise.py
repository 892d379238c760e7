"""ex13: ZeRO's first stage by hand. Whoever owns which parameter, `derive` looks at all of them."""

from __future__ import annotations

import numpy as np

from ddp_course.checks.agreed import LEARNING_RATE, SAVED_BALLAST
from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tensors, Tiers, all_close, known

STEPS, SAMPLES, BLOCKS, FEATURES = 3, 4, 6, 3
BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01  # torch.optim.AdamW's defaults


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """The weights are the same on all ranks, the data are not."""
    weights = random.normal(size=(BLOCKS, FEATURES)).astype(np.float32)
    return [
        {
            "weights": weights,
            "x": random.normal(size=(STEPS, SAMPLES, BLOCKS, FEATURES)).astype(np.float32),
            "y": random.normal(size=(STEPS, SAMPLES)).astype(np.float32),
        }
        for _ in range(ranks)
    ]


def _trained(inputs: PerRank, shared: bool = True) -> list[Array]:
    """Each rank's weights after AdamW over all data, float64.

    shared  False: after a step, each rank keeps its own parameters' update to itself
    """
    copies = [inputs[0]["weights"].astype(np.float64) for _ in inputs]
    first, second = np.zeros_like(copies[0]), np.zeros_like(copies[0])
    own = np.arange(BLOCKS) % len(inputs)
    for step in range(STEPS):
        gradients = []
        for mine, weights in zip(inputs, copies, strict=True):
            x, y = (mine[name][step].astype(np.float64) for name in ("x", "y"))
            error = np.einsum("skf,kf->s", x, weights) - y
            gradients.append(2 / SAMPLES * np.einsum("s,skf->kf", error, x))
        gradient = np.mean(gradients, axis=0)
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        m, v = first / (1 - BETAS[0] ** (step + 1)), second / (1 - BETAS[1] ** (step + 1))
        for rank, weights in enumerate(copies):
            new = weights * (1 - LEARNING_RATE * DECAY) - LEARNING_RATE * m / (v**0.5 + EPSILON)
            copies[rank] = np.where((shared | (own == rank))[:, None], new, weights)
    return copies


def _derive(inputs: PerRank, outputs: PerRank) -> PerRank:
    """owners: of each parameter, the last included, how many ranks have its state."""
    owners = np.sum([mine["held"] for mine in outputs], axis=0)
    counts = [mine["held"].sum() for mine in outputs]
    even = np.array(int(np.ptp(counts) <= 1))
    return [mine | {"owners": owners, "even": even} for mine in outputs]


def _weights(inputs: PerRank) -> PerRank:
    return [{"weights": weights} for weights in _trained(inputs)]


def _shares(inputs: PerRank) -> PerRank:
    once = np.ones(BLOCKS + 1, dtype=np.int64)
    return [{"owners": once, "even": np.array(1)} for _ in inputs]


def _everything(inputs: PerRank, outputs: PerRank) -> bool:
    every: Tensors = {"owners": np.full(BLOCKS + 1, len(inputs))}
    return all_close(outputs, [every for _ in inputs])


def _unchanged(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, [{"weights": mine["weights"]} for mine in inputs])


def _moved(inputs: PerRank, outputs: PerRank) -> Array:
    """Which parameters have changed, (ranks, BLOCKS)."""
    start = inputs[0]["weights"]
    moved: Array = np.array([np.abs(mine["weights"] - start).max(1) > 1e-6 for mine in outputs])
    return moved


def _kept(inputs: PerRank, outputs: PerRank) -> bool:
    """Each parameter has changed on one rank only."""
    return bool((_moved(inputs, outputs).sum(0) == 1).all())


def _same_on_all(outputs: PerRank) -> bool:
    return all_close(outputs, [{"weights": outputs[0]["weights"]} for _ in outputs])


def _from_one_rank(inputs: PerRank, outputs: PerRank) -> bool:
    """Equal everywhere, and only some of the parameters have moved."""
    moved = _moved(inputs, outputs)
    return _same_on_all(outputs) and bool(moved.any()) and not bool(moved.all())


EXERCISE = Exercise(
    name="ex13",
    stem="ex13_share_optimizer",
    function="train",
    title="Share out the optimizer",
    lesson="13",
    difficulty="medium",
    minutes=15,
    ranks=3,
    draw=_draw,
    derive=_derive,
    # The gradients all-reduced, and every parameter sent by its owner.
    moves=lambda ranks: STEPS * 3 * (ranks - 1) * 4 * SAVED_BALLAST,
    checks=(
        Check(
            id="weights",
            title="every rank ends with the weights of one AdamW over all parameters",
            why="sharing out the state must not change what is learned",
            points=3,
            expected=_weights,
            shown=("weights", "weights"),
            tolerance=1e-4,
        ),
        Check(
            id="shares",
            title="each parameter's state is on one rank only, in even shares",
            why="AdamW's state is twice the model: that is what ZeRO saves",
            points=2,
            expected=_shares,
            shown=("weights", "owners"),
            depends=("weights",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "every rank keeps everything": _everything,
            "updates not shared": _kept,
            "sent by the wrong rank": _unchanged,
            "everything sent by one rank": _from_one_rank,
        },
    ),
    errors={
        "optimizer got an empty parameter list": "A rank got no parameter. parameters[rank::"
        "world_size] gives every rank some, if there are enough.",
        "leaf Variable that requires grad": "broadcast changes the parameter in place: give it "
        "parameter.data, or do it under torch.no_grad().",
    },
    hang_hint="Every rank takes part in the broadcast of every parameter, its own and the others'. "
    "Is there an `if rank == …` around yours?",
    calls=lambda inputs: 2 * STEPS,
    tiers=Tiers(
        question="After optimizer.step(), which parameters of this rank are up to date, and who "
        "has the others?",
        api="parameters[rank::world_size]; make_optimizer(parameters); optimizer.step(); "
        "dist.broadcast(parameter.data, src=owner).",
        skeleton="optimizer = make_optimizer(…)          # for this rank's share\n"
        "for x, y in batches:\n"
        "    …                                  # zero_grad, forward, backward\n"
        "    optimizer.step()\n"
        "    for number, parameter in enumerate(parameters):\n"
        "        dist.broadcast(parameter.data, src=…)",
    ),
)
