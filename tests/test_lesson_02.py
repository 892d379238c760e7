"""Lesson 02: the template, the cheat sheet, and the jobs whose numbers need more than one look."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT

from ddp_course import launch
from ddp_course.launcher import catalogue
from ddp_course.launcher.copying import copy_job

CHEAT_SHEET = (ROOT / "notebooks" / "cheat_sheet.md").read_text()
ROWS = re.findall(r"^\| (.+) \| .+ \| `(\w+)` \| \[(\w+)\]\((\S+)\) \|$", CHEAT_SHEET, re.MULTILINE)


def train(folder: Path, script: Path, ranks: int, epochs: int, name: str) -> dict[str, Any]:
    """The checkpoint that a plain torchrun of the template leaves."""
    ended = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={ranks}", str(script), f"--epochs={epochs}", f"--checkpoint={name}"],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    saved: dict[str, Any] = torch.load(folder / name)
    return {**saved, "said": re.findall(r"^epoch (\d+)", ended.stdout, re.MULTILINE)}


@pytest.mark.timeout(1200)
def test_the_template_ends_alike_on_1_2_and_4_ranks_and_after_a_resume(tmp_path: Path) -> None:
    script = copy_job("template", tmp_path / "mine.py")
    text = script.read_text()
    assert "ddp_course" not in text and len(text.split('"""', 2)[2].splitlines()) <= 75
    alone = train(tmp_path, script, 1, 3, "alone.pt")
    assert train(tmp_path, script, 2, 1, "resumed.pt")["said"] == ["0"]
    resumed = train(tmp_path, script, 4, 3, "resumed.pt")
    assert resumed["said"] == ["1", "2"]
    for name, tensor in alone["model"].items():
        torch.testing.assert_close(resumed["model"][name], tensor, rtol=0, atol=1e-4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.pt", "mine.py", "resumed.pt"]


LIMIT_S = 150  # each imports torch in three processes, from cold


@pytest.mark.parametrize(
    "way", [pytest.param("torchrun", marks=pytest.mark.nightly), "spawn", "hand"]
)
def test_who_ends_the_other_rank(way: str) -> None:
    run = launch("start_ranks", ranks=1, way=way, fail=True, limit_s=LIMIT_S)
    assert run.ok and run.value("exit_code") == 1
    assert run.value("stopped") is (way != "hand")
    told = {"torchrun": "RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
            "spawn": "nothing", "hand": "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT"}  # fmt: skip
    assert run.value("told") == told[way]


@pytest.mark.nightly
def test_the_old_launcher_adds_an_argument() -> None:
    run = launch("start_ranks", ranks=1, way="launch", limit_s=LIMIT_S)
    assert run.value("exit_code") == 0 and "--local-rank=0" in run.value("told")


def test_a_cell_s_function_cannot_be_spawned() -> None:
    run = launch("start_ranks", ranks=1, way="cell", limit_s=LIMIT_S)
    assert (run.value("exit_code"), run.value("told")) == (1, "")
    assert "Can't get attribute 'work'" in "\n".join(line.text for line in run.lines)


def test_two_nodes_do_not_meet_by_an_endpoint_alone() -> None:
    run = launch("wrong_two_nodes", ranks=1, limit_s=LIMIT_S)
    assert (run.value("done"), run.value("waiting")) == (0, 1)
    assert "EADDRINUSE" in run.value("answer")


def test_the_cheat_sheet_has_rows() -> None:
    assert len(ROWS) == CHEAT_SHEET.count("\n| ") - 3 >= 20, "each row has its four columns"


@pytest.mark.parametrize(("symptom", "job", "lesson", "link"), ROWS, ids=[r[1] for r in ROWS])
def test_a_row_leads_to_the_lesson_that_shows_it(
    symptom: str, job: str, lesson: str, link: str
) -> None:
    """The lesson launches the job and has the section; a quoted error is one that tests know."""
    name, _, section = link.partition("#")
    source = (ROOT / "notebooks" / "src" / name.replace(".ipynb", ".py")).read_text()
    assert name.startswith(f"{lesson}_") and f'"{job}"' in source
    assert job in catalogue.names()
    assert not section or f"# ## {section.replace('-', ' ')}\n" in source
    if symptom.startswith("`") and symptom.endswith("`"):
        known = [
            ROOT / "ddp_course" / "diagnosis" / "messages.toml",
            *Path(__file__).parent.glob("*.py"),
        ]
        said = symptom.strip("`")
        assert any(said in path.read_text() for path in known), "no test has seen this error"
