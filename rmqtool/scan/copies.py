"""Copies of this process as workers: what it has loaded need not be loaded by each of them.

A copy has one thread, and whatever the others held is held for ever. So only a process with one thread is copied; the
system counts them, those of libraries too. The command line loads libraries in a way that they start none.
"""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable, Sequence

# No matrix is ever multiplied: threads for that would only spin. Arrow's own allocator keeps a third more memory than
# it needs for a few hundredths of time: one process alone may have that.
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
# What else starts a thread: an allocator that is part of Arrow.
_THREADLESS = {**FRUGAL, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_FAILED = 1


def load_without_threads() -> None:
    """Load the large libraries, if nobody has, so that they start no threads; the environment stays as it is."""
    before = os.environ.copy()
    os.environ.update({**_THREADLESS, **before})
    try:
        import numpy  # noqa: F401  (loaded for others)
        import pyarrow

        pyarrow.default_memory_pool()  # it is chosen when it is first asked for
    finally:
        os.environ.clear()
        os.environ.update(before)


def can_copy() -> bool:
    """Return whether this process has one thread."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # nobody counts
        return False


class Copy:
    """A copy of this process that runs ``serve`` and has nothing open but what is said, and stderr."""

    def __init__(self, serve: Callable[[], None], descriptors: Sequence[int]) -> None:
        self._status: int | None = None
        self.pid = os.fork()
        if not self.pid:
            _live(serve, descriptors)

    def send_signal(self, number: int) -> None:
        """Send a signal to the copy, unless its end is known."""
        if self._status is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for the end of the copy; return its status, negative when a signal ended it."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status


def _live(serve: Callable[[], None], descriptors: Sequence[int]) -> None:
    """Be the copy; never return: what the caller would do next, or at its end, is not the copy's to do."""
    status = _FAILED
    try:
        gc.freeze()  # what the caller has open must not be closed here: its numbers are soon those of other files
        os.setsid()
        _hear_nobody()
        _let_go({*descriptors, 2})
        serve()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(status)


def _hear_nobody() -> None:
    """Give back the signals that the caller takes, as a new process would have them."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _let_go(kept: set[int]) -> None:
    """Close everything else; nothing is read from stdin nor written to stdout."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in kept:
            try:
                os.close(number)
            except OSError:  # the listing itself, which is closed by now
                continue
