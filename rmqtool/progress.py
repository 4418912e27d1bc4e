"""Progress: what long work reports to. ``render`` decides how it looks."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the advance of one piece of long work."""

    def start(self, what: str, total: int | None, unit: str) -> None:
        """Begin ``what``; ``total`` in ``unit`` (``bytes``, ``messages``), or None when it is not known."""

    def advance(self, amount: int) -> None:
        """Add ``amount`` units done."""

    def finish(self) -> None:
        """End the piece of work."""


class NoProgress:
    """Progress that is not shown."""

    def start(self, what: str, total: int | None, unit: str) -> None:
        """Ignore the start."""

    def advance(self, amount: int) -> None:
        """Ignore the advance."""

    def finish(self) -> None:
        """Ignore the end."""
