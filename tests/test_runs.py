"""A run as data: what is read of a folder, whoever wrote it, and which folders are pruned."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launching import until

from ddp_course.errors import CannotRun, NoEvidence, NoSuchRun
from ddp_course.run import folder as folders
from ddp_course.run.reader import Line, Reader
from ddp_course.run.run import Run

ASKED = {"job": "job", "ranks": 2, "knobs": {"lr": 0.1}, "command": "torchrun job.py"}
RESULT = {
    "ended": "failed",
    "exit_code": 1,
    "exit_codes": {"0": -15, "1": 3},
    "wall_s": 1.5,
    "failure": {
        "rank": 1,
        "what": "rank 1: ValueError: <b>boom</b> (exit code 3)",
        "exit_code": 3,
        "traceback": "Traceback (most recent call last):\n  …",
        "where": {},
        "consequences": {"0": "stopped by torchrun"},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run, written by hand."""
    path = tmp_path / "20260101-000000-job-abcd"
    for rank in (0, 1):
        logs = path / "logs" / "x_y" / "attempt_0" / str(rank)
        logs.mkdir(parents=True)
        (logs / "stdout.log").write_text(f"hello from {rank}\n")
        (logs / "stderr.log").write_text("")
    (path / "run.json").write_text(json.dumps(ASKED))
    (path / "result.json").write_text(json.dumps(RESULT))
    (path / "events-0.jsonl").write_text(
        '{"t": 1.0, "rank": 0, "attempt": 0, "event": "log", "step": 0, "loss": 2.5}\n'
        '{"t": 2.0, "rank": 0, "attempt": 0, "event": "log", "step": 1, "loss": 1.5}\n'
    )
    return path


def read(path: Path, data: bytes, *, pieces: int = 1) -> Reader:
    """Read `data` as rank 0's output, arriving in this many pieces."""
    logs = path / "logs" / "id" / "attempt_0" / "0"
    logs.mkdir(parents=True)
    reader = Reader(path)
    size = math.ceil(len(data) / pieces) or 1
    with open(logs / "stdout.log", "wb", buffering=0) as file:
        for start in range(0, len(data), size):
            file.write(data[start : start + size])
            reader.poll(0.0)
    reader.poll(0.0, last=True)
    return reader


