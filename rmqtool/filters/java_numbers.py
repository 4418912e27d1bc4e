"""Numbers out of text by Java's rules, and Java's order of doubles: what a comparison of a property depends on.

Python's ``int`` and ``float`` read other languages: underscores, ``inf``, digits of any plane, no suffixes.
"""

from __future__ import annotations

import math
import re
import unicodedata

from rmqtool.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

# What String.trim removes, and Double.valueOf with it.
BLANKS = "".join(map(chr, range(0x21)))

_DECIMAL = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?=[fFdD]?\Z)")
_HEXADECIMAL = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]*+\.[0-9a-fA-F]++|[0-9a-fA-F]++\.?)[pP][+-]?[0-9]++(?=[fFdD]?\Z)",
)
_NAMED = {
    f"{sign}{name}": value
    for sign, factor in (("", 1.0), ("+", 1.0), ("-", -1.0))
    for name, value in (("NaN", math.nan), ("Infinity", factor * math.inf))
}


def parse_int(text: str) -> int | None:
    """Return ``Integer.valueOf(text)``; None where that throws."""
    return _parse_integer(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int | None:
    """Return ``Long.valueOf(text)``; None where that throws."""
    return _parse_integer(text, LONG_MIN, LONG_MAX)


def _parse_integer(text: str, least: int, greatest: int) -> int | None:
    negative = text.startswith("-")
    digits = text[1:] if text.startswith(("-", "+")) else text
    if not digits:
        return None
    if not digits.isascii():
        digits = "".join(_ascii_digit(character) for character in digits)
    if not digits.isdecimal():
        return None
    digits = digits.lstrip("0")
    if len(digits) > len(str(greatest)):
        return None
    value = int(digits or "0")
    value = -value if negative else value
    return value if least <= value <= greatest else None


def _ascii_digit(character: str) -> str:
    """Return the digit that ``Character.digit`` of one ``char`` sees: any script's, of the first plane only."""
    value = unicodedata.decimal(character, None) if character <= "\uffff" else None
    return "x" if value is None else str(value)


def parse_double(text: str) -> float | None:
    """Return ``Double.valueOf(text)``; None where that throws."""
    text = text.strip(BLANKS)
    if found := _DECIMAL.match(text):
        return float(found[0])
    if found := _HEXADECIMAL.match(text):
        try:
            return float.fromhex(found[0])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    return _NAMED.get(text)


def parse_boolean(text: str) -> bool:
    """Return ``Boolean.valueOf(text)``: whatever is not ``true`` is false."""
    return text.isascii() and text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Return the sign of ``left.compareTo(right)``: −0.0 is below 0.0, NaN equals itself and is above everything."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key, right_key = (_rank(left), _rank(right))
    return (left_key > right_key) - (left_key < right_key)


def _rank(value: float) -> tuple[bool, float]:
    return math.isnan(value), 0.0 if math.isnan(value) else math.copysign(1.0, value)
