"""Which queue offset a broker answers for a time. The versions answer differently, and some not as one would think.

Upstream: ``ConsumeQueue.getOffsetInQueueByTime`` and ``MappedFileQueue.getMappedFileByTime`` (4.9),
``ConsumeQueue.binarySearchInQueueByTime`` (5.x), ``RocksDBConsumeQueueTable.binarySearchInCQByTime``,
``BatchConsumeQueue.getOffsetInQueueByTime``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rmqtool.config import Version
from rmqtool.errors import OptionalMissing
from rmqtool.formats import consume_queue, layouts
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.layouts import BatchConsumeQueueUnit
from rmqtool.formats.paths import FileKind
from rmqtool.inspection.question import Boundary
from rmqtool.inspection.queue_bounds import (
    QueueBounds,
    QueueRow,
    has_database_queues,
    iter_file_bounds,
    read_database_bounds,
    read_database_queue,
    simple_queues,
)
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.log_end import LogEnd, find_log_end
from rmqtool.storage.segments import Segment, SegmentQueue
from rmqtool.storage.store import Store

_UNIT = layouts.CONSUME_QUEUE_UNIT
_BATCH = layouts.BATCH_CONSUME_QUEUE_UNIT
_HOSTS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_SYS_FLAG_AT = PREFIXES[0].field("sys_flag").offset
_HEAD = max(layout.size for layout in PREFIXES.values())


class StoreTimes(NamedTuple):
    """Reads the time of a record as a broker does: whatever stands there, as long as it lies in the log."""

    log: SegmentQueue
    end: int

    def read(self, physical_offset: int, size: int) -> int:
        """Return the store time that the record at an offset names; -1 when the log does not hold it.

        upstream: CommitLog.pickupStoreTimestamp
        """
        segment = self.log.find(physical_offset)
        if segment is None or physical_offset < self.log.min_offset:
            return -1
        if size <= 0 or physical_offset + size > min(self.end, segment.end_offset):
            return -1
        data = self.log.read(physical_offset, _HEAD)
        if len(data) < _HEAD:
            return -1
        (sys_flag,) = layouts.INT.unpack_from(data, _SYS_FLAG_AT)
        place = PREFIXES[sys_flag & _HOSTS].field("store_timestamp").offset
        time: int = layouts.LONG.unpack_from(data, place)[0]
        return time


class _File(NamedTuple):
    """The units of one queue file that a broker takes for written."""

    segment: Segment
    mtime_ms: int
    units: list[layouts.ConsumeQueueUnit]

    @property
    def first_offset(self) -> int:
        return self.segment.base_offset // _UNIT.size


@dataclass
class TimeLookup:
    """Answers for one store, whose bounds are read once."""

    store: Store

    @cached_property
    def _simple(self) -> dict[QueueId, ConsumeQueueFiles]:
        return {queue.queue: queue for queue in simple_queues(self.store)}

    @cached_property
    def _end(self) -> LogEnd:
        return find_log_end(self.store.commit_log, self._simple.values(), dledger=self.store.is_dledger)

    @cached_property
    def bounds(self) -> dict[QueueId, QueueBounds]:
        """The bounds of every queue there is; without the extra for RocksDB only of those in files."""
        found = dict(iter_file_bounds(self.store, list(self._simple.values()), self._end))
        try:
            return {**read_database_bounds(self.store), **found}
        except OptionalMissing:
            return found

    def find(self, queue: QueueId, timestamp: int, boundary: Boundary) -> int:
        """Return what a broker of the store's version answers. 4.9 knows no boundary.

        For a queue that is not there that is 0: a broker makes it. Raises ``OptionalMissing`` without the extra.
        """
        if queue in self._simple:
            end = self._end.physical_offset
            return _find_in_files(self.store, self._simple[queue], self.bounds[queue], end, timestamp, boundary)
        segments = self.store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).get(queue)
        if segments is not None:
            return _find_in_batches(_read_batch_files(segments), self.bounds[queue], timestamp, boundary)
        rows = read_database_queue(self.store, queue) if has_database_queues(self.store) else []
        return _find_in_rows(rows, timestamp, boundary) if rows else 0


def _find_in_files(
    store: Store, queue: ConsumeQueueFiles, bounds: QueueBounds, log_end: int, timestamp: int, boundary: Boundary
) -> int:
    """Return what a broker of the store's version answers for a simple queue; 4.9 knows no boundary."""
    times = StoreTimes(store.commit_log, log_end)
    files = _queue_files(store, queue, bounds.max_offset)
    if store.version is Version.V4_9:
        return _search_4_9(times, files, bounds.min_offset, timestamp)
    found = _search_5(times, files, bounds.min_offset, timestamp, boundary)
    return min(max(found, bounds.min_offset), bounds.max_offset)


