"""The end of the commit log, found without reading the log through. Stores are opened with it.

The search begins at the greatest queue entry that points to a valid record and goes back a few megabytes from there.
The entries of all queues, sorted by physical offset, are the last records of the log: where one ends and the next
begins, nothing needs to be read. The tolerant walk decides where the entries leave a gap: records without an entry,
records that are not dispatched, damage, stale records after the true end. So a log with queues costs little: only the
part that the queues do not cover is read. Long stretches of it are read by columns, which go from record to record by
their sizes and check the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import ReadableFile
from rmqtool.files.objects import ObjectReadableFileSystem
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.commit_log import BLANK_SIZE, Blank, Message, Nothing, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.log.walk import RECORD_WINDOW, WINDOW, Place, SegmentWalk, read_record_at, walk_dledger
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.columns.gather import Ints

# The search begins this far before the greatest entry, to include a break that a recovery left.
REACH = 8 << 20
# Limit of the entries that are read, shared out to the queues; but of each queue ``_FEWEST`` may be read.
_UNITS = 10_000
_FEWEST = 50
# Entries of a queue read in the first step back; each further step reads this many times more.
_FIRST_UNITS = 16
# Up to this size a gap is walked record by record; beyond it by columns, because importing numpy takes
# as long as that walk.
STROLL = 1 << 20
# Bytes of records found by columns at once.
PIECE = 8 << 20


class LogEnd(NamedTuple):
    """The end of the last valid record, and that record; the beginning of the log and None without a record."""

    physical_offset: int
    last: Message | None


class _Unit(NamedTuple):
    """A queue entry: the physical offset and the size of a record."""

    physical_offset: int
    size: int


def aligned_log(files: SegmentQueue) -> SegmentQueue:
    """Return a commit log with each segment at its real offset, without segments that overlap others.

    Most segments are whole segment sizes apart. Another one moves to the offset that its first record gives, and is
    left out if that does not fit between the others. Without a segment size the log stays as it is.
    """
    size = files.segment_size
    if not size:
        return files
    grid = Counter(segment.base_offset % size for segment in files).most_common(1)[0][0]
    regular = [segment for segment in files if segment.base_offset % size == grid]
    if len(regular) == len(files):
        return files
    taken = {segment.base_offset for segment in regular}
    for segment in files:
        real = None if segment.base_offset % size == grid else real_base(segment)
        if real is not None and real % size == grid and real not in taken:
            taken.add(real)
            regular.append(segment._replace(base_offset=real))
    return SegmentQueue(regular, size)


def real_base(segment: Segment) -> int | None:
    """Return the offset at which a segment begins, from its first record; None if that is not a valid message."""
    with segment.filesystem.open_read(segment.path) as file:
        what = SegmentWalk(file, None).place_at(0).what if file.size() else None
    return what.physical_offset if isinstance(what, Message) else None


def find_log_end(log: SegmentQueue, queues: Iterable[ConsumeQueueFiles], *, dledger: bool = False) -> LogEnd:
    """Return the end of the log; ``queues`` are all simple queues of the store."""
    if dledger:
        return _walk_dledger(log)
    if any(isinstance(segment.filesystem, ObjectReadableFileSystem) for segment in log):
        return _walk_far(log)
    try:
        tail = _tail_units(log, [queue for queue in queues if _is_readable(queue)])
    except ReadFailed:  # a bad sector in a queue: walk the log instead, which takes longer
        tail = []
    return _walk_on(log, tail) if tail else _walk_last(log)


def _is_readable(queue: ConsumeQueueFiles) -> bool:
    """Return whether both ends of a queue can be read. The other queues lead to the same end of the log."""
    try:
        queue.require_ends()
    except ReadFailed:
        return False
    return True


def _tail_units(log: SegmentQueue, queues: list[ConsumeQueueFiles]) -> list[_Unit]:
    """Return the entries for the last part of the log, in its order. The first and the last point to valid records."""
    greatest = _greatest_proven(log, queues)
    if greatest is None:
        return []
    since = greatest.physical_offset - REACH
    busy = [queue for queue in queues if queue.last_unit and queue.last_unit.physical_offset >= since]
    most = max(_FEWEST, _UNITS // max(len(busy), 1))
    found = [list(_units_since(queue, since, most)) for queue in busy]
    # If a queue has more entries than the limit, those of the others that point further back than its first are
    # dropped.
    since = max((min(units).physical_offset for units in found if len(units) == most), default=since)
    tail = sorted({unit for units in found for unit in units if unit.physical_offset >= since} | {greatest})
    tail = [unit for unit in tail if unit <= greatest and _leads_into(log, unit)]
    return tail[next(number for number, unit in enumerate(tail) if _is_proven(log, unit)) :]


def _greatest_proven(log: SegmentQueue, queues: list[ConsumeQueueFiles]) -> _Unit | None:
    """Return the greatest entry that points to a valid record, or None.

    It is the last entry of some queue, usually the first tried.
    """
    most = max(_FEWEST, _UNITS // max(len(queues), 1))
    # For each queue its greatest entry that is not refuted yet; the greatest of all comes first.
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
    """Yield those of the last ``most`` entries of a queue that point into the log, the last one first."""
    last = queue.last_unit
    if last is None:
        return
    end = queue.max_offset
    if last.size != FILLER_SIZE and last.physical_offset >= log.end_offset:
        # The end of the log is missing. Offsets in a queue only rise, so entries that point past the end
        # are skipped at once.
        end = queue.find_offset(log.end_offset)
    for at in range(end - 1, max(end - most, queue.first_offset) - 1, -1):
        found = queue.read_unit(at)
        if found is not None and _leads_into(log, unit := _Unit(found.physical_offset, found.size)):
            yield unit


def _units_since(queue: ConsumeQueueFiles, since: int, most: int) -> Iterator[_Unit]:
    """Yield those of the last ``most`` entries of a queue that point to ``since`` or later."""
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
    """Return whether an entry points into a segment. A filler does not: its offset means nothing."""
    return unit.size != FILLER_SIZE and log.find(unit.physical_offset) is not None


def _is_proven(log: SegmentQueue, unit: _Unit) -> bool:
    """Return whether an entry points to a valid record of its size."""
    record = read_record(log, unit.physical_offset)
    return record is not None and record.total_size == unit.size


def read_record(log: SegmentQueue, physical_offset: int, *, verify: bool = True) -> Message | None:
    """Return the valid record at ``physical_offset``, or None; see ``SegmentWalk.record_at``."""
    segment = log.find(physical_offset)
    if segment is None:
        return None
    file_offset = physical_offset - segment.base_offset
    found = read_record_at(log.open(segment), segment.base_offset, file_offset, verify=verify)
    return found if isinstance(found, Message) else None


def is_filled(log: SegmentQueue, segment: Segment, physical_offset: int) -> bool:
    """Return whether a blank record fills ``segment`` from ``physical_offset`` to its end."""
    found = decode_record(log.read(physical_offset, BLANK_SIZE))
    return isinstance(found, Blank) and found.total_size == segment.end_offset - physical_offset


def _walk_on(log: SegmentQueue, units: list[_Unit]) -> LogEnd:
    """Follow the entries, the first of which is proven, to the end of the log; walk where they leave a gap."""
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
    """Return the last record of the chain that is in the log.

    Entries can point to records that a crash took from the log.
    """
    for offset, _ in reversed(chain):
        message = read_record(log, offset)
        if message is not None:
            return message
    raise AssertionError("the first unit of a chain is proven")


def _walk(log: SegmentQueue, last: Message, start: int, until: int) -> LogEnd:
    """Walk from ``start`` to ``until`` at most; return where the log ends, and the last valid record before that.

    ``last`` is the last valid record before ``start``, and ``until`` is an offset to which a queue entry points, or the
    end of the files. The log ends after its last valid record where unwritten bytes or older records follow. Damage
    does not end it: if the walk gets to ``until``, the result is ``until``, even if the bytes before that are damaged.
    """
    end = start
    segment = log.find(start) or _next_segment(log, start)
    while segment is not None:
        walk = SegmentWalk(log.open(segment), segment.base_offset)
        # A gap of one record does not need a window of a megabyte.
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
        # An empty segment ends where it begins, so the next one is looked for one byte later.
        segment = _next_segment(log, max(segment.end_offset, segment.base_offset + 1))
        start = end if segment is None else segment.base_offset
    return LogEnd(end, last)


def _next_segment(log: SegmentQueue, offset: int) -> Segment | None:
    """Return the first segment with bytes that begins at ``offset`` or later, or None."""
    return next((segment for segment in log if segment.base_offset >= offset and segment.size), None)


def _walk_last(log: SegmentQueue) -> LogEnd:
    """Return the end of the log by a walk of the last segment with records, for a store without queues."""
    for segment in reversed(log.segments):
        last = None
        for place in _strides(SegmentWalk(log.open(segment), segment.base_offset), 0):
            if isinstance(place.what, Message):
                last = place.what
        if last is not None:
            return LogEnd(last.physical_offset + last.total_size, last)
    return LogEnd(log.min_offset, None)


def _walk_far(log: SegmentQueue) -> LogEnd:
    """Return the end of the log by a walk of the last megabytes of the last segment with records.

    On object storage looking into each queue would cost a request.
    """
    for segment in reversed(log.segments):
        file = log.open(segment)
        data_end = max((extent.end for extent in file.iter_data()), default=0)
        reach = REACH
        while data_end:
            begin = max(data_end - reach, 0)
            file.expect(begin, data_end)
            walk = SegmentWalk(file, segment.base_offset)
            start = 0 if not begin else walk.find_record(begin)
            places = () if start is None else _strides(walk, start)
            last = None
            for place in places:
                if isinstance(place.what, Message):
                    last = place.what
            if last is not None:
                return LogEnd(last.physical_offset + last.total_size, last)
            if not begin:
                break
            # No record in these bytes: go further back.
            reach *= 8
    return LogEnd(log.min_offset, None)


def _strides(walk: SegmentWalk, start: int) -> Iterator[Place]:
    """Yield the places of a walk from ``start`` on; of a long run of records, only those near its ends."""
    at: int | None = start
    while at is not None:
        begun, at = at, None
        for place in walk.places(begun):
            yield place
            place_end = place.file_offset + place.length
            if isinstance(place.what, Message) and place_end - begun >= STROLL:
                at = _last_of_run(walk.window.file, walk.base_offset or 0, place_end)
                if at is not None:
                    break


def _last_of_run(file: ReadableFile, base_offset: int, start: int) -> int | None:
    """Return where the last valid record begins in the run of records from ``start`` on; None without a run.

    If no record of the run is valid, return where its last one begins.
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
    """Return where the records begin that follow each other from ``start`` on, within one read."""
    from rmqtool.columns.starts import record_starts

    return record_starts(file.pread(PIECE, start)).file_offsets + start


def _walk_dledger(log: SegmentQueue) -> LogEnd:
    """Return the end of a DLedger log, by walking its last file with records."""
    for segment in reversed(log.segments):
        last = None
        for place in walk_dledger(log.open(segment), segment.base_offset):
            if isinstance(place.record.what, Message):
                last = LogEnd(segment.base_offset + place.file_offset + place.length, place.record.what)
        if last is not None:
            return last
    return LogEnd(log.min_offset, None)


def first_record(log: SegmentQueue, *, dledger: bool = False) -> Message | None:
    """Return the first valid record of the log, or None; damage before it is skipped."""
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
