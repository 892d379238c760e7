"""A class's results in the forms that other programs read.

    csv, json, junit       one file
    gradescope, github     one file for each student
    canvas, moodle         the file that the instructor exported there, with the scores filled in

Every student of the roster is in each of them exactly once. A result that must be graded again
("infra", or a refused record) has no score anywhere: it is never 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from ddp_course import __version__
from ddp_grading import results
from ddp_grading.report import OPEN, STATES, UNSCORED, Book, Row
from ddp_grading.results import Record

FORMULA = "=+-@\t\r\n＝＋－＠"  # a cell that begins so may run in a spreadsheet program


def as_csv(book: Book) -> str:
    """One row for each student. Scores are numbers; text that could be a formula begins with '."""
    head = ["id", "name", "email", "section", "score", "max_score", "state", "submitted", "sandbox"]
    for name in book.points:
        head += [f"{name} score", f"{name} status", f"{name} penalty", f"{name} note"]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow(map(_safe, head))
    for row in book.rows:
        who = row.student
        cells: list[str | float] = [who.id, who.name, who.email, who.section]
        cells += ["" if row.open or row.absent else row.score, row.max_score, _state(row)]
        cells += [who.submitted.isoformat() if who.submitted else "", _sandboxes(row)]
        for name in book.points:
            one = row.records.get(name)
            given = row.states[name] not in UNSCORED
            cells += [
                one.score if one and given else "",
                row.states[name],
                one.penalty if one and given else "",
                one.note if one else "",
            ]
        writer.writerow(_safe(cell) if isinstance(cell, str) else cell for cell in cells)
    return buffer.getvalue()


def as_json(book: Book) -> str:
    """Everything that is known, one object for each student."""
    students = []
    for row in book.rows:
        who = row.student
        students.append(
            {
                "id": who.id,
                "name": who.name,
                "email": who.email,
                "section": who.section,
                "due": who.due.isoformat() if who.due else None,
                "submitted": who.submitted.isoformat() if who.submitted else None,
                "state": _state(row),
                "score": None if row.open or row.absent else row.score,
                "max_score": row.max_score,
                "results": [
                    {"exercise": name, "status": state, **_recorded(row, name)}
                    for name, state in row.states.items()
                ],
            }
        )
    data = {
        "version": 1,
        "course": __version__,
        "exercises": [
            {"name": name, "title": book.titles[name], "max_points": most}
            for name, most in book.points.items()
        ],
        "students": students,
        "not_in_roster": list(book.strangers),
        "refused": [{"file": str(one.path), "reason": one.reason} for one in book.refused],
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_junit(book: Book) -> str:
    """One suite for each student, one case for each check; valid against junit-10.xsd.

    What was not passed is a failure; an exception, a hang, and what must be graded again are
    errors; a check that was not reached is skipped. The type is the status.
    """
    root = ElementTree.Element("testsuites", name="ddp-course")
    total: dict[str, int] = dict.fromkeys(("tests", "failures", "errors"), 0)
    for row in book.rows:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(row.student.id))
        counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
        _properties(suite, row)
        for name, state in row.states.items():
            for case, status, _, _, message in _tests(row, name):
                counts["tests"] += 1
                element = ElementTree.SubElement(
                    suite, "testcase", classname=name, name=_xml(case), time="0"
                )
                kind = _KINDS.get(status)
                if status == state == "blocked":  # nothing else tells that it was not passed
                    kind = "failure"
                if kind:
                    short = _xml(" ".join(message.split())[:300])
                    fault = ElementTree.SubElement(element, kind, type=status, message=short)
                    fault.text = _xml(message)
                    counts[_COUNTED[kind]] += 1
        for key, number in counts.items():
            suite.set(key, str(number))
            if key in total:
                total[key] += number
    for key, number in total.items():
        root.set(key, str(number))
    ElementTree.indent(root)
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{ElementTree.tostring(root, 'unicode')}\n"


