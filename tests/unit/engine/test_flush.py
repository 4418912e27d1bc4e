"""C4.1 to C4.8: what is durable when, and what the checkpoint says of it."""

from __future__ import annotations

import threading
import time
from typing import ClassVar

import pytest

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import PutStatus
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.errors import WriteFailed
from rmqtool.formats import layouts
from tests.support.engine_stores import (
    a_message,
    clock_of,
    during_next,
    iter_records,
    read_bytes,
    small_setup,
    small_store,
)
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import PATIENCE, wait_for

V4_9, V5_3, V5_4 = Version
SYNC = FlushDiskType.SYNC_FLUSH
every_version = pytest.mark.parametrize("version", list(Version))


def a_disk_and_store(version: Version = V5_3, **settings: object) -> tuple[FaultyDisk, MessageStore]:
    disk = FaultyDisk()
    return disk, small_store(version, FaultyFileSystem(disk), **settings)


def forced(disk: FaultyDisk, directory: str = "commitlog") -> int:
    """Return how often files of a directory were forced."""
    return sum(call.operation == "fdatasync" and call.path.startswith(directory) for call in disk.calls)


def bodies_after_power_cut(disk: FaultyDisk) -> list[bytes]:
    """Return the messages of the log when nothing survives that was not forced."""
    return [one.raw_body for one in iter_records(FaultyFileSystem(disk.after_crash(lambda _count: 1)))]


def checkpoint_of(store: MessageStore) -> layouts.StoreCheckpoint:
    return layouts.STORE_CHECKPOINT.decode(read_bytes(store.setup.files, "checkpoint"))


@every_version
def test_a_synchronous_put_survives_a_power_cut(version: Version) -> None:
    """C4.1."""
    disk, store = a_disk_and_store(version, flushDiskType=SYNC)
    with store:
        assert store.put(a_message(7)).is_ok
        assert bodies_after_power_cut(disk) == [b"body 7"]


