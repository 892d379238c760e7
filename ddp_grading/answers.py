"""Which files of a submission are answers. None of it is trusted, so it runs in its own process.

    python -m ddp_grading.answers INTO PATH …      → JSON: the answers and what was left out

An exercise's answer is a file with its stem ("ex02_average_gradients.py"), else one whose name
contains the stem or, as a word, the short name ("my-ex02.py"). From a notebook it is, for each
exercise, the last cell that begins with `%%job` or `%%writefile` and such a name; without one, the
last definition of the exercise's function, which follows the exercise's stub, the imports of the
notebook, and what else it uses of the notebook's functions, classes and values. Where exercises
share a function's name, its parameters say which one is meant, or a first line such as "# ex04".

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
import resource
import stat
import symtable
import sys
import unicodedata
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.files import not_yet, stub_text
from ddp_grading import store

MOST_CPU_S, MOST_MEMORY = 30, 2 << 30  # for one submission
MOST_FILES = 5_000  # in one submission
MOST_DEPTH = 12  # folders
MOST_BYTES = {".py": 1 << 20, ".ipynb": 16 << 20, ".zip": 64 << 20}
MOST_READ = 64 << 20  # bytes of one submission, unpacked
_NOTES = 20  # of one submission
_DROPPED = ("sitecustomize.py", "usercustomize.py", "conftest.py")
SKIPPED = ("__pycache__", "__MACOSX", ".git", ".ipynb_checkpoints")
_MODULES = {*sys.stdlib_module_names, "ddp_course", "numpy", "torch", "torchvision"}
_MAGIC = re.compile(r"%%(?:job|writefile)\s+(?:-a\s+)?[\"']?(?P<name>[^\s\"']+)")

# A line that only a notebook knows: %magic, !command, ?help, help?, and magic = %that or !this.
_IPYTHON = re.compile(r"\s*+(?:[%!?]|$|[\w.*]++\?\??\s*$|[\w, ]++=\s*+[%!])")
_DEF = re.compile(r"^[ \t]*+def (?P<name>\w++)\((?P<parameters>[^()]*)\)", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """One file to grade: its name among the collected files, the hash of what was handed in, where
    it came from, and why there is nothing to run in it, or ""."""

    file: str
    sha256: str
    source: str
    problem: str = ""


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


def collect(paths: Sequence[Path], into: Path) -> Collected:
    """Write a student's answers into the empty folder `into`. Raises OSError only for `into`."""
    collected = Collected()
    best: dict[str, tuple[tuple[int, int, str], bytes, bytes, str]] = {}
    budget = _Budget()
    for path in paths:
        try:
            for name, read in _files(path, collected, budget):
                for exercise, sureness, text, own in _answers(name, read, collected):
                    order = (sureness, name.count("/"), name)
                    if exercise in best and best[exercise][1] != text:
                        kept, other = sorted((order, best[exercise][0]))
                        collected.note(
                            f"two files for {exercise}: {kept[2]} is graded, not {other[2]}"
                        )
                    if exercise not in best or order < best[exercise][0]:
                        best[exercise] = (order, text, own, name)
        except _TooMuch as error:
            collected.note(f"{path.name}: {error}; what came after was not read")
        except OSError as error:
            collected.note(f"{path.name} cannot be read: {error.strerror or error}")
    for exercise, (_, text, own, name) in best.items():
        file = f"{EXERCISES[exercise].stem}.py"
        (into / file).write_bytes(text)
        problem = not_yet(into / file, EXERCISES[exercise].function)
        sha256 = hashlib.sha256(own).hexdigest()
        collected.answers[exercise] = Answer(file, sha256, name, problem)
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
            if entry.name not in SKIPPED:
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
    if name.startswith(".") or any(part in SKIPPED for part in place.parts):
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


