"""Which jobs there are and which knobs each one has, read from the file without running it.

A job declares a knob by a plain argparse call:

    parser.add_argument("--bucket-mb", type=float, default=25, help="…")

so that launch(…, bucket_mb=1) can be checked before anything starts. Literal names, `type=int`,
`float` or `str`, `choices=[…]`, `nargs="+"` or a number, and the actions that argparse has are
understood; anything else is passed on as it is and judged by the job itself.
"""

from __future__ import annotations

import ast
import difflib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ddp_course import disk as untrusted
from ddp_course.disk import PACKAGE
from ddp_course.errors import BadArgument

JOBS = PACKAGE / "jobs"
_ARGPARSE_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")  # what argparse takes for a value, not a flag
_MAX_WORD = 128 << 10  # bytes of one word of a command, with its end: MAX_ARG_STRLEN of Linux

OF_LAUNCH = ("ranks", "nodes", "trace", "limit_s", "restarts", "warm", "env", "wait", "argv")


@dataclass(frozen=True)
class Knob:
    """One flag of a job: `bucket_mb` is the knob, `--bucket-mb` its flag."""

    name: str
    flag: str
    kind: str = "str"  # "int", "float", "str", "any" (not understood), or without a value: "flag",
    # "switch" (--x and --no-x), "count" (as often as said)
    choices: tuple[Any, ...] = ()
    many: bool = False  # a list of values
    exactly: int = 0  # how many, if the job wants a certain number
    again: bool = False  # the flag stands before each of them
    default: Any = None
    help: str = ""

    def __str__(self) -> str:
        if self.choices:
            value = " | ".join(map(repr, self.choices))
        else:
            value = _SAID.get(self.kind, self.kind)
        counted = f"a list of {self.exactly or ''} ".replace("  ", " ")
        return f"{self.name}: {counted * self.many}{value}"

    def words(self, value: Any) -> list[str]:
        """The command-line words for this value. Raises BadArgument if it has the wrong type."""
        if self.kind in ("flag", "switch"):
            if not isinstance(value, bool):
                raise self._mistyped(value)
            off = [f"--no-{self.flag[2:]}"] * (self.kind == "switch")
            return [self.flag] if value else off
        if self.kind == "count":
            if type(value) is not int or not 0 <= value <= 100:
                raise self._mistyped(value)
            return [self.flag] * value
        values = list(value) if self.many and isinstance(value, list | tuple) else [value]
        if self.many and len(values) != (self.exactly or max(1, len(values))):
            raise self._mistyped(value)
        texts = [self._text(one) for one in values]
        if "--" in texts:
            raise self._mistyped(value)  # argparse drops it, however it is written
        if self.again:
            return [f"{self.flag}={text}" for text in texts]
        if not self.many:
            # A value that begins with a dash would be taken for a flag.
            return [f"{self.flag}={texts[0]}"] if texts[0][:1] in "-" else [self.flag, texts[0]]
        if any(text[:1] == "-" and not _ARGPARSE_NUMBER.match(text) for text in texts):
            raise self._mistyped(value)  # in a list there is no way to write it
        return [self.flag, *texts]

    def _text(self, value: Any) -> str:
        fits = {
            "int": isinstance(value, int) and not isinstance(value, bool),
            "float": isinstance(value, int | float) and not isinstance(value, bool),
            "str": isinstance(value, str | Path),
        }.get(self.kind, isinstance(value, str | int | float | Path))
        if not fits or (self.choices and value not in self.choices):
            raise self._mistyped(value)
        try:
            text = str(value)
            if self.kind == "float":
                float(value)
        except (ValueError, OverflowError) as error:  # too many digits
            raise self._mistyped(value) from error
        if not can_be_passed(text):
            raise self._mistyped(value)
        if self.many and isinstance(value, float) and math.isfinite(value):
            return format(Decimal(text), "f")  # argparse takes -1e-05 for a flag
        return text

    def _mistyped(self, value: Any) -> BadArgument:
        return BadArgument(
            f"The knob {self.name!r} cannot be {shown(value)} (a {type(value).__name__}).",
            action=f"give it as {self}",
        )


_SAID = {
    "flag": "True or False", "switch": "True or False", "count": "how often, a whole number",
    "any": "a value",
}  # fmt: skip


def can_be_passed(text: str) -> bool:
    """Whether the system can hand this word to a program."""
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return b"\0" not in encoded and len(encoded) < _MAX_WORD


def find_job(job: str | Path) -> Path:
    """The script of a job: a name (of a cell's job here, or of the course) or a path to a .py file.

    Raises BadArgument, naming the jobs that there are.
    """
    if not isinstance(job, str | Path) or not str(job).strip() or "\0" in str(job):
        raise BadArgument(
            f"A job is a name or a path to a .py file, not {shown(job)}.",
            action='give it as launch("hello_ranks") or launch("my_script.py")',
        )
    text = str(job)
    if text.endswith(".py") or "/" in text or isinstance(job, Path):
        path = Path(os.path.expanduser(text))
        if _is_file(path) and path.suffix == ".py":
            return path.resolve()
        there = _exists(path)
        raise BadArgument(
            f"{shown(str(path))} is {'not a Python file (.py)' if there else 'not there'}.",
            cause="" if path.is_absolute() or there else f"the path is relative to {_here()}",
            action="check the path, or give the name of a job, without .py",
        )
    here = Path(f"{text}.py")
    if _is_file(here) and is_from_cell(here):
        return here.resolve()
    if text in (jobs := course_jobs()):
        return jobs[text]
    known = sorted({*jobs, *cell_jobs()})
    close = difflib.get_close_matches(text, known, n=1)
    if _is_file(here):
        close = [f"{text}.py"]  # a file is launched by its path
    raise BadArgument(
        f"There is no job {shown(text)}.",
        cause=f"did you mean {close[0]!r}?" if close else "",
        action="" if close else "choose one of " + ", ".join(known),
    )


