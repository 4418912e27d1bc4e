"""Files of the default sizes are mostly reserved room: opening them must not read it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rmqtool.files.filesystem import Extent, ReadableFile, Status
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.log.read import Rows, SegmentScan
from rmqtool.log.walk import WINDOW, SegmentWalk
from rmqtool.store.index_files import DEFAULT, open_index
from tests.conftest import Unpacker
from tests.support.builders import record


class _Counting(ReadableFile):
    """Another file, and how much of it was read."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self.path, self.shown = file.path, file.shown
        self.bytes_read = 0

    def pread(self, length: int, file_offset: int) -> bytes:
        found = self._file.pread(length, file_offset)
        self.bytes_read += len(found)
        return found

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        raise NotImplementedError

    def stat(self) -> Status:
        return self._file.stat()

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        return self._file.iter_data(file_offset, end)

    def close(self) -> None:
        self._file.close()


class _Reserved(_Counting):
    """A file whose room is reserved: what was read of it, and what the kernel read ahead, passes for data."""

    def __init__(self, file: ReadableFile, size: int) -> None:
        super().__init__(file)
        self.size_now = size
        self._data_end = WINDOW

    def pread(self, length: int, file_offset: int) -> bytes:
        length = max(min(length, self.size_now - file_offset), 0)
        self.bytes_read += length
        self._data_end = max(self._data_end, file_offset + length + WINDOW)
        return bytes(length)

    def size(self) -> int:
        return self.size_now

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        stop = self.size_now if end is None else end
        position = file_offset
        while position < (data_end := min(self._data_end, stop)):
            yield Extent(position, data_end - position)
            position = data_end


def test_an_index_file_of_the_default_size_is_opened_by_a_few_reads(store: Unpacker) -> None:
    root = store("49-default-sizes")
    name = next((root / "index").iterdir()).name
    files = PosixReadableFileSystem(str(root))
    with files, files.open_read(f"index/{name}") as file:
        counting = _Counting(file)
        opened = open_index(counting)
        assert opened is not None
        assert opened.geometry == DEFAULT
        assert counting.bytes_read < 10_000


def test_the_walk_does_not_read_what_only_its_reading_made_look_like_data(store: Unpacker) -> None:
    files = PosixReadableFileSystem(str(store("49-default-sizes")))
    with files, files.open_read("commitlog/00000000000000000000") as file:
        reserved = _Reserved(file, 64 * WINDOW)
        assert SegmentWalk(reserved, 0).find_nonzero(0) is None
        assert reserved.bytes_read == WINDOW


def test_a_scan_reads_no_window_beyond_the_data(tmp_path: Path) -> None:
    records, at = b"", 0
    while at < 300_000:
        one = record(b"x" * 1000, physical_offset=at)
        records, at = records + one, at + len(one)
    (tmp_path / "0").write_bytes(records)
    os.truncate(tmp_path / "0", 64 << 20)
    with closing(_Counting(PosixReadableFileSystem(str(tmp_path)).open_read("0"))) as file:
        found = [piece for piece in SegmentScan(file, 0).pieces() if isinstance(piece, Rows)]
        assert sum(len(rows.records) for rows in found) == at // len(one)
        assert file.bytes_read < at + 2 * WINDOW


def test_reading_beside_reserved_room_leaves_it_a_hole(tmp_path: Path) -> None:
    """The system reads nothing ahead of what was asked for: pages of zeros would pass for data from then on."""
    data, room = 1 << 20, 64 << 20
    descriptor = os.open(tmp_path / "0", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(descriptor, 0, room)
    os.pwrite(descriptor, b"x" * data, 0)
    os.close(descriptor)
    with closing(PosixReadableFileSystem(str(tmp_path)).open_read("0")) as file:
        before = list(file.iter_data())
        if before != [Extent(0, data)]:
            pytest.skip("this file system reports reserved room as data")
        for at in range(0, data + 8192, 8192):
            file.pread(8192, at)
        (after,) = file.iter_data()
        assert after.end <= data + (64 << 10)
