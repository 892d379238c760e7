"""What the files of a run may hold: values of the right kind within limits, or a ValueError."""

from __future__ import annotations

import math
from typing import Any

from ddp_course import disk

MOST_RANKS = 4096  # of a folder that claims to be a run
_MOST = 1 << 30

# What other rooms read of run.json: name -> the types that it may have.
_ASKED: dict[str, tuple[type, ...]] = {
    "job": (str,), "command": (str,), "knobs": (dict,), "script": (str,), "cwd": (str,),
    "argv": (list,), "env": (dict,), "warm": (bool,), "trace": (bool,), "limit_s": (int, float),
    "created": (int, float), "restarts": (int,),
}  # fmt: skip
_NEEDED = "job", "ranks", "knobs", "command"
_ENDS = "finished", "failed", "time-out", "stopped"
_FAILURE_TEXTS = "what", "traceback", "kind", "remedy", "lesson", "table"
_FAILURE_BY_RANK = "where", "consequences"


def check_asked(asked: Any) -> None:
    """run.json."""
    if missing := [name for name in _NEEDED if name not in asked]:
        raise ValueError(f"it does not say {missing[0]}")
    for name, types in _ASKED.items():
        if name in asked and type(asked[name]) not in types:
            raise ValueError(f"{name} cannot be a {type(asked[name]).__name__}")
    ranks, nodes = asked["ranks"], asked.get("nodes", 1)
    if not (_whole(ranks, MOST_RANKS + 1) and ranks and _whole(nodes, ranks + 1) and nodes):
        raise ValueError("its numbers of ranks and nodes do not fit")
    times = [asked[name] for name in ("limit_s", "created") if name in asked]
    words = [*asked.get("argv", []), *asked.get("env", {}).values()]
    if not all(map(_seconds, times)) or not all(isinstance(word, str) for word in words):
        raise ValueError("its times or words are none")


def check_result(result: Any) -> None:
    """result.json."""
    for rank, code in result.get("exit_codes", {}).items():
        if not (_whole(int(rank), MOST_RANKS) and _whole(abs(code), _MOST)):
            raise ValueError("its exit codes are none")
    times = result["wall_s"], result.get("began", 0.0)
    if not all(map(_seconds, times)) or result["ended"] not in _ENDS:
        raise ValueError("it does not say how it ended")
    if not all(
        _seconds(death["t"]) and _whole(death["rank"], MOST_RANKS)
        and _whole(death["attempt"], _MOST) and _whole(abs(death["exit_code"]), _MOST)
        for death in result.get("deaths", [])
    ):  # fmt: skip
        raise ValueError("its list of deaths is not in order")
    if result.get("failure") is not None:
        check_failure(result["failure"])


def check_failure(failure: Any) -> None:
    """A failure as `Failure` takes it."""
    if not {"rank", "what"} <= failure.keys() <= {
        "rank", "exit_code", *_FAILURE_TEXTS, *_FAILURE_BY_RANK
    }:  # fmt: skip
        raise ValueError("its failure has other fields")
    told = [failure.get(name, "") for name in _FAILURE_TEXTS]
    for name in _FAILURE_BY_RANK:
        for rank, text in failure.get(name, {}).items():
            int(rank)
            told.append(text)
    if not all(isinstance(text, str) for text in told):
        raise ValueError("its failure is no text")
    rank, code = failure["rank"], failure.get("exit_code")
    if not (rank is None or _whole(rank, MOST_RANKS)):
        raise ValueError("its failure names no rank")
    if not (code is None or _whole(abs(code), _MOST)):
        raise ValueError("its failure's exit code is none")


def event(text: str) -> dict[str, Any] | None:
    """One line of events-<rank>.jsonl; None if it is not well-formed."""
    try:
        found: dict[str, Any] = disk.parse_json(text)
        ok = _whole(found["rank"], MOST_RANKS) and isinstance(found["event"], str)
        ok = ok and _whole(found.setdefault("attempt", 0), _MOST) and _seconds(found["t"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return found if ok else None


def check_line(line: Any) -> None:
    """One line of lines.jsonl, as a Line."""
    ranked = line.rank is None or _whole(line.rank, MOST_RANKS)
    texts = isinstance(line.text, str) and line.stream in ("stdout", "stderr")
    if not (ranked and texts and _seconds(line.t_s) and _whole(line.attempt, _MOST)):
        raise ValueError("no line of output")


def _whole(value: Any, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _seconds(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and not math.isnan(value) and abs(value) < 1e15
