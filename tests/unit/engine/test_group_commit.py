"""Who forces, who sleeps, who is woken with what."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rmqtool.engine.group_commit import GroupCommit, Turn


class Log:
    flushed_offset = 0


class Producer(threading.Thread):
    def __init__(self, turns: GroupCommit, offset: int, timeout: float = 60) -> None:
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
        producer.join(60)


def test_a_lone_producer_forces_and_what_is_durable_is_waited_for_by_nobody() -> None:
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, 60) is Turn.MINE
    log.flushed_offset = 10
    turns.end_turn()
    assert turns.wait(10, 60) is Turn.DONE
    assert turns.wait(11, 60) is Turn.MINE


def test_one_forces_for_all_and_hands_the_turn_to_the_first_of_the_others() -> None:
    log = Log()
    turns = GroupCommit(lambda: log.flushed_offset)
    assert turns.wait(10, 60) is Turn.MINE
    with asleep(turns, 30, 20, 40) as producers:
        log.flushed_offset = 20
        turns.end_turn()
        producers[0].join(60)
        producers[1].join(60)
        assert [one.turn for one in producers] == [Turn.MINE, Turn.DONE, None]
        assert turns.sleeping == 1
        log.flushed_offset = 40
        turns.end_turn()
    assert producers[2].turn is Turn.DONE
    assert turns.wait(50, 60) is Turn.MINE


def test_after_a_failure_each_learns_it_by_a_turn_of_its_own() -> None:
    turns = GroupCommit(lambda: 0)
    assert turns.wait(10, 60) is Turn.MINE
    with asleep(turns, 20, 30) as producers:
        for producer in producers:
            turns.end_turn()
            producer.join(60)
            assert producer.turn is Turn.MINE
    turns.end_turn()
    assert turns.wait(10, 60) is Turn.MINE


def test_who_gives_up_gets_no_turn() -> None:
    turns = GroupCommit(lambda: 0)
    assert turns.wait(10, 60) is Turn.MINE
    assert turns.wait(20, 0) is Turn.TOO_LATE
    assert turns.sleeping == 0
    turns.end_turn()
    assert turns.wait(30, 60) is Turn.MINE


def test_who_wants_to_force_whatever_is_durable_waits_for_the_turn() -> None:
    turns = GroupCommit(lambda: 1 << 40)
    turns.take_turn()
    follower = threading.Thread(target=turns.take_turn, daemon=True)
    follower.start()
    while not turns.sleeping:
        time.sleep(0)
    turns.end_turn()
    follower.join(60)
    assert not follower.is_alive()


@pytest.mark.parametrize("is_woken_first", [False, True])
def test_an_interrupted_producer_leaves_the_turn_to_the_others(is_woken_first: bool) -> None:
    """A signal comes while the producer sleeps: before the turn is given to it, and after."""
    turns = GroupCommit(lambda: 0)
    assert turns.wait(10, 60) is Turn.MINE
    interrupted = threading.Event()

    def interrupt(*_signal: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            if is_woken_first:
                turns.end_turn()
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
            turns.wait(20, 60)
    finally:
        killer.join()
        signal.signal(signal.SIGUSR1, before)
    assert turns.sleeping == 0
    if not is_woken_first:
        turns.end_turn()
    assert turns.wait(30, 60) is Turn.MINE
