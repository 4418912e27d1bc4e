"""The real files of a store, for writing: the system calls pwrite, fdatasync and fallocate.

Which segment is preallocated, and when, is decided in ``engine.commit_log``. Opening never creates a file, and creating
never opens an existing one.
"""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager

from rmqtool.errors import ReadFailed, RmqtoolError, WriteFailed
from rmqtool.files import lock
from rmqtool.files.failures import os_error, write_failed
from rmqtool.files.filesystem import (
    Attributes,
    Buffer,
    Closable,
    Kind,
    WritableFile,
    WritableFileSystem,
    neighbour_attributes,
    require_range,
    split,
)
from rmqtool.files.posix import READ, PosixReadableFile, PosixReadableFileSystem

_WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Modes at creation, until the new file gets the attributes of its neighbours.
_PRIVATE_FILE, _PRIVATE_DIRECTORY = 0o600, 0o700
# Offsets up to here need no check: no buffer is large enough to reach the largest file offset from there.
_TRUSTED_OFFSET = 1 << 62


class PosixWritableFile(PosixReadableFile, WritableFile):
    """A descriptor of a regular file, open for reading and writing."""

    def pwrite(self, data: Buffer, file_offset: int) -> None:
        if file_offset < 0 or file_offset > _TRUSTED_OFFSET:
            require_range(self.shown, memoryview(data).nbytes, file_offset, WriteFailed)
        try:
            done = os.pwrite(self._descriptor, data, file_offset)
            # Of most buffers the length is the number of bytes; asking a view of it takes longer than the comparison.
            if done != len(data):
                with memoryview(data).cast("B") as view:
                    while done < len(view):
                        with view[done:] as rest:
                            done += os.pwrite(self._descriptor, rest, file_offset + done)
        except OSError as error:
            failure = write_failed("write to", self.shown, error)
            failure.offset = file_offset
            raise failure from error

    def close_failed(self, error: OSError) -> RmqtoolError:
        return write_failed("close", self.shown, error)

    def truncate(self, size: int) -> None:
        require_range(self.shown, 0, size, WriteFailed)
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise write_failed("resize", self.shown, error) from error
        self._size_at_open = min(self._size_at_open, size)

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise write_failed("sync", self.shown, error) from error

    def fsync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise write_failed("sync", self.shown, error) from error

    def detach(self) -> int:
        """Return the descriptor; the caller owns it, and this file is closed."""
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor


class PosixWritableFileSystem(PosixReadableFileSystem, WritableFileSystem):
    """The files below a real directory, open for changes."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._neighbours: dict[tuple[str, Kind], Attributes] = {}

    def create(self, path: str, size: int = 0) -> PosixWritableFile:
        require_range(self.shown(path), 0, size, WriteFailed)
        try:
            with self._parent_for_change(path) as (directory, name):
                attributes = self._attributes_for_new(path, Kind.FILE)
                descriptor = os.open(name, _CREATE, _PRIVATE_FILE, dir_fd=directory)
                try:
                    _apply(descriptor, attributes)
                    if size:
                        os.posix_fallocate(descriptor, 0, size)
                except BaseException:
                    os.close(descriptor)
                    os.unlink(name, dir_fd=directory)
                    raise
        except OSError as error:
            raise write_failed("create", self.shown(path), error) from error
        return PosixWritableFile(descriptor, path, self.shown(path))

    def open_write(self, path: str) -> PosixWritableFile:
        try:
            return PosixWritableFile(self._open_regular(path, _WRITE, WriteFailed), path, self.shown(path))
        except OSError as error:
            raise write_failed("open", self.shown(path), error) from error

    def rename(self, source: str, target: str) -> None:
        try:
            with self._parent_for_change(source) as (old, old_name), self._parent_for_change(target) as (new, new_name):
                self._require_regular_at(old, old_name, source)
                if _exists(new, new_name):
                    self._require_regular_at(new, new_name, target)
                os.rename(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)
        except OSError as error:
            raise write_failed("rename", f"{self.shown(source)} to {self.shown(target)}", error) from error

    def unlink(self, path: str) -> None:
        try:
            with self._parent_for_change(path) as (directory, name):
                self._require_regular_at(directory, name, path)
                os.unlink(name, dir_fd=directory)
        except OSError as error:
            raise write_failed("remove", self.shown(path), error) from error

    def mkdir(self, path: str) -> None:
        try:
            with self._parent_for_change(path) as (directory, name):
                attributes = self._attributes_for_new(path, Kind.DIRECTORY)
                os.mkdir(name, _PRIVATE_DIRECTORY, dir_fd=directory)
                try:
                    self._apply_to(path, attributes)
                except BaseException:
                    os.rmdir(name, dir_fd=directory)
                    raise
        except OSError as error:
            raise write_failed("create", self.shown(path), error) from error

    def rmdir(self, path: str) -> None:
        try:
            with self._parent_for_change(path) as (directory, name):
                os.rmdir(name, dir_fd=directory)
        except OSError as error:
            raise write_failed("remove", self.shown(path), error) from error

    def fsync_dir(self, path: str = "") -> None:
        try:
            with self._directory(path, WriteFailed) as descriptor:
                os.fsync(descriptor)
        except OSError as error:
            raise write_failed("sync", self.shown(path), error) from error

    def set_attributes(self, path: str, attributes: Attributes) -> None:
        try:
            self._apply_to(path, attributes)
        except OSError as error:
            raise write_failed("change the attributes of", self.shown(path), error) from error

    def lock(self, path: str = "lock") -> Closable:
        held = lock.StoreLock(self._open_or_create(path).detach(), self.shown(path))
        try:
            with self.open_write(path) as file:
                lock.write_content(file)
        except BaseException:
            held.close()
            raise
        return held

    def _open_or_create(self, path: str) -> PosixWritableFile:
        if not self.exists(path):
            try:
                return self.create(path)
            except WriteFailed:
                if not self.exists(path):
                    raise
        return self.open_write(path)

    def _parent_for_change(self, path: str) -> AbstractContextManager[tuple[int, str]]:
        if not path:
            raise os_error(errno.EBUSY)
        return self._parent(path, WriteFailed)

    def _require_regular_at(self, directory: int, name: str, path: str) -> None:
        self._require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False), path, WriteFailed)

    def _attributes_for_new(self, path: str, kind: Kind) -> Attributes:
        directory, _ = split(path)
        known = self._neighbours.get((directory, kind))
        if known is None:
            try:
                known = neighbour_attributes(self, directory, kind)
            except ReadFailed as error:
                raise WriteFailed(error.message, file=error.file, hint=error.hint) from error
            self._neighbours[directory, kind] = known
        return known

    def _apply_to(self, path: str, attributes: Attributes) -> None:
        if self.stat(path).kind is Kind.DIRECTORY:
            with self._directory(path, WriteFailed) as descriptor:
                _apply(descriptor, attributes)
            return
        descriptor = self._open_regular(path, READ, WriteFailed)
        try:
            _apply(descriptor, attributes)
        finally:
            lock.close_descriptor(descriptor)


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _apply(descriptor: int, attributes: Attributes) -> None:
    """Set the attributes of an open file. Equal ones are not set, because only root may set an owner."""
    found = os.fstat(descriptor)
    if (found.st_uid, found.st_gid) != (attributes.owner, attributes.group):
        os.fchown(descriptor, attributes.owner, attributes.group)
    if found.st_mode & 0o7777 != attributes.mode:
        os.fchmod(descriptor, attributes.mode)
    if attributes.mtime_ns is not None:
        os.utime(descriptor, ns=(found.st_atime_ns, attributes.mtime_ns))
