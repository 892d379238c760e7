"""The corpus: answers of every kind, and what the verifier must make of each.

    tests/corpus/<exercise>/<kind>/<name>.py      kind: accepted, cheats, runaways

The wrong answers that the course knows are in ddp_course/exercises/<stem>/wrong.

An entry begins with comments that say what is expected, and what it is:

    # status: error timeout     one of these; it never has all points unless it is "pass"
    # says: left without        a part of the message, "" if any will do
    # mistake: sum instead …    the mistake's name, where one must be recognised, with its hint
    # earned: 3                 the points of a cheat for what it does as asked; none if not said
    # fills: the stub           it is not a whole file, but the lines that the stub lacks
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from ddp_course.checks.exercises import EXERCISES

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).parent / "corpus"
KNOWN = ROOT / "ddp_course" / "exercises"
BEGIN, END = "    # TODO: write from here …\n", "    # … to here"


@dataclass(frozen=True)
class Entry:
    """One answer and its expected verdict; `lines` are what follows its heading."""

    exercise: str
    kind: str
    path: Path
    status: tuple[str, ...]
    says: str
    mistake: str
    fills: bool
    lines: str
    earned: int = 0

    @property
    def id(self) -> str:
        return f"{self.exercise}-{self.kind}-{self.path.stem}"

    @property
    def text(self) -> str:
        """The whole file that a student would hand in."""
        return filled(self.exercise, self.lines) if self.fills else self.path.read_text()


def filled(exercise: str, lines: str) -> str:
    """A stub with `lines` in place of its TODO."""
    stub = (ROOT / "exercises" / f"{EXERCISES[exercise].stem}.py").read_text()
    head, rest = stub.split(BEGIN)
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    return head + body + END + rest.split(END)[1]


def read(path: Path) -> Entry:
    """An entry from its file."""
    said: dict[str, str] = {}
    lines = path.read_text().splitlines()
    for line in lines:
        name, colon, value = line.removeprefix("# ").partition(":")
        if not line.startswith("# ") or not colon or " " in name:
            break
        said[name] = value.strip()
    return Entry(
        exercise=path.parent.parent.name,
        kind=path.parent.name,
        path=path,
        status=tuple(said["status"].split()),
        says=said.get("says", ""),
        mistake=said.get("mistake", ""),
        fills="fills" in said,
        lines="\n".join(lines[len(said) :]),
        earned=int(said.get("earned", 0)),
    )


def read_wrong(path: Path) -> Entry:
    """A wrong answer that the course knows: lines below the mistake's name."""
    text = path.read_text()
    tree = ast.parse(text)
    lines = text.splitlines()[tree.body[0].end_lineno :]
    return Entry(
        exercise=path.parent.parent.name.partition("_")[0],
        kind="wrong",
        path=path,
        status=("fail",),
        says="",
        mistake=(ast.get_docstring(tree) or "").partition("\n")[0],
        fills=True,
        lines="\n".join(lines).strip("\n"),
    )


def entries(*kinds: str) -> list[Entry]:
    """All entries of these kinds."""
    wrong = [read_wrong(path) for path in sorted(KNOWN.glob("*/wrong/*.py"))]
    others = [read(path) for kind in kinds for path in sorted(FOLDER.glob(f"*/{kind}/*.py"))]
    return wrong * ("wrong" in kinds) + others
