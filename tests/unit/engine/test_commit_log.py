"""C3.1 to C3.8, and the segments of the log: which are loaded, which are made, what is read of them."""

from __future__ import annotations

import errno
from itertools import accumulate
from pathlib import Path

import pytest

from rmqtool.config import Version
from rmqtool.engine.commit_log import CommitLog, LogDirectory, Tail
from rmqtool.engine.message import PutStatus
from rmqtool.engine.store import MessageStore
from rmqtool.errors import NoSpace, Refused, StoreError, WriteFailed
from rmqtool.files.filesystem import Space, WritableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.commit_log import BLANK_SIZE, Message, decode_record
from rmqtool.store.segments import Segment
from tests.support.engine_stores import SEGMENT, a_message, clock_of, iter_records, read_bytes, small_setup, small_store
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk

V4_9, V5_3, V5_4 = Version
every_version = pytest.mark.parametrize("version", list(Version))
FIRST = f"commitlog/{0:020d}"


def log_names(files: WritableFileSystem, directory: str = "commitlog") -> list[int]:
    return [int(entry.name) for entry in files.listdir(directory)]


def a_store_with_segments(version: Version = V5_3) -> WritableFileSystem:
    with small_store(version) as store:
        store.put_many([a_message(number) for number in range(60)])
        assert len(log_names(store.setup.files)) > 1
    return store.setup.files


