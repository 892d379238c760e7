"""Where grades are kept, and what may stand there: the SQLite database in OUT, ids and texts.

student    the class, in the order of the roster (roster.py)
attempt    every attempt at every exercise; `counts` marks the one that counts (results.py)
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from ddp_course.errors import BadArgument, CannotRun, NoEvidence

NAME = "grades.db"
TEXT_LIMIT = 20_000  # characters of one text in a record
_TIDY_LIMIT = 120  # characters of a folder's name
_SPACE = " \t\r\n\f\v\u00a0\u2007\u202f\u3000\ufeff\u200b"
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS student (id TEXT NOT NULL UNIQUE, data TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS attempt (
    student TEXT NOT NULL,
    exercise TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    checks TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    submitted TEXT,
    late_s REAL NOT NULL,
    penalty REAL NOT NULL,
    note TEXT NOT NULL,
    sandbox TEXT NOT NULL,
    graded TEXT NOT NULL,
    course TEXT NOT NULL,
    counts INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (student, exercise, attempt)
);
CREATE UNIQUE INDEX IF NOT EXISTS counted_once ON attempt (student, exercise) WHERE counts;
COMMIT;
"""


@contextmanager
def database(out: Path | str, *, make: bool = False) -> Iterator[sqlite3.Connection]:
    """The database of a folder, for one transaction. `make`: create it where there is none.

    Raises NoEvidence where there are no results, or none that can be read; CannotRun where they
    cannot be written.
    """
    path = Path(out) / NAME
    if not path.exists() or not path.stat().st_size:  # empty: a grader is about to fill it
        if (path.parent / "results").is_dir():
            raise NoEvidence(
                f"{out} holds results of an earlier version of the course (results/, attempts/).",
                cause="grades are now in one file, grades.db",
                action="grade into a new folder: --out NEW. Nothing in the old one was changed; "
                "results/STUDENT/EXERCISE.json stay readable",
            )
        if not make:
            raise NoEvidence(
                f"{out} holds no results.",
                cause="nothing was graded into this folder yet",
                action="python -m ddp_grading grade DIR --roster R.csv --out OUT",
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o660))
    try:
        with closing(sqlite3.connect(path, timeout=60)) as db, db:
            if make:
                db.executescript(_SCHEMA)
            yield db
    except sqlite3.OperationalError as error:  # a full disk, a lock, no permission
        raise CannotRun(
            f"{path} cannot be used: {error}.",
            action="make room or give access, then give the same command again: it resumes",
        ) from None
    except sqlite3.DatabaseError as error:
        raise NoEvidence(
            f"{path} is damaged: {error}.",
            action="put back a copy, or move the file away and grade again",
        ) from None


def tidy_id(student: str) -> str:
    """A student id in one form: composed (NFC), no surrounding space."""
    return unicodedata.normalize("NFC", student).strip(_SPACE)


def folder_name(student: str) -> str:
    """A student id as a file's name: ASCII, one for each id, also where letters' case is ignored.

    Percent-encoded; ids with capitals, and those too long for a name, end with ~ and a hash.
    """
    tidy = tidy_id(student)
    if not tidy or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in tidy):
        raise BadArgument(f"{student!r} cannot be a student id.")
    name = quote(tidy, safe="").replace("~", "%7E").replace(".", "%2E")
    capitals = any("A" <= letter <= "Z" for letter in tidy)
    if capitals or len(name) > _TIDY_LIMIT:
        mark = hashlib.sha256(tidy.encode()).hexdigest()[:12]
        name = f"{name[:_TIDY_LIMIT].rstrip('%')}~{mark}"
    return name


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text without control characters (tab and line feed stay) and surrogates, cut at `limit`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    kept = "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cs") else "�"
        for letter in text
    )
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"
