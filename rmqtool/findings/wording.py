"""Numbers of things in the texts of findings."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with what it counts: ``1 unit leads``, ``12 units lead``; without ``many`` an s makes it."""
    return f"{number} {one if number == 1 else many or one + 's'}"
