"""Lines of JSON for many rows at once: constants and columns in turn, joined by Arrow.

A value that all rows share becomes a constant. Only texts with characters that JSON escapes pass through Python's
encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.columns.gather import Bytes, Mask, find_bytes, rows_with
from rmqtool.columns.pieces import Coded, values_of

TEXT = pa.large_utf8()
_NO_TEXT = pa.scalar("", TEXT)
_FIRST_PRINTABLE = 0x20
_QUOTE, _BACKSLASH = b'"'[0], b"\\"[0]

# A part of each line: a constant, or a column of text with a value for each row.
Piece: TypeAlias = str | pa.LargeStringArray


def join_pieces(parts: Sequence[Piece]) -> pa.LargeStringArray:
    """Return each row's parts joined; one part at least is a column."""
    merged: list[Piece] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    operands = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in merged]
    return pc.binary_join_element_wise(*operands, _NO_TEXT)


def as_column(parts: list[Piece], count: int) -> pa.LargeStringArray:
    """Return each row's parts joined, also if all of them are constants; there are ``count`` rows."""
    return join_pieces([*parts, pa.repeat(_NO_TEXT, count)])


def number_pieces(values: Any) -> list[Piece]:
    """Return numbers, at least one, as decimal digits: a constant if all are equal."""
    if (values == values[0]).all():
        return [str(int(values[0]))]
    return [pa.array(values).cast(TEXT)]


def coded_pieces(column: Coded, spell: Callable[[Any], str | None] = str) -> list[Piece]:
    """Return a coded column as JSON strings; ``spell`` is called once for each distinct value, None becomes null."""
    spelled = [spell_json(spell(value)) for value in column.values]
    if len(set(spelled)) == 1:
        return [spelled[0]]
    return [pa.array(spelled, TEXT).take(pa.array(column.codes))]


def spell_json(value: str | None) -> str:
    """Return a text as a JSON string, None as null."""
    return "null" if value is None else encode_basestring(value)


def are_special(values: Bytes) -> Mask:
    """Return which bytes JSON must escape: control characters, the quote and the backslash."""
    found: Mask = values < _FIRST_PRINTABLE
    found |= values == _QUOTE
    found |= values == _BACKSLASH
    return found


def text_pieces(column: pa.LargeStringArray, *, is_plain: bool = False) -> list[Piece]:
    """Return a column of text as JSON strings, null as null; an ``is_plain`` column is known to need no escapes."""
    escaped = column if is_plain else escape_text(column)
    if not column.null_count:
        return ['"', escaped, '"']
    return [join_pieces(['"', escaped, '"']).fill_null("null")]


def escape_text(column: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return a column of text escaped for JSON strings, without the quotes."""
    values, offsets = values_of(column)
    special = find_bytes(values, are_special)
    if not len(special):
        return column
    rows = pa.array(rows_with(special, offsets))
    escaped = [encode_basestring(text)[1:-1] for text in column.filter(rows).to_pylist()]
    return pc.replace_with_mask(column, rows, pa.array(escaped, TEXT))
