"""One report for each segment of the log: its records and flaws, and where queues and index differ from them.

Segments are compared independently, in any order and by several threads. A report is small however large its segment
is. ``checks`` puts the reports together.

With several threads a segment is read in ranges. A range after the first begins at a guess: the first record found
there. The range before it proves the guess when it ends at the same place; otherwise the range is read again. So the
reports are the same as those of one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqtool import kernel
from rmqtool.audit.due import Batch, Half, HostRun, Inflating, Ints, RecordFlaw, Wanted, iter_batches, join_hosts
from rmqtool.audit.index import EntryFlaw, IndexComparison, IndexLinks, IndexPart, KeysMissing, SlotPart, examine_links
from rmqtool.audit.log_pass import LogExtract, OddTime, TimedRecord, iter_pieces, take_times
from rmqtool.audit.queues import BatchApart, BatchQueueUnits, QueueComparison, QueueUnits, compare_run, follow
from rmqtool.columns.compiled import holding
from rmqtool.columns.queues import QueueRun, runs_of
from rmqtool.errors import FileMissing, ReadFailed
from rmqtool.files.filesystem import ReadableFileSystem
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import IndexHeader
from rmqtool.log.ranges import Write, run_in_order
from rmqtool.log.read import DLedgerScan, SegmentScan
from rmqtool.log.walk import Place
from rmqtool.store.index_files import Geometry
from rmqtool.store.segments import OpenFiles, Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.log.ranges import Effort
    from rmqtool.progress import Progress

# Topic and queue id.
Queue = tuple[str, int]

# Findings of one kind that are named for one segment; the rest is counted.
_NAMED = 1000


class FlawRun(NamedTuple):
    """Consecutive places of a segment with the same flaw.

    ``moved`` is the distance between where the records are and the offset that they have in their header, 0 for any
    flaw but CL-PHY. ``first`` is the first record with the flaw, if its structure is whole.
    """

    flaw: Flaw
    file_offset: int
    length: int
    records: int
    moved: int = 0
    first: Message | None = None


class Jump(NamedTuple):
    """Two neighbouring records of one queue whose queue offsets are not consecutive.

    ``before`` and ``offset`` are their queue offsets, ``before_at`` and ``at`` their physical offsets.
    """

    queue: Queue
    before: int
    before_at: int
    offset: int
    at: int


class Sequence(NamedTuple):
    """The records of one queue in a segment: first and last queue offset, their physical offsets, and the count."""

    first: int
    first_at: int
    last: int
    last_at: int
    records: int


class Unread(NamedTuple):
    """A read that failed, so that the rest of the segment was left out.

    ``is_gone`` if the file does not exist any more.
    """

    file: str | None
    file_offset: int | None
    message: str
    is_gone: bool


@dataclass
class SegmentReport:
    """The comparison of one segment, or of a range of it.

    ``end`` is the physical offset where its last valid record ends; ``closed``: it has a blank record.
    ``batch_messages`` and ``keys`` count the entries that are due in each batch queue and in the index.
    """

    base_offset: int
    size: int
    end: int
    closed: bool = False
    records: int = 0
    record_bytes: int = 0
    flaws: list[FlawRun] = field(default_factory=list)
    head: tuple[TimedRecord, ...] = ()
    tail: tuple[TimedRecord, ...] = ()
    odd_times: list[OddTime] = field(default_factory=list)
    queues: dict[Queue, QueueComparison] = field(default_factory=dict)
    sequences: dict[Queue, Sequence] = field(default_factory=dict)
    jumps: list[Jump] = field(default_factory=list)
    batch_apart: list[BatchApart] = field(default_factory=list)
    batch_messages: dict[Queue, int] = field(default_factory=dict)
    keys_missing: list[KeysMissing] = field(default_factory=list)
    entry_flaws: list[EntryFlaw] = field(default_factory=list)
    entries_compared: int = 0
    entries_left_out: int = 0
    # Offsets in the file: where the first record was found (None if there is not one), and where the next range begins
    # (None after a failed read).
    began: int | None = 0
    reached: int | None = None
    keys: int = 0
    record_flaws: list[RecordFlaw] = field(default_factory=list)
    commits: list[Half] = field(default_factory=list)
    hosts: list[HostRun] = field(default_factory=list)
    unread: Unread | None = None

    def join(self, more: SegmentReport) -> SegmentReport:
        """Return the report of this range and the one after it as one; the ``queues`` of this one are changed."""
        edge = find_odd_edge(self, more)
        odd_times = [*self.odd_times, *([edge] if edge is not None else []), *iter_odd_times(more, edge)]
        joined = replace(
            self,
            end=more.end if more.records else self.end,
            closed=more.closed,
            records=self.records + more.records,
            record_bytes=self.record_bytes + more.record_bytes,
            flaws=self.flaws + more.flaws,
            head=self.head or more.head,
            tail=(*self.tail, *more.tail)[-2:],
            odd_times=odd_times,
            jumps=[*self.jumps, *iter_jumps(self.sequences, more.sequences), *more.jumps],
            sequences=join_sequences(self.sequences, more.sequences),
            batch_apart=self.batch_apart + more.batch_apart,
            batch_messages={
                queue: self.batch_messages.get(queue, 0) + more.batch_messages.get(queue, 0)
                for queue in self.batch_messages.keys() | more.batch_messages.keys()
            },
            keys_missing=join_missing(self, more),
            entry_flaws=self.entry_flaws + more.entry_flaws,
            entries_compared=self.entries_compared + more.entries_compared,
            entries_left_out=self.entries_left_out + more.entries_left_out,
            keys=self.keys + more.keys,
            record_flaws=self.record_flaws + more.record_flaws,
            commits=self.commits + more.commits,
            hosts=join_hosts([*self.hosts, *more.hosts]),
            reached=more.reached,
            unread=self.unread or more.unread,
        )
        for queue, comparison in more.queues.items():
            joined.queues.setdefault(queue, QueueComparison()).join(comparison)
        return joined


class Against(NamedTuple):
    """The files to compare a segment with: its queues (None leaves them out) and the index files.

    Nothing at or after ``end`` of the log is judged: a broker is still writing it.
    """

    queue_of: Callable[[Queue], QueueUnits] | None
    batch_queue_of: Callable[[Queue], BatchQueueUnits]
    index_parts: list[IndexPart]
    end: int | None = None


def report_pieces(report: SegmentReport, found: Iterable[Batch | Place], against: Against) -> None:
    """Add everything in a segment, or in a range of it, to a report."""
    index = IndexComparison(against.index_parts)
    end = against.end
    for one in found:
        if isinstance(one, Batch):
            batch = one if end is None else one.before(end)
            if len(batch.physical_offsets):
                _take_batch(report, batch, against, index)
        elif end is None or report.base_offset + one.file_offset < end:
            _take_place(report, one)
    report.keys_missing, report.entry_flaws = index.missing, index.flaws
    report.entries_compared, report.entries_left_out = index.compared, index.left_out


def _take_place(report: SegmentReport, place: Place) -> None:
    """Add a place without a right record.

    Records that are moved by the same distance become one flaw. After ``_NAMED`` flaws, further ones are joined.
    """
    if isinstance(place.what, Blank):
        report.closed = True
    if not isinstance(place.what, Flaw) or isinstance(place.what, Nothing):
        return
    moved = place.damaged.physical_offset - report.base_offset - place.file_offset if place.damaged is not None else 0
    moved = moved if place.what.code == "CL-PHY" else 0
    last = report.flaws[-1] if report.flaws else None
    goes_on = last is not None and last.file_offset + last.length == place.file_offset
    if last is not None and goes_on and place.what.code == "CL-PHY" == last.flaw.code and last.moved == moved:
        report.flaws[-1] = last._replace(length=last.length + place.length, records=last.records + 1)
    elif last is not None and len(report.flaws) >= _NAMED:
        length = place.file_offset + place.length - last.file_offset
        report.flaws[-1] = last._replace(length=length, records=last.records + 1)
    else:
        report.flaws.append(FlawRun(place.what, place.file_offset, place.length, 1, moved, place.damaged))


def _take_batch(report: SegmentReport, batch: Batch, against: Against, index: IndexComparison) -> None:
    """Add the records of a batch, and compare queues and index with what they are due."""
    start = int(batch.physical_offsets[0])
    end = int(batch.physical_offsets[-1] + batch.sizes[-1])
    report.records += len(batch.sizes)
    report.record_bytes += int(batch.sizes.sum())
    take_times(report, batch)
    for run in runs_of(batch.entries):
        _take_run(report, run, against)
    for run in batch.batch_runs:
        queue = (run.topic, run.queue_id)
        report.batch_messages[queue] = report.batch_messages.get(queue, 0) + len(run.units)
        report.batch_apart += against.batch_queue_of(queue).compare(run)
    report.record_flaws += (batch.heads + batch.bodies)[: max(_NAMED - len(report.record_flaws), 0)]
    if len(report.hosts) < _NAMED:
        report.hosts = join_hosts([*report.hosts, *batch.hosts])
    report.commits += batch.commits[: max(_NAMED - len(report.commits), 0)]
    report.keys += len(batch.keys.key_hashes)
    index.compare(batch, start, end)
    report.end = max(report.end, end)


def find_odd_edge(before: SegmentReport, report: SegmentReport) -> OddTime | None:
    """Return the record with an odd time at the border of two reports, the last of one or the first of the next.

    None if their times are in order, if the first of the next has no store time, or if a report has no record.
    """
    if not before.tail or not report.head or not 0 < report.head[0].store_timestamp < before.tail[-1].store_timestamp:
        return None
    first, last = report.head[0], before.tail[-1]
    is_spike = len(before.tail) > 1 and before.tail[-2].store_timestamp <= first.store_timestamp
    odd, other = (last, first) if is_spike else (first, last)
    return OddTime(*odd, other.store_timestamp)


def iter_odd_times(report: SegmentReport, edge: OddTime | None) -> Iterator[OddTime]:
    """Yield the odd times of a report, corrected by ``edge``, which compares its first record with the one before it.

    If the first record is too early, the second one was judged against a wrong neighbour: then it is early too.
    """
    for found in report.odd_times:
        is_edge = edge is not None and found.physical_offset == edge.physical_offset and len(report.head) > 1
        yield OddTime(*report.head[1], found.store_timestamp) if is_edge else found


def iter_jumps(before: dict[Queue, Sequence], after: dict[Queue, Sequence]) -> Iterator[Jump]:
    """Yield a jump for each queue whose offsets do not continue from one range of the log to the next."""
    for queue, sequence in after.items():
        known = before.get(queue)
        if known is not None and sequence.first != known.last + 1:
            yield Jump(queue, known.last, known.last_at, sequence.first, sequence.first_at)


def join_sequences(before: dict[Queue, Sequence], after: dict[Queue, Sequence]) -> dict[Queue, Sequence]:
    """Return the sequences of two consecutive ranges of the log as one."""
    joined = dict(before)
    for queue, sequence in after.items():
        known = before.get(queue)
        if known is not None:
            records = known.records + sequence.records
            joined[queue] = sequence._replace(first=known.first, first_at=known.first_at, records=records)
        else:
            joined[queue] = sequence
    return joined


def join_missing(before: SegmentReport, after: SegmentReport) -> list[KeysMissing]:
    """Return the missing keys of two consecutive ranges of the log; a gap that crosses the border is one."""
    missing, more = list(before.keys_missing), list(after.keys_missing)
    touch = missing and more and after.head and missing[-1].end == before.end
    if touch and more[0].start == after.head[0].physical_offset:
        missing[-1] = missing[-1]._replace(end=more[0].end, keys=missing[-1].keys + more[0].keys)
        more = more[1:]
    return missing + more


def _take_run(report: SegmentReport, run: QueueRun, against: Against) -> None:
    queue = (run.topic, run.queue_id)
    _take_sequence(report, queue, run.queue_offsets, run.units["physical_offset"])
    if against.queue_of is not None:
        compare_run(run, against.queue_of(queue), report.queues.setdefault(queue, QueueComparison()))


def _take_sequence(report: SegmentReport, queue: Queue, offsets: Ints, places: Any) -> None:
    """Continue the sequence of a queue with the next records, and note each jump."""
    known = report.sequences.get(queue)
    first, last = int(offsets[0]), int(offsets[-1])
    if known is None:
        report.sequences[queue] = Sequence(first, int(places[0]), last, int(places[-1]), len(offsets))
    else:
        if first != known.last + 1:
            report.jumps.append(Jump(queue, known.last, known.last_at, first, int(places[0])))
        report.sequences[queue] = known._replace(
            last=last, last_at=int(places[-1]), records=known.records + len(offsets)
        )
    if follow(offsets):
        return
    for row in np.flatnonzero(np.diff(offsets) != 1).tolist():
        before, after = int(offsets[row]), int(offsets[row + 1])
        report.jumps.append(Jump(queue, before, int(places[row]), after, int(places[row + 1])))


# Bytes of a segment that a thread reports on at once.
RANGE = 128 << 20
# Queue files that a thread keeps open. A store can have thousands.
_OPEN_FILES = 400


class ReportRange(NamedTuple):
    """Bytes of a segment from ``start`` to the first valid record at or after ``stop``; None is its end.

    With ``is_guess`` the range begins with the first record that is found after ``start``.
    """

    segment: Segment
    start: int = 0
    stop: int | None = None
    is_guess: bool = False


class IndexFileName(NamedTuple):
    """An index file whose entries have been examined: an ``IndexPart`` before its file is opened."""

    path: str
    geometry: Geometry
    header: IndexHeader
    runs: tuple[tuple[int, int], ...]


class LinkTask(NamedTuple):
    """A share of the slots of an index file to examine; ``number`` is the file's position in ``ReportWork.indexes``."""

    number: int
    entries: int
    part: SlotPart


