"""Work in several threads, its results in the order of the tasks.

Threads run in parallel while the interpreter's lock is released: while files are read, and while the kernel, Arrow or
numpy works on a whole buffer. At most one result more than there are threads waits, so memory stays flat.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from rmqtool.formats.layout import Buffer

Write = Callable[[Buffer], object]
# Given a task and a function that takes output, return a value.
Work = Callable[[Any, Write], Any]


class Done(NamedTuple):
    """The result of a task: the value, and what was written, in pieces."""

    value: Any
    data: list[Buffer]


class _Task:
    """A task, and the box into which a thread puts its result."""

    __slots__ = ("box", "what")

    def __init__(self, what: Any) -> None:
        self.what = what
        self.box: SimpleQueue[Done | BaseException] = SimpleQueue()

    def result(self) -> Done:
        """Wait for the result of the task; raise the error that ended it."""
        found = self.box.get()
        if isinstance(found, BaseException):
            raise found
        return found


def run_in_order(works: Sequence[Work], tasks: Iterable[Any]) -> Generator[Done, None, None]:
    """Yield the result of each task, in the order of the tasks, with a thread for each of ``works``.

    A thread calls only its own work. Closing the iterator waits for the tasks that have begun, and starts no more.
    """
    waiting: SimpleQueue[_Task | None] = SimpleQueue()
    threads = [threading.Thread(target=_serve, args=(work, waiting), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    given: deque[_Task] = deque()
    try:
        for what in tasks:
            given.append(_Task(what))
            waiting.put(given[-1])
            if len(given) > len(threads):
                yield given.popleft().result()
        while given:
            yield given.popleft().result()
    finally:
        while not waiting.empty():
            waiting.get_nowait()
        for _ in threads:
            waiting.put(None)
        for thread in threads:
            thread.join()


def _serve(work: Work, waiting: SimpleQueue[_Task | None]) -> None:
    """Do one task after the other, up to the None that ends them."""
    while (task := waiting.get()) is not None:
        written: list[Buffer] = []
        try:
            task.box.put(Done(work(task.what, written.append), written))
        except BaseException as error:
            task.box.put(error)
