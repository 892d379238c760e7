"""ex04: a training that saves and resumes exactly, called in two processes: in between a rank is
killed, so nothing but a file is left of the first call.

The step is that of a linear layer under DDP, with momentum, and it draws one random number, as
dropout would. The oracle is one process that is never interrupted, with all ranks' batches.
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
    all_reduced,
    known,
)

BATCHES, SIZE, FEATURES = 7, 4, 3  # 7 is prime: saving every second step misses the last
MOST_FIRST = 3  # steps before the interruption


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """`first` steps are taken before the interruption; seeds are another on each rank."""
    seeds = random.choice(2**31, size=(2, ranks), replace=False)
    shared: Tensors = {
        "first": np.array(int(random.integers(2, MOST_FIRST + 1)), dtype=np.int64),
        "weight": random.normal(size=(1, FEATURES)).astype(np.float32),
        "fresh_weight": random.normal(size=(1, FEATURES)).astype(np.float32),
    }
    return [
        shared
        | {
            "x": random.normal(size=(BATCHES, SIZE, FEATURES)).astype(np.float32),
            "y": random.normal(size=(BATCHES, SIZE)).astype(np.float32),
            "seed": seeds[0, rank : rank + 1].astype(np.int64),
            "fresh_seed": seeds[1, rank : rank + 1].astype(np.int64),
        }
        for rank in range(ranks)
    ]


def _first(inputs: PerRank) -> int:
    return int(inputs[0]["first"])


def _trained(
    inputs: PerRank, weight: Array, momentum: Array, begin: int, end: int
) -> tuple[Array, Array]:
    """Weight and momentum after the steps begin … end - 1: SGD as torch defines it, in float64."""
    for step in range(begin, end):
        gradients = []
        for mine in inputs:
            x, y = mine["x"][step].astype(np.float64), mine["y"][step].astype(np.float64)
            gradients.append(2 / SIZE * (x @ weight[0] - y) @ x)
        momentum = MOMENTUM * momentum + np.mean(gradients, axis=0)[None]
        weight = weight - LEARNING_RATE * momentum
    return weight, momentum


def _start(inputs: PerRank, name: str = "weight") -> tuple[Array, Array]:
    weight = inputs[0][name].astype(np.float64)
    return weight, np.zeros_like(weight)


def _draws(seed: Array, begin: int, end: int) -> Array:
    """The numbers begin … end - 1 of torch.rand, which takes 24 bits of each number of MT19937."""
    raw = np.random.RandomState(int(seed[0])).randint(0, 2**32, size=end, dtype=np.uint32)
    drawn: Array = ((raw & 0xFFFFFF) * 2.0**-24).astype(np.float32)[begin:]
    return drawn


def _steps(inputs: PerRank) -> PerRank:
    left = np.array(BATCHES - _first(inputs), dtype=np.int64)
    return [{"steps": left, "further": np.array(0)} for _ in inputs]


def _state(inputs: PerRank) -> PerRank:
    weight, momentum = _trained(inputs, *_start(inputs), 0, BATCHES)
    return [{"weight": weight, "momentum": momentum} for _ in inputs]


def _random(inputs: PerRank) -> PerRank:
    drawn = [_draws(mine["seed"], _first(inputs), BATCHES) for mine in inputs]
    return [{"draws": mine, "next": mine[:1]} for mine in drawn]


def _steps_are(steps: int, outputs: PerRank) -> bool:
    return all_close(outputs, [{"steps": np.array(steps)} for _ in outputs])


def _weight_is(weight: Array, outputs: PerRank) -> bool:
    return all_close(outputs, [{"weight": weight} for _ in outputs])


def _draws_are(drawn: list[Array], outputs: PerRank) -> bool:
    return all_close(outputs, [{"draws": mine} for mine in drawn])


def _nothing_saved(inputs: PerRank, outputs: PerRank) -> bool:
    return all_close(outputs, [{"saved": np.array(0)} for _ in outputs])


def _all_again(inputs: PerRank, outputs: PerRank) -> bool:
    return _steps_are(BATCHES, outputs)


def _saved_before(inputs: PerRank, outputs: PerRank) -> bool:
    right = {"steps": np.array(BATCHES - _first(inputs)), "further": np.array(1)}
    return all_close(outputs, [right for _ in outputs])


def _one_left_out(inputs: PerRank, outputs: PerRank) -> bool:
    return _steps_are(BATCHES - _first(inputs) - 1, outputs)


def _one_twice(inputs: PerRank, outputs: PerRank) -> bool:
    return _steps_are(BATCHES - _first(inputs) + 1, outputs)


def _none_left(inputs: PerRank, outputs: PerRank) -> bool:
    return _steps_are(0, outputs)


def _no_weights(inputs: PerRank, outputs: PerRank) -> bool:
    first = _first(inputs)
    _, momentum = _trained(inputs, *_start(inputs), 0, first)
    fresh, zero = _start(inputs, "fresh_weight")
    return any(
        _weight_is(_trained(inputs, fresh, start, first, BATCHES)[0], outputs)
        for start in (momentum, zero)
    )


def _no_optimizer(inputs: PerRank, outputs: PerRank) -> bool:
    first = _first(inputs)
    weight, momentum = _trained(inputs, *_start(inputs), 0, first)
    cold = _trained(inputs, weight, np.zeros_like(momentum), first, BATCHES)[0]
    return _weight_is(cold, outputs)


def _no_random(inputs: PerRank, outputs: PerRank) -> bool:
    left = BATCHES - _first(inputs)
    return _draws_are([_draws(mine["fresh_seed"], 0, left) for mine in inputs], outputs)


def _rank_0_random(inputs: PerRank, outputs: PerRank) -> bool:
    mine = _draws(inputs[0]["seed"], _first(inputs), BATCHES)
    return _draws_are([mine for _ in inputs], outputs)


def _random_too_early(inputs: PerRank, outputs: PerRank) -> bool:
    first = _first(inputs)
    return _draws_are([_draws(mine["seed"], first - 1, BATCHES - 1) for mine in inputs], outputs)


EXERCISE = Exercise(
    name="ex04",
    stem="ex04_resume_exactly",
    function="train",
    title="Resume exactly",
    lesson="04",
    difficulty="hard",
    minutes=25,
    ranks=3,
    restarts=1,
    draw=_draw,
    moves=lambda ranks: (BATCHES - MOST_FIRST) * all_reduced(SAVED_BALLAST, ranks),
    checks=(
        Check(
            id="steps",
            title="after the interruption the steps that were left are taken, then no other",
            why="a repeated batch counts twice and a skipped one never, and nothing says so",
            points=1,
            expected=_steps,
            shown=("first", "steps"),
        ),
        Check(
            id="state",
            title="weights and momentum are those of a run that was never interrupted",
            why="the optimizer's memory is part of the training: without it the next steps differ",
            points=2,
            expected=_state,
            shown=("weight", "weight"),
            depends=("steps",),
            tolerance=5e-5,  # float32 is off by 3e-6 at most in 12,000 draws
        ),
        Check(
            id="random",
            title="each rank's random numbers continue where they were",
            why="dropout and augmentation draw from them, on every rank from another state",
            points=2,
            expected=_random,
            shown=("seed", "next"),
            depends=("state",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "nothing saved": _nothing_saved,
            "every batch again": _all_again,
            "saved before the step": _saved_before,
            "one batch left out": _one_left_out,
            "one batch twice": _one_twice,
            "the rest left out": _none_left,
            "weights not loaded": _no_weights,
            "optimizer forgotten": _no_optimizer,
            "random state forgotten": _no_random,
            "rank 0's random state everywhere": _rank_0_random,
            "random state of the step before": _random_too_early,
        },
    ),
    errors={
        "Missing key(s)": "The names do not fit: state_dict() of the DDP wrapper begins each name "
        "with `module.`. Use model.module in both places.",
        "KeyError": "The checkpoint has no such entry; load() gives {} where there is none yet. "
        "Look for the same name in what you save.",
        "Weights only load failed": "Only tensors and plain Python can be read back: save "
        "state_dict(), not the model or the optimizer itself.",
        "RNG state must be": "set_rng_state takes one rank's state; random_states() is a list of "
        "all of them.",
    },
    hang_hint="save() and random_states() wait for all ranks. Is there an `if rank == …` around "
    "one of them?",
    calls=lambda inputs: BATCHES - _first(inputs),
    tiers=Tiers(
        question="Make a list of everything that the next step depends on. Which of these does a "
        "fresh process not have?",
        api="load(path), save(path, dict), random_states(); model.module.state_dict(), "
        "optimizer.state_dict() and their load_state_dict; torch.set_rng_state(state).",
        skeleton="saved = load(path)\n"
        "if saved:\n"
        "    …                                  # model, optimizer, this rank's random state\n"
        "for step in range(…, len(batches)):\n"
        "    take_step(batches[step])\n"
        "    save(path, {…})                    # all of it, and how many steps are done",
    ),
)
