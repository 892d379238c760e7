"""The ladder: each rung is a small diff of the rung before, so that shared lines cannot drift."""

from __future__ import annotations

import ast
import difflib

import pytest

from ddp_course.launcher import catalogue

# from, to, and how many lines may be added and removed (docstrings not counted)
RUNGS = [
    ("train_one_process", "average_by_hand", 9, 0),
    ("average_by_hand", "train_ddp", 2, 3),
    ("train_ddp", "train_digits", 17, 7),
    ("train_ddp", "overlap_buckets", 40, 29),
    ("train_ddp", "weight_batches", 13, 3),
    ("train_ddp", "accumulate_gradients", 23, 4),
    ("train_one_process", "use_data_parallel", 5, 0),
    ("overlap_buckets", "time_accumulation", 31, 19),
    ("train_digits", "resume_training", 60, 22),
    ("resume_training", "wrong_resume", 20, 8),
    ("train_ddp", "survive_kill", 34, 11),
    ("survive_kill", "follow_nodes", 37, 34),
]


def body(job: str) -> list[str]:
    """The script's lines after its docstring."""
    source = catalogue.find_job(job).read_text()
    first = ast.parse(source).body[0]
    return source.splitlines()[first.end_lineno :]


@pytest.mark.parametrize(("a", "b", "added", "removed"), RUNGS, ids=[r[1] for r in RUNGS])
def test_a_rung_is_a_small_step(a: str, b: str, added: int, removed: int) -> None:
    signs = [line[0] for line in difflib.ndiff(body(a), body(b))]
    assert (signs.count("+"), signs.count("-")) <= (added, removed)
    assert signs.count("+") <= added and signs.count("-") <= removed


def test_what_is_new_is_marked() -> None:
    """Each line that average_by_hand and train_ddp add to one process says so."""
    one = body("train_one_process")
    for job in ("average_by_hand", "train_ddp"):
        for line in difflib.ndiff(one, body(job)):
            assert not line.startswith("- "), f"{job} lacks: {line}"
            assert not line.startswith("+ ") or "# NEW:" in line, f"{job} does not mark: {line}"


def test_what_is_marked_is_new() -> None:
    one = body("train_one_process")
    for job in ("average_by_hand", "train_ddp", "train_digits", "overlap_buckets"):
        marked = [line for line in body(job) if "# NEW:" in line]
        assert marked and not set(marked) & set(one)
