"""A class, graded: every student, every exercise, exactly once, whatever any submission does.

    grade(DIR, students, OUT)    what is new or has changed
    regrade                      the same, with `again`: also what has been graded

Each result is written as soon as it is there, by `results.write`, all at once; so a batch that was
interrupted, or killed, goes on where it was. A lock keeps a second grader out of the folder.
Workers are threads, one submission each; the work is done by the processes in their sandboxes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_course import __version__
from ddp_course.checks import judge
from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.manifest import Exercise
from ddp_course.checks.verdict import Verdict
from ddp_course.errors import BadArgument, CannotRun, NoEvidence
from ddp_grading import box, report, results, roster, sandbox, submissions
from ddp_grading.answers import Collected
from ddp_grading.policy import Policy
from ddp_grading.results import Record
from ddp_grading.roster import Student

UNSAFE = "none (unsafe)"
_PREFIX = "ddp-grade-"


@dataclass
class Outcome:
    """What a batch did. `strangers` are entries that belong to nobody in the roster, with why."""

    graded: int = 0
    skipped: int = 0
    statuses: dict[str, int] = field(default_factory=dict)  # of all results, old ones too
    strangers: list[tuple[Path, str]] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)  # by student
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, record: Record, *, new: bool) -> None:
        """Note a result; from any thread."""
        with self._lock:
            self.graded += new
            self.skipped += not new
            self.statuses[record.status] = self.statuses.get(record.status, 0) + 1

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 some not, 3 something is our fault."""
        if self.statuses.get("infra"):
            return 3
        return 0 if set(self.statuses) <= {"pass"} else 1


@dataclass(frozen=True)
class Options:
    """How to grade.

    jobs       submissions at the same time
    exercises  their names; all by default
    students   their ids; all by default
    again      also what has been graded already
    unsafe     without a sandbox: only for files that you have read and trust
    """

    jobs: int = 1
    exercises: tuple[str, ...] = ()
    students: tuple[str, ...] = ()
    again: bool = False
    unsafe: bool = False
    policy: Policy = field(default_factory=Policy)
    limits: box.Limits = field(default_factory=box.Limits)


def grade(
    folder: Path | str,
    students: Sequence[Student],
    out: Path | str,
    options: Options | None = None,
    *,
    say: Callable[[str], None] | None = None,
    hidden: Sequence[Path] = (),
) -> Outcome:
    """Grade a folder of submissions into `out`. `say` gets a line after each submission.

    Raises BadArgument for what cannot be meant, sandbox.NoSandbox where submissions cannot be
    contained, CannotRun when another grader is at work in `out`. KeyboardInterrupt loses nothing
    that was graded.
    """
    options = options or Options()
    _check(options, students)
    out = Path(out)
    contained = UNSAFE if options.unsafe else sandbox.version()
    with _alone_in(out) as work, sandbox.image(work) as image:
        found = submissions.find(folder, students)
        roster.keep(out, students)
        outcome = Outcome(strangers=found.strangers)
        place = _Place(work, image, (Path(folder), out, *hidden))
        batch = _Batch(
            out, options, outcome, found.entries, contained, place, say or (lambda line: None)
        )
        batch.run([one for one in students if not options.students or one.id in options.students])
    return outcome


def _check(options: Options, students: Sequence[Student]) -> None:
    if type(options.jobs) is not int or not 1 <= options.jobs <= 256:
        raise BadArgument(f"-j cannot be {options.jobs!r}.", action="give a number from 1 to 256")
    for name in options.exercises:
        results.manifest(name)
    known = {one.id for one in students}
    for student in options.students:
        if student not in known:
            raise BadArgument(f"The roster has no student {student!r}.")


