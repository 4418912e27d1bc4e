"""A store under power cuts and failing calls: at every call of its life, whatever of it survives.

What was acknowledged with synchronous flush is there, what is there is whole and was put, and a store without the mark
``abort`` is complete: it opens and goes on. A call that fails ends the acknowledgements and leaves the mark.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import NewMessage, PutStatus
from rmqtool.engine.parts import Setup
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.errors import NoSpace, Refused, RmqtoolError, StoreError, WriteFailed
from rmqtool.files.filesystem import ReadableFileSystem
from rmqtool.formats import layouts
from rmqtool.formats.batches import BatchItem, encode_batch
from tests.support.engine_stores import a_message, clock_of, iter_records, read_bytes, small_setup, units
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Crash, FaultyDisk

_BATCH = encode_batch([BatchItem(0, b"batch %d" % number, b"KEYS\x01b") for number in range(3)])
_LIGHT_QUEUES = ("%LMQ%a", "%LMQ%b")
_LIGHT = ",".join(_LIGHT_QUEUES)
_VERSIONS = {Version.V4_9: 3, Version.V5_4: 5}


class Acknowledged(NamedTuple):
    """A message that the store promised to keep."""

    bodies: tuple[bytes, ...]
    physical_offset: int
    queue: tuple[str, int]
    queue_offset: int


class Life:
    """One store's life on a disk: made, written over several segments, closed, opened again, closed."""

    def __init__(self, disk: FaultyDisk, version: Version) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.statuses: list[PutStatus] = []
        self.submitted = {b"batch %d" % number for number in range(3)}
        self.setup = life_setup(disk, version)

    def run(self) -> None:
        """Live."""
        with MessageStore.create(self.setup) as store:
            self._work(store, 0)
        with MessageStore.open(self.setup) as store:
            self._work(store, 100)

    def _work(self, store: MessageStore, first: int) -> None:
        for number in range(first, first + 12):
            self._put(store, a_message(number, queue_id=number % 2, body=b"body %d " % number + b"x" * 500))
            if number % 4 == 1:
                store.dispatch_now()
            if number % 5 == 2:
                clock_of(store).advance(30_000)
                store.tick()
        self._note(store.put_batch(a_message(body=_BATCH, properties={})), _BATCH_BODIES)
        for number in range(first + 16, first + 19):
            self._put(store, a_message(number, topic="Light", properties={"INNER_MULTI_DISPATCH": _LIGHT}))
        tickets = {number: self._message(number) for number in range(first + 12, first + 16)}
        waiting = [(store.put_async(message), message) for message in tickets.values()]
        for ticket, message in reversed(waiting):
            store.wait(ticket)
            self._note(ticket, (message.body or b"",))
        store._upkeep.flush_queues()

    def _message(self, number: int) -> NewMessage:
        message = a_message(number, topic="Later", properties={"DELAY": "1", "KEYS": "later"})
        self.submitted.add(message.body or b"")
        return message

    def _put(self, store: MessageStore, message: NewMessage) -> None:
        self.submitted.add(message.body or b"")
        self._note(store.put(message), (message.body or b"",))

    def _note(self, ticket: PutTicket, bodies: tuple[bytes, ...]) -> None:
        assert ticket.status is not None
        self.statuses.append(ticket.status)
        if ticket.is_ok:
            kept = Acknowledged(bodies, ticket.physical_offset, ticket.queue, ticket.queue_offset)
            self.acknowledged.append(kept)


_BATCH_BODIES = tuple(b"batch %d" % number for number in range(3))


def life_setup(disk: FaultyDisk, version: Version) -> Setup:
    settings = {"flushDiskType": FlushDiskType.SYNC_FLUSH, "mappedFileSizeCommitLog": 2048}
    settings |= {"enableLmq": True, "enableMultiDispatch": True}
    return small_setup(version, FaultyFileSystem(disk, "store"), **settings)


def count_calls(version: Version) -> int:
    disk = FaultyDisk()
    Life(disk, version).run()
    return len(disk.calls)


def check(files: ReadableFileSystem, life: Life) -> None:
    """Judge what is on a disk."""
    records = {one.physical_offset: one for one in iter_records(files)}
    assert {one.raw_body for one in records.values()} <= life.submitted
    for kept in life.acknowledged:
        at = kept.physical_offset
        for number, body in enumerate(kept.bodies):
            record = records[at]
            assert record.raw_body == body
            assert (record.topic, record.queue_id) == kept.queue
            assert record.queue_offset == kept.queue_offset + number
            at += record.total_size
    times = {one.physical_offset: one.store_timestamp for one in records.values()}
    if files.exists("checkpoint"):
        fields = layouts.STORE_CHECKPOINT.decode(read_bytes(files, "checkpoint").ljust(4096, b"\0"))
        assert fields.physic_msg_timestamp <= max(times.values(), default=0)
        places = [
            unit.physical_offset for topic, queue_id in queues_of(files) for unit in units(files, topic, queue_id)
        ]
        assert fields.logics_msg_timestamp <= max((times.get(place, 0) for place in places), default=0)


