"""The protocols of file systems: everything that readers and writers of a store can do with its files.

Paths are ``str`` relative to the root, with ``/`` between the names and ``""`` for the root itself. No path leaves the
root: absolute paths, ``.``, ``..``, empty names and NUL are refused. Links are never followed, at the end of a path or
on the way. Only regular files are opened.

Errors are ``ReadFailed`` (``FileMissing`` if the file does not exist) and ``WriteFailed`` (``NoSpace`` if the disk is
full). They name the file, the operation, the reason and what to do. A call that a signal interrupts is repeated.

Durability is POSIX's at its weakest. Written bytes survive a power cut after ``fdatasync`` of the file; a new name, a
new directory, a rename or a removal after ``fsync_dir`` of its directory; owner, mode and mtime after ``fsync``. After
a failed sync the state of everything written before it is unknown, and a second sync does not help.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from rmqtool.errors import FileMissing, ReadFailed, WriteFailed

# Limits of the kernel: bytes of a name, and the largest file offset.
_NAME_LIMIT = 255
_OFFSET_LIMIT = 2**63 - 1
_VANISHED = "if a broker is running, it may have removed it: run the command again"
# Files whose owner and mode are read to choose those of a new file. A directory can have a hundred thousand.
_NEIGHBOURS = 64

Buffer = bytes | bytearray | memoryview
Failure = type[ReadFailed] | type[WriteFailed]


class Kind(StrEnum):
    """The kind of a directory entry; a link is not followed."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    FIFO = "FIFO"
    SOCKET = "socket"
    CHARACTER_DEVICE = "character device"
    BLOCK_DEVICE = "block device"
    UNKNOWN = "unknown"


class Entry(NamedTuple):
    """One name in a directory. ``is_link``: it is a link, and ``kind`` is that of its target."""

    name: str
    kind: Kind
    is_link: bool = False


class Status(NamedTuple):
    """The result of ``lstat``; ``mode`` has the permission bits only."""

    kind: Kind
    size: int
    mode: int
    owner: int
    group: int
    links: int
    mtime_ns: int
    ctime_ns: int
    device: int
    inode: int


class Attributes(NamedTuple):
    """Owner, mode and time of a file; an ``mtime_ns`` of None keeps the time."""

    mode: int
    owner: int
    group: int
    mtime_ns: int | None = None

    @classmethod
    def of(cls, status: Status) -> Attributes:
        """Return the attributes of a file, its time included."""
        return cls(status.mode, status.owner, status.group, status.mtime_ns)


class Extent(NamedTuple):
    """A span of a file that may hold something other than zeros."""

    file_offset: int
    length: int

    @property
    def end(self) -> int:
        """The file offset after the span."""
        return self.file_offset + self.length


