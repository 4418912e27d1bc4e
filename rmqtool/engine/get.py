"""Reading from queues as a broker does: by queue offset, with its limits, statuses and next offsets.

Upstream: ``DefaultMessageStore.getMessage``. The versions test the same things in another order, and so stop at other
units. What a unit names is served as it stands, as brokers do: judging records is the consumer's matter.

What a get answers.

Which messages a get is for, judged in two stages: by the unit in the queue, then by the record.

Upstream: ``ExpressionMessageFilter``. A tag's hash in the unit decides for tags; collisions are the client's matter. A
SQL92 filter needs the record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import takewhile
from operator import add
from typing import NamedTuple, Protocol

from rmqtool.config import BrokerRole, StoreConfig, Version
from rmqtool.files.filesystem import ReadableFile
from rmqtool.filters.sql92 import Selector
from rmqtool.filters.tags import TagExpression
from rmqtool.formats import layouts
from rmqtool.formats.codes import MAX_EXT_ADDRESS
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.consume_queue import UNIT_SIZE, is_batch_written, units_unpacker
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.store.segments import OpenFiles, Segment, SegmentQueue


class GetMessageStatus(Enum):
    """Upstream's names."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()


class Got(NamedTuple):
    """One record of an answer: its place in the queue and in the log, and its bytes."""

    queue_offset: int
    physical_offset: int
    data: bytes


@dataclass
class GetMessageResult:
    """An answer: the records, and where to ask next."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[Got] = field(default_factory=list)
    size: int = 0
    # How many messages that is: a record of an inner batch holds several.
    count: int = 0
    suggest_pulling_from_slave: bool = False

    def say(self, status: GetMessageStatus) -> None:
        """Say why nothing was found, while nothing is."""
        if not self.messages:
            self.status = status

    def add(self, got: Got, count: int) -> None:
        """Take a record."""
        self.messages.append(got)
        self.size += len(got.data)
        self.count += count


class MessageFilter(Protocol):
    """Judges a unit by its tags code (None where that is not known), and a record by its bytes."""

    def matches_unit(self, tags_code: int | None) -> bool:
        """Tell whether the record is worth reading."""

    def matches_record(self, data: bytes) -> bool:
        """Tell whether the record belongs to the answer."""


@dataclass(frozen=True)
class TagFilter:
    """The broker's half of a tag expression."""

    expression: TagExpression

    def matches_unit(self, tags_code: int | None) -> bool:
        """Compare hashes."""
        return self.expression.matches_code(tags_code)

    def matches_record(self, data: bytes) -> bool:  # noqa: ARG002
        """Let everything pass: the text of the tag is compared by the client."""
        return True


@dataclass(frozen=True)
class SqlFilter:
    """A SQL92 selector."""

    selector: Selector

    def matches_unit(self, tags_code: int | None) -> bool:  # noqa: ARG002
        """Let every unit pass: it says nothing of properties."""
        return True

    def matches_record(self, data: bytes) -> bool:
        """Evaluate the selector on the properties."""
        message = decode_record(data)
        return isinstance(message, Message) and self.selector.matches(message.properties)


_UNIT = layouts.CONSUME_QUEUE_UNIT
_BATCH_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT
# So many bytes of units are looked at, at least.
_LEAST_LOOKED_AT = 16_000
_FEW_UNITS, _MANY_UNITS = 64, 800
# Records are read together, in windows of the log of this size.
_WINDOW = 64 << 10
_NEAR = 4096
# So much of the log is read at once for each message of an answer.
_SPARSE = 8192
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
        # Within these a message in memory always fits, however large it is.
        self.bytes_at_once = config.max_transfer_bytes_on_message_in_memory
        self.messages_at_once = max(config.max_transfer_count_on_message_in_memory, 1)
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


class ReadLog(Protocol):
    """A log that records are read from."""

    @property
    def min_offset(self) -> int:
        """Where it begins."""

    def read(self, physical_offset: int, length: int) -> bytes:
        """Return what can be read at an offset, from one file, up to ``length``."""

    @property
    def segments(self) -> SegmentQueue:
        """Its files."""

    @property
    def committed_offset(self) -> int:
        """Where what can be read ends."""

    @property
    def segment_size(self) -> int:
        """The size of each file."""


class QueueView(Protocol):
    """A queue that is read."""

    @property
    def max_offset(self) -> int:
        """The next queue offset."""


