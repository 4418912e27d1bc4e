"""Starts the comparison of the log's segments with queues and index, in this process or in several."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.checks.case import Case, Depth
from rmqtool.checks.index_files import IndexJudge
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats import paths

if TYPE_CHECKING:
    from rmqtool.audit.extract import LogExtract
    from rmqtool.audit.reports import FileName, Queue, SegmentReport
    from rmqtool.files.filesystem import ReadableFileSystem
    from rmqtool.log.ranges import Effort
    from rmqtool.log.workers import Crew
    from rmqtool.store.listing import QueueId
    from rmqtool.store.segments import SegmentQueue


class Working(NamedTuple):
    """How reports are made: the effort, the processes, and the extract of the log if there is one."""

    effort: Effort | None
    crew: Crew | None = None
    extract: LogExtract | None = None


def iter_reports(case: Case, index: IndexJudge, start: int, work_of: Working) -> Generator[SegmentReport, None, None]:
    """Yield the report of each segment from ``start`` on, in order. ``index`` gets the reports of its links before."""
    effort, crew, extract = work_of
    from rmqtool.audit.due import Inflating, Wanted
    from rmqtool.audit.reports import IndexFileName, LinkReport, ReportWork, SegmentFile, iter_work_reports
    from rmqtool.log.ranges import Effort

    wanted = Wanted(
        case.rules,
        case.batch_topics,
        Inflating.WHOLE if case.depth is Depth.DEEP else Inflating.HEADS,
        tag_keys=index.tagged,
    )
    has_files = case.store.has_file_queues or paths.CONSUME_QUEUE not in case.store.listing.databases()
    work = ReportWork(
        wanted,
        case.store.root,
        _names(case.queues) if has_files else None,
        _names(case.exts),
        _names(case.batch_queues),
        [IndexFileName(part.path, part.geometry, part.header, part.runs) for part, _, _ in index.examined],
        case.store.is_dledger,
        case.end.physical_offset if case.live else None,
        _only_here(case),
    )
    if extract is not None and extract.serves(wanted):
        work.extract = extract
    segments = [
        SegmentFile(segment.base_offset, segment.size, segment.filesystem.shown(""), segment.path)
        for segment in case.log
        if segment.base_offset >= start and (work.end is None or segment.base_offset < work.end)
    ]
    entries = [examined.examination.entries for examined in index.examined]
    effort = effort or Effort()
    for report in iter_work_reports(work, segments, entries, effort if crew else replace(effort, jobs=1), crew):
        if isinstance(report, LinkReport):
            index.take_links(report)
        else:
            yield report


def _only_here(case: Case) -> dict[str, ReadableFileSystem]:
    """Return the file systems, by their roots, that no other process can open."""
    found = {segment.filesystem.shown(""): segment.filesystem for segment in case.log}
    found[case.store.root] = case.store.filesystem
    return {root: files for root, files in found.items() if not isinstance(files, PosixReadableFileSystem)}


def start_crew(case: Case, effort: Effort | None) -> Crew | None:
    """Start the processes that will read the log, if it is long enough. They import their modules meanwhile."""
    from rmqtool.log import workers

    if effort is None or effort.jobs < 2 or not _is_longer(case, workers.ALONE):
        return None
    return workers.Crew(effort.jobs, "rmqtool.audit.reports")


def _is_longer(case: Case, length: int) -> bool:
    """Return whether the log has more than ``length`` bytes.

    Usually the files tell, without searching the log's end.
    """
    least = case.log.min_offset + length
    return case.last_written > least or case.end.physical_offset > least


def _names(queues: dict[QueueId, SegmentQueue]) -> dict[Queue, list[FileName]]:
    from rmqtool.audit.reports import FileName

    return {
        (queue.topic, queue.queue_id): [
            FileName(segment.base_offset, segment.size, segment.path) for segment in segments
        ]
        for queue, segments in queues.items()
    }
