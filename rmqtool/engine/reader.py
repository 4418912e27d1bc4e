"""Gets messages of plain and compacted topics by queue offset, key and physical offset; bounds; offsets by time.

Compacted topics have queues and logs of their own, with the last message of each key. Tags do not filter there, and an
offset before the first message gets the first message. upstream: CompactionStore, CompactionLog.getMessage,
SparseConsumeQueue.

Queues in RocksDB are read row by row; ``row_queues`` writes them.

``StoreView`` reads a store without its lock, as it is when the view is opened. A store with DLedger's log, which the
engine cannot write, is read this way. upstream: the reading half of DefaultMessageStore, RocksDBConsumeQueueTable.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, takewhile
from typing import NamedTuple, Protocol, Self, overload

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.get import (
    GetMessageResult,
    GetMessageStatus,
    Limits,
    LogWindow,
    MessageFilter,
    QueueView,
    ReadLog,
    Unit,
    batch_units,
    get_messages,
    get_together,
    simple_units,
)
from rmqtool.engine.message import QueueKey
from rmqtool.files.filesystem import ReadableFileSystem, join
from rmqtool.formats import index, layouts, paths
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, Message, decode_record
from rmqtool.formats.consume_queue import (
    UNIT_SIZE,
    ConsumeQueueExtUnit,
    decode_ext_unit,
    ext_offset,
    is_batch_written,
    is_filler,
)
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.paths import INDEX, FileKind, segment_directory
from rmqtool.log.end import find_log_end
from rmqtool.store.config_files import read_compacted_topics
from rmqtool.store.index_files import Geometry, is_time_matched, open_index, select_offsets
from rmqtool.store.listing import QueueId, iter_segments
from rmqtool.store.open import Store
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.store.rocksdb import (
    Database,
    QueueRow,
    has_database_queues,
    iter_queue_rows,
    open_database,
    read_bounds,
    read_queue_row,
)
from rmqtool.store.segments import OpenFiles, Segment, SegmentQueue
from rmqtool.store.time_search import (
    Boundary,
    FileUnits,
    QueueFile,
    StoreTimes,
    read_batch_files,
    search_4_9,
    search_5,
    search_batches,
    search_rows,
)

_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT


class _CompactedLog(NamedTuple):
    """The log of one compacted queue, as a ``ReadLog``."""

    segments: SegmentQueue
    committed_offset: int
    segment_size: int
    min_offset: int

    def read(self, physical_offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at an offset, from one file."""
        return self.segments.read(physical_offset, length)


def _segments_of(files: ReadableFileSystem, kind: FileKind, key: QueueKey, opened: OpenFiles) -> SegmentQueue:
    directory = segment_directory(kind, *key)
    return SegmentQueue(iter_segments(files, directory) if files.exists(directory) else (), files=opened)


class CompactedQueues:
    """The queues of compacted topics, and gets from them."""

    def __init__(self, files: ReadableFileSystem, config: StoreConfig, limits: Limits) -> None:
        self._files = files
        self._is_enabled = config.enable_compaction and config.version is not Version.V4_9
        self._limits = limits
        self._open = OpenFiles()

    @cached_property
    def _topics(self) -> frozenset[str]:
        return read_compacted_topics(self._files) if self._is_enabled else frozenset()

    def holds(self, topic: str) -> bool:
        """Return whether the queues of a topic are compacted."""
        return topic in self._topics

    def get(self, key: QueueKey, offset: int, most: int) -> GetMessageResult:
        """Return up to ``most`` messages from a queue offset on.

        If the message at the offset was compacted away, the answer begins with the next one that is left.
        """
        files = [
            self._units(segment) for segment in _segments_of(self._files, FileKind.COMPACTION_QUEUE, key, self._open)
        ]
        files = [units for units in files if units]
        log = _segments_of(self._files, FileKind.COMPACTION_LOG, key, self._open)
        if not log and not files:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low = files[0][0].queue_offset if files else 0
        high = files[-1][-1].queue_offset + 1 if files else 0
        if not files:
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset == high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            # upstream: for a queue that begins at 0, the consumer is sent back to the beginning.
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high if low else 0, low, high)
        result = GetMessageResult(GetMessageStatus.FOUND, offset, low, high)
        window = LogWindow(_CompactedLog(log, log.end_offset, log.segment_size, log.min_offset), self._open)
        get_messages(lambda begin: _from(files, begin), window, self._limits, result, most, None)
        return result

    def close(self) -> None:
        """Close the files; a later get opens them again."""
        self._open.close()

    def _units(self, segment: Segment) -> list[Unit]:
        """Return the written entries of one file of a compacted queue."""
        data = self._open.open(segment).pread(segment.size, 0)
        return [
            Unit(unit.msg_base_offset, unit.physical_offset, unit.size, unit.tags_code)
            for unit in takewhile(is_batch_written, _UNIT.iter_decode(data))
        ]


