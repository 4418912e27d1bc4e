"""Who forces, who sleeps, who is woken with what."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rmqtool.engine.flush import GroupCommit, Turn
from tests.support.waiting import PATIENCE


class Log:
    flushed_offset = 0


class Producer(threading.Thread):
    def __init__(self, turns: GroupCommit, offset: int, timeout: float = PATIENCE) -> None:
        super().__init__(daemon=True)
        self.turns, self.offset, self.timeout = turns, offset, timeout
        self.turn: Turn | None = None

    def run(self) -> None:
        self.turn = self.turns.wait(self.offset, self.timeout)


@contextmanager
def asleep(turns: GroupCommit, *offsets: int) -> Iterator[list[Producer]]:
    """Start producers, one after the other, and go on when all of them sleep."""
    producers = []
    for offset in offsets:
        before = turns.sleeping
        producers.append(Producer(turns, offset))
        producers[-1].start()
        while turns.sleeping == before:
            time.sleep(0)
    yield producers
    for producer in producers:
        producer.join(PATIENCE)


def test_a_lone_producer_forces_and_what_is_durable_is_waited_for_by_nobody() -> None:
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    log.flushed_offset = 10
    turns.end_turn()
    assert turns.wait(10, PATIENCE) is Turn.DONE
    assert turns.wait(11, PATIENCE) is Turn.MINE


def test_one_forces_for_all_and_hands_the_turn_to_the_first_of_the_others() -> None:
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    with asleep(turns, 30, 20, 40) as producers:
        log.flushed_offset = 20
        turns.end_turn()
        producers[0].join(PATIENCE)
        producers[1].join(PATIENCE)
        assert [one.turn for one in producers] == [Turn.MINE, Turn.DONE, None]
        assert turns.sleeping == 1
        log.flushed_offset = 40
        turns.end_turn()
    assert producers[2].turn is Turn.DONE
    assert turns.wait(50, PATIENCE) is Turn.MINE


def test_nobody_sleeps_on_when_who_should_wake_it_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    monkeypatch.setattr("rmqtool.engine.flush._Sleeper.wake_next", lambda sleeper: None)
    with asleep(turns, 20, 20, 20) as producers:
        log.flushed_offset = 20
        turns.end_turn()
        for producer in producers:
            producer.join(PATIENCE)
        assert [one.turn for one in producers] == [Turn.DONE] * 3


def test_who_is_expected_forces_for_those_who_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.engine.flush._PATIENCE", PATIENCE)
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    with asleep(turns, 30, 20) as early:
        log.flushed_offset = 20
        turns.end_turn(returns=True)
        early[1].join(PATIENCE)
        assert turns.is_taken
        # Two are expected: the one who has forced, and the one who was woken.
        with asleep(turns, 40) as late:
            assert turns.sleeping == 2
            assert turns.wait(50, PATIENCE) is Turn.MINE
            log.flushed_offset = 50
            turns.end_turn(returns=True)
    assert [one.turn for one in (*early, *late)] == [Turn.DONE] * 3


def test_who_is_expected_and_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    with asleep(turns, 20, 30, 40) as producers:
        log.flushed_offset = 20
        turns.end_turn(returns=True)
        producers[1].join(PATIENCE)
        assert producers[1].turn is Turn.MINE
        # Nor is anybody for a while, who has patience or not.
        monkeypatch.setattr("rmqtool.engine.flush._PATIENCE", PATIENCE)
        with asleep(turns, 50) as late:
            log.flushed_offset = 40
            turns.end_turn(returns=True)
            late[0].join(PATIENCE)
            assert late[0].turn is Turn.MINE
    assert [one.turn for one in producers] == [Turn.DONE, Turn.MINE, Turn.DONE]


def test_who_is_no_producer_forces_before_those_who_are_expected_have_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqtool.engine.flush._PATIENCE", PATIENCE)
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    follower = threading.Thread(target=turns.take_turn, daemon=True)
    with asleep(turns, 20, 30) as producers:
        follower.start()
        while turns.sleeping < 3:
            time.sleep(0)
        log.flushed_offset = 20
        turns.end_turn(returns=True)
        follower.join(PATIENCE)
        assert (follower.is_alive(), turns.sleeping) == (False, 1)
        turns.end_turn()
        turns.take_turn()
        log.flushed_offset = 30
        turns.end_turn()
    assert [one.turn for one in producers] == [Turn.DONE] * 2


def test_after_a_failure_each_learns_it_by_a_turn_of_its_own() -> None:
    turns = GroupCommit(lambda: 0)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    with asleep(turns, 20, 30) as producers:
        for producer in producers:
            turns.end_turn()
            producer.join(PATIENCE)
            assert producer.turn is Turn.MINE
    turns.end_turn()
    assert turns.wait(10, PATIENCE) is Turn.MINE


def test_who_gives_up_gets_no_turn() -> None:
    turns = GroupCommit(lambda: 0)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    assert turns.wait(20, 0) is Turn.TOO_LATE
    assert turns.sleeping == 0
    turns.end_turn()
    assert turns.wait(30, PATIENCE) is Turn.MINE


def test_who_wants_to_force_whatever_is_durable_waits_for_the_turn() -> None:
    turns = GroupCommit(lambda: 1 << 40)
    turns.take_turn()
    follower = threading.Thread(target=turns.take_turn, daemon=True)
    follower.start()
    while not turns.sleeping:
        time.sleep(0)
    turns.end_turn()
    follower.join(PATIENCE)
    assert not follower.is_alive()


def wait_interrupted(turns: GroupCommit, meanwhile: Callable[[], None]) -> None:
    """Sleep until a signal comes, whose handler does something before it raises."""
    interrupted = threading.Event()

    def interrupt(*_signal: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            meanwhile()
            raise InterruptedError

    def kill() -> None:
        # A signal that comes just before the sleep begins is seen with the next one.
        while not interrupted.wait(0.01):
            if turns.sleeping:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with pytest.raises(InterruptedError):
            turns.wait(20, PATIENCE)
    finally:
        killer.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("is_woken_first", [False, True])
def test_an_interrupted_producer_leaves_the_turn_to_the_others(is_woken_first: bool) -> None:
    """A signal comes while the producer sleeps: before the turn is given to it, and after."""
    turns = GroupCommit(lambda: 0)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    wait_interrupted(turns, turns.end_turn if is_woken_first else lambda: None)
    assert turns.sleeping == 0
    if not is_woken_first:
        turns.end_turn()
    assert turns.wait(30, PATIENCE) is Turn.MINE


def test_an_interrupted_producer_wakes_the_next_all_the_same() -> None:
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, PATIENCE) is Turn.MINE
    late = Producer(turns, 20)

    def force() -> None:
        late.start()
        while turns.sleeping < 2:
            time.sleep(0)
        log.flushed_offset = 20
        turns.end_turn()

    wait_interrupted(turns, force)
    late.join(PATIENCE)
    assert (late.turn, turns.sleeping) == (Turn.DONE, 0)
