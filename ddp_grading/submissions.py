"""What was handed in: whose it is, and which files in it are answers. None of it is trusted.

    DIR/<student>/…            a folder, as nbgrader, Moodle or a clone makes them, zips inside too
    DIR/<student>.zip          an archive
    DIR/<student>_….py, .ipynb single files, as Canvas makes them; several for one student

An entry belongs to the student whose id (or other id, or full name, by the roster) is its name, or
is a word in it. An exercise's answer is a file with its stem ("ex02_average_gradients.py"),
else one whose name contains the stem or, as a word, the short name ("my-ex02.py"). From a notebook
it is, for each exercise, the last cell that begins with `%%job` or `%%writefile` and such a name;
without one, the last cell that defines the exercise's function: it follows the exercise's stub and
all imports of the notebook.

Only these files are read, each into memory and within limits, and written anew under names of our
own. Links, devices and pipes are never opened; a path in an archive is only looked at, never used.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import re
import stat
import sys
import unicodedata
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ddp_course.checks.exercises import EXERCISES, ROOT
from ddp_course.errors import BadArgument
from ddp_grading import store
from ddp_grading.roster import Student

MOST_FILES = 5_000  # in one submission
MOST_DEPTH = 12  # folders
MOST_BYTES = {".py": 1 << 20, ".ipynb": 16 << 20, ".zip": 64 << 20}
MOST_READ = 64 << 20  # bytes of one submission, unpacked
_NOTES = 20  # of one submission
_DROPPED = ("sitecustomize.py", "usercustomize.py", "conftest.py")
_SKIPPED = ("__pycache__", "__MACOSX", ".git", ".ipynb_checkpoints")
_MODULES = {*sys.stdlib_module_names, "ddp_course", "numpy", "torch", "torchvision"}
_MAGIC = re.compile(r"%%(?:job|writefile)\s+(?:-a\s+)?[\"']?(?P<name>[^\s\"']+)")

# A line that only a notebook knows: %magic, !command, ?help, help?, and magic = %that or !this.
_IPYTHON = re.compile(r"\s*(?:[%!?]|$|[\w.*]+\?\??\s*$|[\w, ]+=\s*[%!])")


@dataclass(frozen=True)
class Answer:
    """One file to grade: its name among the collected files, its hash, where it came from."""

    file: str
    sha256: str
    source: str


@dataclass
class Collected:
    """One student's answers by exercise; `notes` say what was left out or could not be read."""

    answers: dict[str, Answer] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Remember a line for the instructor, at most so many."""
        text = store.clean(text, 300)
        if text not in self.notes and len(self.notes) < _NOTES:
            self.notes.append(text)


@dataclass(frozen=True)
class Found:
    """Every student's entries in the order of their names, and the entries of nobody, with why."""

    entries: dict[str, list[Path]]
    strangers: list[tuple[Path, str]]


def find(folder: Path | str, students: Sequence[Student]) -> Found:
    """Whose is what. Raises BadArgument when `folder` cannot be read."""
    folder = Path(folder)
    try:
        paths = sorted(Path(entry.path) for entry in os.scandir(folder))
    except OSError as error:
        raise BadArgument(
            f"{folder} cannot be read: {error.strerror}.", action="name the folder of submissions"
        ) from None
    keys = _keys(students)
    entries: dict[str, list[Path]] = {}
    strangers = []
    for path in paths:
        if path.name.startswith(".") or path.name in _SKIPPED:
            continue
        if path.is_symlink():
            strangers.append((path, "it is a link"))
        elif path.is_dir() or path.suffix.lower() in MOST_BYTES:
            owners = _owners(path.name if path.is_dir() else path.stem, keys)
            if len(owners) == 1:
                entries.setdefault(next(iter(owners)), []).append(path)
            else:
                why = "the roster has no such student"
                if owners:
                    why = "it may belong to " + " or ".join(sorted(owners)[:5])
                strangers.append((path, why))
    return Found(entries, strangers)


@dataclass
class _Keys:
    """What entries may be called, and whose they are then: in full, and as a word among others."""

    exact: dict[str, set[str]] = field(default_factory=dict)
    folded: dict[str, set[str]] = field(default_factory=dict)
    ids: dict[str, set[str]] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)


def _keys(students: Sequence[Student]) -> _Keys:
    keys = _Keys()
    for one in students:
        for key in (one.id, store.folder_name(one.id)):
            keys.exact.setdefault(key, set()).add(one.id)
        first, _, last = one.name.rpartition(" ")
        names = [one.name, last + first] if one.name else []  # doejane, as Canvas has it
        for key in (one.id, *one.also, one.email, one.email.partition("@")[0], *names):
            if key:
                keys.folded.setdefault(_fold(key), set()).add(one.id)
        for key in (one.id, *one.also):
            if _is_telling(key):
                keys.ids.setdefault(_fold(key), set()).add(one.id)
        for key in names:
            keys.names.setdefault(_fold(key), set()).add(one.id)
    return keys


