"""A worker process of ``pool``: takes work, then tasks, until nobody is there any more.

Copies of this process as workers: what it has loaded need not be loaded by each of them.

A copy has one thread, and whatever the others held is held for ever. So only a process with one thread is copied; the
system counts them, those of libraries too. The command line loads libraries in a way that they start none.

Work in several processes, its results in the order of the tasks.

Workers are copies of a caller that has one thread. Those of any other are started anew: its threads and locks do not
matter. What they write goes through files in memory, which the caller maps. Of each worker at most two results wait, so
memory stays flat. Workers hear no Ctrl-C; they end when the caller closes their socket, or is gone.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from rmqtool.columns import arrow
from rmqtool.errors import Bug, RmqtoolError
from rmqtool.formats.layout import Buffer

# No matrix is ever multiplied: threads for that would only spin. Arrow's own allocator keeps a third more memory than
# it needs for a few hundredths of time: one process alone may have that.
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
# What else starts a thread: an allocator that is part of Arrow.
_THREADLESS = {**FRUGAL, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
_FAILED = 1


def load_without_threads(*, with_arrow: bool = True) -> None:
    """Load the large libraries, if nobody has, so that they start no threads; the environment stays as it is.

    Without Arrow that is loaded in the same way when somebody needs it.
    """
    arrow.SURROUNDINGS.update(_THREADLESS)
    before = os.environ.copy()
    os.environ.update({**_THREADLESS, **before})
    try:
        import numpy  # noqa: F401  (loaded for others)
    finally:
        os.environ.clear()
        os.environ.update(before)
    if with_arrow:
        arrow.load()


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


Write = Callable[[Buffer], object]
# What is done: given a task and where output goes, return a small value. Work, tasks and values are pickled.
Work = Callable[[Any, Write], Any]

# Reading so many bytes takes one process no longer than starting another.
ALONE = 64 << 20
_SLOTS = 2
# From this size on what a worker wrote is not copied.
_MAPPED = 1 << 20


class Done(NamedTuple):
    """What a worker made of a task: the value, and what was written, which stays until the next result is asked for."""

    value: Any
    data: Buffer


class Failed(NamedTuple):
    """What a worker says of work that raised."""

    error: RmqtoolError | None
    text: str


class Crew:
    """Workers that are started before their work is known: they load ``module`` while the caller prepares it."""

    def __init__(self, jobs: int, module: str) -> None:
        if can_copy():
            import_module(module)  # once for all
        self.waiting = [_Worker() for _ in range(jobs)]
        for worker in self.waiting:
            worker.connection.send(module)

    def close(self) -> None:
        """End those that got no work."""
        while self.waiting:
            self.waiting.pop().end()


def run_in_order(work: Work, tasks: Iterable[Any], jobs: int, crew: Crew | None = None) -> Generator[Done, None, None]:
    """Yield what ``work`` makes of each task, in the order of the tasks; closing the iterator ends the workers.

    Those of a ``crew`` are taken first. An ``RmqtoolError`` of the work is raised here. Raises ``Bug`` when a worker
    dies.
    """
    workers: list[_Worker] = []
    sent = done = 0
    try:
        for task in tasks:
            if sent >= jobs * _SLOTS:
                yield workers[done % jobs].receive(done // jobs)
                done += 1
            if sent < jobs:
                workers.append(crew.waiting.pop() if crew is not None and crew.waiting else _Worker())
                workers[-1].connection.send(work)
            workers[sent % jobs].send(sent // jobs, task)
            sent += 1
        for number in range(done, sent):
            yield workers[number % jobs].receive(number // jobs)
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.end()


class _Worker:
    """One process. Its n-th task uses slot ``n % _SLOTS``, free again when its result was received."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.slots = [os.memfd_create(f"rmqtool-{number}") for number in range(_SLOTS)]
        self.maps = [memoryview(b"")] * _SLOTS
        with theirs:
            descriptors = (theirs.fileno(), *self.slots)
            self.process = _copied(descriptors) if can_copy() else _started(descriptors)
        self.connection = Connection(ours.detach())

    def send(self, number: int, task: Any) -> None:
        """Hand over the worker's n-th task."""
        try:
            self.connection.send((number % _SLOTS, task))
        except BrokenPipeError:
            raise self._death() from None

    def receive(self, number: int) -> Done:
        """Wait for the result of the worker's n-th task."""
        try:
            answer = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        if isinstance(answer, Failed):
            raise answer.error or Bug(
                f"a worker process failed:\n{answer.text}", hint="Please report it; -j 1 works without such processes."
            )
        value, size = answer
        return Done(value, self._read(number % _SLOTS, size))

    def _read(self, slot: int, size: int) -> Buffer:
        """Return what was written: mapped, where it is so much that a copy would cost more.

        The map is kept: making one for each result costs the system a tenth of what making lines costs.
        """
        descriptor = self.slots[slot]
        if size >= _MAPPED:
            if size > len(self.maps[slot]):
                mapped = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
                self.maps[slot] = memoryview(mapped)
            return self.maps[slot][:size]
        data = os.pread(descriptor, size, 0)
        while len(data) < size:
            data += os.pread(descriptor, size - len(data), len(data))
        return data

    def _death(self) -> Bug:
        status = self.process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        hint = "if memory is short, use one process: -j 1"
        return Bug(f"a worker process {how} before its work was done", hint=hint)

    def stop(self) -> None:
        """End the process, whatever it does: it only reads."""
        self.connection.close()
        self.process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        """Wait until the process has ended. To give back its memory takes its time: stop all before."""
        self.stop()
        self.process.wait()
        for descriptor in self.slots:
            os.close(descriptor)


def _copied(descriptors: tuple[int, ...]) -> Copy:

    return Copy(lambda: main(descriptors), descriptors)


def _started(descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    # -P: what lies in the working directory is imported only if it was before.
    return subprocess.Popen(  # noqa: S603  (ourselves)
        [sys.executable, "-P", "-m", "rmqtool.log.workers", *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**FRUGAL, **os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        start_new_session=True,
    )


def main(descriptors: Sequence[int]) -> None:
    """Serve the caller at the other end of the first descriptor; the others are where output goes."""
    connection, slots = Connection(descriptors[0]), descriptors[1:]
    try:
        work = connection.recv()
        if isinstance(work, str):  # something to load, while the work is being prepared
            import_module(work)
            work = connection.recv()
        while True:
            slot, task = connection.recv()
            output = _Output(slots[slot])
            try:
                connection.send((work(task, output.write), output.size))
            except RmqtoolError as error:
                connection.send(Failed(error, str(error)))
            except Exception:
                connection.send(Failed(None, traceback.format_exc()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class _Output:
    """A file in memory, written from its start; what is left of before is behind ``size``."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = 0

    def write(self, data: Buffer) -> None:
        """Append ``data``."""
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                done += os.pwrite(self.descriptor, view[done:], self.size + done)
        self.size += len(data)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
