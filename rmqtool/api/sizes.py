"""Sizes as people type them. The units are powers of 1024, with or without the ``i``, as in a broker's settings."""

from __future__ import annotations

import re
from fractions import Fraction

from rmqtool.errors import UsageError

ACCEPTED = "Try 65536, 64k, 64KiB, 1.5GiB, 0x10000; k means 1024."

_SIZE = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?) ?(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE)
_HEX = re.compile(r"0x[0-9a-f_]+", re.IGNORECASE)
_UNITS = "kmgtp"


def parse_size(text: str) -> int:
    """Return a number of bytes."""
    word = text.strip()
    if _HEX.fullmatch(word):
        return int(word.replace("_", ""), 16) if word[2:].strip("_") else _refuse(text)
    match = _SIZE.fullmatch(word)
    if match is None:
        return _refuse(text)
    power = _UNITS.index(match[2].lower()) + 1 if match[2] else 0
    size = Fraction(match[1].replace("_", "")) * 1024**power
    return size.numerator if size.denominator == 1 else _refuse(text)


def _refuse(text: str) -> int:
    raise UsageError(f'"{text}" is not a size in bytes', hint=ACCEPTED)
