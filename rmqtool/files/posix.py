"""The real files of a store, for reading. Nothing in this module can create, change or remove a file.

Each name is opened relative to the directory before it and without following links, so no path can leave the root, even
if directories are renamed meanwhile. There is one exception: readers follow a link in place of ``commitlog``, as a
broker does, because people move the log to a disk of its own in this way. A name that is not a regular file is refused
before it is opened: opening a FIFO can wake its writer, and opening a device can do anything.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from rmqtool.errors import ReadFailed, RmqtoolError
from rmqtool.files import lock
from rmqtool.files.failures import os_error, read_failed
from rmqtool.files.filesystem import (
    Closable,
    Entry,
    Extent,
    Failure,
    Kind,
    LockState,
    NotInMemory,
    ReadableFile,
    ReadableFileSystem,
    Space,
    Status,
    path_parts,
    require_range,
    require_unshrunk,
)
from rmqtool.files.object_storage import is_object_address, refuse_writing
from rmqtool.formats import paths

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Names in the root of a store that may be links when the store is read.
FOLLOWED = (paths.COMMIT_LOG,)
# pread allocates the wanted length before it reads. Larger lengths are limited by the size of the file first.
_TRUSTED_LENGTH = 1 << 20
# Linux reads what is in memory and nothing else, if it is asked to. Some file systems do not know the question.
_AT_ONCE = os.RWF_NOWAIT if hasattr(os, "RWF_NOWAIT") else 0
_DOES_NOT_TELL = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
# Fetched are whole blocks of this size: who reads a range mostly reads on.
_FETCHED = 256 << 10

_KINDS = {
    modes.S_IFREG: Kind.FILE,
    modes.S_IFDIR: Kind.DIRECTORY,
    modes.S_IFLNK: Kind.SYMLINK,
    modes.S_IFIFO: Kind.FIFO,
    modes.S_IFSOCK: Kind.SOCKET,
    modes.S_IFCHR: Kind.CHARACTER_DEVICE,
    modes.S_IFBLK: Kind.BLOCK_DEVICE,
}


def status_of(found: os.stat_result) -> Status:
    """Return a result of ``stat`` as a Status."""
    return Status(
        kind=_KINDS.get(modes.S_IFMT(found.st_mode), Kind.UNKNOWN),
        size=found.st_size,
        mode=modes.S_IMODE(found.st_mode),
        owner=found.st_uid,
        group=found.st_gid,
        links=found.st_nlink,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
        device=found.st_dev,
        inode=found.st_ino,
    )


class PosixReadableFile(ReadableFile):
    """A descriptor of a regular file."""

    def __init__(self, descriptor: int, path: str, shown: str) -> None:
        self.path = path
        self.shown = shown
        self._descriptor = descriptor
        self._size_at_open = os.fstat(descriptor).st_size
        self._is_read_exactly = False
        self._tells_memory = bool(_AT_ONCE)

    def pread(self, length: int, file_offset: int) -> bytes:
        require_range(self.shown, length, file_offset)
        try:
            if length > _TRUSTED_LENGTH:
                length = max(0, min(length, max(self.size(), self._size_at_open) - file_offset))
            found = os.pread(self._descriptor, length, file_offset)
            while len(found) < length:
                more = os.pread(self._descriptor, length - len(found), file_offset + len(found))
                if not more:
                    break
                found += more
        except OSError as error:
            raise self._read_failed(error, file_offset) from error
        if len(found) < length:
            require_unshrunk(self.shown, file_offset + length, file_offset + len(found), self._size_at_open)
        return found

    def pread_at_once(self, length: int, file_offset: int) -> bytes:
        if not self._tells_memory or length > _TRUSTED_LENGTH:
            return self.pread(length, file_offset)
        require_range(self.shown, length, file_offset)
        buffer = bytearray(length)
        try:
            found = os.preadv(self._descriptor, [buffer], file_offset, _AT_ONCE)
            if found == length:
                return bytes(buffer)
            if file_offset + found < self._size_at_open:
                raise self._not_in_memory(length, file_offset)
        except BlockingIOError:
            raise self._not_in_memory(length, file_offset) from None
        except OSError as error:
            if error.errno not in _DOES_NOT_TELL:
                raise self._read_failed(error, file_offset) from error
            self._tells_memory = False
        return self.pread(length, file_offset)

    def _not_in_memory(self, length: int, file_offset: int) -> NotInMemory:
        """Return the error for a range. Whole blocks are fetched, so that requests nearby share them."""
        low = file_offset - file_offset % _FETCHED
        high = file_offset + length + -(file_offset + length) % _FETCHED
        return NotInMemory((self.shown, low, high), partial(self._begin_fetch, low, high, file_offset, length))

    def _begin_fetch(self, low: int, high: int, file_offset: int, length: int) -> Callable[[], None]:
        try:
            descriptor = os.dup(self._descriptor)
        except OSError as error:
            raise self._read_failed(error, file_offset) from error

        def fetch() -> None:
            try:
                try:
                    os.pread(descriptor, high - low, low)
                except OSError:
                    # Perhaps the wanted bytes can be read.
                    os.pread(descriptor, length, file_offset)
            except OSError as error:
                raise self._read_failed(error, file_offset) from error
            finally:
                lock.close_descriptor(descriptor)

        return fetch

    def pread_into(self, buffer: bytearray | memoryview, file_offset: int) -> int:
        with memoryview(buffer).cast("B") as view:
            require_range(self.shown, len(view), file_offset)
            done = 0
            try:
                while done < len(view):
                    with view[done:] as rest:
                        more = os.preadv(self._descriptor, [rest], file_offset + done)
                    if not more:
                        break
                    done += more
            except OSError as error:
                raise self._read_failed(error, file_offset) from error
            if done < len(view):
                require_unshrunk(self.shown, file_offset + len(view), file_offset + done, self._size_at_open)
            return done

    def stat(self) -> Status:
        try:
            return status_of(os.fstat(self._descriptor))
        except OSError as error:
            raise read_failed("stat", self.shown, error) from error

    def iter_data(self, file_offset: int = 0, end: int | None = None) -> Iterator[Extent]:
        require_range(self.shown, 0, file_offset)
        end = self._whole_until(end)
        position = file_offset
        while position < end:
            try:
                start = os.lseek(self._descriptor, position, os.SEEK_DATA)
                stop = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole from here on
                    self._whole_until(end)
                    self._read_nothing_ahead()
                    return
                if error.errno != errno.EINVAL:
                    raise self._read_failed(error, position) from error
                start, stop = position, end  # a file system without holes
            if start > position or stop < self._size_at_open:
                self._read_nothing_ahead()
            if start < end:
                yield Extent(start, min(stop, end) - start)
            position = stop

    def _read_nothing_ahead(self) -> None:
        """Turn read-ahead off, because reserved space looks like data once it was read."""
        if not self._is_read_exactly and hasattr(os, "posix_fadvise"):
            self._is_read_exactly = True
            with suppress(OSError):  # this is advice, and not every file system takes it
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            try:
                lock.close_descriptor(descriptor)
            except OSError as error:
                raise self.close_failed(error) from error

    def close_failed(self, error: OSError) -> RmqtoolError:
        """Return the error for a failed close.

        A file that was only read has lost nothing, but its disk may be failing.
        """
        return read_failed("close", self.shown, error)

    def _whole_until(self, end: int | None) -> int:
        """Return where a walk over the file ends; raise if the file was cut before that."""
        size = self.size()
        require_unshrunk(self.shown, self._size_at_open if end is None else end, size, self._size_at_open)
        return size if end is None else min(end, size)

    def _read_failed(self, error: OSError, file_offset: int) -> ReadFailed:
        failure = read_failed("read", self.shown, error)
        failure.offset = file_offset
        return failure


class PosixReadableFileSystem(ReadableFileSystem):
    """The files below a real directory. The root itself may be a link, because the user named it.

    ``follow`` are names in the root that may be links to directories.
    """

    def __init__(self, root: str, follow: Collection[str] = ()) -> None:
        if "://" in root and is_object_address(root):
            refuse_writing(root)
        self.root = root
        self._follow = frozenset(follow)
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise read_failed("open", root, error) from error

    def open_read(self, path: str) -> PosixReadableFile:
        try:
            return PosixReadableFile(self._open_regular(path, READ), path, self.shown(path))
        except OSError as error:
            raise read_failed("open", self.shown(path), error) from error

    def listdir(self, path: str = "") -> list[Entry]:
        try:
            with self._directory(path) as descriptor, os.scandir(descriptor) as entries:
                found = [self._entry_of(entry, path) for entry in entries]
        except OSError as error:
            raise read_failed("list", self.shown(path), error) from error
        return sorted(found, key=lambda entry: entry.name)

    def find_stat(self, path: str) -> Status | None:
        try:
            if not path:
                return status_of(os.fstat(self._root))
            with self._parent(path) as (directory, name):
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if path in self._follow and modes.S_ISLNK(found.st_mode) and os.path.isdir(self.shown(path)):
                    found = os.stat(name, dir_fd=directory)
                return status_of(found)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise read_failed("stat", self.shown(path), error) from error

    def space(self) -> Space:
        try:
            found = os.fstatvfs(self._root)
        except OSError as error:
            raise read_failed("ask for the space of", self.root, error) from error
        return Space(
            total=found.f_blocks * found.f_frsize,
            free=found.f_bfree * found.f_frsize,
            available=found.f_bavail * found.f_frsize,
        )

    def lock_state(self, path: str = "lock") -> LockState:
        try:
            descriptor = self._open_regular(path, READ)
        except FileNotFoundError:
            return LockState(held=False)
        except OSError as error:
            raise read_failed("open", self.shown(path), error) from error
        try:
            return lock.probe(descriptor, self.shown(path))
        finally:
            lock.close_descriptor(descriptor)

    def share_lock(self, path: str = "lock") -> Closable | None:
        """Keep writers away from a store without writing into it; None if it has no lock file to be locked."""
        try:
            descriptor = self._open_regular(path, READ)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise read_failed("open", self.shown(path), error) from error
        return lock.StoreLock(descriptor, self.shown(path), shared=True)

    def shown(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root

    def close(self) -> None:
        descriptor, self._root = self._root, -1
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                raise read_failed("close", self.root, error) from error

    def _entry_of(self, entry: os.DirEntry[str], path: str) -> Entry:
        if not path and entry.name in self._follow and entry.is_symlink() and entry.is_dir():
            return Entry(entry.name, Kind.DIRECTORY, is_link=True)
        return Entry(entry.name, _kind_of(entry))

    @contextmanager
    def _parent(self, path: str, error: Failure = ReadFailed) -> Iterator[tuple[int, str]]:
        """Give a descriptor of the directory that holds ``path``, and the last name."""
        *steps, name = path_parts(path, error)
        directory = os.dup(self._root)
        try:
            for number, step in enumerate(steps):
                flags = _STEP & ~os.O_NOFOLLOW if number == 0 and step in self._follow else _STEP
                below = _open_step(step, flags, directory)
                os.close(directory)
                directory = below
            yield directory, name
        finally:
            os.close(directory)

    @contextmanager
    def _directory(self, path: str, error: Failure = ReadFailed) -> Iterator[int]:
        """Give a new descriptor of a directory, with a position of its own, so that two listings at once do not mix."""
        if path:
            with self._parent(path, error) as (directory, name):
                flags = _DIRECTORY & ~os.O_NOFOLLOW if path in self._follow else _DIRECTORY
                descriptor = _open_step(name, flags, directory)
        else:
            descriptor = os.open(".", _DIRECTORY, dir_fd=self._root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_regular(self, path: str, flags: int, error: Failure = ReadFailed) -> int:
        if not path:
            raise os_error(errno.EISDIR)
        with self._parent(path, error) as (directory, name):
            self._require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False), path, error)
            descriptor = os.open(name, flags, dir_fd=directory)
            try:
                # Check again what was opened: the name may have been given to another file in between.
                self._require_regular(os.fstat(descriptor), path, error)
            except BaseException:
                lock.close_descriptor(descriptor)
                raise
        return descriptor

    def _require_regular(self, found: os.stat_result, path: str, error: Failure) -> None:
        if modes.S_ISLNK(found.st_mode):
            raise os_error(errno.ELOOP)
        if not modes.S_ISREG(found.st_mode):
            shown = self.shown(path)
            raise error(
                f"{shown} is a {status_of(found).kind}, not a regular file", file=shown, hint="move it out of the store"
            )


def _open_step(name: str, flags: int, directory: int) -> int:
    """Open a directory by its name in another; a link gives another error than a file."""
    try:
        return os.open(name, flags, dir_fd=directory)
    except NotADirectoryError as refused:
        if modes.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise os_error(errno.ELOOP) from refused
        raise


def _kind_of(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return Kind.SYMLINK
    if entry.is_dir(follow_symlinks=False):
        return Kind.DIRECTORY
    if entry.is_file(follow_symlinks=False):
        return Kind.FILE
    try:
        return status_of(entry.stat(follow_symlinks=False)).kind
    except FileNotFoundError:  # it was removed between the two calls
        return Kind.UNKNOWN