def _queue_files(store: Store, queue: ConsumeQueueFiles, max_offset: int) -> list[_File]:
    mtimes = {file.path: file.mtime_ns // 1_000_000 for file in store.listing.of_kind(FileKind.CONSUME_QUEUE)}
    files: list[_File] = []
    for segment in queue.segments:
        first = segment.base_offset // _UNIT.size
        if first >= max_offset and files:
            break  # a broker deletes the files behind the end
        count = min(segment.size // _UNIT.size, max(max_offset - first, 0))
        data = queue.segments.open(segment).pread(count * _UNIT.size, 0)
        files.append(_File(segment, mtimes[segment.path], list(_UNIT.iter_decode(data))))
    return files


def _search_4_9(times: StoreTimes, files: list[_File], min_offset: int, timestamp: int) -> int:
    """Search the first file that was written to at the time or later, else the last one."""
    file = next((file for file in files if file.mtime_ms >= timestamp), files[-1] if files else None)
    if file is None:
        return 0
    low, high = max(min_offset - file.first_offset, 0), len(file.units) - 1
    left = right = -1
    left_time = right_time = -1
    while high >= low:
        middle = (low + high) // 2
        unit = file.units[middle]
        if unit.physical_offset < times.log.min_offset:
            low, left = middle + 1, middle
            continue
        time = times.read(unit.physical_offset, unit.size)
        if time < 0:
            return 0
        if time == timestamp:
            return file.first_offset + middle
        if time > timestamp:
            high, right, right_time = middle - 1, middle, time
        else:
            low, left, left_time = middle + 1, middle, time
    if left_time == -1:
        # upstream: nothing probed leaves byte -1, which is no unit: the last one of the file before, 0 in the first.
        return file.first_offset + right if right >= 0 else max(file.first_offset - 1, 0)
    if right_time == -1 or abs(timestamp - left_time) <= abs(timestamp - right_time):
        return file.first_offset + left
    return file.first_offset + right


def _search_5(times: StoreTimes, files: list[_File], min_offset: int, timestamp: int, boundary: Boundary) -> int:
    file = _choose_file_5(times, files, timestamp, boundary)
    if file is None or not file.units:
        return 0
    first = file.first_offset
    floor, ceiling = max(min_offset - first, 0), len(file.units) - 1

    def time_of(number: int) -> int:
        unit = file.units[number]
        return times.read(unit.physical_offset, unit.size)

    if time_of(ceiling) < timestamp:
        return first + ceiling + (boundary is Boundary.LOWER)
    if floor <= ceiling and time_of(floor) > timestamp:
        return first if boundary is Boundary.LOWER else 0
    low, high, left, right = floor, ceiling, -1, -1
    while high >= low:
        middle = (low + high) // 2
        if file.units[middle].physical_offset < times.log.min_offset:
            low, left = middle + 1, middle
            continue
        time = time_of(middle)
        if time < 0:
            return 0
        if time == timestamp:
            step, edge = (-1, floor) if boundary is Boundary.LOWER else (1, ceiling)
            while middle != edge and time_of(middle + step) == timestamp:
                middle += step
            return first + middle
        if time > timestamp:
            high, right = middle - 1, middle
        else:
            low, left = middle + 1, middle
    found = right if boundary is Boundary.LOWER else left
    return first + found if found >= 0 else max(first - 1, 0)


def _choose_file_5(times: StoreTimes, files: list[_File], timestamp: int, boundary: Boundary) -> _File | None:
    """Choose by the times of the first and last units; a time that is not known counts as -1."""

    def time_of(file: _File, number: int) -> int:
        return times.read(file.units[number].physical_offset, file.units[number].size) if file.units else -1

    if boundary is Boundary.LOWER:
        return next((file for file in files[:-1] if time_of(file, -1) >= timestamp), files[-1] if files else None)
    return next((file for file in reversed(files) if time_of(file, 0) <= timestamp), None)


def _find_in_rows(rows: Sequence[QueueRow], timestamp: int, boundary: Boundary) -> int:
    """Return what a broker answers for a queue of a RocksDB database; ``rows`` begin at its minimum."""
    first = rows[0].queue_offset
    times = [row.value.store_time for row in rows]
    if boundary is Boundary.LOWER:
        return first + bisect_left(times, timestamp)
    return first + max(bisect_right(times, timestamp) - 1, 0)


def _find_in_batches(
    files: Sequence[Sequence[BatchConsumeQueueUnit]], bounds: QueueBounds, timestamp: int, boundary: Boundary
) -> int:
    """Return what a broker answers for a batch queue; ``files`` holds the units of each file."""
    found = _search_batches([file for file in files if file], timestamp, boundary)
    return min(max(found, bounds.min_offset), bounds.max_offset)


def _search_batches(files: list[Sequence[BatchConsumeQueueUnit]], timestamp: int, boundary: Boundary) -> int:
    if not files:
        return -1
    units = next((file for file in reversed(files) if file[0].store_time <= timestamp), files[0])
    last = len(units) - 1
    if timestamp >= units[last].store_time:
        return units[last].msg_base_offset
    left, right = 0, last
    while left <= right:
        middle = (left + right) // 2
        late = units[middle].store_time >= timestamp
        if middle == right:
            return units[middle].msg_base_offset if late else -1
        if middle == left:
            if late:
                return units[middle].msg_base_offset
            left = middle + 1
        elif boundary is Boundary.LOWER:
            left, right = (left, middle) if late else (middle + 1, right)
        # upstream: without an exact hit the answer depends on the path, and may be the next later unit or none.
        elif units[middle].store_time <= timestamp:
            left = middle
        else:
            right = middle - 1
    return -1


def _read_batch_files(segments: SegmentQueue) -> list[list[BatchConsumeQueueUnit]]:
    """Return the valid units of each file of a batch queue."""
    files = []
    for segment in segments:
        units: list[BatchConsumeQueueUnit] = []
        for unit in _BATCH.iter_decode(segments.open(segment).pread(segment.size, 0)):
            if not consume_queue.is_batch_written(unit):
                break
            units.append(unit)
        files.append(units)
    return files
