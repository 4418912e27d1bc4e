"""Arrow batches of messages: the one schema that export and Spark share.

Columns are made on demand: a projection names them, and a part of the record that no named column needs is not decoded.
The schema has a version, which is in its metadata; a change that a reader could notice raises it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from rmqtool.columns.bodies import DEFAULT_BOUNDS, Bounds, Part, RowFlaw, iter_parts, stored_bodies
from rmqtool.columns.gather import Ints
from rmqtool.columns.hosts import Which, coded_hosts, offset_msg_ids
from rmqtool.columns.pieces import Coded, coded
from rmqtool.columns.properties import Properties, decode_properties
from rmqtool.columns.records import Records
from rmqtool.formats.compression import body_codec
from rmqtool.formats.property_names import KEYS, TAGS, UNIQ_KEY

SCHEMA_VERSION = 1
VERSION_KEY = b"rmqtool.schema_version"

_MICROSECONDS = 1000  # in a millisecond
# The latest time, in ms, that a timestamp in microseconds can hold.
_LATEST_IN_US = (2**63 - 1) // _MICROSECONDS

# Columns that hold a field of the record as it is: the name of the field, and the type of the column.
_FIELDS = {
    "queue_id": ("queue_id", pa.int32()),
    "queue_offset": ("queue_offset", pa.int64()),
    "commitlog_offset": ("physical_offset", pa.int64()),
    "store_size": ("total_size", pa.int32()),
    "sys_flag": ("sys_flag", pa.int32()),
    "flag": ("flag", pa.int32()),
    "body_crc": ("body_crc", pa.int32()),
    "reconsume_times": ("reconsume_times", pa.int32()),
    "prepared_transaction_offset": ("prepared_transaction_offset", pa.int64()),
}
# Columns that hold the value of one property, null where a record does not have it.
_PROPERTIES = {"tags": TAGS, "keys": KEYS, "msg_id": UNIQ_KEY}
_TIMES = ("store_timestamp", "born_timestamp")

COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "commitlog_offset",
    "store_size",
    *_TIMES,
    "born_host",
    "store_host",
    *_PROPERTIES,
    "body",
    "body_codec",
    "properties",
    "sys_flag",
    "flag",
    "body_crc",
    "reconsume_times",
    "prepared_transaction_offset",
    "offset_msg_id",
    "broker",
)
"""Every column, in the order of the schema."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns of a batch, the form of its bodies and times, and the bounds of its size.

    Bodies are ``inflated`` as consumers get them, ``raw`` as they are stored, or ``none``: a column of nulls. Times are
    timestamps in UTC, in ``time_unit``. ``broker`` is the value of that column in every row, null for None.
    """

    columns: tuple[str, ...] = COLUMNS
    body: Literal["inflated", "raw", "none"] = "inflated"
    time_unit: Literal["ms", "us"] = "ms"
    broker: str | None = None
    bounds: Bounds = DEFAULT_BOUNDS

    def schema(self) -> pa.Schema:
        """Return the Arrow schema: ``columns`` in their order, and ``SCHEMA_VERSION`` in the metadata."""
        fields = [pa.field(name, self._type(name)) for name in self.columns]
        return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})

    def _type(self, name: str) -> pa.DataType:
        """Return the Arrow type of a column; a column without an entry in the tables here is text."""
        if name in _FIELDS:
            return _FIELDS[name][1]
        if name in _TIMES:
            return pa.timestamp(self.time_unit, "UTC")
        other = {"body": pa.binary(), "properties": pa.map_(pa.utf8(), pa.utf8())}
        return other.get(name, pa.utf8())


class Batch(NamedTuple):
    """A record batch, whose row 0 is row ``first_row`` of the records.

    ``flaws`` names the rows, counted in the batch, whose bodies did not inflate; those bodies are as stored.
    """

    batch: pa.RecordBatch
    first_row: int
    flaws: list[RowFlaw]


def iter_batches(records: Records, projection: Projection) -> Iterator[Batch]:
    """Yield all ``records`` as batches within the projection's bounds, in their order."""
    schema = projection.schema()
    inflate = projection.body == "inflated" and "body" in projection.columns
    for part in iter_parts(records, projection.bounds, inflate=inflate):
        source = _Source(part, projection)
        arrays = [source.make(name).cast(schema.field(name).type) for name in projection.columns]
        flaws = part.bodies.flaws if part.bodies is not None else []
        yield Batch(pa.RecordBatch.from_arrays(arrays, schema=schema), part.first_row, flaws)


class _Source:
    """Makes the columns of one batch; properties are decoded once, when the first column needs them."""

    def __init__(self, part: Part, projection: Projection) -> None:
        self.records = part.records
        self.bodies = part.bodies
        self.projection = projection

    @cached_property
    def properties(self) -> Properties:
        return decode_properties(self.records)

    def make(self, name: str) -> pa.Array:
        """Return the column called ``name``; its type can be wider than the schema's, as large_utf8 for utf8."""
        if name in _FIELDS:
            return pa.array(self.records.column(_FIELDS[name][0]))
        if name in _PROPERTIES:
            return self.properties.texts(_PROPERTIES[name])
        if name in _TIMES:
            return self._time(self.records.column(name))
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": self._topic,
            "born_host": lambda: self._host("born_host"),
            "store_host": lambda: self._host("store_host"),
            "body": self._body,
            "body_codec": lambda: _column(coded(pa.array(self.records.column("sys_flag"))), body_codec),
            "properties": lambda: self.properties.maps(),  # noqa: PLW0108  (it decodes)
            "offset_msg_id": lambda: offset_msg_ids(self.records),
            "broker": lambda: pa.repeat(pa.scalar(self.projection.broker, pa.utf8()), len(self.records)),
        }
        return makers[name]()

    def _topic(self) -> pa.Array:
        records = self.records
        return _column(records.topics)

    def _host(self, which: Which) -> pa.Array:
        return _column(coded_hosts(self.records, which))

    def _time(self, times: Ints) -> pa.Array:
        """Return times as timestamps, null where a time is not positive or too late for the unit."""
        if self.projection.time_unit == "ms":
            return pa.array(times, mask=times <= 0)
        absent = (times <= 0) | (times > _LATEST_IN_US)
        return pa.array(np.where(absent, 0, times) * _MICROSECONDS, mask=absent)

    def _body(self) -> pa.Array:
        if self.projection.body == "none":
            return pa.nulls(len(self.records), pa.large_binary())
        return stored_bodies(self.records) if self.bodies is None else self.bodies.column


def _column(values: Coded, spell: Callable[..., str | None] = str) -> pa.Array:
    """Return a coded column as text; ``spell`` is called once for each distinct value, its None becomes null."""
    texts = [spell(value) for value in values.values]
    if len(texts) == 1:
        return pa.repeat(pa.scalar(texts[0], pa.utf8()), len(values.codes))
    return pa.array(texts, pa.utf8()).take(pa.array(values.codes))