def _from(files: list[list[Unit]], begin: int) -> Iterator[Unit] | None:
    """Return the entries from an offset to the end of its file; None after the last entry."""
    for units in files:
        if units[-1].queue_offset >= begin:
            return (unit for unit in units if unit.queue_offset >= begin)
    return None


class DatabaseQueue:
    """One queue in RocksDB. It may still have rows of messages before ``log_min``, the beginning of the log."""

    def __init__(self, database: Database, queue: QueueId, bounds: tuple[int, int], log_min: int) -> None:
        self.min_offset, self.max_offset = bounds
        self._database = database
        self._queue = queue
        self._log_min = log_min

    def units(self, begin: int, most: int) -> Iterator[Unit] | None:
        """Return up to ``most`` entries from an offset on, or None without any.

        A get from files may examine more entries than it returns; upstream's get from RocksDB examines ``most`` rows.
        """
        rows = islice(iter_queue_rows(self._database, self._queue, begin), most)
        first = next(rows, None)
        return None if first is None else map(_unit, chain((first,), rows))

    def offset_by_time(self, timestamp: int, boundary: Boundary) -> int:
        """Return the queue offset for a store time (ms), among rows with records that are still in the log; else 0."""
        rows = iter_queue_rows(self._database, self._queue, self.min_offset)
        first = next((row.queue_offset for row in rows if row.value.physical_offset >= self._log_min), None)
        if first is None:
            return 0
        return first + search_rows(_Times(self._database, self._queue, first, self.max_offset), timestamp, boundary)


class _Times(Sequence[int]):
    """The store times of a range of a queue, read one by one."""

    def __init__(self, database: Database, queue: QueueId, begin: int, end: int) -> None:
        self._database = database
        self._queue = queue
        self._offsets = range(begin, end)

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...

    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        if isinstance(at, slice):
            return [self[one] for one in range(len(self))[at]]
        row = read_queue_row(self._database, self._queue, self._offsets[at])
        # A missing row counts as older than all others, so that a search goes on after it, as upstream.
        return -1 if row is None else row.store_time


def _unit(row: QueueRow) -> Unit:
    value = row.value
    return Unit(row.queue_offset, value.physical_offset, value.size, value.tags_code)


class LiveDatabaseQueues(Mapping[QueueKey, DatabaseQueue]):
    """The queues in RocksDB of a store that is open for writing."""

    def __init__(self, queues: Mapping[QueueKey, QueueView], database: Database, log: ReadLog) -> None:
        self._queues = queues
        self._database = database
        self._log = log
        # By queue: where the log began at the last look, and the first queue offset with a message in the log then.
        self._lows: dict[QueueKey, tuple[int, int]] = {}

    def __getitem__(self, key: QueueKey) -> DatabaseQueue:
        log_min, high = self._log.min_offset, self._queues[key].max_offset
        known = self._lows.get(key)
        if known is None or known[0] != log_min:
            known = self._lows[key] = log_min, self._find_low(QueueId(*key), log_min, high)
        return DatabaseQueue(self._database, QueueId(*key), (min(known[1], high), high), log_min)

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._queues)

    def __len__(self) -> int:
        return len(self._queues)

    def _find_low(self, queue: QueueId, log_min: int, high: int) -> int:
        """Return the first queue offset with a message at ``log_min`` of the log or later; ``high`` without one."""
        rows = iter_queue_rows(self._database, queue)
        return next((row.queue_offset for row in rows if row.value.physical_offset >= log_min), high)


def open_queues(database: Database, log_min: int) -> dict[QueueKey, DatabaseQueue]:
    """Return the queues of a database by topic and queue id; ``log_min`` is where the log begins."""
    return {queue: DatabaseQueue(database, queue, bounds, log_min) for queue, bounds in read_bounds(database).items()}


