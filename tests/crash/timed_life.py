"""Lives of a store with timers, each killed somewhere, that follow one another on the same files.

    python -m tests.crash.timed_life

A line ``ROOT NUMBER SEED NOW RECORD`` on standard input is a life: it puts timer messages, lets time pass and delivers,
until it is killed before its NUMBER-th call. RECORD is the file in which it notes what it was told and what it did;
notes are written before the next call, so a kill loses none.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rmqtool.broker.services.tick import Services
from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.crash.killed_lives import answer, kill_before
from tests.support.engine_stores import small_config
from tests.support.manual_clock import ManualClock

# Seconds after which a timer is put again, to come nearer.
WINDOW = 12
SETTINGS = {
    "flushDiskType": FlushDiskType.SYNC_FLUSH,
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "mappedFileSizeTimerLog": 52 * 40 + 30,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    "timerRollWindowSlot": WINDOW,
}
# Steps of a life that nobody kills.
STEPS = 40
SECOND = 1000


@contextmanager
def setup_at(root: str, now: int) -> Iterator[Setup]:
    """Give what the store is opened with at some time."""
    with PosixWritableFileSystem(root) as files:
        yield Setup(files, small_config(Version.V5_3, storePathRootDir=root, **SETTINGS), ManualClock(now))


def live(setup: Setup, seed: int, note: Callable[[str], None], steps: int = STEPS) -> None:
    """Put, wait and deliver for some steps; note each of it.

    ``put BODY`` was acknowledged; ``began HIGH`` and ``saved HIGH`` say how much had come when the life began and when
    its progress was on the disk; ``now TIME`` is that the clock went on.
    """
    chance = random.Random(seed)
    assert isinstance(setup.clock, ManualClock)
    with MessageStore.open(setup) as store:
        services = Services(store)
        note(f"began {_come(store)}")
        for step in range(steps):
            what = chance.random()
            if what < 0.6:
                _put_some(store, chance, f"{seed}-{step}", note)
            elif what < 0.75:
                setup.clock.advance(chance.randrange(3) * SECOND)
                note(f"now {setup.clock.wall}")
            elif what < 0.9:
                _deliver(services)
            else:
                come = _come(store)
                services.save()
                note(f"saved {come}")
        services.close()


def _put_some(store: MessageStore, chance: random.Random, name: str, note: Callable[[str], None]) -> None:
    """Put a few messages for one second, as a rule for one that has some already."""
    seconds = chance.choice((2, 2, 3, 5, 8, 3 * WINDOW))
    for number in range(chance.randrange(1, 6)):
        body = f"{'far' if seconds > WINDOW else 'near'}-{name}-{number}"
        properties = {"WAIT": "true", "UNIQ_KEY": body, "TIMER_DELAY_SEC": str(seconds)}
        if store.put(NewMessage("T", body.encode(), 0, properties)).is_ok:
            note(f"put {body}")


def _deliver(services: Services) -> None:
    for told in services.iter_due():
        assert told.event in ("delivered", "rolled"), told


def _come(store: MessageStore) -> int:
    """Return how many messages have come."""
    store.dispatch_now()
    return store.reader.bounds("T", 0).max_offset


def finish(setup: Setup, note: Callable[[str], None]) -> list[str]:
    """Let everything come that still waits; return the bodies of all that came, in their order."""
    assert isinstance(setup.clock, ManualClock)
    with MessageStore.open(setup) as store:
        services = Services(store)
        note(f"began {_come(store)}")
        for _ in range(60):
            _deliver(services)
            setup.clock.advance(2 * SECOND)
        assert services.waiting()["timer"] == {"count": 0, "nextDue": None}
        services.save()
        services.close()
        places = [store.reader.get("T", 0, offset, 1).messages[0].physical_offset for offset in range(_come(store))]
        return [record.raw_body.decode() for at in places if (record := store.reader.message_at(at)) is not None]


def _killed(words: list[str]) -> None:
    root, number, seed, now, record = words
    write = os.write
    notes = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    kill_before(int(number))
    with setup_at(root, int(now)) as setup:
        live(setup, int(seed), lambda words: write(notes, f"{words}\n".encode()))  # type: ignore[func-returns-value]


if __name__ == "__main__":
    answer(_killed)
