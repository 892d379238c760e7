"""What a student got, on disk: one sealed JSON record for each student and exercise.

    OUT/results/<student>/<exercise>.json      the record that counts
    OUT/attempts/<student>/<exercise>.<n>.json   every attempt, the counted one too
    OUT/seal.key                               seals the records of this folder; never shared

Nothing is believed because it stands in a file. A record is refused, with the reason, when it is
damaged, lies in a place that is not its own, does not fit the exercise's manifest (checks and
points), contradicts itself, or lacks the seal of this folder: it was edited or made elsewhere.
Whoever can write to OUT can read the key too: the seal keeps out slips and foreign files.
Submissions never see the folder.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ddp_course import __version__
from ddp_course.checks.verdict import SIGNS, Verdict
from ddp_course.errors import BadArgument, NoEvidence

if TYPE_CHECKING:
    from ddp_grading.policy import Policy
    from ddp_grading.roster import Student

VERSION = 1
STATUSES = tuple(SIGNS)
FREE = ("ungradable", "infra")  # cost no attempt
LIMIT = 10**12  # of points, and of seconds late
TEXT_LIMIT = 20_000  # characters of one text in a record
_FILE_LIMIT = 4 * 2**20
_TIDY_LIMIT = 120  # characters of a folder's name
_SPACE = " \t\r\n\f\v\u00a0\u2007\u202f\u3000\ufeff\u200b"


@dataclass(frozen=True)
class Score:
    """Points, and what lateness leaves of them. A score that is out of range cannot be built.

    penalty   share taken off for lateness, 0 to 1
    value     points × (1 - penalty), to two decimals, halves up
    """

    points: float
    max_points: float
    penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("points", "max_points", "penalty"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise BadArgument(f"{name} is {number!r}, not a number.")
            if not 0 <= number <= LIMIT:  # NaN is neither
                raise BadArgument(f"{name} is {number!r:.80}, not a number from 0 to {LIMIT}.")
        if self.points > self.max_points:
            raise BadArgument(f"points are {self.points!r}, above the maximum {self.max_points!r}.")
        if self.penalty > 1:
            raise BadArgument(f"penalty is {self.penalty!r}, above 1.")

    @property
    def value(self) -> float:
        exact = Decimal(str(self.points)) * (1 - Decimal(str(self.penalty)))
        return float(exact.quantize(Decimal("0.01"), ROUND_HALF_UP))


@dataclass(frozen=True)
class Mark:
    """One check of a record; the fields are those of checks.verdict.Result."""

    id: str
    title: str
    status: str
    points: int
    max_points: int
    message: str = ""
    mistake: str = ""
    hint: str = ""

    def __post_init__(self) -> None:
        _texts(self, "id", "title", "message", "mistake", "hint")
        _status(self.status)
        _whole("points", self.points, least=0)
        _whole("max_points", self.max_points, least=0)
        if self.points != (self.max_points if self.status == "pass" else 0):
            raise BadArgument(
                f"check {self.id!r} is {self.status!r} with {self.points!r} of "
                f"{self.max_points!r} points."
            )


@dataclass(frozen=True)
class Record:
    """One student's result in one exercise. Cannot be built against the exercise's manifest.

    sha256     of the graded file, "" if there was none
    attempt    1 for the first submission that could be graded
    submitted  ISO time with zone, or None
    late_s     seconds after the due time; 0 if in time, or within the grace
    penalty    share taken off, 0 to 1; `score` is what is left, to two decimals
    note       why there is a penalty, in words
    sandbox    what contained the ranks, or "none (unsafe)"
    """

    student: str
    exercise: str
    status: str
    points: int
    max_points: int
    checks: tuple[Mark, ...]
    sha256: str = ""
    attempt: int = 1
    submitted: str | None = None
    late_s: float = 0.0
    penalty: float = 0.0
    score: float = 0.0
    note: str = ""
    sandbox: str = ""
    graded: str = ""
    course: str = __version__
    version: int = VERSION

    def __post_init__(self) -> None:
        _texts(self, "student", "exercise", "sha256", "note", "sandbox", "graded", "course")
        if self.version != VERSION or isinstance(self.version, bool):
            raise BadArgument(f"version is {self.version!r}; this course reads {VERSION}.")
        folder_name(self.student)
        if self.student != tidy_id(self.student):
            raise BadArgument(f"student is {self.student!r}, not {tidy_id(self.student)!r}.")
        _status(self.status)
        _whole("attempt", self.attempt, least=1)
        if self.sha256 and not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise BadArgument(f"sha256 is {self.sha256[:80]!r}.")
        for name in ("submitted", "graded"):
            _moment(name, getattr(self, name))
        if not isinstance(self.checks, tuple) or not all(isinstance(m, Mark) for m in self.checks):
            raise BadArgument("checks are not a list of checks.")
        self._fits_manifest()
        expected = Score(self.points, self.max_points, self.penalty).value
        if isinstance(self.score, bool) or self.score != expected:
            raise BadArgument(f"score is {self.score!r} where the points give {expected!r}.")
        Score(self.late_s, LIMIT)  # finite, not negative

    def _fits_manifest(self) -> None:
        wanted = manifest(self.exercise)
        if [(one.id, one.max_points) for one in self.checks] != list(wanted.items()):
            raise BadArgument(
                f"the checks or their points are not those of {self.exercise}.",
                cause="made by another version of the course, or by hand",
            )
        if self.max_points != sum(wanted.values()):
            raise BadArgument(f"max_points are {self.max_points!r}, not {sum(wanted.values())}.")
        if self.points != sum(one.points for one in self.checks):
            raise BadArgument(f"points are {self.points!r}, not the sum of the checks.")
        first = next((one.status for one in self.checks if one.status != "pass"), "pass")
        if self.status != first:
            raise BadArgument(f"the status is {self.status!r} but the checks say {first!r}.")


@dataclass(frozen=True)
class Refused:
    """A file under OUT/results that is not counted, and why."""

    path: Path
    reason: str
    student: str = ""  # whose it claims to be, when the folder's name tells
    exercise: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Gradebook:
    """All records that count, and all files that do not."""

    records: Mapping[tuple[str, str], Record]  # by student and exercise
    refused: tuple[Refused, ...] = ()


def manifest(exercise: str) -> dict[str, int]:
    """The ids of an exercise's checks, in order, and their points."""
    from ddp_course.checks.exercises import EXERCISES

    if exercise not in EXERCISES:
        raise BadArgument(
            f"there is no exercise {exercise!r}.", action="choose one of " + ", ".join(EXERCISES)
        )
    return {check.id: check.points for check in EXERCISES[exercise].checks}


