"""Launches with every kind of failure mixed in leave nothing; `make endure` is the long form."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, tool


@pytest.mark.timeout(1800)
def test_forty_launches_that_fail_leave_nothing(tmp_path: Path) -> None:
    """In a process of its own, which may not grow, with a folder for temporary files of its own."""
    said = tmp_path / "said"
    with open(said, "w") as file:
        ended = subprocess.run(
            [sys.executable, "tools/endure.py", "--launches", "40", "--seed", "5"],
            cwd=ROOT,
            stdout=file,
            stderr=file,
            timeout=1700,
        )
    assert ended.returncode == 0, said.read_text()
    assert "40 launches left nothing." in said.read_text()


def test_the_long_form_draws_every_kind() -> None:
    endure = tool("endure")
    assert os.access(endure.JOB, os.R_OK)
    chance = random.Random(0)
    drawn = {endure.draw(chance) for _ in range(1000)}
    assert drawn == {*endure.OF_A_RANK, *endure.FROM_OUTSIDE}
