"""What the files of a run may hold: classes whose annotations are checked by msgspec.

What is beyond these is passed over; what is not as they say is a ValueError.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Required, TypedDict

from msgspec import Meta

from ddp_course import disk

MOST_RANKS = 4096  # of a folder that claims to be a run

Rank = Annotated[int, Meta(ge=0, lt=MOST_RANKS)]
Ranks = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
Count = Annotated[int, Meta(ge=0, lt=1 << 30)]
Code = Annotated[int, Meta(gt=-(1 << 30), lt=1 << 30)]
Seconds = Annotated[float, Meta(gt=-1e15, lt=1e15)]


class Asked(TypedDict, total=False):
    """run.json."""

    job: Required[str]
    ranks: Required[Ranks]
    knobs: Required[dict[str, Any]]
    command: Required[str]
    nodes: Ranks
    script: str
    cwd: str
    argv: list[str]
    env: dict[str, str]
    warm: bool
    trace: bool
    limit_s: Seconds
    created: Seconds
    restarts: int


class Failed(TypedDict, total=False):
    """failure.json, and the failure that the launcher itself tells: the fields of `Failure`."""

    rank: Required[Rank | None]
    what: Required[str]
    exit_code: Code | None
    traceback: str
    where: dict[Rank, str]
    consequences: dict[Rank, str]
    kind: str
    remedy: str
    lesson: str
    table: str


class Death(TypedDict):
    t: Seconds
    rank: Rank
    attempt: Count
    exit_code: Code


class Result(TypedDict, total=False):
    """result.json."""

    ended: Required[Literal["finished", "failed", "time-out", "stopped"]]
    wall_s: Required[Seconds]
    began: Seconds
    exit_codes: dict[Rank, Code]
    deaths: list[Death]
    failure: Failed | None


class Event(TypedDict, total=False):
    """One line of events-<rank>.jsonl."""

    rank: Required[Rank]
    event: Required[str]
    t: Required[Seconds]
    attempt: Count


def check_asked(asked: Any) -> None:
    """run.json."""
    disk.check(Asked, asked)
    if asked.get("nodes", 1) > asked["ranks"]:
        raise ValueError("it has more nodes than ranks")


def event(text: str) -> dict[str, Any] | None:
    """One line of events-<rank>.jsonl; None if it is not well-formed."""
    try:
        found: dict[str, Any] = disk.parse_json(text)
        disk.check(Event, found)
    except ValueError:
        return None
    found.setdefault("attempt", 0)
    return found
