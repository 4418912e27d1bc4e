"""What may go wrong around a store, beside what the disk itself does: files that cannot be written, foreign owners."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import PutStatus
from rmqtool.engine.store import MessageStore
from rmqtool.errors import WriteFailed
from rmqtool.files.filesystem import Attributes, Kind, iter_tree
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.engine_stores import a_message, clock_of, iter_records, small_setup, small_store
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk

every_version = pytest.mark.parametrize("version", list(Version))
OWNER, GROUP = 4711, 815
NOBODY = 65534


def stopped_store(version: Version) -> FaultyDisk:
    disk = FaultyDisk()
    with small_store(version, FaultyFileSystem(disk)) as store:
        store.put(a_message())
    return disk


@every_version
@pytest.mark.parametrize("call", range(1, 4))
def test_a_store_that_cannot_be_written_takes_nothing(version: Version, call: int) -> None:
    """Neither a read-only disk nor one that gets so while a store begins leaves anything behind that holds it."""
    disk = stopped_store(version)
    setup = small_setup(version, FaultyFileSystem(disk))
    for later in range(call, call + 20):
        disk.fail(later, errno.EROFS)
    with pytest.raises(WriteFailed), MessageStore.open(setup) as store:
        store.put(a_message())
    assert [one.raw_body for one in iter_records(setup.files)] == [b"body 0"]
    assert not disk.locked


@every_version
def test_every_new_file_belongs_to_the_owner_of_its_neighbours(version: Version) -> None:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    for directory in ("commitlog", "consumequeue", "index"):
        files.mkdir(directory)
        files.set_attributes(directory, Attributes(0o750, OWNER, GROUP))
    files.set_attributes("", Attributes(0o750, OWNER, GROUP))
    with small_store(version, files) as store:
        assert all(ticket.is_ok for ticket in store.put_many(a_message(n, queue_id=n % 3) for n in range(90)))
        clock_of(store).advance(60_000)
        store.tick()
    found = {path: files.stat(path) for path, _ in iter_tree(files, "")}
    assert len(found) > 15
    assert {(one.owner, one.group) for one in found.values()} == {(OWNER, GROUP)}
    kinds = {stat.S_IMODE(one.mode) for one in found.values() if one.kind is Kind.FILE}
    assert kinds == {0o640}


@contextmanager
def as_another_user() -> Iterator[None]:
    """Root may write every file, so root becomes somebody else for a while."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


def test_the_store_of_another_user_is_refused_and_unchanged() -> None:
    with TemporaryDirectory() as directory:  # not below pytest's own, which only its owner may enter
        root = Path(directory)
        setup = small_setup(files=PosixWritableFileSystem(directory))
        with MessageStore.create(setup) as store:
            store.put(a_message())
        for path in (root, *root.rglob("*")):
            path.chmod(0o444 if path.is_file() else 0o555)
        before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
        with as_another_user(), pytest.raises(WriteFailed):
            MessageStore.open(setup)
        assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
        for path in (root, *root.rglob("*")):
            path.chmod(0o755)


@every_version
def test_a_clock_that_goes_back_changes_no_order(version: Version) -> None:
    """Neither times in the log, nor names of index files, nor what the checkpoint says go back with it."""
    with small_store(version, flushDiskType=FlushDiskType.SYNC_FLUSH) as store:
        clock = clock_of(store)
        for number in range(40):
            clock.wall -= 3_600_000
            assert store.put(a_message(number)).is_ok
            clock.advance(400)
            store.tick()
        files = store.setup.files
    times = [one.store_timestamp for one in iter_records(files)]
    assert times == sorted(times)
    names = [entry.name for entry in files.listdir("index")]
    assert len(names) > 1
    with MessageStore.open(small_setup(version, files)) as store:
        ticket = store.put(a_message())
        assert (ticket.status, ticket.queue_offset) == (PutStatus.PUT_OK, 40)
        assert ticket.store_timestamp >= times[-1]
