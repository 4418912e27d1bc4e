"""The reports of the log's segments: where queues and index are found, and which processes do the work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqtool.inspection.checks.case import Case, Depth
from rmqtool.inspection.checks.indexes import ExaminedIndex
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.segments import SegmentQueue

if TYPE_CHECKING:
    from rmqtool.scan.reports import Queue, SegmentReport
    from rmqtool.scan.units import QueueUnits


def iter_reports(case: Case, indexes: list[ExaminedIndex], start: int, jobs: int) -> Iterator[SegmentReport]:
    """Yield the report of each segment from ``start`` of the log on, in order."""
    from rmqtool.scan.batches import Inflating, Wanted
    from rmqtool.scan.reports import Against, report_segment

    wanted = Wanted(
        case.rules,
        frozenset(queue.topic for queue in case.batch_queues),
        Inflating.WHOLE if case.depth is Depth.DEEP else Inflating.HEADS,
    )
    queues = _Queues(case)
    against = Against(
        queues.find if case.store.has_file_queues or not case.store.listing.databases() else None,
        [e.part for e in indexes],
    )
    end = case.end.physical_offset if case.live else None
    for segment in case.log:
        if segment.base_offset < start or (end is not None and segment.base_offset >= end):
            continue
        file = case.log.open(segment)
        yield report_segment(file, segment.base_offset, wanted, against, dledger=case.store.is_dledger, end=end)


class _Queues:
    """The units of every queue, opened when they are first asked for."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._found: dict[Queue, QueueUnits] = {}

    def find(self, queue: Queue) -> QueueUnits | None:
        from rmqtool.scan.units import QueueUnits

        found = self._found.get(queue)
        if found is None:
            segments = self._case.queues.get(QueueId(*queue), SegmentQueue(()))
            found = self._found[queue] = QueueUnits(segments, self._case.exts.get(QueueId(*queue)))
        return found
