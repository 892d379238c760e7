"""Ranks that are played here: who hangs, who is only slow, and who failed first."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ddp_course.checks import judge, supervisor
from ddp_course.checks.evidence import SOCKET, Message, pack, split, unpack
from ddp_course.checks.exercises import EXERCISES
from ddp_course.checks.supervisor import Gathered, Observation, Supervisor, plain


class Job:
    done = False


class Played:
    """One rank: says what a rank says until it has its inputs, and then what `act` says."""

    def __init__(self, path: str, rank: int, act: Callable[[Played], None]) -> None:
        self.rank, self.asked, self._buffer = rank, 0, b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.settimeout(60)
        self.thread = threading.Thread(target=self._play, args=[act], daemon=True)
        self.thread.start()

    def say(self, event: str, **fields: Any) -> None:
        self.socket.sendall(
            pack(Message({"event": event, "rank": self.rank, "attempt": 0} | fields))
        )

    def hear(self) -> str:
        while True:
            body, self._buffer = split(self._buffer)
            if body is not None:
                return str(unpack(body).fields["event"])
            piece = self.socket.recv(1 << 16)
            if not piece:
                return "gone"
            self._buffer += piece

    def answer(self, times: int, *, cpu_s: Callable[[int], float], calls: int = 3) -> None:
        """Answer so many questions."""
        for number in range(times):
            if self.hear() != "where":
                return
            self.asked += 1
            self.say("at", calls=calls, cpu_s=cpu_s(number), line="line 7: x")

    def drop(self) -> None:
        """Go without a word."""
        self.socket.shutdown(socket.SHUT_RDWR)

    def _play(self, act: Callable[[Played], None]) -> None:
        self.say("here")
        assert self.hear() == "load"
        self.say("loaded")
        while (event := self.hear()) == "where":
            self.say("at", calls=0, cpu_s=0.0, line="")
        assert event == "inputs"
        act(self)


def returns(rank: Played) -> None:
    rank.say("returned", calls=4, t=time.monotonic())


def waits(rank: Played) -> None:
    rank.answer(1000, cpu_s=lambda _: 0.5)


def computes_then_returns(rank: Played) -> None:
    rank.answer(15, cpu_s=lambda number: 0.01 * number)
    returns(rank)


def loops(rank: Played) -> None:
    rank.answer(1000, cpu_s=lambda number: 1.0 * number)


def says_nothing(rank: Played) -> None:
    while rank.hear() == "where":
        rank.asked += 1


def floods(rank: Played) -> None:
    with contextlib.suppress(OSError):
        while True:
            rank.say("at", calls=1, cpu_s=0.5, line="")


def answers_and_never_reads(rank: Played) -> None:
    """As a child does that has the rank's descriptor."""
    with contextlib.suppress(OSError):
        for number in range(1000):
            rank.say("at", calls=number, cpu_s=0.01 * number, line="")
            time.sleep(0.01)


def raises(text: str, *, after_s: float = 0.0) -> Callable[[Played], None]:
    def act(rank: Played) -> None:
        rank.say("raised", error=text, t=time.monotonic() + after_s - 10)

    return act


def play(*acts: Callable[[Played], None], patience_s: float = 1.0) -> tuple[Gathered, list[Played]]:
    draw = EXERCISES["ex00"].draw
    with Supervisor(len(acts), lambda random, ranks: draw(random, ranks)) as trusted:
        path = trusted.env[SOCKET]
        ranks = [Played(path, rank, act) for rank, act in enumerate(acts)]
        gathered = trusted.gather(Job(), patience_s=patience_s)
    for one in ranks:
        one.thread.join(60)
        one.socket.close()
    return gathered, ranks


def states(gathered: Gathered) -> list[str]:
    return [one.state for one in gathered.observations]


def test_a_rank_that_waits_in_vain_hangs_and_says_where() -> None:
    gathered, ranks = play(returns, waits)
    assert states(gathered) == ["returned", "computing"]
    one = gathered.observations[1]
    assert (one.calls, one.line, one.busy) == (3, "line 7: x", False)
    assert ranks[1].asked >= 10, "asked until ten answers in a row said the same"


