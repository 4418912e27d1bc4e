"""What a store's files can do: the two protocols that every reader and every writer of a store is given.

Paths are ``str`` relative to the root of the file system, ``/`` between the names, ``""`` for the root itself. A name
cannot leave the root: absolute paths, ``.``, ``..``, empty names and NUL are refused. Links are never followed, neither
as a last name nor on the way to it. Only regular files are opened.

What can go wrong is a ``ReadFailed`` (``FileMissing`` when nothing is there) or a ``WriteFailed`` (``NoSpace`` when the
disk is full): they name the file, the operation, the reason and what to do next. A call that the kernel interrupts is
taken up again and is no error.

Durability is POSIX's, at its worst: what was written survives a power cut after ``fdatasync`` of the file; a new name,
a new directory, a rename or a removal after ``fsync_dir`` of the directory that holds the name; owner, mode and mtime
after ``fsync``. After a failed sync nothing can be said of what was written before it, and a second sync does not mend
that.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from rmqtool.errors import FileMissing, ReadFailed, WriteFailed

_NAME_LIMIT = 255
_OFFSET_LIMIT = 2**63 - 1
_VANISHED = "if a broker is running, it may have removed it: run the command again"
# So many are asked for owner and mode; the rest of a directory of a hundred thousand topics is not.
_NEIGHBOURS = 64

Buffer = bytes | bytearray | memoryview
Failure = type[ReadFailed] | type[WriteFailed]


class Kind(StrEnum):
    """What a directory entry is, links not followed."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    FIFO = "FIFO"
    SOCKET = "socket"
    CHARACTER_DEVICE = "character device"
    BLOCK_DEVICE = "block device"
    UNKNOWN = "unknown"


class Entry(NamedTuple):
    """One name in a directory. ``is_link``: what it leads to is taken for it."""

    name: str
    kind: Kind
    is_link: bool = False


class Status(NamedTuple):
    """What ``lstat`` says of a file or directory; ``mode`` is the permission bits alone."""

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

    @property
    def identity(self) -> tuple[int, int, int, int, int]:
        """Two equal identities, taken at two times, are the same file with the same bytes."""
        return (self.device, self.inode, self.size, self.mtime_ns, self.ctime_ns)


class Attributes(NamedTuple):
    """What a file or directory is given beside its bytes; an ``mtime_ns`` of None leaves the time alone."""

    mode: int
    owner: int
    group: int
    mtime_ns: int | None = None

    @classmethod
    def of(cls, status: Status) -> Attributes:
        """Return what would make another file look like this one, its time included."""
        return cls(status.mode, status.owner, status.group, status.mtime_ns)


class Extent(NamedTuple):
    """A span of a file that may hold something else than zeros."""

    file_offset: int
    length: int

    @property
    def end(self) -> int:
        """The file offset behind the span."""
        return self.file_offset + self.length


