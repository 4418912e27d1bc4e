"""The whole records of a store, whether a broker accepts them or not: which a start loses, which are in no queue.

A record is whole if its sizes add up, the checksum of its body is right, it has its own physical offset and a store
time. Each magic number is tried, so damage does not hide the records after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.bridges import is_bridge
from rmqtool.formats.codes import HOST_BITS
from rmqtool.formats.commit_log import PREFIXES, Message, decode_record
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.dispatch import has_queue_unit
from rmqtool.formats.java import crc31, parse_long
from rmqtool.formats.properties import MAX_PROPERTIES_LENGTH
from rmqtool.upstream.consume_queues import ConsumeQueue
from rmqtool.upstream.files import StoreView
from rmqtool.upstream.startup import MessageStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

# Entries that are read, or skipped, at once.
_BLOCK = 4096
_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_LONGEST_PREFIX = layouts.MESSAGE_PREFIX_V6V6


class _Block(NamedTuple):
    """Neighbouring entries in a file of a queue, and the lowest and highest offset that they point to."""

    queue_no: int
    path: str
    file_offset: int
    units: int
    low: int
    high: int


class QueueUnits:
    """The entries that the queues offer: those between their minimum and maximum offsets."""

    def __init__(self, files: StoreView, queues: Iterable[ConsumeQueue]) -> None:
        import numpy as np

        self._files = files
        self._dtype = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())
        self._queues = list(queues)
        self._blocks = [
            block for queue_no, queue in enumerate(self._queues) for block in self._iter_blocks(queue_no, queue)
        ]
        self._lows = np.array([block.low for block in self._blocks], dtype=np.int64)
        self._highs = np.array([block.high for block in self._blocks], dtype=np.int64)

    def _iter_blocks(self, queue_no: int, queue: ConsumeQueue) -> Iterable[_Block]:
        for file in queue.mapped.mapped:
            first = file.start // UNIT_SIZE
            begin = max(queue.min_offset - first, 0)
            end = min(queue.max_offset - first, file.wrote // UNIT_SIZE)
            for number in range(begin, end, _BLOCK):
                block = _Block(queue_no, file.path, number * UNIT_SIZE, min(_BLOCK, end - number), 0, 0)
                offsets = self._read(block)["physical_offset"]
                yield block._replace(low=int(offsets.min()), high=int(offsets.max()))

    def _read(self, block: _Block) -> Any:
        import numpy as np

        data = self._files.read_exactly(block.path, block.file_offset, block.units * UNIT_SIZE)
        return np.frombuffer(data, dtype=self._dtype)

    def within(self, begin: int, end: int) -> UnitsWithin:
        """Return the entries that point into a range of the log."""
        import numpy as np

        offsets, sizes, numbers = [], [], []
        for block_no in np.flatnonzero((self._lows < end) & (self._highs >= begin)):
            block = self._blocks[block_no]
            units = self._read(block)
            units = units[(units["physical_offset"] >= begin) & (units["physical_offset"] < end)]
            offsets.append(units["physical_offset"].astype(np.int64))
            sizes.append(units["size"].astype(np.int64))
            numbers.append(np.full(len(units), block.queue_no, dtype=np.int64))
        empty = np.empty(0, dtype=np.int64)
        return UnitsWithin(self._queues, *(np.concatenate([empty, *part]) for part in (offsets, sizes, numbers)))


class UnitsWithin:
    """The entries that point into one range of the log."""

    def __init__(self, queues: Sequence[ConsumeQueue], offsets: Numbers, sizes: Numbers, queue_nos: Numbers) -> None:
        import numpy as np

        order = np.argsort(offsets, kind="stable")
        self._queues = queues
        self._offsets = offsets[order]
        self._sizes = sizes[order]
        self._queue_nos = queue_nos[order]

    def has(self, message: Message) -> bool:
        """Return whether the message's own queue has an entry for it, at any queue offset."""
        import numpy as np

        first = int(np.searchsorted(self._offsets, message.physical_offset))
        last = int(np.searchsorted(self._offsets, message.physical_offset, side="right"))
        for i in range(first, last):
            queue = self._queues[int(self._queue_nos[i])]
            mine = queue.topic == message.topic and queue.queue_id == message.queue_id
            if mine and int(self._sizes[i]) == message.total_size:
                return True
        return False

    def unmatched(self, data: bytes, at: Numbers, physical_offset: int) -> list[int]:
        """Return the places of records that have no entry in their own queue.

        ``data`` is the log from ``physical_offset`` on. A record that continues after it counts as unmatched.
        """
        import numpy as np

        units = np.searchsorted(self._offsets, at + physical_offset)
        inside = units < len(self._offsets)
        inside[inside] = self._offsets[units[inside]] == at[inside] + physical_offset
        rest = np.ones(len(at), dtype=bool)
        candidates = np.flatnonzero(inside)
        while len(candidates):
            # The columns end at the first candidate that is not a whole record.
            matches = self._matches(data, at[candidates], units[candidates])
            rest[candidates[: len(matches)][matches]] = False
            candidates = candidates[len(matches) + 1 :]
        return [int(start) for start in at[rest]]

    def _matches(self, data: bytes, at: Numbers, units: Numbers) -> Flags:
        """Compare records with the entries that point to them: size, queue and topic."""
        import numpy as np

        from rmqtool.columns.records import decode_records

        records, _ = decode_records(data, at)
        units = units[: len(records)]
        queues = [self._queues[number] for number in self._queue_nos[units].tolist()]
        topics = records.topics
        matches: Flags = records.column("total_size") == self._sizes[units]
        matches &= records.column("queue_id") == np.array([queue.queue_id for queue in queues], np.int64)
        names = [topics.values[code] for code in topics.codes.tolist()]
        matches &= np.array([queue.topic == name for queue, name in zip(queues, names, strict=True)], np.bool_)
        return matches