def _is_telling(key: str) -> bool:
    """Whether an id can be meant where it is a word among others: not a short number."""
    return len(key) > 3 or (len(key) > 1 and not key.isdigit())


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold().strip()


def _owners(name: str, keys: _Keys) -> set[str]:
    """The students whom an entry's name may mean; best one."""
    name = store.tidy_id(name)
    if name in keys.exact:
        return keys.exact[name]
    name = _fold(name)
    if name in keys.folded:
        return keys.folded[name]
    by_id, by_name = _as_words(name, keys.ids), _as_words(name, keys.names)
    return by_id & by_name or by_id | by_name


def _as_words(name: str, table: dict[str, set[str]]) -> set[str]:
    """Those whose key is a word, or words, of the name, and not part of a longer key there."""
    places: list[tuple[int, int, str]] = []
    for key in sorted((key for key in table if key in name), key=len, reverse=True):
        for found in re.finditer(rf"(?<![^\W_]){re.escape(key)}(?![^\W_])", name):
            if not any(begin <= found.start() and found.end() <= end for begin, end, _ in places):
                places.append((found.start(), found.end(), key))
    return {student for _, _, key in places for student in table[key]}


def collect(paths: Sequence[Path], into: Path) -> Collected:
    """Write a student's answers into the empty folder `into`. Raises OSError only for `into`."""
    collected = Collected()
    best: dict[str, tuple[tuple[int, int, str], bytes, str]] = {}
    budget = _Budget()
    for path in paths:
        try:
            for name, read in _files(path, collected, budget):
                for exercise, sureness, text in _answers(name, read, collected):
                    order = (sureness, name.count("/"), name)
                    if exercise in best and best[exercise][1] != text:
                        kept, other = sorted((order, best[exercise][0]))
                        collected.note(
                            f"two files for {exercise}: {kept[2]} is graded, not {other[2]}"
                        )
                    if exercise not in best or order < best[exercise][0]:
                        best[exercise] = (order, text, name)
        except _TooMuch as error:
            collected.note(f"{path.name}: {error}; what came after was not read")
        except OSError as error:
            collected.note(f"{path.name} cannot be read: {error.strerror or error}")
    for exercise, (_, text, name) in best.items():
        file = f"{EXERCISES[exercise].stem}.py"
        (into / file).write_bytes(text)
        collected.answers[exercise] = Answer(file, hashlib.sha256(text).hexdigest(), name)
    return collected


class _TooMuch(Exception):
    """A submission is larger than any honest one."""


@dataclass
class _Budget:
    files: int = 0
    bytes: int = 0

    def file(self) -> None:
        self.files += 1
        if self.files > MOST_FILES:
            raise _TooMuch(f"more than {MOST_FILES:,} files")

    def take(self, count: int) -> None:
        self.bytes += count
        if self.bytes > MOST_READ:
            raise _TooMuch(f"more than {MOST_READ >> 20} MB")


_File = tuple[str, bytes]  # its path in the submission, its contents


def _files(path: Path, collected: Collected, budget: _Budget) -> Iterator[_File]:
    """Every file that may hold an answer."""
    if path.is_dir() and not path.is_symlink():
        yield from _walk(path, PurePosixPath(), collected, budget)
    else:
        yield from _open(path, PurePosixPath(path.name), collected, budget)


def _walk(
    folder: Path, place: PurePosixPath, collected: Collected, budget: _Budget
) -> Iterator[_File]:
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda one: one.name)
    for entry in entries:
        budget.file()
        here = place / entry.name
        if entry.is_symlink():
            collected.note(f"{here} is a link: it is left out")
        elif entry.is_dir(follow_symlinks=False):
            if len(here.parts) > MOST_DEPTH:
                raise _TooMuch(f"folders deeper than {MOST_DEPTH}")
            if entry.name not in _SKIPPED:
                yield from _walk(Path(entry.path), here, collected, budget)
        else:
            yield from _open(Path(entry.path), here, collected, budget)


def _open(
    path: Path, place: PurePosixPath, collected: Collected, budget: _Budget
) -> Iterator[_File]:
    if not _wanted(place, collected):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        most = MOST_BYTES[place.suffix.lower()]
        if not stat.S_ISREG(about.st_mode):
            collected.note(f"{place} is no regular file: it is left out")
        elif about.st_size > most:
            collected.note(f"{place} is larger than {most >> 20} MB: it is left out")
        elif place.suffix.lower() == ".zip":
            yield from _unpack(file.read(most), place, collected, budget)
        else:
            text = file.read(most)
            budget.take(len(text))
            yield str(place), text


def _wanted(place: PurePosixPath, collected: Collected) -> bool:
    """Whether a file is of a kind that may hold an answer; says so where it is dangerous."""
    name = place.name.lower()
    if name in _DROPPED or name.endswith(".pth"):
        collected.note(f"{place} would change how Python starts: it is left out")
        return False
    if name.startswith(".") or any(part in _SKIPPED for part in place.parts):
        return False
    if place.suffix.lower() == ".py" and place.stem in _MODULES:
        collected.note(f"{place} has the name of the module {place.stem}: it is left out")
        return False
    return place.suffix.lower() in MOST_BYTES


