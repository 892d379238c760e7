"""An exercise's file: whether there is anything to run in it, its stub, and putting it back."""

from __future__ import annotations

import ast
import codecs
import difflib
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from ddp_course.checks.exercises import ROOT, exercise_file, find
from ddp_course.checks.manifest import Exercise
from ddp_course.errors import BadArgument, CourseError
from ddp_course.run.folder import runs_folder

BEGIN, END = "    # TODO: write from here …\n", "    # … to here"
_MOST_BYTES = 1 << 20


def read(path: Path) -> bytes:
    """A file's bytes. Raises CourseError, saying what is there instead of a file that can be read.

    A pipe would never end, so only regular files are opened.
    """
    back = f"bring it back: python -m ddp_course restore {path.stem.split('_')[0]}"
    try:
        if not path.exists() and not path.is_symlink():
            raise CourseError(f"{path} is not there.", action=back)
        if path.is_dir():
            raise CourseError(
                f"{path} is a folder, not a file.", action="move it away, then " + back
            )
        if not path.is_file():
            raise CourseError(f"{path} is no regular file.", action="remove it, then " + back)
        if path.stat().st_size > _MOST_BYTES:
            raise CourseError(f"{path} is larger than an exercise's file can be.", action=back)
        return path.read_bytes()
    except OSError as error:
        raise CourseError(
            f"{path} cannot be read: {error.strerror or error}.",
            action="make it yours to read, or " + back,
        ) from error


def not_yet(path: Path, function: str) -> str:
    """Why there is nothing to run yet, or "": file missing, not Python, or untouched."""
    try:
        text = read(path)
        if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or text[:2].count(0) == 1:
            return f"{path.name} is saved as UTF-16. Save it with the encoding UTF-8, then check."
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a learner's backslashes
            tree = ast.parse(text, filename=path.name)
    except CourseError as error:
        return str(error)
    except SyntaxError as error:
        return _not_python(error)
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "it is nested too deeply"  # a MemoryError has no text
        return f"Python cannot read the file: {why}. Repair that first."
    found = next((node for node in reversed(tree.body) if function in _names(node)), None)
    if found is None:
        return f"The file no longer defines {function}(). Bring the name back: the check calls it."
    if isinstance(found, ast.AsyncFunctionDef):
        return (
            f"{function}() is an async function: a call of it does nothing until it is awaited, "
            "and the check only calls it. Write `def`."
        )
    if isinstance(found, ast.FunctionDef) and _is_untouched(found.body):
        return f"{function}() is still to be written: open {path.name} and replace the TODO."
    return ""


def _not_python(error: SyntaxError) -> str:
    message = f"Python cannot read the file: {error}. Repair that first."
    line = (error.text or "").rstrip("\n")
    if not line.strip() or not line.isprintable():
        return message
    mark = " " * max(0, (error.offset or 1) - 1) + "^"
    return f"{message}\n    {line}\n    {mark}"


def _names(node: ast.stmt) -> set[str]:
    """The names that a statement of the module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {one.asname or one.name for one in node.names}
    if isinstance(node, ast.If | ast.Try | ast.With):
        inner = [one for one in ast.walk(node) if one is not node and isinstance(one, ast.stmt)]
        return set().union(*(_names(one) for one in inner)) if inner else set()
    targets = ast.walk(node) if isinstance(node, ast.Assign | ast.AnnAssign) else ()
    return {t.id for t in targets if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}


def _is_untouched(body: list[ast.stmt]) -> bool:
    """Nothing but placeholders, or one that raises before anything else can happen."""
    kept = [one for one in body if not _is_constant(one)]
    return all(isinstance(one, ast.Pass) for one in kept) or _raises_not_implemented(kept[0])


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _raises_not_implemented(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Raise):
        return False
    raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"


def solution_text(exercise: Exercise) -> str:
    """The course's answer. Raises CourseError if it is not there."""
    path = ROOT / "solutions" / f"{exercise.stem}.py"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CourseError(
            f"The solution {path} cannot be read.", action=f"git checkout -- {path}"
        ) from error
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise CourseError(
            f"The solution {path} has lost its marks.", action=f"git checkout -- {path}"
        )
    return text


def stub_text(exercise: Exercise) -> str:
    """The exercise as it was given: the solution without the lines between the marks."""
    head, rest = solution_text(exercise).split(BEGIN)
    usual = f'raise NotImplementedError("{exercise.function} is yours to write")\n'
    given = exercise.given or usual
    lines = "".join(f"    {line}" if line.strip() else line for line in given.splitlines(True))
    return head + BEGIN + lines + END + rest.split(END)[1]


def answer_lines(exercise: Exercise) -> str:
    """The solution's lines between the marks, without their indent."""
    inside = solution_text(exercise).split(BEGIN)[1].split(END)[0]
    return "".join(line[4:] if line.strip() else line for line in inside.splitlines(True))


@dataclass(frozen=True)
class Restored:
    """What `restore` did. `backup` is where the file as it was is kept; "" if there was none."""

    file: str
    backup: str
    changed: bool

    def __str__(self) -> str:
        if not self.changed:
            return f"{self.file} is as it was given: nothing to do."
        kept = f" What you had is kept in {self.backup}" if self.backup else ""
        return f"{self.file} is as it was given again.{kept}"

    __repr__ = __str__


def restore(exercise: str) -> Restored:
    """Put an exercise's stub back, and keep what was there.

    The backup is under the folder of the runs, `backups/`, and is never removed. Raises BadArgument
    for a name that no exercise has, and CourseError if a file cannot be written.
    """
    one = find(exercise)
    path, stub = exercise_file(one), stub_text(one).encode()
    if path.resolve() == (ROOT / "solutions" / path.name).resolve():
        raise BadArgument(
            f"{path} is the solution, not yours to restore.",
            action="unset DDP_COURSE_EXERCISES and try again",
        )
    had = read(path) if path.exists() else None
    if had == stub:
        return Restored(str(path), "", changed=False)
    try:
        backup = _keep(path, had) if had is not None else ""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, stub)
    except OSError as error:
        raise CourseError(
            f"{error.filename or path} cannot be written: {error.strerror}.",
            action="make room, or make it yours to write",
        ) from error
    return Restored(str(path), backup, changed=True)


def _keep(path: Path, text: bytes) -> str:
    folder = runs_folder() / "backups"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    for number in range(1000):
        target = folder / f"{stamp}{f'-{number}' * bool(number)}.py"
        try:
            with open(target, "xb") as file:
                file.write(text)
            return str(target)
        except FileExistsError:
            continue
    raise FileExistsError(17, "too many backups of this second", str(folder))


def replace(path: Path, text: bytes) -> None:
    """Write a file so that it is at any moment the old one or the new one."""
    real = path.resolve()  # a link stays one
    draft = real.with_name(f".{real.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, real)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def differences(exercise: Exercise, against: str, name: str) -> str:
    """A unified diff from `against`, called `name`, to the learner's file; "" if they are equal."""
    path = exercise_file(exercise)
    mine = read(path).decode("utf-8", "replace")
    theirs, ours = (text.splitlines(keepends=True) for text in (against, mine))
    return "".join(
        line if line.endswith("\n") else line + "\n"
        for line in difflib.unified_diff(theirs, ours, name, path.name)
    )
