"""The columns in Spark's types, and the schema that a user may give instead.

Also the batches for Spark: exactly the columns of its schema, in its order, nullable as Spark declared them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import types

from rmqtool.errors import StoreError, UsageError
from rmqtool.exports.choice import DEFAULT, Choice, OnCorrupt, sql_type
from rmqtool.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

    from rmqtool.exports.splits import Messages
    from rmqtool.log.read import Damage

# When a user selects only the column of damage, one column must still be read to count rows.
_SMALLEST = "queue_id"

_TYPES: dict[str, types.DataType] = {
    "string": types.StringType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "binary": types.BinaryType(),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}


def spark_schema(choice: Choice) -> types.StructType:
    """Return the schema for the columns of the choice."""
    fields = [types.StructField(field.name, spark_type(field.type)) for field in choice.projection(None, "us").schema()]
    if choice.on_corrupt is OnCorrupt.EMIT:
        fields.append(types.StructField(STATUS, types.StringType()))
    return types.StructType(fields)


def spark_type(found: pa.DataType) -> types.DataType:
    """Return Spark's type for an Arrow type."""
    return _TYPES[sql_type(found)]


def narrowed_to(options: Options, schema: types.StructType) -> Options:
    """Return the options with the columns that Spark wants; raise UsageError for an unknown one."""
    choice = options.choice
    ours = {field.name: field.dataType for field in spark_schema(replace(choice, columns=DEFAULT.columns)).fields}
    for field in schema.fields:
        if field.name == STATUS and field.name not in ours:
            raise UsageError(f"the column {STATUS} exists only with onCorrupt=emit", hint='option("onCorrupt", "emit")')
        if field.name not in ours:
            raise UsageError(f"there is no column {field.name!r}", hint="the columns are " + ", ".join(ours))
        if field.dataType != ours[field.name]:
            raise UsageError(
                f"{field.name} is {ours[field.name].simpleString()}, not {field.dataType.simpleString()}",
                hint="leave the schema out, or cast afterwards",
            )
    named = tuple(field.name for field in schema.fields if field.name != STATUS)
    return replace(options, choice=replace(choice, columns=named or (_SMALLEST,)))


STATUS = "record_status"
"""The column that is there with ``onCorrupt=emit``: null for a sound message, else what is wrong."""

_INT_MAX = (1 << 31) - 1


class Column(NamedTuple):
    """A column that Spark wants."""

    name: str
    nullable: bool


class BatchMaker:
    """Makes batches of one broker's messages, and treats damage as ``on_corrupt`` says."""

    def __init__(self, columns: Sequence[Column], ours: pa.Schema, broker: str, on_corrupt: OnCorrupt) -> None:
        import pyarrow

        self.pa = pyarrow
        fields = {field.name: field for field in ours} | {STATUS: pyarrow.field(STATUS, pyarrow.utf8())}
        self.schema = pyarrow.schema([fields[name].with_nullable(nullable) for name, nullable in columns])
        self.broker = broker
        self.on_corrupt = on_corrupt

    def of_messages(self, found: Messages) -> pa.RecordBatch:
        """Return the batch; with ``emit`` a row whose body could not be inflated says so."""
        if found.damages and self.on_corrupt is OnCorrupt.FAIL:
            raise _error(found.damages[0][1])
        rows = found.batch.num_rows
        status = {row: _status(damage) for row, damage in found.damages}
        arrays = [
            self.pa.array([status.get(row) for row in range(rows)], self.pa.utf8())
            if name == STATUS
            else found.batch.column(name)
            for name in self.schema.names
        ]
        return self.pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def of_damage(self, damage: Damage, physical_offset: int) -> Iterator[pa.RecordBatch]:
        """With ``emit`` yield a row for damaged bytes: where they are in the log, how many, and what is wrong."""
        if self.on_corrupt is OnCorrupt.FAIL:
            raise _error(damage)
        if self.on_corrupt is OnCorrupt.EMIT:
            said: dict[str, Any] = {
                "commitlog_offset": physical_offset,
                "store_size": min(damage.length, _INT_MAX),
                "broker": self.broker,
                STATUS: _status(damage),
            }
            arrays = [self.pa.array([said.get(field.name)], field.type) for field in self.schema]
            yield self.pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _status(damage: Damage) -> str:
    return f"{damage.code}: {damage.message} ({damage.file}@{damage.file_offset})"


def _error(damage: Damage) -> StoreError:
    return StoreError(
        f"{_status(damage)}, {damage.length} bytes, on {socket.gethostname()}",
        hint=f'option("onCorrupt", "emit") reads the rest and reports damage in {STATUS}; "skip" leaves it out',
    )
