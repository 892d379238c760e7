"""What an exercise is, in data: its checks and points, its oracle, its known mistakes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    tolerance absolute; inputs are of order 1, float32 has 7 digits
    visible   whether a student sees it in the exports before the grades are out
    most      the most bytes that a right answer moves between that many ranks, where moving little
              is what is checked: a count that a rank reports could be anything (grading)
    """

    id: str
    title: str
    why: str
    points: int
    expected: Callable[[PerRank], PerRank]
    shown: tuple[str, str]
    depends: tuple[str, ...] = ()
    tolerance: float = 1e-5
    visible: bool = True
    most: Callable[[int], int] | None = None


@dataclass(frozen=True)
class Mistake:
    """A known wrong answer: how it is recognised, and the hint that it gets.

    recognise(inputs, outputs) → True if the ranks' outputs are those of this mistake. It is only
    asked when every rank has returned well-formed outputs and a check has failed.
    question   what `hint` asks after this mistake, before it points at anything; "" takes that of
               the exercise
    """

    name: str
    hint: str
    recognise: Callable[[PerRank, PerRank], bool]
    question: str = ""


def known(
    file: str, recognisers: Mapping[str, Callable[[PerRank, PerRank], bool]]
) -> tuple[Mistake, ...]:
    """The mistakes of the exercise in `file`: their texts are in `wrong/` beside it.

    Each wrong answer is the lines that a learner writes, below a docstring: the mistake's name, its
    hint and, if it has one of its own, the question; a second answer of the same mistake has the
    name only. The first recogniser that says True names the mistake.

    Raises ValueError if texts and recognisers do not have the same names.
    """
    texts: dict[str, list[str]] = {}
    for path in sorted(Path(file).with_name("wrong").glob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        name, *more = said.split("\n\n")
        if len(more) > 2 or (more and texts.get(name)):
            raise ValueError(f"{path}: a name, one hint and perhaps one question were expected")
        texts[name] = texts.get(name) or [" ".join(part.split()) for part in more]
    odd = texts.keys() ^ recognisers.keys() or {name for name in texts if not texts[name]}
    if odd:
        raise ValueError(f"{file}: these lack a text or a recogniser: {sorted(odd)}")
    return tuple(
        Mistake(name, texts[name][0], recognise, "".join(texts[name][1:]))
        for name, recognise in recognisers.items()
    )


@dataclass(frozen=True)
class Tiers:
    """What `hint` gives after the diagnosis, one step at a time; the solution comes last.

    question  leads to the idea without naming a function
    api       the functions to read about
    skeleton  the answer's lines with gaps, marked …
    """

    question: str
    api: str
    skeleton: str


def same(inputs: PerRank, outputs: PerRank) -> PerRank:
    """The outputs as they are."""
    return outputs


@dataclass(frozen=True)
class Exercise:
    """An exercise; `name` is short ("ex02"), `stem` is that of its files.

    lesson      the lesson that it belongs to, "02"
    difficulty  "easy", "medium" or "hard"
    minutes     that a learner may need
    derive      turns the ranks' outputs into what checks, mistakes and tables speak of
    calls       the fewest collectives, sends and receives that each rank must start inside the
                function (the learning mode's witness); None where nobody needs to communicate
    talks       whether a right answer must communicate: if so, grading asks for bytes as well
    moves       the fewest bytes that a right answer moves between that many ranks, from the inputs
                to the last answer, as counted on the network
    graded_ranks  how many ranks it is graded with: as another number than a learner's check has, an
                answer for that number only does not pass
    given       the lines between the marks of the stub; "" is the usual line, which raises
    """

    name: str
    stem: str
    function: str
    title: str
    lesson: str
    difficulty: str
    minutes: int
    ranks: int
    checks: tuple[Check, ...]
    draw: Callable[[np.random.Generator, int], PerRank]  # (random, ranks) → each rank's inputs
    mistakes: tuple[Mistake, ...]
    errors: Mapping[str, str]  # a fragment of "Type: text" of an exception → the hint that it gets
    hang_hint: str
    tiers: Tiers
    calls: Callable[[PerRank], int] | None
    restarts: int = 0  # torchrun's --max-restarts, where the driver kills ranks on purpose
    derive: Callable[[PerRank, PerRank], PerRank] = same
    talks: bool = True
    moves: Callable[[int], int] = lambda ranks: 0
    graded_ranks: int = 4
    given: str = ""

    @property
    def max_points(self) -> int:
        return sum(check.points for check in self.checks)


# Mistakes that any exercise knows, beside "not every rank makes the same calls" (its hang_hint).
LOOP, SILENT, STANDS = "a loop without end", "no collective", "the stub's raise"
HINTS = {
    LOOP: "A rank was not waiting but computing all the time. Which condition ends the loop that "
    "it is in?",
    STANDS: "The line `raise NotImplementedError` still stands in your file: take it away.",
    SILENT: "The ranks must tell each other by torch.distributed, and by nothing else.",
}

# What any exercise's function may raise, after the exercise's own `errors`.
ERRORS = {
    "not been initialized": "The process group already exists when your function is called: "
    "neither create nor destroy it.",
    "initialize the default process group twice": "The process group already exists when your "
    "function is called: neither create nor destroy it.",
    "positional argument": "The check calls your function as the stub defines it. Bring its `def` "
    "line back, or look at what you call with too many or too few arguments.",
    "unexpected keyword argument": "You call something with an argument that it does not have. "
    "Look at its name in the documentation.",
    "File too large": "Your lines print, or write to one file, more than a job may (8 MB or more). "
    "Print less; if it never ends, what ends the loop?",
    "can't allocate memory": "Your lines ask for more memory than a job may have.",
    "Resource temporarily unavailable": "Your lines start more processes or threads than a job may "
    "have.",
    "can't start new thread": "Your lines start more threads than a job may have.",
    "SIGABRT": "Gloo ends ranks so when they hand tensors of different sizes or types to the same "
    "collective. Compare their shapes and dtypes, rank by rank.",
    "preamble": "The ranks handed tensors of different sizes or types to the same collective. "
    "Compare their shapes and dtypes, rank by rank.",
    "EOF when reading a line": "Nobody sits at a rank to answer input(). Take it away; what your "
    "function needs comes as its arguments.",
    "BdbQuit": "breakpoint() needs a terminal, and a rank has none. Take it away, and print what "
    "you want to see: print(rank, value).",
    "SIGKILL": "Something killed it; on a machine that runs out of memory, the system does.",
    "SIGSEGV": "It crashed in compiled code, not in Python.",
    "exit code": "Leave your function by `return`: os._exit ends the whole rank.",
    "SystemExit": "Leave your function by `return`: exit ends the whole rank.",
    "invalid output tensor list": "A gather wants a list with one tensor for each rank: "
    "dist.get_world_size() of them. A number that is written there is right for one job only.",
    "invalid tensor size": "The tensors that you gave a collective do not fit each other. Compare "
    "their shapes: all_gather wants one of the same shape from each rank.",
    "module 'torch.distributed' has no attribute": "torch.distributed has nothing of that name. "
    "Look at the API line of the exercise: all_reduce, for instance, has an underscore.",
    "cannot be converted to Scalar": ".item(), float() and int() take a tensor of one element. "
    "Hand on the tensor itself.",
    "is not defined": "A name is used that nothing defines: a letter that differs, or an import "
    "that is missing?",
    "Connection closed by peer": "Another rank went away while this one waited for it. Is there "
    "anything in your lines that ends a process?",
}


def all_reduced(numbers: int, ranks: int) -> int:
    """The fewest bytes by which float32 numbers can be summed on all ranks: each rank but one
    sends what it has, and gets what comes of it."""
    return 2 * (ranks - 1) * 4 * numbers


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