class Space(NamedTuple):
    """Bytes of the disk beneath a file system; ``available`` is what this process may still use."""

    total: int
    free: int
    available: int

    @property
    def used_percent(self) -> int:
        """How full the disk is, rounded up; what only root may use counts neither as used nor as usable."""
        used = self.total - self.free
        return -(-100 * used // self._counted) if self._counted else 0

    @property
    def used_ratio(self) -> float:
        """The same, not rounded, as a share of 1."""
        return (self.total - self.free) / self._counted if self._counted else 0.0

    @property
    def _counted(self) -> int:
        return self.total - self.free + self.available


class LockState(NamedTuple):
    """Whether somebody holds the store's lock, and which process, where the kernel tells."""

    held: bool
    pid: int | None = None

    def __str__(self) -> str:
        return "held" if self.held else "free"


class Closable(Protocol):
    """Something to be closed, by hand or by ``with``. Closing twice is the same as closing once."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ReadableFile(Closable, Protocol):
    """One open regular file. Its methods may be called from several threads at once.

    There is no map of the file: a mapped file that shrinks, or a bad sector beneath a map, kills the process, where
    ``pread`` raises. Who needs a buffer brings one to ``pread_into``.
    """

    path: str
    # The path as a person knows it; errors carry it.
    shown: str

    @abstractmethod
    def pread(self, length: int, file_offset: int) -> bytes:
        """Read ``length`` bytes; fewer only where the file ends.

        A file that has become shorter than it was when it was opened, so that the wanted bytes are gone, is an error.
        """

    def pread_exactly(self, length: int, file_offset: int) -> bytes:
        """Read ``length`` bytes, all of which must be there."""
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
        """Fill ``buffer``; return how many bytes there were. The rules of ``pread`` hold."""

    @abstractmethod
    def stat(self) -> Status:
        """Return what the file is now; its ``identity`` tells whether it changed."""

    def size(self) -> int:
        """Return the size that the file has now."""
        return self.stat().size

    @abstractmethod
    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        """Walk over the spans between ``file_offset`` and ``end`` that may hold data, ascending and apart.

        What lies between them is a hole and reads as zeros. A file system that knows no holes reports one span.
        """


class WritableFile(ReadableFile, Protocol):
    """One regular file, open for reading and writing."""

    @abstractmethod
    def pwrite(self, data: Buffer, file_offset: int) -> None:
        """Write all of ``data``, or raise; the file grows where needed. After an error any part may be written."""

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
    """The files beneath one root, for looking at. Nothing here can change them, their times excepted by the kernel."""

    @abstractmethod
    def open_read(self, path: str) -> ReadableFile:
        """Open a regular file; anything else that bears the name is an error, and is not waited for."""

    @abstractmethod
    def listdir(self, path: str = "") -> list[Entry]:
        """Return what a directory holds, in the order of the names."""

    @abstractmethod
    def find_stat(self, path: str) -> Status | None:
        """Return what bears the name, or None if nothing does. A link on the way to it is an error."""

    def stat(self, path: str) -> Status:
        """Return what bears the name."""
        found = self.find_stat(path)
        if found is None:
            raise FileMissing(f"{self.shown(path)} does not exist", file=self.shown(path), hint=_VANISHED)
        return found

    def exists(self, path: str) -> bool:
        """Tell whether anything bears the name."""
        return self.find_stat(path) is not None

    def is_directory(self, path: str) -> bool:
        """Tell whether the name is a directory's, links not followed."""
        found = self.find_stat(path)
        return found is not None and found.kind is Kind.DIRECTORY

    @abstractmethod
    def space(self) -> Space:
        """Return how full the disk is."""

    @abstractmethod
    def lock_state(self, path: str = "lock") -> LockState:
        """Tell whether the broker's lock is held, without touching it. No such file: it is free."""

    def shown(self, path: str) -> str:
        """Return ``path`` as a person knows it; errors carry it."""
        return path or "."


class WritableFileSystem(ReadableFileSystem, Protocol):
    """The files beneath one root, for changing.

    What is created takes owner, group and mode of the files (directories) it lies among: a store that root has worked
    on at night must open for the broker's user in the morning.
    """

    @abstractmethod
    def create(self, path: str, size: int = 0) -> WritableFile:
        """Create a regular file of ``size`` zeros whose room on the disk is reserved; open it. The name must be free.

        On an error the name is free again.
        """

    @abstractmethod
    def open_write(self, path: str) -> WritableFile:
        """Open a regular file that exists."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a regular file another name; a regular file that bears it is replaced in the same instant."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a regular file."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create one directory in a directory that exists. The name must be free."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def fsync_dir(self, path: str = "") -> None:
        """Make the names that a directory holds durable."""

    @abstractmethod
    def set_attributes(self, path: str, attributes: Attributes) -> None:
        """Give a regular file or a directory owner, group, mode and time."""

    @abstractmethod
    def lock(self, path: str = "lock") -> Closable:
        """Take the broker's lock, creating its file as a broker does; ``StoreInUse`` if somebody has it.

        Closing what is returned gives it back; the file stays.
        """


def path_parts(path: str, error: Failure = ReadFailed) -> tuple[str, ...]:
    """Return the names of a path; raise ``error`` for a path that could leave the root or cannot be a file's."""
    if not path:
        return ()
    parts = tuple(path.split("/"))
    for name in parts:
        if reason := _unfit(name):
            raise error(f"{path!r} is not a path in the store: {reason}", file=path)
    return parts


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
    """Return the path of ``name`` in ``directory``."""
    return f"{directory}/{name}" if directory else name


def split(path: str) -> tuple[str, str]:
    """Return the directory that holds ``path``, and its last name."""
    directory, _, name = path.rpartition("/")
    return directory, name


def require_range(file: str, length: int, file_offset: int, error: Failure = ReadFailed) -> None:
    """Raise ``error`` for a span that no file can have: lengths and offsets come from bytes that may be damaged."""
    if length < 0 or file_offset < 0 or length + file_offset > _OFFSET_LIMIT:
        raise error(f"{file} does not have {length} bytes at {file_offset}", file=file)


def require_unshrunk(file: str, wanted_end: int, found_end: int, size_at_open: int) -> None:
    """Raise if bytes that a file had when it was opened are gone: it was cut beneath its reader."""
    if found_end < min(wanted_end, size_at_open):
        raise ReadFailed(
            f"{file} was cut while it was read: it had {size_at_open} bytes, and ends before {found_end + 1} now",
            file=file,
            offset=found_end,
            hint="run the command again; if a broker is running, it may be recovering the store",
        )


def neighbour_attributes(files: ReadableFileSystem, directory: str, kind: Kind) -> Attributes:
    """Return the owner, group and mode that most files (directories) of ``directory`` have.

    Where there are none, a new file takes owner and group of the directory, and its mode without the search bits.
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
    """Give a new file to be filled; it stays open. If that fails its name is free again."""
    file = files.create(path, size)
    try:
        yield file
    except WriteFailed:
        file.close()
        # The first error tells what is wrong; a name that cannot be freed either adds nothing to it.
        with suppress(WriteFailed):
            files.unlink(path)
        raise


def make_directories(files: WritableFileSystem, path: str) -> None:
    """Create the directories of ``path`` that are missing, each durable in the one that holds it."""
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
    """Join extents, ascending by their offsets, that touch or overlap each other."""
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
    """Walk over everything beneath a directory, each directory before what it holds, in the order of the names."""
    for entry in files.listdir(path):
        below = join(path, entry.name)
        yield below, entry.kind
        if entry.kind is Kind.DIRECTORY:
            yield from iter_tree(files, below)
