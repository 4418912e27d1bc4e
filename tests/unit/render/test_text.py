from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.render.text import (
    count,
    cut,
    display_width,
    duration,
    guard_formula,
    hanging,
    hex_lines,
    neutral,
    size,
    timestamp,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("\x1b]0;owned\x07\x1b[2J", "\\x1b]0;owned\\x07\\x1b[2J"),
        ("a\nb\tc\rd\0", "a\\nb\\tc\\rd\\x00"),
        ("\x7f\x9b31m\x85", "\\x7f\\x9b31m\\x85"),
        ("abc\u202edcba\u2066", "abc\\u202edcba\\u2066"),
        ("line\u2028sep", "line\\u2028sep"),
        ("\ud83d half", "\\ud83d half"),
        ("订单 é 👨\u200d👩", "订单 é 👨\u200d👩"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, expected: str) -> None:
    assert neutral(text) == expected


def test_a_body_on_its_own_lines_keeps_its_line_ends() -> None:
    assert neutral("a\n\tb\x1b\r\n", keep="\n\t") == "a\n\tb\\x1b\\r\n"


@given(st.text())
def test_no_control_character_survives(text: str) -> None:
    shown = neutral(text)
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in shown)


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("订单", 4), ("e\u0301", 1), ("ｶﾞ", 2), ("한글", 4), ("a\u200db", 2), ("…–×", 3)],
)
def test_width_counts_cells(text: str, width: int) -> None:
    assert display_width(text) == width


@pytest.mark.parametrize(
    ("text", "width", "end", "middle"),
    [
        ("abcdefgh", 8, "abcdefgh", "abcdefgh"),
        ("abcdefgh", 5, "abcd…", "ab…gh"),
        ("abcdefgh", 4, "abc…", "ab…h"),
        ("abcdefgh", 1, "…", "…"),
        ("abcdefgh", 0, "", ""),
        ("订单订单", 6, "订单…", "订…单"),
        ("订单订单", 5, "订单…", "订…单"),
        ("e\u0301a\u0301i\u0301o\u0301", 3, "e\u0301a\u0301…", "e\u0301…o\u0301"),
    ],
)
def test_cutting_leaves_an_ellipsis_and_never_half_a_character(text: str, width: int, end: str, middle: str) -> None:
    assert cut(text, width) == end
    assert cut(text, width, middle=True) == middle


@given(st.text(), st.integers(0, 20), st.booleans())
def test_a_cut_text_fits(text: str, width: int, middle: bool) -> None:
    assert display_width(cut(text, width, middle=middle)) <= width


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "  @x", "＝1", "-2+3|cmd"]
)
def test_a_formula_is_made_text(text: str) -> None:
    assert guard_formula(text) == "'" + text


@pytest.mark.parametrize("text", ["", "Orders", "a=b", "1-2", "'=1", "user@host"])
def test_text_that_is_no_formula_stays(text: str) -> None:
    assert guard_formula(text) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (31 * (1 << 30) + (1 << 28), "31.2 GiB"),
        (1 << 60, "1024.0 PiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


def test_counts_are_grouped() -> None:
    assert [count(n) for n in (0, 999, 1000, 41_220_118, -1_000)] == ["0", "999", "1,000", "41,220,118", "-1,000"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (12_340, "12.3 s"),
        (59_949, "59.9 s"),
        (59_950, "1 min"),
        (72_000, "1 min 12 s"),
        (3_599_999, "1 h"),
        (12_000_000, "3 h 20 min"),
        (86_399_999, "1 d"),
        (356_400_000, "4 d 3 h"),
        (-1500, "-1.5 s"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "zone", "text"),
    [
        (1787456517120, timezone(timedelta(hours=8)), "2026-08-23 11:41:57.120 +08:00"),
        (1787456517120, UTC, "2026-08-23 03:41:57.120 +00:00"),
        (1787456517000, timezone(-timedelta(hours=9, minutes=30)), "2026-08-22 18:11:57.000 -09:30"),
        (0, UTC, "1970-01-01 00:00:00.000 +00:00"),
        (-1, UTC, "1969-12-31 23:59:59.999 +00:00"),
        (-62135596800000, UTC, "0001-01-01 00:00:00.000 +00:00"),
        ((1 << 63) - 1, UTC, "9223372036854775807 ms"),
        (-(1 << 63), UTC, "-9223372036854775808 ms"),
        (253402300799999, timezone(timedelta(hours=1)), "253402300799999 ms"),
    ],
)
def test_times_show_milliseconds_and_zone_or_the_bare_number(milliseconds: int, zone: timezone, text: str) -> None:
    assert timestamp(milliseconds, zone) == text


def test_hex_lines_show_offset_bytes_and_characters() -> None:
    assert list(hex_lines(b"\xda\xa3\x20\xa7hello world\x00\x7f~", 4096)) == [
        "00001000  da a3 20 a7 68 65 6c 6c  6f 20 77 6f 72 6c 64 00  |.. .hello world.|",
        "00001010  7f 7e                                             |.~|",
    ]
    assert list(hex_lines(b"")) == []


def test_a_word_is_cut_only_where_no_line_could_hold_it() -> None:
    path = "consumequeue/" + "T" * 127 + "/0"
    lines = hanging(f"  modify  {path}", 80, 10)
    assert [len(line) for line in lines] == [80, 80, 10 + len(path) - 140]
    assert "".join(line[10:] for line in lines) == path
    assert hanging("  modify  " + "x" * 60 + " " + "y" * 70, 80, 10) == [
        "  modify  " + "x" * 60,
        " " * 10 + "y" * 70,
    ]