class LinkReport(NamedTuple):
    """The examined links of the slots of a ``LinkTask``, or the error that prevented it."""

    number: int
    links: IndexLinks
    error: ReadFailed | None = None


@dataclass
class ReportWork:
    """Makes the reports of ranges and of the links of index files; each thread has its own, which opens files.

    ``queues`` None leaves the queues out. Nothing at or after ``end`` of the log is judged: a broker is still writing
    it. ``index_root`` is where the index files are. With ``extract``, which one thread reads, segments that it has kept
    are not read again. Threads whose work has the same ``turn`` share it: one at a time runs Python
    (``columns.compiled``).
    """

    wanted: Wanted
    index_root: ReadableFileSystem
    queues: dict[Queue, tuple[Segment, ...]] | None
    exts: dict[Queue, tuple[Segment, ...]]
    batch_queues: dict[Queue, tuple[Segment, ...]]
    indexes: list[IndexFileName]
    dledger: bool = False
    end: int | None = None
    extract: LogExtract | None = None
    turn: threading.Lock | None = None
    _files: OpenFiles = field(init=False)
    _units: dict[Queue, QueueUnits] = field(init=False)
    _parts: list[IndexPart] | None = field(init=False)

    def __post_init__(self) -> None:
        self._files, self._units, self._parts = OpenFiles(_OPEN_FILES), {}, None

    def __call__(
        self,
        asked: ReportRange | LinkTask,
        write: Write,  # noqa: ARG002  (a report is returned, not written)
    ) -> SegmentReport | LinkReport:
        """Return the report of a task; after a failed read it covers what came before."""
        return self.links(asked) if isinstance(asked, LinkTask) else self.report(asked)

    def links(self, asked: LinkTask) -> LinkReport:
        """Return the examination of a share of an index file's links, or the error that prevented it."""
        try:
            part = self._against().index_parts[asked.number]
            return LinkReport(asked.number, examine_links(part.file, part.geometry.slots, asked.entries, asked.part))
        except ReadFailed as error:
            return LinkReport(asked.number, IndexLinks(), error)

    def report(self, asked: ReportRange) -> SegmentReport:
        """Return the report of a range; after a failed read it covers the bytes before, and ``unread`` says why.

        Raises ReadFailed if the file may not be read.
        """
        segment = asked.segment
        report = SegmentReport(segment.base_offset, segment.size, segment.base_offset)
        report.began = None if asked.is_guess else asked.start
        try:
            with holding(self.turn):
                self._read(asked, report)
        except ReadFailed as error:
            if isinstance(error.__cause__, PermissionError):
                raise
            report.reached = None
            report.unread = Unread(error.file, error.offset, error.message, isinstance(error, FileMissing))
        return report

    def _read(self, asked: ReportRange, report: SegmentReport) -> None:
        """Read a range and add its content to ``report``; with an ``extract`` it is always a whole segment."""
        segment = asked.segment
        if self.extract is not None:
            kept = iter_pieces(self.extract, segment, tag_keys=self.wanted.tag_keys)
            report_pieces(report, kept, self._against())
            report.reached = segment.size
            return
        with segment.filesystem.open_read(segment.path) as file:
            if self.dledger:
                entries = DLedgerScan(file, segment.base_offset)
                report_pieces(report, iter_batches(file, entries.pieces(), self.wanted), self._against())
                report.reached = entries.end
                return
            scan = SegmentScan(file, segment.base_offset)
            report.began = scan.find_start(asked.start, asked.stop) if asked.is_guess else asked.start
            if report.began is not None:
                pieces = scan.pieces(report.began, asked.stop)
                report_pieces(report, iter_batches(file, pieces, self.wanted), self._against())
                report.reached = scan.reached

    def _against(self) -> Against:
        """Return the files to compare segments with; the index files are opened at the first call."""
        if self._parts is None:
            open_read = self.index_root.open_read
            self._parts = [IndexPart(open_read(name.path), *name) for name in self.indexes]
        return Against(None if self.queues is None else self._queue, self._batch_queue, self._parts, self.end)

    def _segments(self, segments: Iterable[Segment]) -> SegmentQueue:
        return SegmentQueue(segments, files=self._files)

    def _queue(self, queue: Queue) -> QueueUnits:
        """Return the entries of a simple queue; its files stay open for the next batch."""
        found = self._units.get(queue)
        if found is None:
            ext = self.exts.get(queue)
            segments = self._segments((self.queues or {}).get(queue, ()))
            found = QueueUnits(segments, None if ext is None else self._segments(ext))
            self._units[queue] = found
        return found

    def _batch_queue(self, queue: Queue) -> BatchQueueUnits:
        return BatchQueueUnits(self._segments(self.batch_queues.get(queue, ())))

    def close(self) -> None:
        """Close the files that this work opened."""
        self._units.clear()
        for part in self._parts or ():
            part.file.close()
        self._files.close()
        self._parts = None


