"""Judges the consume queues by the log: what each entry points to, and which messages have no entry.

The reports of the segments tell for each record whether its entry is right. Left are the *unclaimed* entries, which are
not due to any record. Each is judged by the place that it points to.

Queues in RocksDB are judged in ``databases``, and queues whose whole directory is missing in ``look.absent_queues``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.checks.case import Case, Walk
from rmqtool.checks.databases import read_fillers
from rmqtool.findings import Finding, Place, Severity, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import consume_queue, layouts, paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.consume_queue import are_fillers, is_filler
from rmqtool.formats.paths import FileKind
from rmqtool.log.end import read_record
from rmqtool.look.absent_queues import find_newest_settled
from rmqtool.store.listing import QueueId, iter_segments
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import SegmentQueue, usual_size

if TYPE_CHECKING:
    from rmqtool.audit.queues import BatchApart, QueueComparison, UnitsApart
    from rmqtool.audit.reports import Jump, Queue, SegmentReport, Sequence

_UNIT_SIZE = layouts.CONSUME_QUEUE_UNIT.size
# Entries that are read at once.
_AT_ONCE = 1 << 16
# Unclaimed entries of one queue that are judged one by one.
_NAMED = 2000


class Leading(NamedTuple):
    """An unclaimed entry and the place that it points to."""

    queue_offset: int
    physical_offset: int
    size: int


@dataclass
class Unclaimed:
    """The unclaimed entries of one queue.

    ``before`` point to before the log, ``ahead`` past its end, those in ``leading`` (and ``more`` that are not listed)
    into the log. ``fillers`` keep the queue offsets of removed messages. ``explained`` point into damage. With
    ``holds_nothing`` no entry of the queue is of a message.
    """

    before: int = 0
    ahead: int = 0
    ahead_from: int = -1
    ahead_first: int = -1
    leading: list[Leading] = field(default_factory=list)
    more: int = 0
    fillers: int = 0
    explained: int = 0
    holds_nothing: bool = False


def find_unclaimed(
    case: Case, queue: QueueId, segments: SegmentQueue, comparison: QueueComparison | None, walk: Walk
) -> Unclaimed:
    """Return the unclaimed entries of a queue; entries that point outside of the log are before or ahead.

    Entries that point to where the log was not read are not judged. Entries after the end that a broker would find are
    left from before a truncation, and are ignored.
    """
    found = Unclaimed()
    limit = ConsumeQueueFiles(queue, segments).end // _UNIT_SIZE
    for low, high in _uncovered(segments, comparison, limit):
        for at in range(low, high, _AT_ONCE):
            _judge(case, found, segments, at, min(at + _AT_ONCE, high), walk)
    led = found.before or found.fillers or found.ahead or found.leading or found.explained
    found.holds_nothing = comparison is None and not led
    if not walk.begins:
        found.before = 0
    if not walk.ends:
        found.ahead = 0
    return found


def _uncovered(segments: SegmentQueue, comparison: QueueComparison | None, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of queue offsets on disk whose entries no record claims."""
    covered = sorted(
        [(span.start, span.end) for span in comparison.hits]
        + [(apart.queue_offset, apart.queue_offset + apart.units) for apart in comparison.apart]
        if comparison is not None
        else []
    )
    for segment in segments:
        at, end = segment.base_offset // _UNIT_SIZE, min(segment.end_offset // _UNIT_SIZE, limit)
        for low, high in covered:
            if high <= at:
                continue
            if low >= end:
                break
            if at < low:
                yield at, low
            at = high
        if at < end:
            yield at, end


