"""The files that are made from the commit log: queues, their extensions, batch queues. Writing, forcing, naming.

All of them can be made again, so their room is not reserved: a new file is a hole that fills up. What was written is
remembered by pages until it is forced, and so are the directories that got a new name.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress

from rmqtool.engine.commit_log import PAGE_SIZE
from rmqtool.errors import WriteFailed
from rmqtool.formats.paths import segment_name
from rmqtool.storage.filesystem import WritableFile, WritableFileSystem, join, path_parts, split

# A store may have more queues than a process may have open files.
_OPEN_FILES = 256


class DerivedFiles:
    """The open ones among many files of one file system, and what of them is not yet durable."""

    def __init__(self, files: WritableFileSystem) -> None:
        self._files = files
        self._open: OrderedDict[str, WritableFile] = OrderedDict()
        # path → the lowest and the highest place written since the last sync
        self._dirty: dict[str, tuple[int, int]] = {}
        self._new_names: set[str] = set()
        self._known_directories: set[str] = {""}
        self._syncing: str | None = None
        self._lock = threading.RLock()

    def create(self, path: str, size: int) -> None:
        """Make a file of ``size`` zeros, and the directories on the way to it."""
        directory, _ = split(path)
        with self._lock:
            self._make_directories(directory)
            file = self._files.create(path)
            try:
                file.truncate(size)
            except WriteFailed:
                file.close()
                # The first error tells what is wrong; that the file stays behind, too, adds nothing to it.
                with suppress(WriteFailed):
                    self._files.unlink(path)
                raise
            self._keep(path, file)
            self._dirty.setdefault(path, (0, 0))
            self._new_names.add(directory)

    def write(self, path: str, data: bytes, file_offset: int) -> None:
        """Write into a file that is there."""
        with self._lock:
            low, high = self._dirty.get(path, (file_offset, file_offset))
            self._dirty[path] = (min(low, file_offset), max(high, file_offset + len(data)))
            self._opened(path).pwrite(data, file_offset)

    def read(self, path: str, length: int, file_offset: int) -> bytes:
        """Read from a file that is there."""
        with self._lock:
            return self._opened(path).pread(length, file_offset)

    def exists(self, path: str) -> bool:
        """Return whether a file is there."""
        with self._lock:
            return path in self._open or self._files.exists(path)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        with self._lock:
            file = self._open.pop(path, None)
            if file is not None:
                file.close()
            self._dirty.pop(path, None)
            self._files.unlink(path)
            self._new_names.add(split(path)[0])

    def flush(self, least_pages: int = 0) -> None:
        """Force the files with so many pages written, and all new names; 0 pages: everything."""
        with self._lock:
            due = [
                path
                for path, (low, high) in self._dirty.items()
                if not least_pages or high // PAGE_SIZE - low // PAGE_SIZE >= least_pages
            ]
        for path in due:
            with self._lock:
                file = self._opened(path)
                self._dirty.pop(path, None)
                self._syncing = path
            file.fdatasync()
        with self._lock:
            self._syncing = None
            new_names, self._new_names = sorted(self._new_names), set()
        for directory in new_names:
            self._files.fsync_dir(directory)

    def close(self) -> None:
        """Close the files; nothing is forced."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def _opened(self, path: str) -> WritableFile:
        file = self._open.get(path)
        if file is None:
            file = self._files.open_write(path)
            self._keep(path, file)
        else:
            self._open.move_to_end(path)
        return file

    def _keep(self, path: str, file: WritableFile) -> None:
        self._open[path] = file
        if len(self._open) > _OPEN_FILES:
            oldest = next(name for name in self._open if name != self._syncing)
            self._open.pop(oldest).close()

    def _make_directories(self, path: str) -> None:
        directory = ""
        for name in path_parts(path):
            below = join(directory, name)
            if below not in self._known_directories:
                status = self._files.find_stat(below)
                if status is None:
                    self._files.mkdir(below)
                    self._new_names.add(directory)
                self._known_directories.add(below)
            directory = below


class DerivedQueue:
    """Files of one size in one directory, written at positions that count from the queue's beginning."""

    def __init__(self, files: DerivedFiles, directory: str, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        self._files = files
        self._made: set[int] = set()

    def write(self, position: int, data: bytes) -> None:
        """Write ``data``, over as many files as it takes; missing files are made."""
        for base, file_offset, piece in self._split(position, data):
            path = self._path(base)
            if base not in self._made:
                if not self._files.exists(path):
                    self._files.create(path, self.file_size)
                self._made.add(base)
            self._files.write(path, piece, file_offset)

    def read(self, position: int, length: int) -> bytes:
        """Read what lies at ``position``, from one file; nothing where there is none."""
        base = position - position % self.file_size
        path = self._path(base)
        if base not in self._made and not self._files.exists(path):
            return b""
        self._made.add(base)
        length = min(length, base + self.file_size - position)
        return self._files.read(path, length, position - base)

    def remove(self, base: int) -> None:
        """Remove the file that begins at a position."""
        self._made.discard(base)
        self._files.unlink(self._path(base))

    def _split(self, position: int, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        at = 0
        while at < len(data):
            file_offset = (position + at) % self.file_size
            length = min(len(data) - at, self.file_size - file_offset)
            yield position + at - file_offset, file_offset, data[at : at + length] if at or length < len(data) else data
            at += length

    def _path(self, base: int) -> str:
        return join(self.directory, segment_name(base))