def exercises() -> dict[str, str]:
    """Every exercise's name and title, in the course's order."""
    from ddp_course.checks.exercises import EXERCISES

    return {name: one.title for name, one in EXERCISES.items()}


def record(
    student: str,
    verdict: Verdict,
    *,
    sandbox: str,
    sha256: str = "",
    attempt: int = 1,
    submitted: datetime | None = None,
    late_s: float = 0.0,
    penalty: float = 0.0,
    note: str = "",
    graded: datetime | None = None,
) -> Record:
    """The record of a verdict. Points come from the manifest; texts are cleaned and cut.

    Raises BadArgument when the verdict does not fit the manifest.
    """
    points = manifest(verdict.exercise)
    marks = tuple(
        Mark(
            id=one.id,
            title=clean(one.title),
            status=one.status,
            points=points.get(one.id, 0) if one.status == "pass" else 0,
            max_points=points.get(one.id, one.max_points),
            message=clean(one.message),
            mistake=clean(one.mistake),
            hint=clean(one.hint),
        )
        for one in verdict.results
    )
    total = sum(mark.points for mark in marks)
    most = sum(points.values())
    return Record(
        student=tidy_id(student),
        exercise=verdict.exercise,
        status=verdict.status,
        points=total,
        max_points=most,
        checks=marks,
        sha256=sha256,
        attempt=attempt,
        submitted=submitted.isoformat() if submitted else None,
        late_s=late_s,
        penalty=penalty,
        score=Score(total, most, penalty).value,
        note=clean(note),
        sandbox=clean(sandbox),
        graded=(graded or datetime.now(UTC)).isoformat(timespec="seconds"),
    )


