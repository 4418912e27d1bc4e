"""Starts the comparison of the log's segments with queues and index, by one thread or by several."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.checks.case import Case, Depth
from rmqtool.checks.index_files import IndexJudge
from rmqtool.formats import paths

if TYPE_CHECKING:
    from rmqtool.audit.extract import LogExtract
    from rmqtool.audit.reports import Queue, SegmentReport
    from rmqtool.log.ranges import Effort
    from rmqtool.store.listing import QueueId
    from rmqtool.store.segments import Segment, SegmentQueue


class Working(NamedTuple):
    """How reports are made: the effort, and the extract of the log if there is one."""

    effort: Effort | None
    extract: LogExtract | None = None


def iter_reports(case: Case, index: IndexJudge, start: int, work_of: Working) -> Generator[SegmentReport, None, None]:
    """Yield the report of each segment from ``start`` on, in order. ``index`` gets the reports of its links before."""
    effort, extract = work_of
    from rmqtool.audit.due import Inflating, Wanted
    from rmqtool.audit.reports import IndexFileName, LinkReport, ReportWork, iter_work_reports
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
        case.store.filesystem,
        _segments(case.queues) if has_files else None,
        _segments(case.exts),
        _segments(case.batch_queues),
        [IndexFileName(part.path, part.geometry, part.header, part.runs) for part, _, _ in index.examined],
        case.store.is_dledger,
        case.end.physical_offset if case.live else None,
    )
    if extract is not None and extract.serves(wanted):
        work.extract = extract
    segments = [
        segment
        for segment in case.log
        if segment.base_offset >= start and (work.end is None or segment.base_offset < work.end)
    ]
    entries = [examined.examination.entries for examined in index.examined]
    for report in iter_work_reports(work, segments, entries, effort or Effort()):
        if isinstance(report, LinkReport):
            index.take_links(report)
        else:
            yield report


def _segments(queues: dict[QueueId, SegmentQueue]) -> dict[Queue, tuple[Segment, ...]]:
    return {(queue.topic, queue.queue_id): segments.segments for queue, segments in queues.items()}
