"""``MappedFileQueue``: the files of a log or a queue, and how a broker loads, extends and truncates them.

All files have one length. Only the running broker knows where their data ends (``wrote``). Truncating moves that
position and deletes later files; it never clears bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rmqtool.formats.java import parse_long, remainder
from rmqtool.upstream import broker_log
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.files import StoreFiles

_NAME_DIGITS = 20


class LoadRefused(Exception):
    """The broker does not start with these files; ``exception`` if it finds out by an exception of its own."""

    def __init__(self, reason: str, *, exception: bool = False) -> None:
        super().__init__(reason)
        self.exception = exception


@dataclass(slots=True)
class MappedFile:
    """One file. ``start`` is the number in its name, ``wrote`` the end of its data."""

    path: str
    start: int
    size: int
    wrote: int
    first_in_queue: bool = False

    @property
    def is_full(self) -> bool:
        """Whether the file has no space after the data."""
        return self.wrote == self.size


@dataclass(slots=True)
class MappedFileQueue:
    """The files of one directory, or of several directories of one log."""

    files: StoreFiles
    directories: tuple[str, ...]
    file_size: int
    mapped: list[MappedFile] = field(default_factory=list)

    def load(self, log: BrokerLog, v4_9: bool) -> None:
        """Load every file, in the order of the names.

        Gaps and offsets are not checked. upstream: ``MappedFileQueue.doLoad``.
        """
        found = [
            (entry, f"{directory}/{entry.name}")
            for directory in self.directories
            for entry in self.files.entries(directory)
        ]
        if len(self.directories) > 1:
            found.sort(key=lambda pair: pair[0].name)
        for i, (entry, path) in enumerate(found):
            if entry.is_directory and not v4_9:
                continue
            if entry.size == 0 and not entry.is_directory and i == len(found) - 1 and not v4_9:
                self.files.delete(path)
                log.warn(broker_log.AUTO_DELETE)
                continue
            if entry.is_directory or entry.size != self.file_size:
                log.warn(broker_log.length_not_matched(path))
                what = "is a directory" if entry.is_directory else f"has {entry.size} bytes, not {self.file_size}"
                raise LoadRefused(f"{path} {what}")
            start = parse_long(entry.name)
            if start is None:
                log.warn(broker_log.LOAD_EXCEPTION)
                raise LoadRefused(f"{path} has the length of a segment, but its name is not a number", exception=True)
            self.mapped.append(MappedFile(path, start, self.file_size, self.file_size))

    @property
    def min_offset(self) -> int:
        """The start of the first file; -1 without files."""
        return self.mapped[0].start if self.mapped else -1

    @property
    def max_offset(self) -> int:
        """The end of the last file's data; 0 without files."""
        return self.mapped[-1].start + self.mapped[-1].wrote if self.mapped else 0

    def find(self, offset: int, first_if_none: bool = False) -> MappedFile | None:
        """Return the file that has ``offset``. upstream: ``findMappedFileByOffset``."""
        if not self.mapped:
            return None
        first, last = self.mapped[0], self.mapped[-1]
        if first.start <= offset < last.start + self.file_size:
            for file in self._likely_first(offset):
                if file.start <= offset < file.start + self.file_size:
                    return file
        return first if first_if_none else None

    def _likely_first(self, offset: int) -> Iterable[MappedFile]:
        index = offset // self.file_size - self.mapped[0].start // self.file_size
        if 0 <= index < len(self.mapped):
            yield self.mapped[index]
        yield from self.mapped

    def last_or_new(self, start_offset: int) -> MappedFile | None:
        """Return the file to append to, a new one if the last one is full or missing.

        Returns None if the file cannot be created. upstream: ``getLastMappedFile(startOffset)``. Java's remainder has
        the sign of the dividend.
        """
        if self.mapped and not self.mapped[-1].is_full:
            return self.mapped[-1]
        start = self._next_start(start_offset)
        path = self._path(start)
        if not self.files.can_create(path):
            return None
        if not self.files.exists(path):
            self.files.create(path, self.file_size)
        elif self.files.size(path) < self.file_size:
            self.files.resize(path, self.file_size)
        file = MappedFile(path, start, self.file_size, 0, first_in_queue=not self.mapped)
        self.mapped.append(file)
        return file

    def can_take(self, start_offset: int, length: int) -> bool:
        """Return whether ``length`` bytes can be appended: whether each necessary file can be created."""
        start = self._next_start(start_offset)
        end = start_offset + length
        if self.mapped:
            last = self.mapped[-1]
            end = start + length - (last.size - last.wrote)
        return all(self.files.can_create(self._path(one)) for one in range(start, end, self.file_size))

    def _next_start(self, start_offset: int) -> int:
        if self.mapped:
            return self.mapped[-1].start + self.file_size
        return start_offset - remainder(start_offset, self.file_size)

    def _path(self, start: int) -> str:
        return f"{self.directories[0]}/{file_name(start)}"

    def truncate(self, offset: int) -> None:
        """End the data at ``offset`` and delete later files. upstream: ``truncateDirtyFiles``.

        The position is the remainder, not the distance from the file's start. So the end is wrong in a file whose name
        is not a multiple of the size.
        """
        kept = []
        for file in self.mapped:
            if file.start + self.file_size > offset:
                if offset < file.start:
                    self.files.delete(file.path)
                    continue
                file.wrote = remainder(offset, self.file_size)
            kept.append(file)
        self.mapped = kept

    def delete_last(self) -> None:
        """Delete the last file."""
        self.files.delete(self.mapped.pop().path)

    def destroy(self) -> None:
        """Delete all files, and the directories if they are empty then."""
        for file in self.mapped:
            self.files.delete(file.path)
        self.mapped = []
        for directory in self.directories:
            if self.files.is_directory(directory) and not self.files.entries(directory):
                self.files.remove_directory(directory)


def file_name(start: int) -> str:
    """Return the name of the file that starts at ``start``."""
    sign = "-" if start < 0 else ""
    return f"{sign}{abs(start):0{_NAME_DIGITS}d}"
