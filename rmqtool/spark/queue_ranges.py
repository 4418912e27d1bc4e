"""The readers of the data source for a live cluster: ranges of queue offsets, planned once and pulled by the tasks.

Messages of a queue never change, so a range that is read again gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqtool.client.offset_ranges import LOSS, Bounds, find_loss, iter_span, read_bounds, split_spans
from rmqtool.client.puller import Span
from rmqtool.errors import NotFound, StoreError
from rmqtool.exports.choice import QueuePlace
from rmqtool.exports.splits import bounded, spelled
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.log.read import Part
from rmqtool.spark.options import EARLIEST, LATEST, Options
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
        self.begins_at_end = options.begins_at_end
        self.min_partitions = options.min_partitions
        self.columns = [Column(field.name, field.nullable) for field in schema.fields]

    def bounds(self) -> dict[MessageQueue, Bounds]:
        """Return the bounds of the wanted queues as they are now."""
        # Places of queues are taken here, where the bounds are known.
        asked = replace(self.choice, starts=(), ends=())
        found, _, unknown = read_bounds(self.place, asked.selection())
        named = {one.topic for one in self.choice.starts}
        if named:
            found = {queue: one for queue, one in found.items() if queue.topic in named}
        if unknown and not found:
            raise NotFound(
                f"there is no topic {', '.join(unknown)} in the cluster",
                hint=f"rmqtool topic {self.place.address} list",
            )
        return found

    def begin_of(self, queue: MessageQueue, bounds: Bounds) -> int:
        """Return the begin of what is wanted of a queue."""
        if self.begins_at_end:
            return bounds.most
        begin = _place_of(queue, self.choice.starts)
        if begin is None or begin == EARLIEST:
            return bounds.begin
        if begin == LATEST:
            return bounds.most
        if begin < bounds.least and self.following.fail_on_data_loss:
            lost = find_loss(queue, begin, bounds)
            assert lost is not None, "messages before the first are gone"
            raise lost
        return min(max(begin, bounds.begin), bounds.most)

    def end_of(self, queue: MessageQueue, bounds: Bounds) -> int:
        """Return the end of what is wanted of a queue."""
        begin, end = self.begin_of(queue, bounds), self.choice.end_offset
        one = _place_of(queue, self.choice.ends)
        if one is not None and one != LATEST:
            end = one
        return max(begin, bounds.end if end is None else min(end, bounds.end))

    def ranges(self, queues: Queues) -> list[InputPartition]:
        """Return the partitions that read ranges of queues."""
        if self.choice.physical_end == 0:
            return []
        total = sum(end - begin for begin, end in queues.values())
        most = min(_PER_TASK, max(total // self.min_partitions, 1)) if self.min_partitions else _PER_TASK
        return [OffsetRange(span) for span in split_spans(queues, most)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a range. For a plan without ranges Spark makes a partition itself, without rows."""
        if isinstance(partition, OffsetRange):
            with in_plain_words():
                yield from self._read(partition.span)

    def _read(self, span: Span) -> Iterator[pa.RecordBatch]:
        # A broker may answer with more messages than it was asked for.
        choice = replace(self.choice, end_offset=span.end, starts=(), ends=())
        projection = choice.projection(span.queue.broker_name, "us")
        maker = BatchMaker(self.columns, projection.schema(), span.queue.broker_name, self.choice.on_corrupt)
        for found in iter_span(self.place, span, choice.selection()):
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
            found = self.bounds()
            return self.ranges({q: (self.begin_of(q, one), self.end_of(q, one)) for q, one in found.items()})


def _place_of(queue: MessageQueue, places: Sequence[QueuePlace]) -> int | None:
    """Return the offset that is given for a queue: that of its broker before that of every broker."""
    of_queue = {one.broker: one.offset for one in places if (one.topic, one.queue_id) == (queue.topic, queue.queue_id)}
    return of_queue.get(queue.broker_name, of_queue.get(None))
