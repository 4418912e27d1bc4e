"""Reads the log once for a recovery: finds its end, the damage between its records, and times that are out of order.

A valid record after damage is as good as any other. So the log does not end while a valid record follows, and damage is
held back until one does.

A broker stores messages with times that never go back. So a store time that is out of order is damage, or a clock that
was set back.

``LogExtract`` keeps the batches of a log, so that it is read only once. A repair compares the same log with several
states of its queues: as they are now, as a recovery leaves them, as a broker would find them afterwards. The log does
not change meanwhile. Its batches are small because they leave the bodies out. So they are kept, first in memory, then
in a temporary file without a name. A segment is read again only if its file has changed.

upstream: CommitLog.recoverNormally and recoverAbnormally end the log at the first bad record and destroy the rest.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from rmqtool.audit.damage import Bridge, Damage, DamageMap, Stretch, find_covering, joined
from rmqtool.audit.due import Batch, Ints, Wanted, batch_at, iter_batches
from rmqtool.errors import FileMissing
from rmqtool.files.failures import read_failed, write_failed
from rmqtool.files.filesystem import Closable
from rmqtool.formats.commit_log import BLANK_SIZE, Blank, Message, decode_record
from rmqtool.formats.flaws import Flaw, within_log
from rmqtool.log.end import is_filled, read_record
from rmqtool.log.read import DLedgerScan, SegmentScan
from rmqtool.log.walk import Place, SegmentWalk
from rmqtool.store.segments import Segment, SegmentQueue

# The bytes of an extract that stay in memory; with more, all of it goes to the temporary file.
_IN_MEMORY = 16 << 20
# The name of that file in errors.
_KEPT = "the temporary file of what the log says"


class LogReading:
    """Reads segments as batches with what is ``wanted``; ``dledger`` has the paths of data files of DLedger."""

    def __init__(self, wanted: Wanted, dledger: Collection[str] = ()) -> None:
        self.wanted = wanted
        self.dledger = dledger

    def pieces(self, segment: Segment, start: int = 0) -> Generator[Batch | Place, None, None]:
        """Yield the pieces of a segment from ``start`` of its file on; a record or a DLedger entry begins there."""
        with segment.filesystem.open_read(segment.path) as file:
            if segment.path in self.dledger:
                yield from iter_batches(file, DLedgerScan(file, segment.base_offset).pieces(start), self.wanted)
            else:
                yield from iter_batches(file, SegmentScan(file, segment.base_offset).pieces(start), self.wanted)

    def record(self, segment: Segment, file_offset: int, length: int) -> Batch:
        """Return the batch of one record whose structure is whole."""
        with segment.filesystem.open_read(segment.path) as file:
            return batch_at(file, file_offset, length, self.wanted)


class _Narrow(pickle.Pickler):
    """Writes columns of integers as the smallest type that holds their range.

    Half of an extract is physical offsets of neighbouring records: as differences from the first they need half the
    bytes.
    """

    def reducer_override(self, value: object) -> Any:
        """Return how pickle rebuilds a column of integers from its narrow form; everything else is pickled as usual."""
        if not isinstance(value, np.ndarray) or value.dtype != np.int64 or not value.size:
            return NotImplemented
        low = int(value.min())
        dtype = np.min_scalar_type(int(value.max()) - low)
        return _widen, (low, dtype.str, (value - low).astype(dtype).tobytes())


def _widen(low: int, dtype: str, data: bytes) -> Ints:
    """Return a column that ``_Narrow`` wrote; pickle calls this by its name."""
    return np.frombuffer(data, dtype).astype(np.int64) + low


class _State(NamedTuple):
    """Identifies the bytes of a segment: if this is equal, the file has not changed."""

    shown: str
    base_offset: int
    size: int
    mtime_ns: int


class LogExtract(LogReading, Closable):
    """Reads each segment once, and keeps its batches until it is closed."""

    def __init__(self, wanted: Wanted, dledger: Collection[str] = ()) -> None:
        super().__init__(wanted, dledger)
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  (`close` ends it)
        self._kept: dict[_State, list[int]] = {}

    def pieces(self, segment: Segment, start: int = 0) -> Generator[Batch | Place, None, None]:
        """Yield the pieces of a segment, the kept ones if its file is unchanged. A part of it is read and not kept."""
        if start:
            yield from super().pieces(segment, start)
            return
        state = _state_of(segment)
        if state in self._kept:
            yield from map(self._load, self._kept[state])
            return
        kept = []
        for found in super().pieces(segment):
            kept.append(self._keep(found))
            yield found
        self._kept[state] = kept

    def serves(self, wanted: Wanted) -> bool:
        """Return whether the kept batches have everything that is wanted."""
        mine = self.wanted
        same = (mine.rules, mine.batch_topics) == (wanted.rules, wanted.batch_topics)
        with_keys = mine.keys >= wanted.keys and mine.tag_keys >= wanted.tag_keys
        return same and with_keys and mine.inflating >= wanted.inflating

    def _keep(self, found: Batch | Place) -> int:
        """Write a piece to the end of the file; return its offset, for ``_load``. Raises WriteFailed on a full disk."""
        try:
            at = self._file.seek(0, 2)
            _Narrow(self._file, pickle.HIGHEST_PROTOCOL).dump(found)
        except OSError as error:
            raise write_failed("write to", _KEPT, error) from error
        return at

    def _load(self, at: int) -> Batch | Place:
        """Return the piece that ``_keep`` wrote at an offset. Raises ReadFailed."""
        try:
            self._file.seek(at)
            found: Batch | Place = pickle.load(self._file)  # noqa: S301  (only we can write a file without a name)
        except OSError as error:
            raise read_failed("read", _KEPT, error) from error
        return found

    def close(self) -> None:
        """Drop everything that was kept; the temporary file disappears."""
        self._kept.clear()
        self._file.close()


def _state_of(segment: Segment) -> _State:
    """Return the state of a segment's file now; raise FileMissing if a broker has deleted it."""
    status = segment.filesystem.find_stat(segment.path)
    if status is None:
        raise FileMissing(
            f"{segment.path} is gone",
            file=segment.filesystem.shown(segment.path),
            hint="run the command again: a segment was deleted while it read the log",
        )
    return _State(segment.filesystem.shown(segment.path), segment.base_offset, status.size, status.mtime_ns)


