"""Ctrl-C, heard now and obeyed at a safe boundary."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody pressed Ctrl-C. Pressed again it interrupts wherever the command is."""

    def __init__(self) -> None:
        self.is_asked = False

    def __call__(self) -> bool:
        """Return whether to stop."""
        return self.is_asked

    def ask(self, _signal: int, _frame: FrameType | None) -> None:
        """Take note; the next one is not waited with."""
        self.is_asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def stopping() -> Iterator[Stop]:
    """Listen for Ctrl-C while the block runs."""
    stop = Stop()
    previous = signal.signal(signal.SIGINT, stop.ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)
