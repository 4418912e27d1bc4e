"""The whole records of a store, whether a broker accepts them or not: which a start loses, which are in no queue.

A record is whole if its sizes add up, the checksum of its body is right, it has its own physical offset and a store
time. Each magic number is tried, so damage does not hide the records after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import HOST_BITS
from rmqtool.formats.commit_log import PREFIXES, Message, decode_record
from rmqtool.formats.dispatch import has_queue_unit
from rmqtool.formats.java import crc31, parse_long
from rmqtool.formats.properties import MAX_PROPERTIES_LENGTH
from rmqtool.upstream.files import StoreView
from rmqtool.upstream.index_counts import find_starts
from rmqtool.upstream.queue_units import QueueUnits
from rmqtool.upstream.startup import MessageStore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

_START = layouts.RECORD_START
_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_LONGEST_PREFIX = layouts.MESSAGE_PREFIX_V6V6
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


def count_unreachable(store: MessageStore) -> int:
    """Return the number of whole messages that the broker serves and that have no entry in their queue."""
    units = QueueUnits(store.files, store.queues.queues.values())
    mapped = store.commit_log.mapped
    unreachable = 0
    for mapped_file in mapped.mapped:
        file = LogFile(mapped_file.path, mapped_file.start, mapped_file.size)
        end = min(file.size, mapped.max_offset - file.start)
        for at, until, data in iter_chunks(store.files, file, 0, end):
            within = units.within(file.start + at, file.start + until)
            for i in within.unmatched(data, _starts(data, until - at), file.start + at):
                message = read_whole_record(store.files, file, at, data, i)
                if message is not None and has_queue_unit(message.sys_flag) and not within.has(message):
                    unreachable += 1
    return unreachable