def iter_pieces(source: LogReading, segment: Segment, *, tag_keys: bool) -> Iterator[Batch | Place]:
    """Yield the pieces of a segment; without ``tag_keys`` batches have no index entries of tags, even if kept so."""
    for found in source.pieces(segment):
        yield found if tag_keys or isinstance(found, Place) else found.without_tag_keys()


# The number of odd times that are named one by one; later ones are joined to the last of them.
NAMED = 1000


class TimedRecord(NamedTuple):
    """A record's physical offset, size and store time (ms)."""

    physical_offset: int
    length: int
    store_timestamp: int


class OddTime(NamedTuple):
    """A record, or several in a row, whose store time is out of order.

    ``neighbour`` is the store time (ms) that contradicts it: that of the record before, if this one is earlier; that of
    the record after, if this one is later than both sides. Of several records, both times are those of the first.
    """

    physical_offset: int
    length: int
    store_timestamp: int
    neighbour: int
    records: int = 1


class TimeOrder(Protocol):
    """The first two and the last two records of a range, fewer if it has fewer, and its records out of order."""

    head: tuple[TimedRecord, ...]
    tail: tuple[TimedRecord, ...]
    odd_times: list[OddTime]


@dataclass
class LogTimes:
    """The ``TimeOrder`` of all records that a pass has taken so far."""

    head: tuple[TimedRecord, ...] = ()
    tail: tuple[TimedRecord, ...] = ()
    odd_times: list[OddTime] = field(default_factory=list)


