"""``CommitLog.checkMessageAndReturnSize`` of the three versions: what a broker accepts as a record.

The tests are in upstream's order. It decides what is logged, and that 4.9 allocates as many bytes as a damaged size
asks for. No version tests a record's offset, queue, queue offset, times, hosts, or the syntax of its properties.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import BLANK_MAGIC, HOST_BITS, MESSAGE_MAGIC_V1, RECORD_MAGICS
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, PREFIXES, Message, record_size
from rmqtool.formats.java import INT_MAX, int32, parse_int
from rmqtool.formats.properties import CRC_BLOCK_LENGTH
from rmqtool.formats.property_names import DELAY, DUP_INFO, PROPERTY_CRC32
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.upstream import broker_log
from rmqtool.upstream.batches import Batch, read_batch
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.settings import StartSettings

_START = layouts.RECORD_START
_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_SYS_FLAG = _PREFIX.field("sys_flag")
_SHORT = layouts.SHORT
_CHUNK = 1 << 20
# Bytes in which a batch is searched, the fewest bytes left for which that pays, and the fewest records.
_BATCH_MOST = 8 << 20
_BATCH_LEAST = 64 << 10
_BATCH_FEWEST = 16
_RAW_SCHEDULE_TOPIC = SCHEDULE_TOPIC.encode()


class OutOfMemory(Exception):
    """The broker's heap cannot hold an array of the size in a damaged record."""

    def __init__(self, total_size: int) -> None:
        super().__init__(total_size)
        self.total_size = total_size


class Unreadable(NamedTuple):
    """Not a record. ``size`` is -1, or the record's size if the parts just do not add up to it.

    ``consumed`` is how far the broker has read from the record's start.
    """

    size: int
    consumed: int = 0


class EndOfFile(NamedTuple):
    """The blank record that ends a segment."""


END_OF_FILE = EndOfFile()
UNREADABLE = Unreadable(-1)


class SegmentWindow:
    """The part of a segment that is in memory; it moves with the reading."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self.start = 0
        self.data = b""
        # Where records are looked for in batches again, after a batch with too few.
        self.next_batch = 0

    def slide(self, at: int, length: int) -> None:
        """Read at least ``length`` bytes from ``at`` into memory."""
        self.data = self._read(at, max(length, _CHUNK))
        self.start = at

    def bytes(self, at: int, length: int) -> bytes:
        """Return ``length`` bytes from ``at``."""
        i = at - self.start
        if i < 0 or i + length > len(self.data):
            self.slide(at, length)
            i = 0
        return self.data[i : i + length]

    def crc31(self, at: int, length: int) -> int:
        """Return the checksum of ``length`` bytes from ``at``, in pieces if they are many."""
        crc = 0
        while length:
            part = self.bytes(at, min(length, _CHUNK))
            crc = zlib.crc32(part, crc)
            at += len(part)
            length -= len(part)
        return crc & INT_MAX


class _JavaException(Exception):
    """An index out of bounds, a buffer underflow, or a bad number: upstream's check returns -1."""