class _Batch:
    def __init__(
        self,
        out: Path,
        options: Options,
        outcome: Outcome,
        entries: dict[str, list[Path]],
        contained: str,
        place: _Place,
        say: Callable[[str], None],
    ) -> None:
        self._out, self._options, self._outcome = out, options, outcome
        self._entries, self._contained, self._place, self._say = entries, contained, place, say
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._desks: set[box.Desk] = set()
        self._probing, self._probed = threading.Lock(), False
        self._problem: BaseException | None = None
        self._count = self._done = self._worked = 0
        self._worked_s = 0.0

    def run(self, students: Sequence[Student]) -> None:
        """All of them; every result that is there when this is interrupted is kept."""
        waiting: queue.SimpleQueue[Student] = queue.SimpleQueue()
        for one in students:
            waiting.put(one)
        self._count = len(students)
        count = max(1, min(self._workers, len(students)))
        # Not join(): until Python 3.13 an interrupted one takes a living thread for an ended one.
        ended = threading.Semaphore(0)
        begun = over = 0
        try:
            for _ in range(count):
                threading.Thread(target=self._work, args=(waiting, ended), daemon=True).start()
                begun += 1
            while over < begun:
                over += ended.acquire(timeout=0.2)
        finally:
            self._halt()
            while over < begun and ended.acquire(timeout=60):
                over += 1
        if isinstance(self._problem, OSError):
            raise CannotRun(
                f"Results cannot be written: {self._problem}.",
                action="make room, then give the same command again: it goes on from here",
            ) from self._problem
        if self._problem is not None:
            raise self._problem

    @property
    def _workers(self) -> int:
        return 1 if self._options.unsafe else self._options.jobs  # one process launches in turn

    def _halt(self) -> None:
        self._stop.set()
        with self._lock:
            for desk in self._desks:
                desk.abandon()

    def _work(self, waiting: queue.SimpleQueue[Student], ended: threading.Semaphore) -> None:
        try:
            self._work_off(waiting)
        finally:
            ended.release()

    def _work_off(self, waiting: queue.SimpleQueue[Student]) -> None:
        while not self._stop.is_set():
            try:
                student = waiting.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            try:
                graded = self._grade(student)
            except box.Abandoned:
                return
            except BaseException as error:  # not of a submission: of ours, or a full disk
                self._problem = self._problem or error
                self._stop.set()
                return
            self._tell(student, graded, time.monotonic() - began)

    def _tell(self, student: Student, graded: int, seconds: float) -> None:
        with self._lock:
            self._done += 1
            if graded:
                self._worked += 1
                self._worked_s += seconds
            left_s = (self._count - self._done) * self._worked_s / max(1, self._worked)
            line = f"{self._done}/{self._count}  {report.plain(student.id)[:60]}"
            if self._done < self._count and self._worked:
                line += f"  (about {span(left_s / self._workers)} left)"
            self._say(line)

    def _grade(self, student: Student) -> int:
        """All of one student's exercises; → how many of them were graded now."""
        graded = 0
        with tempfile.TemporaryDirectory(dir=self._place.work, prefix="s-") as name:
            folder = Path(name)
            problem = ""
            try:
                collected = submissions.collect(
                    self._entries.get(student.id, []), folder, stopped=self._stop.is_set
                )
            except Exception as error:
                collected, problem = Collected(), _fault("could not be read", error)
            with self._lock:
                if collected.notes:
                    self._outcome.notes[student.id] = collected.notes
            with self._desk(folder) as judge_one:
                for exercise in _chosen(self._options):
                    if self._stop.is_set():
                        raise box.Abandoned
                    answer = collected.answers.get(exercise.name)
                    earlier = results.attempts(self._out, student.id, exercise.name)
                    sha256 = answer.sha256 if answer else ""
                    record = self._known(student, exercise, earlier, sha256)
                    new = record is None
                    if record is None:
                        if problem:
                            verdict = box.verdict_of(exercise, "infra", problem)
                        elif answer and answer.problem:
                            verdict = box.verdict_of(exercise, "ungradable", answer.problem)
                        elif answer:
                            verdict = judge_one(exercise, answer.file)
                        else:
                            verdict = _missing(exercise, collected.notes)
                        record = self._record(student, verdict, earlier, sha256)
                    graded += new
                    self._outcome.count(record, new=new)
        return graded

    @contextlib.contextmanager
    def _desk(self, folder: Path) -> Iterator[Callable[[Exercise, str], Verdict]]:
        if self._options.unsafe:
            yield lambda exercise, file: _judge_unsafely(
                replace(exercise, ranks=exercise.graded_ranks), folder / file
            )
            return
        with (
            box.Desk(
                self._place.image, folder, limits=self._options.limits, hidden=self._place.secrets
            ) as desk,
            self._held(desk),
        ):
            yield lambda exercise, file: self._contained_verdict(desk, exercise, file)

    @contextlib.contextmanager
    def _held(self, desk: box.Desk) -> Iterator[None]:
        """Known to who ends the batch."""
        with self._lock:
            self._desks.add(desk)
        try:
            if self._stop.is_set():
                raise box.Abandoned
            yield
        finally:
            with self._lock:
                self._desks.discard(desk)

    def _contained_verdict(self, desk: box.Desk, exercise: Exercise, file: str) -> Verdict:
        """The verdict from a sandbox, which has shown before the first that a job runs in it."""
        with self._probing:
            if not self._probed:
                if problem := box.probe(self._place.image, held=self._held):
                    raise sandbox.NoSandbox(
                        f"A job does not run in the sandbox here: {problem}",
                        action="run `python -m ddp_course doctor --grading`",
                    )
                self._probed = True
                self._contained += f"; {sandbox.in_words(sandbox.limits(self._place.image))}"
        try:
            return desk.judge(exercise, file, ranks=exercise.graded_ranks)
        except box.Abandoned:
            raise
        except Exception as error:  # one submission's, whatever it is: the next is graded
            desk.close()
            return box.verdict_of(exercise, "infra", _fault("could not be judged", error))

    def _known(
        self, student: Student, exercise: Exercise, earlier: list[Record], sha256: str
    ) -> Record | None:
        """What has been found out about this very file by this version of the course."""
        if self._options.again:
            return None
        try:
            if results.read(self._out, student.id, exercise.name) is None:
                return None
        except NoEvidence:
            return None
        for one in reversed(earlier):
            if (one.sha256, one.course) == (sha256, __version__) and one.status != "infra":
                if (one.sandbox == UNSAFE) != self._options.unsafe and sha256:
                    return None
                return results.judge_lateness(
                    self._out, student, exercise.name, sha256, self._options.policy
                )
        return None

    def _record(
        self, student: Student, verdict: Verdict, earlier: list[Record], sha256: str
    ) -> Record:
        attempt = results.next_attempt(earlier, sha256)
        policy = self._options.policy
        record = results.record(
            student,
            verdict,
            policy.lateness(student, attempt),
            sandbox=self._contained,
            sha256=sha256,
            attempt=attempt,
        )
        return results.write(self._out, record, counts=policy.counts)


