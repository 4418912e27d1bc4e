"""The real file system: what it refuses, what it survives, and what it cannot do."""

from __future__ import annotations

import ast
import errno
import inspect
import os
import resource
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.errors import FileMissing, NoSpace, ReadFailed, WriteFailed
from rmqtool.files import posix
from rmqtool.files.filesystem import Attributes, Entry, Extent, Kind, NotInMemory
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.waiting import PATIENCE

MIB = 1 << 20
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[PosixReadableFileSystem]:
    with PosixReadableFileSystem(str(tmp_path)) as files:
        yield files


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[PosixWritableFileSystem]:
    with PosixWritableFileSystem(str(tmp_path)) as files:
        yield files


# -- reading at once


def test_what_is_in_memory_is_read_at_once(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    with reading.open_read("log") as file:
        assert file.pread_at_once(4, 3) == b"3456"
        assert file.pread_at_once(4, 8) == b"89"
        assert file.pread_at_once(4, 10) == b""
        with (tmp_path / "log").open("ab") as growing:
            growing.write(b"more")
        assert file.pread_at_once(6, 8) == b"89more"


@pytest.mark.parametrize("found", [None, 3], ids=["nothing", "a part"])
def test_what_is_not_in_memory_is_fetched_before_it_is_read(
    found: int | None, tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_bytes(bytes(100) + b"x" * 100)
    fetched = []
    pread = os.pread

    def preadv(descriptor: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        if fetched:
            buffers[0][:] = pread(descriptor, len(buffers[0]), offset)
            return len(buffers[0])
        if found is None:
            raise BlockingIOError(errno.EAGAIN, "not now")
        return found

    def fetch(descriptor: int, length: int, offset: int) -> bytes:
        fetched.append((offset, length))
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(os, "pread", fetch)
    with reading.open_read("log") as file:
        with pytest.raises(NotInMemory) as cold:
            file.pread_at_once(20, 90)
        assert cold.value.place == (str(tmp_path / "log"), 0, 256 << 10)
        begun = cold.value.begin()
    assert fetched == []
    # The file is closed by now.
    begun()
    assert fetched == [(0, 256 << 10)]
    with pytest.raises(ReadFailed, match=r"cannot read .*log: Bad file descriptor"):
        cold.value.begin()
    with reading.open_read("log") as file:
        assert file.pread_at_once(20, 90) == bytes(10) + b"x" * 10
    assert len(fetched) == 1


def test_a_fetch_reads_whole_blocks_and_else_what_is_wanted(
    tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, asked = 256 << 10, []

    def not_now(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "not now")

    def fetch(descriptor: int, length: int, offset: int) -> bytes:
        asked.append((offset, length))
        if length > 20 or is_all_broken:
            raise OSError(errno.EIO, "bad sector")
        return b""

    (tmp_path / "log").write_bytes(bytes(4 * block))
    monkeypatch.setattr(os, "preadv", not_now)
    monkeypatch.setattr(os, "pread", fetch)
    for is_all_broken in (False, True):
        asked.clear()
        with reading.open_read("log") as file:
            with pytest.raises(NotInMemory) as cold:
                file.pread_at_once(20, 2 * block - 10)
            begun = cold.value.begin()
        if is_all_broken:
            with pytest.raises(ReadFailed, match="bad sector") as failed:
                begun()
            assert failed.value.offset == 2 * block - 10
        else:
            begun()
        assert asked == [(block, 2 * block), (2 * block - 10, 20)]
    assert not {link for link in Path("/proc/self/fd").iterdir() if link.resolve() == tmp_path / "log"}


def test_without_a_free_descriptor_a_fetch_says_so(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    with reading.open_read("log") as file:
        cold = file._not_in_memory(4, 3)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(ReadFailed, match=r"cannot read .*log: Too many open files"):
                cold.begin()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_file_system_that_cannot_tell_what_is_in_memory_is_asked_once(
    tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    asked = []

    def preadv(*given: object) -> int:
        asked.append(given)
        raise OSError(errno.EOPNOTSUPP, "what?")

    monkeypatch.setattr(os, "preadv", preadv)
    with reading.open_read("log") as file:
        assert [file.pread_at_once(4, 3) for _ in range(2)] == [b"3456"] * 2
        assert len(asked) == 1
        monkeypatch.setattr(file, "_tells_memory", True)
        monkeypatch.setattr(os, "preadv", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "bad sector")))
        with pytest.raises(ReadFailed, match="bad sector") as failed:
            file.pread_at_once(4, 3)
    assert failed.value.offset == 3


def test_pages_that_the_kernel_dropped_are_not_in_memory(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * MIB)
    with path.open("rb") as raw:
        os.fsync(raw.fileno())
        os.posix_fadvise(raw.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with reading.open_read("log") as file:
        try:
            found = file.pread_at_once(4096, MIB // 2)
        except NotInMemory as cold:
            cold.begin()()
            found = file.pread_at_once(4096, MIB // 2)
        assert found == b"x" * 4096


# -- what cannot be opened


def plant(path: Path, kind: Kind) -> None:
    if kind is Kind.DIRECTORY:
        path.mkdir()
    elif kind is Kind.FIFO:
        os.mkfifo(path)
    elif kind is Kind.SYMLINK:
        path.symlink_to("/etc/passwd")
    elif kind is Kind.SOCKET:
        with socket.socket(socket.AF_UNIX) as bound:
            where = os.getcwd()
            os.chdir(path.parent)  # the name of a socket is short
            try:
                bound.bind(path.name)
            finally:
                os.chdir(where)
    else:
        try:
            os.mknod(path, 0o600 | (stat.S_IFCHR if kind is Kind.CHARACTER_DEVICE else stat.S_IFBLK), os.makedev(1, 3))
        except PermissionError:
            pytest.skip("devices cannot be made here")


STRANGE = [Kind.DIRECTORY, Kind.FIFO, Kind.SYMLINK, Kind.SOCKET, Kind.CHARACTER_DEVICE, Kind.BLOCK_DEVICE]


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("kind", STRANGE)
def test_what_is_not_a_regular_file_is_refused_at_once(
    kind: Kind, tmp_path: Path, reading: PosixReadableFileSystem, writing: PosixWritableFileSystem
) -> None:
    plant(tmp_path / "checkpoint", kind)
    for error, attempt in (
        (ReadFailed, lambda: reading.open_read("checkpoint")),
        (WriteFailed, lambda: writing.open_write("checkpoint")),
        (WriteFailed, lambda: writing.create("checkpoint")),
        (WriteFailed, lambda: writing.unlink("checkpoint")),
        (WriteFailed, lambda: writing.rename("checkpoint", "other")),
    ):
        with pytest.raises(error) as caught:
            attempt()
        assert str(tmp_path / "checkpoint") in caught.value.message
    assert reading.listdir() == [Entry("checkpoint", kind)]
    assert reading.stat("checkpoint").kind is kind
    (tmp_path / "file").write_bytes(b"x")
    if kind is not Kind.DIRECTORY:
        with pytest.raises(WriteFailed):
            writing.rename("file", "checkpoint")


def test_a_fifo_is_named_as_what_it_is(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    plant(tmp_path / "lock", Kind.FIFO)
    with pytest.raises(ReadFailed, match="lock is a FIFO, not a regular file"):
        reading.open_read("lock")


def test_a_link_to_a_directory_is_not_followed(tmp_path: Path, writing: PosixWritableFileSystem) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_bytes(b"x")
    store = tmp_path / "store"
    store.mkdir()
    (store / "commitlog").symlink_to(outside)
    with PosixWritableFileSystem(str(store)) as files:
        for error, attempt in (
            (ReadFailed, lambda: files.open_read("commitlog/0")),
            (ReadFailed, lambda: files.listdir("commitlog")),
            (ReadFailed, lambda: files.find_stat("commitlog/0")),
            (ReadFailed, lambda: files.exists("commitlog/deep/er")),
            (WriteFailed, lambda: files.create("commitlog/1")),
            (WriteFailed, lambda: files.mkdir("commitlog/1")),
            (WriteFailed, lambda: files.unlink("commitlog/0")),
            (WriteFailed, lambda: files.fsync_dir("commitlog")),
        ):
            with pytest.raises(error, match="symbolic links") as caught:
                attempt()
            assert "name the directory it points to" in (caught.value.hint or "")
        assert files.stat("commitlog").kind is Kind.SYMLINK
    assert os.listdir(outside) == ["0"]


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "lock").write_bytes(b"lock")
    (tmp_path / "store").symlink_to("real")
    with PosixReadableFileSystem(str(tmp_path / "store")) as files, files.open_read("lock") as file:
        assert file.pread(10, 0) == b"lock"


def test_a_root_that_is_not_there_or_not_a_directory(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="No such file"):
        PosixReadableFileSystem(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ReadFailed, match="Not a directory"):
        PosixReadableFileSystem(str(tmp_path / "file"))


def test_nothing_is_there(reading: PosixReadableFileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in ("lock", "commitlog/0", "file/0"):
        assert reading.find_stat(path) is None
        assert not reading.exists(path)
        with pytest.raises(FileMissing):
            reading.stat(path)
    with pytest.raises(FileMissing, match=r"cannot open .*/lock: No such file"):
        reading.open_read("lock")
    with pytest.raises(ReadFailed, match="Is a directory"):
        reading.open_read("")


def test_a_missing_permission_says_whose_help_is_needed(
    tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint").write_bytes(b"x")

    def refuse(name: object, *rest: object, **named: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReadFailed, match=r"cannot open .*/checkpoint: Permission denied") as caught:
        reading.open_read("checkpoint")
    assert "owner" in (caught.value.hint or "")
    with pytest.raises(ReadFailed, match="cannot list"):
        reading.listdir()


def test_a_name_that_changes_hands_between_look_and_opening(
    tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint").write_bytes(b"x")
    really_open = os.open

    def swap(name: str, *rest: int, **named: int) -> int:
        if name == "checkpoint":
            os.unlink(tmp_path / "checkpoint")
            os.mkfifo(tmp_path / "checkpoint")
        return really_open(name, *rest, **named)

    monkeypatch.setattr(os, "open", swap)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ReadFailed, match="is a FIFO"):
        reading.open_read("checkpoint")
    assert len(os.listdir("/proc/self/fd")) == before, "nothing is left open"


# -- reading


def test_reading_ends_where_the_file_ends(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    (tmp_path / "f").write_bytes(bytes(range(100)))
    with reading.open_read("f") as file:
        assert file.pread(10, 0) == bytes(range(10))
        assert file.pread(1000, 90) == bytes(range(90, 100))
        assert file.pread(10, 100) == b""
        assert file.pread(10, 2**62) == b""
        assert file.pread(0, 0) == b""
        buffer = bytearray(20)
        assert file.pread_into(buffer, 90) == 10
        assert buffer == bytes(range(90, 100)) + bytes(10)
        assert file.pread_into(memoryview(buffer)[5:8], 1) == 3
        assert buffer[5:8] == bytes([1, 2, 3])
        assert file.size() == 100


@pytest.mark.parametrize(("length", "file_offset"), [(-1, 0), (1, -1), (1, 2**63 - 1), (2**70, 0)])
def test_a_span_that_no_file_has(
    length: int, file_offset: int, tmp_path: Path, reading: PosixReadableFileSystem
) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with reading.open_read("f") as file, pytest.raises(ReadFailed, match="f does not have"):
        file.pread(length, file_offset)


def test_a_length_from_damaged_bytes_costs_no_memory(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    (tmp_path / "f").write_bytes(b"x" * 100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with reading.open_read("f") as file:
        assert file.pread(2**40, 0) == b"x" * 100
        assert file.pread(2**40, 200) == b""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_reads_that_the_kernel_cuts_short_are_completed(
    tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(bytes(range(256)))
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: pread(fd, min(length, 7), offset))
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: preadv(fd, [buffers[0][:7]], offset))
    with reading.open_read("f") as file:
        assert file.pread(256, 0) == bytes(range(256))
        buffer = bytearray(300)
        assert file.pread_into(buffer, 0) == 256
        assert buffer[:256] == bytes(range(256))


def test_a_bad_sector_is_an_error_with_its_place(
    tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(bytes(8192))

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    monkeypatch.setattr(os, "preadv", fail)
    with reading.open_read("f") as file:
        for attempt in (lambda: file.pread(10, 4096), lambda: file.pread_into(bytearray(10), 4096)):
            with pytest.raises(ReadFailed, match=r"cannot read .*/f: Input/output error") as caught:
                attempt()
            assert caught.value.offset == 4096


def test_a_file_cut_beneath_its_reader_is_an_error(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 10_000)
    with reading.open_read("f") as file:
        os.truncate(path, 4000)
        assert file.pread(4000, 0) == b"x" * 4000, "what is left is read"
        for attempt in (
            lambda: file.pread(10, 3995),
            lambda: file.pread(2**30, 0),
            lambda: file.pread(1, 9999),
            lambda: file.pread_into(bytearray(10), 3995),
            lambda: list(file.iter_data()),
            lambda: list(file.iter_data(0, 5000)),
        ):
            with pytest.raises(ReadFailed, match="was cut while it was read"):
                attempt()
        assert file.pread(10, 10_000) == b"", "there never was anything"


def test_a_file_that_grows_is_read_further(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a")
    with reading.open_read("f") as file:
        with path.open("ab") as more:
            more.write(b"b" * (2 * MIB))
        assert file.pread(4 * MIB, 0) == b"a" + b"b" * (2 * MIB)
        assert file.size() == 1 + 2 * MIB


def test_a_file_that_vanished_is_still_read_through_its_handle(
    tmp_path: Path, reading: PosixReadableFileSystem
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"still here")
    with reading.open_read("f") as file:
        path.unlink()
        assert file.pread(100, 0) == b"still here"
        assert file.stat().links == 0


def test_the_identity_changes_with_the_file(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a")
    before = reading.stat("f")
    assert reading.stat("f") == before
    os.utime(path, ns=(0, 5))
    changed = reading.stat("f")
    assert changed != before
    (tmp_path / "g").write_bytes(b"a")
    os.utime(tmp_path / "g", ns=(0, 5))
    os.rename(tmp_path / "g", path)
    assert reading.stat("f") != changed


def test_a_closed_file_is_not_read(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    (tmp_path / "f").write_bytes(b"a")
    file = reading.open_read("f")
    file.close()
    file.close()
    with pytest.raises(ReadFailed):
        file.pread(1, 0)


def test_holes_are_skipped(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    with (tmp_path / "index").open("wb") as file:
        file.truncate(420_000_040)
        file.seek(100 * MIB)
        file.write(b"x" * 4096)
        file.seek(0)
        file.write(b"head")
    with reading.open_read("index") as index:
        extents = list(index.iter_data())
        assert sum(extent.length for extent in extents) <= MIB, "only what was written"
        assert extents[0].file_offset == 0
        assert any(extent.file_offset <= 100 * MIB and extent.end >= 100 * MIB + 4096 for extent in extents)
        assert list(index.iter_data(200 * MIB)) == []
        assert list(index.iter_data(100 * MIB + 10, 100 * MIB + 20)) == [Extent(100 * MIB + 10, 10)]
        assert list(index.iter_data(2**40)) == []


def test_a_file_system_that_knows_no_holes_reports_one_span(
    tmp_path: Path, reading: PosixReadableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(bytes(100))

    def refuse(*_: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "lseek", refuse)
    with reading.open_read("f") as file:
        assert list(file.iter_data(10)) == [Extent(10, 90)]


def test_names_that_are_no_text_are_listed_and_opened(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb") as file:
        file.write(b"x")
    assert reading.listdir() == [Entry("\udcff\udcfe", Kind.FILE)]
    with reading.open_read("\udcff\udcfe") as opened:
        assert opened.pread(1, 0) == b"x"


def test_two_listings_at_once_do_not_disturb_each_other(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"")
    for _ in range(2):
        assert [entry.name for entry in reading.listdir()] == ["a", "b", "c"]


# -- the one that looks cannot write


def test_the_module_that_looks_calls_nothing_that_writes() -> None:
    tree = ast.parse(inspect.getsource(posix))
    called = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    }
    harmless = {
        "open",
        "close",
        "dup",
        "pread",
        "preadv",
        "RWF_NOWAIT",
        "fstat",
        "stat",
        "lseek",
        "posix_fadvise",
        "POSIX_FADV_RANDOM",
        "scandir",
        "fstatvfs",
        "stat_result",
        "DirEntry",
        "path",
        "SEEK_DATA",
        "SEEK_HOLE",
        "O_RDONLY",
        "O_NOFOLLOW",
        "O_NONBLOCK",
        "O_CLOEXEC",
        "O_DIRECTORY",
        "O_PATH",
    }
    assert called <= harmless, called - harmless
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported == {"errno", "os", "stat"}
    assert not any(isinstance(node, ast.Name) and node.id in ("open", "getattr", "eval") for node in ast.walk(tree))


def test_looking_opens_nothing_for_writing(tmp_path: Path, reading: PosixReadableFileSystem) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"x" * 10)
    (tmp_path / "lock").write_bytes(b"lock")
    before = [(tmp_path / name).stat() for name in ("", "d", "d/f", "lock")]
    opened: list[int] = []
    watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open" and isinstance(arguments[2], int):
            opened.append(arguments[2])

    sys.addaudithook(watch)
    with reading.open_read("d/f") as file:
        file.pread(10, 0)
        list(file.iter_data())
    reading.listdir("d")
    reading.find_stat("d/f")
    reading.lock_state()
    reading.space()
    watching = False
    assert len(opened) >= 5, "the watcher sees"
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    assert not [flags for flags in opened if flags & writing]
    after = [(tmp_path / name).stat() for name in ("", "d", "d/f", "lock")]
    assert [(s.st_mtime_ns, s.st_ctime_ns) for s in before] == [(s.st_mtime_ns, s.st_ctime_ns) for s in after]


def test_the_one_that_looks_has_no_way_to_write(reading: PosixReadableFileSystem) -> None:
    for name in ("create", "open_write", "rename", "unlink", "mkdir", "rmdir", "set_attributes", "lock"):
        assert not hasattr(reading, name)
        assert hasattr(PosixWritableFileSystem, name)


# -- writing


def test_a_created_file_has_its_room(tmp_path: Path, writing: PosixWritableFileSystem) -> None:
    with writing.create("segment", 4 * MIB) as file:
        assert file.size() == 4 * MIB
        assert file.pread(4096, 4 * MIB - 4096) == bytes(4096)
    assert (tmp_path / "segment").stat().st_blocks * 512 >= 4 * MIB


def test_a_full_disk_leaves_no_half_made_file(
    tmp_path: Path, writing: PosixWritableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NoSpace, match=r"cannot create .*/segment: No space left on device"):
        writing.create("segment", 4096)
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_writes_that_the_kernel_cuts_short_are_completed(
    tmp_path: Path, writing: PosixWritableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(data[:7]), offset))
    with writing.create("f") as file:
        file.pwrite(bytes(range(100)), 3)
        file.pwrite(memoryview(bytearray(b"hello"))[1:4], 0)
        file.pwrite(b"", 50)
    assert (tmp_path / "f").read_bytes() == b"ell" + bytes(range(100))


def test_a_write_that_fails_half_way_says_where(
    writing: PosixWritableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def fail_later(fd: int, data: bytes, offset: int) -> int:
        if offset >= 10:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pwrite(fd, bytes(data[:10]), offset)

    with writing.create("f") as file:
        monkeypatch.setattr(os, "pwrite", fail_later)
        with pytest.raises(WriteFailed, match=r"cannot write to .*/f: Input/output error"):
            file.pwrite(bytes(100), 0)


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_a_sync_that_fails_is_an_error(
    call: str, writing: PosixWritableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with writing.create("f") as file:
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(WriteFailed, match=r"cannot sync .*/f: Input/output error") as caught:
            getattr(file, call)()
    assert "kernel log" in (caught.value.hint or "")
    if call == "fsync":
        with pytest.raises(WriteFailed, match="cannot sync"):
            writing.fsync_dir()


def test_a_limit_on_the_size_of_files_is_an_error_and_no_signal(writing: PosixWritableFileSystem) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with writing.create("f") as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with pytest.raises(WriteFailed, match="File too large"):
                file.pwrite(bytes(8192), 0)
            with pytest.raises(WriteFailed, match="File too large"):
                file.truncate(8192)
            with pytest.raises(WriteFailed, match="File too large"):
                writing.create("g", 8192)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not writing.exists("g")


def test_the_root_is_not_renamed_removed_or_made(writing: PosixWritableFileSystem) -> None:
    for attempt in (
        lambda: writing.create(""),
        lambda: writing.mkdir(""),
        lambda: writing.rmdir(""),
        lambda: writing.unlink(""),
        lambda: writing.rename("", "a"),
        lambda: writing.open_write(""),
    ):
        with pytest.raises(WriteFailed):
            attempt()


def test_no_change_leaves_the_root(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "other").write_bytes(b"keep")
    with PosixWritableFileSystem(str(tmp_path / "store")) as files:
        for attempt in (
            lambda: files.create("../new"),
            lambda: files.open_write("../other"),
            lambda: files.unlink("../other"),
            lambda: files.mkdir("../new"),
            lambda: files.rename("../other", "taken"),
            lambda: files.create(str(tmp_path / "new")),
            lambda: files.fsync_dir(".."),
        ):
            with pytest.raises(WriteFailed, match="is not a path in the store"):
                attempt()
    assert sorted(os.listdir(tmp_path)) == ["other", "store"]


@root_only
def test_what_root_creates_belongs_to_the_owner_of_its_neighbours(
    tmp_path: Path, writing: PosixWritableFileSystem
) -> None:
    (tmp_path / "commitlog").mkdir(mode=0o750)
    os.chown(tmp_path / "commitlog", 1001, 1002)
    with writing.create("commitlog/0") as file:
        status = file.stat()
    assert (status.owner, status.group, status.mode) == (1001, 1002, 0o640), "the directory decides for the first"
    os.chmod(tmp_path / "commitlog" / "0", 0o604)
    os.chown(tmp_path / "commitlog" / "0", 1003, 1004)
    with PosixWritableFileSystem(str(tmp_path)) as again, again.create("commitlog/1") as file:
        status = file.stat()
    assert (status.owner, status.group, status.mode) == (1003, 1004, 0o604), "the first decides for the others"
    writing.mkdir("consumequeue")
    status = writing.stat("consumequeue")
    assert (status.owner, status.group, status.mode) == (1001, 1002, 0o750), "as the directory beside it"


def test_a_file_that_cannot_be_given_its_owner_is_not_left_behind(
    tmp_path: Path, writing: PosixWritableFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "neighbour").write_bytes(b"")
    (tmp_path / "topic").mkdir()
    really = os.fstat

    def of_another(fd: int) -> os.stat_result:
        found = really(fd)
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    def refuse(*_: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fstat", of_another)
    monkeypatch.setattr(os, "fchown", refuse)
    with pytest.raises(WriteFailed, match=r"cannot create .*/new: Operation not permitted") as caught:
        writing.create("new")
    assert "as the owner of the store, or as root" in (caught.value.hint or "")
    with pytest.raises(WriteFailed, match=r"cannot create .*/newdir"):
        writing.mkdir("newdir")
    assert sorted(os.listdir(tmp_path)) == ["neighbour", "topic"]


def test_attributes_are_set_to_the_nanosecond(tmp_path: Path, writing: PosixWritableFileSystem) -> None:
    writing.create("f").close()
    writing.mkdir("d")
    own = writing.stat("f")
    for path, mode in (("f", 0o604), ("d", 0o705), ("", 0o711)):
        writing.set_attributes(path, Attributes(mode, own.owner, own.group, 1_234_567_890_123_456_789))
        status = writing.stat(path)
        assert (status.mode, status.mtime_ns) == (mode, 1_234_567_890_123_456_789)


def test_a_handle_may_cut_its_own_file(writing: PosixWritableFileSystem) -> None:
    with writing.create("f", 8192) as file:
        file.truncate(100)
        assert file.pread(8192, 0) == bytes(100)
        assert list(file.iter_data(0, 8192)) in ([Extent(0, 100)], [])


def test_space_is_that_of_the_disk(reading: PosixReadableFileSystem) -> None:
    space = reading.space()
    assert 0 < space.available <= space.free <= space.total
