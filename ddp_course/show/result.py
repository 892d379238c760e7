"""How a run, its failure and its diagnosis look in a notebook; as text they say the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddp_course.disk import PACKAGE
from ddp_course.run.failure import Failure, counted, heading
from ddp_course.show.document import Block, Document, Fold, Line, Link, Listing, State, Strong

if TYPE_CHECKING:
    from ddp_course.diagnosis.kinds import Diagnosis
    from ddp_course.run.run import Run


def run_html(run: Run) -> str:
    """A run that has ended, as HTML."""
    return run_document(run).html()


def run_document(run: Run) -> Document:
    """A run that has ended: how, where it ran, the exact command, and its failure if it has one."""
    place = [str(e.get("why", "")) for e in run.events if e["event"] == "place"]
    failed = [] if run.failure is None else list(_failure(run.failure))
    return Document(
        Line(State(run.ended, run.summary())),
        *place[:1],
        Fold("the exact command", Listing(run.command)),
        *failed,
        name="ddp-run",
    )


def diagnosis_html(found: Diagnosis) -> str:
    """A diagnosis: the sentence, what to do, and the evidence folded."""
    said = Strong("Diagnosis", bad=not found.healthy)
    return Document(
        Line(said, f"({found.kind}):", Strong(found.sentence), look="large"),
        *_advice(found.remedy, found.lesson),
        *(Fold(title, Listing("\n".join(lines))) for title, lines in found.folded()),
        name="ddp-diagnosis",
    ).html()


def failure_html(failure: Failure) -> str:
    """A failure alone."""
    return Document(*_failure(failure)).html()


def _failure(failure: Failure) -> Iterator[Block]:
    """The cause first and largest, then what stands behind it; what merely followed is folded."""
    yield Line(Strong(f"{heading(failure)}: {failure.what}"), look="large")
    yield from _advice(failure.remedy, failure.lesson)
    if failure.consequences:
        told = [f"rank {rank}: {text}" for rank, text in failure.consequences.items()]
        yield Fold(f"what followed on {counted(len(told))}", *told)
    if failure.table:
        yield Fold("torchrun's own account", Listing(failure.table))
    if failure.traceback:
        yield Listing(failure.traceback.rstrip())
    if failure.where:
        yield Listing("\n".join(f"rank {rank} was {text}" for rank, text in failure.where.items()))


def _advice(remedy: str, lesson: str) -> Iterator[Block]:
    """What to do, and the lesson that teaches it: a link, where its notebook is."""
    if remedy:
        yield Line(Strong("What to do:"), remedy)
    if lesson:
        number, _, section = lesson.partition(" ")
        found = sorted((PACKAGE.parent / "notebooks").glob(f"{number}_*.ipynb"))
        if number.isdigit() and found:
            link = Link(lesson, f"{found[0].name}#{section.replace(' ', '-')}")
            yield Line(Strong("Lesson:"), link)
        else:
            yield Line(Strong("Lesson:"), lesson)
