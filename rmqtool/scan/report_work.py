"""Reports of segments, made here or in several processes, each segment in ranges.

A range but the first begins with a guess: the first record that is found there. What the range before reached proves
it; a range that began elsewhere is read again. So the reports are those of one process.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.errors import FileMissing, ReadFailed
from rmqtool.formats.layouts import IndexHeader
from rmqtool.scan.batches import Wanted
from rmqtool.scan.columns import SegmentScan
from rmqtool.scan.dledger import DLedgerScan
from rmqtool.scan.index_entries import IndexLinks, IndexPart, SlotPart, examine_links
from rmqtool.scan.pool import Crew, Write, run_in_order
from rmqtool.scan.reports import Against, Queue, SegmentReport, Unread, report_pieces
from rmqtool.scan.segments import iter_batches
from rmqtool.scan.units import BatchQueueUnits, QueueUnits
from rmqtool.storage.filesystem import ReadableFileSystem
from rmqtool.storage.index_files import Geometry
from rmqtool.storage.posix import PosixReadableFileSystem
from rmqtool.storage.segments import OpenFiles, Segment, SegmentQueue

if TYPE_CHECKING:
    # Workers load this module while the log waits: what only tells types is left out.
    from rmqtool.progress import Progress
    from rmqtool.scan.ranges import Effort

# Of so many bytes a process makes a report at once.
RANGE = 128 << 20
# So many queue files are open at a time.
_OPEN_FILES = 400


class FileName(NamedTuple):
    """One file of a segment queue, as any process can open it."""

    base_offset: int
    size: int
    path: str


class SegmentFile(NamedTuple):
    """One segment of the log: ``path`` beneath ``directory``."""

    base_offset: int
    size: int
    directory: str
    path: str


class ReportRange(NamedTuple):
    """Bytes of a segment from ``start`` to the first right record at or behind ``stop``; None is its end."""

    segment: SegmentFile
    start: int = 0
    stop: int | None = None
    is_guess: bool = False


class IndexFileName(NamedTuple):
    """An index file whose entries have been examined."""

    path: str
    geometry: Geometry
    header: IndexHeader
    runs: tuple[tuple[int, int], ...]


class LinkTask(NamedTuple):
    """Links of an index file that are to be examined: ``number`` is its place among those of the work."""

    number: int
    entries: int
    part: SlotPart


class LinkReport(NamedTuple):
    """What the links of an index file say, or why they could not be read."""

    number: int
    links: IndexLinks
    error: ReadFailed | None = None


@dataclass
class ReportWork:
    """Makes the reports of ranges and of the links of index files.

    Plain values go to other processes, files are opened where they are needed.

    ``queues`` None leaves the queues out. Nothing at or behind ``end`` of the log is judged: it is being written.
    ``here`` has the file systems, by their roots, that are not the disk's: only this process can read them.
    """

    wanted: Wanted
    root: str
    queues: dict[Queue, list[FileName]] | None
    exts: dict[Queue, list[FileName]]
    batch_queues: dict[Queue, list[FileName]]
    indexes: list[IndexFileName]
    dledger: bool = False
    end: int | None = None
    here: dict[str, ReadableFileSystem] = field(default_factory=dict)
    _filesystem: ReadableFileSystem | None = None
    _files: OpenFiles | None = None
    _units: dict[Queue, QueueUnits] = field(default_factory=dict)
    _parts: list[IndexPart] | None = None

    def __call__(
        self,
        asked: ReportRange | LinkTask,
        write: Write,  # noqa: ARG002  (nothing is written)
    ) -> SegmentReport | LinkReport:
        """Return the report of a task; of one that cannot be read, what was seen until then."""
        return self.links(asked) if isinstance(asked, LinkTask) else self.report(asked)

    def links(self, asked: LinkTask) -> LinkReport:
        """Return what the links of an index file say."""
        try:
            part = self._against().index_parts[asked.number]
            return LinkReport(asked.number, examine_links(part.file, part.geometry.slots, asked.entries, asked.part))
        except ReadFailed as error:
            return LinkReport(asked.number, IndexLinks(), error)

    def report(self, asked: ReportRange) -> SegmentReport:
        """Return the report of a range."""
        segment = asked.segment
        report = SegmentReport(segment.base_offset, segment.size, segment.base_offset)
        report.began = None if asked.is_guess else asked.start
        try:
            self._read(asked, report)
        except ReadFailed as error:
            if isinstance(error.__cause__, PermissionError):
                raise
            report.reached = None
            report.unread = Unread(error.file, error.offset, error.message, isinstance(error, FileMissing))
        return report

    def _read(self, asked: ReportRange, report: SegmentReport) -> None:
        segment = asked.segment
        with self._opened(segment.directory) as files, files.open_read(segment.path) as file:
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

    def _opened(self, directory: str) -> AbstractContextManager[ReadableFileSystem]:
        files = self.here.get(directory)
        return PosixReadableFileSystem(directory) if files is None else nullcontext(files)

    def _against(self) -> Against:
        if self._filesystem is None:
            self._filesystem = self.here.get(self.root) or PosixReadableFileSystem(self.root)
            self._files = OpenFiles(_OPEN_FILES)
        if self._parts is None:
            open_read = self._filesystem.open_read
            self._parts = [IndexPart(open_read(name.path), *name) for name in self.indexes]
        return Against(None if self.queues is None else self._queue, self._batch_queue, self._parts, self.end)

    def _segments(self, names: list[FileName]) -> SegmentQueue:
        assert self._filesystem is not None, "files are opened before they are asked for"
        found = [Segment(name.base_offset, name.size, name.path, self._filesystem) for name in names]
        return SegmentQueue(found, files=self._files)

    def _queue(self, queue: Queue) -> QueueUnits:
        found = self._units.get(queue)
        if found is None:
            ext = self.exts.get(queue)
            segments = self._segments((self.queues or {}).get(queue, []))
            found = QueueUnits(segments, None if ext is None else self._segments(ext))
            self._units[queue] = found
        return found

    def _batch_queue(self, queue: Queue) -> BatchQueueUnits:
        return BatchQueueUnits(self._segments(self.batch_queues.get(queue, [])))

    def close(self) -> None:
        """Close what is open here."""
        self._units.clear()
        for part in self._parts or ():
            part.file.close()
        if self._filesystem is not None and self._files is not None:
            self._files.close()
            if self.root not in self.here:
                self._filesystem.close()
        self._filesystem, self._files, self._parts = None, None, None


def iter_work_reports(
    work: ReportWork, segments: list[SegmentFile], entries: list[int], effort: Effort, crew: Crew | None = None
) -> Generator[SegmentReport | LinkReport, None, None]:
    """Yield what the links of each index file say, which has so many ``entries``, then the report of each segment."""
    jobs, progress = effort.jobs, effort.progress
    progress.start("reading the log", sum(segment.size for segment in segments), "bytes")
    cut = not work.dledger and jobs > 1
    ranges = [part for segment in segments for part in (_ranges(segment) if cut else [ReportRange(segment)])]
    several = jobs > 1 and len(ranges) > 1
    # Each process takes a part of the slots: files are too few to give each process its own.
    links = [
        LinkTask(number, count, SlotPart(part, jobs if several else 1))
        for number, count in enumerate(entries)
        for part in range(jobs if several else 1)
    ]
    try:
        if not several:
            yield from map(work.links, links)
            yield from _joined(work, ranges, None, progress)
            return
        with closing(run_in_order(work, [*links, *ranges], jobs, crew)) as results:
            ahead = (done.value for done in results)
            yield from islice(ahead, len(links))
            yield from _joined(work, ranges, ahead, progress)
    finally:
        progress.finish()
        work.close()


def _ranges(segment: SegmentFile) -> Iterator[ReportRange]:
    for start in range(0, max(segment.size, 1), RANGE):
        stop = start + RANGE
        yield ReportRange(segment, start, stop if stop < segment.size else None, is_guess=start > 0)


def _joined(
    work: ReportWork, ranges: list[ReportRange], ahead: Iterator[SegmentReport] | None, progress: Progress
) -> Iterator[SegmentReport]:
    """Yield the reports of whole segments, put together from those of their ranges."""
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
