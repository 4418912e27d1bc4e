"""Numbers as Java computes and reads them, where a damaged store takes a broker to their edges."""

from __future__ import annotations

import re

from rmqtool.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

_INTEGER = re.compile(r"[+-]?\d+")


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