class Space(NamedTuple):
    """Bytes of a disk; ``available`` is what this process may still use."""

    total: int
    free: int
    available: int

    @property
    def used_percent(self) -> int:
        """How full the disk is, rounded up. Bytes reserved for root count neither as used nor as free."""
        used = self.total - self.free
        return -(-100 * used // self._counted) if self._counted else 0

    @property
    def used_ratio(self) -> float:
        """The same as a share of 1, not rounded."""
        return (self.total - self.free) / self._counted if self._counted else 0.0

    @property
    def _counted(self) -> int:
        return self.total - self.free + self.available


class LockState(NamedTuple):
    """Whether the store's lock is held, and by which process if the kernel tells."""

    held: bool
    pid: int | None = None

    def __str__(self) -> str:
        return "held" if self.held else "free"


class Closable(Protocol):
    """Something to close, also by ``with``. Closing twice is allowed."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class NotInMemory(Exception):
    """The disk would be waited for.

    ``place`` says which bytes are fetched: a file, and the offsets of their first byte and after their last one.
    ``begin`` must be called while the file is open; it returns what reads the bytes into memory, for any thread, also
    when the file is closed. Both raise ReadFailed.
    """

    def __init__(self, place: tuple[str, int, int], begin: Callable[[], Callable[[], None]]) -> None:
        super().__init__("bytes that were asked for at once are not in memory")
        self.place = place
        self.begin = begin
        # The part of an answer that was found before these bytes, if it can be used.
        self.so_far: object = None


class ReadableFile(Closable, Protocol):
    """One open regular file. Its methods may be called from several threads at once.

    There is no memory map: if a mapped file shrinks, or a sector below a map is bad, the process is killed, where
    ``pread`` raises. A caller that wants a buffer passes one to ``pread_into``.
    """

    path: str
    # The path as a person knows it, for errors.
    shown: str

    @abstractmethod
    def pread(self, length: int, file_offset: int) -> bytes:
        """Read ``length`` bytes; fewer only at the end of the file.

        If the file was cut since it was opened, so that wanted bytes are gone, that is an error.
        """

    def pread_at_once(self, length: int, file_offset: int) -> bytes:
        """Read as ``pread`` does, or raise NotInMemory instead of waiting for a disk; not every file can tell."""
        return self.pread(length, file_offset)

    def pread_exactly(self, length: int, file_offset: int) -> bytes:
        """Read exactly ``length`` bytes, or raise ReadFailed."""
        found = self.pread(length, file_offset)
        if len(found) < length:
            raise ReadFailed(
                f"{self.shown} is too short: {length} bytes were needed, and it has {self.size()}",
                file=self.shown,
                offset=file_offset,
                hint="another process may have cut it: run the command again; rmqtool dump FILE shows its bytes",
            )
        return found

    @abstractmethod
    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        """Fill ``buffer`` and return how many bytes were read, by the rules of ``pread``."""

    @abstractmethod
    def stat(self) -> Status:
        """Return the state of the file now."""

    def size(self) -> int:
        return self.stat().size

    def expect(self, file_offset: int, end: int) -> None:  # noqa: ARG002  (only far files prepare)
        """Be told that a reader will read from ``file_offset`` to ``end`` in order."""
        return

    @abstractmethod
    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        """Yield the spans between ``file_offset`` and ``end`` that may hold data, ascending and not adjacent.

        The rest is holes, which read as zeros. A file system without holes yields one span.
        """


class WritableFile(ReadableFile, Protocol):
    @abstractmethod
    def pwrite(self, data: Buffer, file_offset: int) -> None:
        """Write all of ``data``, or raise. The file grows if needed. After an error, any part of it may be written."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file, or let it grow by a hole."""

    @abstractmethod
    def fdatasync(self) -> None:
        """Make the bytes and the size durable."""

    @abstractmethod
    def fsync(self) -> None:
        """Make the bytes, the size, the owner, the mode and the times durable."""


class ReadableFileSystem(Closable, Protocol):
    """The files below one root, for reading.

    Nothing here can change them, except that the kernel updates access times.
    """

    @abstractmethod
    def open_read(self, path: str) -> ReadableFile:
        """Open a regular file. Anything else with that name is an error, and is not waited for."""

    @abstractmethod
    def listdir(self, path: str = "") -> list[Entry]:
        """Return the entries of a directory, in the order of their names."""

    @abstractmethod
    def find_stat(self, path: str) -> Status | None:
        """Return the status of a name, or None if it does not exist. A link on the way to it is an error."""

    def stat(self, path: str) -> Status:
        """Return the status of a name; raise FileMissing if it does not exist."""
        found = self.find_stat(path)
        if found is None:
            raise FileMissing(f"{self.shown(path)} does not exist", file=self.shown(path), hint=_VANISHED)
        return found

    def exists(self, path: str) -> bool:
        return self.find_stat(path) is not None

    def is_directory(self, path: str) -> bool:
        """Return whether a path is a directory; a link to one is not."""
        found = self.find_stat(path)
        return found is not None and found.kind is Kind.DIRECTORY

    @abstractmethod
    def space(self) -> Space:
        """Return how full the disk is."""

    @abstractmethod
    def lock_state(self, path: str = "lock") -> LockState:
        """Return whether the broker's lock is held, without touching it. Without the file it is free."""

    def shown(self, path: str) -> str:
        """Return ``path`` as a person knows it, for errors."""
        return path or "."


class WritableFileSystem(ReadableFileSystem, Protocol):
    """The files below one root, for writing.

    A new file takes owner, group and mode of its neighbours: after root repaired a store at night, the broker's user
    must be able to open it in the morning.
    """

    @abstractmethod
    def create(self, path: str, size: int = 0) -> WritableFile:
        """Create and open a regular file of ``size`` zeros with its space on disk reserved. The name must be free.

        After an error the name is free again.
        """

    @abstractmethod
    def open_write(self, path: str) -> WritableFile:
        """Open a regular file that exists."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a regular file; a regular file with the new name is replaced atomically."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a regular file."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create one directory. Its parent must exist and the name must be free."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def fsync_dir(self, path: str = "") -> None:
        """Make the names in a directory durable."""

    @abstractmethod
    def set_attributes(self, path: str, attributes: Attributes) -> None:
        """Set owner, group, mode and time of a regular file or a directory."""

    @abstractmethod
    def lock(self, path: str = "lock") -> Closable:
        """Take the broker's lock, creating its file as a broker does; raise ``StoreInUse`` if it is held.

        Closing the result releases it; the file stays.
        """


def path_parts(path: str, error: Failure = ReadFailed) -> tuple[str, ...]:
    """Return the names of a path; raise ``error`` for a path that could leave the root or cannot exist."""
    parts, reason = _parts_and_reason(path)
    if reason:
        raise error(f"{path!r} is not a path in the store: {reason}", file=path)
    return parts


@lru_cache(maxsize=1024)  # a recovery asks for the same few paths thousands of times
def _parts_and_reason(path: str) -> tuple[tuple[str, ...], str | None]:
    parts = tuple(path.split("/")) if path else ()
    return parts, next(filter(None, map(_unfit, parts)), None)


def _unfit(name: str) -> str | None:
    if name in ("", ".", ".."):
        return f"{name!r} is not a name"
    if "\0" in name:
        return "a name cannot contain NUL"
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        return "a name cannot contain half of a surrogate pair"
    return f"a name has at most {_NAME_LIMIT} bytes" if len(encoded) > _NAME_LIMIT else None


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def split(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


def require_range(file: str, length: int, file_offset: int, error: Failure = ReadFailed) -> None:
    """Raise ``error`` for a span that no file can have. Offsets and lengths can come from damaged bytes."""
    if length < 0 or file_offset < 0 or length + file_offset > _OFFSET_LIMIT:
        raise error(f"{file} does not have {length} bytes at {file_offset}", file=file)


def require_unshrunk(file: str, wanted_end: int, found_end: int, size_at_open: int) -> None:
    """Raise if bytes that a file had when it was opened are gone: it was cut while it was read."""
    if found_end < min(wanted_end, size_at_open):
        raise ReadFailed(
            f"{file} was cut while it was read: it had {size_at_open} bytes, and ends before {found_end + 1} now",
            file=file,
            offset=found_end,
            hint="run the command again; if a broker is running, it may be recovering the store",
        )


def neighbour_attributes(files: ReadableFileSystem, directory: str, kind: Kind) -> Attributes:
    """Return owner, group and mode of most files (directories) in ``directory``.

    Without any, a new file takes those of the directory, without the bits for searching.
    """
    votes: Counter[tuple[int, int, int]] = Counter()
    for entry in islice((entry for entry in files.listdir(directory) if entry.kind is kind), _NEIGHBOURS):
        status = files.find_stat(join(directory, entry.name))
        if status is not None:
            votes[status.mode, status.owner, status.group] += 1
    if votes:
        mode, owner, group = votes.most_common(1)[0][0]
    else:
        own = files.stat(directory)
        mode, owner, group = own.mode, own.owner, own.group
    if kind is Kind.FILE:
        return Attributes(mode & 0o666 | 0o600, owner, group)
    return Attributes(mode | 0o700, owner, group)


@contextmanager
def new_file(files: WritableFileSystem, path: str, size: int = 0) -> Iterator[WritableFile]:
    """Give a new file to fill; it stays open. If filling fails, the name is free again."""
    file = files.create(path, size)
    try:
        yield file
    except WriteFailed:
        file.close()
        # The first error is the one to report, even if removing the file fails too.
        with suppress(WriteFailed):
            files.unlink(path)
        raise


def make_directories(files: WritableFileSystem, path: str) -> None:
    """Create the missing directories of ``path``, each durable before the next."""
    directory = ""
    for name in path_parts(path, WriteFailed):
        below = join(directory, name)
        status = files.find_stat(below)
        if status is None:
            files.mkdir(below)
            files.fsync_dir(directory)
        elif status.kind is not Kind.DIRECTORY:
            shown = files.shown(below)
            raise WriteFailed(
                f"{shown} is a {status.kind}, not a directory",
                file=shown,
                hint="move it away, then run the command again",
            )
        directory = below


def merged(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Join extents that touch or overlap; they must come in ascending order."""
    current: Extent | None = None
    for extent in extents:
        if current is None:
            current = extent
        elif extent.file_offset <= current.end:
            current = Extent(current.file_offset, max(current.end, extent.end) - current.file_offset)
        else:
            yield current
            current = extent
    if current is not None:
        yield current


def iter_tree(files: ReadableFileSystem, path: str = "") -> Iterator[tuple[str, Kind]]:
    """Yield everything below a directory, a directory before its entries, in the order of the names."""
    for entry in files.listdir(path):
        below = join(path, entry.name)
        yield below, entry.kind
        if entry.kind is Kind.DIRECTORY:
            yield from iter_tree(files, below)


_CHUNK = 1 << 20


def copy_tree(source: ReadableFileSystem, target: WritableFileSystem) -> list[str]:
    """Copy every file and directory into an empty ``target``, durably; return the paths that are neither.

    Modes and times are those of the source; owner and group are those of the target, so that everybody who can read a
    store can copy it. A copy that fails is left incomplete, and the caller removes it or does not give it a name.
    """
    if target.listdir():
        raise WriteFailed(
            f"{target.shown('')} is not empty: its files would mix with the copy",
            file=target.shown(""),
            hint="name a new or empty directory",
        )
    left_out = []
    directories = [""]
    for path, kind in iter_tree(source):
        if kind is Kind.DIRECTORY:
            target.mkdir(path)
            directories.append(path)
        elif kind is Kind.FILE:
            _copy_file(source, path, target)
        else:
            left_out.append(path)
    for directory in reversed(directories):
        _copy_attributes(source, directory, target)
        target.fsync_dir(directory)
    return left_out


def copy_data(source: ReadableFile, target: WritableFile) -> None:
    """Give an empty ``target`` the size and the bytes of ``source``; holes stay holes."""
    size = source.size()
    target.truncate(size)
    for extent in source.iter_data(0, size):
        for file_offset in range(extent.file_offset, extent.end, _CHUNK):
            target.pwrite(source.pread_exactly(min(_CHUNK, extent.end - file_offset), file_offset), file_offset)


def _copy_file(source: ReadableFileSystem, path: str, target: WritableFileSystem) -> None:
    with source.open_read(path) as old, target.create(path) as new:
        copy_data(old, new)
        _copy_attributes(source, path, target)
        new.fsync()


def _copy_attributes(source: ReadableFileSystem, path: str, target: WritableFileSystem) -> None:
    wanted, present = source.stat(path), target.stat(path)
    target.set_attributes(path, Attributes(wanted.mode, present.owner, present.group, wanted.mtime_ns))
