"""The readers of the data source for a live cluster: ranges of queue offsets, planned once and pulled by the tasks.

Messages of a queue never change, so a range that is read again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqtool.client.offset_ranges import LOSS, Bounds, iter_span, read_bounds, split_spans
from rmqtool.client.puller import Span
from rmqtool.errors import NotFound, StoreError
from rmqtool.exports.splits import bounded, spelled
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.log.read import Part
from rmqtool.spark.options import Options
from rmqtool.spark.schema import BatchMaker, Column
from rmqtool.spark.source import in_plain_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# Offsets of a queue that one task reads.
_PER_TASK: Final = 500_000

Queues = Mapping[MessageQueue, tuple[int, int]]


class OffsetRange(InputPartition):
    """Some messages of a queue, by their offsets."""

    def __init__(self, span: Span) -> None:
        super().__init__(None)
        self.span = span


class ClusterReading:
    """Reads ranges of queues; batches and streams of a cluster plan them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        assert options.cluster is not None
        self.place = options.cluster
        self.choice = options.choice
        self.following = options.following
        self.columns = [Column(field.name, field.nullable) for field in schema.fields]

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """Return the bounds of the wanted queues as they are now."""
        found, _, unknown = read_bounds(self.place, self.choice.selection())
        if unknown and not found:
            raise NotFound(
                f"there is no topic {', '.join(unknown)} in the cluster",
                hint=f"rmqtool topic {self.place.address} list",
            )
        return found

    def end_of(self, bounds: Bounds) -> int:
        """Return the end of what is wanted of a queue."""
        end = self.choice.end_offset
        return bounds.end if end is None else max(bounds.begin, min(end, bounds.end))

    def ranges(self, queues: Queues) -> list[InputPartition]:
        """Return the partitions that read ranges of queues."""
        if self.choice.physical_end == 0:
            return []
        return [OffsetRange(span) for span in split_spans(queues, _PER_TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a range. For a plan without ranges Spark makes a partition itself, without rows."""
        if isinstance(partition, OffsetRange):
            with in_plain_words():
                yield from self._read(partition.span)

    def _read(self, span: Span) -> Iterator[pa.RecordBatch]:
        # A broker may answer with more messages than it was asked for.
        choice = replace(self.choice, end_offset=span.end)
        projection = choice.projection(span.queue.broker_name, "us")
        maker = BatchMaker(self.columns, projection.schema(), span.queue.broker_name, self.choice.on_corrupt)
        for found in iter_span(self.place, span, self.choice.selection()):
            if isinstance(found, Part):
                for messages in spelled(bounded(found, choice), projection):
                    yield maker.of_messages(messages)
            elif self.following.fail_on_data_loss:
                raise StoreError(found.text, hint=LOSS)


class ClusterReader(ClusterReading, DataSourceReader):
    """Plans ranges of a cluster's queues, and reads them."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges, up to the end that each queue has now."""
        with in_plain_words():
            return self.ranges({queue: (one.begin, self.end_of(one)) for queue, one in self.bounds().items()})
