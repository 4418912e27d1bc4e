"""The reader of the data source: the plan of splits, and the batches of each.

The values here are made in one process, pickled, and used in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqtool.errors import StoreError
from rmqtool.exports.choice import Choice, OnCorrupt
from rmqtool.exports.splits import BatchReader, Source, plan_sources, require_same_view
from rmqtool.log.ranges import Plan, find_gaps, find_missing_end, judge_rest
from rmqtool.log.read import Damage, Range, is_damage
from rmqtool.log.sources import read_queue_files
from rmqtool.spark.options import Options
from rmqtool.spark.schema import BatchMaker, Column
from rmqtool.spark.source import in_plain_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_UNMOUNTED = 'is the volume of its commit log mounted? option("onCorrupt", "skip") reads the other stores'


class Split(InputPartition):
    """One range of a store's file, with what only the plan knows about it."""

    def __init__(self, asked: Range, following: Range | None, source: Source, damages: Sequence[Damage]) -> None:
        super().__init__(None)
        self.asked = asked
        self.following = following
        self.broker = source.broker
        # With thousands of queues these would be most of a plan, so each task lists them itself.
        self.queues_of = source.log.root if source.plan.queues else None
        self.bounds = (source.choice.physical_begin, source.choice.physical_end)
        self.damages = tuple(damages)
        self.has_records_after = source.plan.has_records_after(asked.file)
        self.live = source.plan.live
        # The queues say how far the last file was written; bytes after that concern only the split that ends the file.
        is_last = asked.file == source.plan.files[-1] and source.choice.physical_end is None
        self.witnesses_of = source.log.root if is_last else None
        self.is_end = is_last and following is None

    def judge(self, rest: Damage | None) -> Iterator[Damage]:
        """Yield the damage after the last record of a file, if this split ends it; ``rest`` is that damage."""
        if self.witnesses_of is None:
            if rest is not None and is_damage(rest, records_follow=self.has_records_after, live=self.live):
                yield rest
            return
        if rest is None and not self.is_end:
            return
        file = self.asked.file
        plan = Plan([file], [None], [file], live=self.live, witnesses=read_queue_files(self.witnesses_of))
        judged = find_missing_end(plan, settled=False) if rest is None else judge_rest(rest, plan, file)
        yield from (found for found in judged if isinstance(found, Damage))


class RocketMQReader(DataSourceReader):
    """Plans the splits of stores, and reads them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.paths = options.paths
        self.choice = options.choice
        self.columns = [Column(field.name, field.nullable) for field in schema.fields]

    def partitions(self) -> list[InputPartition]:
        """Return the splits, in the order of the stores and of their logs."""
        with in_plain_words():
            sources = plan_sources(self.paths, self.choice)
            for source in sources:
                self._require_log(source)
            return [split for source in sources for split in splits_of(source)]

    def _require_log(self, source: Source) -> None:
        """Raise if a log is empty although its queues have entries: a table without rows would hide the loss."""
        if not source.plan.files and self.choice.on_corrupt is not OnCorrupt.SKIP:
            for damage in find_missing_end(source.plan, settled=False):
                raise StoreError(f"{damage.code}: {damage.message}", file=source.log.root, hint=_UNMOUNTED)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a split. For a plan without splits Spark makes a partition itself, which has no rows."""
        if isinstance(partition, Split):
            with in_plain_words():
                yield from read_split(partition, self.choice, self.columns)


def read_split(split: Split, choice: Choice, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a split."""
    require_same_view(split.asked)
    begin, end = split.bounds
    choice = replace(choice, physical_begin=begin, physical_end=end)
    projection = choice.projection(split.broker, "us")
    maker = BatchMaker(columns, projection.schema(), split.broker, choice.on_corrupt)
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
    for damage in split.judge(reader.left_over):
        missing = damage.file != split.asked.file.name
        yield from maker.of_damage(damage, split.asked.file.end_offset if missing else base + damage.file_offset)
    if split.following is not None:
        reader.check_landing(split.following)


def splits_of(source: Source) -> Iterator[Split]:
    """Yield the splits of a store, in the order of its log."""
    gaps = find_gaps(source.plan.files)
    for asked, following in zip_longest(source.ranges, source.ranges[1:]):
        damages = [gaps.pop(asked.file)] if asked.file in gaps else []
        lands = following is not None and following.file == asked.file
        yield Split(asked, following if lands else None, source, damages)
