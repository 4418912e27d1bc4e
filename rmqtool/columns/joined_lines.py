"""The contract's Message lines of many records, joined column by column.

A line is constants and columns in turn; Arrow joins them for all records at once, and the joined column's bytes are
the output. A value that all records share becomes a constant. Only strings with characters that JSON escapes pass
through Python's encoder.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.columns.bodies import Bodies
from rmqtool.columns.gather import Bytes, Ints, Mask, find_bytes, rows_with
from rmqtool.columns.hosts import coded_hosts, offset_msg_ids
from rmqtool.columns.pieces import Coded, as_text, coded, pieces, values_of
from rmqtool.columns.properties import Properties, decode_properties
from rmqtool.columns.records import Records
from rmqtool.formats.compression import body_codec
from rmqtool.formats.property_names import KEYS, TAGS, UNIQ_KEY

TEXT = pa.large_utf8()
_NO_TEXT = pa.scalar("", TEXT)
# Smaller bytes are escaped in JSON, and so are the quote and the backslash.
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


# UTF-8 never contains the bytes from 0xF5 on, nor 0xC0 and 0xC1.
_FIRST_BEYOND_UTF8 = 0xF5
_OVERLONG = 0xC0
# Replaces the last separator of each record. No property can contain it: ``_plain_objects`` runs on printable text.
_OBJECT_END = 0x03
# The JSON for each separator.
_IN_JSON = {b"\x01": b'": "', b"\x02": b'", "', bytes([_OBJECT_END]): b'"}'}


def join_lines(records: Records, bodies: Bodies) -> tuple[Bytes, Ints]:
    """Return the lines of ``records``, one record at least, back to back, and their offsets.

    One more offset is the end.
    """
    properties = decode_properties(records)
    fields = _place(records) | _times_and_hosts(records) | _names(records, properties) | _body(records, bodies)
    parts: list[Piece] = []
    opening = "{"
    for name, value in fields.items():
        parts += [f'{opening}"{name}": ', *value]
        opening = ", "
    return values_of(join_pieces([*parts, "}\n"]))


def _place(records: Records) -> dict[str, list[Piece]]:
    """Return the members from commitLogOffset to sysFlag, in the order of the contract."""
    topics = records.topics
    return {
        "commitLogOffset": number_pieces(records.column("physical_offset")),
        "storeSize": number_pieces(records.column("total_size")),
        "magic": coded_pieces(coded(pa.array(records.column("magic"))), lambda magic: f"{magic:#010x}"),
        "topic": coded_pieces(topics),
        "queueId": number_pieces(records.column("queue_id")),
        "queueOffset": number_pieces(records.column("queue_offset")),
        "flag": number_pieces(records.column("flag")),
        "sysFlag": number_pieces(records.column("sys_flag")),
    }


def _times_and_hosts(records: Records) -> dict[str, list[Piece]]:
    """Return the members from bornTimestamp to bodyCRC, in the order of the contract."""
    return {
        "bornTimestamp": number_pieces(records.column("born_timestamp")),
        "bornHost": coded_pieces(coded_hosts(records, "born_host")),
        "storeTimestamp": number_pieces(records.column("store_timestamp")),
        "storeHost": coded_pieces(coded_hosts(records, "store_host")),
        "reconsumeTimes": number_pieces(records.column("reconsume_times")),
        "preparedTransactionOffset": number_pieces(records.column("prepared_transaction_offset")),
        "bodyCRC": number_pieces(records.column("body_crc")),
    }


def _names(records: Records, properties: Properties) -> dict[str, list[Piece]]:
    """Return the members from offsetMsgId to properties, in the order of the contract."""
    is_plain = properties.are_in_turn(are_special)
    return {
        "offsetMsgId": text_pieces(offset_msg_ids(records), is_plain=True),
        "uniqKey": text_pieces(properties.values(UNIQ_KEY), is_plain=is_plain),
        "tags": text_pieces(properties.values(TAGS), is_plain=is_plain),
        "keys": text_pieces(properties.values(KEYS), is_plain=is_plain),
        "properties": (_plain_objects(properties) if is_plain else None) or _property_objects(properties),
    }


def _body(records: Records, bodies: Bodies) -> dict[str, list[Piece]]:
    """Return the members from body to storedBodyLength, in the order of the contract."""
    text, encodings = _body_texts(bodies)
    codecs = coded(pa.array(records.column("sys_flag")))
    _, offsets = values_of(bodies.column)
    lengths: list[Piece] = number_pieces(np.diff(offsets))
    if bodies.failed_rows:
        # The body as consumers get it has no length if it does not inflate.
        unknown = np.zeros(len(records), np.bool_)
        unknown[bodies.failed_rows] = True
        lengths = [pc.if_else(pa.array(unknown), pa.scalar("null", TEXT), as_column(lengths, len(records)))]
    return {
        "body": text,
        "bodyEncoding": encodings,
        "bodyCodec": coded_pieces(codecs, body_codec),
        "bodyLength": lengths,
        "storedBodyLength": number_pieces(records.column("body_length")),
    }


def _plain_objects(properties: Properties) -> list[Piece] | None:
    """Return the properties of each record as a JSON object, made from stored text that needs no escapes.

    Only the separators are replaced. None if a record has no properties, or could have two of one name, or the text is
    not UTF-8.
    """
    counts = np.bincount(properties.rows, minlength=properties.count)
    if not counts.all() or properties.may_repeat_names():
        return None
    pairs = np.cumsum(counts)
    text = properties.text.copy()
    ends = (properties.value_offsets + properties.value_lengths)[pairs - 1]
    text[ends] = _OBJECT_END
    values = text.tobytes()
    for separator, spelled in _IN_JSON.items():
        values = values.replace(separator, spelled)
    # Each of a pair's two separators becomes four bytes, six more for the pair; the last of an object becomes only two.
    offsets = np.concatenate((np.zeros(1, np.int64), ends + 1 + 6 * pairs - 2 * np.arange(1, len(pairs) + 1)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    try:
        objects = pa.Array.from_buffers(pa.large_binary(), len(pairs), buffers).cast(TEXT)
    except pa.ArrowInvalid:
        return None
    return ['{"', objects]


def _property_objects(properties: Properties) -> list[Piece]:
    """Return the properties of each record as a JSON object.

    The pairs of all records are joined in one column, each with the punctuation before its name. A record's object is
    the range from its first pair to its last.
    """
    names, kept, given = properties.distinct()
    rows = properties.rows[kept]
    if not len(kept):
        return ["{}"]
    opens = np.append(True, rows[1:] != rows[:-1])
    spelled = [spell_json(name) + ': "' for name in names.values]
    heads = pa.array([*('", ' + head for head in spelled), *("{" + head for head in spelled)], TEXT)
    codes = names.codes[kept] + np.where(opens, np.int32(len(spelled)), np.int32(0))
    values = as_text(pieces(properties.text, properties.value_offsets[given], properties.value_lengths[given]))
    pairs = join_pieces([heads.take(pa.array(codes)), escape_text(values)])
    _, bounds = values_of(pairs)
    counts = np.bincount(rows, minlength=properties.count)
    offsets = bounds[np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))]
    buffers = [None, pa.py_buffer(offsets), pairs.buffers()[2]]
    objects = pa.Array.from_buffers(TEXT, properties.count, buffers)
    # An object still lacks its closing quote and bracket. A record without properties has no pair, so it is empty here.
    if counts.all():
        return [objects, '"}']
    return [objects, pa.array(["{}", '"}'], TEXT).take(pa.array((counts > 0).astype(np.int8)))]


def _body_texts(bodies: Bodies) -> tuple[list[Piece], list[Piece]]:
    """Return the bodies as JSON strings, and their encodings: text if a body is UTF-8, else base 64.

    A body that did not inflate is given as it is stored, in base 64.
    """
    are_text = _are_utf8(bodies.column)
    are_text[bodies.failed_rows] = False
    if are_text.all():
        return text_pieces(bodies.column.cast(TEXT)), ['"utf8"']
    other = pa.array(~are_text)
    texts = pc.replace_with_mask(bodies.column, other, _base64(bodies.column.filter(other)))
    spelled = pa.array(['"base64"', '"utf8"'], TEXT).take(pa.array(are_text.astype(np.int8)))
    return text_pieces(texts.cast(TEXT)), [spelled]


def _are_utf8(column: pa.LargeBinaryArray) -> Mask:
    """Return which values are UTF-8; most often all, which one cast proves."""
    good = np.ones(len(column), np.bool_)
    try:
        column.cast(TEXT)
    except pa.ArrowInvalid:
        values, offsets = values_of(column)
        # Most binary values have a byte that UTF-8 never contains; the others are tried one by one.
        impossible = find_bytes(values, lambda some: (some >= _FIRST_BEYOND_UTF8) | (some & 0xFE == _OVERLONG))
        good = ~rows_with(impossible, offsets)
        for row in np.flatnonzero(good).tolist():
            try:
                str(column[row].as_buffer(), "utf-8")
            except UnicodeDecodeError:
                good[row] = False
    return good


def _base64(column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the values in base 64, encoded by one call.

    Each value is filled up with zeros to whole groups of three bytes, so that no group has bytes of two values. The
    digits of the zeros are then overwritten with the padding ``=``.
    """
    _, offsets = values_of(column)
    missing = -np.diff(offsets) % 3
    fillings = pa.array([b"", b"\0", b"\0\0"], pa.large_binary()).take(pa.array(missing))
    filled, bounds = values_of(pc.binary_join_element_wise(column, fillings, pa.scalar(b"", pa.large_binary())))
    digits = np.frombuffer(bytearray(binascii.b2a_base64(filled.data, newline=False)), np.uint8)
    ends = bounds[1:] // 3 * 4
    digits[ends[missing >= 1] - 1] = ord("=")
    digits[ends[missing == 2] - 2] = ord("=")
    return pa.Array.from_buffers(
        pa.large_binary(), len(column), [None, pa.py_buffer(bounds // 3 * 4), pa.py_buffer(digits)]
    )
