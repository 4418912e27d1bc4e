"""Rows of a table as messages without a place: the meaning of each column, and which rows cannot be messages.

Columns whose values a store sets itself (places, sizes, store times and hosts) are ignored, so rows that were read from
one store can be written into another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.columns.batches import COLUMNS
from rmqtool.columns.gather import Ints
from rmqtool.formats.java import INT_MAX, INT_MIN, string_hash
from rmqtool.formats.properties import MAX_PROPERTIES_LENGTH, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import (
    DELAY,
    KEYS,
    PROPERTY_CRC32,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)

# The queue id of a row that names no queue.
NO_QUEUE = -1
# Columns that set a property of the message.
_STORED_AS = {"tags": TAGS, "keys": KEYS, "msg_id": UNIQ_KEY, "sharding_key": SHARDING_KEY}
# The columns that make a message, and the types that each may have, by their SQL names.
OUTGOING_COLUMNS: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "queue_id": ("int", "bigint"),
    "flag": ("int", "bigint"),
    "born_timestamp": ("timestamp",),
    "properties": ("map<string,string>",),
    **dict.fromkeys(_STORED_AS, ("string",)),
}
# Columns of messages that were read; the store that the rows are written into sets them again.
GIVEN_ANEW = tuple(name for name in COLUMNS if name not in OUTGOING_COLUMNS)

# Properties that are left out: the checksum of the record that was read, and the delay that it had before it came to
# its topic. With them the message would be delayed again.
_OVER = (PROPERTY_CRC32, DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)

_TEXT, _LONG = pa.utf8(), pa.int64()
_SEPARATORS = f"[{NAME_VALUE_SEPARATOR}{PROPERTY_SEPARATOR}]"
_ENTRIES = pa.list_(pa.struct([("key", _TEXT), ("value", _TEXT)]))


class Refusal(NamedTuple):
    """A row that cannot be a message, and why: a clause such as "it has no topic"."""

    row: int
    reason: str


class _Refused(Exception):
    """Ends the work at the first row that is refused."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


def stage_messages(batch: pa.RecordBatch, topic: str | None = None) -> pa.RecordBatch | Refusal:
    """Return a row for each message: topic, body, property block (``text``), queue id, hash, flag and born time (ms).

    With ``topic`` all messages get this one.

    The queue id can be ``NO_QUEUE``. The hash is that of the sharding key, null without one. ``born`` is null where the
    row has no born time. If a row cannot be a message, only the first such row of the first failed check is returned,
    as a refusal.
    """
    try:
        return _Rows(batch, topic).staged()
    except _Refused as refused:
        return refused.refusal


