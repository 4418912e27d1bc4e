"""Ctrl-C while a store is open: a call that has begun is finished, and only then is it interrupted.

A command hears SIGTERM and SIGHUP as Ctrl-C: ``listen`` asks for that, and ``end_as_asked`` ends the process by that
very signal once everything is closed, so that who sent it sees what it expects.

Python raises KeyboardInterrupt between any two instructions of the main thread: in a put that is after a number was
given and before its record stands in the log, and nobody could say what is on the disk. So while a store is open the
signal is kept back as long as a call that must come to its end is on the stack of the main thread, which costs such a
call nothing until a signal comes. Whoever handles the signal differently keeps doing so.
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


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Keeps the signals back; one for the process, as signals are."""

    def __init__(self) -> None:
        # Whether a signal came and was kept back.
        self.pending = False
        # The last one that came.
        self.number: int | None = None
        self._calls: set[CodeType] = set()
        self._open_stores = 0
        self._before: dict[int, Handler] = {}

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
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler in (signal.default_int_handler, interrupt):
                    self._before[number] = handler
                    signal.signal(number, self._take)

    def end(self) -> None:
        """A store is closed."""
        self._open_stores -= 1
        if threading.current_thread() is threading.main_thread() and not self._open_stores:
            for number, handler in self._before.items():
                if signal.getsignal(number) == self._take:
                    signal.signal(number, handler)
            self._before.clear()

    def deliver(self) -> None:
        """Interrupt the main thread now, unless a call above must come to its end, too."""
        if self.is_due():
            self.pending = False
            raise KeyboardInterrupt

    def is_due(self) -> bool:
        """Tell whether ``deliver`` would interrupt here."""
        is_ours = threading.current_thread() is threading.main_thread()
        return self.pending and is_ours and not self._is_inside(sys._getframe(1))

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.pending, self.number = True, number
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


def interrupt(number: int, _frame: FrameType | None) -> None:
    """Interrupt the main thread, as Ctrl-C does."""
    INTERRUPTS.number = number
    raise KeyboardInterrupt


def listen() -> None:
    """Hear SIGTERM and SIGHUP as Ctrl-C, where nobody has them ignored: nohup does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, interrupt)


def end_as_asked() -> None:
    """End the process by SIGTERM or SIGHUP, if one of them has stopped it: a shell then shows 143 or 129."""
    number = INTERRUPTS.number
    if number is not None and number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


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


class Stop:
    """Whether somebody pressed Ctrl-C. Pressed again it interrupts wherever the command is, unless that writes."""

    def __init__(self) -> None:
        self.is_asked = False
        # Whether the command waits for somebody now, and is to be interrupted there.
        self.raises = False
        # Whether it may be in the middle of what must come to its end.
        self.writes = False

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self.is_asked

    def ask(self, number: int, _frame: FrameType | None) -> None:
        """Take note, or interrupt."""
        INTERRUPTS.number = number
        is_again, self.is_asked = self.is_asked, True
        if self.raises or (is_again and not self.writes):
            raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stop]:
    """Listen for Ctrl-C, and for what is heard as it, while the block runs."""
    stop = Stop()
    heard = [number for number in SIGNALS if number == signal.SIGINT or callable(signal.getsignal(number))]
    previous = {number: signal.signal(number, stop.ask) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
