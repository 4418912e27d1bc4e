"""Ctrl-C while a store is open: a call that has begun is finished, and only then is it interrupted.

Python raises KeyboardInterrupt between any two instructions of the main thread: in a put that is after a number was
given and before its record stands in the log, and nobody could say what is on the disk. So while a store is open the
signal is kept back as long as a call that must come to its end is on the stack of the main thread, which costs such a
call nothing until a signal comes. Whoever handles the signal differently keeps doing so.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import CodeType, FrameType
from typing import Concatenate, Final, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Given = ParamSpec("Given")
Result = TypeVar("Result")


class Interrupts:
    """Keeps the signal back; one for the process, as signals are."""

    def __init__(self) -> None:
        # Whether the signal came and was kept back.
        self.pending = False
        self._calls: set[CodeType] = set()
        self._open_stores = 0

    def keep_from(self, call: Callable[Given, Result]) -> Callable[Given, Result]:
        """Have a function come to its end; who calls it asks ``pending`` behind it."""
        self._calls.add(call.__code__)
        return call

    def begin(self) -> None:
        """A store is about to be opened."""
        # A store that could not be closed may have left one behind: its own error was told instead.
        self.pending = self.pending and self._open_stores > 0
        self._open_stores += 1
        # Asked for with every store: while others were open, somebody may have set the signal back.
        is_ours = threading.current_thread() is threading.main_thread()
        if is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._take)

    def end(self) -> None:
        """A store is closed."""
        self._open_stores -= 1
        is_ours = threading.current_thread() is threading.main_thread()
        if is_ours and not self._open_stores and signal.getsignal(signal.SIGINT) == self._take:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def deliver(self) -> None:
        """Interrupt the main thread now, unless a call above must come to its end, too."""
        if self.is_due():
            self.pending = False
            raise KeyboardInterrupt

    def is_due(self) -> bool:
        """Tell whether ``deliver`` would interrupt here."""
        is_ours = threading.current_thread() is threading.main_thread()
        return self.pending and is_ours and not self._is_inside(sys._getframe(1))

    def _take(self, _number: int, frame: FrameType | None) -> None:
        self.pending = True
        if not self._is_inside(frame):
            self.pending = False
            raise KeyboardInterrupt

    def _is_inside(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code in self._calls:
                return True
            frame = frame.f_back
        return False


INTERRUPTS: Final = Interrupts()


def to_the_end(
    method: Callable[Concatenate[Owner, Given], Result],
) -> Callable[Concatenate[Owner, Given], Result]:
    """Let a method come to its end before Ctrl-C interrupts; an error of its own goes first."""
    INTERRUPTS.keep_from(method)

    @wraps(method)
    def call(owner: Owner, /, *given: Given.args, **named: Given.kwargs) -> Result:
        result = method(owner, *given, **named)
        if INTERRUPTS.pending:
            INTERRUPTS.deliver()
        return result

    return call
