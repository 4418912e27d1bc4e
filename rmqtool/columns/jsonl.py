"""The contract's Message lines of many records, joined column by column.

A line is constants and columns in turn; Arrow joins them for all records at once, and the joined column's bytes are
the output. What is the same in all records joins the constants. Only strings with characters that JSON escapes pass
through Python's encoder.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool import kernel
from rmqtool.columns.bodies import DEFAULT_BOUNDS, Bodies, Bounds, RowFlaw, are_compressed, iter_parts
from rmqtool.columns.compiled import room_of_line
from rmqtool.columns.compiled import spelled as spelled_lines
from rmqtool.columns.dispatched import message_of
from rmqtool.columns.gather import Bytes, Ints, Mask, find_bytes, rows_with
from rmqtool.columns.hosts import coded_hosts, offset_msg_ids
from rmqtool.columns.json_parts import (
    TEXT,
    Piece,
    are_special,
    as_column,
    coded_pieces,
    escape_text,
    join_pieces,
    number_pieces,
    spell_json,
    text_pieces,
)
from rmqtool.columns.pieces import as_text, coded, pieces, values_of
from rmqtool.columns.properties import Properties, decode_properties
from rmqtool.columns.records import Records
from rmqtool.formats.compression import body_codec
from rmqtool.formats.message_json import encode_line, message_json
from rmqtool.formats.property_names import KEYS, TAGS, UNIQ_KEY

# No UTF-8 holds the bytes from 0xF5 on, nor 0xC0 and 0xC1.
_FIRST_BEYOND_UTF8 = 0xF5
_OVERLONG = 0xC0
# What stands in JSON for the separators of properties, and for the one that ends a record's, which is marked.
_OBJECT_END = 0x03
_IN_JSON = {b"\x01": b'": "', b"\x02": b'", "', bytes([_OBJECT_END]): b'"}'}


class Lines(NamedTuple):
    """Lines of JSON back to back, each ended by a newline: line i from ``offsets[i]`` to ``offsets[i + 1]``.

    Line 0 is row ``first_row`` of the records. Lines with flaws show their bodies as stored.
    """

    text: Bytes
    offsets: Ints
    first_row: int
    flaws: list[RowFlaw]


def iter_json_lines(records: Records, bounds: Bounds = DEFAULT_BOUNDS) -> Iterator[Lines]:
    """Yield a Message line for each record, in their order; some thousand at a time."""
    if _are_few_inflated(records):
        for part in iter_parts(records, bounds, inflate=False):
            yield from _iter_compiled(part.records, part.first_row, bounds)
        return
    for part in iter_parts(records, bounds, inflate=True):
        assert part.bodies is not None
        yield _lines(part.records, part.bodies, part.first_row)


# A row that the kernel leaves is spelled by itself, at some times the cost of one among many: they must be few.
_MOST_ALONE = 16
# The room that lines need beside what they are made of, and how often that is in them: the first guess.
_LINE, _TIMES = 640, 2


def _are_few_inflated(records: Records) -> bool:
    """Return whether the kernel spells most rows: those whose bodies are inflated it leaves."""
    return kernel.NATIVE is not None and int(are_compressed(records).sum()) * _MOST_ALONE <= len(records)


def _iter_compiled(records: Records, first_row: int, bounds: Bounds) -> Iterator[Lines]:
    """Yield lines that the kernel spells, and one by one those that it leaves."""
    offsets = np.ascontiguousarray(records.file_offsets, np.int64)
    sizes = records.column("total_size")
    row, count = 0, len(records)
    while row < count:
        left = _LINE * (count - row) + _TIMES * int(sizes[row:].sum(dtype=np.int64))
        found = spelled_lines(records.data, offsets, row, left + room_of_line(int(sizes[row])))
        assert found is not None
        if found.row > row:
            yield Lines(found.text, np.append(np.int64(0), found.ends), first_row + row, [])
        if found.row == row:
            yield _line_alone(records, row, first_row, bounds.body_cap)
        row = max(found.row, row + 1)


def _line_alone(records: Records, row: int, first_row: int, cap: int) -> Lines:
    """Return the line of one record, as ``formats`` spells it."""
    line, flaw = message_json(message_of(records, row), cap)
    text = np.frombuffer(encode_line(line).encode() + b"\n", np.uint8)
    return Lines(text, np.array([0, len(text)]), first_row + row, [] if flaw is None else [RowFlaw(0, flaw)])


def _lines(records: Records, bodies: Bodies, first_row: int) -> Lines:
    properties = decode_properties(records)
    fields = _place(records) | _times_and_hosts(records) | _names(records, properties) | _body(records, bodies)
    parts: list[Piece] = []
    opening = "{"
    for name, value in fields.items():
        parts += [f'{opening}"{name}": ', *value]
        opening = ", "
    text, offsets = values_of(join_pieces([*parts, "}\n"]))
    return Lines(text, offsets, first_row, bodies.flaws)


def _place(records: Records) -> dict[str, list[Piece]]:
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
    is_plain = properties.are_in_turn(are_special)
    return {
        "offsetMsgId": text_pieces(offset_msg_ids(records), is_plain=True),
        "uniqKey": text_pieces(properties.values(UNIQ_KEY), is_plain=is_plain),
        "tags": text_pieces(properties.values(TAGS), is_plain=is_plain),
        "keys": text_pieces(properties.values(KEYS), is_plain=is_plain),
        "properties": (_plain_objects(properties) if is_plain else None) or _property_objects(properties),
    }


def _body(records: Records, bodies: Bodies) -> dict[str, list[Piece]]:
    text, encodings = _body_texts(bodies)
    codecs = coded(pa.array(records.column("sys_flag")))
    _, offsets = values_of(bodies.column)
    lengths: list[Piece] = number_pieces(np.diff(offsets))
    if bodies.failed_rows:
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
    """Return the properties of each record as a JSON object, made of the text where nothing in it is to be escaped.

    Then the separators alone become what stands there in JSON. None where a record has no properties, or might have
    two of one name, or the text is no UTF-8.
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
    # The first separator grows by three bytes, the second one too but at the end of an object, where it grows by one.
    offsets = np.concatenate((np.zeros(1, np.int64), ends + 1 + 6 * pairs - 2 * np.arange(1, len(pairs) + 1)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    try:
        objects = pa.Array.from_buffers(pa.large_binary(), len(pairs), buffers).cast(TEXT)
    except pa.ArrowInvalid:
        return None
    return ['{"', objects]


def _property_objects(properties: Properties) -> list[Piece]:
    """Return the properties of each record as a JSON object.

    The pairs of all records are joined in one column; what parts a value from the next name stands before the name.
    A record's object is the stretch from its first pair to its last.
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
    if counts.all():
        return [objects, '"}']
    return [objects, pa.array(["{}", '"}'], TEXT).take(pa.array((counts > 0).astype(np.int8)))]


def _body_texts(bodies: Bodies) -> tuple[list[Piece], list[Piece]]:
    """Return the bodies as JSON strings and how each is encoded: as text where it is UTF-8, else in base 64."""
    are_text = _are_utf8(bodies.column)
    are_text[bodies.failed_rows] = False
    if are_text.all():
        return text_pieces(bodies.column.cast(TEXT)), ['"utf8"']
    other = pa.array(~are_text)
    texts = pc.replace_with_mask(bodies.column, other, _base64(bodies.column.filter(other)))
    spelled = pa.array(['"base64"', '"utf8"'], TEXT).take(pa.array(are_text.astype(np.int8)))
    return text_pieces(texts.cast(TEXT)), [spelled]


def _are_utf8(column: pa.LargeBinaryArray) -> Mask:
    """Return which values are UTF-8."""
    good = np.ones(len(column), np.bool_)
    try:
        column.cast(TEXT)
    except pa.ArrowInvalid:
        values, offsets = values_of(column)
        # Bytes that no UTF-8 holds settle it for most of what is not text; the rest is tried one by one.
        impossible = find_bytes(values, lambda some: (some >= _FIRST_BEYOND_UTF8) | (some & 0xFE == _OVERLONG))
        good = ~rows_with(impossible, offsets)
        for row in np.flatnonzero(good).tolist():
            try:
                str(column[row].as_buffer(), "utf-8")
            except UnicodeDecodeError:
                good[row] = False
    return good


def _base64(column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Return the values in base 64, encoded in one go.

    Each is filled up to whole groups of three bytes, so that none shares a group with the next; the digits that the
    filling gave become the padding.
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
