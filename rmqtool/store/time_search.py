"""Offset by time: the searches in one queue, as each version makes them. Some have surprising results.

The quirks are kept, because consumers of that broker get those answers.

Upstream: ``ConsumeQueue.getOffsetInQueueByTime`` and ``MappedFileQueue.getMappedFileByTime`` (4.9),
``ConsumeQueue.binarySearchInQueueByTime`` (5.x), ``RocksDBConsumeQueueTable.binarySearchInCQByTime``,
``BatchConsumeQueue.getOffsetInQueueByTime``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, overload

from rmqtool.formats import consume_queue, layouts
from rmqtool.formats.codes import HOST_BITS
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.layouts import BatchConsumeQueueUnit
from rmqtool.store.segments import Segment, SegmentQueue

_SYS_FLAG_AT = PREFIXES[0].field("sys_flag").offset
_UNIT = layouts.CONSUME_QUEUE_UNIT
_HEAD = max(layout.size for layout in PREFIXES.values())


class Boundary(StrEnum):
    """The answer for a time that no message has: the first later message, or the last earlier one."""

    LOWER = "lower"
    UPPER = "upper"


class StoreTimes(NamedTuple):
    """Reads store times as a broker does: from any bytes at an offset, as long as it is in the log."""

    log: SegmentQueue
    end: int

    def read(self, physical_offset: int, size: int) -> int:
        """Return the store time in the record at an offset; -1 if the log does not have all of it.

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
        place = PREFIXES[sys_flag & HOST_BITS].field("store_timestamp").offset
        time: int = layouts.LONG.unpack_from(data, place)[0]
        return time


class FileUnits(Sequence[layouts.ConsumeQueueUnit]):
    """The first entries of a queue file, read one by one: a search looks at few of them."""

    def __init__(self, queue: SegmentQueue, segment: Segment, count: int) -> None:
        self._queue, self._segment, self._count = queue, segment, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> layouts.ConsumeQueueUnit: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[layouts.ConsumeQueueUnit]: ...

    def __getitem__(self, at: int | slice) -> layouts.ConsumeQueueUnit | Sequence[layouts.ConsumeQueueUnit]:
        if isinstance(at, slice):
            return [self[one] for one in range(self._count)[at]]
        place = range(self._count)[at] * _UNIT.size
        return _UNIT.decode(self._queue.open(self._segment).pread_exactly(_UNIT.size, place))


class QueueFile(NamedTuple):
    """The entries of one queue file up to the queue's end, and when the file was last written."""

    first_offset: int
    mtime_ms: int
    units: Sequence[layouts.ConsumeQueueUnit]


def search_4_9(times: StoreTimes, files: list[QueueFile], min_offset: int, timestamp: int) -> int:
    """Search as 4.9: in the first file that was written to at the time or later, else in the last file."""
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
        # upstream: without any probe the answer is byte -1 of the file, the last entry of the file before;
        # 0 in the first file.
        return file.first_offset + right if right >= 0 else max(file.first_offset - 1, 0)
    if right_time == -1 or abs(timestamp - left_time) <= abs(timestamp - right_time):
        return file.first_offset + left
    return file.first_offset + right


def search_5(times: StoreTimes, files: list[QueueFile], min_offset: int, timestamp: int, boundary: Boundary) -> int:
    """Search as 5.x: in the first file that ends at the time or later, or in the last one that begins before it."""
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


def _choose_file_5(times: StoreTimes, files: list[QueueFile], timestamp: int, boundary: Boundary) -> QueueFile | None:
    """Choose a file by the times of its first and last entries; an unknown time counts as -1."""

    def time_of(file: QueueFile, number: int) -> int:
        return times.read(file.units[number].physical_offset, file.units[number].size) if file.units else -1

    if boundary is Boundary.LOWER:
        return next((file for file in files[:-1] if time_of(file, -1) >= timestamp), files[-1] if files else None)
    return next((file for file in reversed(files) if time_of(file, 0) <= timestamp), None)


def search_rows(times: Sequence[int], timestamp: int, boundary: Boundary) -> int:
    """Search the store times of a queue in RocksDB, which are in its rows."""
    if boundary is Boundary.LOWER:
        return bisect_left(times, timestamp)
    return max(bisect_right(times, timestamp) - 1, 0)


def search_batches(files: list[Sequence[BatchConsumeQueueUnit]], timestamp: int, boundary: Boundary) -> int:
    """Search the entries of a batch queue, file by file; -1 without an answer."""
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
        # upstream: without an exact hit the answer depends on the path of the search: the next later entry, or none.
        elif units[middle].store_time <= timestamp:
            left = middle
        else:
            right = middle - 1
    return -1


def read_batch_files(segments: SegmentQueue) -> list[list[BatchConsumeQueueUnit]]:
    """Return the valid entries of each file of a batch queue."""
    files = []
    for segment in segments:
        units: list[BatchConsumeQueueUnit] = []
        for unit in layouts.BATCH_CONSUME_QUEUE_UNIT.iter_decode(segments.open(segment).pread(segment.size, 0)):
            if not consume_queue.is_batch_written(unit):
                break
            units.append(unit)
        files.append(units)
    return files
