"""The data source ``rocketmq``, which Spark finds by its name.

Spark makes a source, its readers and their plan in short-lived processes beside the driver, and looks sources up in one
more. Only this module is loaded there, so it loads nothing heavy. The text of an error that is raised here is the last
line of Spark's own error: it says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from rmqtool.errors import RmqtoolError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NAME = "rocketmq"


class RocketMQSource(DataSource):
    """Messages of RocketMQ stores, or of a live cluster. Its options are those of ``options``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns that the options choose."""
        from rmqtool.spark.options import parse_options
        from rmqtool.spark.schema import spark_schema

        with in_plain_words():
            return spark_schema(parse_options(self.options).choice)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of ``schema``: all of ours, or those that the user named."""
        from rmqtool.spark.options import parse_options
        from rmqtool.spark.queue_ranges import ClusterReader
        from rmqtool.spark.reader import RocketMQReader
        from rmqtool.spark.schema import narrowed_to

        with in_plain_words():
            options = narrowed_to(parse_options(self.options).of_batch(), schema)
            return RocketMQReader(options, schema) if options.cluster is None else ClusterReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader that follows the stores, or the queues of the cluster."""
        from rmqtool.spark.options import parse_options
        from rmqtool.spark.schema import narrowed_to
        from rmqtool.spark.session import require_streaming

        with in_plain_words():
            require_streaming()
            from rmqtool.spark.stream import ClusterStreamReader, RocketMQStreamReader

            options = narrowed_to(parse_options(self.options).of_stream(), schema)
            kind = RocketMQStreamReader if options.cluster is None else ClusterStreamReader
            return kind(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that puts the rows of a table into a store."""
        from rmqtool.spark.writer import RocketMQWriter

        with in_plain_words():
            return RocketMQWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer that puts the batches of a stream into a store."""
        from rmqtool.spark.writer import RocketMQStreamWriter

        with in_plain_words():
            return RocketMQStreamWriter(self.options, schema, overwrite=overwrite)


class PushingSource(RocketMQSource):
    """The source whose readers take filters. Spark refuses it while the session does not allow push-down."""

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader that takes filters."""
        from rmqtool.spark.options import parse_options
        from rmqtool.spark.reader import PushingClusterReader, PushingReader
        from rmqtool.spark.schema import narrowed_to

        with in_plain_words():
            options = narrowed_to(parse_options(self.options).of_batch(), schema)
            kind = PushingReader if options.cluster is None else PushingClusterReader
            return kind(options, schema)


@contextmanager
def in_plain_words() -> Iterator[None]:
    """Put the whole error into its text: Spark shows only the text."""
    try:
        yield
    except RmqtoolError as error:
        place = "" if error.file is None or error.file in error.message else f" [{error.file}]"
        way_out = f" ({error.hint})" if error.hint else ""
        error.message = f"{error.message}{place}{way_out}"
        error.args, error.file, error.hint = (error.message,), None, None
        raise