def _judge(case: Case, found: Unclaimed, segments: SegmentQueue, low: int, high: int, walk: Walk) -> None:
    import numpy as np

    from rmqtool.audit.queues import QueueUnits

    units = QueueUnits(segments).read(low, high - low)
    places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    fillers = are_fillers(places, sizes)
    written = (places >= 0) & (sizes > 0) & ~fillers
    # In a log that does not begin at 0, a filler also points to removed messages.
    found.fillers += int(np.count_nonzero(fillers & (walk.start > 0)))
    found.before += int(np.count_nonzero(written & (places < walk.start)))
    for row in _unexplained(case, found, np.flatnonzero(written & (places >= walk.end)), places):
        if not found.ahead:
            found.ahead_from, found.ahead_first = low + row, int(places[row])
        found.ahead += 1
    inside = np.flatnonzero(written & (places >= walk.start) & (places < walk.end))
    for row in _unexplained(case, found, inside, places):
        if len(found.leading) < _NAMED:
            found.leading.append(Leading(low + row, int(places[row]), int(sizes[row])))
        else:
            found.more += 1


def _unexplained(case: Case, found: Unclaimed, rows: Any, places: Any) -> Iterator[int]:
    for row in rows.tolist():
        damage = case.explains(int(places[row]))
        if damage is None:
            yield row
        else:
            found.explained += 1


# Missing queue offsets of a jump that are looked up one by one.
_LOOKED_FOR = 10_000
# Differences in batch queues that are reported.
_BATCHES_NAMED = 1000
_BATCH_SIZE = layouts.BATCH_CONSUME_QUEUE_UNIT.size
# Retries in all for entries that are missing in a live store, and the pause (in seconds) before each.
_LOOKS, _PAUSE = 20, 0.05


class QueuePlace(NamedTuple):
    """The place in the queues that a record claims."""

    topic: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id} @ {self.queue_offset}"


class _Odd(NamedTuple):
    """A record at ``at`` of the log that does not belong where it claims.

    The records before and after it in its queue claim ``expected - 1`` and ``following``.
    """

    claim: QueuePlace
    at: int
    expected: int
    following: int


class _Replaced(NamedTuple):
    """Messages of a queue from before it began at 0 again: how many without an entry, the first and the last place."""

    queue: Queue
    messages: int
    first_at: int
    last_at: int


class _Entries(NamedTuple):
    """The entries of a queue on disk, for ``audit.claims``."""

    segments: SegmentQueue

    def lead_to(self, queue_offset: int, unit: layouts.ConsumeQueueUnit) -> bool:
        """Return whether the entry at a queue offset points to the record of ``unit``."""
        data = self.segments.read(queue_offset * _UNIT_SIZE, _UNIT_SIZE)
        if len(data) < _UNIT_SIZE:
            return False
        found = layouts.CONSUME_QUEUE_UNIT.decode(data)
        return found.size > 0 and found.physical_offset == unit.physical_offset


