"""Looking for bytes: what cannot hold them is told apart soon, and never wrongly."""

from __future__ import annotations

from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.columns.gather import as_bytes
from rmqtool.log.search import Texts, may_hold

# Bytes that mean something to a regular expression, end a text, or are no text.
ODD = st.lists(st.sampled_from([*b"\x00\x01\x02\n\\.*[^$ -aEQ0", 0x80, 0xC3, 0xFF]), min_size=1, max_size=12).map(bytes)


@given(ODD, ODD, ODD)
def test_what_holds_the_bytes_is_never_left_out(before, needle, behind):
    assert may_hold(as_bytes(before + needle + behind), needle)


@given(st.lists(ODD, max_size=20).map(b"".join), ODD.filter(lambda needle: len(needle) <= 6))
def test_short_bytes_are_looked_for_whole(text, needle):
    assert may_hold(as_bytes(text), needle) == (needle in text)


@pytest.mark.parametrize("needle", [b"7F0000010000000A", b"0000000000000001", b"KEYS\x01order-17"])
def test_of_long_bytes_the_end_is_looked_for(needle):
    text = b"KEYS\x01order-16\x02UNIQ_KEY\x017F00000100000009\x02" * 100
    assert not may_hold(as_bytes(text), needle)
    assert may_hold(as_bytes(text + needle), needle)


def test_nothing_holds_nothing():
    assert not may_hold(np.empty(0, np.uint8), b"key")


@given(st.lists(st.binary(max_size=40) | ODD, min_size=1, max_size=30), ODD, st.data())
def test_the_rows_that_hold_the_bytes_in_one_piece(rows, needle, data):
    """Pieces of like and of unlike lengths, up to the end of the buffer; between them stands the needle, too."""
    held = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    rows = [row + needle if number in held else row for number, row in enumerate(rows)]
    lengths = np.array([len(row) for row in rows])
    ends = np.array(list(accumulate(len(needle + row) for row in rows)))
    records: Any = SimpleNamespace(
        data=as_bytes(b"".join(needle + row for row in rows)),
        properties_offsets=ends - lengths,
        properties_lengths=lengths,
    )
    assert Texts(records).holding(needle).tolist() == [number for number, row in enumerate(rows) if needle in row]
