"""Ledgers: what is read and what is refused, how they are aligned, and where ranks part."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddp_course import collectives
from ddp_course.errors import NoEvidence
from ddp_course.observe import ledger
from ddp_course.observe.align import align, first_divergence, pairs
from ddp_course.observe.ledger import ANY_RANK, Ledger, read

EVIL = "<script>alert('x')</script>"
CODE = {"file": "/home/ada/train.py", "line": 31, "function": "main", "code": "loss.backward()"}


def entry(n: int, op: str = "all_reduce", size: int = 8, **more: Any) -> dict[str, Any]:
    return {
        "n": n, "group": "0", "op": op, "sizes": [[size]], "dtypes": ["float32"],
        "bytes": 4 * size, "t": 1000.0 + n, "state": "scheduled", "p2p": None,
        "line": CODE, "part": None, **more,
    }  # fmt: skip


def pair(n: int, direction: str, peer: int, **more: Any) -> dict[str, Any]:
    p2p = {"peer": peer, "direction": direction, "tag": 0}
    return entry(n, direction, p2p=p2p, **more)


def raw(rank: int, entries: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "version": 2, "rank": rank, "attempt": 0, "why": "asked", "t": 2000.0, "exit_code": None,
        "entries": entries, "dropped": 0, "exception": None, "stack": [CODE], **more,
    }  # fmt: skip


def write(folder: Path, *ledgers: dict[str, Any]) -> Path:
    for one in ledgers:
        name = f"ledger-{one['rank']}-{one['attempt']}.json"
        (folder / name).write_text(json.dumps(one))
    return folder


def ledgers(folder: Path, *rows: list[dict[str, Any]]) -> ledger.Ledgers:
    """Of rank 0, 1, …"""
    found = read(write(folder, *(raw(rank, entries) for rank, entries in enumerate(rows))))
    assert not found.refused, found.refused
    return found


def test_a_ledger_is_read_whole(tmp_path: Path) -> None:
    told = raw(
        1, [entry(1), pair(1, "send", 0)], why="exception", exit_code=1, dropped=7,
        groups={"0": [0, 1]}, world_size=2,
        exception={"type": "ValueError", "text": "boom", "line": CODE},
    )  # fmt: skip
    found = read(write(tmp_path, told))
    assert list(found) == [1]
    mine = found[1]
    assert (mine.why, mine.exit_code, mine.dropped, mine.t) == ("exception", 1, 7, 2000.0)
    assert mine.entries[0].line is not None
    assert mine.entries[0].line.code == "loss.backward()"
    assert (mine.entries[0].sizes, mine.entries[0].bytes) == (((8,),), 32)
    assert mine.entries[1].p2p == ledger.Pair(0, "send")
    assert mine.exception is not None
    assert (mine.exception.type, mine.exception.text) == ("ValueError", "boom")
    assert mine.stack[0].function == "main"
    assert mine.groups == {"0": (0, 1)}


def test_the_last_attempt_counts(tmp_path: Path) -> None:
    write(tmp_path, raw(0, [entry(1)]), raw(1, [entry(1), entry(2)]), raw(0, [], attempt=10))
    found = read(write(tmp_path, raw(0, [entry(1)], attempt=9)))
    assert {rank: one.attempt for rank, one in found.items()} == {0: 10, 1: 0}
    assert align(found) == []  # rank 1 has told nothing of the last attempt
    assert first_divergence(found) is None


def test_when_a_ledger_was_written(tmp_path: Path) -> None:
    assert ledger.written(tmp_path / "nowhere") == {}
    write(tmp_path, raw(0, []))
    before = ledger.written(tmp_path)
    os.utime(tmp_path / "ledger-0-0.json", ns=(5, 5))
    assert before.keys() == {0}
    assert ledger.written(tmp_path) == {0: (0, 5)}


DAMAGED: dict[str, Any] = {
    "version": 1, "rank": 3, "attempt": -1, "why": "because", "t": float("nan"),
    "exit_code": "1", "entries": {}, "dropped": True, "exception": [], "stack": [{}], "groups": [],
}  # fmt: skip
DAMAGED_ENTRY: dict[str, Any] = {
    "n": 1 << 70, "group": None, "op": "x" * 20_000, "sizes": [[-1]], "dtypes": [1],
    "bytes": 1.5, "t": float("inf"), "root": "first", "members": 3, "state": "done",
    "line": "train.py", "p2p": {"peer": 0, "direction": "sideways"}, "part": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_ledger_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    damaged = {**raw(0, [entry(1)]), name: DAMAGED[name]}
    (tmp_path / "ledger-0-0.json").write_text(json.dumps(damaged))
    found = read(write(tmp_path, raw(1, [entry(1)])))
    assert list(found) == [1]
    assert found.refused["ledger-0-0.json"]


@pytest.mark.parametrize("name", DAMAGED_ENTRY)
def test_a_damaged_entry_is_refused_with_its_reason(tmp_path: Path, name: str) -> None:
    damaged = raw(0, [{**entry(1), name: DAMAGED_ENTRY[name]}])
    found = read(write(tmp_path, damaged))
    assert not found
    assert found.refused["ledger-0-0.json"]


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '{"version": 1}', "[" * 200_000, "\x80", "1" * 10_000, "x" * 9_000_000],
    ids=["empty", "null", "list", "cut", "bare", "nested", "no-text", "number", "huge"],
)
def test_what_is_no_ledger_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "ledger-0-0.json").write_bytes(text.encode("latin-1"))
    found = read(tmp_path)
    assert not found
    assert found.refused["ledger-0-0.json"]


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ledger-0-0.json")
    (tmp_path / "ledger-1-0.json").mkdir()
    (tmp_path / "ledger-2-0.json").symlink_to("/dev/zero")
    (tmp_path / "ledger-99999-0.json").write_text("{}")
    found = read(tmp_path)
    assert not found
    assert found.refused.keys() == {f"ledger-{rank}-0.json" for rank in range(3)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
PATIENT = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
KEYS = st.sampled_from([*raw(0, []), "groups", "world_size"])


@PATIENT
@given(changes=st.dictionaries(KEYS, JSON, max_size=4), cut=st.integers(0, 600), junk=st.binary())
def test_any_damage_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any], cut: int, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    text = json.dumps({**raw(0, [entry(1), pair(1, "recv", 1)]), **changes}).encode()
    for data in (text, text[:cut], text[:cut] + junk + text[cut:], junk):
        (folder / "ledger-0-0.json").write_bytes(data)
        found = read(folder)
        assert len(found) + len(found.refused) == 1
        align(found), pairs(found), first_divergence(found)


@PATIENT
@given(st.dictionaries(st.sampled_from(list(entry(1))), JSON, min_size=1, max_size=3))
def test_any_entry_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    write(folder, raw(0, [entry(1)]), raw(1, [{**entry(1), **changes}]))
    found = read(folder)
    assert 0 in found
    assert (1 in found) != bool(found.refused)
    assert isinstance(str(collectives(folder)), str)
    assert isinstance(collectives(folder)._repr_html_(), str)


def test_the_same_on_all_ranks(tmp_path: Path) -> None:
    rows = [entry(1), entry(2, "broadcast"), entry(3, "barrier", sizes=[], dtypes=[])]
    found = ledgers(tmp_path, rows, rows, rows)
    assert [(row.n, row.verdict, set(row.entries)) for row in align(found)] == [
        (n, "same", {0, 1, 2}) for n in (1, 2, 3)
    ]
    assert first_divergence(found) is None


def test_a_rank_that_never_arrived(tmp_path: Path) -> None:
    rows = [entry(1), entry(2)]
    found = first_divergence(ledgers(tmp_path, rows, rows[:1], rows))
    assert found is not None
    assert (found.kind, found.ranks, found.entry.n) == ("missing", (1,), 2)
    assert found.row.verdict == "missing"


@pytest.mark.parametrize(
    ("mine", "kind"),
    [
        ([entry(2, "broadcast")], "operation"),
        ([entry(2, size=9)], "size"),
        ([entry(2, dtypes=["int32"])], "dtype"),
        ([entry(2, "broadcast", 3), entry(3)], "order"),
    ],
)
def test_a_rank_that_deviates(tmp_path: Path, mine: list[dict[str, Any]], kind: str) -> None:
    theirs = [entry(1), entry(2), entry(3, "broadcast", 3)]
    found = first_divergence(ledgers(tmp_path, theirs, [entry(1), *mine], theirs))
    assert found is not None
    assert (found.kind, found.ranks, found.entry.n) == (kind, (1,), 2)
    assert found.row.verdict == "differs"


def test_two_ranks_that_differ_name_the_second(tmp_path: Path) -> None:
    found = first_divergence(ledgers(tmp_path, [entry(1)], [entry(1, size=2)]))
    assert found is not None
    assert (found.ranks, found.entry.elements) == ((1,), 8)


def test_the_same_elements_in_another_shape_are_the_same(tmp_path: Path) -> None:
    found = ledgers(tmp_path, [entry(1, sizes=[[2, 4]])], [entry(1, sizes=[[8]])])
    assert first_divergence(found) is None


def test_uneven_exchanges_are_no_divergence(tmp_path: Path) -> None:
    found = ledgers(tmp_path, [entry(1, "all_to_all", 3)], [entry(1, "all_to_all", 5)])
    assert first_divergence(found) is None


def test_a_group_is_compared_among_its_members(tmp_path: Path) -> None:
    grid = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}
    for rank in range(4):
        mine = [entry(1, group="1" if rank < 2 else "2", size=rank // 2 + 1), entry(1)]
        write(tmp_path, raw(rank, mine, groups=grid))
    found = read(tmp_path)
    assert first_divergence(found) is None
    assert {row.group: set(row.entries) for row in align(found)} == {
        "0": {0, 1, 2, 3}, "1": {0, 1}, "2": {2, 3},
    }  # fmt: skip


def test_a_member_that_never_used_its_group_lacks_the_row(tmp_path: Path) -> None:
    write(tmp_path, raw(0, [entry(1, group="1")], groups={"1": [0, 2]}), raw(1, []), raw(2, []))
    found = first_divergence(read(tmp_path))
    assert found is not None
    assert (found.kind, found.ranks) == ("missing", (2,))


def test_rows_that_a_rank_has_dropped_say_nothing_of_it(tmp_path: Path) -> None:
    write(tmp_path, raw(0, [entry(n) for n in (1, 2, 3, 4)]))
    write(tmp_path, raw(1, [entry(n) for n in (3, 4)], dropped=2))
    rows = align(read(tmp_path))
    assert [set(row.entries) for row in rows] == [{0}, {0}, {0, 1}, {0, 1}]
    assert {row.verdict for row in rows} == {"same"}


def test_a_number_that_comes_twice_is_two_rows(tmp_path: Path) -> None:
    rows = [entry(3, "all_gather"), entry(3), entry(4)]
    found = ledgers(tmp_path, rows, rows)
    assert [row.n for row in align(found)] == [3, 3, 4]
    assert first_divergence(found) is None
    found = ledgers(tmp_path, rows, rows[:1])
    assert [row.verdict for row in align(found)] == ["same", "missing", "missing"]


def test_a_send_meets_its_receive(tmp_path: Path) -> None:
    found = ledgers(
        tmp_path,
        [pair(1, "send", 1), pair(2, "send", 1), pair(1, "recv", 1)],
        [pair(1, "recv", 0), pair(2, "recv", 0), pair(1, "send", 0)],
    )
    assert align(found) == []
    assert [(row.n, set(row.entries), row.verdict) for row in pairs(found)] == [
        (1, {0, 1}, "same"), (1, {0, 1}, "same"), (2, {0, 1}, "same"),
    ]  # fmt: skip
    assert first_divergence(found) is None


def test_crossed_receives_lack_their_sends(tmp_path: Path) -> None:
    found = ledgers(tmp_path, [pair(1, "recv", 1)], [pair(1, "recv", 0)])
    assert [(row.verdict, row.entries[0] is None) for row in pairs(found)] == [
        ("missing", False), ("missing", True),
    ]  # fmt: skip
    divergence = first_divergence(found)
    assert divergence is not None
    assert (divergence.kind, divergence.ranks) == ("missing", (1,))


def test_who_receives_from_anyone_is_not_paired(tmp_path: Path) -> None:
    found = ledgers(tmp_path, [pair(1, "send", 1)], [pair(1, "recv", ANY_RANK)])
    assert pairs(found) == []


def test_a_collective_parts_before_any_pair(tmp_path: Path) -> None:
    found = first_divergence(ledgers(tmp_path, [pair(1, "send", 1), entry(1)], []))
    assert found is not None
    assert found.entry.op == "all_reduce"


# The view


def test_the_view_folds_what_is_the_same(tmp_path: Path) -> None:
    rows = [entry(n, part="gradient bucket 0") for n in range(1, 41)]
    write(tmp_path, raw(0, rows), raw(1, rows[:-1]))
    view = collectives(tmp_path)
    assert view.message.startswith("39 calls the same on all ranks, then rank 1 never entered")
    text = str(view)
    assert "#1 … #36" in text
    assert "36 folded" in text
    assert "✗ never" in text
    assert "✗ first divergence: all_reduce 8 float32 (gradient bucket 0)" in text
    assert "train.py:31 loss.backward()" in text
    assert len(text.splitlines()) < 12
    html = view._repr_html_()
    for piece in ("36 folded", "✗ never", "first divergence", "loss.backward()"):
        assert piece in html


def test_the_view_of_a_healthy_run(tmp_path: Path) -> None:
    rows = [entry(n) for n in range(1, 4)]
    view = collectives(write(tmp_path, raw(0, rows), raw(1, rows)))
    assert view.message == "2 ranks, 3 calls, the same on each"
    assert "✗" not in str(view)
    assert view.divergence is None


def test_the_view_shows_what_each_rank_issued(tmp_path: Path) -> None:
    view = collectives(write(tmp_path, raw(0, [entry(1)]), raw(1, [entry(1, "broadcast", 2)])))
    assert "✗ all_reduce 8 float32" in str(view)
    assert "✗ broadcast 2 float32" in str(view)
    assert "rank 1 issued a different operation than all_reduce 8 float32" in view.message


def test_what_a_rank_handed_over_is_added_up_by_operation_and_type(tmp_path: Path) -> None:
    half = entry(3, size=5, dtypes=["bfloat16"], bytes=10)
    rows = [entry(1), entry(2, size=2), half, entry(4, "barrier", 0), pair(1, "send", 1)]
    handed = collectives(write(tmp_path, raw(0, rows))).handed()
    assert handed.names == ("operation", "type", "calls", "bytes")
    assert handed.rows == (("all_reduce", "bfloat16", 1, 10), ("all_reduce", "float32", 2, 40))
    for told in (raw(0, rows, dropped=3), raw(1, rows)):
        with pytest.raises(NoEvidence, match="no whole ledger"):
            (tmp_path / "ledger-0-0.json").unlink()
            collectives(write(tmp_path, told)).handed()


def test_the_view_escapes_what_a_rank_wrote(tmp_path: Path) -> None:
    evil = {**CODE, "code": EVIL, "file": EVIL}
    rows = [entry(1, EVIL, line=evil, part=EVIL, group=EVIL)]
    html = collectives(write(tmp_path, raw(0, rows), raw(1, rows)))._repr_html_()
    assert "<script>" not in html


def test_the_view_of_many_ranks_keeps_the_one_that_deviates(tmp_path: Path) -> None:
    for rank in range(40):
        write(tmp_path, raw(rank, [entry(1)] if rank != 33 else []))
    text = str(collectives(tmp_path))
    assert "rank 33" in text
    assert "9 of 40 ranks are shown" in text


def test_no_ledger_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "ledger-0-0.json").write_text("{")
    with pytest.raises(NoEvidence, match=r"No rank left a ledger.*ledger-0-0\.json"):
        collectives(tmp_path)


def test_a_ledger_of_one_rank_alone_has_nothing_to_compare() -> None:
    assert first_divergence({0: Ledger(0, 0, "exit", 1.0)}) is None
    assert first_divergence({}) is None