class QueueJudge:
    """Takes the reports of the segments in order; then everything about the queues is known."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.comparisons: dict[Queue, QueueComparison] = {}
        self.sequences: dict[Queue, Sequence] = {}
        self.jumps: list[Jump] = []
        self.batch_apart: list[BatchApart] = []
        self._sizes = usual_size(segment for queue in case.queues.values() for segment in queue)
        self._accounted: set[QueuePlace] = set()
        self._replaced: list[_Replaced] = []
        # The rows of fillers in RocksDB, once they were needed.
        self._fillers: set[tuple[QueueId, int]] | None = None
        self._unclaimed: dict[QueueId, Unclaimed] = {}
        self._walk = Walk(0, 0)
        self._looks_left = _LOOKS

    def take(self, report: SegmentReport) -> None:
        """Add the report of one segment."""
        from rmqtool.audit.queues import QueueComparison
        from rmqtool.audit.reports import iter_jumps, join_sequences

        unread = self.case.unread_queues
        for queue, more in report.queues.items():
            if queue in unread:
                continue
            self.comparisons.setdefault(queue, QueueComparison()).join(more)
        self.jumps += [*iter_jumps(self.sequences, report.sequences), *report.jumps]
        self.sequences = join_sequences(self.sequences, report.sequences)
        self.batch_apart += [apart for apart in report.batch_apart if (apart.topic, apart.queue_id) not in unread]

    def settle(self, walk: Walk) -> Iterator[Finding]:
        """Yield the records that are not where they claim to be."""
        self._walk = walk
        odd = self._judge_claims()
        self._unclaimed = {
            queue: find_unclaimed(self.case, queue, segments, self.comparisons.get(queue), walk)
            for queue, segments in self.case.queues.items()
        }
        yield from self._strays(odd)
        yield from self._pair(self._unclaimed)

    def lost(self) -> dict[QueueId, int]:
        """Return the number of lost messages of each queue: entries that point into damage or past the end of the log.

        Where a queue has no such entries, the queue offsets that its records leave out around damage tell. Messages
        that an earlier recovery cut off are not counted again. In a live store, the record of an entry ahead of the log
        is still being written.
        """
        lost = Counter({QueueId(*jump.queue): 0 for jump in self.jumps})
        for jump in self.jumps:
            left_out = jump.offset - jump.before - 1
            if 0 < left_out <= self.case.lost_between(jump.before_at, jump.at) and not self._is_left_free(jump):
                lost[QueueId(*jump.queue)] += left_out
        for queue, found in self._unclaimed.items():
            cut_off = 0 if self.case.live or self._is_left_over(found) else found.ahead
            lost[queue] = max(lost[queue], found.explained + cut_off)
        return dict(+lost)

    def iter_findings(self) -> Iterator[Finding]:
        """Yield the findings about queues."""
        unclaimed = self._unclaimed
        is_apart = bool(self.batch_apart) or any(comparison.apart for comparison in self.comparisons.values())
        dispatched = self._dispatched() if is_apart else -1
        for queue in sorted({QueueId(*queue) for queue in self.comparisons} | self.case.queues.keys()):
            segments = self.case.queues.get(queue, SegmentQueue(()))
            if queue in unclaimed:
                yield from self._unclaimed_units(queue, segments, unclaimed[queue])
            comparison = self.comparisons.get(queue)
            if comparison is not None:
                yield from self._apart(queue, segments, comparison, dispatched)
        yield from self._batches(dispatched)
        yield from map(self._reused, self._replaced)
        yield from self._jumps()
        yield from self._before(unclaimed)
        yield from self._left_over(unclaimed)

    def _judge_claims(self) -> list[_Odd]:
        """Judge the records whose queue offsets do not follow; return those that do not belong where they claim.

        Records from before a queue began at 0 again are set aside: their offsets belong to newer messages now.
        """
        jumps: dict[Queue, list[Jump]] = {}
        for jump in sorted(self.jumps, key=lambda jump: jump.at):
            jumps.setdefault(jump.queue, []).append(jump)
        odd: list[_Odd] = []
        for queue, found in jumps.items():
            odd += self._judge_queue(queue, self.sequences[queue], found)
        return odd

    def _judge_queue(self, queue: Queue, sequence: Sequence, jumps: list[Jump]) -> Iterator[_Odd]:
        from rmqtool.audit.claims import Claim, QueueClaims, Verdict

        segments = self.case.queues.get(QueueId(*queue), SegmentQueue(()))
        claims = QueueClaims(_Entries(segments), self.case.lost_between, self.case.log.min_offset)
        heads = [(sequence.first, sequence.first_at), *((jump.offset, jump.at) for jump in jumps)]
        lasts = [*((jump.before, jump.before_at) for jump in jumps), (sequence.last, sequence.last_at)]
        for number, ((offset, at), (last, last_at)) in enumerate(zip(heads, lasts, strict=True)):
            is_alone, is_last = at == last_at, number + 1 == len(heads)
            following = offset + 1 if not is_alone else None if is_last else heads[number + 1][0]
            claim, expected = Claim(offset, layouts.ConsumeQueueUnit(at, 0, 0)), claims.expected
            verdict = claims.judge(claim) or claims.judge_by(claim, following)
            if offset == 0 and is_alone and is_last and self.case.live and expected:
                verdict = Verdict.BEGINS  # its entry is on its way
            if verdict is Verdict.BEGINS:
                self._set_aside(queue, at)
            if verdict in (Verdict.CLAIMED, Verdict.BEGINS):
                claims.place(last, last_at)
                continue
            if expected is not None and is_alone and following in (expected, expected + 1):
                yield _Odd(QueuePlace(*queue, offset), at, expected, following)
            if verdict is Verdict.NEXT and expected is not None:
                claims.place(expected, at)

    def _set_aside(self, queue: Queue, at: int) -> None:
        """Take the missing entries of records before ``at``, where the queue began at 0 again, as replaced."""
        comparison = self.comparisons.get(queue)
        if comparison is None:
            return
        old = [apart for apart in comparison.apart if int(apart.physical_offsets[-1]) < at]
        comparison.apart = [apart for apart in comparison.apart if int(apart.physical_offsets[-1]) >= at]
        self.case.odd_records.add(at)
        if old:
            places = [int(place) for apart in old for place in (apart.physical_offsets[0], apart.physical_offsets[-1])]
            self._replaced.append(_Replaced(queue, sum(one.units for one in old), min(places), max(places)))

    def _reused(self, old: _Replaced) -> Finding:
        """Return the finding about messages whose queue offsets newer messages have.

        A broker deletes a topic with all its queues. So if another queue of the topic still has older messages, the
        topic was not deleted: this queue was lost. Otherwise both are possible.
        """
        topic, queue_id = old.queue
        first = self.case.place(old.first_at)
        text = (
            f"{counted(old.messages, 'older message is', 'older messages are')} in no queue, because the queue began "
            f"at 0 again after them; the first is {first.file}@{first.offset}"
        )
        directory = paths.segment_directory(FileKind.CONSUME_QUEUE, topic, queue_id)
        was_lost = any(
            self._leads_to_older(queue, old.last_at)
            for queue in self.comparisons
            if queue[0] == topic and queue != old.queue
        )
        return new_finding(
            "CQ-REUSED",
            text,
            Place(directory, None, None, topic, queue_id),
            severity=None if was_lost else Severity.NOTICE,
            consequence=None if was_lost else "normal if the topic was deleted and created again; else they are lost",
            messages=old.messages,
            physicalOffset=old.first_at,
        )

    def _leads_to_older(self, queue: Queue, physical_offset: int) -> bool:
        """Return whether the first right entry of a queue points to before a place."""
        segments = self.case.queues.get(QueueId(*queue))
        if segments is None or not self.comparisons[queue].hits:
            return False
        data = segments.read(min(span.start for span in self.comparisons[queue].hits) * _UNIT_SIZE, _UNIT_SIZE)
        whole = len(data) == _UNIT_SIZE
        return whole and layouts.CONSUME_QUEUE_UNIT.decode(data).physical_offset < physical_offset

    def _strays(self, odd: list[_Odd]) -> Iterator[Finding]:
        """Yield records between two neighbours of their queue that do not belong there."""
        for claim, at, expected, following in odd:
            self.case.odd_records.add(at)
            self._accounted.add(claim)
            self._accounted.add(claim._replace(queue_offset=expected))
            around = f"{expected - 1} and {following}"
            text = f"the record has queue offset {claim}, those before and after it in this queue {around}"
            record = read_record(self.case.log, at)
            place = self.case.place(at, record.total_size if record is not None else None)
            yield new_finding("CL-QOFF", text, place._replace(topic=claim.topic, queue_id=claim.queue_id))

    def _pair(self, unclaimed: dict[QueueId, Unclaimed]) -> Iterator[Finding]:
        """Yield records that contradict the entry pointing to them, and settle both sides."""
        claims = self._open_claims() if any(found.leading for found in unclaimed.values()) else {}
        for queue, found in unclaimed.items():
            left = []
            for leading in found.leading:
                record = self._odd_record(queue, leading, claims)
                if record is None:
                    left.append(leading)
                    continue
                unit = QueuePlace(*queue, leading.queue_offset)
                self._accounted.add(unit)
                if leading.physical_offset not in self.case.odd_records:
                    self.case.odd_records.add(leading.physical_offset)
                    yield self._contradiction(record, unit)
            found.leading = left

    def _open_claims(self) -> dict[int, QueuePlace]:
        """Return the claims without an entry, by the place of their record."""
        return {
            int(place): QueuePlace(apart.topic, apart.queue_id, apart.queue_offset + number)
            for comparison in self.comparisons.values()
            for apart in comparison.apart
            for number, place in enumerate(apart.physical_offsets.tolist())
        }

    def _odd_record(self, queue: QueueId, leading: Leading, claims: dict[int, QueuePlace]) -> Message | None:
        """Return the record of an unclaimed entry if the record is wrong, not the entry."""
        record = read_record(self.case.log, leading.physical_offset)
        if record is None or record.total_size != leading.size:
            return None
        said = QueuePlace(record.topic, record.queue_id, record.queue_offset)
        if said == QueuePlace(*queue, leading.queue_offset):  # else only a prepared or rolled-back record has no claim
            return record
        if claims.get(leading.physical_offset) != said:
            return None
        self._accounted.add(said)
        return record

    def _contradiction(self, record: Message, unit: QueuePlace) -> Finding:
        said = QueuePlace(record.topic, record.queue_id, record.queue_offset)
        place = self.case.place(record.physical_offset, record.total_size)
        if said == unit:
            text = f"the record is part of an open or rolled back transaction, but the queue entry {unit} points to it"
        else:
            text = f"the record says {said}, but the queue entry {unit} points to it"
        return new_finding("CL-QOFF", text, place._replace(topic=unit.topic, queue_id=unit.queue_id))

    def _dispatched(self) -> int:
        """Return the place of the last record with a right entry. Records after it may not be dispatched yet."""
        found = -1
        for queue, comparison in self.comparisons.items():
            segments = self.case.queues.get(QueueId(*queue))
            if segments is None or not comparison.hits:
                continue
            last = max(span.end for span in comparison.hits) - 1
            data = segments.read(last * _UNIT_SIZE, _UNIT_SIZE)
            if len(data) == _UNIT_SIZE:
                found = max(found, layouts.CONSUME_QUEUE_UNIT.decode(data).physical_offset)
        return found

    def _apart(
        self, queue: QueueId, segments: SegmentQueue, comparison: QueueComparison, dispatched: int
    ) -> Iterator[Finding]:
        for apart in comparison.apart:
            if apart.units == 1 and QueuePlace(*queue, apart.queue_offset) in self._accounted:
                continue
            if (
                apart.units == 1
                and apart.apart == "tags"
                and int(apart.physical_offsets[0]) in self.case.odd_properties
            ):
                continue
            in_flight = apart.apart == "missing" and self._is_in_flight(int(apart.physical_offsets[0]), dispatched)
            if self.case.live and (in_flight or (apart.apart == "missing" and self._comes(queue, apart))):
                continue
            if apart.apart != "missing":
                yield self._wrong(queue, apart)
            elif not len(segments) and self.case.is_deleted(queue.topic):
                some = counted(apart.units, "message of the log belongs", "messages of the log belong")
                text = f"{some} to a topic that is not in topics.json"
                why = "it was deleted, or the file is an old one; its messages expire with the log"
                place = Place(paths.config_path(paths.TOPICS), None, None, *queue)
                yield new_finding("CF-TOPIC", text, place, consequence=why)
            else:
                yield self._missing(queue, apart, in_flight)

    def _is_in_flight(self, physical_offset: int, dispatched: int) -> bool:
        """Return whether a record may be on its way to its queue: it is after ``dispatched``.

        An open store without a queue entry was just created, or its queues were deleted: the age of its messages tells.
        """
        if physical_offset <= dispatched:
            return False
        record = read_record(self.case.log, physical_offset) if dispatched < 0 and self.case.live else None
        return record is None or record.store_timestamp >= find_newest_settled()

    def _comes(self, queue: QueueId, apart: UnitsApart) -> bool:
        """Return whether missing entries exist by now, or appear in a moment: a queue may be late."""
        rows = (0, len(apart.physical_offsets) - 1)
        while not all(
            self._is_there(queue, apart.queue_offset + row, int(apart.physical_offsets[row])) for row in rows
        ):
            if self._looks_left == 0:
                return False
            self._looks_left -= 1
            time.sleep(_PAUSE)
        return True

    def _is_there(self, queue: QueueId, queue_offset: int, physical_offset: int) -> bool:
        """Return whether an entry points to a place now, perhaps in a file that is newer than the listing."""
        directory = paths.segment_directory(FileKind.CONSUME_QUEUE, *queue)
        filesystem = self.case.store.filesystem
        if not filesystem.is_directory(directory):
            return False
        with closing(SegmentQueue(iter_segments(filesystem, directory))) as segments:
            data = segments.read(queue_offset * _UNIT_SIZE, _UNIT_SIZE)
        return len(data) == _UNIT_SIZE and layouts.CONSUME_QUEUE_UNIT.decode(data).physical_offset == physical_offset

    def _missing(self, queue: QueueId, apart: UnitsApart, in_flight: bool) -> Finding:
        first = self.case.place(int(apart.physical_offsets[0]))
        some = counted(apart.units, "message is", "messages are")
        text = f"{some} missing from the queue, from queue offset {apart.queue_offset} on"
        text += f"; the first is {first.file}@{first.offset}"
        crash = in_flight and self.case.abort
        return new_finding(
            "CQ-MISSING",
            text + (" (not dispatched when the broker stopped)" if crash else ""),
            self.unit_place(queue, apart.queue_offset, apart.units),
            severity=Severity.WARNING if crash else None,
            consequence="consumers receive them after the next start, which dispatches them" if crash else None,
            messages=apart.units,
            queueOffset=apart.queue_offset,
            physicalOffset=int(apart.physical_offsets[0]),
        )

    def _wrong(self, queue: QueueId, apart: UnitsApart) -> Finding:
        place = self.unit_place(queue, apart.queue_offset, apart.units)
        first = self.case.place(int(apart.physical_offsets[0]))
        due, found = layouts.ConsumeQueueUnit(*apart.due), layouts.ConsumeQueueUnit(*apart.found)
        if apart.apart == "ext":
            address = consume_queue.ext_offset(found.tags_code)
            text = f"the tags code points to {address} of the extension file, where no entry begins"
            return new_finding("CQ-EXT", text, place)
        if apart.apart == "tags":
            text = f"tags code {found.tags_code}, the message has {due.tags_code}"
        else:
            text = (
                f"the entry points to {found.physical_offset} ({found.size} bytes), "
                f"but its message is {first.file}@{first.offset} ({due.size} bytes)"
            )
        if apart.units > 1:
            text = f"{apart.units} entries in a row are wrong; the first: {text}"
        return new_finding(
            "CQ-WRONG",
            text,
            place,
            units=apart.units,
            queueOffset=apart.queue_offset,
            physicalOffset=int(apart.physical_offsets[0]),
        )

    def _unclaimed_units(self, queue: QueueId, segments: SegmentQueue, found: Unclaimed) -> Iterator[Finding]:
        if found.ahead and not self._is_left_over(found):
            yield self._ahead(queue, found, self._walk.end)
        units = len(found.leading) + found.more
        if not units and not found.holds_nothing:
            return
        if self._walk.is_whole and queue not in self.sequences and not self._is_configured(queue):
            text = (
                "a queue without messages of its own: its "
                f"{counted(units, 'entry points', 'entries point')} to messages of other queues"
                if units
                else "a queue of no message and no configuration; brokers serve its empty entries"
            )
            directory = paths.segment_directory(FileKind.CONSUME_QUEUE, *queue)
            length = units * _UNIT_SIZE or None
            file = segments.segments[0].path if len(segments) else directory
            yield new_finding("CQ-ORPHAN", text, Place(file, 0, length, *queue), units=units)
            return
        for leading in found.leading:
            self._accounted.add(QueuePlace(*queue, leading.queue_offset))
            yield self._leads_nowhere(queue, leading)
        if found.more:
            text = f"{counted(found.more, 'more entry', 'more entries')} that belong to no message"
            directory = paths.segment_directory(FileKind.CONSUME_QUEUE, *queue)
            yield new_finding("CQ-WRONG", text, Place(directory, None, None, *queue), units=found.more)

    def _is_configured(self, queue: QueueId) -> bool:
        config = self.case.configs.topics.get(queue.topic)
        if config is None:
            return False
        numbers = (config.get("readQueueNums"), config.get("writeQueueNums"))
        return any(isinstance(number, int) and queue.queue_id < number for number in numbers)

    def _leads_nowhere(self, queue: QueueId, leading: Leading) -> Finding:
        record = read_record(self.case.log, leading.physical_offset)
        if record is None:
            text = f"the entry points to {leading.physical_offset}, where no record begins"
        else:
            said = QueuePlace(record.topic, record.queue_id, record.queue_offset)
            text = f"the entry points to {leading.physical_offset}, the record of {said}"
            if record.total_size != leading.size:
                text += f", with {leading.size} bytes instead of {record.total_size}"
        place = self.unit_place(queue, leading.queue_offset, 1)
        return new_finding("CQ-WRONG", text, place, units=1, queueOffset=leading.queue_offset)

    def _ahead(self, queue: QueueId, found: Unclaimed, end: int) -> Finding:
        some = "a queue entry points" if found.ahead == 1 else f"{found.ahead} queue entries from here on point"
        text = f"{some} past the end of the log ({found.ahead_first} > {end})"
        if found.ahead_first == end:
            text = f"{some} to the end of the log at {end}, where there is no record"
        severity = Severity.WARNING if self.case.abort else Severity.ERROR
        severity = Severity.NOTICE if self.case.live else severity
        place = self.unit_place(queue, found.ahead_from, found.ahead)
        return new_finding("CQ-AHEAD", text, place, severity=severity, units=found.ahead, queueOffset=found.ahead_from)

    def _is_left_over(self, found: Unclaimed) -> bool:
        """Return whether entries point to bytes that a recovery left after the end. Then no message was lost."""
        return self.case.is_stale(found.ahead_first)

    def _left_over(self, unclaimed: dict[QueueId, Unclaimed]) -> Iterator[Finding]:
        queues = [queue for queue, found in unclaimed.items() if found.ahead and self._is_left_over(found)]
        if queues:
            units = sum(unclaimed[queue].ahead for queue in queues)
            text = (
                f"{counted(units, 'entry', 'entries')} of {counted(len(queues), 'queue')} "
                f"{'points' if units == 1 else 'point'} to bytes that a recovery left after the end of the log"
            )
            place = Place(paths.CONSUME_QUEUE)
            why = "that recovery cut their messages off; new entries replace these"
            yield new_finding("CQ-AHEAD", text, place, severity=Severity.NOTICE, consequence=why, units=units)

    def _batches(self, dispatched: int) -> Iterator[Finding]:
        """Yield entries of batch queues that differ from the ones due."""
        from rmqtool.audit.queues import BATCH_FIELDS

        for topic, queue_id, due, found, file, file_offset in self.batch_apart[:_BATCHES_NAMED]:
            directory = paths.segment_directory(FileKind.BATCH_CONSUME_QUEUE, topic, queue_id)
            place = Place(file or directory, file_offset, None if file is None else _BATCH_SIZE, topic, queue_id)
            wanted = None if due is None else layouts.BatchConsumeQueueUnit(*due)
            there = None if found is None else layouts.BatchConsumeQueueUnit(*found)
            if wanted is not None and there is None:
                if wanted.physical_offset > dispatched and self.case.live:
                    continue
                at = wanted.msg_base_offset
                text = f"the message at {wanted.physical_offset} has no queue entry at queue offset {at}"
                yield new_finding("CQ-MISSING", text, place, physicalOffset=wanted.physical_offset)
            elif wanted is None and there is not None:
                yield new_finding(
                    "CQ-WRONG",
                    f"the entry points to {there.physical_offset}, which is not a message of this queue",
                    place,
                )
            elif wanted is not None and there is not None:
                names = [
                    n for n, a, b in zip(wanted._fields, wanted, there, strict=True) if a != b and n in BATCH_FIELDS
                ]
                text = f"{', '.join(names)} of the entry of {wanted.physical_offset} differ from the message"
                yield new_finding("CQ-WRONG", text, place, physicalOffset=wanted.physical_offset)

    def _jumps(self) -> Iterator[Finding]:
        for jump in self.jumps:
            if {jump.at, jump.before_at} & self.case.odd_records or self.case.damaged_between(jump.before_at, jump.at):
                continue
            left_out = range(jump.before + 1, jump.offset)
            left_places = (QueuePlace(*jump.queue, at) for at in left_out)
            if 0 < len(left_out) <= _LOOKED_FOR and all(place in self._accounted for place in left_places):
                continue
            if self._is_left_free(jump) or self._is_left_free_in_rows(jump):
                continue
            text = f"the queue offset is {jump.offset}, but the record before it in this queue has {jump.before}"
            place = self.case.place(jump.at)._replace(topic=jump.queue[0], queue_id=jump.queue[1])
            yield new_finding("CL-QOFF", text, place, severity=Severity.WARNING)

    def _is_left_free(self, jump: Jump) -> bool:
        """Return whether the queue has fillers for the offsets between two records.

        Messages were left out on purpose.
        """
        segments = self.case.queues.get(QueueId(*jump.queue))
        if segments is None or jump.offset <= jump.before:
            return False
        queue = ConsumeQueueFiles(QueueId(*jump.queue), segments)
        units = [unit for _, unit in queue.iter_units(jump.before + 1, min(jump.offset, jump.before + 1 + _LOOKED_FOR))]
        return bool(units) and all(is_filler(unit) for unit in units)

    def _is_left_free_in_rows(self, jump: Jump) -> bool:
        """Return whether the queue is in RocksDB, and has rows of fillers for the offsets between two records."""
        wanted = range(jump.before + 1, min(jump.offset, jump.before + 1 + _LOOKED_FOR))
        if self._fillers is None:
            self._fillers = read_fillers(self.case)
        return bool(wanted) and all((QueueId(*jump.queue), at) in self._fillers for at in wanted)

    def _before(self, unclaimed: dict[QueueId, Unclaimed]) -> Iterator[Finding]:
        queues = [queue for queue, found in unclaimed.items() if found.before]
        if not queues:
            return
        units = sum(unclaimed[queue].before for queue in queues)
        start = self.case.log.min_offset
        entries = f"{counted(units, 'entry', 'entries')} of {counted(len(queues), 'queue')}"
        text = f"{entries} {'points' if units == 1 else 'point'} before the start of the log at {start}"
        place = Place(paths.CONSUME_QUEUE) if len(queues) > 1 else self.unit_place(queues[0], 0, 1)
        place = place._replace(offset=None, length=None)
        yield new_finding("CQ-BEFORE", text, place, consequence="normal: their messages have expired", units=units)

    def unit_place(self, queue: QueueId, queue_offset: int, units: int) -> Place:
        """Return the file and file offset of entries, even if the file is missing."""
        at = queue_offset * _UNIT_SIZE
        segments = self.case.queues.get(queue)
        segment = segments.find(at) if segments is not None else None
        if segment is not None:
            return Place(segment.path, at - segment.base_offset, units * _UNIT_SIZE, *queue)
        directory = paths.segment_directory(FileKind.CONSUME_QUEUE, *queue)
        if not self._sizes or not 0 <= at < 1 << 62:
            return Place(directory, None, None, *queue)
        base = at - at % self._sizes
        return Place(f"{directory}/{paths.segment_name(base)}", at - base, units * _UNIT_SIZE, *queue)
