"""Changing a directory as a whole or not at all: a clone is prepared beside it, and the two exchange their names.

The clone begins with hard links, so it costs nothing. A file is copied before it is written, so nothing changes in the
original. If the process is killed at any point, the name belongs to the old directory or to the new one, each whole.
The other one stays beside it, and the next run removes it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rmqtool.errors import Refused, RmqtoolError, WriteFailed
from rmqtool.files.failures import os_error, write_failed
from rmqtool.files.filesystem import Attributes, Closable, Kind, Status, iter_tree
from rmqtool.files.lock import close_descriptor
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFile, PosixWritableFileSystem

NEW = "new"
# Arguments of renameat2(2), which Python does not offer.
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
# A leftover of a killed run is removed when it is this old, in seconds.
_LEFTOVER_AGE = 86_400
_CHUNK = 1 << 18
_ZEROS = bytes(_CHUNK)
# The unit of st_blocks.
_DISK_BLOCK = 512


def place_beside(directory: str) -> str:
    """Return the directory beside another one in which its replacement is prepared."""
    parent, name = os.path.split(os.path.realpath(directory))
    return os.path.join(parent, f".{name}.rmqtool-write")


@contextmanager
def held_place(directory: str) -> Iterator[str]:
    """Give the place beside a directory, locked: other processes wait for it. It is removed when it is empty."""
    place = place_beside(directory)
    while True:
        try:
            os.makedirs(place, exist_ok=True)
            descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # the process before removed it just now
        except OSError as error:
            raise write_failed("create", place, error) from error
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            break
        os.close(descriptor)
    try:
        _clear(place)
        yield place
    finally:
        shutil.rmtree(os.path.join(place, NEW), ignore_errors=True)
        with suppress(OSError):
            os.rmdir(place)
        os.close(descriptor)


def _clear(place: str) -> None:
    """Remove the leftovers of killed processes."""
    shutil.rmtree(os.path.join(place, NEW), ignore_errors=True)
    for entry in os.scandir(place):
        with suppress(OSError):
            if time.time() - entry.stat().st_mtime > _LEFTOVER_AGE:
                shutil.rmtree(entry.path, ignore_errors=True)


def require_replaceable(directory: str) -> None:
    """Raise Refused for a directory that cannot exchange its name."""
    if os.path.ismount(directory):
        raise Refused(
            f"{directory} is a mount point, which cannot be replaced as a whole",
            file=directory,
            hint="write to a new store in another directory",
        )


def clone(source: str, target: str) -> None:
    """Create ``target`` with the same content as ``source``, as hard links."""
    with PosixReadableFileSystem(source) as files, _failing("clone", source):
        os.mkdir(target)
        for path, kind in iter_tree(files):
            if kind is Kind.DIRECTORY:
                os.mkdir(os.path.join(target, path))
            elif kind is Kind.FILE:
                os.link(os.path.join(source, path), os.path.join(target, path), follow_symlinks=False)
            else:
                shown = os.path.join(source, path)
                hint = "write to a new store in another directory"
                raise Refused(
                    f"{shown} is a {kind}: a directory with one cannot be replaced as a whole", file=shown, hint=hint
                )
        directories = [path for path, kind in iter_tree(files) if kind is Kind.DIRECTORY]
        with PosixWritableFileSystem(target) as made:
            for path in ("", *directories):
                made.set_attributes(path, Attributes.of(files.stat(path)))


class ClonedFileSystem(PosixWritableFileSystem):
    """The files of a clone. The lock file is the same file as the original's, so its lock is held already."""

    def open_write(self, path: str) -> PosixWritableFile:
        self._make_own(path)
        return super().open_write(path)

    def set_attributes(self, path: str, attributes: Attributes) -> None:
        self._make_own(path)
        super().set_attributes(path, attributes)

    def lock(self, path: str = "lock") -> Closable:  # noqa: ARG002
        return _LockOfOriginal()

    def _make_own(self, path: str) -> None:
        status = self.find_stat(path)
        if status is not None and status.kind is Kind.FILE and status.links > 1:
            self._copy(path, status)

    def _copy(self, path: str, status: Status) -> None:
        """Copy a file. Zeros are not written, but reserved space is reserved again."""
        aside = f"{path}.own"
        with self.open_read(path) as old, self.create(aside, status.size if self._is_reserved(path) else 0) as new:
            new.truncate(status.size)
            for extent in old.iter_data(0, status.size):
                for file_offset in range(extent.file_offset, extent.end, _CHUNK):
                    data = old.pread_exactly(min(_CHUNK, extent.end - file_offset), file_offset)
                    if data != _ZEROS[: len(data)]:
                        new.pwrite(data, file_offset)
            super().set_attributes(aside, Attributes.of(status))
        self.rename(aside, path)

    def _is_reserved(self, path: str) -> bool:
        found = os.stat(os.path.join(self.root, path))
        return found.st_blocks * _DISK_BLOCK >= found.st_size


class _LockOfOriginal(Closable):
    """A lock that the original's owner holds."""

    def close(self) -> None:
        pass


def make_durable(directory: str) -> None:
    """Make all names below a directory durable."""
    with PosixWritableFileSystem(directory) as files:
        for path in ("", *(path for path, kind in iter_tree(files) if kind is Kind.DIRECTORY)):
            files.fsync_dir(path)


def publish(new: str, directory: str) -> None:
    """Give the prepared directory the name of ``directory`` in one step; the old one gets the other name."""
    with _failing("replace", directory):
        if os.path.isdir(directory) and os.listdir(directory):
            _exchange(new, directory)
        else:
            os.rename(new, directory)
        descriptor = os.open(os.path.dirname(directory), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            close_descriptor(descriptor)


def _exchange(one: str, other: str) -> None:
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise _unable(other)
    if call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        error = os_error(ctypes.get_errno())
        raise _unable(other) from error


def _unable(directory: str) -> Refused:
    return Refused(
        f"the file system of {directory} cannot exchange two directories, so nothing was changed",
        file=directory,
        hint="write to a new store in another directory",
    )


@contextmanager
def _failing(operation: str, directory: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_failed(operation, directory, error) from error


@contextmanager
def new_directory(path: str) -> Iterator[None]:
    """Create ``path`` if it does not exist; if filling it fails, remove everything that was put there.

    Then the same command can be typed again, and no half store is left.
    """
    was_there = os.path.isdir(path)
    try:
        os.makedirs(path, exist_ok=True)
        before = set(os.listdir(path))
    except OSError as error:
        raise WriteFailed(
            f"{path} cannot be made: {error.strerror}", file=path, hint="name a directory that you can write to"
        ) from error
    try:
        yield
    except (RmqtoolError, KeyboardInterrupt):
        for name in set(os.listdir(path)) - before:
            _remove_all(os.path.join(path, name))
        if not was_there:
            os.rmdir(path)
        raise


def _remove_all(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