def test_a_rank_that_computes_is_waited_for_beyond_the_patience() -> None:
    gathered, ranks = play(returns, computes_then_returns)
    assert states(gathered) == ["returned", "returned"]
    assert ranks[1].asked == 15


def test_a_rank_that_waits_for_one_that_computes_does_not_hang() -> None:
    def waits_then_returns(rank: Played) -> None:
        rank.answer(14, cpu_s=lambda _: 0.5)
        returns(rank)

    gathered, _ = play(waits_then_returns, computes_then_returns)
    assert states(gathered) == ["returned", "returned"]


def communicates_without_end(rank: Played) -> None:
    rank.answer(1, cpu_s=lambda _: 0.1)
    rank.answer(1000, cpu_s=lambda number: 0.01 * number, calls=20_000)


@pytest.mark.parametrize("act", [loops, communicates_without_end])
def test_a_loop_without_end_ends_by_what_it_has_used(act: Callable[[Played], None]) -> None:
    gathered, ranks = play(returns, act)
    assert states(gathered) == ["returned", "computing"]
    assert gathered.observations[1].busy
    assert ranks[1].asked < 10, "sooner than a rank that only waits"


def test_a_rank_that_does_not_answer_is_not_waited_for_to_the_limit() -> None:
    gathered, _ = play(returns, says_nothing, patience_s=0.3)
    one = gathered.observations[1]
    assert (one.state, one.silent, one.busy) == ("computing", True, False)
    assert gathered.waited_s < 3.0, "twelve times the patience is the limit"
    hint = judge.assess(EXERCISES["ex00"], gathered)[0].hint
    assert "Rank 1 did not even say which line it was in" in hint


def test_a_rank_that_says_nothing_is_given_up_in_the_end() -> None:
    gathered, ranks = play(returns, says_nothing, patience_s=0.1)
    assert states(gathered) == ["returned", "computing"]
    assert ranks[1].asked == 1, "it is not asked again before it has answered"


def test_a_rank_that_never_reads_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    really = pack
    big = Message({"event": "where"}, {"x": np.zeros(1 << 16)})  # as many small ones would add up
    monkeypatch.setattr(
        supervisor,
        "pack",
        lambda message: really(big if message.fields["event"] == "where" else message),
    )
    began = time.monotonic()
    gathered, _ = play(raises("ValueError: x"), answers_and_never_reads, patience_s=5.0)
    assert states(gathered)[0] == "raised" and time.monotonic() - began < 30


def test_a_rank_that_floods_is_no_longer_heard() -> None:
    gathered, _ = play(returns, floods, patience_s=5.0)
    assert states(gathered) == ["returned", "malformed"]
    assert gathered.observations[1].error == "more messages than a check has"


def test_connections_without_end_take_no_descriptors_and_no_place() -> None:
    with Supervisor(2, EXERCISES["ex00"].draw) as trusted:
        path = trusted.env[SOCKET]
        ranks = [Played(path, rank, returns) for rank in range(2)]
        kept: list[socket.socket] = []

        def more(_: object) -> None:
            with contextlib.suppress(OSError):
                kept.append(socket.socket(socket.AF_UNIX))
                kept[-1].setblocking(False)
                kept[-1].connect(path)
            assert len(trusted._selector.get_map()) <= 10

        gathered = trusted.gather(Job(), patience_s=5.0, tell=more)
    for one in [*kept, *(rank.socket for rank in ranks)]:
        one.close()
    assert states(gathered) == ["returned", "returned"]


@pytest.mark.parametrize(
    "fields",
    [
        {"calls": -1, "cpu_s": 0.1},
        {"calls": "3", "cpu_s": 0.1},
        {"calls": 3},
        {"calls": 3, "cpu_s": "much"},
        {"calls": 3, "cpu_s": float("nan")},
        {"calls": 3, "cpu_s": -1.0},
        {"calls": 3, "cpu_s": 1e300},
    ],
)
def test_an_ill_formed_answer_is_no_evidence(fields: dict[str, Any]) -> None:
    def act(rank: Played) -> None:
        rank.hear()
        rank.say("at", **fields)

    gathered, _ = play(returns, act)
    assert states(gathered) == ["returned", "malformed"]