# Makes a named tuple without a call of Python code.
_new = tuple.__new__
_QUEUE_UNIT = layouts.CONSUME_QUEUE_UNIT
# How often the index is searched again if none of the found records can be read. As upstream.
_ROUNDS = 3
# The largest entry of an extension: its size is a signed short.
_EXT_MOST = 32 << 10
# Entries whose records are within this range of the log are read together.
_SPAN = 1 << 20


class Bounds(NamedTuple):
    """The first queue offset with a message, and the queue offset that the next message gets."""

    min_offset: int
    max_offset: int


class SomeQueues(Protocol):
    """The queues of a store, by the kind of their storage."""

    @property
    def simple(self) -> Mapping[QueueKey, QueueView]:
        """Simple queues, in files."""

    @property
    def batch(self) -> Mapping[QueueKey, QueueView]:
        """Batch queues, in files."""

    @property
    def database(self) -> Mapping[QueueKey, DatabaseQueue]:
        """Queues in RocksDB."""


class SomeIndex(Protocol):
    """The index files of a store."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the files, oldest first."""

    @property
    def geometry(self) -> Geometry:
        """The slots and entries that a file probably has: a hint for opening it."""

    def newest_of(self, key_hash: int) -> tuple[str, int] | None:
        """Write pending entries to the growing file; return its name, and the newest entry of the hash's slot there.

        None if the slots in all files are right.
        """


class _Known(NamedTuple):
    """The files of a queue as last listed, for a log that began at ``log_min``.

    ``min_offset`` was the queue's beginning then. ``room`` is the queue offset after the last entry that fits into the
    files; LONG_MAX for a batch queue.
    """

    files: ConsumeQueueFiles | BatchQueueFiles
    log_min: int
    min_offset: int
    room: int