class _Rows:
    """The rows of one batch on their way to messages; a column that the batch lacks is null in all rows."""

    def __init__(self, batch: pa.RecordBatch, topic: str | None) -> None:
        self.batch = batch
        self.topic = topic
        self.count = batch.num_rows
        self.names = set(batch.schema.names)

    def staged(self) -> pa.RecordBatch:
        """Return the messages of the rows; raise ``_Refused`` for the first row that fails a check."""
        topic = self._column("topic", _TEXT) if self.topic is None else pa.repeat(self.topic, self.count)
        body = self._column("body", pa.binary())
        self._refuse(pc.equal(pc.fill_null(topic, ""), ""), "it has no topic")
        self._refuse(pc.is_null(body), "it has no body; use an empty body for a message without content")
        return pa.RecordBatch.from_pydict(
            {
                "topic": topic,
                "body": body,
                "text": self._property_texts(),
                "queue_id": self._number("queue_id", 0, NO_QUEUE),
                "hash": self._hashes(),
                "flag": self._number("flag", INT_MIN, 0),
                "born": self._born(),
            }
        )

    def _column(self, name: str, wanted: pa.DataType) -> Any:
        if name not in self.names:
            return pa.nulls(self.count, wanted)
        return self.batch.column(name).cast(wanted)

    def _number(self, name: str, least: int, default: int) -> Any:
        """Return a column of numbers, ``default`` for null; a number below ``least`` or above an ``int`` is refused."""
        found = self._column(name, _LONG)
        self._refuse(pc.or_(pc.less(found, least), pc.greater(found, INT_MAX)), f"its {name} is out of range")
        return pc.fill_null(found, default)

    def _hashes(self) -> Any:
        """Return the Java hash of each sharding key, null without one; each distinct key is hashed once."""
        keys = self._column("sharding_key", _TEXT).dictionary_encode()
        return pa.array([string_hash(key) for key in keys.dictionary.to_pylist()], _LONG).take(keys.indices)

    def _born(self) -> Any:
        found = self._column("born_timestamp", pa.timestamp("us", "UTC"))
        return pc.divide(found.cast(_LONG), 1000)  # microseconds to ms

    def _property_texts(self) -> Any:
        """Return the property blocks: the entries of the map, then the columns of ``_STORED_AS`` that it lacks.

        Where a row has a property in both, the value of the column wins and the place in the map stays.
        """
        names, values, rows = self._entries()
        given = {stored: self._column(name, _TEXT) for name, stored in _STORED_AS.items() if name in self.names}
        for stored, column in given.items():
            here = column.take(rows)
            values = pc.if_else(pc.and_(pc.equal(names, stored), pc.is_valid(here)), here, values)
        for texts, of_rows in ((names, rows), (values, rows), *((column, None) for column in given.values())):
            self._refuse(
                pc.match_substring_regex(texts, _SEPARATORS),
                "a property contains a byte 1 or 2, which separate properties",
                of_rows,
            )
        parts = [_joined(_entry(names, values), rows, self.count)]
        for stored, column in given.items():
            is_there = np.zeros(self.count, np.bool_)
            is_there[rows.filter(pc.equal(names, stored)).to_numpy()] = True
            added = pc.and_(pc.is_valid(column), pa.array(~is_there))
            parts.append(pc.if_else(added, _entry(stored, pc.fill_null(column, "")), ""))
        texts = pc.binary_join_element_wise(*parts, "").cast(pa.binary())
        limit = MAX_PROPERTIES_LENGTH
        self._refuse(pc.greater(pc.binary_length(texts), limit), f"its properties take more than {limit} bytes")
        return texts

    def _entries(self) -> tuple[Any, Any, Any]:
        """Return names and values of the map entries, and the row of each; without nulls and those of ``_OVER``."""
        if "properties" not in self.names:
            return pa.array([], _TEXT), pa.array([], _TEXT), pa.array([], _LONG)
        lists = self.batch.column("properties").cast(_ENTRIES)
        rows = pc.list_parent_indices(lists).cast(_LONG)
        names, values = pc.list_flatten(lists).flatten()
        kept = pc.and_(pc.is_valid(values), pc.invert(pc.is_in(names, pa.array(_OVER))))
        return names.filter(kept), values.filter(kept), rows.filter(kept)

    def _refuse(self, wrong: Any, reason: str, rows: Any = None) -> None:
        """Refuse the first row that is wrong; ``rows`` has the row of each value, if there is not one for each row."""
        found = np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False))
        if len(found):
            row = int(found[0]) if rows is None else rows[int(found[0])].as_py()
            raise _Refused(Refusal(row, reason))


def _entry(name: Any, value: Any) -> Any:
    """Return ``name 0x01 value 0x02`` for each row; either may be a column or one text for all rows."""
    both = pc.binary_join_element_wise(name, value, NAME_VALUE_SEPARATOR)
    return pc.binary_join_element_wise(both, "", PROPERTY_SEPARATOR)


def _joined(texts: Any, rows: Any, count: int) -> Any:
    """Return the texts of each row joined; ``rows`` has the row of each text, in ascending order."""
    ends: Ints = np.cumsum(np.bincount(rows.to_numpy(), minlength=count))
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "")