def as_gradescope(row: Row | None, trouble: str = "") -> str:
    """A Gradescope results.json for one student.

    Where a result must be graded again, or there is none (`trouble` says why), no score is given:
    Gradescope then reports that the autograder failed, and no one gets 0 for our fault.
    """
    notes = (
        [f"{one.exercise}: {one.note}" for one in row.records.values() if one.note] if row else []
    )
    if row and any("unsafe" in one.sandbox for one in row.records.values()):
        notes.append("Graded without a sandbox.")
    unfinished = bool(trouble) or row is None or row.open or not row.records
    if unfinished:
        why = trouble or "A part could not be graded; that is not your fault."
        notes.insert(0, f"{why} Your instructor will have it graded again.")
    tests = []
    for name in row.states if row else ():
        for title, status, points, most, message in _tests(row, name) if row else ():
            test: dict[str, Any] = {
                "name": f"{name}: {title}",
                "status": "passed" if status == "pass" else "failed",
                "output": message,
                "output_format": "text",
                "visibility": "visible",
            }
            if not unfinished:
                test |= {"score": points, "max_score": most}
            tests.append(test)
    data: dict[str, Any] = {} if unfinished or row is None else {"score": row.score}
    data |= {
        "output": "\n".join(notes) or "Graded.",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_github(row: Row | None, trouble: str = "") -> str:
    """A GitHub Classroom grader's result for one student: one test for each exercise.

    The step that runs it hands this text on in base64, as its output `result`. Where a result must
    be graded again, or there is none (`trouble` says why), `max_score` is 0: Classroom then notes
    an error, and no score.
    """
    tests = []
    unfinished = bool(trouble) or row is None or row.open or not row.records
    if unfinished:
        message = trouble or "A part could not be graded; that is not your fault."
        tests.append(_github_test("grading", "error", 0, message))
    for name, state in row.states.items() if row else ():
        one = row.records.get(name) if row else None
        status = "pass" if state == "pass" else "error" if state in (*OPEN, "error") else "fail"
        score = one.score if one and not unfinished else 0
        tests.append(_github_test(name, status, score, _about(one, state)))
    states = {test["status"] for test in tests}
    most = 0 if unfinished or row is None else row.max_score
    data = {
        "version": 1,
        "status": next((state for state in ("error", "fail") if state in states), "pass"),
        "max_score": most,
        "tests": tests,
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


_KINDS = {
    "fail": "failure",
    "ungradable": "failure",
    "missing": "failure",
    "error": "error",
    "timeout": "error",
    "infra": "error",
    "refused": "error",
    "blocked": "skipped",
}
_COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _safe(text: str) -> str:
    return "'" + text if text.startswith(tuple(FORMULA)) else text


def _xml(text: str) -> str:
    return _NOT_XML.sub("", text)


def _state(row: Row) -> str:
    """One word for a whole student: what must be seen to first."""
    states = set(row.states.values())
    if row.absent:
        return "missing"
    order = (*OPEN, "error", "timeout", "fail", "ungradable", "missing")
    return next((state for state in order if state in states), "pass")


def _sandboxes(row: Row) -> str:
    return ", ".join(sorted({one.sandbox for one in row.records.values() if one.sandbox}))


def _recorded(row: Row, name: str) -> dict[str, Any]:
    one = row.records.get(name)
    if one is None:
        return {"score": None}
    data = asdict(one)
    for key in ("student", "exercise", "status", "version"):
        del data[key]
    if row.states[name] in UNSCORED:
        data["score"] = None
    return data


def _tests(row: Row, name: str) -> list[tuple[str, str, int, int, str]]:
    """(title, status, points, maximum, message) of each check; of the exercise without a record."""
    one, state = row.records.get(name), row.states[name]
    if one is None or state == "missing":
        most = sum(results.manifest(name).values())
        return [(name, state, 0, most, _message(one.checks[0]) if one else STATES[state][1])]
    return [
        (mark.title, mark.status, mark.points, mark.max_points, _message(mark))
        for mark in one.checks
    ]


def _message(mark: results.Mark) -> str:
    looks = f"It looks like: {mark.mistake}." if mark.mistake else ""
    hint = f"Hint: {mark.hint}" if mark.hint else ""
    said = "\n".join(filter(None, [mark.message, looks, hint]))
    return said or STATES[mark.status][1]


def _about(one: Record | None, state: str) -> str:
    if one is None:
        return STATES[state][1]
    lines = [f"{STATES[mark.status][0]} {mark.title}: {_message(mark)}" for mark in one.checks]
    return "\n".join([one.note, *lines] if one.note else lines)


def _github_test(name: str, status: str, score: float, message: str) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "score": score,
        "message": message,
        "test_code": "",
        "filename": "",
        "line_no": 0,
        "execution_time": 0,
    }


def _properties(suite: ElementTree.Element, row: Row) -> None:
    known = {
        "name": row.student.name,
        "section": row.student.section,
        "score": "" if row.open or row.absent else str(row.score),
        "max_score": str(row.max_score),
        "sandbox": _sandboxes(row),
    }
    element = ElementTree.SubElement(suite, "properties")
    for key, value in known.items():
        ElementTree.SubElement(element, "property", name=key, value=_xml(value))
    for name, one in row.records.items():
        if one.note:
            ElementTree.SubElement(
                element,
                "property",
                name=f"{name} penalty",
                value=_xml(f"{one.penalty:g} {one.note}"),
            )
