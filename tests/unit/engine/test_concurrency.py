"""Many producers, and the store's own threads, over many segments: every message once, numbered and in its queue."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from tests.support.engine_stores import a_message, iter_records, small_setup, units

WAYS = [
    {},
    {"flushDiskType": FlushDiskType.SYNC_FLUSH},
    {"transientStorePoolEnable": True},
    {"transientStorePoolEnable": True, "flushDiskType": FlushDiskType.SYNC_FLUSH},
]
PRODUCERS = 4


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Let threads take turns a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


class Producer(threading.Thread):
    """Puts in every way there is, and does by calls what the threads of the store do at the same time."""

    def __init__(self, store: MessageStore, number: int, count: int) -> None:
        super().__init__()
        self.store, self.number, self.count = store, number, count
        self.tickets: list[PutTicket] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._produce()
        except BaseException as error:
            self.failure = error

    def _produce(self) -> None:
        chance, store = random.Random(self.number), self.store
        for number in range(self.count):
            message = self._message(chance)
            match chance.randrange(4):
                case 0:
                    self.tickets.append(store.put(message))
                case 1:
                    self.tickets += store.put_many([message, self._message(chance)])
                case _:
                    waiting = [store.put_async(self._message(chance)) for _ in range(5)]
                    for ticket in waiting:
                        store.wait(ticket)
                    self.tickets += waiting
            if number % 20 == 0:
                store.flush_now()
                store.dispatch_now()
                store._upkeep.flush_queues()
                store.tick()

    def _message(self, chance: random.Random) -> NewMessage:
        return a_message(queue_id=chance.randrange(3), body=b"x" * chance.randrange(400))


def live(version: Version, way: dict[str, object], count: int) -> None:
    """Produce, close, and look at every record, every unit and every answer."""
    # How long the disk of the machine takes is not what this test is about.
    setup = small_setup(version, **way, syncFlushTimeout=300_000)
    with MessageStore.create(setup) as store:
        store.start()
        producers = [Producer(store, number, count) for number in range(PRODUCERS)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
        assert [producer.failure for producer in producers] == [None] * PRODUCERS
        condition = store.condition()
        assert (condition.failure, condition.findings) == (None, ())
    records = {one.physical_offset: one for one in iter_records(setup.files)}
    tickets = [ticket for producer in producers for ticket in producer.tickets]
    assert all(ticket.is_ok for ticket in tickets)
    assert sorted(ticket.physical_offset for ticket in tickets) == sorted(records)
    for ticket in tickets:
        record = records[ticket.physical_offset]
        assert (record.topic, record.queue_id, record.queue_offset) == (*ticket.queue, ticket.queue_offset)
    for queue_id in range(3):
        places = [unit.physical_offset for unit in units(setup.files, "T", queue_id)]
        found = [records[place] for place in places]
        assert [(one.queue_id, one.queue_offset) for one in found] == [(queue_id, at) for at in range(len(found))]
    assert len(records) == len(tickets) == sum(1 for one in records.values() if one.topic == "T")
    with MessageStore.open(setup) as store:
        assert store.put(a_message()).is_ok


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("way", WAYS, ids=["async", "sync", "pool", "pool and sync"])
def test_producers_and_threads(way: dict[str, object]) -> None:
    live(Version.V5_3, way, 60)


@pytest.mark.slow
@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("way", WAYS, ids=["async", "sync", "pool", "pool and sync"])
@pytest.mark.parametrize("version", list(Version))
def test_producers_and_threads_for_longer(version: Version, way: dict[str, object]) -> None:
    for _ in range(5):
        live(version, way, 400)