@every_version
def test_a_segment_of_another_size_stops_the_start(version: Version) -> None:
    """C3.1."""
    files = a_store_with_segments(version)
    with files.open_write(FIRST) as file:
        file.truncate(SEGMENT // 2)
    with pytest.raises(Refused, match="2048 bytes, the others have 4096"):
        MessageStore.open(small_setup(version, files))
    assert files.stat(FIRST).size == SEGMENT // 2


@every_version
def test_an_empty_last_segment(version: Version) -> None:
    """C3.2."""
    files = a_store_with_segments(version)
    last = f"commitlog/{log_names(files)[-1] + SEGMENT:020d}"
    files.create(last).close()
    if version is V4_9:
        with pytest.raises(Refused, match="has 0 bytes"):
            MessageStore.open(small_setup(version, files))
    else:
        with MessageStore.open(small_setup(version, files)) as store:
            assert files.exists(last)
            assert store.put(a_message()).queue_offset == 60
            assert not files.exists(last)


@every_version
def test_a_directory_among_the_segments(version: Version) -> None:
    """C3.3."""
    files = a_store_with_segments(version)
    files.mkdir("commitlog/backup")
    if version is V4_9:
        with pytest.raises(StoreError, match="there is a directory among the segments"):
            MessageStore.open(small_setup(version, files))
    else:
        with MessageStore.open(small_setup(version, files)) as store:
            assert store.put(a_message()).queue_offset == 60


def test_offset_0_of_a_log_whose_beginning_is_gone_is_its_first_segment() -> None:
    """C3.4."""
    files = a_store_with_segments()
    files.unlink(FIRST)
    with MessageStore.open(small_setup(files=files)) as store:
        log = store.commit_log
        assert log.min_offset == SEGMENT
        assert log.read(0, 100) == log.read(SEGMENT, 100) == read_bytes(files, f"commitlog/{SEGMENT:020d}")[:100]
        assert log.read(1, 100) == b""


@every_version
def test_nothing_is_read_behind_what_is_committed(version: Version) -> None:
    """C3.5."""
    with small_store(version) as store:
        put = store.put(a_message())
        assert store.commit_log.read(put.end_offset, 10) == b""
        assert store.commit_log.read(put.end_offset + 5, 10) == b""
        whole = store.commit_log.read(0, 10_000)
        assert len(whole) == put.size
        assert isinstance(decode_record(whole), Message)


def test_a_log_may_begin_anywhere() -> None:
    """C3.6."""
    files = FaultyFileSystem(FaultyDisk())
    log = CommitLog([LogDirectory(files, "commitlog")], SEGMENT, tail=Tail(3 * SEGMENT + 10, 0))
    assert log.place(6) == 3 * SEGMENT + 10
    log.append(b"copied", 1)
    log.commit()
    assert log_names(files) == [3 * SEGMENT]
    assert read_bytes(files, f"commitlog/{3 * SEGMENT:020d}")[:20] == bytes(10) + b"copied" + bytes(4)


def test_records_go_into_one_segment_until_no_blank_fits_after_them() -> None:
    files = FaultyFileSystem(FaultyDisk())
    log = CommitLog([LogDirectory(files, "commitlog")], SEGMENT)
    sizes = [100, SEGMENT - 100 - BLANK_SIZE, 50, SEGMENT - BLANK_SIZE, 1]
    ends = list(accumulate(sizes))
    at, placed = 0, []
    while at < len(sizes):
        until = log.place_many(ends, at)
        placed.append((at, until, log.wrote_offset))
        log.append(bytes(sum(sizes[at:until])), 1)
        at = until
    assert placed == [(0, 2, 0), (2, 3, SEGMENT), (3, 4, 2 * SEGMENT), (4, 5, 3 * SEGMENT)]


def test_without_room_for_the_next_segment_nothing_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFileSystem(FaultyDisk())
    log = CommitLog([LogDirectory(files, "commitlog")], SEGMENT)
    log.place(100)
    log.append(bytes(100), 1)
    log.commit()
    before = log.wrote_offset, log_names(files), read_bytes(files, FIRST)

    def full(*_arguments: object) -> None:
        raise NoSpace("no room")

    with monkeypatch.context() as patched:
        patched.setattr(FaultyFileSystem, "create", full)
        with pytest.raises(NoSpace):
            log.place(SEGMENT - 100)
    assert (log.wrote_offset, log_names(files), read_bytes(files, FIRST)) == before
    assert log.place(SEGMENT - 100) == SEGMENT


def test_after_a_kill_the_segment_made_ahead_is_still_there() -> None:
    """C3.7, up to the restart, which is recovery's."""
    disk = FaultyDisk()
    with small_store(files=FaultyFileSystem(disk)) as store:
        store.put(a_message())
        store.tick()
        killed = FaultyFileSystem(disk.after_crash(lambda _count: 0))
        assert log_names(killed) == [0, SEGMENT]
        assert read_bytes(killed, f"commitlog/{SEGMENT:020d}") == bytes(SEGMENT)


@every_version
def test_segments_are_dealt_out_to_several_directories(version: Version) -> None:
    """C3.8."""
    files = FaultyFileSystem(FaultyDisk())
    setup = small_setup(version, files, storePathRootDir="/s", storePathCommitLog="/s/b,/s/c,/s/a")
    with MessageStore.create(setup) as store:
        store.put_many([a_message(body=b"x" * 3000) for _ in range(6)])
    for number in range(6):
        assert files.exists(f"{'abc'[number % 3]}/{number * SEGMENT:020d}")
    with MessageStore.open(setup) as store:
        assert store.put(a_message(body=b"x" * 3000)).queue_offset == 6
    assert files.exists(f"a/{6 * SEGMENT:020d}")


def test_directories_elsewhere_are_real_ones(tmp_path: Path) -> None:
    for name in ("root", "first", "second"):
        (tmp_path / name).mkdir()
    setup = small_setup(
        files=PosixWritableFileSystem(str(tmp_path / "root")),
        storePathRootDir=str(tmp_path / "root"),
        storePathCommitLog=f"{tmp_path}/second,{tmp_path}/first",
    )
    with MessageStore.create(setup) as store:
        store.put_many([a_message(body=b"x" * 3000) for _ in range(3)])
    with MessageStore.open(setup) as store:
        assert store.put(a_message(body=b"x" * 3000)).queue_offset == 3
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == [f"{0:020d}", f"{2 * SEGMENT:020d}"]
    assert sorted(path.name for path in (tmp_path / "second").iterdir()) == [f"{SEGMENT:020d}", f"{3 * SEGMENT:020d}"]
    (tmp_path / "first").rename(tmp_path / "unmounted")
    with pytest.raises(StoreError, match="is missing"):
        MessageStore.open(setup)


def test_a_segment_behind_the_end_stops_the_start() -> None:
    files = a_store_with_segments()
    files.create(f"commitlog/{log_names(files)[-1] + SEGMENT:020d}", SEGMENT).close()
    with pytest.raises(Refused, match="there is a segment after that"):
        MessageStore.open(small_setup(files=files))


def test_a_segment_ended_by_its_blank_is_not_written_again() -> None:
    """A crash between the blank and the first record behind it leaves that; so does removing the last segment."""
    files = a_store_with_segments()
    last = log_names(files)[-1]
    kept = [one for one in iter_records(files) if one.physical_offset < last]
    files.unlink(f"commitlog/{last:020d}")
    for entry in files.listdir("consumequeue/T/0"):
        files.unlink(f"consumequeue/T/0/{entry.name}")
    for entry in files.listdir("index"):
        files.unlink(f"index/{entry.name}")
    with MessageStore.open(small_setup(files=files)) as store:
        put = store.put(a_message())
        assert put.physical_offset == last
        assert put.queue_offset == len(kept)


@every_version
def test_without_room_for_a_segment_the_message_is_refused_and_nothing_changes(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_store(version) as store:
        store.put(a_message())
        before = read_bytes(store.setup.files, FIRST)

        def full(*_arguments: object) -> None:
            raise NoSpace("no space")

        with monkeypatch.context() as patched:
            patched.setattr(FaultyFileSystem, "create", full)
            assert store.put(a_message(body=b"x" * 3900)).status is PutStatus.CREATE_MAPPED_FILE_FAILED
            assert read_bytes(store.setup.files, FIRST) == before
            assert store.put(a_message(1)).queue_offset == 1
            store.tick()
        assert store.put(a_message(body=b"x" * 3900)).queue_offset == 2
        assert store.condition().failure is None
        assert log_names(store.setup.files) == [0, SEGMENT]


def test_messages_that_a_full_disk_took_from_the_log_with_the_blank_are_not_acknowledged() -> None:
    """They waited for the same write. The next message must not get their places either."""
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    store = small_store(files=files)
    assert store.put(a_message()).is_ok
    waiting = [store.put_async(a_message(1)), store.put_async(a_message(2, body=b"x" * 3800))]
    store.commit_log.prepare_next()
    disk.fail(1, errno.ENOSPC)
    store.write_now()
    assert [ticket.status for ticket in waiting] == [PutStatus.UNKNOWN_ERROR] * 2
    assert store.put(a_message(3)).status is PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(NoSpace):
        store.close()
    assert [(one.queue_offset, one.raw_body) for one in iter_records(files)] == [(0, b"body 0")]
    # All of them were refused, so the store is closed like any other.
    with MessageStore.open(small_setup(files=files)) as again:
        assert again.put(a_message(4)).queue_offset == 1


def test_a_full_disk_at_the_blank_refuses_one_message() -> None:
    disk = FaultyDisk()
    with small_store(files=FaultyFileSystem(disk)) as store:
        assert store.put(a_message()).is_ok
        store.commit_log.prepare_next()
        disk.fail(1, errno.ENOSPC)
        assert store.put(a_message(1, body=b"x" * 3900)).status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert store.put(a_message(2)).queue_offset == 1


def test_a_sync_that_found_the_disk_full_is_not_repeated_at_the_close() -> None:
    """Also if another write was taken back before: after a failed sync the next one proves nothing."""
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    store = small_store(files=files)
    assert store.put(a_message()).is_ok
    store.commit_log.prepare_next()
    disk.fail(1, errno.ENOSPC)
    assert store.put(a_message(1, body=b"x" * 3900)).status is PutStatus.CREATE_MAPPED_FILE_FAILED
    disk.fail(1, errno.ENOSPC)
    assert not store.flush_now()
    with pytest.raises(NoSpace):
        store.close()
    assert files.exists("abort")


def test_a_full_disk_after_which_something_else_failed_leaves_the_mark() -> None:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk)
    store = small_store(files=files)
    assert store.put(a_message()).is_ok
    disk.fail(1, errno.ENOSPC)
    assert store.put(a_message(1)).status is PutStatus.UNKNOWN_ERROR
    store._health.poison(WriteFailed("the sync of another thread failed"))
    with pytest.raises(NoSpace):
        store.close()
    assert files.exists("abort")


@pytest.mark.parametrize(
    ("version", "used", "flags"),
    [
        (V4_9, (90, 91, 90), (False, True, False)),
        (V5_3, (90, 91, 90, 86, 85), (False, True, True, True, False)),
    ],
)
def test_a_full_disk_stops_puts(
    version: Version, used: tuple[int, ...], flags: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the warning level; 4.9 takes messages again below it, 5.x below the level of forced deletion."""
    with small_store(version) as store:
        for percent, is_full in zip(used, flags, strict=True):
            space = Space(total=1000, free=1000 - percent * 10, available=1000 - percent * 10)
            monkeypatch.setattr(FaultyFileSystem, "space", lambda _self, space=space: space)
            clock_of(store).advance(10_000)
            store.tick()
            status = store.put(a_message()).status
            assert status is (PutStatus.SERVICE_NOT_AVAILABLE if is_full else PutStatus.PUT_OK), percent


def test_what_only_root_may_use_counts_neither_way() -> None:
    assert Space(total=1000, free=500, available=450).used_percent == 53
    assert Space(total=1000, free=0, available=0).used_percent == 100
    assert Space(total=0, free=0, available=0).used_percent == 0


def test_a_full_directory_gets_no_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFileSystem(FaultyDisk())
    setup = small_setup(files=files, storePathRootDir="/s", storePathCommitLog="/s/a,/s/b")
    with MessageStore.create(setup) as store:
        log = store.commit_log
        log.full_directories = lambda: frozenset({log.directories[0]})
        store.put_many([a_message(body=b"x" * 3000) for _ in range(2)])
    assert log_names(files, "b") == [0, SEGMENT]


def test_reading_goes_on_over_added_segments() -> None:
    from rmqtool.store.segments import SegmentQueue

    files = a_store_with_segments()
    queue = SegmentQueue([Segment(0, SEGMENT, FIRST, files)], SEGMENT)
    assert queue.read(SEGMENT, 4) == b""
    queue.add(Segment(SEGMENT, SEGMENT, f"commitlog/{SEGMENT:020d}", files))
    assert queue.read(SEGMENT, 4) == read_bytes(files, f"commitlog/{SEGMENT:020d}")[:4]
    assert (queue.min_offset, queue.end_offset) == (0, 2 * SEGMENT)
