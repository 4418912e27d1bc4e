"""Reading from queues as a broker does: by queue offset, with its limits, statuses and next offsets.

Upstream: ``DefaultMessageStore.getMessage``. The versions test the same things in another order, and so stop at other
units. What a unit names is served as it stands, as brokers do: judging records is the consumer's matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

from rmqtool.config import BrokerRole, StoreConfig, Version
from rmqtool.engine.commit_log import CommitLog
from rmqtool.engine.get_result import GetMessageResult, GetMessageStatus, Got
from rmqtool.engine.message_filter import MessageFilter
from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import UNIT_SIZE, is_batch_written, is_ext_address
from rmqtool.storage.consume_queues import BatchQueueFiles, ConsumeQueueFiles

_UNIT = layouts.CONSUME_QUEUE_UNIT
_BATCH_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT
# So many bytes of units are looked at, at least.
_LEAST_LOOKED_AT = 16_000
# Records are read together, in windows of the log of this size.
_WINDOW = 64 << 10
_PERCENT = 100


class Unit(NamedTuple):
    """What a queue says of one record: where it is, its tags code if known, and which messages it holds."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int | None
    batch_size: int = 1


class Limits:
    """How much one get answers."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.in_memory = memory * config.access_message_in_memory_max_ratio // _PERCENT
        self.is_old = config.version is Version.V4_9
        # A slave that is behind is no reason to send a consumer elsewhere.
        self.corrects_offsets = config.broker_role is not BrokerRole.SLAVE

    def units(self, most: int) -> int:
        """Return how many units a get looks at."""
        if self.is_old:
            return max(_LEAST_LOOKED_AT, most * UNIT_SIZE) // UNIT_SIZE
        return max(self._config.max_filter_message_size, most * UNIT_SIZE) // UNIT_SIZE

    def is_full(self, result: GetMessageResult, unit: Unit, most: int, behind: int) -> bool:
        """Tell whether a record no longer fits; one always does."""
        if not result.messages:
            return False
        if result.count + (0 if self.is_old else unit.batch_size - 1) >= most:
            return True
        config = self._config
        if behind > self.in_memory:
            size, count = config.max_transfer_bytes_on_message_in_disk, config.max_transfer_count_on_message_in_disk
        else:
            size, count = config.max_transfer_bytes_on_message_in_memory, config.max_transfer_count_on_message_in_memory
        return result.size + unit.size > size or result.count > count - 1


class LogWindow:
    """Records read from the log, many with one read where they lie side by side."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._start = 0
        self._data = b""

    def read(self, physical_offset: int, size: int) -> bytes | None:
        """Return the bytes of a record; None when the log does not hold all of them."""
        if size <= 0:
            return None
        at = physical_offset - self._start
        if at < 0 or at + size > len(self._data):
            if size > self._log.segment_size:
                return None
            self._start, at = physical_offset, 0
            self._data = self._log.read(physical_offset, max(size, _WINDOW))
            if len(self._data) < size:
                self._data = b""
                return None
        return self._data[at : at + size]


def get_messages(
    units: Callable[[int], Iterator[Unit] | None],
    log: CommitLog,
    limits: Limits,
    result: GetMessageResult,
    most: int,
    message_filter: MessageFilter | None,
) -> None:
    """Fill ``result``, whose next offset is where to begin, with what the units from there on lead to."""
    window = LogWindow(log)
    begin = result.next_begin_offset
    found = units(begin)
    if found is None:
        return
    result.status = GetMessageStatus.NO_MATCHED_MESSAGE
    end, next_segment, last_examined = log.committed_offset, -1, 0
    budget = limits.units(most)
    for number, unit in enumerate(found):
        if number >= budget:
            break
        skipped = unit.physical_offset < next_segment
        # 4.9 steps over units of a segment that is gone before it asks whether the answer is full.
        if not (skipped and limits.is_old) and limits.is_full(result, unit, most, end - unit.physical_offset):
            break
        result.next_begin_offset = unit.queue_offset + unit.batch_size
        last_examined = unit.physical_offset
        if skipped:
            continue
        if message_filter is not None and not message_filter.matches_unit(unit.tags_code):
            result.say(GetMessageStatus.NO_MATCHED_MESSAGE)
            continue
        data = window.read(unit.physical_offset, unit.size)
        if data is None:
            result.say(GetMessageStatus.MESSAGE_WAS_REMOVING)
            next_segment = unit.physical_offset - unit.physical_offset % log.segment_size + log.segment_size
        elif message_filter is None or message_filter.matches_record(data):
            result.add(Got(unit.queue_offset, unit.physical_offset, data), unit.batch_size)
            result.status = GetMessageStatus.FOUND
            next_segment = -1
        else:
            result.say(GetMessageStatus.NO_MATCHED_MESSAGE)
    result.suggest_pulling_from_slave = end - last_examined > limits.in_memory


def simple_units(
    queue: ConsumeQueueFiles, max_offset: int, tags_code: Callable[[int], int | None]
) -> Callable[[int], Iterator[Unit] | None]:
    """Return how the units of a simple queue are read, from an offset to the end of its file."""

    def read(begin: int) -> Iterator[Unit] | None:
        segment = queue.segments.find(begin * UNIT_SIZE)
        if segment is None:
            return None
        end = min(segment.end_offset // UNIT_SIZE, max_offset)
        data = queue.segments.open(segment).pread((end - begin) * UNIT_SIZE, begin * UNIT_SIZE - segment.base_offset)
        return (
            Unit(begin + number, offset, size, tags_code(code) if is_ext_address(code) else code)
            for number, (offset, size, code) in enumerate(_UNIT.packer.iter_unpack(data))
        )

    return read


def batch_units(queue: BatchQueueFiles) -> Callable[[int], Iterator[Unit] | None]:
    """Return how the units of a batch queue are read, from the one that holds an offset to the end of its file."""

    def read(begin: int) -> Iterator[Unit] | None:
        for segment in queue.segments:
            data = queue.segments.open(segment).pread(segment.size, 0)
            units = [*takewhile(is_batch_written, _BATCH_UNIT.iter_decode(data))]
            if units and units[-1].msg_base_offset + units[-1].batch_size > begin:
                return (
                    Unit(unit.msg_base_offset, unit.physical_offset, unit.size, unit.tags_code, unit.batch_size)
                    for unit in units
                    if unit.msg_base_offset + unit.batch_size > begin
                )
        return None

    return read
