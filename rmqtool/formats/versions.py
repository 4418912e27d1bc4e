"""Versions of RocketMQ as this project speaks of them: ``4.9``, ``5.3``, ``5.4``, or an exact release."""

from __future__ import annotations

# What the short names of ``--as`` stand for: the release whose behaviour was recorded.
RELEASES = {"4.9": (4, 9, 8), "5.3": (5, 3, 3), "5.4": (5, 4, 0)}


def release(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare; ``4.9``, ``5.3`` and ``5.4`` are the releases they stand for.

    Raises ValueError when ``version`` is not numbers between dots.
    """
    return RELEASES.get(version) or tuple(int(part) for part in version.split("."))


def is_since(version: str, since: str) -> bool:
    """Return whether something that came with release ``since`` is there in ``version``."""
    return release(version) >= tuple(int(part) for part in since.split("."))
