"""Recovery under power cuts and failing calls, of its own and of the store before: nothing acknowledged is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.errors import RmqtoolError
from rmqtool.files.filesystem import iter_tree
from tests.crash.test_engine_crash import Acknowledged, Life, count_calls
from tests.support.engine_stores import a_message, iter_records, small_setup, units
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Crash, FaultyDisk

SETTINGS = {"flushDiskType": FlushDiskType.SYNC_FLUSH, "mappedFileSizeCommitLog": 2048}


def setup_on(disk: FaultyDisk, version: Version = Version.V5_3) -> Setup:
    return small_setup(version, FaultyFileSystem(disk, "store"), **SETTINGS)


def damaged_disk() -> FaultyDisk:
    """Return a disk with a store that was not closed: a queue is gone, another lags, the index too, the end is torn."""
    disk = FaultyDisk()
    setup = setup_on(disk)
    with MessageStore.create(setup) as store:
        for number in range(30):
            assert store.put(a_message(number, queue_id=number % 2)).is_ok
    files = setup.files
    records = list(iter_records(files))
    for path, offset, data in (
        (f"commitlog/{records[-1].physical_offset // 2048 * 2048:020d}", records[-1].physical_offset % 2048 + 90, b"?"),
        ("commitlog/00000000000000000000", records[3].physical_offset + 90, b"?"),
        ("consumequeue/T/1/00000000000000000200", 0, bytes(200)),
    ):
        with files.open_write(path) as file:
            file.pwrite(data, offset)
            file.fsync()
    for path, kind in list(iter_tree(files)):
        if path.startswith(("consumequeue/T/0/", "index/")) and kind.value == "file":
            files.unlink(path)
    files.fsync_dir("consumequeue/T/0")
    files.fsync_dir("index")
    files.create("abort").close()
    files.fsync_dir()
    disk.calls.clear()
    return disk


def check_whole(disk: FaultyDisk) -> None:
    """Recover, and judge: 28 of 30 messages are whole, and stand where they say."""
    setup = setup_on(disk)
    report = recover(setup)
    assert report.messages == 28
    assert not setup.files.exists("abort")
    by_place = {record.physical_offset: record for record in iter_records(setup.files)}
    assert len(by_place) == 28
    found = 0
    for queue_id, count in ((0, 15), (1, 14)):
        placed = units(setup.files, "T", queue_id)
        assert len(placed) == count
        for queue_offset, unit in enumerate(placed):
            record = by_place.get(unit.physical_offset)
            if record is not None:
                assert (record.queue_id, record.queue_offset) == (queue_id, queue_offset)
                found += 1
    assert found == 28
    assert recover(setup).changes == {}
    with MessageStore.open(setup) as store:
        assert store.put(a_message(30, queue_id=1)).queue_offset == 14


def calls_of_recovery() -> int:
    disk = damaged_disk()
    recover(setup_on(disk))
    return len(disk.calls)


CALLS = calls_of_recovery()


@pytest.mark.parametrize("call", range(1, CALLS + 1, 3))
def test_a_recovery_that_loses_power_is_done_again(call):
    disk = damaged_disk()
    disk.crash_at(call)
    with pytest.raises(Crash):
        recover(setup_on(disk))
    for outcome in disk.iter_outcomes(4, seed=call):
        check_whole(outcome)


@pytest.mark.parametrize("call", range(2, CALLS + 1, 3))
def test_a_recovery_whose_call_fails_is_done_again(call):
    disk = damaged_disk()
    disk.fail(call, errno.EIO)
    with pytest.raises(RmqtoolError):
        recover(setup_on(disk))
    check_whole(disk)


def lives(version: Version, every: int) -> list[int]:
    return list(range(every // 2 + 1, count_calls(version) + 1, every))


def check_life(crash: Callable[[FaultyDisk], None], version: Version, seed: int) -> None:
    disk = FaultyDisk()
    crash(disk)
    life = Life(disk, version)
    with pytest.raises(Crash):
        life.run()
    for outcome in disk.iter_outcomes(3, seed=seed):
        setup = setup_on(outcome, version)
        try:
            recover(setup)
        except RmqtoolError:
            assert life.acknowledged == []
            continue
        with MessageStore.open(setup) as store:
            for kept in life.acknowledged:
                assert served(store, kept) == kept.bodies
            assert store.put(a_message(999)).is_ok


def served(store: MessageStore, kept: Acknowledged) -> tuple[bytes, ...]:
    """Return the bodies that stand where a message was acknowledged, by its queue."""
    topic, queue_id = kept.queue
    got = store.reader.get(topic, queue_id, kept.queue_offset, len(kept.bodies))
    assert got.messages[0].physical_offset == kept.physical_offset
    found = [store.reader.message_at(one.physical_offset) for one in got.messages]
    return tuple(message.raw_body for message in found if message is not None)


@pytest.mark.parametrize("call", lives(Version.V5_4, 17))
def test_what_was_acknowledged_before_a_power_cut_is_served_after_the_recovery(call):
    check_life(lambda disk: disk.crash_at(call), Version.V5_4, call)


@pytest.mark.slow
@pytest.mark.parametrize("version", [Version.V4_9, Version.V5_4])
def test_what_was_acknowledged_before_any_power_cut_is_served(version):
    for call in lives(version, 1):
        check_life(lambda disk, call=call: disk.crash_at(call), version, call)
