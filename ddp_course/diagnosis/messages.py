"""Known messages of torch, Gloo, NCCL, CUDA and torchrun: `messages.toml`, read and searched."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Message:
    """A message, by a regular expression, and what to say of it."""

    kind: str
    text: str
    means: str  # a clause that follows "rank 1: "
    do: str
    lesson: str = ""  # "03" and the title of the section
    verified: bool = True
    anywhere: bool = False  # in all that a rank has printed, not only in its exception
    echo: bool = False  # whoever says it is never the first cause


MESSAGES = tuple(
    Message(**entry)
    for entry in tomllib.loads((Path(__file__).parent / "messages.toml").read_text())["message"]
)

# Said without harm; never a reason.
_NOTES = re.compile(
    r"Redirects are currently not supported in Windows or MacOs"
    r"|destroy_process_group\(\) was not called|Setting OMP_NUM_THREADS"
)


def find(texts: Iterable[str], *, echoes: bool = False) -> tuple[Message, str] | None:
    """The first message of the table that a text shows, with `means` filled in.

    Echoes ("connection closed by peer") count only on request.
    """
    lines = [text for text in texts if text and not _NOTES.search(text)]
    for message in MESSAGES:
        if message.echo and not echoes:
            continue
        for text in lines:
            if found := re.search(message.text, text, re.MULTILINE):
                return message, _fill(message.means, found, text)
    return None


def find_anywhere(text: str) -> tuple[Message, str] | None:
    """The first message of the table that counts wherever it was printed."""
    for message in MESSAGES:
        if message.anywhere and (found := re.search(message.text, text)):
            return message, _fill(message.means, found, text)
    return None


def _fill(means: str, found: re.Match[str], text: str) -> str:
    """Put what the message names into the clause."""
    values = {"names": "", "port": "", **{k: v or "" for k, v in found.groupdict().items()}}
    if unused := re.search(r"did not receive grad for rank \d+: ([^\n]+?)(?:\.?\s*$|\n)", text):
        names = unused[1].strip().rstrip(".")
        values["names"] = f" (number {names})" if re.fullmatch(r"[\d ]+", names) else f": {names}"
    if "{port}" in means and not values["port"] and (port := re.search(r"port:? (\d+)", text)):
        values["port"] = f"{port[1]} "
    return means.format_map(values) if "{" in means else means
