"""ex10: what was left of five jobs: what happened first, and on which rank.

The evidence is drawn as numbers, and the driver makes words of them: in each wreck exit codes and
errors by rank, and by rank and row the operation (-1: none) and its size. Nobody communicates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ddp_course.checks.evidence import Array
from ddp_course.checks.manifest import Check, Exercise, PerRank, Tensors, Tiers, all_close, known

KILLED, RAISED, MISSING, OPERATION, SIZE = range(5)
SILENT, CLOSED, LATE, OWN = range(4)  # from OWN on: an error of the rank's own
RANKS, ROWS = 4, 8
Rule = Callable[[Tensors, int], tuple[int, int]]  # (evidence, which wreck) → (kind, rank)


def _wreck(random: np.random.Generator, kind: int, rank: int) -> tuple[Array, ...]:
    """Codes and errors (RANKS,), operations and sizes (RANKS, ROWS) of one wreck."""
    last = int(random.integers(2, ROWS))  # the row in which it happens
    operations = np.repeat(random.integers(0, 3, (1, ROWS)), RANKS, axis=0)
    sizes = np.repeat(random.choice([4, 16, 100], (1, ROWS)), RANKS, axis=0)
    operations[:, last + 1 :] = -1
    codes, errors = np.full(RANKS, 1), np.full(RANKS, LATE)
    if kind in (KILLED, RAISED, SIZE):
        errors[:] = CLOSED
    if kind == KILLED:
        codes[rank], errors[rank], operations[rank] = -9, SILENT, -1
    if kind == RAISED:
        errors[rank], operations[rank, last] = random.integers(OWN, OWN + 3), -1
    if kind == MISSING:
        codes[rank], errors[rank], operations[rank, last] = -15, SILENT, -1
    if kind == OPERATION:
        operations[rank, last] = (operations[rank, last] + 1) % 3
    if kind == SIZE:
        sizes[rank, last] += 1
        victim = (rank + int(random.integers(1, RANKS))) % RANKS
        codes[victim], errors[victim] = -6, SILENT
    return codes, errors, operations, sizes


def _draw(random: np.random.Generator, ranks: int) -> PerRank:
    """Each kind once, in any order. In one of the last two rank 0 is at fault, as an answer that
    compares the others with it must not pass; in the others it is not."""
    kinds = random.permutation(5)
    at_fault = random.integers(1, RANKS, 5)
    at_fault[kinds == random.choice([OPERATION, SIZE])] = 0
    wrecks = [_wreck(random, k, r) for k, r in zip(kinds.tolist(), at_fault.tolist(), strict=True)]
    names = ("codes", "errors", "operations", "sizes")
    shared = {
        name: np.stack(one) for name, one in zip(names, zip(*wrecks, strict=True), strict=True)
    }
    return [shared for _ in range(ranks)]


def _calls(evidence: Tensors, which: int) -> list[list[tuple[int, int]]]:
    """The ledger of each rank."""
    both = zip(evidence["operations"][which], evidence["sizes"][which], strict=True)
    return [[(int(o), int(n)) for o, n in zip(*one, strict=True) if o >= 0] for one in both]


def _right(evidence: Tensors, which: int) -> tuple[int, int]:
    codes, errors = evidence["codes"][which].tolist(), evidence["errors"][which].tolist()
    if -9 in codes:
        return KILLED, codes.index(-9)
    if max(errors) >= OWN:
        return RAISED, errors.index(max(errors))
    ledgers = _calls(evidence, which)
    lengths = [len(ledger) for ledger in ledgers]
    if min(lengths) < max(lengths):
        return MISSING, lengths.index(min(lengths))
    row = next(row for row in zip(*ledgers, strict=True) if len(set(row)) > 1)
    rank = next(r for r in range(RANKS) if row.count(row[r]) == 1)
    return (SIZE if row[rank][0] == row[rank - 1][0] else OPERATION), rank


def _first_error(evidence: Tensors, which: int) -> tuple[int, int]:
    """Whoever said something first is at fault."""
    errors = evidence["errors"][which].tolist()
    return RAISED, next(r for r in range(RANKS) if errors[r] != SILENT)


def _signal_blamed(evidence: Tensors, which: int) -> tuple[int, int]:
    """Any rank that a signal ended is taken for the one at fault."""
    codes = evidence["codes"][which].tolist()
    return (KILLED, codes.index(min(codes))) if min(codes) < 0 else _right(evidence, which)


def _against_rank_0(evidence: Tensors, which: int) -> tuple[int, int]:
    """The first rank that differs from rank 0, even if rank 0 is the odd one."""
    kind, rank = _right(evidence, which)
    return kind, 1 if kind in (OPERATION, SIZE) and rank == 0 else rank


def _size_not_told(evidence: Tensors, which: int) -> tuple[int, int]:
    kind, rank = _right(evidence, which)
    return OPERATION if kind == SIZE else kind, rank


def _ledgers_first(evidence: Tensors, which: int) -> tuple[int, int]:
    """A short ledger is taken for the cause, also of a rank that was killed or raised."""
    lengths = [len(ledger) for ledger in _calls(evidence, which)]
    short = min(lengths) < max(lengths)
    return (MISSING, lengths.index(min(lengths))) if short else _right(evidence, which)


def _rank_0(evidence: Tensors, which: int) -> tuple[int, int]:
    return _right(evidence, which)[0], 0


def _answers(inputs: PerRank, rule: Rule) -> PerRank:
    said = [[rule(mine, which) for which in range(5)] for mine in inputs]
    return [
        {"kind": np.array([k for k, _ in one]), "rank": np.array([r for _, r in one])}
        for one in said
    ]


def _only(name: str) -> Callable[[PerRank], PerRank]:
    return lambda inputs: [{name: mine[name]} for mine in _answers(inputs, _right)]


def _follows(rule: Rule) -> Callable[[PerRank, PerRank], bool]:
    return lambda inputs, outputs: all_close(outputs, _answers(inputs, rule))


def _nothing_returned(inputs: PerRank, outputs: PerRank) -> bool:
    return not all(outputs)


def _always_one(inputs: PerRank, outputs: PerRank) -> bool:
    return all(outputs) and all(
        len(set(zip(o["kind"].tolist(), o["rank"].tolist(), strict=True))) == 1 for o in outputs
    )


EXERCISE = Exercise(
    name="ex10",
    stem="ex10_classify_wrecks",
    function="classify",
    title="Classify wrecks",
    lesson="10",
    difficulty="medium",
    minutes=20,
    ranks=3,
    draw=_draw,
    checks=(
        Check(
            id="kind",
            title="what happened first is told from what follows from it",
            why="the loudest error is seldom the first",
            points=3,
            expected=_only("kind"),
            shown=("codes", "kind"),
        ),
        Check(
            id="rank",
            title="the rank at fault is named",
            why="that is the rank whose log and whose code you open next",
            points=2,
            expected=_only("rank"),
            shown=("codes", "rank"),
            depends=("kind",),
        ),
    ),
    mistakes=known(
        __file__,
        {
            "no answer returned": _nothing_returned,
            "the first error blamed": _follows(_first_error),
            "a short ledger blamed first": _follows(_ledgers_first),
            "any signal taken for a kill": _follows(_signal_blamed),
            "rank 0 taken for right": _follows(_against_rank_0),
            "size taken for operation": _follows(_size_not_told),
            "rank 0 always named": _follows(_rank_0),
            "one answer for all": _always_one,
        },
    ),
    errors={
        "zip() argument": "The ledgers have different lengths: that is a finding of its own. Ask "
        "for it before you go through them row by row.",
    },
    hang_hint="No rank needs to wait for another here: all that there is to know is in the wreck.",
    calls=None,
    talks=False,
    tiers=Tiers(
        question="Which of the marks were made by the rank at fault itself, and which were made by "
        "the others because of it?",
        api="-9 in codes, codes.index(-9); enumerate(errors); zip(*ledgers, strict=True); "
        "row.count(call) == 1.",
        skeleton="if …:                                  # a rank was killed\n"
        "    return …\n"
        "own = […]                              # for each rank: is its error its own?\n"
        "if any(own):\n"
        "    return …\n"
        "lengths = …                            # how many calls each rank made\n"
        "if …:                                  # one made fewer\n"
        "    return …\n"
        "row = …                                # the first row with two different calls\n"
        "rank = …                               # who made the call that nobody else made\n"
        "return …",
    ),
)
