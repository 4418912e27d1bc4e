"""Units of a queue that no record of the log claims: where they lead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import are_fillers
from rmqtool.inspection.checks.case import Case, Walk
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.segments import SegmentQueue

if TYPE_CHECKING:
    from rmqtool.scan.units import QueueComparison

_UNIT_SIZE = layouts.CONSUME_QUEUE_UNIT.size
_AT_ONCE = 1 << 16
# So many units of one queue are judged one by one.
_NAMED = 2000


class Leading(NamedTuple):
    """A unit, and where it leads."""

    queue_offset: int
    physical_offset: int
    size: int


@dataclass
class Unclaimed:
    """The unclaimed units of one queue.

    ``before`` lead to before the log, ``ahead`` behind its end, those in ``leading`` (and ``more`` that are not named)
    into the log; ``fillers`` keep the numbers of messages before it; ``explained`` lead into damage. ``holds_nothing``
    says that no unit of the queue stands for a message.
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
    """Return the unclaimed units of a queue; what leads outside of the log is before or ahead.

    What leads to where the log was not walked is not judged. Units behind the end that a broker would find are left
    from before a truncation and count for nothing.
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
    """Yield the spans of queue offsets on disk whose units the log's records leave unclaimed."""
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

    from rmqtool.scan.units import QueueUnits

    units = QueueUnits(segments).read(low, high - low)
    places, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
    fillers = are_fillers(places, sizes)
    written = (places >= 0) & (sizes > 0) & ~fillers
    # In a log that does not begin at 0 a filler leads to what is gone, too.
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
