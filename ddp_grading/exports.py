"""A class's results in the forms that other programs read.

    csv, json, junit       one file
    gradescope, github     one file for each student
    canvas, moodle         the file that the instructor exported there, filled in (templates.py)

Every student of the roster is in each of them exactly once. A result that must be graded again
("infra" or "refused") has no score anywhere: it is never 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from ddp_course import __version__
from ddp_course.checks.verdict import Result
from ddp_grading import results
from ddp_grading.report import OPEN, STATES, UNSCORED, Book, Row
from ddp_grading.results import Record

FORMULA = "=+-@\t\r\n＝＋－＠"  # a cell that begins so may run in a spreadsheet program
OUR_FAULT = "A part could not be graded; that is not your fault."
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
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_csv(book: Book) -> str:
    """One row for each student. Scores are numbers; text that could be a formula begins with '.

    The note of an exercise says why points are missing: late, a failed check, our fault.
    """
    head = ["id", "name", "email", "section", "score", "max_score", "state", "submitted", "sandbox"]
    for name in book.points:
        head += [f"{name} score", f"{name} status", f"{name} penalty", f"{name} note"]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow(map(_safe, head))
    for row in book.rows:
        who = row.student
        score = _score(row)
        cells: list[str | float] = [who.id, who.name, who.email, who.section]
        cells += ["" if score is None else score, row.max_score, _state(row)]
        cells += [who.submitted.isoformat() if who.submitted else "", _sandboxes(row)]
        for name, state in row.states.items():
            one = row.records.get(name)
            scored = one if state not in UNSCORED else None
            cells += [scored.score if scored else "", state, scored.penalty if scored else ""]
            cells.append(row.why(name))
        writer.writerow(_safe(cell) if isinstance(cell, str) else cell for cell in cells)
    return buffer.getvalue()


def as_json(book: Book) -> str:
    """Everything that is known, one object for each student."""
    students = [
        {
            "id": row.student.id,
            "name": row.student.name,
            "email": row.student.email,
            "section": row.student.section,
            "due": row.student.due.isoformat() if row.student.due else None,
            "submitted": row.student.submitted.isoformat() if row.student.submitted else None,
            "state": _state(row),
            "score": _score(row),
            "max_score": row.max_score,
            "results": [
                {"exercise": name, "status": state, **_recorded(row, name)}
                for name, state in row.states.items()
            ],
        }
        for row in book.rows
    ]
    data = {
        "version": 1,
        "course": __version__,
        "exercises": [
            {"name": name, "title": book.titles[name], "max_points": most}
            for name, most in book.points.items()
        ],
        "students": students,
        "not_in_roster": list(book.strangers),
        "refused": [vars(one) for one in book.refused],
    }
    return _json(data)


def as_junit(book: Book) -> str:
    """One suite for each student, one case for each check; valid against junit-10.xsd.

    What was not passed is a failure; an exception, a hang, and what must be graded again are
    errors; a check that was not reached is skipped. The type is the status.
    """
    root = ElementTree.Element("testsuites", name="ddp-course")
    total: Counter[str] = Counter()
    for row in book.rows:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(row.student.id))
        counts: Counter[str] = Counter()
        _properties(suite, row)
        for name, state in row.states.items():
            for test in _tests(row, name):
                counts["tests"] += 1
                case = ElementTree.SubElement(
                    suite, "testcase", classname=name, name=_xml(test.title), time="0"
                )
                kind = _KINDS.get(test.status)
                if test.status == state == "blocked":  # nothing else tells that it was not passed
                    kind = "failure"
                if kind:
                    short = _xml(" ".join(test.message.split())[:300])
                    fault = ElementTree.SubElement(case, kind, type=test.status, message=short)
                    fault.text = _xml(test.message)
                    counts[kind if kind == "skipped" else f"{kind}s"] += 1
        _count(suite, counts, "tests", "failures", "errors", "skipped")
        total += counts
    _count(root, total, "tests", "failures", "errors")
    ElementTree.indent(root)
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{ElementTree.tostring(root, 'unicode')}\n"


def as_gradescope(row: Row) -> str:
    """A Gradescope results.json for one student.

    Where a result must be graded again, or there is none, no score is given: Gradescope then
    reports that the autograder failed, and no one gets 0 for our fault.
    """
    scored = _complete(row)
    notes = [f"{name}: {one.note}" for name, one in row.records.items() if one.note]
    if not scored:
        notes.insert(0, f"{OUR_FAULT} Your instructor will have it graded again.")
    if any("unsafe" in one.sandbox for one in row.records.values()):
        notes.append("Graded without a sandbox.")
    tests = [
        {
            "name": f"{name}: {test.title}",
            "status": "passed" if test.status == "pass" else "failed",
            "output": test.message,
            "output_format": "text",
            "visibility": "visible",
            **({"score": test.points, "max_score": test.max_points} if scored else {}),
        }
        for name in row.states
        for test in _tests(row, name)
    ]
    data = {
        **({"score": row.score} if scored else {}),
        "output": "\n".join(notes) or "Graded.",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }
    return _json(data)


def as_github(row: Row) -> str:
    """A GitHub Classroom grader's result for one student: one test for each exercise.

    The step that runs it hands this text on in base64, as its output `result`. Where a result must
    be graded again, or there is none, `max_score` is 0: Classroom then notes an error, no score.
    """
    scored = _complete(row)
    tests = [] if scored else [_github_test("grading", "error", 0, OUR_FAULT)]
    for name, state in row.states.items():
        one = row.records.get(name)
        status = "pass" if state == "pass" else "error" if state in (*OPEN, "error") else "fail"
        score = one.score if one and scored else 0
        tests.append(_github_test(name, status, score, _about(one, state)))
    states = {test["status"] for test in tests}
    data = {
        "version": 1,
        "status": next((state for state in ("error", "fail") if state in states), "pass"),
        "max_score": row.max_score if scored else 0,
        "tests": tests,
    }
    return _json(data)


@dataclass(frozen=True)
class _Test:
    """A check, or an exercise without a record, as test reports have it."""

    title: str
    status: str
    points: int
    max_points: int
    message: str


def _tests(row: Row, name: str) -> list[_Test]:
    one, state = row.records.get(name), row.states[name]
    if one is None or state == "missing":
        most = sum(results.manifest(name).values())
        return [_Test(name, state, 0, most, _message(one.checks[0]) if one else STATES[state][1])]
    return [
        _Test(check.title, check.status, check.points, check.max_points, _message(check))
        for check in one.checks
    ]


def _message(check: Result) -> str:
    looks = f"It looks like: {check.mistake}." if check.mistake else ""
    hint = f"Hint: {check.hint}" if check.hint else ""
    said = "\n".join(filter(None, [check.message, looks, hint]))
    return said or STATES[check.status][1]


def _about(one: Record | None, state: str) -> str:
    if one is None:
        return STATES[state][1]
    lines = [f"{STATES[check.status][0]} {check.title}: {_message(check)}" for check in one.checks]
    return "\n".join([one.note, *lines] if one.note else lines)


def _github_test(name: str, status: str, score: float, message: str) -> dict[str, Any]:
    unused = {"test_code": "", "filename": "", "line_no": 0, "execution_time": 0}
    return {"name": name, "status": status, "score": score, "message": message, **unused}


def _complete(row: Row) -> bool:
    return bool(row.records) and not row.open


def _score(row: Row) -> float | None:
    return None if row.open or row.absent else row.score


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
    data = {key: value for key, value in vars(one).items() if key not in ("student", "exercise")}
    data["checks"] = results.checks_as_dicts(one)
    for check, mark in zip(one.checks, data["checks"], strict=True):
        mark["points"] = check.points
    score = None if row.states[name] in UNSCORED else one.score
    return {**data, "points": one.points, "max_points": one.max_points, "score": score}


def _properties(suite: ElementTree.Element, row: Row) -> None:
    score = _score(row)
    known = {
        "name": row.student.name,
        "section": row.student.section,
        "score": "" if score is None else str(score),
        "max_score": str(row.max_score),
        "sandbox": _sandboxes(row),
    }
    for name, one in row.records.items():
        if one.note:
            known[f"{name} penalty"] = f"{one.penalty:g} {one.note}"
    element = ElementTree.SubElement(suite, "properties")
    for key, value in known.items():
        ElementTree.SubElement(element, "property", name=key, value=_xml(value))


def _count(element: ElementTree.Element, counts: Counter[str], *keys: str) -> None:
    for key in keys:
        element.set(key, str(counts[key]))


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _safe(text: str) -> str:
    return "'" + text if text.startswith(tuple(FORMULA)) else text


def _xml(text: str) -> str:
    return _NOT_XML.sub("", text)
