"""What is kept of a table between two lives of a process: a text with a copy of the last one, and when it is saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from rmqtool.engine.clock import Clock
from rmqtool.errors import StoreError
from rmqtool.formats.flaws import Flaw

Value = TypeVar("Value")

# Brokers and clients save ten seconds after they start, and every five from then on.
FIRST_SAVE, SAVE_PERIOD = 10_000, 5_000


class SavedText(Protocol):
    """A file with its copy; ``storage.config_writer.ConfigText`` is one on a disk."""

    def read_copies(self) -> list[tuple[str, bytes]]:
        """Return name and content of the file and of its copy, as far as they are there and hold something."""

    def write(self, data: bytes) -> None:
        """Make ``data`` what the file says, durably."""


class _NoText:
    """A text that is not there, and stays that way."""

    def read_copies(self) -> list[tuple[str, bytes]]:
        """Return nothing."""
        return []

    def write(self, data: bytes) -> None:  # noqa: ARG002
        """Nobody is to keep anything here."""
        raise AssertionError("what is only looked at is not saved")


NO_TEXT: SavedText = _NoText()


def load(text: SavedText, decode: Callable[[bytes], Value | Flaw]) -> Value | None:
    """Return the value of the file or, if that does not load, of its copy; None when there is neither.

    upstream: ``ConfigManager.load`` takes a file that does not parse, and has no copy, for an empty one, and the next
    save overwrites it. Here that is an error.
    """
    copies = text.read_copies()
    flaws = []
    for shown, data in copies:
        value = decode(data)
        if not isinstance(value, Flaw):
            return value
        flaws.append(f"{shown}: {value.message}")
    if not copies:
        return None
    raise StoreError(
        f"this file cannot be read, and going on would write over it: {'; '.join(flaws)}",
        file=copies[0][0],
        hint="put a saved copy of it back; or move it away, and all that it said is forgotten",
    )


class SaveSchedule:
    """When a table is saved: upstream's fixed rate, by a clock that never goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = clock.monotonic() + FIRST_SAVE

    def is_due(self) -> bool:
        """Tell whether it is time to save; times that were missed are made up for by one save."""
        late = self._clock.monotonic() - self._due
        if late < 0:
            return False
        self._due += (late // SAVE_PERIOD + 1) * SAVE_PERIOD
        return True
