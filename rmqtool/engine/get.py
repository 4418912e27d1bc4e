"""Gets messages of a queue as a broker does: by queue offset, with its limits, statuses and next offsets.

Queues of compacted topics are in ``reader``.

The versions test the same conditions in another order, so they stop at different entries. A record is returned as it
is, without a check, as brokers do: consumers check records. upstream: DefaultMessageStore.getMessage.

A ``MessageFilter`` judges in two stages: by the queue entry, then by the record. For tags the hash in the entry
decides; collisions are left to the client. A SQL92 filter needs the record. upstream: ExpressionMessageFilter.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from operator import add, ne
from typing import Any, NamedTuple, Protocol

from rmqtool import kernel
from rmqtool.config import BrokerRole, StoreConfig, Version
from rmqtool.files.filesystem import NotInMemory, ReadableFile
from rmqtool.filters.sql92 import Selector
from rmqtool.filters.tags import TagExpression
from rmqtool.formats import layouts
from rmqtool.formats.codes import MAX_EXT_ADDRESS
from rmqtool.formats.commit_log import Blank, Message, Nothing, decode_record, decode_records, fields_decoder
from rmqtool.formats.consume_queue import UNIT_SIZE, is_batch_written, units_unpacker
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import LONG_MAX
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.store.segments import OpenFiles, Segment, SegmentQueue


class GetMessageStatus(Enum):
    """The answers to a get, by upstream's names."""

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
    """One record of an answer: queue offset, physical offset, and bytes."""

    queue_offset: int
    physical_offset: int
    data: bytes


class _Together(NamedTuple):
    """Records as one read gave them: a range of the log, the queue entries, and where each record is in the range."""

    data: bytes
    physical_offset: int
    units: bytes
    starts: array[int]
    first_queue_offset: int
    # Whether the range has other bytes than these records, or has them in another order.
    has_gaps: int

    def cut(self) -> list[Got]:
        """Return a copy of each record, with its queue offset and its physical offset."""
        # ``Got(...)`` for each message, without a call of Python code.
        data, low, new = self.data, self.physical_offset, tuple.__new__
        sizes = units_unpacker(len(self.starts))(self.units)[1::3]
        return [
            new(Got, (number, low + start, data[start : start + size]))
            for number, (start, size) in enumerate(zip(self.starts, sizes, strict=True), self.first_queue_offset)
        ]

    def joined(self) -> bytes:
        """Return the records back to back: all bytes of the range, if it has nothing else."""
        data, starts = self.data, self.starts
        if not self.has_gaps:
            return data
        sizes = units_unpacker(len(starts))(self.units)[1::3]
        return b"".join([data[start : start + size] for start, size in zip(starts, sizes, strict=True)])


class GetMessageResult:
    """The answer to a get: the records, and the offset to continue from.

    The records of one read stay where they are until they are asked for: ``messages`` copies each, ``decoded`` and
    ``fields`` decode them in place.
    """

    __slots__ = (
        "_messages",
        "_together",
        "count",
        "max_offset",
        "min_offset",
        "next_begin_offset",
        "size",
        "status",
        "suggest_pulling_from_slave",
    )

    def __init__(self, status: GetMessageStatus, next_begin_offset: int, min_offset: int, max_offset: int) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.size = 0
        # The number of messages: the record of an inner batch has several.
        self.count = 0
        self.suggest_pulling_from_slave = False
        self._messages: list[Got] | None = None
        self._together: _Together | None = None

    @property
    def messages(self) -> list[Got]:
        """The records of the answer; those of one read are cut out of it at the first use."""
        if self._messages is None:
            self._messages = [] if self._together is None else self._together.cut()
        return self._messages

    def joined(self) -> bytes:
        """Return the records back to back, as a client gets them."""
        if self._messages is None and self._together is not None:
            return self._together.joined()
        return b"".join([one.data for one in self.messages])

    def decoded(self) -> list[Message | Blank | Nothing | Flaw]:
        """Return the records decoded; brokers do not check them, so one that is damaged comes as a Flaw or a blank."""
        if self._together is None:
            return [decode_record(one.data) for one in self.messages]
        return decode_records(self._together.data, self._together.starts)

    def fields(self, *names: str) -> list[tuple[Any, ...] | None]:
        """Return some fields of each message, named as those of ``Message``; None where a record is damaged."""
        decode = fields_decoder(names)
        if self._together is None:
            return [decode(one.data, _AT_START)[0] for one in self.messages]
        return decode(self._together.data, self._together.starts)

    def say(self, status: GetMessageStatus) -> None:
        """Set the reason why nothing was found, unless a message was."""
        if not self.messages:
            self.status = status

    def add(self, got: Got, count: int) -> None:
        """Add a record; that of an inner batch counts as ``count`` messages, any other as one."""
        self.messages.append(got)
        self.size += len(got.data)
        self.count += count

    def set_together(self, together: _Together, size: int) -> None:
        """Take the records of one read, ``size`` bytes in all, as the whole answer; the next get begins after them."""
        self._together, self.size, self.count = together, size, len(together.starts)
        self.next_begin_offset = together.first_queue_offset + self.count


