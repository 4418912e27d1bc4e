"""The reader of the data source: the plan of splits, and the batches of each.

The values here are made in one process, pickled, and used in others.

Filters that Spark pushes down become bounds of the read. Each filter is also handed back: Spark applies it to every row
again. So a bound only has to leave out rows that certainly do not match. A filter that does not bound the places of
messages is ignored.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from rmqtool.errors import StoreError
from rmqtool.exports.choice import LEAST_SPLIT_SIZE, Choice, OnCorrupt
from rmqtool.exports.splits import BatchReader, Source, pack_queues, plan_sources, require_same_view, unpack_queues
from rmqtool.filters.tags import parse_tags
from rmqtool.log.queue_entries import QueueFiles
from rmqtool.log.ranges import Plan, find_gaps, find_missing_end, judge_rest, usual_size_of
from rmqtool.log.read import Damage, Range, as_damage
from rmqtool.log.sources import LogKind, read_queue_files
from rmqtool.spark.options import Options, to_milliseconds
from rmqtool.spark.queue_ranges import ClusterReader
from rmqtool.spark.schema import BatchMaker, Column
from rmqtool.spark.source import in_plain_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_UNMOUNTED = 'is the volume of its commit log mounted? option("onCorrupt", "skip") reads the other stores'


class Split(InputPartition):
    """One range of a store's file, with what only the plan knows about it."""

    def __init__(
        self,
        asked: Range,
        following: Range | None,
        source: Source,
        damages: Sequence[Damage],
        queues: bytes | None,
    ) -> None:
        super().__init__(None)
        self.asked = asked
        self.following = following
        self.broker = source.broker
        # The queues, packed. Without them a task that reads by queues lists the store.
        self.queues = queues
        self.queues_of = source.log.root if source.plan.queues else None
        self.bounds = (source.choice.physical_begin, source.choice.physical_end)
        self.version = source.choice.version
        self.damages = tuple(damages)
        self.has_records_after = source.plan.has_records_after(asked.file)
        self.live = source.plan.live
        self.usual_size = usual_size_of(source.plan)
        # The queues say how far the last file was written; bytes after that concern only the split that ends the file.
        is_last = asked.file == source.plan.files[-1] and source.choice.physical_end is None
        # They do not point into a compaction log or a tier.
        has_witnesses = is_last and asked.file.kind not in (LogKind.COMPACTION, LogKind.TIER)
        self.witnesses_of = source.log.root if has_witnesses else None
        self.is_end = is_last and following is None

    def find_queues(self) -> list[QueueFiles]:
        """Return the queues by which the range is read; none if it is read through."""
        if self.queues is not None:
            return unpack_queues(self.queues)
        return [] if self.queues_of is None else read_queue_files(self.queues_of)

    def judge(self, rest: Damage | None, queues: list[QueueFiles]) -> Iterator[Damage]:
        """Yield the damage after the last record of a file, if this split ends it; ``rest`` is that damage."""
        if self.witnesses_of is None:
            damage = rest and as_damage(rest, records_follow=self.has_records_after, live=self.live)
            yield from [damage] if damage is not None else []
            return
        if rest is None and not self.is_end:
            return
        file = self.asked.file
        queues = queues or read_queue_files(self.witnesses_of)
        plan = Plan([file], [None], [file], live=self.live, witnesses=queues, usual_size=self.usual_size)
        judged = find_missing_end(plan, settled=False) if rest is None else judge_rest(rest, plan, file)
        yield from (found for found in judged if isinstance(found, Damage))


class RocketMQReader(DataSourceReader):
    """Plans the splits of stores, and reads them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.paths = options.paths
        self.choice = options.choice
        self.min_partitions = options.min_partitions
        self.columns = [Column(field.name, field.nullable) for field in schema.fields]

    def partitions(self) -> list[InputPartition]:
        """Return the splits, in the order of the stores and of their logs."""
        with in_plain_words():
            sources = self._plan(self.choice)
            splits = [split for source in sources for split in splits_of(source)]
            if len(splits) < self.min_partitions:
                share = sum(source.bytes for source in sources) // self.min_partitions + 1
                finer = replace(self.choice, split_size=max(share, LEAST_SPLIT_SIZE))
                splits = [split for source in self._plan(finer) for split in splits_of(source)]
            return list[InputPartition](splits)

    def _plan(self, choice: Choice) -> list[Source]:
        sources = plan_sources(self.paths, choice)
        for source in sources:
            self._require_log(source)
            if source.note is not None:  # Spark shows it in the log of the driver
                warnings.warn(source.note, stacklevel=2)
        return sources

    def _require_log(self, source: Source) -> None:
        """Raise if a log is empty although its queues have entries: a table without rows would hide the loss."""
        has_log = any(file.tier is None for file in source.plan.files)
        if not has_log and self.choice.on_corrupt is not OnCorrupt.SKIP:
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
    choice = replace(choice.at(split.broker), physical_begin=begin, physical_end=end, version=split.version)
    projection = choice.projection(split.broker, "us")
    maker = BatchMaker(columns, projection.schema(), split.broker, choice.on_corrupt)
    base = split.asked.file.base_offset
    # Missing ranges end where the file begins.
    missing_at = base - sum(damage.length for damage in split.damages)
    for damage in split.damages:
        yield from maker.of_damage(damage, missing_at)
        missing_at += damage.length
    queues = split.find_queues()
    reader = BatchReader(split.asked, choice, projection, queues)
    for found in reader.pieces():
        if isinstance(found, Damage):
            yield from maker.of_damage(found, base + found.file_offset)
        else:
            yield maker.of_messages(found)
    for damage in split.judge(reader.left_over, queues):
        missing = damage.file != split.asked.file.name
        yield from maker.of_damage(damage, split.asked.file.end_offset if missing else base + damage.file_offset)
    if split.following is not None:
        reader.check_landing(split.following)


def splits_of(source: Source) -> Iterator[Split]:
    """Yield the splits of a store, in the order of its log."""
    gaps, packed = find_gaps(source.plan), pack_queues(source)
    for asked, following in zip_longest(source.ranges, source.ranges[1:]):
        damages = gaps.pop(asked.file, [])
        lands = following is not None and following.file == asked.file
        yield Split(asked, following if lands else None, source, damages, packed)


_IN_PATTERNS = re.compile(r"[*?\[]")


class _Pushing:
    """Narrows the choice of a reader by filters."""

    choice: Choice

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the choice; hand all filters back."""
        for one in filters:
            self.choice = _narrowed(self.choice, one)
        return filters


