"""Numbers as Java computes and reads them, where a damaged store takes a broker to their edges."""

from __future__ import annotations

import re

from rmqtool.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

_INTEGER = re.compile(r"[+-]?\d+")
_LONG_RANGE = 1 << 64


def wrap_long(value: int) -> int:
    """Wrap ``value`` as a Java ``long`` does."""
    return value if LONG_MIN <= value <= LONG_MAX else (value - LONG_MIN) % _LONG_RANGE + LONG_MIN


def java_remainder(value: int, divisor: int) -> int:
    """Return ``value % divisor`` with the sign of ``value``."""
    return value % divisor if value >= 0 else -(-value % divisor)


def parse_long(text: str) -> int | None:
    """Return what ``Long.parseLong`` makes of ``text``; None where it throws."""
    return _parse(text, LONG_MIN, LONG_MAX)


def parse_int(text: str) -> int | None:
    """Return what ``Integer.parseInt`` makes of ``text``; None where it throws."""
    return _parse(text, INT_MIN, INT_MAX)


def _parse(text: str, lowest: int, highest: int) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    value = int(text)
    return value if lowest <= value <= highest else None
