"""Files whose reading is counted: how many bytes of which file each call has read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqtool.files.filesystem import Extent, ReadableFile, Status
from rmqtool.files.posix import PosixReadableFileSystem

Read = tuple[str, int]


class CountedFile(ReadableFile):
    """Another file; what is read of it is noted by its path."""

    def __init__(self, file: ReadableFile, read: list[Read]) -> None:
        self._file = file
        self._read = read
        self.path, self.shown = file.path, file.shown

    def pread(self, length: int, file_offset: int) -> bytes:
        found = self._file.pread(length, file_offset)
        self._read.append((self.path, len(found)))
        return found

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        count = self._file.pread_into(buffer, file_offset)
        self._read.append((self.path, count))
        return count

    def stat(self) -> Status:
        return self._file.stat()

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        return self._file.iter_data(file_offset, end)

    def close(self) -> None:
        self._file.close()


class CountedFiles(PosixReadableFileSystem):
    """Files of the disk; ``read`` has the calls in their order."""

    def __init__(self, root: Path, read: list[Read] | None = None) -> None:
        super().__init__(str(root))
        self.read: list[Read] = [] if read is None else read

    def open_read(self, path: str) -> ReadableFile:
        return CountedFile(super().open_read(path), self.read)