def write(out: Path | str, new: Record, *, counts: str = "last") -> Record:
    """Keep an attempt, and make the one that counts the record. → the record that counts.

    Written to a draft, synced, renamed: a power cut leaves the old or the new one.
    """
    out = Path(out)
    key = _key(out)
    put(_attempt_path(out, new.student, new.exercise, new.attempt), _sealed(new, key))
    found = {one.attempt: one for one in _current(out, new.student, new.exercise, new.sha256)}
    with suppress(NoEvidence):  # a damaged one gives way to what was just graded
        if (old := read(out, new.student, new.exercise)) and old.status != "infra":
            found.setdefault(old.attempt, old)
    counted = choose([*found.values()], counts)
    put(record_path(out, new.student, new.exercise), _sealed(counted, key))
    return counted


def choose(tried: Sequence[Record], counts: str) -> Record:
    """Of one student's attempts at one exercise, the one that counts.

    `counts` is "last" or "best" (by score; the later of equals). If the newest failed by our fault
    it is that one: no score stands before it is graded. One with nothing to grade, and one that
    came too late to count, give way to any other.
    """
    if counts not in ("last", "best"):
        raise BadArgument(f"counts is {counts!r}.", action='choose "last" or "best"')
    ordered = sorted(tried, key=lambda one: one.attempt)
    if ordered[-1].status == "infra":
        return ordered[-1]
    graded = [one for one in ordered if one.status not in FREE] or ordered[-1:]
    graded = [one for one in graded if one.penalty < 1] or graded
    if counts == "last":
        return graded[-1]
    return max(graded, key=lambda one: (one.score, one.attempt))


def judge_lateness(
    out: Path | str, student: Student, exercise: str, sha256: str, policy: Policy
) -> Record | None:
    """Apply a policy to what was graded before, for instance after an extension; nothing is run.

    `sha256` is of the file that the student's time of submission belongs to; other attempts keep
    theirs. → the record that counts now, None if there is none.
    """
    tried = []
    changed = False
    for one in _current(Path(out), student.id, exercise, sha256):
        mine = student
        if one.sha256 != sha256:
            then = datetime.fromisoformat(one.submitted) if one.submitted else None
            mine = replace(student, submitted=then, attempts=None)
        found = policy.lateness(mine, one.attempt)
        score = Score(one.points, one.max_points, found.penalty).value
        new = replace(
            one,
            submitted=mine.submitted.isoformat() if mine.submitted else None,
            late_s=found.late_s,
            penalty=found.penalty,
            note=found.note,
            score=score,
        )
        changed = changed or new != one
        tried.append(new)
    if not tried:
        return None
    counted = choose(tried, policy.counts)
    if changed or read(out, student.id, exercise) != counted:
        for one in tried:
            write(out, one, counts=policy.counts)
    return counted


def read(out: Path | str, student: str, exercise: str) -> Record | None:
    """The record that counts, None if there is none.

    Raises NoEvidence, with the reason, for a file that is damaged, forged or misplaced.
    """
    path = record_path(Path(out), student, exercise)
    if not os.path.lexists(path):
        return None
    return _load(path, _known_key(Path(out)), student=tidy_id(student), exercise=exercise)


def attempts(out: Path | str, student: str, exercise: str) -> list[Record]:
    """Every readable attempt, the oldest first. One without evidence has the next one's number."""
    out = Path(out)
    folder = _attempt_path(out, student, exercise, 1).parent
    found = []
    for path in folder.glob(f"{exercise}.*.json"):
        with suppress(NoEvidence):
            found.append(_load(path, _known_key(out), student=tidy_id(student), exercise=exercise))
    return sorted(found, key=lambda one: one.attempt)


