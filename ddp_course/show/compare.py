"""compare({…}, "loss"): several runs in one table. table(run, "step", "loss"): the rows of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_course.errors import BadArgument, NoEvidence
from ddp_course.run.run import check_run
from ddp_course.show.document import Document, Rank, Shown, Table, Words

if TYPE_CHECKING:
    from ddp_course.run.run import Run


def compare(runs: Mapping[str, Run], *names: str, rank: int = 0) -> Comparison:
    """A table of runs: what `rank` reported last under each name; "–" if it reported nothing.

    runs: what to call a run → the run. Waits for all of them to end.
    Raises BadArgument without runs or names, and NoEvidence for a name that no run reported.
    """
    if not isinstance(runs, Mapping) or not runs or not names:
        raise BadArgument(
            "There is nothing to compare.", action='compare({"two ranks": run}, "loss")'
        )
    for run in runs.values():
        check_run(run)
    rows = {label: tuple(_last(run, name, rank) for name in names) for label, run in runs.items()}
    for i, name in enumerate(names):
        if all(values[i] is None for values in rows.values()):
            raise NoEvidence(
                f"No run reported {name!r} on rank {rank}.",
                cause="another name, or all of them ended before it",
                action="see run.metrics of one of them",
            )
    return Comparison(names, rows)


def table(run: Run, *names: str, rank: int | None = 0) -> Rows:
    """A row for each time that `rank` (None: each rank) reported the first name, with the others.

    Waits for the run to end. Raises NoEvidence if the first name was never reported.
    """
    if not names:
        raise BadArgument("There are no columns.", action='table(run, "step", "loss")')
    check_run(run)
    reported = [one for one in run.metrics if names[0] in one and rank in (None, one["rank"])]
    if not reported:
        run.value(names[0], rank or 0)  # says what there is
    ranks = tuple(one["rank"] for one in reported) if rank is None else ()
    return Rows(names, tuple(tuple(one.get(name) for name in names) for one in reported), ranks)


@dataclass(frozen=True, repr=False)
class Rows(Shown):
    """What a run reported, row by row; `ranks` says whose each row is, where they are several."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    ranks: tuple[int, ...] = ()

    def document(self) -> Document:
        head = [name.replace("_", " ") for name in self.names]
        cells: list[list[Words]] = [[_said(value) for value in row] for row in self.rows]
        if self.ranks:
            head = ["", *head]
            cells = [[Rank(n), *row] for n, row in zip(self.ranks, cells, strict=True)]
        return Document(Table(head, cells))


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Runs side by side; `rows` has each run's values in the order of `names`."""

    names: tuple[str, ...]
    rows: Mapping[str, tuple[Any, ...]]

    def document(self) -> Document:
        head = ["", *(name.replace("_", " ") for name in self.names)]
        rows = [[label, *map(_said, values)] for label, values in self.rows.items()]
        return Document(Table(head, rows))


def each_rank(run: Run, *names: str) -> Comparison:
    """A row for each rank: what it reported last under each name; "–" if it reported nothing.

    Raises BadArgument without names, and NoEvidence for a name that no rank reported.
    """
    if not names:
        raise BadArgument("There are no columns.", action='each_rank(run, "loss")')
    check_run(run)
    columns = [run.by_rank(name) for name in names]
    for name, column in zip(names, columns, strict=True):
        if not column:
            run.value(name)  # says what there is
    rows = {f"rank {n}": tuple(column.get(n) for column in columns) for n in range(run.ranks)}
    return Comparison(names, rows)


def _last(run: Run, name: str, rank: int) -> Any:
    try:
        return run.value(name, rank)
    except NoEvidence:
        return None


def _said(value: Any) -> str:
    """A fraction with three digits, a list without brackets, yes or no; anything else as it is."""
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_said, value))
    return "–" if value is None else str(value)
