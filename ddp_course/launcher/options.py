"""What `launch` takes beside a job's own knobs: declared once, for Python, the shell and help."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ddp_course.errors import BadArgument, shown

MAX_RANKS = 128
MAX_NODES = 8
_MAX_LIMIT_S = 86400.0
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # what a shell can set


def _option(
    default: Any, help: str, fits: Callable[[Any], bool], wanted: str, flag: str = ""
) -> Any:
    """An option; wanted: what to give instead of a value that does not fit; flag: "" for none."""
    said = {"help": help, "fits": fits, "wanted": wanted, "flag": flag}
    made = {"default_factory": type(default)} if isinstance(default, dict) else {"default": default}
    return field(**made, metadata=said)


def _whole(low: int, high: int) -> tuple[Callable[[Any], bool], str]:
    return (
        lambda value: type(value) is int and low <= value <= high,
        f"give a whole number from {low} to {high}",
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _are_seconds(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value <= _MAX_LIMIT_S


def _are_variables(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(text, str) and _ENV_NAME.fullmatch(name)
        and can_be_passed(f"{name}={text}")
        for name, text in value.items()
    )  # fmt: skip


def _are_words(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(word, str) and can_be_passed(word) for word in value
    )


_SWITCH = _is_bool, "give True or False"


@dataclass(frozen=True)
class Options:
    """Raises BadArgument for a value that cannot work."""

    ranks: int = _option(
        2, f"processes on each node, 1 to {MAX_RANKS} (torchrun's --nproc-per-node)",
        *_whole(1, MAX_RANKS), flag="--ranks",
    )  # fmt: skip
    nodes: int = _option(
        1, "torchruns that meet as if each had a machine of its own",
        *_whole(1, MAX_NODES), flag="--nodes",
    )  # fmt: skip
    trace: bool = _option(
        False, "profile the steps that the job marks with traced(), or else the first ones",
        *_SWITCH, flag="--trace",
    )  # fmt: skip
    limit_s: float = _option(
        60, "end the run after so many seconds, with every rank's stack (the first start of a warm "
        "host is not counted); a collective's own time-out is half of it",
        _are_seconds, "give seconds, above 0 and up to 86400", flag="--limit",
    )  # fmt: skip
    restarts: int = _option(
        0, "torchrun's --max-restarts; with several nodes, the job then goes on when one is lost",
        *_whole(0, 100), flag="--restarts",
    )  # fmt: skip
    warm: bool = _option(
        True, "False: a plain torchrun, as a shell would start it", *_SWITCH, flag="--cold"
    )
    env: Mapping[str, str] = _option(
        {}, "environment variables for this run",
        _are_variables, "give names and values as text: env={'NAME': 'value'}", flag="--env",
    )  # fmt: skip
    wait: bool | None = _option(
        None, "True: block and print; False: return at once; None: as fits (notebook or not)",
        lambda value: value is None or isinstance(value, bool), "give True or False",
    )  # fmt: skip
    argv: Sequence[str] = _option(
        (), "words for the script as they are: positional arguments, flags of any form",
        _are_words, "give a list of words: argv=['data/', '-n', '5']",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not one.metadata["fits"](value):
                _refuse(one.name, value, one.metadata["wanted"])
        if self.ranks * self.nodes > MAX_RANKS:
            most = MAX_RANKS // self.nodes
            _refuse("ranks", self.ranks, f"give a whole number from 1 to {most}")


def _refuse(name: str, value: Any, wanted: str) -> None:
    raise BadArgument(f"{name} cannot be {shown(value)}.", action=wanted)


NAMES = tuple(one.name for one in fields(Options))


def divided(given: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """Keyword arguments of `launch` as its own options and the job's knobs."""
    own = {name: value for name, value in given.items() if name in NAMES}
    if own.get("env", {}) is None:
        del own["env"]
    return Options(**own), {name: value for name, value in given.items() if name not in NAMES}


def signature() -> inspect.Signature:
    """The signature of `launch`, for help() and completion."""
    keyword, kind = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    defaults: dict[str, Any] = {"env": None}
    named = [
        inspect.Parameter(
            one.name, keyword, default=defaults.get(one.name, one.default), annotation=one.type
        )
        for one in fields(Options)
    ]
    return inspect.Signature(
        [
            inspect.Parameter("job", kind, annotation="str | Path"),
            *named,
            inspect.Parameter("knobs", inspect.Parameter.VAR_KEYWORD, annotation="Any"),
        ],
        return_annotation="Run",
    )


def table() -> str:
    """The options, a paragraph for each, for the docstring of `launch`."""
    return "\n".join(
        textwrap.fill(
            one.metadata["help"], 96,
            initial_indent=f"    {one.name:<10}", subsequent_indent=" " * 14,
        )
        for one in fields(Options)
    )  # fmt: skip


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The options that a shell can give."""
    for one in fields(Options):
        flag, help = one.metadata["flag"], one.metadata["help"]
        if not flag:
            continue
        if one.name == "env":
            parser.add_argument(
                "-e", flag, dest="env", action="append", default=[], metavar="NAME=VALUE",
                help=f"{help}; may be repeated",
            )  # fmt: skip
        elif one.default is False:
            parser.add_argument(flag, dest=one.name, action="store_true", help=help)
        elif one.default is True:
            text = help.removeprefix("False: ")
            parser.add_argument(flag, dest=one.name, action="store_false", help=text)
        else:
            kind = float if one.name.endswith("_s") else int
            parser.add_argument(
                flag, dest=one.name, type=kind, default=one.default,
                metavar="S" if kind is float else "N", help=f"{help} (default {one.default})",
            )  # fmt: skip


def can_be_passed(text: str) -> bool:
    """Whether the system can hand this word to a program."""
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return b"\0" not in encoded and len(encoded) < 128 << 10  # MAX_ARG_STRLEN of Linux
