"""Stores and clusters as a stream: each message once, even if a query is killed and started again.

An offset says for each broker how far its log was read, and which record was the last one. The log between two offsets
never changes, so a batch that is requested again is the same. Spark calls all of this in one process beside the driver;
only ``read`` runs in others.

Of a cluster, an offset has topics, each with the offsets of its queues: ``{"Orders": {"broker-a/0": 4711}}``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rmqtool.client.offset_ranges import LOSS, Bounds, find_loss
from rmqtool.errors import StoreError
from rmqtool.exports.choice import OnCorrupt
from rmqtool.exports.splits import plan_source
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.log.follow import LastRecord, Mark, find_next_record, find_settled, is_cut_back
from rmqtool.log.ranges import READ_THROUGH, read_plan
from rmqtool.log.read import Damage
from rmqtool.log.sources import (
    LogFile,
    StoreDirectories,
    broker_names,
    list_logs,
    log_up_to,
    read_queue_files,
    read_store_directories,
)
from rmqtool.spark.options import Options
from rmqtool.spark.queue_ranges import ClusterReading
from rmqtool.spark.reader import Split, read_split, splits_of
from rmqtool.spark.schema import Column
from rmqtool.spark.source import in_plain_words

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Offsets = dict[str, Any]
QueueOffsets = dict[str, dict[str, int]]
Ends = dict[MessageQueue, int]
_OFFSET, _LAST = "commitLogOffset", "lastRecord"


class _Log(NamedTuple):
    """A store's log as it is now."""

    broker: str
    store: StoreDirectories
    files: list[LogFile]


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the logs of stores."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.paths = options.paths
        self.choice = options.choice
        self.following = options.following
        self.begins_at_end = options.begins_at_end
        self.columns = [Column(field.name, field.nullable) for field in schema.fields]
        # The end of a query that reads only what exists now.
        self.target: dict[str, Mark] | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return where a new query begins: at the first file that can hold a wanted message."""
        with in_plain_words():
            first = self._end_now if self.begins_at_end else self._first
            return _encode({log.broker: first(log) for log in self._logs() if log.files})

    def reportLatestOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Return where the logs end now; Spark shows it with the progress of a query."""
        with in_plain_words():
            return _encode({log.broker: self._end_now(log) for log in self._logs() if log.files})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much is read per batch."""
        return ReadAllAvailable() if self.following.max_bytes is None else ReadMaxBytes(self.following.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the logs end now."""
        with in_plain_words():
            self.target = {log.broker: self._end_now(log) for log in self._logs() if log.files}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802 - Spark's name
        """Return the end of the batch that begins at ``start``."""
        with in_plain_words():
            before = _decode(start)
            logs = self._logs()
            self._require_known(before, logs)
            ends = dict(before)
            most = max(limit.max_bytes // len(logs), 1) if isinstance(limit, ReadMaxBytes) else None
            for log in logs:
                if log.files or log.broker in before:
                    ends[log.broker] = self._end(log, before.get(log.broker), most)
            return _encode(ends)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Return the splits of a batch: the same ones every time."""
        with in_plain_words():
            before, ends = _decode(start), _decode(end)
            logs = self._logs()
            self._require_known(ends, logs)
            return [
                split
                for log in logs
                if log.broker in ends
                for split in self._splits(log, before.get(log.broker), ends[log.broker])
            ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a split."""
        if isinstance(partition, Split):
            with in_plain_words():
                yield from read_split(partition, self.choice, self.columns)

    def _logs(self) -> list[_Log]:
        stores = [read_store_directories(path) for path in self.paths]
        names = broker_names(stores)
        return [_Log(name, store, list_logs(store.directories)) for name, store in zip(names, stores, strict=True)]

    def _first(self, log: _Log) -> Mark:
        wanted = read_plan(log.files, self.choice.selection()).wanted
        return Mark((wanted or log.files[-1:])[0].base_offset)

    def _end(self, log: _Log, before: Mark | None, most: int | None) -> Mark:
        """Return the end of a batch that begins at ``before``: after ``most`` bytes, or at the end of the log."""
        start = self._resumed(log, before)
        target = None if self.target is None else self.target.get(log.broker, start)
        if target is not None and target.physical_offset <= start.physical_offset:
            return before or start
        if target is not None and (most is None or target.physical_offset - start.physical_offset <= most):
            return target
        found = self._settled(log, start, most)
        return before if before is not None and found == start else found

    def _end_now(self, log: _Log) -> Mark:
        return self._settled(log, Mark(0), None)

    def _settled(self, log: _Log, start: Mark, most: int | None) -> Mark:
        not_after = time.time_ns() // 1_000_000 - self.following.safety_lag
        return find_settled(log.files, start, not_after, None if most is None else start.physical_offset + most)

    def _resumed(self, log: _Log, before: Mark | None) -> Mark:
        """Return where to continue; raise if that part of the log is gone, or skip the gap if the options say so."""
        if before is None:
            return self._first(log)
        if log.files and log.files[0].base_offset > before.physical_offset:
            first = log.files[0].base_offset
            self._lost(log, f"its log from {before.physical_offset} to {first} was deleted before it was read")
            return Mark(first)
        if not log.files and before.physical_offset:
            self._lost(log, f"its log is missing; it was read up to {before.physical_offset}")
        if is_cut_back(log.files, before):
            text = f"its log was cut before {before.physical_offset}, where reading stopped, and rewritten"
            self._lost(log, text)
            following = find_next_record(log.files, before.physical_offset)
            return Mark(before.physical_offset if following is None else following)
        return before

    def _lost(self, log: _Log, text: str) -> None:
        if self.following.fail_on_data_loss:
            raise StoreError(f"the store of {log.broker} has lost data: {text}", file=log.store.root, hint=LOSS)

    def _splits(self, log: _Log, before: Mark | None, end: Mark) -> Iterator[Split]:
        start = self._resumed(log, before)
        if start.physical_offset >= end.physical_offset:
            return
        # A short range is read through faster than the files of all queues are found.
        by_queues = self.choice.selection().names_queues and end.physical_offset - start.physical_offset > READ_THROUGH
        queues = read_queue_files(log.store.root) if by_queues else []
        whole = log_up_to(log.store, log.files, end.physical_offset, queues)
        source = plan_source(log.broker, whole, self.choice, start.physical_offset, end.physical_offset)
        splits = list(splits_of(source))
        if before is not None and start.physical_offset != before.physical_offset and splits:
            self._tell(splits[0], before, start)
        yield from splits

    def _tell(self, split: Split, before: Mark, start: Mark) -> None:
        """Let the first split report a loss, if the options want damage reported."""
        if self.choice.on_corrupt is OnCorrupt.EMIT:
            length = start.physical_offset - before.physical_offset
            text = f"{length} bytes of the log were lost before they were read, from {before.physical_offset} on"
            split.damages = (Damage("CL-GAP", split.asked.file.name, 0, length, text), *split.damages)

    def _require_known(self, marks: Mapping[str, Mark], logs: list[_Log]) -> None:
        """Raise if the checkpoint names a store that is not among those to read: it may have been renamed."""
        gone = sorted(set(marks) - {log.broker for log in logs})
        if gone:
            raise StoreError(
                f"the checkpoint of this query names {', '.join(gone)}, and no store has that name",
                hint="name the stores as before, or start again with another checkpointLocation",
            )


def _encode(marks: Mapping[str, Mark]) -> Offsets:
    return {
        broker: {_OFFSET: mark.physical_offset, _LAST: None if mark.last is None else asdict(mark.last)}
        for broker, mark in marks.items()
    }


def _decode(offsets: Offsets) -> dict[str, Mark]:
    return {
        broker: Mark(found[_OFFSET], None if found[_LAST] is None else LastRecord(**found[_LAST]))
        for broker, found in offsets.items()
    }


class ClusterStreamReader(ClusterReading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the queues of a cluster.

    New queues are read from their beginning. A queue that no broker lists keeps its offset: its broker may be away.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        # The end of a query that reads only what exists now.
        self.target: Ends | None = None

    def initialOffset(self) -> QueueOffsets:  # noqa: N802 - Spark's name
        """Return where a new query begins: at the first wanted message of each queue."""
        with in_plain_words():
            return _encode_ends({queue: self.begin_of(queue, one) for queue, one in self.bounds().items()})

    def reportLatestOffset(self) -> QueueOffsets:  # noqa: N802 - Spark's name
        """Return where the queues end now; Spark shows it with the progress of a query."""
        with in_plain_words():
            return _encode_ends({queue: one.most for queue, one in self.bounds().items()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much is read per batch."""
        most = self.following.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember where the queues end now."""
        with in_plain_words():
            self.target = {queue: self.end_of(queue, one) for queue, one in self.bounds().items()}

    def latestOffset(self, start: QueueOffsets, limit: ReadLimit) -> QueueOffsets:  # noqa: N802 - Spark's name
        """Return the end of the batch that begins at ``start``."""
        with in_plain_words():
            before = _decode_ends(start)
            found = self.bounds()
            begins = {queue: self._resumed(queue, before.get(queue), one) for queue, one in found.items()}
            ends = {queue: max(begins[queue], self._end(queue, one)) for queue, one in found.items()}
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            return _encode_ends(before | shared_out(begins, ends, most))

    def partitions(self, start: QueueOffsets, end: QueueOffsets) -> list[InputPartition]:
        """Return the ranges of a batch: the same ones every time."""
        with in_plain_words():
            before, ends = _decode_ends(start), _decode_ends(end)
            new = ends.keys() - before.keys()
            firsts = {queue: one.begin for queue, one in self.bounds().items()} if new else {}
            begins = {queue: before.get(queue, firsts.get(queue, 0)) for queue in ends}
            return self.ranges({queue: (begins[queue], end) for queue, end in ends.items() if begins[queue] < end})

    def _end(self, queue: MessageQueue, bounds: Bounds) -> int:
        end = self.end_of(queue, bounds)
        return end if self.target is None else min(end, self.target.get(queue, bounds.begin))

    def _resumed(self, queue: MessageQueue, before: int | None, bounds: Bounds) -> int:
        """Return where a queue continues; raise if messages are gone, unless the options say to go on."""
        if before is None:
            return bounds.begin
        lost = find_loss(queue, before, bounds)
        if lost is None:
            return before
        if self.following.fail_on_data_loss:
            raise lost
        return min(max(before, bounds.least), bounds.most)


def shared_out(begins: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int], most: int | None) -> Ends:
    """Return ends with at most ``most`` offsets before them in all, and at least one: each queue gets its share."""
    sizes = {queue: end - begins[queue] for queue, end in ends.items()}
    total = sum(sizes.values())
    if most is None or total <= most:
        return dict(ends)
    found = {queue: begins[queue] + size * most // total for queue, size in sizes.items()}
    left = most - sum(found[queue] - begins[queue] for queue in found)
    # The rest of the rounding goes to the queues with most messages.
    for queue in sorted(sizes, key=lambda one: (-sizes[one], one))[:left]:
        found[queue] += 1
    return found


def _encode_ends(ends: Mapping[MessageQueue, int]) -> QueueOffsets:
    found: QueueOffsets = {}
    for (topic, broker, queue_id), offset in sorted(ends.items()):
        found.setdefault(topic, {})[f"{broker}/{queue_id}"] = offset
    return found


def _decode_ends(offsets: QueueOffsets) -> Ends:
    return {
        MessageQueue(topic, name.rpartition("/")[0], int(name.rpartition("/")[2])): offset
        for topic, queues in offsets.items()
        for name, offset in queues.items()
    }