def take_times(order: TimeOrder, batch: Batch) -> None:
    """Add the records of the batch that follows; note those whose store time is out of order."""
    places = np.concatenate((np.array([one.physical_offset for one in order.tail], np.int64), batch.physical_offsets))
    sizes = np.concatenate((np.array([one.length for one in order.tail], np.int64), batch.sizes))
    times = np.concatenate((np.array([one.store_timestamp for one in order.tail], np.int64), batch.store_timestamps))
    # The last two records of the batch before were compared with each other when it was taken.
    compared = max(len(order.tail) - 1, 0)
    for row in (np.flatnonzero(np.diff(times[compared:]) < 0) + compared).tolist():
        at, other = _odd_row(times, row + 1)
        odd = OddTime(int(places[at]), int(sizes[at]), int(times[at]), int(times[other]))
        last = order.odd_times[-1] if order.odd_times else None
        adjoins = last is not None and last.physical_offset + last.length == odd.physical_offset
        if last is not None and (adjoins or len(order.odd_times) >= NAMED):
            length = odd.physical_offset + odd.length - last.physical_offset
            order.odd_times[-1] = last._replace(length=length, records=last.records + 1)
        else:
            order.odd_times.append(odd)

    def named(*rows: int) -> tuple[TimedRecord, ...]:
        return tuple(TimedRecord(int(places[at]), int(sizes[at]), int(times[at])) for at in rows)

    order.head = order.head or named(*range(min(2, len(places))))
    order.tail = named(*range(max(len(places) - 2, 0), len(places)))


def _odd_row(times: Ints, row: int) -> tuple[int, int]:
    """Return which of two neighbours out of order, ``row`` - 1 and ``row``, is the odd one; then the other one.

    It is the first of them if its time is too late for the records on both sides, as after a jump of the clock. Without
    a record before it, it is odd if it is later than all that follow.
    """
    late = times[row - 2] <= times[row] if row >= 2 else times[row - 1] > times[row:].max()
    return (row - 1, row) if late else (row, row - 1)


# Flaws with which a record keeps its queue entry, because its length and place are right; a consumer sees the flaw.
_STANDS = ("CL-CRC", "CL-TIME", "CL-LEN")
# A store time further ahead of the clock than a day is damage, not a clock that is wrong.
_DAY_MS = 86_400_000


def covered_end(log: SegmentQueue, physical_offset: int, size: int) -> int:
    """Return where the damage under a bridge ends.

    If a blank record follows the bridge, that is the end of the segment: the repair wrote the blank over damage too.
    """
    end = physical_offset + size
    segment = log.find(end)
    is_last = segment is not None and isinstance(decode_record(log.read(end, BLANK_SIZE)), Blank)
    return segment.end_offset if segment is not None and is_last else end


@dataclass
class LogTail:
    """The end of the log, the store time (ms) of the last record before it, and the bytes after it.

    ``stale`` are the older records that a recovery left after the end.
    """

    offset: int
    store_timestamp: int
    # Bytes after the end that do not hold a valid record, in order; the first may be a torn record at the end itself.
    torn: list[Damage] = field(default_factory=list)
    stale: Damage | None = None

    @property
    def has_torn_record(self) -> bool:
        """Whether a record begins at the end whose structure is whole and whose content is damaged."""
        return any(damage.start == self.offset and damage.record is not None for damage in self.torn)


