"""Where the commit log ends, found from its queues without reading the log through.

The last units of all queues, sorted by place, are the last records of the log: where one unit ends and the next
begins, the log needs no look. At a step that the units leave open (records that stand in no queue, undispatched ones,
damage, stale records behind the true end) the tolerant walk decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.commit_log import Message, Nothing, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.segments import Segment, SegmentQueue
from rmqtool.storage.walk import SegmentWalk, read_record_at, walk_dledger

# Units looked at, over all queues: enough to see behind what a recovery leaves, few enough to be quick.
_UNITS = 10_000
_FEWEST = 50


class LogEnd(NamedTuple):
    """Where the last valid record ends, and the last record, if one was seen."""

    physical_offset: int
    last: Message | None


def find_log_end(log: SegmentQueue, queues: Iterable[ConsumeQueueFiles], *, dledger: bool = False) -> LogEnd:
    """Return the end of the log."""
    if dledger:
        return _walk_dledger(log)
    tail = sorted(set(_tail_units(log, list(queues))))
    for number, (offset, size) in enumerate(tail):
        first = read_record(log, offset)
        if first is not None and first.total_size == size:
            return _walk_on(log, tail[number:])
    return _walk_last(log)


def _tail_units(log: SegmentQueue, queues: list[ConsumeQueueFiles]) -> Iterator[tuple[int, int]]:
    most = max(_FEWEST, _UNITS // max(len(queues), 1))
    for queue in queues:
        for _, unit in queue.iter_units(queue.max_offset - most):
            if unit.size != FILLER_SIZE and log.find(unit.physical_offset) is not None:
                yield unit.physical_offset, unit.size


def read_record(log: SegmentQueue, physical_offset: int) -> Message | None:
    """Return the valid record at ``physical_offset``, None when none stands there."""
    segment = log.find(physical_offset)
    if segment is None:
        return None
    found = read_record_at(log.open(segment), segment.base_offset, physical_offset - segment.base_offset)
    return found if isinstance(found, Message) else None


def read_as_it_stands(log: SegmentQueue, physical_offset: int) -> Message | None:
    """Return the record at ``physical_offset`` when its lengths add up; its checksums are not looked at."""
    head = log.read(physical_offset, layouts.RECORD_START.size)
    if len(head) < layouts.RECORD_START.size:
        return None
    segment = log.find(physical_offset)
    left = segment.end_offset - physical_offset if segment is not None else 0
    size = min(max(layouts.RECORD_START.decode(head).total_size, 0), left)
    found = decode_record(log.read(physical_offset, size))
    return found if isinstance(found, Message) else None


def _walk_on(log: SegmentQueue, units: list[tuple[int, int]]) -> LogEnd:
    """Follow the units, the first of which is proven, to the end; walk where they leave a gap."""
    chain = [units[0]]
    for offset, size in units[1:]:
        end = sum(chain[-1])
        if offset > end:
            last = _last_valid(log, chain)
            reached = _walk(log, last, last.physical_offset + last.total_size, offset)
            if reached.physical_offset < offset:
                return reached
        if offset >= end:
            chain.append((offset, size))
    last = _last_valid(log, chain)
    return _walk(log, last, last.physical_offset + last.total_size, log.end_offset)


def _last_valid(log: SegmentQueue, chain: list[tuple[int, int]]) -> Message:
    """Return the last record of the chain that is really there: units may outlive what a crash took from the log."""
    for offset, _ in reversed(chain):
        message = read_record(log, offset)
        if message is not None:
            return message
    raise AssertionError("the first unit of a chain is proven")


def _walk(log: SegmentQueue, last: Message, start: int, until: int) -> LogEnd:
    """Walk from ``start`` towards ``until``; return where the last valid record before it, or at it, ends."""
    end = start
    segment = log.find(start) or _next_segment(log, start)
    while segment is not None:
        walk = SegmentWalk(log.open(segment), segment.base_offset)
        walk.last_timestamp = last.store_timestamp
        for place in walk.places(max(start - segment.base_offset, 0)):
            at = segment.base_offset + place.file_offset
            if at >= until:
                return LogEnd(until, last)
            if isinstance(place.what, Message):
                last, end = place.what, at + place.length
            elif isinstance(place.what, Nothing) or (isinstance(place.what, Flaw) and place.what.code == "CL-STALE"):
                return LogEnd(end, last)
        # An empty segment ends where it begins.
        segment = _next_segment(log, max(segment.end_offset, segment.base_offset + 1))
        start = end if segment is None else segment.base_offset
    return LogEnd(end, last)


def _next_segment(log: SegmentQueue, offset: int) -> Segment | None:
    return next((segment for segment in log if segment.base_offset >= offset and segment.size), None)


def _walk_last(log: SegmentQueue) -> LogEnd:
    """Walk the last segment that holds anything: there are no queues to go by."""
    for segment in reversed(log.segments):
        last = None
        for place in SegmentWalk(log.open(segment), segment.base_offset).places():
            if isinstance(place.what, Message):
                last = place.what
        if last is not None:
            return LogEnd(last.physical_offset + last.total_size, last)
    return LogEnd(log.min_offset, None)


def _walk_dledger(log: SegmentQueue) -> LogEnd:
    """Walk the entries of DLedger's last file that holds any."""
    for segment in reversed(log.segments):
        last = None
        for place in walk_dledger(log.open(segment), segment.base_offset):
            if isinstance(place.record.what, Message):
                last = LogEnd(segment.base_offset + place.file_offset + place.length, place.record.what)
        if last is not None:
            return last
    return LogEnd(log.min_offset, None)


def first_record(log: SegmentQueue, *, dledger: bool = False) -> Message | None:
    """Return the first valid record of the log."""
    for segment in log:
        file = log.open(segment)
        records = (
            (place.record for place in walk_dledger(file, segment.base_offset))
            if dledger
            else SegmentWalk(file, segment.base_offset).places()
        )
        for place in records:
            if isinstance(place.what, Message):
                return place.what
            if isinstance(place.what, Nothing):
                break
    return None