class PushingReader(_Pushing, RocketMQReader):
    """A reader of stores that takes filters."""


class PushingClusterReader(_Pushing, ClusterReader):
    """A reader of a cluster that takes filters."""


def _narrowed(choice: Choice, asked: Filter) -> Choice:
    """Return the choice without messages that the filter certainly refuses."""
    name = ".".join(getattr(asked, "attribute", ()))
    if name == "topic":
        return _with_topics(choice, asked)
    if name == "tags":
        return _with_tags(choice, asked)
    narrow = _BY_COLUMN.get(name)
    if narrow is None:
        return choice
    values = [value for value in _values(asked) if value is not None]
    if isinstance(asked, EqualTo | EqualNullSafe | In) and values:
        return narrow(choice, min(values), max(values))
    if not isinstance(asked, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return choice
    value = values[0]
    if isinstance(value, int):
        value += isinstance(asked, GreaterThan) - isinstance(asked, LessThan)
    is_least = isinstance(asked, GreaterThan | GreaterThanOrEqual)
    return narrow(choice, value, None) if is_least else narrow(choice, None, value)


def _values(asked: Filter) -> list[Any]:
    found = getattr(asked, "value", None)
    return list(found) if isinstance(asked, In) and found is not None else [found]


def _with_topics(choice: Choice, asked: Filter) -> Choice:
    values = [value for value in _values(asked) if isinstance(value, str)]
    if isinstance(asked, StringStartsWith):
        # If the options have patterns already, the intersection of both cannot be written as a list of patterns.
        is_named = bool(choice.topics) or choice.topic_expression is not None
        return choice if is_named else replace(choice, topics=(_literal(values[0]) + "*",))
    if not isinstance(asked, EqualTo | EqualNullSafe | In) or not values:
        return choice
    both = tuple(_literal(topic) for topic in choice.selection().topics.select(values))
    return replace(choice, topics=both, topic_expression=None) if both else replace(choice, physical_end=0)


def _with_tags(choice: Choice, asked: Filter) -> Choice:
    values = {value for value in _values(asked) if isinstance(value, str)}
    # A tag can be a text that means something else in an expression.
    is_plain = bool(values) and all("||" not in value for value in values)
    if not is_plain or not isinstance(asked, EqualTo | EqualNullSafe | In):
        return choice
    before = parse_tags(choice.tags)
    both = values if before.everything else values & before.names
    if not both:
        return replace(choice, physical_end=0)
    text = " || ".join(sorted(both))
    return replace(choice, tags=text) if parse_tags(text).names == both else choice


def _literal(topic: str) -> str:
    return _IN_PATTERNS.sub(lambda found: f"[{found[0]}]", topic)


# For each column: narrow the choice to values between least and greatest; each may be open.


def _queue_ids(choice: Choice, least: Any, most: Any) -> Choice:
    return replace(choice, queue_id=least) if least == most and choice.queue_id is None else choice


def _queue_offsets(choice: Choice, least: Any, most: Any) -> Choice:
    start, end = _both(choice.start_offset, choice.end_offset, least, _behind(most))
    return replace(choice, start_offset=start, end_offset=end)


def _physical_offsets(choice: Choice, least: Any, most: Any) -> Choice:
    start, end = _both(choice.physical_begin, choice.physical_end, least, _behind(most))
    return replace(choice, physical_begin=start or 0, physical_end=end)


def _store_times(choice: Choice, least: datetime | None, most: datetime | None) -> Choice:
    # Times are whole milliseconds in a store and are rounded down here, so one more millisecond may match.
    begin = None if least is None else to_milliseconds(least)
    begin, end = _both(choice.begin, choice.end, begin, None if most is None else to_milliseconds(most) + 1)
    return replace(choice, begin=begin, end=end)


_BY_COLUMN: dict[str, Callable[[Choice, Any, Any], Choice]] = {
    "queue_id": _queue_ids,
    "queue_offset": _queue_offsets,
    "commitlog_offset": _physical_offsets,
    "store_timestamp": _store_times,
}


def _behind(value: int | None) -> int | None:
    return None if value is None else value + 1


def _both(begin: int | None, end: int | None, least: int | None, behind: int | None) -> tuple[int | None, int | None]:
    """Return the intersection of two ranges: the greater begin, the lesser end."""
    begins = [value for value in (begin, least) if value is not None]
    ends = [value for value in (end, behind) if value is not None]
    return max(begins, default=None), min(ends, default=None)