def _unpack(
    data: bytes, place: PurePosixPath, collected: Collected, budget: _Budget
) -> Iterator[_File]:
    """The files of an archive; archives inside it are not opened."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            last = {entry.filename: entry for entry in archive.infolist()}  # as unzip would have it
            for entry in archive.infolist():
                budget.file()
                if entry is not last[entry.filename]:
                    collected.note(f"{place} has {entry.filename} twice: the last is taken")
                    continue
                yield from _member(archive, entry, place, collected, budget)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, OverflowError) as error:
        collected.note(f"{place} is no archive that can be read: {error}")


def _member(
    archive: zipfile.ZipFile,
    entry: zipfile.ZipInfo,
    place: PurePosixPath,
    collected: Collected,
    budget: _Budget,
) -> Iterator[_File]:
    inner = PurePosixPath(entry.filename.replace("\\", "/"))
    here = place / inner.relative_to(inner.anchor)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if ".." in inner.parts or inner.is_absolute():
        collected.note(f"{here} points out of the archive: it is left out")
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        collected.note(f"{here} is a link or a device: it is left out")
    elif entry.is_dir() or not _wanted(here, collected):
        return
    elif here.suffix.lower() == ".zip":
        collected.note(f"{here} is an archive in an archive: it is left out")
    elif entry.flag_bits & 1:
        collected.note(f"{here} is encrypted: it is left out")
    elif entry.file_size > MOST_BYTES[here.suffix.lower()]:
        collected.note(f"{here} is too large: it is left out")
    else:
        most = MOST_BYTES[here.suffix.lower()]
        try:
            with archive.open(entry) as file:
                text = file.read(most + 1)  # whatever size the archive claims
        except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, ValueError) as error:
            collected.note(f"{here} cannot be unpacked: {error}")
            return
        except Exception as error:  # zlib.error, lzma.LZMAError and what else a codec raises
            collected.note(f"{here} cannot be unpacked: {error}")
            return
        budget.take(len(text))
        if len(text) > most:
            collected.note(f"{here} is too large: it is left out")
        else:
            yield str(here), text


def _answers(name: str, text: bytes, collected: Collected) -> Iterator[tuple[str, int, bytes]]:
    """(exercise, how sure: 0 is best, its file's contents) of every answer in a file."""
    if name.lower().endswith(".ipynb"):
        yield from _from_notebook(name, text, collected)
    elif named := _named(PurePosixPath(name).stem):
        yield (*named, text)
    else:
        for one in EXERCISES.values():
            if re.search(rf"^def {one.function}\b".encode(), text, re.MULTILINE):
                collected.note(
                    f"{name} is not graded; if it answers {one.name}, name it {one.stem}.py"
                )


def _named(stem: str) -> tuple[str, int] | None:
    """The exercise that a file's name means, and how sure that is."""
    stem = unicodedata.normalize("NFKC", stem)
    for one in EXERCISES.values():
        if stem == one.stem:
            return one.name, 0
    inside = [one.name for one in EXERCISES.values() if one.stem in stem.lower()]
    if len(inside) == 1:
        return inside[0], 1
    words = [
        one.name
        for one in EXERCISES.values()
        if re.search(rf"(?<![a-z0-9]){one.name}(?![a-z0-9])", stem.lower())
    ]
    return (words[0], 2) if len(words) == 1 else None


def _from_notebook(
    name: str, text: bytes, collected: Collected
) -> Iterator[tuple[str, int, bytes]]:
    try:
        cells = [
            cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        collected.note(f"{name} is no notebook that can be read: {error}")
        return
    whole: dict[str, str] = {}
    defined: dict[str, str] = {}
    imports: list[str] = []
    for cell in cells:
        magic = _MAGIC.match(cell.lstrip())
        if magic:
            named = _named(PurePosixPath(magic["name"]).name.removesuffix(".py"))
            if named:
                whole[named[0]] = cell.lstrip().partition("\n")[2]
            continue
        lines, tree = cell, _parsed(cell)
        if tree is None:
            lines = "\n".join("" if _IPYTHON.match(line) else line for line in cell.splitlines())
            tree = _parsed(lines)
        if tree is None:
            # A cell that Python cannot read is still somebody's answer: its error is the verdict.
            for one in EXERCISES.values():
                if re.search(rf"^\s*def {one.function}\b", cell, re.MULTILINE):
                    defined[one.name] = lines
            continue
        imports += [
            ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for one in EXERCISES.values():
            if one.function in names:
                defined[one.name] = lines
    for exercise, lines in defined.items():
        stub = (ROOT / "exercises" / f"{EXERCISES[exercise].stem}.py").read_text()
        parts = [stub.partition("\nif __name__")[0], *dict.fromkeys(imports), lines]
        whole.setdefault(exercise, "\n".join(parts) + "\n")
    for exercise, lines in whole.items():
        yield exercise, 1, lines.encode(errors="replace")


def _parsed(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