def _answers(
    name: str, text: bytes, collected: Collected
) -> Iterator[tuple[str, int, bytes, bytes]]:
    """(exercise, how sure: 0 is best, the file to grade, what of it is the student's) of every
    answer in a file."""
    if name.lower().endswith(".ipynb"):
        yield from _from_notebook(name, text, collected)
    elif named := _named(PurePosixPath(name).stem):
        yield (*named, text, text)
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
) -> Iterator[tuple[str, int, bytes, bytes]]:
    try:
        cells = [
            cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        collected.note(f"{name} is no notebook that can be read: {why}")
        return
    whole: dict[str, str] = {}
    book = _Notebook(name, collected)
    for cell in cells:
        if magic := _MAGIC.match(cell.lstrip()):
            if named := _named(PurePosixPath(magic["name"]).name.removesuffix(".py")):
                whole[named[0]] = cell.lstrip().partition("\n")[2]
        else:
            book.add(cell)
    for exercise, lines in whole.items():
        yield exercise, 1, lines.encode(errors="replace"), lines.encode(errors="replace")
    for exercise in book.answers.keys() - whole.keys():
        own = book.text(exercise).encode(errors="replace")
        stub = stub_text(EXERCISES[exercise]).partition("\nif __name__")[0].encode()
        yield exercise, 1, stub + b"\n" + own, own


class _Notebook:
    """What the cells of a notebook define at their top level; the last definition of a name."""

    def __init__(self, name: str, collected: Collected) -> None:
        self._name, self._collected = name, collected
        self._imports: list[str] = []
        self._defined: dict[str, str] = {}
        self.answers: dict[str, str] = {}  # by exercise

    def add(self, cell: str) -> None:
        """Take note of what a cell defines."""
        text, tree = cell, _parsed(cell)
        if tree is None:
            text = "\n".join("" if _IPYTHON.match(line) else line for line in cell.splitlines())
            tree = _parsed(text)
        if tree is None:
            # A cell that Python cannot read is still somebody's answer: its error is the verdict.
            for found in _DEF.finditer(cell):
                header = _parsed(f"def {found['name']}({found['parameters']}): pass")
                if header and isinstance(header.body[0], ast.FunctionDef):
                    self._answer(header.body[0], cell, text)
            return
        for node in tree.body:
            source = _source(text, node)
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._imports.append(source)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._defined[node.name] = source
                if isinstance(node, ast.FunctionDef):
                    self._answer(node, cell, source)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in (one for whole in targets for one in ast.walk(whole)):
                    if isinstance(target, ast.Name):
                        self._defined[target.id] = source

    def _answer(self, node: ast.FunctionDef, cell: str, source: str) -> None:
        """Note a function as the answer to the exercise that it is meant for."""
        meant = [name for name, one in EXERCISES.items() if one.function == node.name]
        first = cell.lstrip().partition("\n")[0]
        said = _named(first[1:200]) if first.startswith("#") else None
        if said and said[0] in meant:
            meant = [said[0]]
        elif len(meant) > 1:
            mine = _parameters(node)
            wanted = {name: _stub_parameters(name) for name in meant}
            same = [name for name in meant if wanted[name] == mine]
            meant = same or [name for name in meant if len(wanted[name]) == len(mine)]
            if len(meant) != 1:
                self._collected.note(
                    f"{self._name}: {node.name}({', '.join(mine)}) fits several exercises or none; "
                    "begin its cell with a line such as # ex04"
                )
                return
        for name in meant:
            self.answers[name] = source

    def text(self, exercise: str) -> str:
        """The answer, below all imports and what it uses of the other cells."""
        answer, function = self.answers[exercise], EXERCISES[exercise].function
        used: dict[str, None] = {}
        waiting = [answer]
        while waiting:
            for name in _globals(waiting.pop()) & self._defined.keys() - used.keys() - {function}:
                used[name] = None
                waiting.append(self._defined[name])
        helpers = [self._defined[name] for name in self._defined if name in used]
        return "\n".join(dict.fromkeys([*self._imports, *helpers, answer])) + "\n"


def _source(text: str, node: ast.stmt) -> str:
    """Its lines, those of its decorators included."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])
    return "\n".join(text.split("\n")[first - 1 : node.end_lineno])


def _parameters(node: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _stub_parameters(exercise: str) -> list[str]:
    one = EXERCISES[exercise]
    functions = (
        node for node in ast.parse(stub_text(one)).body if isinstance(node, ast.FunctionDef)
    )
    return next(_parameters(node) for node in functions if node.name == one.function)


def _globals(source: str) -> set[str]:
    """The names that a piece of a module takes from the rest of it."""
    try:
        tables = [symtable.symtable(source, "cell", "exec")]
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found: set[str] = set()
    for table in tables:
        tables += table.get_children()
        found |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_global() or (table.get_type() == "module" and one.is_referenced())
        }
    return found


def _parsed(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def main(into: str, *paths: str) -> None:
    """Read a submission within limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps(asdict(collect([Path(path) for path in paths], Path(into)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
