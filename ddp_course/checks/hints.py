"""Hints, one step at a time: what the mistake is, a question, the functions, a skeleton, an answer.

Which hint comes first depends on the kind of mistake that the last check found. Another mistake
begins at its own first hint again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec import structs

from ddp_course.checks import record
from ddp_course.checks.exercises import find
from ddp_course.checks.files import answer_lines
from ddp_course.checks.manifest import HINTS, Exercise
from ddp_course.checks.record import Entry
from ddp_course.show.document import Block, Document, Line, Listing, Note, Shown, Strong, Title

TITLES = ("What happened", "A question", "What to read about", "A skeleton", "The solution")
SOLUTION = len(TITLES)  # the tier that is only given after passing, or on request


@dataclass(frozen=True, repr=False)
class Hint(Shown):
    """The hints given so far; the newest comes last. It draws itself."""

    exercise: str
    title: str
    parts: tuple[tuple[str, str], ...]  # (heading, text)
    more: str  # what to do next

    def document(self) -> Document:
        body: list[Block] = []
        for heading, text in self.parts:
            shown = Listing(text) if heading in TITLES[3:] else text
            body += ["", Line(Strong(heading)), shown]
        title = Title(f"{self.exercise} {self.title}")
        return Document(title, *body, "", Note(self.more), name="ddp-hint")


def in_a_shell(text: str) -> str:
    """A text with what it offers as a shell's commands."""
    called = r'hint\("(\w+)", (more|solution)=True\)'
    return re.sub(called, r"python -m ddp_course hint \1 --\2", text)


def hint(exercise: str, *, more: bool = False, solution: bool = False) -> Hint:
    """A hint for an exercise, keyed by the mistake that its last check found.

    more      one step further than the last time
    solution  the answer's lines; without asking, they come when the exercise has passed

    Raises BadArgument for a name that no exercise has.
    """
    one = find(exercise)
    entry = record.progress().of(one.name)
    tiers = _tiers(one, entry)
    begun = entry.tier or bool(tiers[0][1])  # the verdict has said what happened
    tier = max(1, begun + more)
    tier = SOLUTION if solution or entry.passed else min(tier, SOLUTION - 1)
    if not tiers[0][1]:  # never checked, or nothing to say of it: begin with the question
        tiers = tiers[1:]
        tier = min(tier, len(tiers) - (0 if solution or entry.passed else 1))
    problem = record.change(one.name, lambda now: structs.replace(now, tier=tier))
    shown = tiers if solution or entry.passed else tiers[:tier]
    parts = tuple(part for part in shown if part[1])
    return Hint(one.name, one.title, parts, problem or _next(one, entry, parts[-1][0]))


def _tiers(exercise: Exercise, entry: Entry) -> list[tuple[str, str]]:
    known = next((m for m in exercise.mistakes if m.name == entry.kind), None)
    words = {
        **HINTS,
        "timeout": exercise.hang_hint,
        "not every rank makes the same calls": exercise.hang_hint,
    }
    diagnosis = f"It looks like: {known.name}. {known.hint}" if known else words.get(entry.kind, "")
    question = known.question if known and known.question else exercise.tiers.question
    answer = answer_lines(exercise)
    texts = (diagnosis, question, exercise.tiers.api, exercise.tiers.skeleton, answer)
    return list(zip(TITLES, texts, strict=True))


def _next(exercise: Exercise, entry: Entry, shown: str) -> str:
    if shown == TITLES[-1]:
        return f"{exercise.stem}.py in solutions/ is the whole file." + (
            "" if entry.passed else " Write it yourself before you check."
        )
    if shown == TITLES[-2]:
        return f'That is all but the solution: hint("{exercise.name}", solution=True)'
    return f'One step further: hint("{exercise.name}", more=True)'
