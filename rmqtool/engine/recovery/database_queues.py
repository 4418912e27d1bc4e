"""Queues in RocksDB compared with the log. They are only read: their own broker writes them.

A broker dispatches again what lies behind the last record that its queues know. Whatever else is not in them as the
log says cannot be served, and is named.

upstream: RocksDBConsumeQueueStore.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.engine.queue_offsets import QueueKey
from rmqtool.engine.recovery.log_pass import LogBatch
from rmqtool.engine.recovery.report import Misfit, RecoveryReport
from rmqtool.findings import Place, new_finding
from rmqtool.findings.wording import counted
from rmqtool.formats.dispatch import DispatchRules
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.paths import CONSUME_QUEUE
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.storage.database_queues import iter_bound_rows, iter_queue_rows
from rmqtool.storage.discovery import QueueId, StoreListing
from rmqtool.storage.filesystem import ReadableFileSystem
from rmqtool.storage.rocksdb import Database

if TYPE_CHECKING:
    from rmqtool.bulk.queues import QueueRun


class ListedStore(NamedTuple):
    """Where the databases of a store are found."""

    root: str
    filesystem: ReadableFileSystem
    listing: StoreListing


class DatabaseQueuesCheck:
    """The rows of all queues while the log is read."""

    def __init__(self, database: Database, rules: DispatchRules) -> None:
        self._database = database
        self._rules = rules
        self._bounds = _last_places(database)
        self._dispatched = max(self._bounds.values(), default=-1)
        # Messages that a broker dispatches at its next start: how many, and the first one's place.
        self._waiting: list[int] = [0, -1]
        self._misfits: list[Misfit] = []

    @property
    def is_behind(self) -> bool:
        """Whether a broker has something to dispatch."""
        return self._waiting[0] > 0

    def take(self, batch: LogBatch) -> None:
        """Take the records of a part of the log."""
        from rmqtool.bulk.queues import queue_runs

        for run in queue_runs(batch.records, batch.properties, self._rules):
            self._take_run(run)

    def _take_run(self, run: QueueRun) -> None:
        offsets, units = run.queue_offsets.tolist(), run.units.tolist()
        key = (run.topic, run.queue_id)
        # What stands for the tags there hangs on a setting that no file of the store tells.
        is_delayed = run.topic == SCHEDULE_TOPIC
        rows = dict(self._rows(key, offsets[0], max(offsets))) if offsets else {}
        for offset, unit in zip(offsets, units, strict=True):
            found = rows.get(offset)
            if found == ConsumeQueueUnit(*unit) or (found is not None and found[:2] == unit[:2] and is_delayed):
                continue
            if unit[0] > self._dispatched:
                self._waiting = [self._waiting[0] + 1, self._waiting[1] if self._waiting[0] else unit[0]]
                continue
            reason = "its queue in RocksDB has no row for it"
            if found is not None:
                reason = f"its row in RocksDB leads to {found.physical_offset} ({found.size} bytes)"
                if found[:2] == unit[:2]:
                    reason = f"its row in RocksDB has the tags code {found.tags_code}, not {unit[2]}"
            self._misfits.append(Misfit(unit[0], *key, offset, reason))

    def _rows(self, queue: QueueKey, first: int, last: int) -> Iterator[tuple[int, ConsumeQueueUnit]]:
        for row in iter_queue_rows(self._database, QueueId(*queue), first):
            if row.queue_offset > last:
                return
            yield row.queue_offset, ConsumeQueueUnit(*row.value[:3])

    def finish(self, report: RecoveryReport, log_end: int) -> None:
        """Name what the log does not say."""
        for (topic, queue_id), place in sorted(self._bounds.items()):
            if place >= log_end:
                text = f"the last row leads to {place}, the log ends at {log_end}; only its broker can cut the queue"
                at = Place(CONSUME_QUEUE, None, None, topic, queue_id)
                report.findings.append(new_finding("CQ-AHEAD", text, at))
        count, first = self._waiting
        if count:
            text = f"{counted(count, 'message has', 'messages have')} no row yet, from {first} on"
            text += "; the broker dispatches that at its start"
            report.findings.append(new_finding("CQ-MISSING", text, Place(CONSUME_QUEUE), messages=count))
        for misfit in self._misfits:
            at = Place(CONSUME_QUEUE, None, None, misfit.topic, misfit.queue_id)
            text = f"queue offset {misfit.queue_offset}, log {misfit.physical_offset}: {misfit.reason}"
            report.findings.append(new_finding("CQ-WRONG", text, at))
        report.misfits += self._misfits


def _last_places(database: Database) -> dict[QueueKey, int]:
    """Return the place of the last message of each queue, as the database says."""
    return {queue: offset.physical_offset for queue, bound, offset in iter_bound_rows(database) if bound == "max"}
