"""Which knobs a job has, read from the file without running it.

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
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument, shown
from ddp_course.launcher import catalogue, options

_ARGPARSE_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")  # what argparse takes for a value, not a flag


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
        if not options.can_be_passed(text):
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
            close = difflib.get_close_matches(name, [*knobs, *options.NAMES], n=1)
            listed = "; ".join(map(str, knobs.values())) or "it declares none (no add_argument)"
            raise BadArgument(
                f"The job {script.stem!r} has no knob {name!r}.",
                cause=f"did you mean {close[0]!r}?" if close else "",
                action=f"its knobs: {listed}. launch itself takes " + ", ".join(options.NAMES),
            )
        words += knobs[name].words(value)
    return words


def after_options(script: Path, words: Sequence[str]) -> list[str]:
    """A script and its words as they stand after torchrun's own options.

    Without `--` torchrun takes a script's --num for a short form of its own --numa-binding. The
    course's jobs have no such flag, and their commands are to be read.
    """
    needed = not catalogue.is_ours(script) and any(word.startswith("--") for word in words)
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
