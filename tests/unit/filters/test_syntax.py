"""The picture under an expression that was refused."""

from __future__ import annotations

import pytest

from rmqtool.filters.sql92 import FilterSyntaxError, shown


def caret(text: str, position: int, width: int = 72) -> list[str]:
    return FilterSyntaxError("no", text=text, position=position).caret(width).split("\n")


def test_the_caret_stands_under_the_place() -> None:
    assert caret("a > 'x'", 4) == ["a > 'x'", "    ^"]
    assert caret("a AND", 5) == ["a AND", "     ^"]
    assert caret("", 0) == ["", "^"]


def test_wide_and_combining_characters_keep_it_there() -> None:
    assert caret("名 = é#", 5) == ["名 = é#", " " * 6 + "^"]
    assert caret("'e\u0301' #", 5) == ["'e\u0301' #", "    ^"]


def test_nothing_in_the_text_moves_the_cursor() -> None:
    assert caret("\x1b[2J\n\t\x7f\u202e#", 8) == ["␛[2J␊␉␡\ufffd#", "        ^"]


def test_a_long_text_is_cut_around_the_place() -> None:
    line, mark = caret("x" * 500 + "#" + "y" * 500, 500, width=21)
    assert line == "…" + "x" * 10 + "#" + "y" * 9 + "…"
    assert line[mark.index("^")] == "#"


@pytest.mark.parametrize(("text", "expected"), [("abc", "abc"), ("a\x1bb", "a␛b"), ("x" * 41, "x" * 39 + "…")])
def test_words_in_sentences(text: str, expected: str) -> None:
    assert shown(text) == expected