def _current(out: Path, student: str, exercise: str, sha256: str) -> list[Record]:
    """The attempts, after forgetting those that failed by our fault on another file than this."""
    kept = []
    for one in attempts(out, student, exercise):
        if one.status == "infra" and one.sha256 != sha256:
            _attempt_path(out, student, exercise, one.attempt).unlink(missing_ok=True)
        else:
            kept.append(one)
    return kept


def next_attempt(earlier: list[Record], sha256: str) -> int:
    """The number of the attempt that a file makes. The same file again is the same attempt."""
    for one in earlier:
        if one.sha256 == sha256 and one.sha256:
            return one.attempt
    return 1 + max((one.attempt for one in earlier if one.status not in FREE), default=0)


def read_all(out: Path | str) -> Gradebook:
    """Every record under OUT/results; what is refused is named, never counted.

    Raises NoEvidence when OUT holds no results at all.
    """
    out = Path(out)
    if not (out / "results").is_dir():
        raise NoEvidence(
            f"{out} holds no results.",
            cause="nothing was graded into this folder yet",
            action="python -m ddp_grading grade DIR --roster R.csv --out OUT",
        )
    key = _known_key(out)
    records: dict[tuple[str, str], Record] = {}
    refused: list[Refused] = []
    for path in _files(out / "results"):
        try:
            one = _load(path, key)
        except NoEvidence as error:
            refused.append(Refused(path.relative_to(out), error.what, exercise=path.stem))
        else:
            records[one.student, one.exercise] = one
    return Gradebook(records, tuple(refused))


def refused_for(book: Gradebook, student: str, exercise: str) -> Refused | None:
    """The refused file that lies where this student's record should be."""
    place = record_path(Path(), student, exercise)
    return next((one for one in book.refused if one.path == place), None)


def tidy_id(student: str) -> str:
    """A student id in one form: composed (NFC), no surrounding space."""
    return unicodedata.normalize("NFC", student).strip(_SPACE)


def folder_name(student: str) -> str:
    """A student id as a folder's name: ASCII, one for each id, also where letters' case is ignored.

    Percent-encoded; ids with capitals, and those too long for a name, end with ~ and a hash.
    """
    tidy = tidy_id(student)
    if not tidy or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in tidy):
        raise BadArgument(f"{student!r} is no student id.")
    name = quote(tidy, safe="").replace("~", "%7E").replace(".", "%2E")
    capitals = any("A" <= letter <= "Z" for letter in tidy)
    if capitals or len(name) > _TIDY_LIMIT:
        mark = hashlib.sha256(tidy.encode()).hexdigest()[:12]
        name = f"{name[:_TIDY_LIMIT].rstrip('%')}~{mark}"
    return name


def record_path(out: Path, student: str, exercise: str) -> Path:
    """Where the record that counts lies."""
    manifest(exercise)
    return out / "results" / folder_name(student) / f"{exercise}.json"


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text without control characters (tab and line feed stay) and surrogates, cut at `limit`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cs") else "�"
        for letter in text
    )
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def _attempt_path(out: Path, student: str, exercise: str, attempt: int) -> Path:
    manifest(exercise)
    return out / "attempts" / folder_name(student) / f"{exercise}.{attempt}.json"


def _files(folder: Path) -> Iterator[Path]:
    """All that could pass for a record; our own drafts start with a dot."""
    for student in sorted(folder.iterdir()):
        if student.name.startswith("."):
            continue
        if student.is_symlink() or not student.is_dir():
            yield student
            continue
        yield from sorted(path for path in student.iterdir() if not path.name.startswith("."))