@every_version
def test_a_flush_that_takes_too_long(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4.2."""
    _, store = a_disk_and_store(version, flushDiskType=SYNC)
    with store:
        store.put(a_message())
        during_next(monkeypatch, "fdatasync", lambda: clock_of(store).advance(5001))
        put = store.put(a_message(1))
        assert put.status is PutStatus.FLUSH_DISK_TIMEOUT
        assert put.status.is_stored
        store.dispatch_now()
        queue = store.find_queue("T", 0)
        assert queue is not None
        assert queue.max_offset == 2
        during_next(monkeypatch, "fdatasync", lambda: clock_of(store).advance(5000))
        assert store.put(a_message(2)).is_ok


def let_time_pass(store: MessageStore, *threads: threading.Thread) -> None:
    """Let the time of a store go on until these threads have ended, whenever each began to wait."""
    wait_for(lambda: clock_of(store).advance(10) or not any(one.is_alive() for one in threads))


def test_others_do_not_wait_longer_than_the_limit_for_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """C4.2, for the producer whose message another one's flush is to cover."""
    _, store = a_disk_and_store(flushDiskType=SYNC, syncFlushTimeout=1)
    with store:
        store.put(a_message())
        hangs, goes_on = threading.Event(), threading.Event()

        def hang() -> None:
            hangs.set()
            assert goes_on.wait(PATIENCE)

        during_next(monkeypatch, "fdatasync", hang)
        leader = threading.Thread(target=store.put, args=(a_message(1),))
        leader.start()
        assert hangs.wait(PATIENCE)
        follower = store.put_async(a_message(2))
        clock_of(store).advance(-1)
        # The clock of the store stands still; the real one decides how long a lock is waited for.
        waiter = threading.Thread(target=store.wait, args=(follower,))
        waiter.start()
        waiter.join(0.05)
        assert waiter.is_alive()
        let_time_pass(store, waiter)
        assert follower.status is PutStatus.FLUSH_DISK_TIMEOUT
        goes_on.set()
        leader.join(PATIENCE)
        store.flush_now()
        assert store.condition().flushed_offset == follower.end_offset


@every_version
def test_a_message_that_does_not_wait(version: Version) -> None:
    """C4.3."""
    disk, store = a_disk_and_store(version, flushDiskType=SYNC)
    with store:
        before = forced(disk)
        put = store.put(a_message(properties={"WAIT": "false"}))
        assert put.is_ok
        assert forced(disk) == before
        assert bodies_after_power_cut(disk) == []
        store.tick()
        assert forced(disk) == before + 1
        assert bodies_after_power_cut(disk) == [b"body 0"]


@every_version
def test_an_asynchronous_store_forces_by_pages_and_time(version: Version) -> None:
    """C4.4."""
    disk, store = a_disk_and_store(version, mappedFileSizeCommitLog=1 << 20)
    with store:
        clock = clock_of(store)
        store.put(a_message())
        for _ in range(19):
            clock.advance(500)
            store.tick()
            assert forced(disk) == 0
        clock.advance(500)
        store.tick()
        assert forced(disk) == 1
        store.put(a_message(body=bytes(3 * 4096)))
        clock.advance(500)
        store.tick()
        assert forced(disk) == 1
        store.put(a_message(body=bytes(4096)))
        store.tick()
        assert forced(disk) == 1
        clock.advance(500)
        store.tick()
        assert forced(disk) == 2


@every_version
def test_queues_are_forced_within_a_minute_and_the_checkpoint_with_them(version: Version) -> None:
    """C4.5."""
    disk, store = a_disk_and_store(version)
    with store:
        put = store.put(a_message())
        store.dispatch_now()
        clock_of(store).advance(59_000)
        store.tick()
        assert forced(disk, "consumequeue") == 0
        assert checkpoint_of(store).logics_msg_timestamp == 0
        clock_of(store).advance(1000)
        store.tick()
        assert forced(disk, "consumequeue") == 1
        assert checkpoint_of(store).logics_msg_timestamp == put.store_timestamp


def test_a_queue_with_two_full_pages_is_forced_sooner() -> None:
    disk, store = a_disk_and_store(mappedFileSizeConsumeQueue=20_000)
    with store:
        store.put_many([a_message(number) for number in range(410)])
        store.dispatch_now()
        clock_of(store).advance(1000)
        store.tick()
        assert forced(disk, "consumequeue") == 1
        assert checkpoint_of(store).logics_msg_timestamp == 0


@every_version
def test_a_killed_process_loses_nothing_it_acknowledged(version: Version) -> None:
    """C4.7."""
    disk, store = a_disk_and_store(version)
    with store:
        for number in range(50):
            assert store.put(a_message(number)).is_ok
        killed = FaultyFileSystem(disk.after_crash(lambda _count: 0))
        assert [one.raw_body for one in iter_records(killed)] == [b"body %d" % number for number in range(50)]


@every_version
def test_one_flush_covers_a_roll(version: Version) -> None:
    """C4.8: several segments are behind one producer's wait."""
    disk, store = a_disk_and_store(version, flushDiskType=SYNC)
    with store:
        waits_not = {"WAIT": "false"}
        for number in range(3):
            store.put(a_message(number, body=b"x" * 3000, properties=waits_not))
        assert store.put(a_message(3, body=b"x" * 3000)).is_ok
        assert len(bodies_after_power_cut(disk)) == 4


@every_version
def test_the_checkpoint_follows_a_full_index_file(version: Version) -> None:
    disk, store = a_disk_and_store(version)
    with store:
        puts = [store.put(a_message(number, properties={"KEYS": "a b c d e"})) for number in range(4)]
        store.dispatch_now()
        assert forced(disk, "index") == 1
        store.tick()
        assert checkpoint_of(store).index_msg_timestamp == puts[2].store_timestamp


def test_the_checkpoint_is_never_ahead_of_the_disk() -> None:
    """upstream: every flush of the checkpoint stores the time of the last dispatched message."""
    _, store = a_disk_and_store(V5_3)
    with store:
        store.put(a_message())
        store.dispatch_now()
        clock_of(store).advance(1000)
        store.tick()
        fields = checkpoint_of(store)
        assert (fields.physic_msg_timestamp, fields.logics_msg_timestamp) == (0, 0)
        store.flush_now()
        store._upkeep.flush_queues()
        fields = checkpoint_of(store)
        assert (fields.physic_msg_timestamp, fields.logics_msg_timestamp) == (1_700_000_000_000,) * 2


def test_what_another_is_still_forcing_is_not_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two flush the queues at once: the second finds them clean, and must not say so in the checkpoint."""
    _, store = a_disk_and_store()
    second = threading.Thread(target=store._upkeep.flush_queues)
    seen = []

    def meanwhile() -> None:
        second.start()
        second.join(0.05)
        seen.append((second.is_alive(), checkpoint_of(store).logics_msg_timestamp))

    with store:
        put = store.put(a_message())
        store.dispatch_now()
        during_next(monkeypatch, "fdatasync", meanwhile)
        store._upkeep.flush_queues()
        second.join(PATIENCE)
        assert seen == [(True, 0)]
        assert checkpoint_of(store).logics_msg_timestamp == put.store_timestamp


def test_a_group_is_forced_once() -> None:
    disk, store = a_disk_and_store(flushDiskType=SYNC, mappedFileSizeCommitLog=1 << 20)
    with store:
        store.put(a_message())
        before = forced(disk)
        assert {ticket.status for ticket in store.put_many([a_message(number) for number in range(300)])} == {
            PutStatus.PUT_OK
        }
        assert forced(disk) == before + 1


def test_producers_in_threads_share_syncs() -> None:
    _, store = a_disk_and_store(flushDiskType=SYNC, mappedFileSizeCommitLog=1 << 20)
    with store:
        store.start()
        statuses: list[PutStatus | None] = []

        def produce(queue_id: int) -> None:
            statuses.extend([store.put(a_message(number, queue_id=queue_id)).status for number in range(50)])

        threads = [threading.Thread(target=produce, args=(queue_id,)) for queue_id in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert statuses == [PutStatus.PUT_OK] * 400
        assert store.condition().flushed_offset == store.condition().wrote_offset
    records = list(iter_records(store.setup.files))
    for queue_id in range(8):
        own = [one for one in records if one.queue_id == queue_id]
        assert [one.queue_offset for one in own] == list(range(50))
        assert [one.raw_body for one in own] == [b"body %d" % number for number in range(50)]


class Joined:
    """Producers that put while another one forces: until they all sleep the sync does not end."""

    def __init__(self, store: MessageStore, count: int) -> None:
        self.tickets: dict[int, PutTicket] = {}
        self.store = store
        self.threads = [threading.Thread(target=self.put, args=(number,)) for number in range(count)]

    def put(self, number: int) -> None:
        self.tickets[number] = self.store.put(a_message(number))

    def start(self) -> None:
        for thread in self.threads:
            thread.start()
        waiting = self.store._engine.writer.waiting
        while len(waiting) < len(self.threads):
            time.sleep(0)

    def statuses(self) -> list[PutStatus | None]:
        for thread in self.threads:
            thread.join(PATIENCE)
        return [self.tickets[number].status for number in range(len(self.threads))]


def test_those_who_come_while_one_forces_are_written_and_forced_together(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store = a_disk_and_store(flushDiskType=SYNC)
    with store:
        store.put(a_message())
        before = len(disk.calls)
        others = Joined(store, 5)
        during_next(monkeypatch, "fdatasync", others.start)
        assert store.put(a_message(9)).is_ok
        assert others.statuses() == [PutStatus.PUT_OK] * 5
        done = [call.operation for call in disk.calls[before:] if call.path.startswith("commitlog")]
        assert done == ["pwrite", "fdatasync"] * 2
        assert sorted(bodies_after_power_cut(disk)) == sorted(
            [b"body 0", b"body 9", *(b"body %d" % n for n in range(5))]
        )


def test_none_of_those_who_come_while_a_sync_fails_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, store = a_disk_and_store(flushDiskType=SYNC)
    store.put(a_message())
    others = Joined(store, 3)
    during_next(monkeypatch, "fdatasync", others.start)
    disk.fail(2)  # the write, then the sync
    assert store.put(a_message(9)).status is PutStatus.UNKNOWN_ERROR
    assert others.statuses() == [PutStatus.SERVICE_NOT_AVAILABLE] * 3
    assert bodies_after_power_cut(disk) == [b"body 0"]
    with pytest.raises(WriteFailed):
        store.close()


def test_who_waits_too_long_for_one_that_hangs_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the store stands still; when it has gone on, the real one has woken the sleepers."""
    _, store = a_disk_and_store(flushDiskType=SYNC, syncFlushTimeout=1)
    with store:
        store.put(a_message())

        def hang() -> None:
            others.start()
            let_time_pass(store, *others.threads)
            assert others.statuses() == [PutStatus.FLUSH_DISK_TIMEOUT] * 2

        others = Joined(store, 2)
        during_next(monkeypatch, "fdatasync", hang)
        assert store.put(a_message(9)).status is PutStatus.FLUSH_DISK_TIMEOUT
        assert store.flush_now()
        assert len(list(iter_records(store.setup.files))) == 4


def test_threads_write_force_and_dispatch() -> None:
    _, store = a_disk_and_store(mappedFileSizeCommitLog=1 << 20)
    arrived = threading.Event()
    store.add_listener(lambda queue, offset: arrived.set() if (queue, offset) == (("T", 0), 3) else None)
    with store:
        store.start()
        tickets = [store.put_async(a_message(number)) for number in range(3)]
        assert arrived.wait(PATIENCE)
        assert [store.wait(ticket) for ticket in tickets] == [PutStatus.PUT_OK] * 3


class TestPool:
    """The off-heap pool: put to memory, commit to the file, force what is committed."""

    settings: ClassVar[dict[str, bool]] = {"transientStorePoolEnable": True}

    @every_version
    def test_what_is_not_committed_cannot_be_read(self, version: Version) -> None:
        disk, store = a_disk_and_store(version, **self.settings)
        with store:
            put = store.put(a_message())
            assert put.is_ok
            assert store.commit_log.read(0, 100) == b""
            assert store.dispatch_now() == 0
            clock_of(store).advance(199)
            store.tick()
            assert store.condition().committed_offset == 0
            clock_of(store).advance(1)
            store.tick()
            assert store.condition().committed_offset == put.end_offset
            assert [one.raw_body for one in iter_records(store.setup.files)] == [b"body 0"]
            assert forced(disk) == 0

    @every_version
    def test_a_flush_commits_first(self, version: Version) -> None:
        disk, store = a_disk_and_store(version, **self.settings)
        with store:
            store.put_many([a_message(number) for number in range(60)])
            assert store.flush_now()
            assert len(bodies_after_power_cut(disk)) == 60

    def test_a_waiting_producer_of_5_x_gets_what_it_waits_for(self) -> None:
        disk, store = a_disk_and_store(V5_3, flushDiskType=SYNC, **self.settings)
        with store:
            assert store.put(a_message()).is_ok
            assert bodies_after_power_cut(disk) == [b"body 0"]

    def test_4_9_has_no_pool_where_producers_wait(self) -> None:
        _, store = a_disk_and_store(V4_9, flushDiskType=SYNC, **self.settings)
        with store:
            put = store.put(a_message(properties={"WAIT": "false"}))
            assert store.condition().committed_offset == put.end_offset

    def test_closing_loses_nothing(self) -> None:
        setup = small_setup(**self.settings)
        with MessageStore.create(setup) as store:
            store.put_many([a_message(number) for number in range(60)])
        assert len(list(iter_records(setup.files))) == 60
        with MessageStore.open(setup) as store:
            assert store.put(a_message()).queue_offset == 60


class TestPoison:
    """The first write or sync that fails: nothing after it is acknowledged, and the mark stays."""

    @every_version
    @pytest.mark.parametrize("sync", [FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH])
    def test_a_write_that_fails(self, version: Version, sync: FlushDiskType) -> None:
        disk, store = a_disk_and_store(version, flushDiskType=sync)
        assert store.put(a_message()).is_ok
        disk.fail(1)
        waiting = store.put_async(a_message(1))
        assert store.put(a_message(2)).status is PutStatus.UNKNOWN_ERROR
        assert store.wait(waiting) is PutStatus.UNKNOWN_ERROR
        assert store.put(a_message(3)).status is PutStatus.SERVICE_NOT_AVAILABLE
        # The message that was stored before can be read.
        assert store.dispatch_now() == 1
        found = store.reader.get("T", 0, 0, 32)
        assert found.count == 1
        assert (a_message().body or b"") in found.joined()
        calls = len(disk.calls)
        assert not store.flush_now()
        store.tick()
        store._upkeep.flush_queues()
        with pytest.raises(WriteFailed):
            store.close()
        assert len(disk.calls) == calls
        assert store.setup.files.exists("abort")
        assert isinstance(store.condition().failure, WriteFailed)

    @every_version
    def test_a_sync_that_fails_is_never_repeated(self, version: Version) -> None:
        disk, store = a_disk_and_store(version, flushDiskType=SYNC)
        assert store.put(a_message()).is_ok
        disk.fail(2)  # the write, then the sync
        assert store.put(a_message(1)).status is PutStatus.UNKNOWN_ERROR
        before = forced(disk)
        assert store.put(a_message(2)).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert not store.flush_now()
        with pytest.raises(WriteFailed):
            store.close()
        assert forced(disk) == before
        assert store.setup.files.exists("abort")

    def test_a_queue_that_cannot_be_written(self) -> None:
        disk, store = a_disk_and_store()
        store.put(a_message())
        store.dispatch_now()
        store.put(a_message(1))
        disk.fail(1)
        assert store.dispatch_now() == 0
        assert store.dispatch_now() == 0
        assert store.put(a_message(2)).status is PutStatus.SERVICE_NOT_AVAILABLE
        with pytest.raises(WriteFailed):
            store.close()
        assert store.setup.files.exists("abort")


def test_the_unknown_is_not_the_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody expects poisons the store too, and is not hidden."""
    _, store = a_disk_and_store()
    store.put(a_message())

    def burst() -> None:
        raise ZeroDivisionError

    during_next(monkeypatch, "pwrite", burst)
    with pytest.raises(ZeroDivisionError):
        store.put(a_message(1))
    assert store.put(a_message(2)).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()
    assert store.setup.files.exists("abort")
