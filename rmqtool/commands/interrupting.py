"""Ctrl-C, heard now and obeyed at a safe boundary."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rmqtool.engine.interrupts import INTERRUPTS, SIGNALS, end_as_asked, listen

__all__ = ["Stop", "end_as_asked", "listen", "stopping"]


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
