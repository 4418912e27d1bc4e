"""Progress: what long work calls as it advances. ``render`` decides what it looks like."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """One piece of long work, reported as it advances."""

    def start(self, what: str, total: int | None, unit: str) -> None:
        """Begin ``what``. ``total`` counts ``unit`` (``bytes``, ``messages``); None when it is not known."""

    def advance(self, amount: int) -> None:
        """Report that ``amount`` more of the unit is done."""

    def finish(self) -> None:
        """End the piece of work."""


class NoProgress:
    """A Progress that shows nothing."""

    def start(self, what: str, total: int | None, unit: str) -> None:
        """Show nothing."""

    def advance(self, amount: int) -> None:
        """Show nothing."""

    def finish(self) -> None:
        """Show nothing."""