class RecordCheck:
    """The check with one broker's settings."""

    def __init__(self, settings: StartSettings, log: BrokerLog) -> None:
        self._settings = settings
        self._log = log
        self._v4_9 = settings.is_4_9
        self._magics = (MESSAGE_MAGIC_V1,) if self._v4_9 else RECORD_MAGICS
        self._verify_properties = settings.verify_property_crc and not self._v4_9
        self._dup_info = settings.duplication and not self._v4_9
        self._plain = not (self._verify_properties or self._dup_info)
        # The largest buffer that the broker allocated for a record.
        self.most_allocated = 0

    def check(
        self, window: SegmentWindow, at: int, limit: int, crc: bool = True, body: bool = True
    ) -> Message | EndOfFile | Unreadable:
        """Return the record at ``at`` without its body; bytes at ``limit`` and later are not read."""
        left = limit - at
        if left < _START.size:
            if not self._v4_9 and left > layouts.INT.size:
                return self._failed()
            return UNREADABLE
        i = at - window.start
        if i < 0 or i + _PREFIX.size > len(window.data):
            window.slide(at, min(left, _CHUNK))
            i = 0
        total_size, magic = _START.unpack_from(window.data, i)
        if self._plain and MIN_RECORD_SIZE <= total_size <= left and magic in self._magics:
            if i + total_size > len(window.data):
                self._allocate(total_size)
                window.slide(at, total_size)
                i = 0
            found = self._whole(window.data, i, total_size, crc)
            if found is not None:
                return found
        # Java's subtraction overflows for the lowest sizes.
        if not self._v4_9 and left - layouts.INT.size < int32(total_size - layouts.INT.size):
            return UNREADABLE
        if magic == BLANK_MAGIC:
            return END_OF_FILE
        if magic not in self._magics:
            self._log.warn(broker_log.ILLEGAL_MAGIC_5_4 if self._settings.is_5_4 else broker_log.illegal_magic(magic))
            return UNREADABLE
        self._allocate(total_size)
        try:
            return self._parse(window, at, left, crc, body)
        except _JavaException:
            return self._failed()

    def find_batch(self, window: SegmentWindow, at: int, limit: int) -> Batch | None:
        """Return the records in memory from ``at`` on; None if a batch does not pay.

        Bytes after ``limit`` are not part of the log, even if they are sound records.
        """
        if not self._plain or at < window.next_batch:
            return None
        if not 0 <= at - window.start <= len(window.data) - _BATCH_LEAST:
            window.slide(at, min(limit - at, _BATCH_MOST))
        end = min(limit - window.start, len(window.data))
        batch = read_batch(window.data, at - window.start, end, self._magics, self._settings.rules)
        if len(batch) < _BATCH_FEWEST:
            window.next_batch = at + _BATCH_LEAST
            return None
        return batch

    def _allocate(self, total_size: int) -> None:
        if total_size > self._settings.largest_array:
            raise OutOfMemory(total_size)
        self.most_allocated = max(self.most_allocated, total_size)

    def _failed(self) -> Unreadable:
        if not self._v4_9:
            self._log.warn(broker_log.CHECK_FAILED)
        return UNREADABLE

    def _whole(self, data: bytes, i: int, total_size: int, crc: bool) -> Message | None:
        """Return the record if each test passes: the fast path for nearly all records."""
        prefix = PREFIXES[data[i + _SYS_FLAG.offset + 3] & HOST_BITS]
        if total_size < prefix.size + 3:
            return None
        values = prefix.unpack_from(data, i)
        body_at = i + prefix.size
        body_length = values[-1]
        end = i + total_size
        length_at = body_at + body_length
        if body_length < 0 or length_at + 3 > end:
            return None
        if values[1] == MESSAGE_MAGIC_V1:
            topic_length = data[length_at]
            topic_at = length_at + 1
            if topic_length > 127:
                return None
        else:
            (topic_length,) = _SHORT.unpack_from(data, length_at)
            topic_at = length_at + 2
        properties_at = topic_at + topic_length + 2
        if topic_length < 0 or properties_at > end:
            return None
        (properties_length,) = _SHORT.unpack_from(data, properties_at - 2)
        if properties_at + properties_length != end or properties_length < 0:
            return None
        if crc and body_length and zlib.crc32(data[body_at:length_at]) & INT_MAX != values[2]:
            return None
        raw_topic = data[topic_at : properties_at - 2]
        if raw_topic == _RAW_SCHEDULE_TOPIC:
            return None
        return Message._make((*values, b"", raw_topic, data[properties_at:end]))

    def _parse(self, window: SegmentWindow, at: int, left: int, crc: bool, body: bool) -> Message | Unreadable:
        """Read the record part by part, as upstream does."""
        cursor = _SYS_FLAG.offset + _SYS_FLAG.size
        if cursor > left:
            raise _JavaException
        prefix = PREFIXES[window.bytes(at, cursor)[-1] & HOST_BITS]
        if prefix.size > left:
            raise _JavaException
        values = prefix.unpack_from(window.bytes(at, prefix.size))
        total_size, magic, body_crc = values[:3]
        hosts = max(prefix.field("born_host_ip").size, prefix.field("store_host_ip").size) + layouts.INT.size
        if hosts > total_size:
            raise _JavaException
        cursor = prefix.size
        body_length = values[-1]
        if body_length > 0:
            if cursor + body_length > left or (body and body_length > total_size):
                raise _JavaException
            check_body = body and crc and not self._verify_properties
            if check_body and window.crc31(at + cursor, body_length) != body_crc:
                self._log.warn(broker_log.CRC_FAILED)
                return UNREADABLE
            cursor += body_length
        cursor, topic_length = self._length(window, at, cursor, left, 1 if magic == MESSAGE_MAGIC_V1 else _SHORT.size)
        if topic_length < 0:
            raise _JavaException
        cursor, raw_topic = self._text(window, at, cursor, left, topic_length, total_size)
        cursor, properties_length = self._length(window, at, cursor, left, _SHORT.size)
        raw_properties = b""
        if properties_length > 0:
            cursor, raw_properties = self._text(window, at, cursor, left, properties_length, total_size)
        message = Message._make((*values, b"", raw_topic, raw_properties))
        if not self._properties_pass(message, window, at, cursor, crc):
            return UNREADABLE
        added_up = record_size(message.sys_flag, magic, max(body_length, 0), topic_length, max(properties_length, 0))
        if added_up != total_size:
            self._log.warn(broker_log.COUNT_NOT_EQUAL)
            return Unreadable(total_size, cursor)
        return message

    def _properties_pass(self, message: Message, window: SegmentWindow, at: int, cursor: int, crc: bool) -> bool:
        """Return whether the properties pass their tests; ``cursor`` is their end, counted from ``at``."""
        properties = message.properties
        # Java's split drops empty parts at the end.
        duplicate_of = properties.get(DUP_INFO, "").rstrip("_").split("_")
        if self._dup_info and message.raw_properties and len(duplicate_of) != 2:
            self._log.warn(broker_log.DUP_INFO_FAILED)
            return False
        if message.raw_topic == _RAW_SCHEDULE_TOPIC and parse_int(properties.get(DELAY, "0")) is None:
            raise _JavaException
        if not (crc and self._verify_properties):
            return True
        stored = properties.get(PROPERTY_CRC32)
        expected = -1
        if stored is not None:
            expected = 0
            for digit in reversed(stored):
                expected = int32(expected * 10 + ord(digit) - ord("0"))
        if expected < 0:
            self._log.warn(broker_log.PROPERTY_CRC_MISSING)
            return False
        begin = at + cursor - message.total_size
        length = message.total_size - CRC_BLOCK_LENGTH
        if begin < 0 or length < 0:
            raise _JavaException
        if window.crc31(begin, length) != expected:
            self._log.warn(broker_log.PROPERTY_CRC_FAILED)
            return False
        return True

    @staticmethod
    def _length(window: SegmentWindow, at: int, cursor: int, left: int, size: int) -> tuple[int, int]:
        if cursor + size > left:
            raise _JavaException
        data = window.bytes(at + cursor, size)
        if size == _SHORT.size:
            return cursor + size, _SHORT.decode(data).value
        return cursor + size, data[0] - 256 if data[0] > 127 else data[0]

    @staticmethod
    def _text(
        window: SegmentWindow, at: int, cursor: int, left: int, length: int, total_size: int
    ) -> tuple[int, bytes]:
        if length > total_size or cursor + length > left:
            raise _JavaException
        return cursor + length, window.bytes(at + cursor, length)
