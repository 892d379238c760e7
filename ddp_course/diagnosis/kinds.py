"""What a diagnosis is and says: a rule gives a cause, `kinds.toml` has the words for it.

    cause (name, facts) ──kinds.toml──→ Diagnosis (kind, sentence, remedy, lesson)

Nothing here judges. Sentences, remedies and lessons are edited, or translated, in kinds.toml.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_TABLE = "torchrun's own account"
HEALTHY = frozenset({"healthy", "running"})


@dataclass(frozen=True)
class Cause:
    """What a rule found: "kind" or "kind.variant" of kinds.toml, and the facts for its words."""

    name: str
    rank: int | None = None  # the first at fault; None: no single one
    facts: Mapping[str, str] = field(default_factory=dict)
    collective: str = ""  # "all_reduce #4"
    standing: bool = False  # whether it helps to see where each rank was

    @property
    def kind(self) -> str:
        kind = self.name.partition(".")[0]
        return self.facts["kind"] if kind == "message" else kind  # of messages.toml


@dataclass(frozen=True)
class Diagnosis:
    """What happened in a run: `str()` says it all, and a notebook shows the same."""

    kind: str  # "healthy", "never-arrived", "uneven-steps", …
    sentence: str
    remedy: str = ""
    lesson: str = ""  # number and section, "03 What if a rank runs out of data?"
    rank: int | None = None  # the first at fault; None: no single one
    collective: str = ""  # "all_reduce #4"
    evidence: tuple[str, ...] = ()
    consequences: dict[int, str] = field(default_factory=dict)  # rank -> what it said afterwards
    table: str = ""  # torchrun's own account

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return self.kind in HEALTHY

    def __str__(self) -> str:
        parts = [f"DIAGNOSIS ({self.kind}): {self.sentence}"]
        parts += [f"WHAT TO DO: {self.remedy}"] if self.remedy else []
        parts += [f"LESSON: {self.lesson}"] if self.lesson else []
        for title, lines in self.folded():
            told = lines if title != _TABLE else _rows(lines)
            parts += ["", f"{title}:", *(f"  {line}" for line in told)]
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        package: Any = importlib.import_module("ddp_course")
        html: str = package.hook("diagnosis_html")(self)
        return html

    def folded(self) -> Iterator[tuple[str, list[str]]]:
        """What stands behind it, to be opened: titles and lines."""
        if self.evidence:
            yield "evidence", list(self.evidence)
        if self.consequences:
            followed = [f"rank {rank}: {text}" for rank, text in self.consequences.items()]
            yield "what followed", followed
        if self.table:
            yield _TABLE, self.table.splitlines()


def _rows(table: list[str]) -> list[str]:
    """The table's ranks and exit codes, a line for each; the whole of it is in torchrun.log."""
    told = [re.match(r"\s*(rank|exitcode)\s*: (.*)", line) for line in table]
    words = [f"{found[1]} {found[2].strip()}" for found in told if found]
    pairs = [", ".join(words[i : i + 2]) for i in range(0, len(words), 2)]
    return [*pairs, "the last one is the first that it saw fail"] if pairs else table[:3]


def say(cause: Cause, evidence: tuple[str, ...] = ()) -> Diagnosis:
    """A cause in the words of kinds.toml."""
    return Diagnosis(
        cause.kind,
        fill(words_of(cause.name, "says"), cause.facts),
        fill(words_of(cause.name, "do"), cause.facts),
        fill(words_of(cause.name, "lesson"), cause.facts),
        cause.rank,
        cause.collective,
        evidence,
    )


def words_of(name: str, what: str) -> str:
    """The words of a kind or variant; a variant has those of its kind where it has none itself."""
    kind, _, variant = name.partition(".")
    own = table()[kind]
    return str(own.get(variant, {}).get(what, own.get(what, ""))) if variant else str(own[what])


def fill(text: str, facts: Mapping[str, str]) -> str:
    """Put facts into a text; what stands in [ ] is left out if one of its facts is empty.

    Brackets stand beside each other, not inside each other. What a fact itself holds is kept as
    it is, brackets and braces included.
    """
    values = _Facts(facts)

    def optional(found: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)\}", found[1])
        return found[1] if all(values[name] for name in names) else ""

    return re.sub(r"\[([^\]]*)\]", optional, text).format_map(values)


class _Facts(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return ""


@cache
def table() -> dict[str, Any]:
    """kinds.toml."""
    return tomllib.loads((Path(__file__).parent / "kinds.toml").read_text())
