"""What the usual junit-10 schema asks of a file, as a checker of our own."""

from __future__ import annotations

import re
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

# element: (attributes it must have, attributes it may have, children it may have, text allowed)
RULES: dict[str, tuple[set[str], set[str], set[str], bool]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}, False),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {
            "group",
            "time",
            "skipped",
            "timestamp",
            "hostname",
            "id",
            "package",
            "file",
            "log",
            "url",
        },
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        False,
    ),
    "properties": (set(), set(), {"property"}, False),
    "property": ({"name", "value"}, set(), set(), False),
    "testcase": (
        {"name"},
        {"time", "classname", "group"},
        {"skipped", "error", "failure", "system-out", "system-err"},
        False,
    ),
    "failure": (set(), {"type", "message"}, set(), True),
    "error": (set(), {"type", "message"}, set(), True),
    "skipped": (set(), {"type", "message"}, set(), True),
    "system-out": (set(), set(), set(), True),
    "system-err": (set(), set(), set(), True),
}
TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?")


def check(text: str) -> Element:
    """The root of a valid file; AssertionError says what is wrong with another."""
    assert "<!DOCTYPE" not in text
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert root.tag in ("testsuites", "testsuite"), root.tag
    _check(root)
    for suite in root.iter("testsuite"):
        cases = suite.findall("testcase")
        counted = {"tests": len(cases)}
        for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            counted[key] = sum(case.find(tag) is not None for case in cases)
        assert {key: int(suite.get(key, "0")) for key in counted} == counted
    return root


def _check(element: Element) -> None:
    must, may, children, text = RULES[element.tag]
    given = set(element.attrib)
    assert must <= given <= must | may, (element.tag, given)
    assert text or not (element.text or "").strip(), (element.tag, element.text)
    if element.tag in ("testsuites", "testsuite") and "time" in given:
        assert TIME.fullmatch(element.attrib["time"])
    for child in element:
        assert child.tag in children, (element.tag, child.tag)
        assert not (child.tail or "").strip()
        _check(child)