class LogWindow:
    """Records read from the log, many with one read where they lie side by side."""

    def __init__(self, log: ReadLog, files: OpenFiles) -> None:
        self.log = log
        self._files = files
        self._segment: Segment | None = None
        self._file: ReadableFile | None = None
        self._start = 0
        self._end = -_NEAR
        self._data = b""

    def read(self, physical_offset: int, size: int) -> bytes | None:
        """Return the bytes of a record; None when the log does not hold all of them."""
        at = physical_offset - self._start
        if at >= 0 and at + size <= len(self._data) and size > 0:
            return self._data[at : at + size]
        segment = self._segment
        if segment is None or not segment.base_offset <= physical_offset < segment.base_offset + segment.size:
            segment = self._segment = self._find(physical_offset)
            if segment is None:
                return None
            self._file = self._files.open(segment)
        assert self._file is not None, "it is open as soon as there is a segment"
        place = physical_offset - segment.base_offset if physical_offset else 0
        left = min(segment.size - place, self.log.committed_offset - physical_offset)
        if not 0 < size <= left:
            return None
        # Ahead only where records lie side by side: those of one queue among many are far apart.
        is_near = 0 <= physical_offset - self._end < _NEAR
        self._data = self._file.pread(min(max(size, _WINDOW), left) if is_near else size, place)
        self._start, self._end = physical_offset, physical_offset + size
        return self._data[:size]

    def read_span(self, begin: int, end: int) -> bytes | None:
        """Return the bytes of a span that lies in one segment; None where there is no such segment."""
        segment = self.log.segments.find(begin)
        if segment is None or end > segment.end_offset:
            return None
        data = self._files.open(segment).pread(end - begin, begin - segment.base_offset)
        return data if len(data) == end - begin else None

    def _find(self, physical_offset: int) -> Segment | None:
        """Return the segment that holds an offset. upstream: offset 0 is where the log begins, wherever that is."""
        segments = self.log.segments
        found = segments.find(physical_offset)
        return segments.segments[0] if found is None and physical_offset == 0 and len(segments) else found


def get_messages(
    units: Callable[[int], Iterator[Unit] | None],
    window: LogWindow,
    limits: Limits,
    result: GetMessageResult,
    most: int,
    message_filter: MessageFilter | None,
) -> None:
    """Fill ``result``, whose next offset is where to begin, with what the units from there on lead to."""
    log = window.log
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


def get_together(
    queue: ConsumeQueueFiles, window: LogWindow, limits: Limits, result: GetMessageResult, most: int
) -> bool:
    """Fill ``result`` with one read of the queue and one of the log; False where units are to be looked at one by one.

    For the usual case alone: no filter, the messages are there and in memory, near each other, and all of them fit.
    """
    log, begin = window.log, result.next_begin_offset
    segment = queue.segments.find(begin * UNIT_SIZE)
    count = min(most, limits.messages_at_once, result.max_offset - begin)
    if segment is None or count <= 0:
        return False
    count = min(count, segment.end_offset // UNIT_SIZE - begin)
    data = queue.segments.open(segment).pread(count * UNIT_SIZE, begin * UNIT_SIZE - segment.base_offset)
    if len(data) < count * UNIT_SIZE:
        return False
    units = units_unpacker(count)(data)
    offsets, sizes = units[::3], units[1::3]
    low, high, size = offsets[0], offsets[-1] + sizes[-1], sum(sizes)
    end = log.committed_offset
    if (
        min(sizes) <= 0
        or min(offsets) < low
        or max(map(add, offsets, sizes)) > high
        or size > limits.bytes_at_once
        or high - low > count * _SPARSE + size
        or high > end
        or end - low > limits.in_memory
    ):
        return False
    span = window.read_span(low, high)
    if span is None:
        return False
    new = tuple.__new__
    result.messages = [
        new(Got, (number, offset, span[offset - low : offset - low + length]))
        for number, offset, length in zip(range(begin, begin + count), offsets, sizes, strict=True)
    ]
    result.size, result.count = size, count
    result.next_begin_offset = begin + count
    return True


def simple_units(
    queue: ConsumeQueueFiles, max_offset: int, tags_code: Callable[[int], int | None]
) -> Callable[[int], Iterator[Unit] | None]:
    """Return how the units of a simple queue are read, from an offset to the end of its file."""

    def read(begin: int) -> Iterator[Unit] | None:
        segment = queue.segments.find(begin * UNIT_SIZE)
        if segment is None:
            return None
        end = min(segment.end_offset // UNIT_SIZE, max_offset)
        return _iter_units(queue.segments.open(segment), segment.base_offset, begin, end, tags_code)

    return read


def _iter_units(
    file: ReadableFile, base_offset: int, begin: int, end: int, tags_code: Callable[[int], int | None]
) -> Iterator[Unit]:
    """Yield units from ``begin`` on; few are read at first, since mostly few are wanted."""
    count, new = _FEW_UNITS, tuple.__new__
    while begin < end:
        count = min(count, end - begin)
        data = file.pread(count * UNIT_SIZE, begin * UNIT_SIZE - base_offset)
        for offset, size, code in _UNIT.packer.iter_unpack(data):
            yield new(Unit, (begin, offset, size, tags_code(code) if code <= MAX_EXT_ADDRESS else code, 1))
            begin += 1
        count = _MANY_UNITS


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