def test_an_answer_that_nobody_asked_for_changes_nothing() -> None:
    def act(rank: Played) -> None:
        rank.say("at", calls=99, cpu_s=1.0, line="here")
        returns(rank)
        rank.say("at", calls=99, cpu_s=1.0, line="here")

    gathered, _ = play(act, returns)
    assert states(gathered) == ["returned", "returned"]
    assert [one.calls for one in gathered.observations] == [4, 4]


def test_the_ranks_clock_says_who_was_first_not_the_arrival() -> None:
    gathered, _ = play(raises("ValueError: late", after_s=2), raises("KeyError: early", after_s=1))
    results = judge.assess(EXERCISES["ex00"], gathered)
    assert results[0].message.startswith("Rank 1 raised first: KeyError: early")


def test_a_consequence_is_never_the_first() -> None:
    text = "RuntimeError: [gloo/pair.cc:1] Connection closed by peer [127.0.0.1]:1"
    for acts in ((raises(text), raises("KeyError: x", after_s=5)), (raises(text), Played.drop)):
        gathered, _ = play(*acts)
        results = judge.assess(EXERCISES["ex00"], gathered)
        assert results[0].status == "error"
        assert results[0].message.startswith("Rank 1 "), results[0].message


def test_when_only_consequences_are_seen_the_hang_is_the_reason() -> None:
    text = "RuntimeError: Timed out waiting 1000ms for recv operation to complete"
    gathered, _ = play(raises(text), says_nothing, patience_s=0.1)
    assert judge.assess(EXERCISES["ex00"], gathered)[0].status == "timeout"


def test_ranks_that_torchrun_has_ended_are_not_the_first() -> None:
    inputs = [{"number": np.zeros(3, np.float32)}] * 2
    ended = Observation(0, "gone", place=1, t=1.0, followed=True)
    crashed = Observation(1, "gone", place=2, t=2.0)
    results = judge.assess(EXERCISES["ex00"], Gathered(inputs, [ended, crashed]))
    assert results[0].message.startswith("Rank 1 left")


def test_what_a_rank_says_cannot_move_the_cursor() -> None:
    assert plain("a\x1b[2J\x07b\nc\r\x00", 100) == "a[2Jb\nc"
    assert plain(None, 10) == "" and plain(["x"], 3) == "['x"


@pytest.mark.parametrize(
    ("code", "said", "hint"),
    [
        (-6, "SIGABRT ended it", "different sizes"),
        (-9, "SIGKILL ended it", "memory"),
        (-11, "SIGSEGV ended it", "compiled code"),
        (3, "it ended with exit code 3", "by `return`"),
        (-99, "signal 99 ended it", ""),
        (None, "by os._exit, or a crash", ""),
    ],
)
def test_how_a_rank_ended_is_said_with_what_may_have_done_it(
    code: int | None, said: str, hint: str
) -> None:
    inputs = [{"number": np.zeros(3, np.float32)}] * 2
    gone = Observation(0, "gone", place=1, t=1.0, error=judge.ending(code))
    results = judge.assess(EXERCISES["ex00"], Gathered(inputs, [gone, Observation(1, "returned")]))
    assert results[0].message == f"Rank 0 left without an answer: {said}."
    assert hint in results[0].hint and bool(hint) is bool(results[0].hint)


def test_a_rank_comes_to_the_store_as_soon_as_it_listens_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ddp_course.checks import driver  # imports torch

    really, refused = socket.create_connection, threading.Event()

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        try:
            return really(address, timeout)
        except ConnectionRefusedError:
            refused.set()
            raise

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(driver, "MOST_STORE_S", 60.0)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setenv("RANK", "0")
    driver.await_store()  # the store is its own
    with socket.socket() as store:
        store.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", str(store.getsockname()[1]))
        rank = threading.Thread(target=driver.await_store, daemon=True)
        rank.start()
        assert refused.wait(30) and rank.is_alive()
        store.listen()
        rank.join(30)
        assert not rank.is_alive()
