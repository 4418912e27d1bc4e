"""The log read through once: batches of records by columns, and the damage between them.

Where the log is sound it is read by columns. Where it is not, the tolerant walk goes over the break and a little
beyond it. A record behind damage is as good as any other, so nothing is called the end of the log while a valid
record follows.

upstream: CommitLog.recoverNormally and recoverAbnormally take the first bad record for the end and destroy the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.files.filesystem import ReadableFile
from rmqtool.files.salvaged import SalvagedFile, salvaged
from rmqtool.formats.bridges import is_bridge
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.commit_log import BLANK_SIZE, MIN_RECORD_SIZE, Blank, Message, Nothing, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.log.end import read_record
from rmqtool.log.walk import Place, SegmentWalk, find_dledger_entry, walk_dledger
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.columns.properties import Properties
    from rmqtool.columns.records import Records

_PIECE = 8 << 20
# So many sound records behind a break, and the columns take over again.
_SOUND_AGAIN = 64
# So many records of a DLedger log come at once.
_ENTRIES = 4096
# A record whose structure and place are right keeps its unit: what is wrong with it is its reader's matter.
_STANDS = ("CL-CRC", "CL-TIME", "CL-LEN")
_DAY_MS = 86_400_000


class LogBatch(NamedTuple):
    """Records in the order of the log."""

    records: Records
    properties: Properties
    end: int


class Damage(NamedTuple):
    """Bytes of the log that are no valid record; ``record`` is the message in them whose structure is whole."""

    start: int
    end: int
    segment: Segment | None
    flaw: Flaw
    record: Message | None = None
    is_empty: bool = False


class Bridge(NamedTuple):
    """A record that a repair has laid over damage; what stood before ``end`` is lost."""

    physical_offset: int
    size: int
    end: int


@dataclass
class DamageMap:
    """All damage, in the order of the log, and what bridges damage that was there before."""

    spans: list[Damage] = field(default_factory=list)
    bridges: list[Bridge] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def add(self, damage: Damage) -> None:
        """Take a span behind all others."""
        self.spans.append(damage)
        self._starts.append(damage.start)

    def covers(self, physical_offset: int) -> bool:
        """Return whether an offset lies in damage."""
        at = bisect_right(self._starts, physical_offset) - 1
        return at >= 0 and physical_offset < self.spans[at].end

    def find_bridge(self, physical_offset: int) -> Bridge | None:
        """Return the bridge over an offset."""
        at = bisect_right(self.bridges, physical_offset, key=_place_of) - 1
        return self.bridges[at] if at >= 0 and physical_offset < self.bridges[at].end else None

    def find_last_bridge(self, start: int, end: int) -> Bridge | None:
        """Return the last bridge between two offsets."""
        at = bisect_right(self.bridges, end - 1, key=_place_of) - 1
        return self.bridges[at] if at >= 0 and self.bridges[at].physical_offset >= start else None

    def lost_between(self, start: int, end: int) -> int:
        """Return how many records at most were in the damage between two offsets."""
        at = max(bisect_right(self._starts, start) - 1, 0)
        lost = 0
        for bridge in self.bridges[max(bisect_right(self.bridges, start, key=_place_of) - 1, 0) :]:
            if bridge.physical_offset >= end:
                break
            lost += max(min(bridge.end, end) - max(bridge.physical_offset, start), 0)
        for span in self.spans[at:]:
            if span.start >= end:
                break
            lost += max(min(span.end, end) - max(span.start, start), 0)
        return -(-lost // MIN_RECORD_SIZE)


def _place_of(bridge: Bridge) -> int:
    return bridge.physical_offset


@dataclass
class LogTail:
    """Where the log ends, and what stands behind that."""

    offset: int
    store_timestamp: int
    # Bytes behind the end that are no record's, and whether they are the remains of a record that begins there.
    torn: list[Damage] = field(default_factory=list)
    stale: Damage | None = None

    @property
    def has_torn_record(self) -> bool:
        """Return whether a record stands at the end whose structure is whole."""
        return any(damage.start == self.offset and damage.record is not None for damage in self.torn)


class LogPass:
    """One reading of the log; ``now`` bounds the store times that are believed, ``dledger`` has its DLedger files."""

    def __init__(
        self,
        log: SegmentQueue,
        now: int,
        advance: Callable[[int], None] | None = None,
        dledger: Collection[str] = (),
    ) -> None:
        self.log = log
        self._dledger = dledger
        self.damage = DamageMap()
        self.records = 0
        self.end = log.min_offset
        self.last_timestamp = 0
        self.newest_timestamp = 0
        self.stale: Damage | None = None
        self._advance = advance
        self._latest_credible = now + _DAY_MS
        # Damage that lies within the log only if a valid record follows it.
        self._held: list[Damage] = []

    def batches(self, start: int = 0) -> Iterator[LogBatch]:
        """Yield all records from ``start`` on, which is where one begins."""
        reached: int | None = None
        for segment in self.log:
            if segment.end_offset <= start:
                continue
            if reached is not None and reached < segment.base_offset:
                text = f"no segment holds the {segment.base_offset - reached} bytes from {reached} on"
                self._hold(Damage(reached, segment.base_offset, None, Flaw("CL-GAP", text)))
            reached = segment.end_offset
            with salvaged(segment.filesystem.open_read(segment.path)) as file:
                if segment.path in self._dledger:
                    yield from self._entries(segment, file)
                else:
                    yield from self._segment(segment, file, max(start - segment.base_offset, 0))
            if self._advance is not None:
                self._advance(segment.size)
            if self.stale is not None:
                return

    def tail(self) -> LogTail:
        """Return how the log ends, after everything was read."""
        end = self.end
        segment = self.log.find(end)
        if segment is not None and segment.base_offset != end and segment.path not in self._dledger:
            what = decode_record(self.log.read(end, BLANK_SIZE))
            if isinstance(what, Blank) and what.total_size == segment.end_offset - end:
                end = segment.end_offset
        torn = [held for held in self._held if held.start >= end and held.segment is not None and not held.is_empty]
        return LogTail(end, self.last_timestamp, torn, self.stale)

    def find_record(self, physical_offset: int) -> Message | None:
        """Return the valid record at an offset of the log proper."""
        inside = self.log.min_offset <= physical_offset < self.end
        return read_record(self.log, physical_offset) if inside else None

    def _hold(self, damage: Damage) -> None:
        if damage.end > damage.start:
            self._held.append(damage)

    def _release(self) -> Iterator[LogBatch]:
        """Take what was held for damage within the log, since a valid record follows it."""
        held, self._held = self._held, []
        for damage in held:
            self.damage.add(damage)
        for damage in held:
            if damage.record is not None and damage.segment is not None:
                with damage.segment.filesystem.open_read(damage.segment.path) as file:
                    place = damage.start - damage.segment.base_offset, damage.record.total_size
                    yield _batch(file, damage.segment, [place])

    def _segment(self, segment: Segment, file: SalvagedFile, at: int) -> Iterator[LogBatch]:
        while at < segment.size:
            batch, at, goes_on = self._by_columns(segment, file, at)
            if batch is not None:
                yield from self._release()
                self._count(batch)
                yield batch
            if not goes_on:
                at = yield from self._by_walk(segment, file, at)

    def _entries(self, segment: Segment, file: ReadableFile) -> Iterator[LogBatch]:
        """Yield the records that the entries of a DLedger file hold; behind a break the next whole entry goes on."""
        places: list[tuple[int, int]] = []
        at: int | None = 0
        while at is not None:
            begin, at = at, None
            for entry in walk_dledger(file, segment.base_offset, begin):
                is_record = isinstance(entry.record.what, Message)
                if is_record:
                    yield from self._release()
                    places.append((entry.record.file_offset, entry.record.length))
                if places and (not is_record or len(places) == _ENTRIES):
                    yield self._walked(segment, file, places)
                    places = []
                if isinstance(entry.record.what, Flaw):
                    self._hold(_damage_at(segment, entry.record))
                if isinstance(entry.head, Flaw):
                    at = find_dledger_entry(file, segment.base_offset, entry.file_offset + 1)
                    broken = Place(entry.file_offset, at - entry.file_offset, entry.head)
                    self._hold(_damage_at(segment, broken))
                    at = at if at < segment.size else None

    def _count(self, batch: LogBatch) -> None:
        times = batch.records.column("store_timestamp")
        self.records += len(batch.records)
        self.end = batch.end
        self._learn_bridges(batch)
        self.last_timestamp = int(times[-1])
        credible = times[times <= self._latest_credible]
        if len(credible):
            self.newest_timestamp = max(self.newest_timestamp, int(credible.max()))

    def _learn_bridges(self, batch: LogBatch) -> None:
        import numpy as np

        records = batch.records
        rolled_back = records.column("sys_flag") & TRANSACTION_MASK == int(TransactionType.ROLLBACK)
        for row in np.flatnonzero(rolled_back).tolist():
            record = decode_record(records.data.data, int(records.file_offsets[row]))
            if isinstance(record, Message) and is_bridge(record):
                end = record.physical_offset + record.total_size
                segment = self.log.find(end)
                behind = decode_record(self.log.read(end, BLANK_SIZE))
                is_last = segment is not None and isinstance(behind, Blank)
                covered = segment.end_offset if segment is not None and is_last else end
                self.damage.bridges.append(Bridge(record.physical_offset, record.total_size, covered))

    def _by_columns(self, segment: Segment, file: SalvagedFile, at: int) -> tuple[LogBatch | None, int, bool]:
        """Return the sound records at ``at``, where to go on, and whether columns can go on there.

        The last record before a break is left to the walk: it may be what is wrong, and reach into the next one.
        """
        from rmqtool.columns.properties import decode_properties
        from rmqtool.columns.records import decode_records
        from rmqtool.columns.starts import record_starts

        data = file.pread(min(_PIECE, segment.size - at), at)
        starts = record_starts(data)
        records, _ = decode_records(data, starts.file_offsets)
        sound = _count_sound(records.select(slice(_count_readable(records, file, at))), segment.base_offset + at)
        stopped_at, goes_on, is_rest = at + starts.stopped_at, False, False
        if sound == len(starts.file_offsets):
            rest = segment.size - stopped_at
            if isinstance(starts.stopped_by, Blank) and starts.stopped_by.total_size == rest:
                if self._is_last(segment, file, records, stopped_at):
                    stopped_at, goes_on = segment.size, True
            elif sound and at + len(data) < segment.size:
                goes_on = True
            elif isinstance(starts.stopped_by, Nothing):
                is_rest = SegmentWalk(file, segment.base_offset).find_nonzero(stopped_at) is None
        if not goes_on and not is_rest:
            sound = max(sound - 1, 0)
            stopped_at = at + int(starts.file_offsets[sound]) if len(starts.file_offsets) else at
        records = records.select(slice(sound))
        batch = None
        if sound:
            end = int(records.file_offsets[-1]) + int(records.column("total_size")[-1])
            batch = LogBatch(records, decode_properties(records), segment.base_offset + at + end)
        return batch, stopped_at, goes_on

    def _is_last(self, segment: Segment, file: SalvagedFile, records: Records, blank_at: int) -> bool:
        """Tell whether the blank that ``records`` are followed by holds no valid ones."""
        walk = SegmentWalk(file, segment.base_offset)
        times = records.column("store_timestamp")
        walk.last_timestamp = int(times[-1]) if len(times) else self.last_timestamp
        return isinstance(walk.place_at(blank_at).what, Blank)

    def _by_walk(self, segment: Segment, file: ReadableFile, at: int) -> Generator[LogBatch, None, int]:
        """Yield records one by one over a break, until the log seems sound again; return where that is."""
        walk = SegmentWalk(file, segment.base_offset)
        places: list[tuple[int, int]] = []
        for place in walk.places(at):
            if isinstance(place.what, Message):
                yield from self._release()
                places.append((place.file_offset, place.length))
                if len(places) == _SOUND_AGAIN:
                    yield self._walked(segment, file, places)
                    return place.file_offset + place.length
                continue
            if places:
                yield self._walked(segment, file, places)
                places = []
            if isinstance(place.what, Flaw) and place.what.code == "CL-STALE":
                following = walk.find_record(place.file_offset + 1)
                if following is not None and not self._is_stale(segment, file, place, following):
                    start = segment.base_offset
                    flaw = Flaw("CL-MAGIC", "no record stands here, and older ones follow")
                    self._hold(Damage(start + place.file_offset, start + following, segment, flaw))
                    return following
                if following is not None:
                    return segment.size
            self._hold(_damage_at(segment, place))
        if places:
            yield self._walked(segment, file, places)
        return segment.size

    def _walked(self, segment: Segment, file: ReadableFile, places: list[tuple[int, int]]) -> LogBatch:
        batch = _batch(file, segment, places)
        self._count(batch)
        return batch

    def _is_stale(self, segment: Segment, file: ReadableFile, place: Place, following: int) -> bool:
        """Tell whether the records from ``following`` on were left behind when a broker cut the log here before.

        Then they are all older than the last one in front, and the last there are. When in doubt they are valid.
        """
        last = self.last_timestamp
        if last > self._latest_credible:
            return False
        behind = SegmentWalk(file, segment.base_offset).places(following)
        if any(isinstance(one.what, Message) and one.what.store_timestamp >= last for one in behind):
            return False
        if any(_holds_record(later) for later in self.log if later.base_offset > segment.base_offset):
            return False
        text = f"records older than the last one lie behind the end of the log, first at {following}"
        start = segment.base_offset + place.file_offset
        self.stale = Damage(start, segment.end_offset, segment, Flaw("CL-STALE", text))
        return True


def _count_readable(records: Records, file: SalvagedFile, at: int) -> int:
    """Return how many of the first records hold no byte that the disk cannot read; they begin at ``at`` of the file."""
    if not file.has_unreadable:
        return len(records)
    ends = records.file_offsets + records.column("total_size") + at
    for row, (begin, end) in enumerate(zip((records.file_offsets + at).tolist(), ends.tolist(), strict=True)):
        if file.find_unreadable(begin, end) is not None:
            return row
    return len(records)


def _count_sound(records: Records, physical_offset: int) -> int:
    """Return how many of the first records are valid."""
    from rmqtool.columns import records as columns

    sound = len(records)
    for judge in (
        columns.have_store_time,
        lambda some: columns.lie_in_place(some, physical_offset),
        columns.have_right_crc,
        columns.have_right_property_crc,
    ):
        good = judge(records)
        if not good.all():
            sound = int(good.argmin())
            records = records.select(slice(sound))
    return sound


def _damage_at(segment: Segment, place: Place) -> Damage:
    start = segment.base_offset + place.file_offset
    if isinstance(place.what, Flaw):
        record = place.damaged if place.what.code in _STANDS else None
        if record is not None and record.physical_offset != start:
            record = None
        return Damage(start, start + place.length, segment, place.what, record)
    length = 0 if isinstance(place.what, Blank) else place.length
    return Damage(start, start + length, segment, Flaw("CL-MID", "the segment ends without a blank"), is_empty=True)


def _holds_record(segment: Segment) -> bool:
    with segment.filesystem.open_read(segment.path) as file:
        return any(isinstance(place.what, Message) for place in SegmentWalk(file, segment.base_offset).places())


def _batch(file: ReadableFile, segment: Segment, places: list[tuple[int, int]]) -> LogBatch:
    """Return the records that stand at some places, whose structure is whole."""
    import numpy as np

    from rmqtool.columns.properties import decode_properties
    from rmqtool.columns.records import decode_records

    first, end = places[0][0], max(at + length for at, length in places)
    data = file.pread(end - first, first)
    records, declined = decode_records(data, np.array([at - first for at, _ in places], np.int64))
    assert declined is None, f"the walk found records where there are none: {declined}"
    return LogBatch(records, decode_properties(records), segment.base_offset + end)
