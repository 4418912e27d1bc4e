"""The columns in Spark's types, and the schema that a user may give instead."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import types

from rmqtool.errors import UsageError
from rmqtool.export.choice import DEFAULT, Choice, OnCorrupt
from rmqtool.export.columns import sql_type
from rmqtool.spark.batches import STATUS
from rmqtool.spark.options import Options

if TYPE_CHECKING:
    import pyarrow as pa

# Something must be read to count rows by when a user asks for the status alone.
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
    """Return the columns of the choice."""
    fields = [types.StructField(field.name, spark_type(field.type)) for field in choice.projection(None, "us").schema()]
    if choice.on_corrupt is OnCorrupt.EMIT:
        fields.append(types.StructField(STATUS, types.StringType()))
    return types.StructType(fields)


def spark_type(found: pa.DataType) -> types.DataType:
    """Return what Spark calls an Arrow type of ours."""
    return _TYPES[sql_type(found)]


def narrowed_to(options: Options, schema: types.StructType) -> Options:
    """Return the options with the columns that Spark asks for; raise UsageError for one that is not ours."""
    choice = options.choice
    ours = {field.name: field.dataType for field in spark_schema(replace(choice, columns=DEFAULT.columns)).fields}
    for field in schema.fields:
        if field.name == STATUS and field.name not in ours:
            raise UsageError(f"{STATUS} is there only with damage told", hint='option("onCorrupt", "emit")')
        if field.name not in ours:
            raise UsageError(f"there is no column {field.name!r}", hint="the columns are " + ", ".join(ours))
        if field.dataType != ours[field.name]:
            raise UsageError(
                f"{field.name} is {ours[field.name].simpleString()}, not {field.dataType.simpleString()}",
                hint="leave the schema out, or cast afterwards",
            )
    named = tuple(field.name for field in schema.fields if field.name != STATUS)
    return replace(options, choice=replace(choice, columns=named or (_SMALLEST,)))