def iter_work_reports(
    work: ReportWork, segments: list[Segment], entries: list[int], effort: Effort
) -> Generator[SegmentReport | LinkReport, None, None]:
    """Yield the reports of the links, one for each share of each index file; then the report of each segment.

    ``entries`` has the number of entries to examine of each of the work's index files.
    """
    jobs, progress = effort.jobs, effort.progress
    progress.start("reading the log", sum(segment.size for segment in segments), "bytes")
    cut = not work.dledger and jobs > 1
    ranges = [part for segment in segments for part in (_ranges(segment) if cut else [ReportRange(segment)])]
    jobs = min(jobs, len(ranges)) if work.extract is None else 1
    # Each thread takes a share of the slots of each file: there are fewer files than threads.
    links = [
        LinkTask(number, count, SlotPart(part, jobs)) for number, count in enumerate(entries) for part in range(jobs)
    ]
    # ``work`` itself is for the thread that puts the reports together: it reads again what began at a wrong guess.
    # Without the kernel the steps take long, and bodies inflate without the interpreter: those threads need no turns.
    is_quick = kernel.NATIVE is not None and work.wanted.inflating is not Inflating.WHOLE
    turn = threading.Lock() if is_quick else None
    works = [replace(work, turn=turn) for _ in range(jobs)]
    try:
        if jobs < 2:
            yield from map(work.links, links)
            yield from _joined(work, ranges, None, progress)
            return
        with closing(run_in_order(works, [*links, *ranges])) as results:
            ahead = (done.value for done in results)
            yield from islice(ahead, len(links))
            yield from _joined(work, ranges, ahead, progress)
    finally:
        progress.finish()
        for one in (work, *works):
            one.close()


