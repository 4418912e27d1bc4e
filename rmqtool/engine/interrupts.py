"""Delays Ctrl-C while a store is open: a call that has begun is finished first.

Python raises KeyboardInterrupt between any two instructions of the main thread. In a put that can be after a queue
offset was given and before the record is in the log; then it is unknown what is on disk. So the signal is kept back
while a protected call is on the stack of the main thread. This costs such a call nothing until a signal comes. A
program with its own signal handlers keeps them.

SIGTERM and SIGHUP count as Ctrl-C for commands, after ``listen``. ``end_as_asked`` then ends the process by that
signal, once everything is closed, so that its sender sees the usual status.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import CodeType, FrameType
from typing import Concatenate, Final, ParamSpec, TypeAlias, TypeVar

Handler: TypeAlias = Callable[[int, FrameType | None], object]
Owner = TypeVar("Owner")
Given = ParamSpec("Given")
Result = TypeVar("Result")


# The signals that end a command: Ctrl-C, a request to end, and a closed terminal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Keeps signals back. There is one for the process, because signals belong to the process."""

    def __init__(self) -> None:
        # Whether a signal was kept back and is not raised yet.
        self.pending = False
        # The last signal that came, for ``end_as_asked``; None before the first.
        self.number: int | None = None
        # The code of the protected functions: a frame on the stack is recognized by it.
        self._calls: set[CodeType] = set()
        self._open_stores = 0
        # The handlers that ``begin`` replaced, by signal.
        self._before: dict[int, Handler] = {}

    def keep_from(self, call: Callable[Given, Result]) -> Callable[Given, Result]:
        """Protect a function from interruption; its caller checks ``pending`` afterwards."""
        self._calls.add(call.__code__)
        return call

    def begin(self) -> None:
        """Take the signals over; call before a store is opened.

        Only Python's own handler and that of ``listen`` are replaced, and only in the main thread.
        """
        # A store that failed to close may have left a pending signal; its own error was raised instead.
        self.pending = self.pending and self._open_stores > 0
        self._open_stores += 1
        # Install the handler for each store: it may have been replaced while other stores were open.
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler in (signal.default_int_handler, interrupt):
                    self._before[number] = handler
                    signal.signal(number, self._take)

    def end(self) -> None:
        """Give the signals back after the last store; call after a store is closed, or could not be opened.

        A handler that the program installed meanwhile stays.
        """
        self._open_stores -= 1
        if threading.current_thread() is threading.main_thread() and not self._open_stores:
            for number, handler in self._before.items():
                if signal.getsignal(number) == self._take:
                    signal.signal(number, handler)
            self._before.clear()

    def deliver(self) -> None:
        """Raise KeyboardInterrupt if a signal is pending and no protected call is further up the stack.

        Other threads than the main one raise nothing; the signal stays pending.
        """
        if self.is_due():
            self.pending = False
            raise KeyboardInterrupt

    def is_due(self) -> bool:
        """Return whether ``deliver`` would raise here."""
        is_ours = threading.current_thread() is threading.main_thread()
        return self.pending and is_ours and not self._is_inside(sys._getframe(1))

    def _take(self, number: int, frame: FrameType | None) -> None:
        """Keep a signal back if it came inside a protected call; else raise at once."""
        self.pending, self.number = True, number
        if not self._is_inside(frame):
            self.pending = False
            raise KeyboardInterrupt

    def _is_inside(self, frame: FrameType | None) -> bool:
        """Return whether ``frame`` or one of its callers is a protected call."""
        while frame is not None:
            if frame.f_code in self._calls:
                return True
            frame = frame.f_back
        return False


INTERRUPTS: Final = Interrupts()


def interrupt(number: int, _frame: FrameType | None) -> None:
    """Handle a signal as Ctrl-C is handled: note its number, and raise KeyboardInterrupt."""
    INTERRUPTS.number = number
    raise KeyboardInterrupt


def listen() -> None:
    """Treat SIGTERM and SIGHUP as Ctrl-C, unless they are ignored (nohup ignores SIGHUP) or have another handler."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def end_as_asked() -> None:
    """End the process by SIGTERM or SIGHUP if one of them stopped it; a shell then shows status 143 or 129."""
    number = INTERRUPTS.number
    if number is not None and number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def to_the_end(
    method: Callable[Concatenate[Owner, Given], Result],
) -> Callable[Concatenate[Owner, Given], Result]:
    """Protect a method from interruption, and deliver a pending signal after it.

    If the method raises, its error is raised, and the signal stays pending.
    """
    INTERRUPTS.keep_from(method)

    @wraps(method)
    def call(owner: Owner, /, *given: Given.args, **named: Given.kwargs) -> Result:
        result = method(owner, *given, **named)
        if INTERRUPTS.pending:
            INTERRUPTS.deliver()
        return result

    return call


class Stop:
    """Whether the user pressed Ctrl-C.

    The first time the command stops at its next check. The second time it is interrupted at once, unless it is writing.
    """

    def __init__(self) -> None:
        self.is_asked = False
        # Whether the command only waits, so that the first Ctrl-C interrupts it at once.
        self.raises = False
        # Whether the command is writing, so that no Ctrl-C interrupts it.
        self.writes = False

    def __call__(self) -> bool:
        """Return whether a signal came since ``stopping`` began; a command asks between two steps."""
        return self.is_asked

    def ask(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal: note it for the next check, or raise at once."""
        INTERRUPTS.number = number
        is_again, self.is_asked = self.is_asked, True
        if self.raises or (is_again and not self.writes):
            raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stop]:
    """Collect Ctrl-C, and the signals that have a handler, while the block runs. Only for the main thread.

    The handlers from before are restored at the end.
    """
    stop = Stop()
    heard = [number for number in SIGNALS if number == signal.SIGINT or callable(signal.getsignal(number))]
    previous = {number: signal.signal(number, stop.ask) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
