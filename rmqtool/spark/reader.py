"""Reading stores for Spark: the plan of splits, and the batches of each.

What stands here is made in one process, pickled, and used in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqtool.export.plan import Source, plan_sources
from rmqtool.export.reading import BatchReader
from rmqtool.scan.plan import find_gaps
from rmqtool.scan.reading import Damage, Range, is_damage
from rmqtool.scan.stores import read_queue_files
from rmqtool.spark.batches import BatchMaker, Column
from rmqtool.spark.options import Options
from rmqtool.spark.source import in_plain_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class Split(InputPartition):
    """One range of a store's file, and what only the plan knows of it."""

    def __init__(self, asked: Range, following: Range | None, source: Source, damages: Sequence[Damage]) -> None:
        super().__init__(None)
        self.asked = asked
        self.following = following
        self.broker = source.broker
        # With thousands of queues these would be most of a plan: each task looks for itself.
        self.queues_of = source.log.root if source.plan.queues else None
        self.bounds = (source.choice.physical_begin, source.choice.physical_end)
        self.damages = tuple(damages)
        self.has_records_behind = source.plan.has_records_behind(asked.file)
        self.live = source.plan.live


class RocketMQReader(DataSourceReader):
    """Plans the splits of some stores, and reads them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.paths = options.paths
        self.choice = options.choice
        self.columns = [Column(field.name, field.nullable) for field in schema.fields]

    def partitions(self) -> list[InputPartition]:
        """Return the splits, in the order of the stores and of their logs."""
        with in_plain_words():
            return [split for source in plan_sources(self.paths, self.choice) for split in _splits(source)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a split; where the plan has none, Spark asks for a partition of its own making."""
        if isinstance(partition, Split):
            with in_plain_words():
                yield from self._read(partition)

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        begin, end = split.bounds
        choice = replace(self.choice, physical_begin=begin, physical_end=end)
        projection = choice.projection(split.broker, "us")
        maker = BatchMaker(self.columns, projection.schema(), split.broker, choice.on_corrupt)
        base = split.asked.file.base_offset
        for damage in split.damages:
            yield from maker.of_damage(damage, base - damage.length)
        queues = [] if split.queues_of is None else read_queue_files(split.queues_of)
        reader = BatchReader(split.asked, choice, projection, queues)
        for found in reader.pieces():
            if isinstance(found, Damage):
                yield from maker.of_damage(found, base + found.file_offset)
            else:
                yield maker.of_messages(found)
        rest = reader.left_over
        if rest is not None and is_damage(rest, records_behind=split.has_records_behind, live=split.live):
            yield from maker.of_damage(rest, base + rest.file_offset)
        if split.following is not None:
            reader.check_landing(split.following)


def _splits(source: Source) -> Iterator[Split]:
    gaps = find_gaps(source.plan.files)
    for asked, following in zip_longest(source.ranges, source.ranges[1:]):
        damages = [gaps.pop(asked.file)] if asked.file in gaps else []
        lands = following is not None and following.file == asked.file
        yield Split(asked, following if lands else None, source, damages)
