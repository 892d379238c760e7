"""What an exercise is, in data: its checks and points, its oracle, its known mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddp_course.checks.evidence import Array

Tensors = dict[str, Array]  # by name
PerRank = Sequence[Tensors]  # index = rank


@dataclass(frozen=True)
class Check:
    """One thing that a right answer does.

    id        short name, unique in the exercise
    title     what is checked, as a sentence
    why       why it matters, as a sentence
    points    what it is worth; the manifest alone decides
    depends   checks that must pass first, else this one is "blocked"
    expected  what each rank must report, from all ranks' inputs: one process, float64
    shown     the names of an input and an output to show side by side in the verdict's table
    """

    id: str
    title: str
    why: str
    points: int
    expected: Callable[[PerRank], PerRank]
    shown: tuple[str, str]
    depends: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer: how it is recognised, and the hint that it gets.

    recognise(inputs, outputs) → True if the ranks' outputs are those of this mistake. It is only
    asked when every rank has returned well-formed outputs and a check has failed.
    """

    name: str
    hint: str
    recognise: Callable[[PerRank, PerRank], bool]


@dataclass(frozen=True)
class Exercise:
    """An exercise; `name` is short ("ex02"), `stem` is that of its files."""

    name: str
    stem: str
    function: str
    title: str
    ranks: int
    checks: tuple[Check, ...]
    draw: Callable[[np.random.Generator, int], PerRank]  # (random, ranks) → each rank's inputs
    mistakes: tuple[Mistake, ...]
    errors: Mapping[str, str]  # a fragment of "Type: text" of an exception → the hint that it gets
    hang_hint: str
    restarts: int = 0  # torchrun's --max-restarts, where the driver kills ranks on purpose
    tolerance: float = 1e-5  # absolute; inputs are of order 1, float32 has 7 digits


def close(got: Array, expected: Array, tolerance: float = 1e-5) -> bool:
    """Same shape, and no element further than `tolerance` away; NaN is close to nothing."""
    return got.shape == expected.shape and bool(
        np.all(np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= tolerance)
    )


def all_close(got: PerRank, expected: PerRank, tolerance: float = 1e-5) -> bool:
    """Every expected tensor of every rank is there and close; further tensors do not matter."""
    return all(
        name in mine and close(mine[name], array, tolerance)
        for mine, wanted in zip(got, expected, strict=True)
        for name, array in wanted.items()
    )
