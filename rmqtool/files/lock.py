"""The broker's lock: an exclusive lock of the operating system on the first byte of the file ``lock``.

A broker takes it with ``FileChannel.tryLock(0, 1, false)``, a POSIX record lock (``fcntl``); ``flock`` would not see
it. Two properties of such locks decide how this module works:

* They belong to the process. A second attempt of the same process succeeds, so the locks of this process are in a
  table, which is asked first.
* They are lost when the process closes *any* descriptor of the file, even one opened only to read it. So all
  descriptors of files of a store are closed with ``close_descriptor``, which waits while the lock of that file is held.
  Code that opens and closes ``lock`` in another way loses the lock.

After a fork the table is empty: the child does not hold the locks of its parent.
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

# The span that FileChannel.tryLock(0, 1, false) locks.
_START, _LENGTH = 0, 1


class _Table:
    """The locks of this process."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start empty, with a new guard: after a fork, another thread of the parent may have held the old one."""
        self.guard = threading.RLock()
        # (device, inode) of each file whose lock is held -> descriptors that are closed when the lock is released.
        self.waiting: dict[tuple[int, int], list[int]] = {}


_held = _Table()
os.register_at_fork(after_in_child=_held.renew)


class StoreLock(Closable):
    """The lock on an open file. It owns the descriptor, and closes it if the lock cannot be taken.

    A ``shared`` lock only keeps writers away, and several processes may have it.
    """

    def __init__(self, descriptor: int, file: str, *, shared: bool = False) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._key = _key(descriptor)
        with _held.guard:
            try:
                _take(descriptor, file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            except BaseException:
                close_descriptor(descriptor)
                raise
            _held.waiting[self._key] = []

    def close(self) -> None:
        """Release the lock. A forked child never had it, so there it releases nothing."""
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
    """Close a descriptor of a store's file.

    If this process holds the file's lock, it is closed when the lock is released.
    """
    with _held.guard:
        waiting = _held.waiting.get(_key(descriptor)) if _held.waiting else None
        if waiting is None:
            os.close(descriptor)
        else:
            waiting.append(descriptor)


def probe(descriptor: int, file: str) -> LockState:
    """Return who holds the lock without taking it: a broker that is starting must not be disturbed."""
    with _held.guard:
        if _key(descriptor) in _held.waiting:
            return LockState(held=True, pid=os.getpid())
    try:
        return _holder(descriptor)
    except OSError as error:
        raise read_failed("ask for the lock of", file, error) from error


def write_content(file: WritableFile) -> None:
    """Write what a broker writes into the lock file, unless it is there already."""
    if file.pread(len(LOCK_CONTENT), 0) != LOCK_CONTENT:
        file.pwrite(LOCK_CONTENT, 0)
        file.fdatasync()


def _take(descriptor: int, file: str, kind: int) -> None:
    if _key(descriptor) in _held.waiting:
        raise _in_use(file, os.getpid())
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, _LENGTH, _START)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise _in_use(file, probe(descriptor, file).pid) from error
        raise write_failed("lock", file, error) from error


def _holder(descriptor: int) -> LockState:
    from ctypes import Structure, c_int, c_longlong, c_short

    class RecordLock(Structure):
        """``struct flock`` of the operating system, in the form that ``fcntl`` was compiled for."""

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
    # 0 is a process in another container, -1 a lock that belongs to an open file instead of a process.
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
    except OSError:  # it ended, or belongs to another user: its number must be enough
        return ""


def _key(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