class TestOpen:
    def test_by_rank_is_in_the_order_of_ranks(self, folder: Path) -> None:
        (folder / "events-0.jsonl").write_text('{"t": 5, "rank": 0, "event": "log", "loss": 2}\n')
        (folder / "events-1.jsonl").write_text(
            '{"t": 4, "rank": 1, "event": "log", "loss": 7}\n'
            '{"t": 6, "rank": 1, "event": "log", "loss": 3}\n'
        )
        assert list(Run.open(folder).by_rank("loss").items()) == [(0, 2), (1, 3)]

    def test_all_fields(self, folder: Path) -> None:
        run = Run.open(folder)
        assert (run.job, run.ranks, run.knobs, run.done, run.ok) == (
            "job",
            2,
            {"lr": 0.1},
            True,
            False,
        )
        assert run.exit_codes == {0: -15, 1: 3}
        assert run.wall_s == run.elapsed_s == 1.5
        assert run.lines_of(1) == ["hello from 1"]
        assert run.values("loss") == [2.5, 1.5]
        assert run.value("step") == 1
        assert run.by_rank("loss") == {0: 1.5}
        assert run.failure is not None
        assert run.failure.consequences == {0: "stopped by torchrun"}
        assert "FIRST FAILURE: rank 1: ValueError" in str(run)
        assert "&lt;b&gt;boom" in run._repr_html_(), "what a rank says is never markup"
        with pytest.raises(NoEvidence, match="it has: attempt, loss, step"):
            run.value("accuracy")

    def test_a_rank_that_there_was_not_is_told_from_a_name(self, folder: Path) -> None:
        run = Run.open(folder)
        with pytest.raises(NoEvidence, match=f"it has {run.ranks} ranks"):
            run.value("loss", rank=99)
        assert run.tail(0) == []

    def test_control_of_a_finished_run_does_nothing(self, folder: Path) -> None:
        run = Run.open(folder)
        run.stop()
        run.kill(0)
        assert run.wait() is run
        with pytest.raises(ValueError, match="no rank 2"):
            run.pause(2)

    @pytest.mark.parametrize("name", ["run.json", "result.json"])
    @pytest.mark.parametrize(
        "content",
        [
            None, b"", b"{", b"[]", b"null", b"3", b"\xff\xfe", b'"text"', b"{}", b"[" * 100_000,
            b'{"job": 1}',
        ],
    )  # fmt: skip
    def test_a_damaged_folder_is_no_run(
        self, folder: Path, name: str, content: bytes | None
    ) -> None:
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_bytes(content)
        with pytest.raises(NoSuchRun, match="is not a run"):
            Run.open(folder)

    @pytest.mark.parametrize(
        "change",
        [
            {"ranks": 10**12}, {"ranks": "2"}, {"ranks": 0}, {"ranks": None}, {"ranks": 1.5},
            {"command": None}, {"ended": "oddly"}, {"ended": []}, {"exit_codes": {"a": 1}},
            {"exit_codes": [1]}, {"wall_s": "long"}, {"wall_s": 10**400}, {"failure": "boom"},
            {"failure": {}}, {"failure": {"what": 3, "rank": 0}},
            {"failure": {**RESULT["failure"], "where": {"x": "y"}}},
        ],
        ids=str,
    )  # fmt: skip
    def test_a_value_of_the_wrong_kind_is_found_on_opening(
        self, folder: Path, change: dict[str, Any]
    ) -> None:
        name, whole = (
            ("run.json", ASKED) if change.keys() <= ASKED.keys() else ("result.json", RESULT)
        )
        (folder / name).write_text(json.dumps({**whole, **change}))
        with pytest.raises(NoSuchRun):
            Run.open(folder)

    def test_what_a_later_version_adds_is_passed_over(self, folder: Path) -> None:
        failure = {**RESULT["failure"], "extra": 1}
        (folder / "result.json").write_text(json.dumps({**RESULT, "failure": failure, "more": 1}))
        assert Run.open(folder).failure.what == failure["what"]

    def test_other_things_are_no_run(self, tmp_path: Path, folder: Path) -> None:
        (tmp_path / "file").write_text("x")
        (tmp_path / "link").symlink_to(folder)
        for other in (tmp_path, tmp_path / "none", tmp_path / "file", "", "x" * 5000):
            with pytest.raises(NoSuchRun):
                Run.open(other)

    def test_lines_cut_off_by_a_full_disk_are_read_from_the_logs(self, folder: Path) -> None:
        (folder / "lines.jsonl").write_text('{"t_s": 0.1, "rank": 0, "stream": "std')
        assert Run.open(folder).lines_of(0) == ["hello from 0"]

    def test_a_huge_run_opens(self, folder: Path) -> None:
        logs = folder / "logs" / "x_y" / "attempt_0" / "0" / "stdout.log"
        logs.write_bytes(b"a line of output\n" * 300_000)
        (folder / "events-1.jsonl").write_bytes(
            b'{"t": 1.0, "rank": 1, "event": "log", "loss": 1}\n' * 50_000
        )
        run = Run.open(folder)
        assert len(run.lines_of(0)) == 300_000
        assert len(run.values("loss", rank=1)) == 50_000

    @settings(max_examples=100, deadline=None)
    @given(
        events=st.lists(
            st.one_of(
                st.binary(),
                st.sampled_from(
                    [
                        b"{}", b"[]", b"null", b'{"t": "x", "rank": 0, "event": "log"}',
                        b"[" * 9999,
                        b'{"t": 1, "rank": 7, "event": "log", "loss": 1}',
                        b"1" * 5000, b'{"t": NaN}',
                        b'{"t": 1, "rank": [], "event": "log"}',
                        b'{"t": 1, "rank": 0, "event": "log", "step": "x", "loss": {}}',
                        b'{"t": 1, "rank": 0, "event": "place", "why": 5}',
                        b'{"t": 1, "rank": 0, "event": "log", "step": 1e400}',
                    ]
                ),
            ),
            max_size=5,
        )
    )  # fmt: skip
    def test_whatever_a_rank_reports_is_taken_or_refused(
        self, tmp_path_factory: pytest.TempPathFactory, events: list[bytes]
    ) -> None:
        path = tmp_path_factory.mktemp("fuzz")
        (path / "run.json").write_text(json.dumps(ASKED))
        (path / "result.json").write_text(json.dumps(RESULT))
        (path / "events-0.jsonl").write_bytes(b"\n".join(events))
        run = Run.open(path)
        assert all(isinstance(event["rank"], int) for event in run.events)
        assert isinstance(run.by_rank("loss"), dict)
        assert str(run)
        assert run._repr_html_()


