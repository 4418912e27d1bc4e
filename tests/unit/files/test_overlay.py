"""The overlay: nothing beneath is touched, little memory is used, and what vanishes beneath is an error."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.errors import FileMissing, ReadFailed, StoreInUse, WriteFailed
from rmqtool.files.filesystem import Attributes, Extent, Kind
from rmqtool.files.overlay import PAGE, Action, Change, OverlayFileSystem
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[OverlayFileSystem]:
    (tmp_path / "store").mkdir()
    with PosixReadableFileSystem(str(tmp_path / "store")) as below, OverlayFileSystem(below) as files:
        yield files


@pytest.fixture
def store(tmp_path: Path, overlay: OverlayFileSystem) -> Path:
    return tmp_path / "store"


def test_a_segment_with_a_few_changed_bytes_costs_little(store: Path, overlay: OverlayFileSystem) -> None:
    with (store / "0").open("wb") as segment:
        segment.truncate(GIB)
    with overlay.create("1", GIB):  # what `open_write` needs once is not counted
        pass
    tracemalloc.start()
    with overlay.open_write("0") as file:
        for file_offset in range(0, GIB, 64 * MIB):
            file.pwrite(b"changed", file_offset + 10)
    with overlay.create("2", GIB) as file:
        file.pwrite(b"end", GIB - 3)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 17 * PAGE + 100_000
    with overlay.open_read("0") as file:
        assert file.pread(30, 64 * MIB) == bytes(10) + b"changed" + bytes(13)
        assert [extent.file_offset for extent in file.iter_data()] == list(range(0, GIB, 64 * MIB))
    assert overlay.changes() == [
        Change("0", Action.MODIFY, GIB, GIB),
        Change("1", Action.CREATE, None, GIB),
        Change("2", Action.CREATE, None, GIB),
    ]
    assert (store / "0").stat().st_blocks == 0


def test_what_exceeds_the_limit_lies_in_a_file_without_a_name(store: Path, overlay: OverlayFileSystem) -> None:
    with (
        PosixReadableFileSystem(str(store)) as below,
        OverlayFileSystem(below, memory_limit=16 * PAGE) as files,
        files.create("queue") as file,
    ):
        tracemalloc.start()
        for index in range(1000):
            file.pwrite(index.to_bytes(8, "big") * 512, index * PAGE)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 500_000, "4 MB were written"
        for index in (0, 15, 16, 17, 999):
            assert file.pread(PAGE, index * PAGE) == index.to_bytes(8, "big") * 512
        file.truncate(500 * PAGE + 8)
        file.truncate(502 * PAGE)
        assert file.pread(PAGE, 500 * PAGE) == (500).to_bytes(8, "big") + bytes(PAGE - 8), "no old bytes come back"
        file.pwrite(b"x", 600 * PAGE)
        assert file.pread(2 * PAGE, 599 * PAGE) == bytes(PAGE) + b"x", "a page used before shows nothing of that"


def test_pages_that_were_cut_off_are_used_again(overlay: OverlayFileSystem) -> None:
    tracemalloc.start()
    with overlay.create("queue") as file:
        for _ in range(50):
            file.pwrite(b"x" * (20 * PAGE), 0)
            file.truncate(0)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 40 * PAGE


def test_a_write_that_changes_nothing_is_no_change(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "checkpoint").write_bytes(b"x" * 5000)
    with overlay.open_write("checkpoint") as file:
        file.pwrite(b"xxx", 4090)
        assert overlay.changes() == []
        file.pwrite(b"y", 4096)
    assert overlay.changes() == [Change("checkpoint", Action.MODIFY, 5000, 5000)]
    assert list(overlay.iter_changed("checkpoint")) == [Extent(4096, 904)]


def test_cut_and_grown_again_shows_zeros_and_is_a_change(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "0").write_bytes(b"x" * 20_000)
    with overlay.open_write("0") as file:
        file.truncate(5000)
        file.truncate(20_000)
        assert file.pread(20_000, 0) == b"x" * 5000 + bytes(15_000)
    assert overlay.changes() == [Change("0", Action.MODIFY, 20_000, 20_000)]
    assert list(overlay.iter_changed("0")) == [Extent(4096, 20_000 - 4096)]


def test_deleted_and_made_anew_with_the_same_bytes_is_no_change(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "lock").write_bytes(b"lock")
    overlay.unlink("lock")
    assert overlay.changes() == [Change("lock", Action.DELETE, 4, None)]
    with overlay.create("lock") as file:
        file.pwrite(b"lock", 0)
    assert overlay.changes() == []


def test_a_renamed_file_keeps_what_shows_through(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "topics.json").write_bytes(b"{}")
    (store / "topics.json.tmp").write_bytes(b'{"a":1}')
    overlay.rename("topics.json.tmp", "topics.json")
    with overlay.open_read("topics.json") as file:
        assert file.pread(100, 0) == b'{"a":1}'
    assert overlay.changes() == [
        Change("topics.json", Action.RESIZE, 2, 7),
        Change("topics.json.tmp", Action.DELETE, 7, None),
    ]


def test_an_untouched_file_is_known_by_its_own_identity(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "lock").write_bytes(b"lock")
    with PosixReadableFileSystem(str(store)) as below:
        identity = below.stat("lock")
        with overlay.open_write("lock"):
            assert overlay.stat("lock") == identity
        with overlay.open_write("lock") as file:
            file.pwrite(b"L", 0)
        assert overlay.stat("lock") != identity


def test_readers_and_writers_of_one_file_share_its_bytes(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "0").write_bytes(b"before")
    with overlay.open_read("0") as reader, overlay.open_write("0") as writer:
        writer.pwrite(b"AFTER", 1)
        assert reader.pread(10, 0) == b"bAFTER"
        overlay.unlink("0")
        assert reader.pread(10, 0) == b"bAFTER", "an open file outlives its name"


def test_a_file_that_vanishes_beneath_is_an_error_and_no_empty_file(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "0").write_bytes(b"x" * 10_000)
    with overlay.open_write("0") as file:
        file.truncate(9000)
    (store / "0").unlink()
    with overlay.open_read("0") as file, pytest.raises(FileMissing):
        file.pread(10, 0)


def test_a_file_that_is_cut_beneath_is_an_error(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "0").write_bytes(b"x" * 10_000)
    with overlay.open_write("0") as opened_before:
        opened_before.pread(1, 0)
        os.truncate(store / "0", 100)
        with pytest.raises(ReadFailed, match="was cut while it was read"):
            opened_before.pread(10, 5000)
        with pytest.raises(ReadFailed, match="was cut while it was read"):
            opened_before.pwrite(b"x", 5000)
    for attempt in (lambda file: file.pread(10, 5000), lambda file: list(file.iter_data())):
        with overlay.open_read("0") as opened_after, pytest.raises(ReadFailed, match="was cut while it was read"):
            attempt(opened_after)


def test_a_file_that_is_replaced_beneath_is_an_error(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "0").write_bytes(b"old")
    with overlay.open_read("0") as file:
        (store / "new").write_bytes(b"new")
        os.rename(store / "new", store / "0")
        with pytest.raises(ReadFailed, match="was replaced by another file"):
            file.pread(3, 0)


def test_bad_sectors_beneath_stay_bad(store: Path) -> None:
    disk = FaultyDisk()
    below = FaultyFileSystem(disk)
    with below.create("0", 20_000):
        disk.bad_spans["0"] = (4096, 8192)
    files = OverlayFileSystem(below)
    with files.open_write("0") as file:
        file.pwrite(b"x" * 4096, 4096)
        assert file.pread(20_000, 0)[4096:8192] == b"x" * 4096, "a whole page needs nothing from beneath"
    with files.open_write("0") as file:
        file.truncate(4096)
        file.truncate(8192)
        assert file.pread(8192, 0) == bytes(8192)
    other = OverlayFileSystem(below)
    with other.open_write("0") as file, pytest.raises(ReadFailed, match="Input/output error"):
        file.pwrite(b"x", 5000)


def test_the_whole_is_written_out_sparse_with_modes_and_times(
    store: Path, overlay: OverlayFileSystem, tmp_path: Path
) -> None:
    (store / "config").mkdir(mode=0o700)
    (store / "config" / "topics.json").write_bytes(b"{}")
    os.utime(store / "config" / "topics.json", ns=(1, 1_000_000_007))
    os.chmod(store / "config" / "topics.json", 0o640)
    (store / "away").symlink_to("/etc")
    os.mkfifo(store / "pipe")
    (store / "gone").write_bytes(b"x")
    overlay.unlink("gone")
    with overlay.create("index", 420_000_040) as file:
        file.pwrite(b"head", 0)
        file.pwrite(b"tail", 420_000_036)
    target = tmp_path / "target"
    target.mkdir()
    with PosixWritableFileSystem(str(target)) as files:
        assert overlay.write_to(files) == ["away", "pipe"]
    assert sorted(os.listdir(target)) == ["config", "index"]
    index = (target / "index").stat()
    assert index.st_size == 420_000_040
    assert index.st_blocks * 512 < MIB
    written = (target / "config" / "topics.json").stat()
    assert (written.st_mtime_ns, written.st_mode & 0o777) == (1_000_000_007, 0o640)
    assert (target / "config").stat().st_mode & 0o777 == 0o700
    assert (target / "config").stat().st_mtime_ns == (store / "config").stat().st_mtime_ns
    with (target / "index").open("rb") as written_index:
        assert written_index.read(4) == b"head"
        written_index.seek(-4, 2)
        assert written_index.read() == b"tail"
    with (
        PosixWritableFileSystem(str(target)) as files,
        pytest.raises(WriteFailed, match="target is not empty"),
    ):
        overlay.write_to(files)


def test_what_is_written_out_is_durable() -> None:
    below = FaultyFileSystem(FaultyDisk())
    below.mkdir("config")
    with below.create("config/topics.json") as file:
        file.pwrite(b"{}", 0)
    below.set_attributes("config/topics.json", Attributes(0o640, 1001, 1002, 5))
    files = OverlayFileSystem(below)
    with files.create("abort") as file:
        file.pwrite(b"1", 0)
    disk = FaultyDisk()
    files.write_to(FaultyFileSystem(disk, "copy"))
    for outcome in disk.iter_outcomes():
        written = FaultyFileSystem(outcome, "copy")
        with written.open_read("config/topics.json") as file:
            assert file.pread(10, 0) == b"{}"
        status = written.stat("config/topics.json")
        assert (status.mode, status.mtime_ns) == (0o640, 5)
        assert (status.owner, status.group) == (0, 0), "the copy belongs to the user who made it"
        with written.open_read("abort") as file:
            assert file.pread(10, 0) == b"1"


def test_what_is_no_file_stays_what_it_is(store: Path, overlay: OverlayFileSystem) -> None:
    (store / "link").symlink_to("/etc/passwd")
    os.mkfifo(store / "pipe")
    assert {entry.name: entry.kind for entry in overlay.listdir()} == {"link": Kind.SYMLINK, "pipe": Kind.FIFO}
    for path in ("link", "pipe"):
        with pytest.raises(ReadFailed):
            overlay.open_read(path)
        for attempt in (overlay.open_write, overlay.unlink, overlay.create, overlay.mkdir, overlay.rmdir):
            with pytest.raises(WriteFailed):
                attempt(path)
    with pytest.raises(WriteFailed):
        overlay.create("link/x")


def test_attributes_of_the_root_are_kept_apart_from_names(overlay: OverlayFileSystem) -> None:
    own = overlay.stat("")
    overlay.set_attributes("", Attributes(0o711, own.owner, own.group, 5))
    assert (overlay.stat("").mode, overlay.stat("").mtime_ns) == (0o711, 5)
    assert overlay.listdir() == []
    assert overlay.changes() == []


def test_times_come_from_the_clock_that_was_given(store: Path) -> None:
    with PosixReadableFileSystem(str(store)) as below, OverlayFileSystem(below, now_ns=lambda: 42) as files:
        with files.create("abort") as file:
            file.pwrite(b"1", 0)
        assert files.stat("abort").mtime_ns == 42


def test_its_lock_is_its_own(store: Path, overlay: OverlayFileSystem) -> None:
    with overlay.lock():
        assert overlay.lock_state().held
        with pytest.raises(StoreInUse):
            overlay.lock()
        with PosixReadableFileSystem(str(store)) as below:
            assert not below.lock_state().held
    assert not overlay.lock_state().held
    assert overlay.changes() == [Change("lock", Action.CREATE, None, 4)]
    assert os.listdir(store) == []
    with overlay.lock(), overlay.open_read("lock") as file:
        assert file.pread(10, 0) == b"lock"
