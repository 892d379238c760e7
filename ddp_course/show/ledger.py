"""collectives(run): what each rank communicated, aligned; a row for each collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddp_course.errors import NoEvidence
from ddp_course.observe import ledger
from ddp_course.observe.align import Divergence, Row, align, first_divergence, pairs
from ddp_course.observe.ledger import Entry, Ledger
from ddp_course.run.run import check_run
from ddp_course.show.compare import Rows
from ddp_course.show.document import (
    Document,
    Note,
    Rank,
    Shown,
    Strong,
    Table,
    Title,
    Words,
    counted,
)

if TYPE_CHECKING:
    from ddp_course.run.run import Run

_AROUND = 3  # rows that are shown before and after what matters
_FEWEST = 3  # rows that are worth folding
_MARK = "✗"
_MOST_RANKS = 8  # columns, beside those of the ranks that deviate


def collectives(run: Run | str | Path) -> Collectives:
    """The collectives of all ranks side by side, with the first divergence marked.

    A live run is asked first; nothing of it ends. A cell tells how long after the first rank this
    one entered; Gloo does not tell when it left. Rows that are the same on all ranks are folded,
    but those near the divergence, or the end. Raises NoEvidence if no rank left a ledger.
    """
    if isinstance(run, str | Path):
        folder, ranks = Path(run), None
    else:
        check_run(run)
        folder, ranks = run.folder, run.ranks
        if not run.done:
            run.ask()
    ledgers = ledger.read(folder)
    if not ledgers:
        raise NoEvidence(
            "No rank left a ledger of its collectives"
            + "".join(f"; {name}: {why}" for name, why in list(ledgers.refused.items())[:3])
            + ".",
            cause="the run ended before its ranks started, they were killed, or a plain torchrun "
            "in a shell started them",
            action="see run.failure; launch(…) and `python -m ddp_course run` keep ledgers",
        )
    rows = sorted([*align(ledgers), *pairs(ledgers)], key=lambda row: row.t)
    silent = tuple(sorted(set(range(ranks or 0)) - set(ledgers)))
    return Collectives(ledgers, tuple(rows), first_divergence(ledgers), silent)


@dataclass(frozen=True, repr=False)
class Collectives(Shown):
    """The rows of all process groups by time, and where the ranks part."""

    ledgers: Mapping[int, Ledger]
    rows: tuple[Row, ...]
    divergence: Divergence | None
    silent: tuple[int, ...] = ()  # ranks without a ledger

    @property
    def message(self) -> str:
        """The one thing that the view says."""
        found, count = self.divergence, sum(row.verdict == "same" for row in self.rows)
        if found is None:
            said = f"{counted(len(self.ledgers))}, {counted(count, 'call')}, the same on each"
        else:
            before = self._where(found)
            said = f"{counted(before, 'call')} the same on all ranks, then {_parting(found)}"
        if self.silent:
            said += f"; no word from {_ranks(self.silent)}"
        return said

    @property
    def sent(self) -> dict[int, tuple[int, int]]:
        """By rank: how many messages it sent to one other rank, and their bytes together."""
        sizes = {
            rank: [e.bytes for e in one.entries if e.p2p and e.p2p.direction == "send"]
            for rank, one in self.ledgers.items()
        }
        return {rank: (len(some), sum(some)) for rank, some in sorted(sizes.items())}

    @property
    def traffic(self) -> Rows:
        """`sent` as a table."""
        return Rows(("messages", "bytes"), tuple(self.sent.values()), tuple(self.sent))

    def handed(self, rank: int = 0) -> Rows:
        """What one rank handed to collectives, by operation and type: calls, bytes in all.

        These are the bytes of the tensors, as handed in; what travels depends on the algorithm.
        Raises NoEvidence if the rank's ledger is not there, or not whole.
        """
        if rank not in self.ledgers or self.ledgers[rank].dropped:
            raise NoEvidence(
                f"Rank {rank} has no whole ledger.",
                cause="it was killed, or made so many calls that the first ones were dropped",
                action="run it with fewer steps",
            )
        totals: dict[tuple[str, str], list[int]] = {}
        for entry in self.ledgers[rank].entries:
            if entry.p2p is None and entry.bytes:
                total = totals.setdefault((entry.op, ", ".join(sorted(set(entry.dtypes)))), [0, 0])
                total[0], total[1] = total[0] + 1, total[1] + entry.bytes
        rows = tuple((*what, *total) for what, total in sorted(totals.items()))
        return Rows(("operation", "type", "calls", "bytes"), rows)

    def calls(self, operation: str, rank: int = 0) -> int:
        """How often a rank called one operation ("all_reduce"); see `handed`."""
        return sum(row[2] for row in self.handed(rank).rows if row[0] == operation)

    def bytes_handed(self, what: str, rank: int = 0) -> int:
        """How many bytes a rank handed to one operation ("all_reduce"), or of one type ("float32");
        see `handed`."""
        return sum(row[3] for row in self.handed(rank).rows if what in row[:2])

    def document(self) -> Document:
        head: list[Words] = ["#", *map(Rank, self._columns), "what", "issued by"]
        return Document(Title(self.message), Table(head, self._lines()), *map(Note, self._notes))

    def _where(self, found: Divergence) -> int:
        return next((i for i, row in enumerate(self.rows) if row == found.row), len(self.rows))

    @property
    def _columns(self) -> list[int]:
        deviating = self.divergence.ranks[:_MOST_RANKS] if self.divergence else ()
        return sorted({*sorted(self.ledgers)[:_MOST_RANKS], *deviating})

    @property
    def _notes(self) -> list[str]:
        dropped = {rank: one.dropped for rank, one in self.ledgers.items() if one.dropped}
        told = "The first row shown is not the first issued: {} earlier on rank {}."
        notes = [told.format(count, rank) for rank, count in list(dropped.items())[:1]]
        if len(self._columns) < len(self.ledgers):
            notes.append(f"{len(self._columns)} of {counted(len(self.ledgers))} are shown.")
        if any(row.verdict == "same" for row in self.rows):
            notes.append("+ms: how long after the first rank this one entered.")
        return notes

    def _lines(self) -> list[list[Words]]:
        ranks = self._columns
        lines: list[list[Words]] = []
        folded: list[Row] = []

        def unfold() -> None:
            if len(folded) < _FEWEST:
                lines.extend(_line(row, ranks, "") for row in folded)
            elif folded:
                first, last = _number(folded[0]), _number(folded[-1])
                same = ["same"] * len(ranks)
                lines.append([f"{first} … {last}", *same, f"{len(folded)} folded", ""])
            folded.clear()

        shown = self._shown()
        for index, row in enumerate(self.rows):
            if index in shown:
                unfold()
                first = self.divergence is not None and row == self.divergence.row
                lines.append(_line(row, ranks, "first divergence: " if first else ""))
            else:
                folded.append(row)
        unfold()
        return lines

    def _shown(self) -> set[int]:
        if self.divergence is None:
            return set(range(len(self.rows) - 2 * _AROUND, len(self.rows)))
        here = self._where(self.divergence)
        odd = [i for i, row in enumerate(self.rows) if row.verdict != "same"][: 2 * _AROUND]
        return set(range(here - _AROUND, here + _AROUND + 1)) | set(odd)


def _line(row: Row, ranks: Sequence[int], mark: str) -> list[Words]:
    entry = next(entry for entry in row.entries.values() if entry is not None)
    what = _what(entry) if row.verdict != "differs" else "not the same"
    if row.verdict != "same":
        what = f"{_MARK} {mark}{what}"
    issued = "" if row.verdict == "differs" else _issued(entry)
    return [_number(row), *map(_marked, (*(_of_rank(row, rank) for rank in ranks), what)), issued]


def _marked(text: str) -> Words:
    return Strong(text, bad=True) if text.startswith(_MARK) else text


def _of_rank(row: Row, rank: int) -> str:
    if rank not in row.entries:
        return ""
    entry = row.entries[rank]
    if entry is None:
        return f"{_MARK} never"
    if row.verdict == "differs":
        return f"{_MARK} {_what(entry)} {_issued(entry)}".rstrip()
    # A rank's clock is the machine's, so the ranks of one machine compare.
    return f"+{(entry.t - row.t) * 1e3:.1f} ms"


def _number(row: Row) -> str:
    entry = next(entry for entry in row.entries.values() if entry is not None)
    if entry.p2p is not None:
        source, target = row.entries if len(row.entries) == 2 else (entry.p2p.peer, "?")
        return f"#{row.n} {source}→{target}"
    return f"#{row.n}" + (f" of group {row.group[:12]}" if row.group not in ("0", entry.op) else "")


def _what(entry: Entry) -> str:
    sizes = " + ".join("×".join(map(str, size)) or "1" for size in entry.sizes[:3])
    sizes += " + …" * (len(entry.sizes) > 3)
    words = [entry.op if entry.p2p is None else "send, recv", sizes, ", ".join(entry.dtypes[:3])]
    words += [f"root {entry.root}" if entry.root is not None and not entry.part else ""]
    words += [entry.reduce if entry.reduce != "sum" else "", ", ".join(map(str, entry.members))]
    return " ".join(filter(None, words)) + (f" ({entry.part})" if entry.part else "")


def _issued(entry: Entry) -> str:
    if entry.line is None:
        return ""
    return f"{Path(entry.line.file).name}:{entry.line.line} {entry.line.code}".rstrip()


def _parting(found: Divergence) -> str:
    if found.kind == "missing":
        verb = "never entered" if found.entry.p2p is None else "has no part in"
        return f"{_ranks(found.ranks)} {verb} {_what(found.entry)}"
    differs = {
        "operation": "issued a different operation",
        "order": "issued them in a different order",
        "size": "issued a different size",
        "dtype": "issued a different type",
        "root": "named a different root",
        "reduce": "asked for a different reduction",
        "members": "made a group of different ranks",
    }
    return f"{_ranks(found.ranks)} {differs[found.kind]} than {_what(found.entry)}"


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