class TestReader:
    def test_lines_arrive_whole_however_they_are_cut(self, tmp_path: Path) -> None:
        texts = [f"line {number} naïve 漢字 🙂" for number in range(500)]
        data = "\n".join(texts).encode()
        for pieces in (1, 7, 1000):
            reader = read(tmp_path / str(pieces), data, pieces=pieces)
            assert [line.text for line in reader.lines] == texts

    @settings(max_examples=100, deadline=None)
    @given(data=st.binary(max_size=200), pieces=st.integers(1, 20))
    def test_any_bytes_give_the_same_lines_in_any_pieces(
        self, tmp_path_factory: pytest.TempPathFactory, data: bytes, pieces: int
    ) -> None:
        reader = read(tmp_path_factory.mktemp("bytes"), data, pieces=pieces)
        whole = data.split(b"\n")
        whole = whole[:-1] if not whole[-1] else whole
        shown = [line.rstrip(b"\r").rsplit(b"\r", 1)[-1].decode(errors="replace") for line in whole]
        assert [line.text for line in reader.lines] == shown

    def test_a_progress_bar_ends_as_a_terminal_shows_it(self, tmp_path: Path) -> None:
        reader = read(tmp_path, b"10%\r20%\r\n0%\r100%\ndos\r\n\r\n")
        assert [line.text for line in reader.lines] == ["20%", "100%", "dos", ""]

    @pytest.mark.parametrize("pieces", [1, 50])
    def test_a_line_of_a_megabyte_is_one_line_and_says_that_it_was_cut(
        self, tmp_path: Path, pieces: int
    ) -> None:
        data = b"before\n" + "ü".encode() * (1 << 20) + b"\nafter\n"
        before, long, after = (line.text for line in read(tmp_path, data, pieces=pieces).lines)
        assert (before, after) == ("before", "after")
        assert long.startswith("ü" * 20_000)
        assert long.endswith(" …")
        assert len(long) < 30_000

    def test_a_rank_that_comes_later_is_found(self, tmp_path: Path) -> None:
        reader = Reader(tmp_path)
        for rank in range(2):
            log = tmp_path / "logs" / "none_x" / "attempt_0" / str(rank) / "stdout.log"
            log.parent.mkdir(parents=True)
            log.write_text(f"from rank {rank}\n")
            until(lambda: reader.poll(0.0), f"the words of rank {rank}")
            assert not reader.poll(0.0), "nothing new"
        assert [(line.rank, line.text) for line in reader.lines] == [
            (0, "from rank 0"),
            (1, "from rank 1"),
        ]

    def test_an_event_is_taken_once_it_is_whole(self, tmp_path: Path) -> None:
        reader = Reader(tmp_path)
        path = tmp_path / "events-0.jsonl"
        path.write_text('{"t": 1, "rank": 0, "event')
        reader.poll(0.0)
        assert reader.events == []
        with open(path, "a") as file:
            file.write('": "log"}\n')
        assert reader.poll(0.0)
        assert not reader.poll(0.0), "nothing new"
        assert len(reader.events) == 1
        assert reader.refused == 0


class TestFolders:
    def make(self, root: Path, number: int, age_s: float) -> Path:
        folder = root / f"20260101-{number:06d}-job-abcd"
        (folder / "logs").mkdir(parents=True)
        when = time.time() - age_s
        os.utime(folder, (when, when))
        return folder

    def test_pruned_by_count_oldest_first(self, tmp_path: Path) -> None:
        made = [self.make(tmp_path, number, 3600) for number in range(10)]
        gone = folders.prune(tmp_path, keep=4)
        assert sorted(gone) == made[:6]
        assert all(folder.exists() for folder in made[6:])

    def test_pruned_by_age(self, tmp_path: Path) -> None:
        old, new = self.make(tmp_path, 1, 15 * 86400), self.make(tmp_path, 2, 86400)
        assert folders.prune(tmp_path) == [old]
        assert new.exists()

    def test_never_while_in_use(self, tmp_path: Path, folder: Path) -> None:
        os.utime(folder, (0, 0))
        run = Run.open(folder)
        assert folders.prune(folder.parent, keep=0) == []
        del run
        assert folders.prune(folder.parent, keep=0) == [folder]

    def test_nor_when_it_has_just_begun(self, tmp_path: Path) -> None:
        self.make(tmp_path, 1, 5)
        assert folders.prune(tmp_path, keep=0) == []

    def test_nothing_but_runs_is_pruned(self, tmp_path: Path) -> None:
        target = self.make(tmp_path / "elsewhere", 1, 10**9)
        (tmp_path / "20260101-000001-job-abcd").symlink_to(target)
        for name in ("notes", "20260101-000000-job", "x20260101-000000-job-abcd"):
            (tmp_path / name).mkdir()
            os.utime(tmp_path / name, (0, 0))
        assert folders.prune(tmp_path, keep=0) == []
        assert target.exists()

    def test_two_runs_never_share_a_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        draws = iter([b"\0\0", b"\0\0", b"\0\1"])
        monkeypatch.setattr(folders.os, "urandom", lambda size: next(draws))
        monkeypatch.setattr(folders.time, "strftime", lambda form: "20260101-000000")
        assert folders.new_folder("a") != folders.new_folder("a")

    def test_the_name_of_a_job_cannot_leave_the_folder(self) -> None:
        folder = folders.new_folder("../../größe " + "x" * 500)
        assert folder.parent == folders.runs_folder()
        assert folders.NAME.fullmatch(folder.name)

    def test_a_relative_folder_is_this_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DDP_COURSE_RUNS", "mine/runs")
        assert folders.runs_folder() == tmp_path / "mine" / "runs"
        monkeypatch.setenv("DDP_COURSE_RUNS", "~/runs")
        assert folders.runs_folder() == Path.home() / "runs"

    def test_a_folder_that_cannot_be_written_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("DDP_COURSE_RUNS", str(tmp_path / "file" / "runs"))
        with pytest.raises(CannotRun, match="DDP_COURSE_RUNS"):
            folders.new_folder("job")


def test_a_line_says_its_rank_once() -> None:
    assert Line(0.1, 1, "stderr", "[rank1]: ValueError: boom").words == "ValueError: boom"
    assert Line(0.1, 1, "stdout", "[rank0]: hello").words == "[rank0]: hello"
