"""Ctrl-C, heard now and obeyed at a safe boundary."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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

    def ask(self, _signal: int, _frame: FrameType | None) -> None:
        """Take note, or interrupt."""
        is_again, self.is_asked = self.is_asked, True
        if self.raises or (is_again and not self.writes):
            raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stop]:
    """Listen for Ctrl-C while the block runs."""
    stop = Stop()
    previous = signal.signal(signal.SIGINT, stop.ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)