def _ranges(segment: Segment) -> Iterator[ReportRange]:
    """Yield the ranges of a segment, all but the first beginning at a guess."""
    for start in range(0, max(segment.size, 1), RANGE):
        stop = start + RANGE
        yield ReportRange(segment, start, stop if stop < segment.size else None, is_guess=start > 0)


def _joined(
    work: ReportWork, ranges: list[ReportRange], ahead: Iterator[SegmentReport] | None, progress: Progress
) -> Iterator[SegmentReport]:
    """Yield the reports of whole segments, joined from those of their ranges.

    ``ahead`` has reports of the ranges as planned. None: all are made here, with the right starts.
    """
    whole: SegmentReport | None = None
    at: int | None = None
    for number, asked in enumerate(ranges):
        early = next(ahead) if ahead is not None else None
        end = asked.segment.size if asked.stop is None else asked.stop
        at = asked.start if whole is None else at
        if whole is None or (at is not None and at < end):
            fits = early is not None and early.began == at
            found = early if early is not None and fits else work.report(asked._replace(start=at or 0, is_guess=False))
            at = found.reached
            whole = found if whole is None else whole.join(found)
        progress.advance(end - asked.start)
        following = ranges[number + 1] if number + 1 < len(ranges) else None
        if following is None or following.segment != asked.segment:
            yield whole
            whole = None
