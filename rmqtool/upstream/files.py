"""The files of a store as one start sees and changes them, with a limited number of open handles."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import Extent, Kind, ReadableFile, ReadableFileSystem, join, path_parts, split
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.files.salvaged import salvaged
from rmqtool.store.config_files import require_text

# A store may have a hundred thousand queues; a process may open a thousand files.
_HANDLES = 256


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool
    size: int


F = TypeVar("F", bound=ReadableFile)


class _Handles(Generic[F]):
    """Open files by path. The least recently used one is closed for a new one."""

    def __init__(self, open_file: Callable[[str], F]) -> None:
        self._open_file = open_file
        self._open: OrderedDict[str, F] = OrderedDict()

    def get(self, path: str) -> F:
        handle = self._open.get(path)
        if handle is not None:
            self._open.move_to_end(path)
            return handle
        if len(self._open) >= _HANDLES:
            self._open.popitem(last=False)[1].close()
        handle = self._open[path] = self._open_file(path)
        return handle

    def forget(self, path: str) -> None:
        handle = self._open.pop(path, None)
        if handle is not None:
            handle.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class StoreView:
    """The files of a store, for reading. Paths are relative to the store's root.

    With ``salvages`` an unreadable sector does not hide other bytes of its file, see ``files.salvaged``.
    """

    def __init__(self, files: ReadableFileSystem, *, salvages: bool = False) -> None:
        self._files = files
        self._handles = _Handles((lambda path: salvaged(files.open_read(path))) if salvages else files.open_read)

    def close(self) -> None:
        """Close every handle."""
        self._handles.close()

    def is_file(self, path: str) -> bool:
        """Return whether the path is a regular file."""
        return self._kind(path) is Kind.FILE

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        return self._kind(path) is Kind.DIRECTORY

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        return self._kind(path) is not None

    def _kind(self, path: str) -> Kind | None:
        status = self._files.find_stat(path)
        return None if status is None else status.kind

    def entries(self, path: str) -> list[Entry]:
        """Return the entries of a directory, sorted by name; empty if it is not a directory."""
        if not self.is_directory(path):
            return []
        found = []
        for entry in self._files.listdir(path):
            size = 0 if entry.kind is Kind.DIRECTORY else self.size(join(path, entry.name))
            found.append(Entry(entry.name, entry.kind is Kind.DIRECTORY, size))
        return found

    def size(self, path: str) -> int:
        """Return the size of a file."""
        return self._files.stat(path).size

    def read(self, path: str, file_offset: int, length: int) -> bytes:
        """Return bytes of a file, fewer at its end."""
        return self._handles.get(path).pread(length, file_offset)

    def read_exactly(self, path: str, file_offset: int, length: int) -> bytes:
        """Return bytes of a file, which must have all of them."""
        return self._handles.get(path).pread_exactly(length, file_offset)

    def read_whole(self, path: str) -> bytes:
        """Return all bytes of a text file. A file larger than any text that a broker writes is refused."""
        size = self.size(path)
        require_text(self._files.shown(path), size)
        return self.read_exactly(path, 0, size)

    def iter_data(self, path: str, begin: int, end: int) -> Iterator[Extent]:
        """Yield the ranges of a file that may have other bytes than zeros."""
        return self._handles.get(path).iter_data(begin, end)


class StoreFiles(StoreView):
    """The overlay that a start works on."""

    def __init__(self, overlay: OverlayFileSystem) -> None:
        super().__init__(overlay)
        self.overlay = overlay
        self._writables = _Handles(overlay.open_write)

    def close(self) -> None:
        """Close every handle."""
        super().close()
        self._writables.close()

    def write(self, path: str, file_offset: int, data: bytes) -> None:
        """Overwrite bytes."""
        self._writables.get(path).pwrite(data, file_offset)

    def create(self, path: str, size: int = 0) -> None:
        """Create a file of zeros, and its directories. An existing file is replaced."""
        self.make_directories(split(path)[0])
        if self.exists(path):
            self.delete(path)
        self.overlay.create(path, size).close()

    def can_create(self, path: str) -> bool:
        """Return whether the file can be created: not every topic is a valid name of a directory."""
        try:
            path_parts(path)
        except ReadFailed:
            return False
        directory = split(path)[0]
        while directory and not self.exists(directory):
            directory = split(directory)[0]
        return (not directory or self.is_directory(directory)) and not self.is_directory(path)

    def replace(self, path: str, data: bytes) -> None:
        """Replace the whole content of a file."""
        self.create(path)
        self.write(path, 0, data)

    def resize(self, path: str, size: int) -> None:
        """Shorten a file, or extend it with zeros."""
        self._writables.get(path).truncate(size)

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._handles.forget(path)
        self._writables.forget(path)
        self.overlay.unlink(path)

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents if they are missing."""
        if path and not self.is_directory(path):
            self.make_directories(split(path)[0])
            self.overlay.mkdir(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self.overlay.rmdir(path)
