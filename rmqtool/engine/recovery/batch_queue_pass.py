"""Batch consume queues compared with the log. Their units lie one behind the other and say themselves what they hold.

upstream: BatchConsumeQueue.recover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmqtool.engine.derived_files import DerivedQueue
from rmqtool.engine.recovery.log_pass import LogPass
from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE
from rmqtool.formats.layouts import BatchConsumeQueueUnit
from rmqtool.storage.consume_queues import BatchQueueFiles

_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT


class BatchQueueCheck:
    """One batch queue while the log is read."""

    def __init__(self, queue: BatchQueueFiles | None, files: DerivedQueue, write: Callable[[int, bytes], None]) -> None:
        self._begin = queue.segments.min_offset if queue is not None else 0
        self._found: list[BatchConsumeQueueUnit] = list(queue.iter_units()) if queue is not None else []
        self._files = files
        self._write = write
        self._expected: list[BatchConsumeQueueUnit] = []

    def take(self, units: Sequence[BatchConsumeQueueUnit]) -> None:
        """Take the units of some records, in the order of the log."""
        self._expected += units

    def finish(self, log: LogPass, log_end: int) -> bool:
        """Write the units from the first wrong one on; return whether there was one."""
        expected = sorted({unit.physical_offset: unit for unit in (*self._lost(log), *self._expected)}.values())
        gone = [unit for unit in self._found if unit.physical_offset < log.log.min_offset]
        wanted = gone + expected
        found = self._found
        while found and found[-1].physical_offset >= log_end:
            found = found[:-1]
        if found == wanted and len(found) == len(self._found):
            return False
        same = next(
            (n for n, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted))
        )
        data = b"".join(_UNIT.encode(unit) for unit in wanted[same:])
        left = (len(self._found) - len(wanted)) * BATCH_UNIT_SIZE
        self._write(self._begin + same * BATCH_UNIT_SIZE, data + bytes(max(left, 0)))
        return True

    def _lost(self, log: LogPass) -> list[BatchConsumeQueueUnit]:
        """Return the units of messages whose records are damaged: they keep their places."""
        return [unit for unit in self._found if log.damage.covers(unit.physical_offset)]
