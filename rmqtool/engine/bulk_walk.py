"""What is found by columns, from record to record: the end of a log without queues, the messages of a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.log_end import LogEnd, read_record
from rmqtool.storage.segments import SegmentQueue
from rmqtool.storage.walk import SegmentWalk

if TYPE_CHECKING:
    from rmqtool.bulk.starts import Starts

_PIECE = 16 << 20


def find_end_by_walk(log: SegmentQueue) -> LogEnd | None:
    """Return where the last valid record ends; None where that is not beyond doubt."""
    for segment in reversed(log.segments):
        file, at, last = log.open(segment), 0, None
        walk = SegmentWalk(file, segment.base_offset)
        while at < segment.size:
            starts = record_starts_of(file.pread(min(_PIECE, segment.size - at), at))
            at += starts.stopped_at
            if len(starts.file_offsets):
                last = at - starts.stopped_at + int(starts.file_offsets[-1])
            elif isinstance(starts.stopped_by, Flaw) or (
                isinstance(starts.stopped_by, Nothing) and walk.find_nonzero(at) is not None
            ):
                # Damage, a record larger than what is read at once, or something behind zeros.
                return None
            else:
                break
        if last is not None:
            record = read_record(log, segment.base_offset + last)
            return None if record is None else LogEnd(record.physical_offset + record.total_size, record)
    return None


def count_messages(file: ReadableFile, size: int) -> int:
    """Return how many records a segment holds; at damage the count goes on with the next record that is right."""
    at, count = 0, 0
    walk = SegmentWalk(file, None)
    while at < size:
        starts = record_starts_of(file.pread(min(_PIECE, size - at), at))
        count += len(starts.file_offsets)
        at += starts.stopped_at
        if not len(starts.file_offsets):
            following = walk.find_record(at + 1)
            if following is None:
                break
            # A record larger than a piece begins where the walk stopped.
            count += isinstance(starts.stopped_by, Flaw) and walk.record_at(at) is not None
            at = following
    return count


def record_starts_of(data: bytes) -> Starts:
    """Return where the records that ``data`` begins with begin, and what stands behind them."""
    from rmqtool.bulk.starts import record_starts

    return record_starts(data)
