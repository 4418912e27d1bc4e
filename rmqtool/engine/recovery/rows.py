"""Compares the queues in RocksDB with the log while it is read, and writes what differs.

A row of a valid record is written if it is missing or wrong. Rows of removed messages stay, as brokers leave them, and
so do rows of damaged records. All other rows, and those past the end of the log, are removed: a broker would serve
them. The last entry of each queue, and how far the log is dispatched, follow from the rows.

upstream: RocksDBConsumeQueueStore.truncateDirty lowers the bounds only, and dispatches from there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqtool.audit.bounds import Bounds, RowRange, iter_bounds_apart, read_all_bounds
from rmqtool.engine.message import QueueKey
from rmqtool.engine.recovery.report import RecoveryReport
from rmqtool.engine.row_queues import QueueRows
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import layouts, rocksdb_rows
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.layouts import ConsumeQueueUnit, RocksDBOffsetValue, RocksDBQueueValue
from rmqtool.formats.paths import CONSUME_QUEUE
from rmqtool.formats.rocksdb_rows import BoundRowKey, QueueRowKey
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.store.database_copy import Row
from rmqtool.store.listing import QueueId

if TYPE_CHECKING:
    from rmqtool.audit.due import Batch
    from rmqtool.audit.log_pass import LogPass
    from rmqtool.columns.queues import QueueRun

_VALUE = layouts.ROCKSDB_QUEUE_VALUE


@dataclass
class _Queue:
    """One queue: the ranges of queue offsets that records claim, in ascending order, and the rows that stay.

    ``wrong`` counts rows that are missing or differ from their record, ``ahead`` those past the end of the log,
    ``strange`` those of no record, and ``bounds`` the bounds that differ from them in a queue without a new row.
    """

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    rows: RowRange = field(default_factory=RowRange)
    wrong: int = 0
    ahead: int = 0
    strange: int = 0
    bounds: int = 0
    had_rows: bool = False
    is_written: bool = False

    def claim(self, queue_offset: int, place: int) -> None:
        """Note that the record at ``place`` has a queue offset."""
        at = bisect_right(self.begins, queue_offset)
        if at and self.ends[at - 1] == queue_offset:
            self.ends[at - 1] += 1
        elif not at or self.ends[at - 1] < queue_offset:
            self.begins.insert(at, queue_offset)
            self.ends.insert(at, queue_offset + 1)
        self.rows.add(queue_offset, place)

    def claims(self, queue_offset: int) -> bool:
        """Return whether a record has a queue offset."""
        at = bisect_right(self.begins, queue_offset)
        return at > 0 and queue_offset < self.ends[at - 1]


class RowQueuesCheck:
    """The queues in RocksDB of a store that is recovered."""

    def __init__(self, rows: QueueRows, log: LogPass, *, in_files: bool) -> None:
        self._rows = rows
        # Whether the queues are in files, too. Then a broker may have begun one in RocksDB late, at its min bound.
        self._in_files = in_files
        self._log = log
        self._queues: dict[QueueKey, _Queue] = {}
        self._bounds = read_all_bounds(rows.copy.rows)
        self._checkpoint = rows.read_checkpoint()
        self._has_changed = rows.is_empty
        # The physical offset of the last message that is dispatched, -1 without one; and the end of the last record so
        # far.
        self._dispatched = max((bound.physical_offset for bound in self._iter_last()), default=-1)
        self._end = 0

    def _iter_last(self) -> Iterator[RocksDBOffsetValue]:
        return (bounds.max for bounds in self._bounds.values() if bounds.max is not None)

    def take(self, batch: Batch) -> None:
        """Compare the records of one batch with their rows."""
        from rmqtool.columns.queues import runs_of

        times = dict(zip(batch.physical_offsets.tolist(), batch.store_timestamps.tolist(), strict=True))
        for run in runs_of(batch.entries):
            self._take_run(run, times)
        self._rows.write_pending()

    def _take_run(self, run: QueueRun, times: dict[int, int]) -> None:
        """Compare the records of one queue with its rows, and write the rows that differ.

        ``times`` are by physical offset.
        """
        key = (run.topic, run.queue_id)
        offsets, units = run.queue_offsets.tolist(), run.units.tolist()
        queue = self._queues.setdefault(key, _Queue())
        found = {}
        if not self._rows.is_empty:
            first, count = min(offsets), max(offsets) - min(offsets) + 1
            rows = self._rows.read(key, first, count)
            found = {row.queue_offset: row.value for row in rows if row.queue_offset < first + count}
        least = self._bounds.get(QueueId(*key), Bounds()).min
        begin = least.queue_offset if least is not None and self._in_files else 0
        # Two records of one queue offset: the later row stays. upstream: it overwrites the earlier one.
        due = {offset: (ConsumeQueueUnit(*unit), times[unit[0]]) for offset, unit in zip(offsets, units, strict=True)}
        for offset, (unit, time) in due.items():
            queue.claim(offset, unit.physical_offset)
            self._end = max(self._end, unit.physical_offset + unit.size)
            row = found.get(offset)
            queue.had_rows |= row is not None
            if (row is not None and _is_right(row, unit, time, run.topic)) or (row is None and offset < begin):
                continue
            # A broker adds the rows after the last dispatched message by itself.
            queue.wrong += row is not None or unit.physical_offset <= self._dispatched
            self._rows.put_entry(key, offset, unit, time)
            self._has_changed = queue.is_written = True

    def has_row_at(self, physical_offset: int) -> bool:
        """Return whether the last row of a queue points to ``physical_offset``."""
        return any(bound.physical_offset == physical_offset for bound in self._iter_last())

    def have_rows_since(self, physical_offset: int) -> bool:
        """Return whether the last row of a queue points to ``physical_offset`` or later."""
        return self._dispatched >= physical_offset and bool(self._bounds)

    def finish(self, report: RecoveryReport, log_end: int) -> None:
        """Remove rows that no record claims, set the ends of the queues, and report."""
        if not self._rows.is_empty:
            self._judge_rows(report, log_end)
        self._set_ends(log_end)
        self._rows.write_pending()
        for key, queue in sorted(self._queues.items()):
            report.findings += _findings_of(key, queue)

    def _judge_rows(self, report: RecoveryReport, log_end: int) -> None:
        """Remove the rows that no record claims, and those that no broker writes."""
        for row_key, data in self._rows.copy.rows.iter_rows("default"):
            place = rocksdb_rows.decode_queue_key(row_key)
            if isinstance(place, QueueRowKey) and len(data) == _VALUE.size:
                self._judge((place.topic, place.queue_id), place.queue_offset, _VALUE.decode(data), log_end)
            else:
                self._rows.put_row(Row("default", row_key, None))
                report.findings.append(new_finding("RX-ROW", "it is removed", Place(CONSUME_QUEUE), key=row_key.hex()))
        self._remove_odd_bounds(report)

    def _remove_odd_bounds(self, report: RecoveryReport) -> None:
        """Remove the bounds whose key or size no broker writes."""
        for row_key, data in self._rows.copy.rows.iter_rows("offset"):
            place = rocksdb_rows.decode_bound_key(row_key)
            is_bound = isinstance(place, BoundRowKey)
            if not is_bound or (len(data) not in (layouts.ROCKSDB_OFFSET_VALUE.size, layouts.LONG.size)):
                self._rows.put_row(Row("offset", row_key, None))
                report.findings.append(new_finding("RX-ROW", "it is removed", Place(CONSUME_QUEUE), key=row_key.hex()))

    def _judge(self, key: QueueKey, queue_offset: int, value: RocksDBQueueValue, log_end: int) -> None:
        """Remove a row that points past the end of the log, or to something that is not its message."""
        queue, place = self._queues.setdefault(key, _Queue()), value.physical_offset
        if queue.claims(queue_offset):
            return
        damage = self._log.damage
        is_kept = place < self._log.log.min_offset or damage.covers(place) or damage.find_bridge(place) is not None
        # A row of a message that a copy has left out.
        is_kept |= value.size == FILLER_SIZE
        if is_kept and place < log_end:
            queue.rows.add(queue_offset, place, in_log=False)
            return
        self._has_changed = True
        queue.ahead += place >= log_end
        queue.strange += place < log_end
        self._rows.remove(key, queue_offset)

    def _set_ends(self, log_end: int) -> None:
        """Set the bounds of the queues, and the end of the dispatched log, to what follows from the rows that stay."""
        for key, queue in self._queues.items():
            bounds = self._bounds.get(QueueId(*key), Bounds())
            for bound, _, due in iter_bounds_apart(queue.rows, bounds):
                queue.bounds += not (queue.is_written or queue.ahead or queue.strange)
                self._has_changed = True
                self._rows.put_bound(key, bound, due.physical_offset, due.queue_offset)
        # A queue whose rows are all gone keeps its bounds only if its messages were removed from the log.
        for queue_id, bounds in self._bounds.items():
            found = self._queues.get((queue_id.topic, queue_id.queue_id))
            is_empty = found is None or found.rows.last < 0
            if is_empty and bounds.max is not None and bounds.max.physical_offset >= log_end:
                self._has_changed = True
                self._rows.remove_bounds(queue_id)
        # If the row is too low, a broker dispatches a part of the log again, which changes nothing.
        if self._checkpoint > log_end or (self._has_changed and self._checkpoint < self._end):
            self._rows.put_checkpoint(self._end)


def _is_right(row: RocksDBQueueValue, unit: ConsumeQueueUnit, time: int, topic: str) -> bool:
    # The tags code of a delayed message depends on a setting that is not in the store.
    same = row[:3] == unit or (row[:2] == unit[:2] and topic == SCHEDULE_TOPIC)
    return same and row.store_time == time


def _findings_of(key: QueueKey, queue: _Queue) -> Iterator[Finding]:
    """Yield the findings of a queue: rows past the end, and rows that were wrong or missing."""
    place = Place(CONSUME_QUEUE, None, None, *key)
    if queue.ahead:
        text = f"{counted(queue.ahead, 'row points', 'rows point')} past the end of the log"
        yield new_finding("CQ-AHEAD", text, place, units=queue.ahead)
    if queue.wrong and not queue.had_rows:
        text = f"{counted(queue.wrong, 'row is', 'rows are')} missing"
        yield new_finding("CQ-MISSING", text, place, units=queue.wrong)
    elif queue.wrong or queue.strange:
        count = queue.wrong + queue.strange
        text = f"{counted(count, 'row does', 'rows do')} not match the log"
        yield new_finding("CQ-WRONG", text, place, units=count)
    elif queue.bounds:
        text = f"{counted(queue.bounds, 'bound does', 'bounds do')} not match the rows"
        yield new_finding("CQ-WRONG", text, place, units=0)
