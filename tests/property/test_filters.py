"""Columns and messages are judged alike, whatever the selector and the properties."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rmqtool.filters.columns import match_columns, truths_of_columns
from rmqtool.filters.expressions import truth_of
from rmqtool.filters.sql92 import FilterSyntaxError, Selector, parse_selector
from tests.support import selectors

NUMBERS = st.one_of(
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.floats().map(repr),
    st.from_regex(r"\A[ +-]?[0-9٣]{0,3}\.?[0-9]{0,20}(e-?[0-9]{1,3})?[dfL ]?\Z"),
)
TEXTS = st.one_of(st.sampled_from(selectors.TEXTS), NUMBERS, st.text(st.characters(codec="utf-8"), max_size=4))
MESSAGES = st.lists(st.dictionaries(st.sampled_from(selectors.NAMES), TEXTS), max_size=12)


class MessageColumns:
    """Messages as columns, in one of the forms that columns come in."""

    def __init__(self, messages: list[dict[str, str]], form: str) -> None:
        self.rows = len(messages)
        self._messages = messages
        self._form = form

    def column(self, name: str) -> Any:
        values = [message.get(name) for message in self._messages]
        match self._form:
            case "string":
                return pa.array(values, pa.string())
            case "dictionary":
                return pa.array(values, pa.string()).dictionary_encode()
            case "binary":
                return pa.array([None if value is None else value.encode() for value in values], pa.binary())
            case _:
                return np.array(values, object) if any(value is not None for value in values) else None


def parsed(text: str) -> Selector:
    try:
        return parse_selector(text)
    except FilterSyntaxError:
        assume(False)
        raise


@settings(max_examples=400, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 3),
    MESSAGES,
    st.sampled_from(["string", "dictionary", "binary", "objects"]),
)
def test_columns_agree_with_messages(random: Random, depth: int, messages: list[dict[str, str]], form: str) -> None:
    selector = parsed(selectors.random_selector(random, depth))
    columns = MessageColumns(messages, form)
    assert truths_of_columns(selector, columns).tolist() == [
        int(truth_of(selector.expression, message)) for message in messages
    ]
    assert match_columns(selector, columns).tolist() == [selector.matches(message) for message in messages]
    assert selector.names <= set(selectors.NAMES)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(), st.randoms(use_true_random=False).map(selectors.damaged_selector)))
def test_any_text_parses_or_is_refused_with_a_place(text: str) -> None:
    try:
        selector = parse_selector(text)
    except FilterSyntaxError as error:
        position, caret = error.position, error.caret()
    else:
        position, caret = selector.ignored_at or 0, "\n^"
        assert selector.matches({}) in (True, False)
    assert 0 <= position <= len(text)
    assert caret.count("\n") == 1
    assert caret.endswith("^")
