"""Numbers out of text, where Java and Python differ. Every value here is the answer of a JDK 17."""

from __future__ import annotations

import math

import pytest

from rmqtool.formats.java import compare_doubles, parse_boolean, parse_double, parse_int, parse_long


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+1", 1),
        ("-1", -1),
        ("007", 7),
        ("0" * 5000 + "7", 7),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("2147483648", None),
        ("-2147483649", None),
        ("9" * 5000, None),
        ("\u0661\u0662", 12),
        ("\uff15", 5),
        ("\U0001d7ce", None),
        ("\u00b2", None),
        *((text, None) for text in ("", "+", "-", "+-1", " 1", "1 ", "1_0", "1.0", "1L", "0x1", "one")),
    ],
)
def test_integers(text: str, value: int | None) -> None:
    assert parse_int(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775807", 9223372036854775807),
        ("-9223372036854775808", -9223372036854775808),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("5L", None),
    ],
)
def test_longs(text: str, value: int | None) -> None:
    assert parse_long(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.5f", 1.5),
        ("1D", 1.0),
        (" \t\x011.5\x00\n", 1.5),
        ("0x1p3", 8.0),
        ("-0X1.8P+1d", -3.0),
        ("0x.8p0", 0.5),
        ("0x1p99999999999", math.inf),
        ("-0x1p99999999999", -math.inf),
        ("0x0p99999999999", 0.0),
        ("0x1p-99999999999", 0.0),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("1e-400", 0.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("4.9E-324", 5e-324),
        *((text, None) for text in ("", ".", "e1", "1e", "1e+", "1_0", "inf", "infinity", "nan", "NaNf", "Infinityd")),
        *((text, None) for text in ("0x10", "0x1.8", "x", "1ff", "--1", "\u0661", "\u00a01", "1\u00a0", "1 f")),
    ],
)
def test_doubles(text: str, value: float | None) -> None:
    assert parse_double(text) == value


def test_signs_of_nothing() -> None:
    assert [repr(parse_double(text)) for text in ("NaN", "+NaN", "-NaN", " NaN ")] == ["nan"] * 4
    assert [repr(parse_double(text)) for text in ("0", "-0", "-0x0p0", "-1e-400")] == ["0.0", "-0.0", "-0.0", "-0.0"]


def test_a_long_text_is_read_in_one_go() -> None:
    assert parse_double("1" * 100_000 + "x") is None
    assert parse_double("0x" + "1" * 100_000) is None


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("tRuE", True), ("yes", False), ("", False), (" true", False)]
)
def test_booleans(text: str, value: bool) -> None:
    assert parse_boolean(text) is value


def test_the_order_of_doubles() -> None:
    ordered = [-math.inf, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan]
    for i, left in enumerate(ordered):
        for j, right in enumerate(ordered):
            assert compare_doubles(left, right) == (i > j) - (i < j)
