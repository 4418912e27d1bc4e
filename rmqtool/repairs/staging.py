"""Makes a copy appear complete or not at all, even if it is killed.

The copy is written to a directory of its own beside its place, made durable there, and renamed. The next copy removes
what a killed one has left; a lock in the directory tells whether it is still running.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import BinaryIO

from rmqtool.errors import NoSpace, Refused, StoreInUse, WriteFailed
from rmqtool.files.failures import write_failed
from rmqtool.files.posix import PosixReadableFileSystem

_STORE, _LOST = "store", "lost-and-found"
_RUNNING, _COMPANIONS = "running", "companions.json"
_READ_BY_OTHERS = 0o044


class Staging:
    """The directory in which one copy is made. Use ``staged``."""

    def __init__(self, target: str) -> None:
        self.target = os.path.abspath(target)
        parent, name = os.path.split(self.target)
        self.parent = parent
        self.directory = os.path.join(parent, f".{name}.rmqtool-copy")
        self.store = os.path.join(self.directory, _STORE)
        self.lost = os.path.join(self.directory, _LOST)
        self.lost_target = f"{self.target}.{_LOST}"
        self._companions: list[tuple[str, str, int, int]] = []
        self._lock: BinaryIO | None = None

    def require_free(self) -> None:
        """Refuse a target that exists and is not empty."""
        for path in (self.target, self.lost_target):
            is_empty = os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)
            if os.path.lexists(path) and not is_empty:
                raise Refused(f"{path} already exists; it was left unchanged", file=path, hint="name another directory")
        if not os.path.isdir(self.parent):
            raise Refused(f"{self.parent} is not a directory", file=self.parent, hint=f"mkdir -p {self.parent}")

    def require_room(self, size: int) -> None:
        """Refuse a copy that will not fit."""
        with PosixReadableFileSystem(self.parent) as files:
            available = files.space().available
        if available < size:
            raise NoSpace(
                f"the copy needs up to {size} bytes, but only {available} are free; nothing was written",
                file=self.parent,
                hint="name a target on a larger disk, or select less (-t, -b, -e)",
            )

    def clear_dead(self) -> None:
        """Remove what a killed copy left."""
        if os.path.lexists(self.directory):
            with closing(self._locked()):
                self.clear()

    def prepare(self, like: str) -> None:
        """Create the directories, with owner, group and mode of the store ``like``."""
        wanted = os.stat(like)
        os.mkdir(self.directory, 0o700)
        try:
            self._lock = self._locked()
            os.mkdir(self.store)
            # The copy must not be more readable than the store. Files in it take their mode from the directory.
            os.chmod(self.store, wanted.st_mode & 0o777 & ~(_umask() & _READ_BY_OTHERS) | 0o700)
            _give(self.store, wanted)
        except BaseException:
            self.clear()
            raise

    def _locked(self) -> BinaryIO:
        """Take the lock of a running copy; the kernel releases it if the copy is killed."""
        file = open(os.path.join(self.directory, _RUNNING), "ab")  # noqa: SIM115  (the caller closes it)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise StoreInUse(
                f"another rmqtool is copying to {self.target}",
                file=self.directory,
                hint="wait for it, or name another directory",
            ) from None
        return file

    def accompany(self, path: str, place: str) -> None:
        """Rename ``path`` to ``place`` together with the copy.

        It is recorded first, so that a failed copy leaves neither.
        """
        found = os.lstat(path)
        self._companions.append((path, place, found.st_dev, found.st_ino))
        note = os.path.join(self.directory, _COMPANIONS)
        with open(f"{note}.new", "w", encoding="utf-8") as file:
            json.dump(self._companions, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{note}.new", note)
        _sync(self.directory)

    def appear(self) -> None:
        """Give the copy its name, after everything in it is durable and its companions have their names."""
        if os.path.isdir(self.lost):
            wanted = os.stat(self.store)
            os.chmod(self.lost, wanted.st_mode & 0o777)
            _give(self.lost, wanted)
            _sync_tree(self.lost)
            self.accompany(self.lost, self.lost_target)
        _sync_tree(self.store)
        for path, place, *_ in self._companions:
            os.rename(path, place)
            _sync(os.path.dirname(place))
        os.rename(self.store, self.target)
        _sync(self.parent)

    def clear(self) -> None:
        """Remove the directory. Companions of the copy are removed too, unless the copy has its name."""
        is_there = not os.path.lexists(self.store)
        for path, place, device, inode in self._noted():
            for one in (path,) if is_there else (path, place):
                with suppress(FileNotFoundError):
                    found = os.lstat(one)
                    if (found.st_dev, found.st_ino) == (device, inode):
                        shutil.rmtree(one) if os.path.isdir(one) else os.unlink(one)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _noted(self) -> list[tuple[str, str, int, int]]:
        try:
            with open(os.path.join(self.directory, _COMPANIONS), encoding="utf-8") as file:
                return [(path, place, device, inode) for path, place, device, inode in json.load(file)]
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()


def require_outside(path: str, sources: Iterable[str]) -> None:
    """Refuse a path within a source: sources are only read, and a broker does not start with foreign files."""
    for source in sources:
        real = os.path.realpath(source)
        if os.path.commonpath([real, os.path.realpath(path)]) == real:
            raise Refused(
                f"{path} is in {source}, which is only read; nothing was copied",
                file=path,
                hint="name a directory next to it",
            )


@contextmanager
def staged(target: str, like: str, size: int) -> Iterator[Staging]:
    """Prepare a copy of about ``size`` bytes; it appears at the end unless the block fails."""
    with closing(Staging(target)) as staging:
        try:
            staging.clear_dead()
            staging.require_free()
            staging.require_room(size)
            staging.prepare(like)
        except PermissionError as error:
            hint = "name a directory that you can write to"
            raise WriteFailed(f"{target} cannot be made: {error.strerror}", file=target, hint=hint) from error
        except OSError as error:
            raise write_failed("prepare", staging.directory, error) from error
        try:
            yield staging
            try:
                staging.appear()
            except OSError as error:
                raise write_failed("complete", staging.target, error) from error
        except BaseException as error:
            staging.clear()
            if isinstance(error, WriteFailed):
                error.hint = error.hint or "the copy was removed; fix the cause, then run it again"
            raise
        try:
            staging.clear()
        except KeyboardInterrupt:
            staging.clear()
            raise


def _give(path: str, wanted: os.stat_result) -> None:
    """Set owner and group of a directory. Only root may; others keep their own."""
    with suppress(PermissionError):
        os.chown(path, wanted.st_uid, wanted.st_gid)


def _sync_tree(root: str) -> None:
    for directory, _, names in os.walk(root):
        for name in names:
            _sync(os.path.join(directory, name))
        _sync(directory)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    """Return the umask of the process, which can only be read by setting it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask
