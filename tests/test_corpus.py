"""Wrong and hostile answers in the sandbox: each gets its verdict, and nothing is left of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import psutil
import pytest
from conftest import needs
from corpora import Entry, entries
from launching import family, short_temp, until

from ddp_course.checks.exercises import EXERCISES
from ddp_grading import sandbox
from ddp_grading.box import Desk, Limits

pytestmark = needs("bwrap")

# Shorter than for a class: what must be seen here waits for ever, or takes without end.
LIMITS = Limits(patience_s=2.0, import_s=15.0, job_s=120.0, tasks=200, bytes=3 << 30)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One submission that has every entry in it, each under a name of its own."""
    folder = tmp_path_factory.mktemp("corpus")
    temp = short_temp(folder)
    for entry in entries("accepted", "wrong", "cheats", "runaways"):
        (folder / f"{entry.id}.py").write_text(entry.text)
    with patch.object(tempfile, "tempdir", temp):
        with sandbox.image() as image, Desk(image, folder, limits=LIMITS) as desk:
            yield desk
        assert os.listdir(temp) == []
    shutil.rmtree(temp)


def sandboxes() -> list[psutil.Process]:
    """The processes in sandboxes of ours, bubblewrap's own left out."""
    ours = [one for one in family(os.getpid()) if one.name() == "bwrap"]
    return [one for one in family(os.getpid()) if one.name() != "bwrap" and below(one, ours)]


def below(one: psutil.Process, roots: list[psutil.Process]) -> bool:
    try:
        return any(parent in roots for parent in one.parents())
    except psutil.NoSuchProcess:
        return False


def one_of_each(kind: str) -> list[Entry]:
    """An exercise's first: all of them are tried in learning mode, with the same verifier."""
    return list({one.exercise: one for one in reversed(entries(kind))}.values())


@pytest.mark.parametrize(
    "entry", one_of_each("wrong") + entries("cheats", "runaways"), ids=lambda one: one.id
)
def test_the_verdict_is_the_expected_one_and_nothing_is_left(entry: Entry, desk: Desk) -> None:
    verdict = desk.judge(EXERCISES[entry.exercise], f"{entry.id}.py")
    assert verdict.status in entry.status, str(verdict)
    assert (verdict.points == verdict.max_points) is (entry.status == ("pass",)), str(verdict)
    if not verdict.passed and entry.kind != "wrong":
        assert verdict.points == entry.earned, str(verdict)
    first = next((one for one in verdict.results if one.status != "pass"), verdict.results[0])
    assert entry.says in first.message, str(verdict)
    assert not entry.mistake or first.mistake == entry.mistake, str(verdict)
    hints = {one.name: one.hint for one in EXERCISES[entry.exercise].mistakes}
    assert first.hint == hints.get(entry.mistake, first.hint)
    # Either the box is gone, or it is as it was when it was new: our three processes in it.
    until(lambda: len(sandboxes()) in (0, 3), f"the end of {entry.id}: {sandboxes()}")
    folders = Path(tempfile.gettempdir()).glob("ddp-box-*")
    assert len(list(folders)) == bool(sandboxes()), "a folder of sockets is left"