_START = layouts.RECORD_START
_MAGIC_AT = _START.field("magic").offset
_CHUNK = 16 << 20
# Topic and properties, each with its length.
_MOST_BEHIND_BODY = 2 * (2 + MAX_PROPERTIES_LENGTH)


class LogFile(NamedTuple):
    """A file whose name is a number, like that of a segment."""

    path: str
    start: int
    size: int


class LostMessages(NamedTuple):
    """Whole messages of one topic in one file that a start removes.

    ``leftover`` messages are after the end of the log and older than its last message: an earlier start cut them off.
    """

    path: str
    topic: str
    messages: int
    first_store_timestamp: int
    last_store_timestamp: int
    leftover: bool = False


def find_log_files(files: StoreView, directories: Iterable[str]) -> list[LogFile]:
    """Return the files with names of segments."""
    found = []
    for directory in directories:
        for entry in files.entries(directory):
            start = parse_long(entry.name)
            if start is not None and not entry.is_directory:
                found.append(LogFile(f"{directory}/{entry.name}", start, entry.size))
    return found


def iter_whole_records(files: StoreView, file: LogFile, begin: int, end: int) -> Iterator[Message]:
    """Yield the whole records of a file that begin between two file offsets."""
    for at, until, data in iter_chunks(files, file, begin, end):
        for i in _starts(data, until - at).tolist():
            if message := read_whole_record(files, file, at, data, i):
                yield message


def _starts(data: bytes, end: int) -> Numbers:
    """Return where a record could begin before ``end``."""
    import numpy as np

    from rmqtool.columns.starts import find_starts

    found = find_starts(np.frombuffer(data, np.uint8))
    return found[: int(np.searchsorted(found, end))]


