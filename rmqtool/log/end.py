"""Where the commit log ends, found without reading the log through.

The search starts at the greatest queue unit that leads to a valid record, and goes a few megabytes back from there: the
units of all queues, sorted by place, are the last records of the log, and where one unit ends and the next begins, the
log needs no look. At a step that the units leave open (records without a unit, undispatched ones, damage, stale
records after the true end) the tolerant walk decides. So a quiet queue costs nothing, and only what the queues do not
know yet is read: in long stretches by columns, which hop from record to record and check the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.commit_log import BLANK_SIZE, Blank, Message, Nothing, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.log.walk import RECORD_WINDOW, WINDOW, Place, SegmentWalk, read_record_at, walk_dledger
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.columns.gather import Ints

# How far before the greatest unit the search starts: enough to see the break that a recovery leaves.
REACH = 8 << 20
# Units looked at, over all queues, and of each queue at least.
_UNITS = 10_000
_FEWEST = 50
_FIRST_UNITS = 16
# Record by record up to here; by columns beyond. The latter needs numpy, whose import takes as long as this walk.
STROLL = 1 << 20
PIECE = 8 << 20


class LogEnd(NamedTuple):
    """Where the last valid record ends, and the last record, if one was seen."""

    physical_offset: int
    last: Message | None


class _Unit(NamedTuple):
    """Where a queue says that a record begins, and its size."""

    physical_offset: int
    size: int


def find_log_end(log: SegmentQueue, queues: Iterable[ConsumeQueueFiles], *, dledger: bool = False) -> LogEnd:
    """Return the end of the log."""
    if dledger:
        return _walk_dledger(log)
    try:
        tail = _tail_units(log, [queue for queue in queues if _is_readable(queue)])
    except ReadFailed:  # a bad sector in a queue: the log itself tells, with a longer walk
        tail = []
    return _walk_on(log, tail) if tail else _walk_last(log)


def _is_readable(queue: ConsumeQueueFiles) -> bool:
    """Return whether both ends of a queue can be read. The others lead to the same end of the log."""
    try:
        return (queue.first_offset, queue.last_unit) is not None
    except ReadFailed:
        return False


def _tail_units(log: SegmentQueue, queues: list[ConsumeQueueFiles]) -> list[_Unit]:
    """Return the units of the last part of the log in its order; the first and the last lead to valid records."""
    greatest = _greatest_proven(log, queues)
    if greatest is None:
        return []
    since = greatest.physical_offset - REACH
    busy = [queue for queue in queues if queue.last_unit and queue.last_unit.physical_offset >= since]
    most = max(_FEWEST, _UNITS // max(len(busy), 1))
    found = [list(_units_since(queue, since, most)) for queue in busy]
    # Where a queue has more units than are looked at, the others are not followed further back than it is.
    since = max((min(units).physical_offset for units in found if len(units) == most), default=since)
    tail = sorted({unit for units in found for unit in units if unit.physical_offset >= since} | {greatest})
    tail = [unit for unit in tail if unit <= greatest and _leads_into(log, unit)]
    return tail[next(number for number, unit in enumerate(tail) if _is_proven(log, unit)) :]


def _greatest_proven(log: SegmentQueue, queues: list[ConsumeQueueFiles]) -> _Unit | None:
    """Return the greatest unit that leads to a valid record: the last of a queue, mostly at the first look."""
    most = max(_FEWEST, _UNITS // max(len(queues), 1))
    # The greatest unit of each queue that is not refuted yet, greatest first.
    heap = []
    for number, queue in enumerate(queues):
        units = _units_before(log, queue, most)
        first = next(units, None)
        if first is not None:
            heap.append((-first.physical_offset, number, first, units))
    heapify(heap)
    while heap:
        _, number, unit, units = heap[0]
        if _is_proven(log, unit):
            return unit
        before = next(units, None)
        if before is None:
            heappop(heap)
        else:
            heapreplace(heap, (-before.physical_offset, number, before, units))
    return None


def _units_before(log: SegmentQueue, queue: ConsumeQueueFiles, most: int) -> Iterator[_Unit]:
    """Yield the last units of a queue that lead into the log, the last one first."""
    last = queue.last_unit
    if last is None:
        return
    end = queue.max_offset
    if last.size != FILLER_SIZE and last.physical_offset >= log.end_offset:
        # The end of the log is gone: places only rise, so the units that lead beyond it need not be tried.
        end = queue.find_offset(log.end_offset)
    for at in range(end - 1, max(end - most, queue.first_offset) - 1, -1):
        found = queue.read_unit(at)
        if found is not None and _leads_into(log, unit := _Unit(found.physical_offset, found.size)):
            yield unit


def _units_since(queue: ConsumeQueueFiles, since: int, most: int) -> Iterator[_Unit]:
    """Yield the units of a queue that lead to ``since`` or further, of its last ``most``."""
    end, step = queue.max_offset, _FIRST_UNITS
    least = max(end - most, queue.first_offset)
    while end > least:
        begin = max(end - step, least)
        units = [_Unit(unit.physical_offset, unit.size) for _, unit in queue.iter_units(begin, end)]
        yield from (unit for unit in units if unit.physical_offset >= since)
        if not units or units[0].physical_offset < since:
            return
        end, step = begin, step * _FIRST_UNITS


def _leads_into(log: SegmentQueue, unit: _Unit) -> bool:
    return unit.size != FILLER_SIZE and log.find(unit.physical_offset) is not None


def _is_proven(log: SegmentQueue, unit: _Unit) -> bool:
    record = read_record(log, unit.physical_offset)
    return record is not None and record.total_size == unit.size


def read_record(log: SegmentQueue, physical_offset: int, *, verify: bool = True) -> Message | None:
    """Return the valid record at ``physical_offset``, None without one; see ``SegmentWalk.record_at``."""
    segment = log.find(physical_offset)
    if segment is None:
        return None
    file_offset = physical_offset - segment.base_offset
    found = read_record_at(log.open(segment), segment.base_offset, file_offset, verify=verify)
    return found if isinstance(found, Message) else None


def is_filled(log: SegmentQueue, segment: Segment, physical_offset: int) -> bool:
    """Return whether a blank fills ``segment`` from ``physical_offset`` to its end."""
    found = decode_record(log.read(physical_offset, BLANK_SIZE))
    return isinstance(found, Blank) and found.total_size == segment.end_offset - physical_offset


def _walk_on(log: SegmentQueue, units: list[_Unit]) -> LogEnd:
    """Follow the units, the first of which is proven, to the end; walk where they leave a gap."""
    chain = [units[0]]
    for unit in units[1:]:
        offset, end = unit.physical_offset, sum(chain[-1])
        if offset > end:
            last = _last_valid(log, chain)
            reached = _walk(log, last, last.physical_offset + last.total_size, offset)
            if reached.physical_offset < offset:
                return reached
        if offset >= end:
            chain.append(unit)
    last = _last_valid(log, chain)
    return _walk(log, last, last.physical_offset + last.total_size, log.end_offset)


def _last_valid(log: SegmentQueue, chain: list[_Unit]) -> Message:
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
        # A gap of one record is no reason to read a megabyte.
        walk.window.least = min(max(until - start, RECORD_WINDOW), WINDOW)
        walk.last_timestamp = last.store_timestamp
        for place in _strides(walk, max(start - segment.base_offset, 0)):
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
        for place in _strides(SegmentWalk(log.open(segment), segment.base_offset), 0):
            if isinstance(place.what, Message):
                last = place.what
        if last is not None:
            return LogEnd(last.physical_offset + last.total_size, last)
    return LogEnd(log.min_offset, None)


def _strides(walk: SegmentWalk, start: int) -> Iterator[Place]:
    """Yield the places of a walk from ``start`` on; of a long run of records only those near its ends."""
    at: int | None = start
    while at is not None:
        begun, at = at, None
        for place in walk.places(begun):
            yield place
            behind = place.file_offset + place.length
            if isinstance(place.what, Message) and behind - begun >= STROLL:
                at = _last_of_run(walk.window.file, walk.base_offset or 0, behind)
                if at is not None:
                    break


def _last_of_run(file: ReadableFile, base_offset: int, start: int) -> int | None:
    """Return where the last valid record of the run that begins at ``start`` begins, else the last record.

    None where there is no run.
    """
    begins: list[int] = []
    at = start
    starts = _starts_of_piece(file, at)
    while starts.size:
        begins.append(at)
        at = int(starts[-1])
        starts = _starts_of_piece(file, at)[1:]
    for begin in reversed(begins):
        for file_offset in map(int, reversed(_starts_of_piece(file, begin))):
            if isinstance(read_record_at(file, base_offset, file_offset), Message):
                return file_offset
    return at if begins else None


def _starts_of_piece(file: ReadableFile, start: int) -> Ints:
    """Return where the records begin that follow each other from ``start`` on, in the next few megabytes."""
    from rmqtool.columns.starts import record_starts

    return record_starts(file.pread(PIECE, start)).file_offsets + start


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