def queues_of(files: ReadableFileSystem) -> Iterator[tuple[str, int]]:
    for topic in files.listdir("consumequeue") if files.exists("consumequeue") else ():
        for queue in files.listdir(f"consumequeue/{topic.name}"):
            yield topic.name, int(queue.name)


def check_opening(disk: FaultyDisk, life: Life, version: Version) -> None:
    """A store with the mark is refused; one without it is complete."""
    setup = life_setup(disk, version)
    if setup.files.exists("abort"):
        with pytest.raises(Refused):
            MessageStore.open(setup)
        return
    try:
        store = MessageStore.open(setup)
    except StoreError:
        # It was not made yet.
        assert not life.acknowledged
        return
    with store:
        expected: dict[tuple[str, int], int] = {}
        for one in iter_records(setup.files):
            expected[one.topic, one.queue_id] = one.queue_offset + 1
            if one.topic == "Light":
                for name, offset in zip(
                    _LIGHT_QUEUES, one.properties["INNER_MULTI_QUEUE_OFFSET"].split(","), strict=True
                ):
                    expected[name, 0] = int(offset) + 1
        assert {queue.key: queue.max_offset for queue in store.queues() if queue.max_offset} == expected
        for (topic, queue_id), queue_offset in expected.items():
            if topic == "T":
                assert store.put(a_message(topic=topic, queue_id=queue_id)).queue_offset == queue_offset


def assert_survives(version: Version, call: int, outcomes: int) -> None:
    disk = FaultyDisk()
    life = Life(disk, version)
    disk.crash_at(call)
    with pytest.raises(Crash):
        life.run()
    for outcome in disk.iter_outcomes(outcomes, seed=call):
        check(FaultyFileSystem(outcome, "store"), life)
        check_opening(outcome, life, version)


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_power_cut_at_some_calls(version: Version) -> None:
    for call in range(1, count_calls(version) + 1, 11):
        assert_survives(version, call, 5)


@pytest.mark.slow
@pytest.mark.parametrize("version", list(Version))
def test_a_power_cut_at_every_call(version: Version) -> None:
    for call in range(1, count_calls(version) + 1):
        assert_survives(version, call, 40)


def assert_fails_safely(version: Version, call: int, number: int) -> None:
    disk = FaultyDisk()
    life = Life(disk, version)
    disk.fail(call, number)
    try:
        life.run()
    except WriteFailed:
        failed = True
    else:
        failed = False
    check(FaultyFileSystem(disk, "store"), life)
    # What was acknowledged does not hang on anything that is not forced.
    check(FaultyFileSystem(disk.after_crash(lambda _count: 1), "store"), life)
    if number not in (errno.ENOSPC, errno.EDQUOT):
        # One error, and nothing is acknowledged any more.
        statuses = [status is PutStatus.PUT_OK for status in life.statuses]
        assert statuses == sorted(statuses, reverse=True)
        assert failed
    if not failed:
        assert disk.calls
        check_opening(disk, life, version)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("version", _VERSIONS)
def test_some_calls_fail(version: Version, number: int) -> None:
    for call in range(1, count_calls(version) + 1, 5):
        assert_fails_safely(version, call, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE])
@pytest.mark.parametrize("version", list(Version))
def test_every_call_fails(version: Version, number: int) -> None:
    for call in range(1, count_calls(version) + 1):
        assert_fails_safely(version, call, number)


def test_what_fails_is_said() -> None:
    disk = FaultyDisk()
    disk.fail(1, errno.ENOSPC)
    with pytest.raises(RmqtoolError) as caught:
        Life(disk, Version.V5_3).run()
    assert isinstance(caught.value, NoSpace)


def hunt() -> None:
    """Look at some calls; raise at the first that breaks a promise."""
    for call in range(1, count_calls(Version.V5_4) + 1, 7):
        assert_survives(Version.V5_4, call, 6)
        assert_fails_safely(Version.V5_4, call, errno.EIO)


def _without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledge before the sync."""
    monkeypatch.setattr("rmqtool.engine.flush.Flusher.wait_flushed", lambda *_arguments: PutStatus.PUT_OK)


def _without_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget that a name must be made durable, too."""
    monkeypatch.setattr(FaultyFileSystem, "fsync_dir", lambda *_arguments: None)


def _with_swallowed_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on after a sync that failed."""
    monkeypatch.setattr("rmqtool.engine.health.Health.poison", lambda *_arguments: None)


def _with_a_hasty_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the checkpoint before the queues are forced."""
    monkeypatch.setattr("rmqtool.engine.consume_queue.DerivedFiles.flush", lambda *_arguments: None)


def _with_a_hasty_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the mark away before everything is forced."""
    monkeypatch.setattr("rmqtool.engine.index_file.IndexService.write_pending", lambda *_arguments: None)
    monkeypatch.setattr("rmqtool.engine.consume_queue.ConsumeQueue.write_pending", lambda *_arguments: None)


@pytest.mark.parametrize(
    "breakage",
    [_without_sync, _without_directory_sync, _with_swallowed_errors, _with_a_hasty_checkpoint, _with_a_hasty_end],
)
def test_engines_broken_on_purpose_are_caught(breakage: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    hunt()
    breakage(monkeypatch)
    with pytest.raises((AssertionError, KeyError, Refused, StoreError)):
        hunt()