class LogPass:
    """One reading of a log, whose segments ``source`` reads.

    ``end``, ``last_timestamp`` and ``last_place`` are the end, store time and offset of the last record so far,
    ``newest_timestamp`` is the greatest store time; those more than a day after ``now`` do not count. Before the first
    record they are the beginning of the log, 0, -1 and 0. ``advance`` is called with the size of each segment when it
    was read.
    """

    def __init__(
        self, log: SegmentQueue, now: int, source: LogReading, advance: Callable[[int], None] | None = None
    ) -> None:
        self.log = log
        self.damage = DamageMap()
        self.records = 0
        self.end = log.min_offset
        self.last_timestamp = 0
        self.newest_timestamp = 0
        self.stale: Damage | None = None
        self.times = LogTimes()
        self.last_place = -1
        self._source = source
        self._advance = advance
        self._latest_credible = now + _DAY_MS
        # Damage since the last valid record. It belongs to the log only if a valid record follows.
        self._held: list[Damage] = []

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Yield all records, from the segment on that holds ``start``; damage between them is noted in ``damage``.

        The last are those before ``stale``, if older records follow the end of the log.
        """
        reached: int | None = None
        for segment in self.log:
            if segment.end_offset <= start:
                continue
            if reached is not None and reached < segment.base_offset:
                text = f"no segment holds the {segment.base_offset - reached} bytes from {reached} on"
                self._hold(Damage(reached, segment.base_offset, None, Flaw("CL-GAP", text)))
            reached = segment.end_offset
            at: int | None = 0
            while at is not None:
                at = yield from self._segment(segment, at)
            if self._advance is not None:
                self._advance(segment.size)
            if self.stale is not None:
                return

    def tail(self) -> LogTail:
        """Return the end of the log, past a blank if that fills the segment. Call it after all batches were taken."""
        end = self.end
        segment = self.log.find(end)
        if segment is not None and segment.base_offset != end and segment.path not in self._source.dledger:
            end = segment.end_offset if is_filled(self.log, segment, end) else end
        torn = [held for held in self._held if held.start >= end and held.segment is not None and not held.is_empty]
        return LogTail(end, self.last_timestamp, torn, self.stale)

    def find_record(self, physical_offset: int) -> Message | None:
        """Return the valid record at a physical offset before the end of the log, or None."""
        inside = self.log.min_offset <= physical_offset < self.end
        return read_record(self.log, physical_offset) if inside else None

    @property
    def last_damaged_timestamp(self) -> int:
        """The newest store time in a readable damaged record, 0 without one: a checkpoint may have this time."""
        return max((one.record.store_timestamp for one in self.damage.spans if one.record is not None), default=0)

    def is_odd_time(self, physical_offset: int) -> bool:
        """Return whether the record at an offset has a store time that is impossible or out of order."""
        odd = [Stretch(one.physical_offset, one.physical_offset + one.length) for one in self.times.odd_times]
        odd += [Stretch(one.start, one.end) for one in self.damage.spans if one.flaw.code == "CL-TIME"]
        return find_covering(joined(odd), physical_offset) is not None

    def _segment(self, segment: Segment, at: int) -> Generator[Batch, None, int | None]:
        """Yield the batches of a segment from ``at`` of its file on.

        Return the file offset to continue at if older records follow that are not stale, else None.
        """
        go_on: int | None = None
        for found in self._source.pieces(segment, at):
            if isinstance(found, Batch):
                yield from self._take(found)
                continue
            if isinstance(found.what, Flaw) and found.what.code == "CL-STALE":
                following = self._find_record(segment, found.file_offset + 1)
                if following is not None and not self._is_stale(segment, found, following):
                    start = segment.base_offset
                    flaw = Flaw("CL-MAGIC", "there is no record here, but older ones follow")
                    self._hold(Damage(start + found.file_offset, start + following, segment, flaw))
                    go_on = following
                if following is not None:
                    continue
            if isinstance(found.what, Flaw) or segment.path not in self._source.dledger:
                self._hold(_damage_at(segment, found))
        return go_on

    def _take(self, batch: Batch) -> Iterator[Batch]:
        """Yield the records of a batch, after the damaged but readable records that it proves to be within the log.

        Records without a store time prove nothing. At the end of a batch they are dropped here, and wait among the held
        damage.
        """
        sound = np.flatnonzero(batch.store_timestamps > 0)
        if not len(sound):
            return
        last = int(sound[-1])
        if last + 1 < len(batch.sizes):
            batch = batch.before(int(batch.physical_offsets[last + 1]))
        yield from self._release(int(batch.physical_offsets[0]), int(batch.physical_offsets[last]))
        self._count(batch, len(sound))
        yield batch

    def _hold(self, damage: Damage) -> None:
        """Keep damage until a valid record follows, which proves that it is inside the log."""
        if damage.end > damage.start:
            self._held.append(damage)

    def _release(self, first: int, last: int) -> Iterator[Batch]:
        """Move held damage before ``last`` into the map, because valid records follow.

        Yield its readable records that are before ``first``: a later one is in the batch itself.
        """
        within = [damage for damage in self._held if damage.start < last]
        self._held = [damage for damage in self._held if damage.start >= last]
        self.damage.spans += [damage._replace(flaw=within_log(damage.flaw)) for damage in within]
        for damage in within:
            if damage.record is not None and damage.segment is not None and damage.start < first:
                place = damage.start - damage.segment.base_offset, damage.record.total_size
                yield self._source.record(damage.segment, *place)

    def _count(self, batch: Batch, sound: int) -> None:
        """Move the end of the log past a batch, and note its times and bridges."""
        times = batch.store_timestamps
        self.records += sound
        self.end = int(batch.physical_offsets[-1] + batch.sizes[-1])
        self._learn_bridges(batch)
        self.last_place = int(batch.physical_offsets[-1])
        take_times(self.times, batch)
        self.last_timestamp = int(times[-1])
        credible = times[times <= self._latest_credible]
        if len(credible):
            self.newest_timestamp = max(self.newest_timestamp, int(credible.max()))

    def _learn_bridges(self, batch: Batch) -> None:
        """Note the bridges of a batch."""
        for place, size, flaw in batch.heads:
            if flaw.code == "CL-BRIDGE":
                self.damage.bridges.append(Bridge(place, size, covered_end(self.log, place, size)))

    def _find_record(self, segment: Segment, file_offset: int) -> int | None:
        """Return where the next self-consistent record of a segment begins, from an offset in it on, or None."""
        with segment.filesystem.open_read(segment.path) as file:
            return SegmentWalk(file, segment.base_offset).find_record(file_offset)

    def _is_stale(self, segment: Segment, place: Place, following: int) -> bool:
        """Return whether the records from ``following`` on are left over from before a broker cut the log here.

        They are if each is older than the last record before them and no later segment has a record; then ``stale`` has
        them. In doubt they are valid: it is better to show old messages again than to lose new ones.
        """
        last = self.last_timestamp
        if last > self._latest_credible:
            return False
        with segment.filesystem.open_read(segment.path) as file:
            behind = SegmentWalk(file, segment.base_offset).places(following)
            if any(isinstance(one.what, Message) and one.what.store_timestamp >= last for one in behind):
                return False
        if any(_holds_record(later) for later in self.log if later.base_offset > segment.base_offset):
            return False
        text = f"older records follow after the end of the log, first at {following}"
        start = segment.base_offset + place.file_offset
        self.stale = Damage(start, segment.end_offset, segment, Flaw("CL-STALE", text))
        return True


def _damage_at(segment: Segment, place: Place) -> Damage:
    """Return a place without a valid record as damage; a blank is damage of no bytes, which ``_hold`` drops."""
    start = segment.base_offset + place.file_offset
    if isinstance(place.what, Flaw):
        record = place.damaged if place.what.code in _STANDS else None
        if record is not None and record.physical_offset != start:
            record = None
        return Damage(start, start + place.length, segment, place.what, record)
    length = 0 if isinstance(place.what, Blank) else place.length
    return Damage(
        start, start + length, segment, Flaw("CL-MID", "the segment has no blank record at its end"), is_empty=True
    )


def _holds_record(segment: Segment) -> bool:
    with segment.filesystem.open_read(segment.path) as file:
        return any(isinstance(place.what, Message) for place in SegmentWalk(file, segment.base_offset).places())
