"""ex14: a training that survives a kill, goes on with one rank more, sends half the bytes, and
counts every test sample once.

The oracle is one process with all the data, in float64. Gradients in bfloat16 have eight binary
digits, so weights may differ by TOLERANCE; every mistake leads much further away. How many test
samples are right depends on the last of these digits: it is judged by the weights that the ranks
have themselves (`derive`).
"""

from __future__ import annotations

import numpy as np

from ddp_course.checks.agreed import LEARNING_RATE, MOMENTUM, SAVED_BALLAST
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

STEPS, FEATURES, CLASSES = 9, 8, 4
FIRST = 3, 5  # the fewest and the most steps before the kill, less one
TOLERANCE = 0.02
WHOLE = 4 * (SAVED_BALLAST + FEATURES * CLASSES)  # bytes of the gradients in float32


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Global batches that divide by both world sizes, and a test set that divides by neither."""
    batch = ranks * (ranks - 1) * 2
    tests = 5 * ranks * (ranks - 1) + 1
    rule = random.normal(size=(CLASSES, FEATURES))
    x = random.normal(size=(STEPS * batch + tests, FEATURES)).astype(np.float32)
    y = (x @ rule.T).argmax(1)
    shared: Tensors = {
        "weight": random.normal(size=(CLASSES, FEATURES)).astype(np.float32),
        "steps": random.permutation(STEPS * batch).reshape(STEPS, batch),
        "first": np.array(int(random.integers(*FIRST))),
        "data/x": x[:-tests], "data/y": y[:-tests], "test/x": x[-tests:], "test/y": y[-tests:],
    }  # fmt: skip
    return [shared for _ in range(ranks)]


def _trained(inputs: PerRank, *parts: range, forget: str = "") -> Array:
    """The weights after the steps of each start: v = 0.9 v + gradient, weight -= 0.1 v.

    forget  "optimizer" or "model": which of the two begins anew with every start.
    """
    mine = inputs[0]
    weight = fresh = mine["weight"].astype(np.float64)
    velocity = np.zeros_like(weight)
    for steps in parts:
        weight = fresh if forget == "model" else weight
        velocity = np.zeros_like(weight) if forget == "optimizer" else velocity
        for step in steps:
            x = mine["data/x"][mine["steps"][step]].astype(np.float64)
            scores = np.exp(x @ weight.T)
            share = scores / scores.sum(1, keepdims=True)
            share[np.arange(len(x)), mine["data/y"][mine["steps"][step]]] -= 1
            velocity = MOMENTUM * velocity + share.T @ x / len(x)
            weight = weight - LEARNING_RATE * velocity
    result: Array = weight
    return result


def _parts(inputs: PerRank) -> tuple[range, range]:
    first = int(inputs[0]["first"])
    return range(first), range(first, STEPS)


def _derive(inputs: PerRank, outputs: PerRank) -> PerRank:
    """Beside the outputs: the samples of all ranks together, and how far the count of right test
    samples is from that of the ranks' own weights."""
    samples = np.sum([mine["samples"] for mine in outputs], axis=0)
    derived = []
    for given, mine in zip(inputs, outputs, strict=True):
        more: Tensors = {"all samples": samples}
        if mine["weight"].shape == given["weight"].shape and "right" in mine:
            guessed = (given["test/x"] @ mine["weight"].T).argmax(1)
            more["surplus"] = mine["right"] - (guessed == given["test/y"]).sum()
        sent = int(mine["bytes a step"])
        more["halved"] = np.array(int(0 < sent <= WHOLE // 2))
        derived.append({**mine, **more})
    return derived


def _rest(inputs: PerRank) -> PerRank:
    left, batch = len(_parts(inputs)[1]), inputs[0]["steps"].shape[1]
    return [{"forwards": np.array(left), "all samples": np.array(left * batch)} for _ in inputs]


def _uninterrupted(inputs: PerRank) -> PerRank:
    weight = _trained(inputs, range(STEPS))
    return [{"weight": weight, "writes": np.array(int(rank == 0))} for rank, _ in enumerate(inputs)]


def _counted(inputs: PerRank) -> PerRank:
    total = len(inputs[0]["test/y"])
    return [{"surplus": np.array(0), "total": np.array(total)} for _ in inputs]


def _halved(inputs: PerRank) -> PerRank:
    return [{"halved": np.array(1)} for _ in inputs]


def _each(outputs: PerRank, **wanted: int) -> bool:
    named = {name.replace("_", " "): np.array(value) for name, value in wanted.items()}
    return all_close(outputs, [named for _ in outputs])


def _ends_with(weight: Array, outputs: PerRank) -> bool:
    return all_close(outputs, [{"weight": weight} for _ in outputs], TOLERANCE)


def _from_zero(inputs: PerRank, outputs: PerRank) -> bool:
    return _each(outputs, forwards=STEPS)


def _whole_batch(inputs: PerRank, outputs: PerRank) -> bool:
    left, batch = len(_parts(inputs)[1]), inputs[0]["steps"].shape[1]
    return _each(outputs, all_samples=len(inputs) * left * batch)


def _no_optimizer(inputs: PerRank, outputs: PerRank) -> bool:
    return _ends_with(_trained(inputs, *_parts(inputs), forget="optimizer"), outputs)


def _no_model(inputs: PerRank, outputs: PerRank) -> bool:
    return _ends_with(_trained(inputs, *_parts(inputs), forget="model"), outputs)


def _one_twice(inputs: PerRank, outputs: PerRank) -> bool:
    return _each(outputs, forwards=len(_parts(inputs)[1]) + 1)


def _all_write(inputs: PerRank, outputs: PerRank) -> bool:
    return _each(outputs, writes=1)


def _local(inputs: PerRank, outputs: PerRank) -> bool:
    total = len(inputs[0]["test/y"])
    totals = [int(mine["total"]) for mine in outputs]
    return sum(totals) == total and all(one < total for one in totals)


def _everything_on_every_rank(inputs: PerRank, outputs: PerRank) -> bool:
    return _each(outputs, total=len(inputs[0]["test/y"]) * len(inputs))


def _padded(inputs: PerRank, outputs: PerRank) -> bool:
    total, ranks = len(inputs[0]["test/y"]), len(inputs)
    return _each(outputs, total=-(-total // ranks) * ranks)


def _rest_dropped(inputs: PerRank, outputs: PerRank) -> bool:
    total, ranks = len(inputs[0]["test/y"]), len(inputs)
    return _each(outputs, total=total // ranks * ranks)


def _in_full(inputs: PerRank, outputs: PerRank) -> bool:
    return _each(outputs, halved=0)


EXERCISE = Exercise(
    name="ex14",
    stem="ex14_capstone",
    function="train",
    title="Train, survive, save bytes, count once",
    lesson="14",
    difficulty="hard",
    minutes=30,
    ranks=3,
    restarts=1,
    draw=_draw,
    derive=_derive,
    moves=lambda ranks: (STEPS - FIRST[1]) * 2 * (ranks - 1) * WHOLE // 2,
    checks=(
        Check(
            id="rest",
            title="after the kill, only the missing steps are taken, each sample by one rank",
            why="steps and samples that are used twice train another model, and nothing says so",
            points=2,
            expected=_rest,
            shown=("first", "forwards"),
        ),
        Check(
            id="weights",
            title="with one rank more than before, the end is that of one undisturbed process",
            why="this is what lets a job go on with whatever machines are left",
            points=3,
            expected=_uninterrupted,
            shown=("weight", "weight"),
            depends=("rest",),
            tolerance=TOLERANCE,
        ),
        Check(
            id="bytes",
            title="the gradients travel in half the bytes",
            why="on a slow link the bytes are the step time",
            points=1,
            expected=_halved,
            # What all steps would move in half the bytes; those of the rest in full are more.
            most=lambda ranks: (STEPS - FIRST[0] + 2) * 2 * (ranks - 1) * WHOLE * 5 // 8,
            shown=("steps", "halved"),
            depends=("rest",),
        ),
        Check(
            id="counted",
            title="every test sample counts once, on every rank",
            why="a padded or a partial count is an accuracy of some other test set",
            points=2,
            expected=_counted,
            shown=("test/y", "total"),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "begins again at step 0": _from_zero,
            "every rank takes the whole batch": _whole_batch,
            "one step repeated": _one_twice,
            "optimizer forgotten": _no_optimizer,
            "model forgotten": _no_model,
            "every rank writes": _all_write,
            "gradients in full": _in_full,
            "only this rank's count": _local,
            "all ranks count everything": _everything_on_every_rank,
            "padded samples counted": _padded,
            "the rest not counted": _rest_dropped,
        },
    ),
    errors={
        "Missing key(s)": "The names do not fit: state_dict() of the DDP wrapper begins each name "
        "with `module.`. Use model.module in both places.",
        "FileNotFoundError": "In the first start there is no file yet: ask path.exists(). And two "
        "ranks that save cannot share one draft: the first os.replace takes it away.",
        "No backend type associated": "Counts are summed where the ranks meet: put the tensor on "
        "the device of the data before all_reduce.",
    },
    hang_hint="Every rank takes the same steps and the same sum of counts. Do all ranks load the "
    "same file and begin at the same step?",
    calls=lambda inputs: len(_parts(inputs)[1]),
    tiers=Tiers(
        question="Five lessons meet here. What does each of them add to a plain loop: sharing out, "
        "saving, going on, sending less, counting?",
        api="dist.get_rank(), dist.get_world_size(); model.register_comm_hook(None, "
        "bf16_compress_hook); torch.save, torch.load, os.replace, state_dict; dist.all_reduce.",
        skeleton="rank, world_size, done = …\n"
        "model.…                                # gradients as bfloat16\n"
        "if path.exists():\n"
        "    …                                  # model, optimizer, how many steps are done\n"
        "for step in range(done, len(steps)):\n"
        "    mine = steps[step][…]              # my share, for any world size\n"
        "    take_step(model, optimizer, data[0][mine], data[1][mine])\n"
        "    if rank == 0:\n"
        "        …                              # save beside it, then put it in place\n"
        "counts = …                             # right and total of my share of the test set\n"
        "dist.all_reduce(counts)",
    ),
)