class MessageFilter(Protocol):
    """Judges a queue entry by its tags code (None if unknown), and a record by its bytes."""

    def matches_unit(self, tags_code: int | None) -> bool:
        """Return whether the entry's record may match, so that it must be read."""

    def matches_record(self, data: bytes) -> bool:
        """Return whether the record belongs in the answer; asked only if its entry matched."""


@dataclass(frozen=True)
class TagFilter:
    """A tag expression as a broker applies it: to the hashes of tags. The client compares the tags themselves."""

    expression: TagExpression

    def matches_unit(self, tags_code: int | None) -> bool:
        """Return whether the entry may have the tag: the hash is one of the expression's.

        Several tags can share a hash.
        """
        return self.expression.matches_code(tags_code)

    def matches_record(self, data: bytes) -> bool:  # noqa: ARG002  (the protocol's parameter)
        """Accept every record: the client compares the text of the tag."""
        return True


@dataclass(frozen=True)
class SqlFilter:
    """A SQL92 selector, which can only be evaluated on the properties of the record."""

    selector: Selector

    def matches_unit(self, tags_code: int | None) -> bool:  # noqa: ARG002  (the protocol's parameter)
        """Accept every entry: it does not have the properties."""
        return True

    def matches_record(self, data: bytes) -> bool:
        """Evaluate the selector on the properties; a damaged record does not match."""
        message = decode_record(data)
        return isinstance(message, Message) and self.selector.matches(message.properties)


_UNIT = layouts.CONSUME_QUEUE_UNIT
_BATCH_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT
# The most bytes of a queue that 4.9 examines in one get, unless the messages asked for have more; 5.x has a setting,
# maxFilterMessageSize.
_LEAST_LOOKED_AT = 16_000
# Entries read at first, and at each further read: most gets want few.
_FEW_UNITS, _MANY_UNITS = 64, 800
# Bytes of the log that are read at once for neighbouring records.
_WINDOW = 64 << 10
# Records with fewer bytes between them count as neighbours.
_NEAR = 4096
# One read for a whole answer may include, besides the records, at most this many bytes for each message.
_SPARSE = 8192
_PERCENT = 100
# Bytes of an item of ``array("q")``.
_LONG = 8
# Where a record begins that is alone in its bytes.
_AT_START = array("q", [0])


class Unit(NamedTuple):
    """A queue entry as a get sees it: record, tags code if known, and the messages in the record."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int | None
    batch_size: int = 1


class Limits:
    """The limits of one get, by the broker's settings."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        # A record at most this many bytes before the end of the log counts as in memory, as upstream.
        self.in_memory = memory * config.access_message_in_memory_max_ratio // _PERCENT
        self.is_old = config.version is Version.V4_9
        # The limits of an answer whose records are all in memory; one message is always allowed.
        self.bytes_at_once = config.max_transfer_bytes_on_message_in_memory
        self.messages_at_once = max(config.max_transfer_count_on_message_in_memory, 1)
        # Whether an answer corrects an invalid offset: not on a slave, whose queues may end early.
        self.corrects_offsets = config.broker_role is not BrokerRole.SLAVE

    def units(self, most: int) -> int:
        """Return how many entries a get examines at most; a filter may reject all of them."""
        if self.is_old:
            return max(_LEAST_LOOKED_AT, most * UNIT_SIZE) // UNIT_SIZE
        return max(self._config.max_filter_message_size, most * UNIT_SIZE) // UNIT_SIZE

    def is_full(self, result: GetMessageResult, unit: Unit, most: int, behind: int) -> bool:
        """Return whether another record exceeds a limit. The first record always fits.

        ``behind`` is the number of bytes from the record to the end of the log.
        """
        if not result.messages:
            return False
        # 5.x does not let an inner batch exceed ``most``; 4.9 has no inner batches.
        if result.count + (0 if self.is_old else unit.batch_size - 1) >= most:
            return True
        config = self._config
        if behind > self.in_memory:
            size, count = config.max_transfer_bytes_on_message_in_disk, config.max_transfer_count_on_message_in_disk
        else:
            size, count = config.max_transfer_bytes_on_message_in_memory, config.max_transfer_count_on_message_in_memory
        return result.size + unit.size > size or result.count > count - 1