def iter_chunks(files: StoreView, file: LogFile, begin: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield (start, end, bytes) of pieces of a file, with enough bytes for the head of a record at the end.

    Holes are left out because they have no records.
    """
    done = begin
    for extent in files.iter_data(file.path, begin, min(end, file.size)):
        # A record can begin in a hole: the first byte of its size is usually zero.
        first = max(done, extent.file_offset - _MAGIC_AT)
        for at in range(first, extent.end, _CHUNK):
            until = min(at + _CHUNK, extent.end)
            yield at, until, files.read(file.path, at, min(until - at + _START.size, file.size - at))
        done = extent.end


def read_whole_record(files: StoreView, file: LogFile, at: int, data: bytes, i: int) -> Message | None:
    """Return the record at ``i`` in the bytes that were read from ``at``, if it is whole."""
    left = file.size - at - i
    if left < _PREFIX.size:
        return None
    if i + _PREFIX.size > len(data):
        at, i, data = at + i, 0, files.read(file.path, at + i, min(left, _PREFIX.size))
    head = layouts.MessagePrefix._make(_PREFIX.unpack_from(data, i))
    if head.physical_offset != file.start + at + i or head.total_size > left:
        return None
    if i + head.total_size > len(data):
        prefix = PREFIXES[head.sys_flag & HOST_BITS]
        if left < prefix.size:
            return None
        body_length = prefix.decode(files.read(file.path, at + i, prefix.size)).body_length
        if head.total_size - prefix.size - body_length > _MOST_BEHIND_BODY:
            return None
        data, i = files.read(file.path, at + i, head.total_size), 0
    message = decode_record(data, i)
    if not isinstance(message, Message) or message.store_timestamp == 0:
        return None
    return message if crc31(message.raw_body) == message.body_crc else None


def find_lost(before: StoreView, log_files: Iterable[LogFile], store: MessageStore, loaded: bool) -> list[LostMessages]:
    """Return the whole messages that are lost: their file is deleted, or they are outside of what the broker serves.

    A broker that does not start serves nothing, and loses only what it deletes.
    """
    lost: dict[tuple[str, str], LostMessages] = {}
    low, high = store.commit_log.mapped.min_offset, store.commit_log.mapped.max_offset
    for file in log_files:
        spans = [(0, file.size)]
        if store.files.is_file(file.path):
            spans = [(0, low - file.start), (max(0, high - file.start), file.size)] if loaded else []
        for begin, end in spans:
            for message in iter_whole_records(before, file, begin, end):
                key = file.path, message.topic
                if not is_bridge(message):
                    lost[key] = _with(lost.get(key), file.path, message)
    return sorted(_told_apart(lost.values(), before, store))


def _told_apart(lost: Collection[LostMessages], before: StoreView, store: MessageStore) -> Iterator[LostMessages]:
    """Yield the messages, marked as leftovers if they were cut off before the log's last message was stored."""
    last_kept = _last_kept_timestamp(before, store)
    newest: dict[str, int] = {}
    for part in lost:
        newest[part.path] = max(newest.get(part.path, 0), part.last_store_timestamp)
    for part in lost:
        older = last_kept is not None and newest[part.path] < last_kept
        yield part._replace(leftover=older and store.files.is_file(part.path))


def _last_kept_timestamp(before: StoreView, store: MessageStore) -> int | None:
    log = store.commit_log
    file = None if log.last_record is None else log.mapped.find(log.last_record)
    if log.last_record is None or file is None:
        return None
    head = before.read(file.path, log.last_record - file.start, _LONGEST_PREFIX.size).ljust(_LONGEST_PREFIX.size, b"\0")
    sys_flag = _PREFIX.decode(head).sys_flag
    return PREFIXES[sys_flag & HOST_BITS].decode(head).store_timestamp


def _with(known: LostMessages | None, path: str, message: Message) -> LostMessages:
    time = message.store_timestamp
    if known is None:
        return LostMessages(path, message.topic, 1, time, time)
    first, last = min(known.first_store_timestamp, time), max(known.last_store_timestamp, time)
    return LostMessages(path, message.topic, known.messages + 1, first, last)


class Unreached(NamedTuple):
    """The whole messages of a queue that a broker serves and that have no entry there: how many, and the last one."""

    topic: str
    queue_id: int
    messages: int
    last_queue_offset: int
    last_physical_offset: int


def find_unreached(store: MessageStore) -> list[Unreached]:
    """Return the queues with whole messages that the broker serves and that have no entry in their queue."""
    units = QueueUnits(store.files, store.queues.queues.values())
    mapped = store.commit_log.mapped
    found: dict[tuple[str, int], Unreached] = {}
    for mapped_file in mapped.mapped:
        file = LogFile(mapped_file.path, mapped_file.start, mapped_file.size)
        end = min(file.size, mapped.max_offset - file.start)
        for at, until, data in iter_chunks(store.files, file, 0, end):
            within = units.within(file.start + at, file.start + until)
            for i in within.unmatched(data, _starts(data, until - at), file.start + at):
                message = read_whole_record(store.files, file, at, data, i)
                if message is not None and has_queue_unit(message.sys_flag) and not within.has(message):
                    queue = message.topic, message.queue_id
                    count = found[queue].messages + 1 if queue in found else 1
                    found[queue] = Unreached(*queue, count, message.queue_offset, message.physical_offset)
    return sorted(found.values(), key=lambda one: (-one.messages, one.topic, one.queue_id))
