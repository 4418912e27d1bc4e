"""Java's arithmetic and text rules, wherever stored bytes depend on them.

Brokers hash with ``String.hashCode``, order keys with ``HashMap``, and read numbers from texts with
``Integer.parseInt`` and its relatives. Every number that a broker reads from a text is read here: Python's ``int`` and
``float`` accept underscores, blanks, ``inf`` and digits that Java refuses, and refuse suffixes and thousands of digits
that Java accepts.

Upstream: ``String.hashCode``, ``HashMap.put``, ``UtilAll.crc32``, ``new String(bytes, UTF_8)``, ``Integer.parseInt``.
"""

from __future__ import annotations

import codecs
import math
import re
import zlib
from functools import cache

from rmqtool import kernel

TYPE_CHECKING = False  # without the module typing: everything imports this one
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    Key = TypeVar("Key", str, int)

SHORT_MIN = -(1 << 15)
SHORT_MAX = (1 << 15) - 1
INT_MIN = -(1 << 31)
INT_MAX = (1 << 31) - 1
LONG_MIN = -(1 << 63)
LONG_MAX = (1 << 63) - 1

# The characters that String.trim removes; Double.valueOf removes them too.
BLANKS = "".join(map(chr, range(0x21)))

# The numbers that Double.valueOf accepts, decimal and hexadecimal. A match leaves out the letter f or d at the end.
_DECIMAL = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?(?=[fFdD]?\Z)"
_HEXADECIMAL = r"[+-]?0[xX](?:[0-9a-fA-F]*+\.[0-9a-fA-F]++|[0-9a-fA-F]++\.?)[pP][+-]?[0-9]++(?=[fFdD]?\Z)"
_NAMED = {
    f"{sign}{name}": value
    for sign, factor in (("", 1.0), ("+", 1.0), ("-", -1.0))
    for name, value in (("NaN", math.nan), ("Infinity", factor * math.inf))
}


def int32(value: int) -> int:
    """Return ``value`` cut to 32 bits with a sign, as a Java ``int`` overflows."""
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def int64(value: int) -> int:
    """Return ``value`` cut to 64 bits with a sign, as a Java ``long`` overflows."""
    return value if LONG_MIN <= value <= LONG_MAX else ((value - LONG_MIN) & 0xFFFFFFFFFFFFFFFF) + LONG_MIN


def string_hash(text: str) -> int:
    """Return ``text.hashCode()``: 32 bits with a sign, over UTF-16 code units."""
    hashed = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            hashed = (31 * hashed + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            hashed = (31 * hashed + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def string_length(text: str) -> int:
    """Return ``text.length()``: the number of UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def crc31(data: bytes | bytearray | memoryview) -> int:
    """Return the checksum of a body: CRC-32 without its top bit, which upstream clears."""
    return zlib.crc32(data) & 0x7FFFFFFF


def fastest_crc32() -> Callable[[Any], int]:
    """Return the kernel's CRC-32 if it is built, else zlib's: same values, the kernel's several times as fast."""
    return zlib.crc32 if kernel.NATIVE is None else kernel.NATIVE.crc32


def hash_map_order(keys: Iterable[Key], bins: int) -> list[Key]:
    """Return ``keys`` in the order in which a ``HashMap`` iterates over them; ``bins`` is its initial size.

    Keys in one bin stay in the order of insertion. The table doubles when it is more than three quarters full. The
    order in a bin that has grown is a guess: Java keeps it while the bin is a list, and not when it has become a tree.
    """
    listed = list(dict.fromkeys(keys))
    while len(listed) > bins * 3 // 4:
        bins *= 2
    return sorted(listed, key=lambda key: _spread(key) & (bins - 1))


def _spread(key: str | int) -> int:
    """Return ``HashMap.hash``: the upper bits are folded into the lower ones, which choose the bin."""
    hashed = (string_hash(key) if isinstance(key, str) else int32(key)) & 0xFFFFFFFF
    return hashed ^ (hashed >> 16)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Return the text in place of malformed bytes, and where decoding goes on: the handler of ``java-replace``.

    As in Java, an encoded surrogate, even a cut one, is one U+FFFD. An error of encoding is raised again.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    at = error.start
    three = error.object[at : at + 3]
    if len(three) > 1 and three[0] == 0xED and 0xA0 <= three[1] <= 0xBF:
        whole = len(three) == 3 and 0x80 <= three[2] <= 0xBF
        return "\ufffd", at + (3 if whole else 2)
    return "\ufffd", error.end


codecs.register_error("java-replace", _replace_as_java)


def decode_text(data: bytes | bytearray | memoryview) -> str:
    """Return ``new String(data, UTF_8)``; malformed bytes become U+FFFD as in Java."""
    return str(data, "utf-8", "java-replace")


def encode_text(text: str) -> bytes:
    """Return ``text.getBytes(UTF_8)``; a lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


def remainder(value: int, divisor: int) -> int:
    """Return Java's ``value % divisor``, which has the sign of ``value``; ``divisor`` is positive."""
    return value % divisor if value >= 0 else -(-value % divisor)


def parse_short(text: str) -> int | None:
    """Return ``Short.parseShort(text)``, or None where that throws."""
    return _parse_integer(text, SHORT_MIN, SHORT_MAX)


def parse_int(text: str) -> int | None:
    """Return ``Integer.parseInt(text)``, or None where that throws."""
    return _parse_integer(text, INT_MIN, INT_MAX)


def parse_long(text: str) -> int | None:
    """Return ``Long.parseLong(text)``, or None where that throws."""
    return _parse_integer(text, LONG_MIN, LONG_MAX)


def _parse_integer(text: str, least: int, greatest: int) -> int | None:
    """Return an integer as Java's parse methods do: a sign, digits of any script, no blanks, in range; else None."""
    negative = text.startswith("-")
    digits = text[1:] if text.startswith(("-", "+")) else text
    if not digits:
        return None
    if not digits.isascii():
        digits = "".join(_ascii_digit(character) for character in digits)
    if not digits.isdecimal():
        return None
    digits = digits.lstrip("0")
    # Out of the range. Python's int would refuse thousands of digits with an error of its own.
    if len(digits) > len(str(greatest)):
        return None
    value = int(digits or "0")
    value = -value if negative else value
    return value if least <= value <= greatest else None


def _ascii_digit(character: str) -> str:
    """Return the digit that ``Character.digit`` sees in one ``char``: of any script, but not beyond U+FFFF."""
    import unicodedata  # imported here: only digits outside ASCII need it

    value = unicodedata.decimal(character, None) if character <= "\uffff" else None
    return "x" if value is None else str(value)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the pattern, compiled at its first use: everything imports this module, and few need a pattern."""
    return re.compile(pattern)


def parse_double(text: str) -> float | None:
    """Return ``Double.valueOf(text)``, or None where that throws."""
    text = text.strip(BLANKS)
    if found := _compiled(_DECIMAL).match(text):
        return float(found[0])
    if found := _compiled(_HEXADECIMAL).match(text):
        try:
            return float.fromhex(found[0])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    return _NAMED.get(text)


def parse_boolean(text: str) -> bool:
    """Return ``Boolean.valueOf(text)``: every text but ``true``, in any case, is false."""
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
