"""The messages of a segment, counted by columns, from record to record."""

from __future__ import annotations

from rmqtool.formats.flaws import Flaw
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.walk import SegmentWalk

_PIECE = 16 << 20


def count_messages(file: ReadableFile, size: int) -> int:
    """Return how many records a segment holds; at damage the count goes on with the next record that is right."""
    from rmqtool.bulk.starts import record_starts

    at, count = 0, 0
    walk = SegmentWalk(file, None)
    while at < size:
        starts = record_starts(file.pread(min(_PIECE, size - at), at))
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
