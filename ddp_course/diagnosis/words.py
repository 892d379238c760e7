"""How a diagnosis names ranks, calls, places and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ddp_course.observe.ledger import ANY_RANK, NEW_GROUP, Entry


def named(ranks: Iterable[int]) -> str:
    """ "rank 1", "ranks 0, 2 and 3"."""
    names = [str(rank) for rank in sorted(ranks)]
    if len(names) > 8:
        names = [*names[:6], f"{len(names) - 6} others"]
    if len(names) < 2:
        return f"rank {names[0]}" if names else "no rank"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def call_name(entry: Entry) -> str:
    """ "all_reduce #4", "recv from rank 1 with tag 2"."""
    if entry.p2p is not None:
        peer = "any rank" if entry.p2p.peer == ANY_RANK else f"rank {entry.p2p.peer}"
        tag = f" with tag {entry.p2p.tag}" if entry.p2p.tag else ""
        where = "from" if entry.p2p.direction == "recv" else "to"
        return f"{entry.p2p.direction} {where} {peer}{tag}"
    group = "" if entry.group in ("", "0", NEW_GROUP) else f" of group {entry.group[:12]}"
    return f"{entry.op} #{entry.n}{group}"


def call_text(entry: Entry) -> str:
    """ "all_reduce #4 (gradient bucket 2) at train.py:31 (`loss.backward()`)"."""
    part = f" ({entry.part})" if entry.part else ""
    at = call_place(entry)
    return f"{call_name(entry)}{part}{f' at {at}' if at else ''}"


def call_place(entry: Entry) -> str:
    if entry.line is None:
        return ""
    return place_text(entry.line.file, entry.line.line, entry.line.code)


def place_text(file: str, line: int, code: str) -> str:
    """ "train.py:12 (`lock.acquire()`)"."""
    text = code_of(code)
    return f"{Path(file).name}:{line}" + (f" (`{text}`)" if text else "")


def code_of(code: str, most: int = 80) -> str:
    """A line of code without its comment."""
    text = re.sub(r"\s{2,}#.*", "", code.strip())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def brought(entry: Entry) -> str:
    """ "4×3 numbers of float32"."""
    shapes = ["×".join(map(str, size)) or "1" for size in entry.sizes]
    numbers = " and ".join(shapes) + (" number" if entry.elements == 1 else " numbers")
    return f"{numbers} of {', '.join(dict.fromkeys(entry.dtypes)) or 'no type'}"


def seconds(value_s: float) -> str:
    """ "10.0 s"; nothing for a time too short to be worth a word."""
    return f"{value_s:.1f} s" if value_s >= 0.5 else ""


def counted(count: int, noun: str) -> str:
    """ "1 step", "2 steps"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def without_folders(text: str) -> str:
    return re.sub(r"\[[^\]]*/(?=[\w.]+\.(?:cc|cpp):\d+\])", "[", text)


def shortened(text: str, most: int = 500) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def quoted(text: str, most: int = 150) -> str:
    """An error's first sentence, without the folders of the machine that built torch."""
    text = re.split(r"(?<=[a-z)])\. (?=[A-Z])", without_folders(text), maxsplit=1)[0]
    return f'"{text}"' if len(text) <= most else f'"{text[: most - 1]}…"'
