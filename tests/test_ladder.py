"""The ladder: each rung is a small diff of the rung before, so that shared lines cannot drift."""

from __future__ import annotations

import ast
import difflib

import pytest

from ddp_course.launcher import catalogue

# from, to, and how many lines may be added and removed (docstrings not counted)
RUNGS = [
    ("train_one_process", "average_by_hand", 14, 1),
    ("average_by_hand", "train_ddp", 2, 3),
    ("average_by_hand", "average_by_hooks", 11, 2),
    ("train_ddp", "train_digits", 17, 7),
    ("train_ddp", "overlap_buckets", 33, 23),
    ("train_ddp", "weight_batches", 12, 3),
    ("train_ddp", "accumulate_gradients", 21, 3),
    ("train_one_process", "use_data_parallel", 5, 0),
    ("overlap_buckets", "time_accumulation", 26, 13),
    ("train_digits", "resume_training", 60, 22),
    ("resume_training", "wrong_resume", 14, 7),
    ("train_ddp", "survive_kill", 26, 4),
    ("survive_kill", "follow_nodes", 39, 39),
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
            kept = not line.startswith("- ") or line.startswith("-     device = ")
            assert kept, f"{job} lacks: {line}"
            assert not line.startswith("+ ") or "# NEW:" in line, f"{job} does not mark: {line}"


def test_what_is_marked_is_new() -> None:
    one = body("train_one_process")
    ours = ("average_by_hand", "average_by_hooks", "train_ddp", "train_digits", "overlap_buckets")
    for job in ours:
        marked = [line for line in body(job) if "# NEW:" in line]
        assert marked and not set(marked) & set(one)