class StoreReader:
    """Reads what is dispatched. Its methods may be called from several threads."""

    def __init__(
        self,
        files: ReadableFileSystem,
        config: StoreConfig,
        log: ReadLog,
        queues: SomeQueues,
        index_files: SomeIndex,
    ) -> None:
        self._files = files
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index_files
        self._limits = Limits(config)
        self._open = OpenFiles()
        # Separate from the log's own files, which close when a segment is removed.
        self._log_files = OpenFiles()
        self._lock = threading.RLock()
        self._known: dict[QueueKey, _Known] = {}
        self._times_forgotten = 0
        self._ext: dict[QueueKey, SegmentQueue] = {}
        self._compacted = CompactedQueues(files, config, self._limits)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most: int = 32,
        message_filter: MessageFilter | None = None,
        *,
        waits: bool = True,
    ) -> GetMessageResult:
        """Return up to ``most`` messages from a queue offset on, with a broker's status and next offset.

        Without ``waits`` raise NotInMemory where the disk would be waited for.
        """
        with self._lock:
            if self._compacted.holds(topic):
                result = self._compacted.get((topic, queue_id), offset, most)
                # Messages that are not compacted yet are in the plain queue. upstream: its dispatch compacts them at
                # once.
                if offset < result.max_offset or result.max_offset >= self.bounds(topic, queue_id).max_offset:
                    return result
            return self._get((topic, queue_id), offset, most, message_filter, waits)

    def _get(
        self, key: QueueKey, offset: int, most: int, message_filter: MessageFilter | None, waits: bool
    ) -> GetMessageResult:
        """Get from a plain queue, with one read of the log where that is possible."""
        queue = self._queues.simple.get(key)
        in_files = queue is not None and message_filter is None and not self._queues.database
        if in_files and queue is not None and offset < (high := queue.max_offset):
            known = self._known_files(key, high)
            if offset >= known.min_offset and isinstance(known.files, ConsumeQueueFiles):
                result = GetMessageResult(GetMessageStatus.FOUND, offset, known.min_offset, high)
                if get_together(known.files, self._log, self._log_files, self._limits, result, most, waits=waits):
                    return result
        return self._get_one_by_one(key, offset, most, message_filter, waits)

    def _get_one_by_one(
        self, key: QueueKey, offset: int, most: int, message_filter: MessageFilter | None, waits: bool
    ) -> GetMessageResult:
        """Return the answer to any get: the status by the bounds of the queue, then the records entry by entry."""
        topic, queue_id = key
        low, high = self.bounds(topic, queue_id)
        status, following = _place(offset, low, high)
        if not self._limits.corrects_offsets and status is not GetMessageStatus.OFFSET_OVERFLOW_ONE:
            following = offset
        result = GetMessageResult(status, following, low, high)
        if status is not GetMessageStatus.FOUND:
            return result
        result.next_begin_offset = offset
        window = LogWindow(self._log, self._log_files, waits=waits)
        stored = self._queues.database.get(key)
        if stored is not None:
            get_messages(lambda begin: stored.units(begin, most), window, self._limits, result, most, message_filter)
            return result
        known = self._known_files(key, high)
        if isinstance(known.files, BatchQueueFiles):
            units = batch_units(known.files)
        else:
            if known.files.segments.find(offset * UNIT_SIZE) is None:
                per_file = known.files.segments.segment_size // UNIT_SIZE
                result.status = GetMessageStatus.OFFSET_FOUND_NULL
                if self._limits.corrects_offsets:
                    result.next_begin_offset = offset + per_file - offset % per_file
                return result
            units = simple_units(known.files, high, lambda code: self._ext_tags_code(key, code), waits=waits)
        get_messages(units, window, self._limits, result, most, message_filter)
        return result

    def bounds(self, topic: str, queue_id: int) -> Bounds:
        """Return the bounds of a queue; 0 and 0 of a missing or empty one, or -1 and 0 if the topic has batches."""
        key = topic, queue_id
        stored = self._queues.database.get(key)
        if stored is not None:
            return Bounds(stored.min_offset, stored.max_offset)
        queue = self._queues.simple.get(key) or self._queues.batch.get(key)
        if queue is None or not queue.max_offset:
            # upstream: the minimum of an empty batch queue is -1.
            return Bounds(-1 if any(batch[0] == topic for batch in self._queues.batch) else 0, 0)
        high = queue.max_offset
        return _new(Bounds, (self._known_apart(key, high).min_offset, high))

    def forget(self) -> None:
        """Forget which files exist, because some were removed."""
        with self._lock:
            self._times_forgotten += 1
            self._known.clear()
            self._ext.clear()
            self._open.close()
            self._log_files.close()

    def close(self) -> None:
        """Close the files of queues, log and compacted topics."""
        self._open.close()
        self._log_files.close()
        self._compacted.close()

    def _known_files(self, key: QueueKey, max_offset: int) -> _Known:
        """Return the files of a queue; they are listed again if the log begins elsewhere or the queue outgrew them."""
        known = self._known.get(key)
        log_min = self._log.min_offset
        if known is None or known.log_min != log_min or max_offset > known.room:
            return self._know(key, self._list_files(key, log_min, max_offset, self._open))
        if known.room == LONG_MAX:
            # A batch queue: read its entries again, there may be new ones.
            return known._replace(files=BatchQueueFiles(known.files.queue, known.files.segments))
        return known

    def _know(self, key: QueueKey, listed: _Known) -> _Known:
        known = self._known.get(key)
        if known is not None and known.log_min != listed.log_min:
            self._log_files.close()
        self._known[key] = listed
        return listed

    def _known_apart(self, key: QueueKey, max_offset: int) -> _Known:
        """Return the same; while the files are listed, which may wait for the disk, gets of other threads go on."""
        times, log_min, known = self._times_forgotten, self._log.min_offset, self._known.get(key)
        if known is not None and known.log_min == log_min and max_offset <= known.room:
            return known
        with OpenFiles() as opened:
            listed = self._list_files(key, log_min, max_offset, opened)
        files = listed.files
        shared = SegmentQueue(files.segments, files.segments.segment_size, self._open)
        listed = listed._replace(files=type(files)(files.queue, shared))
        with self._lock:
            return self._know(key, listed) if times == self._times_forgotten else listed

    def _list_files(self, key: QueueKey, log_min: int, max_offset: int, opened: OpenFiles) -> _Known:
        """List the files of a queue, and find its first offset with a message that is still in the log."""
        if key not in self._queues.simple:
            segments = _segments_of(self._files, FileKind.BATCH_CONSUME_QUEUE, key, opened)
            batches = BatchQueueFiles(QueueId(*key), segments)
            # List them each time: the place of an entry does not tell its queue offset.
            return _Known(batches, log_min, batches.min_offset(log_min), LONG_MAX)
        segments = _segments_of(self._files, FileKind.CONSUME_QUEUE, key, opened)
        files = ConsumeQueueFiles(QueueId(*key), segments)
        low = files.min_offset(log_min, self._config.version)
        # upstream: fillers for removed messages count, and a consumer that begins there misses the messages after them.
        while low < max_offset and (unit := files.read_unit(low)) is not None and is_filler(unit):
            low += 1
        return _Known(files, log_min, low, segments.end_offset // UNIT_SIZE)

    def _ext_tags_code(self, key: QueueKey, code: int) -> int | None:
        """Return the tags code at an address in the extension, or None if there is no valid entry."""
        segments = self._ext.get(key)
        if segments is None:
            segments = self._ext[key] = _segments_of(self._files, FileKind.CONSUME_QUEUE_EXT, key, self._open)
        found = decode_ext_unit(segments.read(ext_offset(code), _EXT_MOST))
        return found.tags_code if isinstance(found, ConsumeQueueExtUnit) else None

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset for a store time (ms), by the rules of the store's version; 0 in an empty queue.

        ``boundary`` chooses among messages of one time; 4.9 ignores it. Gets go on meanwhile, in other threads.
        """
        key = topic, queue_id
        low, high = self.bounds(topic, queue_id)
        if not high:
            return 0
        stored = self._queues.database.get(key)
        if stored is not None:
            return stored.offset_by_time(timestamp, boundary)
        files = self._known_apart(key, high).files
        with OpenFiles() as opened:
            queue = SegmentQueue(files.segments, files.segments.segment_size, opened)
            log = SegmentQueue(self._log.segments, self._log.segment_size, opened)
            times = StoreTimes(log, self._log.committed_offset)
            if isinstance(files, BatchQueueFiles):
                found = search_batches([one for one in read_batch_files(queue) if one], timestamp, boundary)
            elif self._config.version is Version.V4_9:
                # 4.9 does not limit the answer to the bounds.
                return search_4_9(times, self._queue_files(queue, high), low, timestamp)
            else:
                found = search_5(times, self._queue_files(queue, high), low, timestamp, boundary)
        return min(max(found, low), high)

    def _queue_files(self, queue: SegmentQueue, max_offset: int) -> list[QueueFile]:
        """Return the entries of a queue by file, with the time (ms) of each file's last change, which searches use."""
        found: list[QueueFile] = []
        for segment in queue:
            first = segment.base_offset // UNIT_SIZE
            count = min(segment.size // UNIT_SIZE, max(max_offset - first, 0))
            if not count and found:
                break
            units = FileUnits(queue, segment, count)
            found.append(QueueFile(first, self._files.stat(segment.path).mtime_ns // 1_000_000, units))
        return found

    def message_at(self, physical_offset: int, *, waits: bool = True) -> Message | None:
        """Return the record at a physical offset, or None if there is no decodable record.

        Without ``waits`` raise NotInMemory where the disk would be waited for.
        """
        with self._lock:
            return self._message_in(LogWindow(self._log, self._log_files, waits=waits), physical_offset)

    def _message_in(self, window: LogWindow, physical_offset: int) -> Message | None:
        head = window.read(physical_offset, layouts.RECORD_START.size)
        if head is None:
            return None
        size = layouts.RECORD_START.decode(head).total_size
        if not MIN_RECORD_SIZE <= size <= self._log.segment_size:
            return None
        found = decode_record(window.read(physical_offset, size) or b"")
        return found if isinstance(found, Message) else None

    def messages_of(self, units: Sequence[ConsumeQueueUnit]) -> list[Message | None]:
        """Return the record of each entry, None where it is not decodable; neighbouring records are read together."""
        found: list[Message | None] = []
        at = 0
        while at < len(units):
            start, end = units[at].physical_offset, at + 1
            while end < len(units) and start < units[end].physical_offset < start + _SPAN:
                end += 1
            data = self._log.read(start, units[end - 1].physical_offset + units[end - 1].size - start)
            for unit in units[at:end]:
                record = decode_record(data, unit.physical_offset - start)
                # A read ends at the end of a segment, so later records are read one by one.
                found.append(record if isinstance(record, Message) else self.message_at(unit.physical_offset))
            at = end
        return found

    def query(self, topic: str, key: str, most: int, begin: int, end: int) -> list[Message]:
        """Return up to ``most`` messages with a key, stored from ``begin`` to ``end`` (ms), in the order of the log.

        ``maxMsgsNumBatch`` limits ``most``. Only hashes are compared; the client drops messages with another key. Gets
        go on meanwhile, in other threads.
        upstream: queryMessage.
        """
        hashed = index.key_hash(index.key_text(topic, key))
        most = min(most, self._config.max_msgs_num_batch)
        last = end
        with OpenFiles() as opened:
            window = LogWindow(self._log, opened)
            for _ in range(_ROUNDS):
                offsets = sorted(islice(self._hits(hashed, begin, last), max(most, 0)))
                found = [one for one in (self._message_in(window, offset) for offset in offsets) if one is not None]
                if found:
                    return found
                first = self._message_in(window, offsets[0]) if offsets else None
                if first is None or first.store_timestamp < begin:
                    break
                last = first.store_timestamp
        return []

    def _hits(self, hashed: int, begin: int, end: int) -> Iterator[int]:
        """Yield the physical offsets that the index has for a hash, newest file first."""
        growing = self._index.newest_of(hashed)
        with ExitStack() as stack:
            for name in reversed(self._index.names):
                file = stack.enter_context(self._files.open_read(join(INDEX, name)))
                opened = open_index(file, (self._index.geometry,))
                if opened is None:
                    continue
                if is_time_matched(opened, begin, end):
                    newest = growing[1] if growing is not None and growing[0] == name else None
                    links = select_offsets(opened, hashed, begin, end, newest)
                    yield from (one for one in links if not isinstance(one, Flaw))
                if opened.header.begin_timestamp < begin:
                    # Older files end before this one begins.
                    return


def _place(offset: int, low: int, high: int) -> tuple[GetMessageStatus, int]:
    """Return the status of an offset by the bounds of its queue, and the offset to continue from."""
    if not high:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < low:
        return GetMessageStatus.OFFSET_TOO_SMALL, low
    if offset == high:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
    if offset > high:
        return GetMessageStatus.OFFSET_OVERFLOW_BADLY, high
    return GetMessageStatus.FOUND, offset


class _Log(NamedTuple):
    """The log as it was when the view was opened; later bytes are not read."""

    segments: SegmentQueue
    committed_offset: int

    @property
    def segment_size(self) -> int:
        return self.segments.segment_size

    @property
    def min_offset(self) -> int:
        return self.segments.min_offset

    def read(self, physical_offset: int, length: int) -> bytes:
        return self.segments.read(physical_offset, min(length, self.committed_offset - physical_offset))


class _Queues(NamedTuple):
    """The queues as they were when the view was opened."""

    simple: Mapping[QueueKey, ConsumeQueueFiles]
    batch: Mapping[QueueKey, BatchQueueFiles]
    database: Mapping[QueueKey, DatabaseQueue]


@dataclass
class _Index:
    """The index files as they were when the view was opened."""

    names: list[str]
    geometry: Geometry

    def newest_of(self, key_hash: int) -> None:
        """Return None: everything is in the files already."""


class StoreView:
    """A view of a store that is open for reading; closing the view leaves the store open.

    Raises ``OptionalMissing`` if queues are in RocksDB and the extra for it is not installed.
    """

    def __init__(self, store: Store) -> None:
        self._stack = ExitStack()
        listing = store.listing
        simple: dict[QueueKey, ConsumeQueueFiles] = {
            key: ConsumeQueueFiles(key, found) for key, found in listing.queues(FileKind.CONSUME_QUEUE).items()
        }
        batch: dict[QueueKey, BatchQueueFiles] = {
            key: BatchQueueFiles(key, found) for key, found in listing.queues(FileKind.BATCH_CONSUME_QUEUE).items()
        }
        end = find_log_end(store.commit_log, simple.values(), dledger=store.is_dledger)
        log = _Log(store.commit_log, end.physical_offset)
        names = sorted(file.what.name or "" for file in listing.of_kind(FileKind.INDEX))
        geometry = Geometry(store.config.max_hash_slot_num, store.config.max_index_num)
        database: dict[QueueKey, DatabaseQueue] = {}
        if has_database_queues(store):
            opened = self._stack.enter_context(open_database(store, paths.CONSUME_QUEUE))
            # A broker that writes both kinds reads the files.
            found = open_queues(opened, log.min_offset)
            database = {key: queue for key, queue in found.items() if key not in simple}
        queues = _Queues(simple, batch, database)
        self.reader = StoreReader(store.filesystem, store.config, log, queues, _Index(names, geometry))
        self._stack.callback(self.reader.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files that the view opened; the store stays open."""
        self._stack.close()
