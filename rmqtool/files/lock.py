"""The broker's lock: an exclusive lock of the operating system on the first byte of the file ``lock``.

A broker takes it with ``FileChannel.tryLock(0, 1, false)``, which is a POSIX record lock (``fcntl``); ``flock`` would
not see it. Two properties of such locks decide what this module does:

* They belong to the process. A second attempt of the same process succeeds, so the locks that this process holds are
  kept in a table, and the table is asked first.
* They vanish when the process closes *any* descriptor of the file, also one that was opened only to read it. Every
  descriptor of a store is therefore closed through ``close_descriptor``, which puts off the closing of a file whose
  lock is held. Who opens ``lock`` by other means while this process holds it gives it away.

The table does not outlive a fork: the child holds none of its parent's locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

from rmqtool.errors import StoreInUse
from rmqtool.files.failures import read_failed, write_failed
from rmqtool.files.filesystem import Closable, LockState, WritableFile

LOCK_CONTENT = b"lock"

_START, _LENGTH = 0, 1


class _Table:
    """The locks of this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew, in a child of the process; another thread of its parent may have had the guard."""
        self.guard = threading.RLock()
        # (device, inode) of each file whose lock is held → descriptors whose closing waits for the end of the lock.
        self.waiting: dict[tuple[int, int], list[int]] = {}


_held = _Table()
os.register_at_fork(after_in_child=_held.renew)


class StoreLock(Closable):
    """The lock on an open file, whose descriptor belongs to it from then on; if taking it fails it is closed."""

    def __init__(self, descriptor: int, file: str) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._key = _key(descriptor)
        with _held.guard:
            try:
                _take(descriptor, file)
            except BaseException:
                close_descriptor(descriptor)
                raise
            _held.waiting[self._key] = []

    def close(self) -> None:
        """Give the lock back. A child of the process that took it never had it, and gives nothing back."""
        with _held.guard:
            if self._descriptor < 0:
                return
            descriptor, self._descriptor = self._descriptor, -1
            if self._process != os.getpid():
                close_descriptor(descriptor)  # the child may hold the lock itself by now
                return
            for waiting in (descriptor, *_held.waiting.pop(self._key)):
                os.close(waiting)


def close_descriptor(descriptor: int) -> None:
    """Close a descriptor of a store's file; if this process holds that file's lock, when the lock is given back."""
    with _held.guard:
        waiting = _held.waiting.get(_key(descriptor)) if _held.waiting else None
        if waiting is None:
            os.close(descriptor)
        else:
            waiting.append(descriptor)


def probe(descriptor: int, file: str) -> LockState:
    """Ask who holds the lock, without taking it: a broker that starts in this very moment must not be disturbed."""
    with _held.guard:
        if _key(descriptor) in _held.waiting:
            return LockState(held=True, pid=os.getpid())
    try:
        return _holder(descriptor)
    except OSError as error:
        raise read_failed("ask for the lock of", file, error) from error


def write_content(file: WritableFile) -> None:
    """Write into the lock's file what a broker writes there, unless it stands there already."""
    if file.pread(len(LOCK_CONTENT), 0) != LOCK_CONTENT:
        file.pwrite(LOCK_CONTENT, 0)
        file.fdatasync()


def _take(descriptor: int, file: str) -> None:
    if _key(descriptor) in _held.waiting:
        raise _in_use(file, os.getpid())
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LENGTH, _START)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _in_use(file, probe(descriptor, file).pid) from error
        raise write_failed("lock", file, error) from error


def _holder(descriptor: int) -> LockState:
    from ctypes import Structure, c_int, c_longlong, c_short

    class RecordLock(Structure):
        """``struct flock`` of the operating system, as ``fcntl`` was compiled to take it."""

        _fields_ = (
            ("type", c_short),
            ("whence", c_short),
            ("start", c_longlong),
            ("length", c_longlong),
            ("pid", c_int),
        )

    question = bytes(RecordLock(fcntl.F_WRLCK, os.SEEK_SET, _START, _LENGTH, 0))
    answer = RecordLock.from_buffer_copy(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
    if answer.type == fcntl.F_UNLCK:
        return LockState(held=False)
    # 0 is a process of another container, -1 a lock that belongs to an open file and not to a process.
    return LockState(held=True, pid=answer.pid if answer.pid > 0 else None)


def _in_use(file: str, pid: int | None) -> StoreInUse:
    if pid == os.getpid():
        holder = "this process"
    elif pid is None:
        holder = "another process"
    else:
        holder = f"process {pid}{_name(pid)}"
    return StoreInUse(
        f"the store is in use: {holder} holds the lock; nothing was changed",
        file=file,
        hint="stop that process first; commands that only read (info, cat, check) still work",
    )


def _name(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        own = next((at for at, word in enumerate(words) if word.rsplit("/", 1)[-1] == "rmqtool"), None)
        if own is not None and own + 1 < len(words):
            return f" (rmqtool {words[own + 1]})"
        return f" ({Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()})"
    except OSError:  # it ended, or belongs to somebody else: its number must do
        return ""


def _key(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
