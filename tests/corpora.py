"""The corpus: answers of every kind, and what the grader must make of each.

    tests/corpus/<exercise>/<kind>/<name>.py      kind: accepted, wrong, cheats, runaways

An entry is a whole answer. It begins with comments that say what is expected:

    # status: error timeout     one of these; it never has points unless it is "pass"
    # says: left without        a part of the message, "" if any will do
    # mistake: sum instead …    the mistake's name, where one must be recognised
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Entry:
    """One answer and its expected verdict."""

    exercise: str
    kind: str
    path: Path
    status: tuple[str, ...]
    says: str = ""
    mistake: str = ""

    @property
    def id(self) -> str:
        return f"{self.exercise}-{self.kind}-{self.path.stem}"


def read(path: Path) -> Entry:
    """An entry from its file."""
    said = {}
    for line in path.read_text().splitlines():
        name, colon, value = line.removeprefix("# ").partition(":")
        if not line.startswith("# ") or not colon or " " in name:
            break
        said[name] = value.strip()
    return Entry(
        path.parent.parent.name,
        path.parent.name,
        path,
        tuple(said["status"].split()),
        said.get("says", ""),
        said.get("mistake", ""),
    )


def entries(*kinds: str) -> list[Entry]:
    """All entries of these kinds."""
    return [read(path) for kind in kinds for path in sorted(FOLDER.glob(f"*/{kind}/*.py"))]
