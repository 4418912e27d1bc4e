"""``CommitLog``: with which file recovery begins, how far it reads, where it cuts.

``RecordCheck`` is ``checkMessageAndReturnSize`` of the three versions: what a broker accepts as a record. The tests are
in upstream's order. It decides what is logged, and that 4.9 allocates as many bytes as a damaged size asks for. No
version tests a record's offset, queue, queue offset, times, hosts, or the syntax of its properties.

``Checkpoint`` has the times that decide where recovery begins after a crash. upstream: StoreCheckpoint.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqtool.formats import layouts, paths
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_checkpoint, min_timestamp
from rmqtool.formats.codes import BLANK_MAGIC, HOST_BITS, MESSAGE_MAGIC_V1, RECORD_MAGICS, SysFlag
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, PREFIXES, Message, record_size
from rmqtool.formats.java import INT_MAX, int32, parse_int, remainder
from rmqtool.formats.properties import CRC_BLOCK_LENGTH
from rmqtool.formats.property_names import DELAY, DUP_INFO, PROPERTY_CRC32
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.upstream import broker_log
from rmqtool.upstream.batches import Batch, Run, read_batch
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.mapped_files import LoadRefused, MappedFile, MappedFileQueue
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


_FIELDS = layouts.STORE_CHECKPOINT
_FIELDS_4_9 = 3 * layouts.LONG.size


class Checkpoint:
    """The fields in memory, and when they are written. Bytes after the fields are never written."""

    def __init__(self, files: StoreFiles, v4_9: bool) -> None:
        self._files = files
        self._length = _FIELDS_4_9 if v4_9 else _FIELDS.size
        if not files.exists(paths.CHECKPOINT):
            files.create(paths.CHECKPOINT, PAGE_SIZE)
        elif files.size(paths.CHECKPOINT) < PAGE_SIZE:
            files.resize(paths.CHECKPOINT, PAGE_SIZE)
        values = decode_checkpoint(files.read(paths.CHECKPOINT, 0, _FIELDS.size))
        # The time that recovery uses, before it changes a field.
        self.min_timestamp = min_timestamp(values)
        self._physic_msg_timestamp = values.physic_msg_timestamp
        self._master_flushed_offset = values.master_flushed_offset
        # The store time of the last dispatched record.
        self.logics_msg_timestamp = values.logics_msg_timestamp
        # The end time of the last full index file.
        self.index_msg_timestamp = values.index_msg_timestamp
        # The confirmed end of the log (5.x).
        self.confirm_phy_offset = values.confirm_phy_offset

    def flush(self) -> None:
        """Write the fields."""
        values = layouts.StoreCheckpoint(
            self._physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self._master_flushed_offset,
            self.confirm_phy_offset,
        )
        self._files.write(paths.CHECKPOINT, 0, _FIELDS.encode(values)[: self._length])


# After a clean stop a 4.9 broker reads this many files at the end of the log.
NORMAL_FILES_4_9 = 3

_PREFIX_V6 = layouts.MESSAGE_PREFIX_V6V4


class Taker(NamedTuple):
    """Takes the records that recovery reads: single ones, and runs of them."""

    one: Callable[[Message], None]
    run: Callable[[Run], None]


class Place(NamedTuple):
    """A place in a file."""

    path: str
    file_offset: int


class CommitLog:
    """The log of a store."""

    def __init__(self, files: StoreFiles, settings: StartSettings, log: BrokerLog, *, in_runs: bool) -> None:
        self._in_runs = in_runs
        self._files = files
        self._settings = settings
        self._log = log
        self.mapped = MappedFileQueue(files, settings.commit_log_dirs, settings.commit_log_file_size)
        self.check = RecordCheck(settings, log)
        # Results of the last recovery: the files that it read, the start of the last record, and where it ended.
        self.scanned: list[str] = []
        self.last_record: int | None = None
        self.end: Place | None = None
        # Whether none of the files that 5.4 looks at qualified, so that it begins with the oldest of them.
        self.limited = False

    def load(self) -> None:
        """Load the segments."""
        self.mapped.load(self._log, self._settings.is_4_9)

    def window(self, file: MappedFile) -> SegmentWindow:
        """Return a window on a segment."""
        return SegmentWindow(lambda at, length: self._files.read(file.path, at, length))

    def start_index(self, clean: bool, max_physic_offset: int, checkpoint: Checkpoint) -> int:
        """Return the number of the file with which recovery begins."""
        files = self.mapped.mapped
        if self._settings.is_5_4:
            return self._start_index_5_4(clean, max_physic_offset, checkpoint)
        if clean and self._settings.is_4_9:
            return max(0, len(files) - NORMAL_FILES_4_9)
        if clean:
            accepts: Callable[[MappedFile], bool] = lambda file: file.start <= max_physic_offset  # noqa: E731
        else:
            latest = checkpoint.min_timestamp
            if self._settings.index_safe:
                latest = min(latest, checkpoint.index_msg_timestamp)
            accepts = lambda file: self._is_old_enough(file, latest)  # noqa: E731
        return next((i for i in reversed(range(len(files))) if accepts(files[i])), 0)

    def _is_old_enough(self, file: MappedFile, latest: int) -> bool:
        """Return whether a file qualifies, by magic and time of its first record.

        Upstream: ``isMappedFileMatchedRecover``.
        """
        head = self._files.read(file.path, 0, _PREFIX_V6.size)
        if len(head) < _PREFIX_V6.size:
            return False
        values = layouts.MessagePrefix._make(_PREFIX.unpack_from(head))
        magics = (MESSAGE_MAGIC_V1,) if self._settings.is_4_9 else RECORD_MAGICS
        if values.magic not in magics:
            return False
        if values.sys_flag & SysFlag.BORN_HOST_V6:
            values = layouts.MessagePrefix._make(_PREFIX_V6.unpack_from(head))
        return values.store_timestamp != 0 and values.store_timestamp <= latest

    def _start_index_5_4(self, clean: bool, max_physic_offset: int, checkpoint: Checkpoint) -> int:
        """Return the newest file whose first record passes the full check, else the oldest that it looks at."""
        files = self.mapped.mapped
        oldest = max(0, len(files) - self._settings.recover_max_num)
        for i in range(len(files) - 1, oldest, -1):
            if self._is_start_5_4(files[i], clean, max_physic_offset, checkpoint):
                return i
        self.limited = oldest > 0
        return oldest

    def _is_start_5_4(self, file: MappedFile, clean: bool, max_physic_offset: int, checkpoint: Checkpoint) -> bool:
        first = self.check.check(self.window(file), 0, file.size, crc=self._settings.check_crc)
        if not isinstance(first, Message) or first.store_timestamp == 0:
            return False
        safe = self._settings.index_safe
        if safe and first.store_timestamp > checkpoint.index_msg_timestamp:
            return False
        if clean:
            return first.physical_offset <= max_physic_offset
        return first.store_timestamp <= checkpoint.min_timestamp

    def scan(self, start: int, taker: Taker | None) -> int:
        """Read from file number ``start`` on, give each record to ``taker``, and return where reading ended."""
        for file in self.mapped.mapped[start:]:
            self.scanned.append(file.path)
            at = 0
            self.end = Place(file.path, at)
            for found in self._iter_found(file):
                if isinstance(found, Run):
                    self.last_record = file.start + at + found.last_start
                    at += found.size
                    if taker is not None:
                        taker.run(found)
                elif isinstance(found, Message):
                    self.last_record = file.start + at
                    at += found.total_size
                    if taker is not None:
                        taker.one(found)
                self.end = Place(file.path, at)
            if isinstance(found, Unreadable):
                if found.size > 0 and not self._settings.is_4_9:
                    self._log.warn(broker_log.HALF_MESSAGE)
                break
        return file.start + at

    def _iter_found(self, file: MappedFile) -> Iterator[Run | Message | EndOfFile | Unreadable]:
        """Yield the records of a file, sound ones in runs, and at last the reason why reading ended."""
        window, at = self.window(file), 0
        while True:
            for found in self.iter_at(window, at, file.size, crc=self._settings.check_crc):
                yield found
                if not isinstance(found, Run | Message):
                    return
                at += found.size if isinstance(found, Run) else found.total_size

    def iter_at(
        self, window: SegmentWindow, at: int, limit: int, *, crc: bool, body: bool = True
    ) -> Iterator[Run | Message | EndOfFile | Unreadable]:
        """Yield the records from a place on, in runs if possible; the last item may be the reason why reading ended."""
        batch = self.check.find_batch(window, at, limit) if self._in_runs else None
        for run in [None] if batch is None else batch.pieces(crc):
            if run is not None:
                yield run
                at += run.size
                continue
            found = self.check.check(window, at, limit, crc=crc, body=body)
            yield found
            if not isinstance(found, Message):
                return
            at += found.total_size

    def walk_unconfirmed(self, confirmed: int) -> None:
        """Read each record after ``confirmed``, as 5.x does with duplicationEnable to correct its queue offsets.

        Records are checked again here, and may end the start: a magic number other than version 1 raises. upstream:
        ``compensateForHA``, ``selectOneMessageByOffset``.
        """
        offset = 0 if confirmed == -1 else confirmed
        while (file := self.mapped.find(offset, first_if_none=offset == 0)) is not None:
            position = remainder(offset, self.mapped.file_size)
            if position + _START.size > file.wrote:
                self._log.warn(broker_log.POSITION_INVALID)
                return
            total_size, magic = _START.decode(self._files.read(file.path, position, _START.size))
            if position + total_size > file.wrote:
                self._log.warn(broker_log.POSITION_INVALID)
                return
            if file.start + position > offset:
                offset = file.start + position
                continue
            if magic == BLANK_MAGIC:
                offset += total_size
                continue
            if magic != MESSAGE_MAGIC_V1:
                self._log.warn(broker_log.LOAD_EXCEPTION)
                raise LoadRefused(
                    f"the record at {offset} is of a kind that duplicationEnable does not know", exception=True
                )
            if not isinstance(self.check.check(self.window(file), position, position + total_size), Message):
                return
            offset += total_size
