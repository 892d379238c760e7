"""What lateness and further attempts cost, in the words of a syllabus.

    late = "10% per day, at most 50%"     each day begun costs; "per hour" and "per week" too
    grace = "10 minutes"                  as late as this still counts as in time
    closes = "3 days"                     after this nothing counts; or a time: 2026-03-08 23:59
    max_attempts = 5                      further ones do not count
    counts = "best"                       or "last": which attempt counts
    zone = "Europe/Berlin"                of times that name none

The same as a TOML file (`--policy`) or as flags. A day is 24 hours of real time.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import Any

from ddp_course.errors import BadArgument
from ddp_grading.roster import Student, find_zone, moment

WORDS = ("late", "grace", "closes", "max_attempts", "counts", "zone")
UNITS = {"minute": 60, "min": 60, "hour": 3600, "h": 3600, "day": 86400, "week": 604800}
_UNIT = "|".join(UNITS)
_RATE = re.compile(
    rf"(?P<rate>\d+(?:\.\d+)?) ?% ?(?:per|each|a|/) ?(?P<unit>{_UNIT})"
    r"(?:,? (?:at most|up to|max(?:imum)?) (?P<most>\d+(?:\.\d+)?) ?%)?",
    re.IGNORECASE,
)
_SPAN = re.compile(rf"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>{_UNIT})s?", re.IGNORECASE)


@dataclass(frozen=True)
class Lateness:
    """What is taken off one submission, and why."""

    late_s: float = 0.0
    penalty: float = 0.0  # share of the points, 0 to 1
    note: str = ""


@dataclass(frozen=True)
class Policy:
    """Rules for late and repeated submissions. By default nothing costs anything."""

    rate: float = 0.0  # share for each unit begun
    unit_s: int = 86400
    most: float = 1.0  # share that lateness costs at most
    grace_s: float = 0.0
    closes_s: float | None = None  # after the due time
    closes_at: datetime | None = None
    max_attempts: int | None = None
    counts: str = "last"
    zone: str = "UTC"

    def lateness(self, student: Student, attempt: int = 1) -> Lateness:
        """What is taken off a student's submission.

        `attempt` is its number as the grader counts; the roster's own number goes before it, and
        the roster's max_attempts before this policy's. Without a due time, or without the time of
        submission, nobody is late.
        """
        number = student.attempts or attempt
        most = student.max_attempts or self.max_attempts
        late_s = 0.0
        if student.due and student.submitted:
            late_s = max(0.0, (student.submitted - student.due).total_seconds())
        if late_s <= self.grace_s:
            late_s = 0.0
        if most is not None and number > most:
            return Lateness(late_s, 1.0, f"attempt {number} of at most {most}: does not count")
        if self.closes_at and student.submitted and student.submitted > self.closes_at:
            end = f"the last deadline, {self.closes_at:%Y-%m-%d %H:%M} UTC"
            return Lateness(late_s, 1.0, f"after {end}: does not count")
        if self.closes_s is not None and late_s > self.closes_s:
            return Lateness(late_s, 1.0, "after the last deadline: does not count")
        if not late_s:
            return Lateness()
        units = ceil(late_s / self.unit_s)
        exact = min(Decimal(str(self.rate)) * units, Decimal(str(self.most)), Decimal(1))
        penalty = float(round(exact, 6))
        return Lateness(late_s, penalty, f"{span(late_s)} late: −{100 * penalty:g} %")


def read(path: Path | str) -> Policy:
    """A policy from a TOML file. Raises BadArgument for what is not understood."""
    return make(**_words(Path(path)))


def make(**words: Any) -> Policy:
    """A policy from the words that flags and TOML files use (see this module)."""
    if unknown := sorted(words.keys() - set(WORDS)):
        raise BadArgument(
            f"The policy has {unknown[0]!r}, which is not known.", action="use " + ", ".join(WORDS)
        )
    zone = str(words.get("zone", "UTC"))
    rules: dict[str, Any] = {"zone": zone, "counts": words.get("counts", "last")}
    tz = find_zone(zone)
    if late := words.get("late"):
        rules |= _late(str(late))
    if grace := words.get("grace"):
        rules["grace_s"] = seconds(grace)
    if closes := words.get("closes"):
        try:
            rules["closes_at"], _ = moment(str(closes), tz, deadline=True)
        except ValueError:
            rules["closes_s"] = seconds(closes)
    most = rules["max_attempts"] = words.get("max_attempts")
    if most is not None and (type(most) is not int or most < 1):
        raise BadArgument(f"max_attempts is {most!r}.", action="write a number from 1")
    if rules["counts"] not in ("last", "best"):
        raise BadArgument(f"counts is {rules['counts']!r}.", action='write "last" or "best"')
    return Policy(**rules)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a policy; `from_flags` reads them."""
    group = parser.add_argument_group("late and repeated submissions")
    group.add_argument("--policy", type=Path, metavar="FILE", help="the same as a TOML file")
    group.add_argument("--late", metavar="RULE", help='such as "10%% per day, at most 50%%"')
    group.add_argument("--grace", metavar="SPAN", help='such as "10 minutes"')
    group.add_argument(
        "--closes",
        metavar="SPAN",
        help='such as "3 days" after the due time, or a time; a date alone means its end',
    )
    group.add_argument("--max-attempts", type=int, metavar="N", help="further ones do not count")
    group.add_argument("--counts", choices=("last", "best"), help="which attempt (default last)")
    group.add_argument("--zone", help="of times that name none (default UTC)")


def from_flags(given: argparse.Namespace) -> Policy:
    """The policy that flags and `--policy` give together; a flag goes before the file."""
    words = _words(given.policy) if given.policy else {}
    flags = {name: getattr(given, name) for name in WORDS}
    return make(**words | {name: value for name, value in flags.items() if value is not None})


def seconds(text: object) -> float:
    """ "10 minutes" → 600.0. Raises BadArgument."""
    total, rest = 0.0, str(text).strip()
    while found := _SPAN.match(rest):
        total += float(found["number"]) * UNITS[found["unit"].lower()]
        rest = rest[found.end() :].lstrip(" ,").removeprefix("and ")
    if rest or not str(text).strip():
        raise BadArgument(
            f"{str(text)[:80]!r} is not a length of time.",
            action='write for example "10 minutes" or "3 days"',
        )
    return total


def span(late_s: float) -> str:
    """A length of time in at most two units: "2 days 3 h"."""
    whole = timedelta(seconds=round(late_s))
    hours, rest = divmod(whole.seconds, 3600)
    parts = [
        (whole.days, "day" if whole.days == 1 else "days"),
        (hours, "h"),
        (rest // 60, "min"),
        (rest % 60, "s"),
    ]
    shown = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or "less than 1 s"


def _words(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadArgument(f"The policy {path} cannot be read: {error}") from None


def _late(text: str) -> dict[str, Any]:
    if text.strip().lower() == "none":
        return {"rate": 0.0}
    found = _RATE.fullmatch(" ".join(text.split()))
    if not found:
        raise BadArgument(
            f"{text[:80]!r} is not a rule for late work.",
            action='write for example "10% per day, at most 50%"',
        )
    rate, most = float(found["rate"]) / 100, float(found["most"] or 100) / 100
    if rate > 1 or most > 1:
        raise BadArgument(f"{text[:80]!r} takes off more than 100%.")
    return {"rate": rate, "most": most, "unit_s": UNITS[found["unit"].lower()]}