class ReadLog(Protocol):
    """A log as a get needs it: committed bytes by physical offset, and their files."""

    @property
    def min_offset(self) -> int:
        """The physical offset of the log's first byte; without segments 0, or -1 if the log is open for writing."""

    def read(self, physical_offset: int, length: int) -> bytes:
        """Return up to ``length`` committed bytes at an offset; fewer where the file or the committed bytes end."""

    @property
    def segments(self) -> SegmentQueue:
        """The segments, for reading more than one record at once; only bytes before ``committed_offset`` are valid."""

    @property
    def committed_offset(self) -> int:
        """The end of the readable bytes."""

    @property
    def segment_size(self) -> int:
        """Bytes of a segment: if one is missing, a get goes on with the entries that point after it."""


class QueueView(Protocol):
    """A queue as a get needs it: where it ends."""

    @property
    def max_offset(self) -> int:
        """The queue offset after the last message."""


def read_file(file: ReadableFile, length: int, file_offset: int, *, waits: bool) -> bytes:
    """Read a range of a file. Without ``waits`` raise NotInMemory where the disk would be waited for."""
    return file.pread(length, file_offset) if waits else file.pread_at_once(length, file_offset)


class LogWindow:
    """Reads records of a log; neighbouring records share one read."""

    def __init__(self, log: ReadLog, files: OpenFiles, *, waits: bool = True) -> None:
        self.log = log
        self._files = files
        self._waits = waits
        self._segment: Segment | None = None
        self._file: ReadableFile | None = None
        # ``_data`` has the bytes of the log from ``_start`` on. ``_end`` is the end of the record that was asked for
        # last; at first it is so far before the log that no record is near it.
        self._start = 0
        self._end = -_NEAR
        self._data = b""

    def read(self, physical_offset: int, size: int) -> bytes | None:
        """Return the bytes of a record, or None if the log does not have all of them."""
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
        # Read ahead only near the last record: the records of one queue among many are far apart.
        is_near = 0 <= physical_offset - self._end < _NEAR
        length = min(max(size, _WINDOW), left) if is_near else size
        self._data = read_file(self._file, length, place, waits=self._waits)
        self._start, self._end = physical_offset, physical_offset + size
        return self._data[:size]

    def _find(self, physical_offset: int) -> Segment | None:
        """Return the segment of an offset, None without one.

        upstream: offset 0 means the beginning of the log, wherever that is.
        """
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
    """Fill ``result`` with up to ``most`` messages, and set its status and its next offset.

    ``units`` gives the entries from ``result.next_begin_offset`` on, or None, which leaves ``result`` unchanged.
    Without a ``message_filter`` every message counts. If a record is not in memory, and must not be waited for,
    NotInMemory has the answer that ends before it, unless that is the first one.
    """
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
        # 4.9 skips entries of a removed segment before it tests whether the answer is full.
        if not (skipped and limits.is_old) and limits.is_full(result, unit, most, end - unit.physical_offset):
            break
        result.next_begin_offset = unit.queue_offset + unit.batch_size
        last_examined = unit.physical_offset
        if skipped:
            continue
        if message_filter is not None and not message_filter.matches_unit(unit.tags_code):
            result.say(GetMessageStatus.NO_MATCHED_MESSAGE)
            continue
        try:
            data = window.read(unit.physical_offset, unit.size)
        except NotInMemory as cold:
            if number:
                result.next_begin_offset, cold.so_far = unit.queue_offset, result
            raise
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
    queue: ConsumeQueueFiles,
    log: ReadLog,
    log_files: OpenFiles,
    limits: Limits,
    result: GetMessageResult,
    most: int,
    *,
    waits: bool,
) -> bool:
    """Fill ``result`` with one read of the queue and one of the log; return False if that is not possible.

    Possible in the usual case only: no filter, all messages are in the log and in memory, close together, within the
    limits.
    """
    begin = result.next_begin_offset
    segment = queue.segments.find(begin * UNIT_SIZE)
    count = min(most, limits.messages_at_once, result.max_offset - begin)
    if segment is None or count <= 0:
        return False
    count = min(count, segment.end_offset // UNIT_SIZE - begin)
    place = begin * UNIT_SIZE - segment.base_offset
    data = read_file(queue.segments.open(segment), count * UNIT_SIZE, place, waits=waits)
    if len(data) < count * UNIT_SIZE:
        return False
    starts = array("q", bytes(count * _LONG))
    found = find_span(data, starts) if kernel.NATIVE is None else kernel.NATIVE.span(data, starts)
    if found is None:
        return False
    low, high, size, has_gaps = found
    end = log.committed_offset
    if size > limits.bytes_at_once or high - low > count * _SPARSE + size or high > end or end - low > limits.in_memory:
        return False
    segment = log.segments.find(low)
    if segment is None or high > segment.end_offset:
        return False
    span = read_file(log_files.open(segment), high - low, low - segment.base_offset, waits=waits)
    if len(span) < high - low:
        return False
    # ``_Together(...)`` without a call of Python code.
    result.set_together(tuple.__new__(_Together, (span, low, data, starts, begin, has_gaps)), size)
    return True


def find_span(units: bytes, starts: array[int]) -> tuple[int, int, int, int] | None:
    """Return where the records of queue entries begin and end in the log, the sum of their sizes, and 1 for gaps.

    It is 0 if each record begins where the one before it ends.

    ``starts`` is filled with the place of each record, counted from that beginning. None if an entry is not sound, or
    if a record begins before the first one or ends after the last one. The kernel's ``span`` does the same.
    """
    values = units_unpacker(len(starts))(units)
    offsets, sizes = values[::3], values[1::3]
    low, high = offsets[0], offsets[-1] + sizes[-1]
    if min(sizes) <= 0 or low < 0 or min(offsets) < low or max(map(add, offsets, sizes)) > high or high > LONG_MAX:
        return None
    starts[:] = array("q", [offset - low for offset in offsets])
    return low, high, sum(sizes), int(any(map(ne, offsets[1:], map(add, offsets, sizes))))


def simple_units(
    queue: ConsumeQueueFiles, max_offset: int, tags_code: Callable[[int], int | None], *, waits: bool = True
) -> Callable[[int], Iterator[Unit] | None]:
    """Return a reader of a simple queue's entries, from an offset to the end of its file.

    The reader returns None if no file has the offset. ``tags_code`` finds the code for an address in the
    queue's extension.
    """

    def read(begin: int) -> Iterator[Unit] | None:
        segment = queue.segments.find(begin * UNIT_SIZE)
        if segment is None:
            return None
        end = min(segment.end_offset // UNIT_SIZE, max_offset)
        file, base_offset = queue.segments.open(segment), segment.base_offset

        def pread(length: int, offset: int) -> bytes:
            return read_file(file, length, offset - base_offset, waits=waits)

        return _iter_units(pread, begin, end, tags_code)

    return read


def _iter_units(
    pread: Callable[[int, int], bytes], begin: int, end: int, tags_code: Callable[[int], int | None]
) -> Iterator[Unit]:
    """Yield entries from ``begin`` on; few are read at first, because most gets want few.

    ``pread`` takes a number of bytes and their offset in the queue, and returns them.
    """
    count, new = _FEW_UNITS, tuple.__new__
    while begin < end:
        count = min(count, end - begin)
        data = pread(count * UNIT_SIZE, begin * UNIT_SIZE)
        for offset, size, code in _UNIT.packer.iter_unpack(data):
            yield new(Unit, (begin, offset, size, tags_code(code) if code <= MAX_EXT_ADDRESS else code, 1))
            begin += 1
        count = _MANY_UNITS


def batch_units(queue: BatchQueueFiles) -> Callable[[int], Iterator[Unit] | None]:
    """Return a reader of a batch queue's entries, from the one that has an offset to the end of its file.

    The reader returns None if the offset is after the last entry.
    """

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