def course_jobs() -> dict[str, Path]:
    """The course's own jobs, {name: script}: in `jobs/` or in a lesson's folder there."""
    found = (path for path in JOBS.rglob("*.py") if not path.stem.startswith("_"))
    return {path.stem: path.resolve() for path in sorted(found, key=lambda path: path.stem)}


def names() -> list[str]:
    """The names of the course's own jobs."""
    return list(course_jobs())


def is_ours(script: Path) -> bool:
    """Whether a script is a job of the course."""
    return script.is_relative_to(JOBS.resolve())


FROM_CELL = "# (a cell saved by %%job; edit the cell, not this file)\n"


def cell_jobs() -> list[str]:
    """The jobs that cells have saved in the present folder."""
    return sorted(path.stem for path in Path().glob("*.py") if is_from_cell(path))


def is_from_cell(path: Path) -> bool:
    """Whether this file was written by %%job, so that it may be overwritten by it."""
    mark = FROM_CELL.encode()
    try:
        with untrusted.open_file(path) as file:  # whatever lies about in the learner's folder
            file.seek(-len(mark), os.SEEK_END)
            return file.read() == mark
    except OSError:
        return False


def knobs_of(script: Path) -> dict[str, Knob]:
    """The knobs that a script declares, by name. Raises BadArgument if it cannot be read."""
    tree = _parse(script)
    knobs: dict[str, Knob] = {}
    if tree is None:
        return knobs
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            knob = _knob(node)
            if knob is not None:
                knobs[knob.name] = knob
    return knobs


def flags(script: Path, given: Mapping[str, Any]) -> list[str]:
    """The command-line words for these knobs. Raises BadArgument for a wrong name or value."""
    knobs = knobs_of(script)
    words: list[str] = []
    if not knobs and given and _parse(script) is None:
        return words  # it cannot run, whatever its knobs are
    for name, value in given.items():
        if name not in knobs:
            close = difflib.get_close_matches(name, [*knobs, *OF_LAUNCH], n=1)
            listed = "; ".join(map(str, knobs.values())) or "it declares none (no add_argument)"
            raise BadArgument(
                f"The job {script.stem!r} has no knob {name!r}.",
                cause=f"did you mean {close[0]!r}?" if close else "",
                action=f"its knobs: {listed}. launch itself takes " + ", ".join(OF_LAUNCH),
            )
        words += knobs[name].words(value)
    return words


def after_options(script: Path, words: Sequence[str]) -> list[str]:
    """A script and its words as they stand after torchrun's own options.

    Without `--` torchrun takes a script's --num for a short form of its own --numa-binding. The
    course's jobs have no such flag, and their commands are to be read.
    """
    needed = not is_ours(script) and any(word.startswith("--") for word in words)
    return [*["--"] * needed, str(script), *words]


def _parse(script: Path) -> ast.Module | None:
    """The script's syntax tree; None if it is no Python: the ranks will say so, with a caret."""
    try:
        return ast.parse(script.read_bytes(), filename=str(script))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    except OSError as error:
        raise BadArgument(f"{script} cannot be read: {error.strerror}.") from error


def _knob(call: ast.Call) -> Knob | None:
    literal = [a.value for a in call.args if isinstance(a, ast.Constant)]
    flag = next((text for text in literal if isinstance(text, str) and text[:2] == "--"), None)
    if flag is None:
        return None
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    kind = ast.unparse(said["type"]) if "type" in said else "str"
    if kind not in ("int", "float", "str"):
        kind = "any"
    action = _literal(said.get("action", ast.Constant("store")))
    if action in ("store_true", "store_false", "store_const"):
        kind = "flag"
    elif "action" in said and ast.unparse(said["action"]).endswith("BooleanOptionalAction"):
        kind = "switch"
    elif action == "count":
        kind = "count"
    elif action not in ("store", "append"):
        kind = "any"
    choices, nargs = _literal(said.get("choices")), _literal(said.get("nargs"))
    exactly = nargs if isinstance(nargs, int) else 0
    again = action == "append" and nargs is None
    return Knob(
        name=flag[2:].replace("-", "_"),
        flag=flag,
        kind=kind,
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        many=nargs in ("+", "*") or exactly > 0 or again,
        exactly=exactly,
        again=again,
        default=_literal(said.get("default")),
        help=str(_literal(said.get("help")) or ""),
    )


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def _here() -> str:
    try:
        return f"the folder that you are in, {os.getcwd()}"
    except OSError:
        return "a folder that has been removed"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that is closed to us
        return False


def shown(value: object) -> str:
    """repr, short enough for a message."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "this number"
    return text if len(text) <= 100 else f"{text[:100]}…"