def _load(
    path: Path, key: bytes, student: str | None = None, exercise: str | None = None
) -> Record:
    try:
        data = json.loads(text_of(path), object_pairs_hook=_no_twins, parse_constant=_no_constant)
        if not isinstance(data, dict):
            raise BadArgument("it is no record.")
        seal = data.pop("seal", None)
        one = _build(data)
    except (OSError, ValueError, RecursionError) as error:
        what = error.what if isinstance(error, BadArgument) else f"it cannot be read ({error})."
        raise NoEvidence(clean(what, 300), action=_AGAIN) from None
    if not isinstance(seal, str) or not hmac.compare_digest(
        seal.encode(errors="replace"), _seal(data, key).encode()
    ):
        raise NoEvidence(
            "its seal is not that of this folder: it was edited, or made elsewhere.", action=_AGAIN
        )
    counted = path.parent.parent.name == "results"
    name = f"{one.exercise}.json" if counted else f"{one.exercise}.{one.attempt}.json"
    if (path.parent.name, path.name) != (folder_name(one.student), name):
        raise NoEvidence(f"it belongs to {one.student!r}, {one.exercise}.", action=_AGAIN)
    if student not in (None, one.student) or exercise not in (None, one.exercise):
        raise NoEvidence(f"it belongs to {one.student!r}, {one.exercise}.", action=_AGAIN)
    return one


_AGAIN = "delete the file and grade that submission again"


def _build(data: dict[str, Any]) -> Record:
    _keys("the record", data, {field.name for field in fields(Record)})
    checks = data["checks"]
    if not isinstance(checks, list):
        raise BadArgument("checks are not a list.")
    marks = []
    for one in checks:
        if not isinstance(one, dict):
            raise BadArgument("a check is no object.")
        _keys("a check", one, {field.name for field in fields(Mark)})
        marks.append(Mark(**one))
    return Record(**{**data, "checks": tuple(marks)})


def _keys(what: str, data: dict[str, Any], wanted: set[str]) -> None:
    if wrong := sorted(wanted.symmetric_difference(data)):
        raise BadArgument(f"{what} lacks or should not have: {', '.join(wrong)[:200]}.")


def text_of(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadArgument("it is no regular file.")
        raw = file.read(_FILE_LIMIT + 1)
    if len(raw) > _FILE_LIMIT:
        raise BadArgument(f"it is larger than {_FILE_LIMIT} bytes.")
    return raw.decode("utf-8")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadArgument("a name occurs twice in it.")
    return found


def _no_constant(name: str) -> float:
    raise BadArgument(f"{name} is no number.")


def _sealed(one: Record, key: bytes) -> str:
    data = json.loads(json.dumps(asdict(one), allow_nan=False))
    return json.dumps({**data, "seal": _seal(data, key)}, indent=1, ensure_ascii=False) + "\n"


def _seal(data: dict[str, Any], key: bytes) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(out: Path) -> bytes:
    """The folder's key; made once, also when two graders start together."""
    path = out / "seal.key"
    out.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        draft = out / f".seal-{secrets.token_hex(8)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o660)
        with open(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass  # another grader was first
        except OSError:  # a file system without links
            os.replace(draft, path)
        draft.unlink(missing_ok=True)
    return _known_key(out)


def _known_key(out: Path) -> bytes:
    try:
        return text_of(out / "seal.key").encode()
    except (OSError, ValueError):
        return secrets.token_bytes(32)  # no key: no record has its seal


def put(path: Path, data: str | bytes) -> None:
    """Write a whole file or nothing: a draft beside it, synced, renamed. Others cannot read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f".draft-{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o660)
    try:
        with open(descriptor, "wb") as file:
            file.write(data.encode("utf-8") if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _texts(one: object, *names: str) -> None:
    for name in names:
        text = getattr(one, name)
        if not isinstance(text, str):
            raise BadArgument(f"{name} is {text!r:.80}, not a text.")
        if len(text) > TEXT_LIMIT or text != clean(text):
            raise BadArgument(f"{name} is too long or holds control characters.")


def _status(status: object) -> None:
    if status not in STATUSES:
        raise BadArgument(f"status is {status!r:.80}; known are {', '.join(STATUSES)}.")


def _whole(name: str, number: object, least: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise BadArgument(f"{name} is {number!r:.80}, not a whole number of at least {least}.")


def _moment(name: str, text: object) -> None:
    if text is None or text == "":
        return
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadArgument(f"{name} is {text!r:.80}, not an ISO time with its zone.")