def _chosen(options: Options) -> list[Exercise]:
    return [
        one for one in EXERCISES.values() if not options.exercises or one.name in options.exercises
    ]


def _fault(what: str, error: Exception) -> str:
    return f"The submission {what}: {type(error).__name__}: {str(error)[:500]}"


def _missing(exercise: Exercise, notes: Sequence[str]) -> Verdict:
    message = f"No answer was handed in: no {exercise.stem}.py, and no notebook with "
    message += f"{exercise.function}()."
    if notes:
        message += "\nLeft out or not readable:\n" + "\n".join(notes)
    return box.verdict_of(exercise, "ungradable", message)


def _judge_unsafely(exercise: Exercise, path: Path) -> Verdict:
    """As in learning mode: nothing is contained, and nobody counts bytes."""
    for _ in range(2):  # what is our fault is tried once more
        gathered, run_folder = judge.run_ranks(exercise, path, None)
        found = judge.assess(exercise, gathered)
        shutil.rmtree(run_folder, ignore_errors=True)
        if found[0].status != "infra":
            break
    return Verdict(exercise.name, exercise.title, found, note=UNSAFE)


@dataclass(frozen=True)
class _Place:
    """Folders of this batch: for the copies of submissions, for the sandbox; and what to hide."""

    work: Path
    image: Path
    secrets: tuple[Path, ...]


@contextlib.contextmanager
def _alone_in(out: Path) -> Iterator[Path]:
    """Hold `out` against other graders; → a folder for what is temporary, gone at the end.

    What a killed grader has left of its own is removed.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = open(out / ".lock", "a+")  # noqa: SIM115 - held to the end
    except OSError as error:
        raise BadArgument(
            f"{out} cannot be written: {error.strerror}.", action="name another --out"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CannotRun(
                f"Another grader is at work in {out}.",
                action="wait for it, or grade into another folder",
            ) from None
        lock.seek(0)
        _remove(lock.read().strip())
        work = tempfile.mkdtemp(prefix=_PREFIX)
        lock.truncate(0)
        lock.write(work)
        lock.flush()
        try:
            yield Path(work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            lock.truncate(0)


def _remove(left: str) -> None:
    """The folder of a grader that was killed, if it is one."""
    path = Path(left)
    if not re.fullmatch(_PREFIX + r"[a-z0-9_]{8}", path.name) or path.is_symlink():
        return
    with contextlib.suppress(OSError):
        if path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)


def span(seconds: float) -> str:
    """Such as "40 s", "3 min", "2 h"."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
