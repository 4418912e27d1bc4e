"""Filters on columns: every form of a column, and the conversions where columns and messages could differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmqtool.filters.columns import match_columns, match_tags, truths_of_columns
from rmqtool.filters.expressions import Truth, truth_of
from rmqtool.filters.sql92 import parse_selector
from rmqtool.filters.tags import parse_tags
from tests.support.selectors import TEXTS


class Columns:
    """Columns of any form, by name."""

    def __init__(self, rows: int, **columns: Any) -> None:
        self.rows = rows
        self._columns = columns

    def column(self, name: str) -> Any:
        return self._columns.get(name)


VALUES = ["red", None, "10", "красный"]
ENCODED = [None if value is None else value.encode() for value in VALUES]
FORMS = {
    "string": pa.array(VALUES, pa.string()),
    "large_string": pa.array(VALUES, pa.large_string()),
    "string_view": pa.array(VALUES, pa.string_view()),
    "binary": pa.array(ENCODED, pa.binary()),
    "large_binary": pa.array(ENCODED, pa.large_binary()),
    "dictionary": pa.array(VALUES, pa.string()).dictionary_encode(),
    "chunks": pa.chunked_array([VALUES[:1], VALUES[1:]], pa.string()),
    "slice": pa.array(["x", *VALUES], pa.string()).slice(1),
    "objects of str": np.array(VALUES, object),
    "objects of bytes": np.array(ENCODED, object),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a = 'красный'", [False, False, False, True]),
        ("a > 9", [False, False, True, False]),
        ("a IS NULL", [False, True, False, False]),
        ("a <> 'red'", [False, False, True, True]),
        ("a CONTAINS 'красн'", [False, False, False, True]),
        ("a = b", [False, True, False, False]),
    ],
)
def test_forms(form: str, text: str, rows: list[bool]) -> None:
    mask = match_columns(parse_selector(text), Columns(4, a=FORMS[form]))
    assert mask.dtype == np.bool_
    assert mask.tolist() == rows


def test_numpy_bytes() -> None:
    columns = Columns(2, a=np.array([b"10", b"9"]))
    assert match_columns(parse_selector("a > 9"), columns).tolist() == [True, False]


def test_broken_bytes_are_the_text_that_java_reads() -> None:
    """A cut surrogate is one replacement character, other broken sequences one each: as properties are decoded."""
    broken = [b"x\xff", b"\xed\xa0\x80", b"x\xef\xbf\xbd", b"x"]
    for form in (pa.array(broken, pa.binary()), np.array(broken, object)):
        columns = Columns(4, a=form)
        assert match_columns(parse_selector("a = 'x\ufffd'"), columns).tolist() == [True, False, True, False]
        assert match_columns(parse_selector("a IN ('\ufffd')"), columns).tolist() == [False, True, False, False]


def test_a_lone_surrogate_in_the_selector_finds_nothing() -> None:
    columns = Columns(2, a=pa.array(["\U0001f600", None]))
    for text in ("a = '\ud83d'", "a CONTAINS '\ud83d'", "a IN ('\udc80', 'y')"):
        assert match_columns(parse_selector(text), columns).tolist() == [False, False]


def test_no_rows() -> None:
    for text in ("a = 1", "a = b", "TRUE", "(a = 1) = 'x'", "a NOT BETWEEN b AND 2.5", "a NOT IN ('x')", "5 = 5"):
        assert match_columns(parse_selector(text), Columns(0)).tolist() == []
        assert match_columns(parse_selector(text), Columns(0, a=pa.array([], pa.string()))).tolist() == []


def test_a_column_of_another_length_is_not_believed() -> None:
    with pytest.raises(ValueError, match="column a has 2 rows, not 3"):
        match_columns(parse_selector("a = 1"), Columns(3, a=pa.array(["1", "2"])))


CONVERSIONS = (
    *("a = 1", "1 = a", "a <> 2147483648", "a = 1.0", "2.5 <= a", "a < -9007199254740993", "a > -0.5"),
    *("a = TRUE", "TRUE = a", "a < b", "a >= b", "a = b", "a BETWEEN b AND 10", "a NOT BETWEEN 2 AND b", "-a = 1"),
    *("'1' = a", "a", "NOT a", "a IS NOT NULL", "(a = 1) = (b = 1)", "(a = 1) = b", "b < -(a = 1)", "a = -b"),
)


@pytest.mark.parametrize("text", CONVERSIONS)
def test_every_pair_of_texts_is_judged_as_in_a_message(text: str) -> None:
    values = [*TEXTS, None]
    pairs = [(left, right) for left in values for right in values]
    columns = Columns(len(pairs), a=pa.array([left for left, _ in pairs]), b=pa.array([right for _, right in pairs]))
    selector = parse_selector(text)
    messages = [{name: value for name, value in zip("ab", pair, strict=True) if value is not None} for pair in pairs]
    assert truths_of_columns(selector, columns).tolist() == [
        int(truth_of(selector.expression, message)) for message in messages
    ]


def test_nested_between_is_not_exponential() -> None:
    text = "a"
    for _ in range(30):
        text = f"-({text} BETWEEN 1 AND 2)"
    columns = Columns(3, a=pa.array(["1", None, "x"]))
    assert truths_of_columns(parse_selector(f"{text} IS NULL"), columns).tolist() == [
        Truth.TRUE,
        Truth.TRUE,
        Truth.FAILED,
    ]


def test_a_column_is_asked_for_once() -> None:
    asked = []

    class Counted(Columns):
        def column(self, name: str) -> Any:
            asked.append(name)
            return super().column(name)

    columns = Counted(1, a=pa.array(["5"]))
    assert match_columns(parse_selector("a > 1 AND a < 9 AND a BETWEEN 2 AND 7.5 AND a <> 'x'"), columns).tolist() == [
        True
    ]
    assert asked == ["a"]


def test_states() -> None:
    columns = Columns(4, a=pa.array(["1", "2", None, "x"]))
    assert truths_of_columns(parse_selector("a = 1"), columns).tolist() == [
        Truth.TRUE,
        Truth.FALSE,
        Truth.UNKNOWN,
        Truth.FAILED,
    ]


def test_tags() -> None:
    columns = Columns(5, TAGS=pa.array(["Aa", "BB", None, "", "Aa || BB"]))
    assert match_tags(parse_tags("Aa"), columns).tolist() == [True, False, False, False, False]
    assert match_tags(parse_tags(" "), columns).tolist() == [False] * 5
    assert match_tags(parse_tags("*"), columns).tolist() == [True] * 5
    assert match_tags(parse_tags("Aa"), Columns(2)).tolist() == [False, False]
