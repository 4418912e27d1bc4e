"""Writes consume queues: simple ones with their extension, and batch queues.

Entries are gathered in memory during a pass of the dispatcher and written together. Dispatching a record again changes
nothing. upstream: ConsumeQueue.putMessagePositionInfo, ConsumeQueueExt.put, BatchConsumeQueue.

All these files can be built again from the log. So their space is not reserved: a new file is a hole that fills up.
``DerivedFiles`` remembers which pages were written and which directories got a new name until they are forced.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from rmqtool.engine.commit_log import PAGE_SIZE
from rmqtool.engine.message import QueueKey
from rmqtool.engine.row_queues import QueueRows, RowFiles
from rmqtool.files.filesystem import WritableFile, WritableFileSystem, join, new_file, path_parts, split
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.formats import layouts
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.consume_queue import (
    BATCH_UNIT_SIZE,
    EXT_END_MARK,
    EXT_END_ROOM,
    FILLER,
    FILLER_UNIT,
    LAST_OFFSET,
    UNIT_SIZE,
    WIDEST_GAP,
    ConsumeQueueExtUnit,
    encode_ext_unit,
    ext_address,
    ext_unit_size,
)
from rmqtool.formats.layouts import BatchConsumeQueueUnit, ConsumeQueueUnit
from rmqtool.formats.paths import FileKind, segment_directory, segment_name

if TYPE_CHECKING:
    from rmqtool.engine.reader import DatabaseQueue

# A store may have more queues than a process may have open files.
_OPEN_FILES = 256


class DerivedFiles:
    """The files of queues: keeps the recent ones open, and records what is not durable yet."""

    def __init__(self, files: WritableFileSystem) -> None:
        self._files = files
        self._open: OrderedDict[str, WritableFile] = OrderedDict()
        # path → the lowest and the highest file offset written since the last sync
        self._dirty: dict[str, tuple[int, int]] = {}
        self._new_names: set[str] = set()
        self._known_directories: set[str] = {""}
        self._syncing: str | None = None
        self._lock = threading.RLock()

    @property
    def filesystem(self) -> WritableFileSystem:
        """Where the files are."""
        return self._files

    def create(self, path: str, size: int) -> None:
        """Create a file of ``size`` zeros, and its directories; durable after the next ``flush``."""
        directory, _ = split(path)
        with self._lock:
            self._make_directories(directory)
            with new_file(self._files, path) as file:
                file.truncate(size)
            self._keep(path, file)
            self._dirty.setdefault(path, (0, 0))
            self._new_names.add(directory)

    def write(self, path: str, data: bytes, file_offset: int) -> None:
        """Write to an existing file, and note the range for the next ``flush``."""
        with self._lock:
            low, high = self._dirty.get(path, (file_offset, file_offset))
            self._dirty[path] = (min(low, file_offset), max(high, file_offset + len(data)))
            self._opened(path).pwrite(data, file_offset)

    def read(self, path: str, length: int, file_offset: int) -> bytes:
        """Read from an existing file, fewer bytes at its end."""
        with self._lock:
            return self._opened(path).pread(length, file_offset)

    def exists(self, path: str) -> bool:
        """Return whether a file exists; an open one is not looked for on disk."""
        with self._lock:
            return path in self._open or self._files.exists(path)

    def unlink(self, path: str) -> None:
        """Remove a file; its directory is forced with the next ``flush``."""
        with self._lock:
            file = self._open.pop(path, None)
            if file is not None:
                file.close()
            self._dirty.pop(path, None)
            self._files.unlink(path)
            self._new_names.add(split(path)[0])

    def flush(self, least_pages: int = 0) -> None:
        """Force the files whose dirty range crosses at least ``least_pages`` borders of pages, and all new names.

        With 0 all dirty files are forced.
        """
        with self._lock:
            due = [
                path
                for path, (low, high) in self._dirty.items()
                if not least_pages or high // PAGE_SIZE - low // PAGE_SIZE >= least_pages
            ]
        for path in due:
            with self._lock:
                file = self._opened(path)
                # Forgotten before the sync: a write during it makes the file dirty again.
                self._dirty.pop(path, None)
                self._syncing = path
            # Without the lock, so that other threads can write meanwhile.
            file.fdatasync()
        with self._lock:
            self._syncing = None
            new_names, self._new_names = sorted(self._new_names), set()
        for directory in new_names:
            self._files.fsync_dir(directory)

    def close(self) -> None:
        """Close the files without forcing them."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def _opened(self, path: str) -> WritableFile:
        """Return an existing file, opened if it is not open, as the most recently used one. The lock is held."""
        file = self._open.get(path)
        if file is None:
            file = self._files.open_write(path)
            self._keep(path, file)
        else:
            self._open.move_to_end(path)
        return file

    def _keep(self, path: str, file: WritableFile) -> None:
        """Keep a file open; beyond ``_OPEN_FILES`` close the one that was not used for longest."""
        self._open[path] = file
        if len(self._open) > _OPEN_FILES:
            # ``flush`` syncs without the lock: its file must stay open.
            oldest = next(name for name in self._open if name != self._syncing)
            self._open.pop(oldest).close()

    def _make_directories(self, path: str) -> None:
        """Make the missing directories of a path; the next ``flush`` makes their names durable."""
        directory = ""
        for name in path_parts(path):
            below = join(directory, name)
            if below not in self._known_directories:
                status = self._files.find_stat(below)
                if status is None:
                    self._files.mkdir(below)
                    self._new_names.add(directory)
                self._known_directories.add(below)
            directory = below


class DerivedQueue:
    """The files of one queue, as one range of bytes: positions count from the beginning of the queue."""

    def __init__(self, files: DerivedFiles, directory: str, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        self._files = files
        # Files that are known to exist, by the position of their first byte.
        self._made: set[int] = set()

    def write(self, position: int, data: bytes) -> None:
        """Write ``data``, over as many files as it covers; missing files are created."""
        for base, file_offset, piece in self._split(position, data):
            path = self._path(base)
            if base not in self._made:
                if not self._files.exists(path):
                    self._files.create(path, self.file_size)
                self._made.add(base)
            self._files.write(path, piece, file_offset)

    def read(self, position: int, length: int) -> bytes:
        """Read bytes of one file at ``position``; empty if there is no file."""
        base = position - position % self.file_size
        path = self._path(base)
        if base not in self._made and not self._files.exists(path):
            return b""
        self._made.add(base)
        length = min(length, base + self.file_size - position)
        return self._files.read(path, length, position - base)

    def clear(self, position: int, end: int) -> None:
        """Remove files that begin from ``position`` to before ``end``; write zeros over other bytes of this range.

        Only bytes that are there are written over, so that this works on a full disk too.
        """
        for base in range(position - position % self.file_size, end, self.file_size):
            if not self._files.exists(self._path(base)):
                continue
            if base >= position:
                self.remove(base)
            elif left := len(self.read(position, end - position).rstrip(b"\0")):
                self._files.write(self._path(base), bytes(left), position - base)

    def remove(self, base: int) -> None:
        """Remove the file whose first byte is at position ``base`` of the queue."""
        self._made.discard(base)
        self._files.unlink(self._path(base))

    def _split(self, position: int, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Yield the parts of ``data`` by file: position of the file's first byte, file offset, bytes."""
        at = 0
        while at < len(data):
            file_offset = (position + at) % self.file_size
            length = min(len(data) - at, self.file_size - file_offset)
            yield position + at - file_offset, file_offset, data[at : at + length] if at or length < len(data) else data
            at += length

    def _path(self, base: int) -> str:
        return join(self.directory, segment_name(base))


class QueueBytes(Protocol):
    """The entries of one queue as a range of bytes: in files, or made of rows in RocksDB.

    Positions count bytes from the beginning of the queue.
    """

    @property
    def file_size(self) -> int:
        """Bytes of one file; rows alone count as files of one entry."""

    def write(self, position: int, data: bytes) -> None:
        """Write entries; missing files are created."""

    def read(self, position: int, length: int) -> bytes:
        """Return entries; fewer at the end of a file, none without a file."""

    def clear(self, begin: int, end: int) -> None:
        """Remove the entries of a range at the end of the queue."""

    def remove(self, base: int) -> None:
        """Remove the file that begins at a position; rows stay."""


class BothKinds(NamedTuple):
    """The entries of a queue that a broker keeps in files and in RocksDB. upstream: rocksdbCQDoubleWriteEnable."""

    files: QueueBytes
    rows: QueueBytes

    @property
    def file_size(self) -> int:
        """The size of one file."""
        return self.files.file_size

    def write(self, position: int, data: bytes) -> None:
        """Write entries to the files and to the rows."""
        self.files.write(position, data)
        self.rows.write(position, data)

    def read(self, position: int, length: int) -> bytes:
        """Return entries of the files."""
        return self.files.read(position, length)

    def clear(self, begin: int, end: int) -> None:
        """Remove the entries of a range at the end of both."""
        self.files.clear(begin, end)
        self.rows.clear(begin, end)

    def remove(self, base: int) -> None:
        """Remove the file that begins at a position; the rows stay."""
        self.files.remove(base)


class ExtUnit(NamedTuple):
    """The part of an extension entry that the queue entry does not have."""

    store_timestamp: int
    bit_map: bytes


class ConsumeQueueExt:
    """The extension of a queue: entries of various sizes, found by address. ``end`` is where the next one begins."""

    def __init__(self, files: DerivedQueue, end: int = 0) -> None:
        self.end = end
        self._files = files

    def put(self, unit: ConsumeQueueExtUnit) -> int:
        """Write an entry, in a new file if it does not fit into this one; return the tags code that points to it."""
        left = self._files.file_size - self.end % self._files.file_size
        if unit.size + EXT_END_ROOM > left:
            self._files.write(self.end, EXT_END_MARK)
            self.end += left
        self._files.write(self.end, encode_ext_unit(unit))
        address = ext_address(self.end)
        self.end += unit.size
        return address


@dataclass
class MeantGap:
    """Gaps that the caller intends, because it leaves messages out.

    Gaps of up to ``widest`` entries are filled with entries that point to ``place``. ``filled`` counts them.
    """

    widest: int = 0
    place: int = 0
    filled: int = 0

    def fill(self, count: int) -> bytes:
        """Return the entries of ``count`` messages that were left out, and count them."""
        self.filled += count
        return layouts.CONSUME_QUEUE_UNIT.encode(FILLER._replace(physical_offset=self.place)) * count


class ConsumeQueue:
    """One simple queue: the entry of queue offset n is at n times the size of an entry."""

    def __init__(
        self,
        key: QueueKey,
        files: QueueBytes,
        max_offset: int = 0,
        max_physic_offset: int = -1,
        ext: ConsumeQueueExt | None = None,
        meant_gap: MeantGap | None = None,
    ) -> None:
        self.key = key
        self._meant_gap = meant_gap or MeantGap()
        # The end of the entries in the files, and the end after ``write_pending``.
        self.max_offset = max_offset
        self.next_offset = max_offset
        # The physical end of the last message that has an entry; -1 without one, or if the last entry only fills a gap.
        self.max_physic_offset = max_physic_offset
        self.ext = ext
        self._files = files
        self._pending: list[bytes] = []

    def put(self, unit: ConsumeQueueUnit, queue_offset: int, ext: ExtUnit | None = None) -> Finding | None:
        """Add the entry of ``queue_offset``; return a finding if it leaves a gap that has no explanation.

        Entries of records that were dispatched before, and of offsets that are taken, are dropped without a finding.
        A gap that is too wide to fill gets a finding, and the entry is dropped.
        """
        end = unit.physical_offset + unit.size
        if end <= self.max_physic_offset:
            # The record was dispatched before.
            return None
        finding = self._go_to(queue_offset, unit.physical_offset)
        if queue_offset == self.next_offset:
            if ext is not None and self.ext is not None:
                unit = unit._replace(tags_code=self._put_ext(self.ext, unit, ext))
            self._pending.append(layouts.CONSUME_QUEUE_UNIT.packer.pack(*unit))
            self.next_offset += 1
            self.max_physic_offset = end
        return finding

    def put_next(self, queue_offset: int, unit: bytes, end: int) -> bool:
        """Add the encoded entry of a message that ends at ``end``.

        Return False, with nothing added, if it is not the next one or was dispatched before.
        """
        if queue_offset != self.next_offset or end <= self.max_physic_offset:
            return False
        self._pending.append(unit)
        self.next_offset += 1
        self.max_physic_offset = end
        return True

    def pass_to(self, queue_offset: int) -> None:
        """Continue an empty queue at an offset above 0; the messages before it no longer exist."""
        per_file = self._files.file_size // UNIT_SIZE
        # An empty last file would stop the start of a 5.x broker. At the border of a file, fill the file before it.
        self._pending.append(FILLER_UNIT * ((queue_offset - 1) % per_file + 1))
        self.next_offset = queue_offset

    def put_run(self, queue_offset: int, units: bytes, last: ConsumeQueueUnit) -> bool:
        """Add encoded entries with consecutive offsets from ``queue_offset`` on; ``last`` is the last of them.

        Return False, with nothing added, if they do not continue the queue.
        """
        if queue_offset != self.next_offset:
            return False
        self._pending.append(units)
        self.next_offset += len(units) // UNIT_SIZE
        self.max_physic_offset = last.physical_offset + last.size
        return True

    def write_pending(self) -> None:
        """Write the gathered entries to the files."""
        if self._pending:
            units = b"".join(self._pending)
            self._files.write(self.next_offset * UNIT_SIZE - len(units), units)
            self._pending.clear()
            self.max_offset = self.next_offset

    def read_unit(self, queue_offset: int) -> ConsumeQueueUnit | None:
        """Return an entry that is in the files, or None; entries that wait for ``write_pending`` are not found."""
        if not 0 <= queue_offset < self.max_offset:
            return None
        data = self._files.read(queue_offset * UNIT_SIZE, UNIT_SIZE)
        return layouts.CONSUME_QUEUE_UNIT.decode(data) if data else None

    def read_units(self, queue_offset: int, most: int) -> list[ConsumeQueueUnit]:
        """Return up to ``most`` entries from a queue offset on that are in one file; [] outside of the queue."""
        count = min(most, self.max_offset - queue_offset)
        if queue_offset < 0 or count <= 0:
            return []
        return list(
            layouts.CONSUME_QUEUE_UNIT.iter_decode(self._files.read(queue_offset * UNIT_SIZE, count * UNIT_SIZE))
        )

    def clear_behind(self) -> None:
        """Write zeros over entries after the end, in the last file, so that no start takes them for new ones."""
        position = self.max_offset * UNIT_SIZE
        rest = self._files.read(position, self._files.file_size)
        left = len(rest.rstrip(b"\0"))
        if left:
            self._files.write(position, bytes(-(-left // UNIT_SIZE) * UNIT_SIZE))

    def take_back(self, physical_offset: int) -> None:
        """Remove the entries of messages at ``physical_offset`` and after it, from memory and from the files."""
        end = self.next_offset * UNIT_SIZE
        # A new queue can begin at any offset. The files have nothing before its waiting entries, so nothing before them
        # is removed.
        begin = end - sum(map(len, self._pending)) if self._pending else 0
        last = self.read_unit(self.max_offset - 1)
        while last is not None and last.physical_offset >= physical_offset:
            self.max_offset -= 1
            last = self.read_unit(self.max_offset - 1)
        self._pending.clear()
        self._files.clear(max(begin, self.max_offset * UNIT_SIZE), end)
        self.next_offset = self.max_offset
        is_message = last is not None and last.size != FILLER_SIZE
        self.max_physic_offset = last.physical_offset + last.size if last is not None and is_message else -1

    def remove_file(self, base: int) -> None:
        """Remove the file that begins at a position: all its entries point to removed messages."""
        self._files.remove(base)

    def _go_to(self, queue_offset: int, physical_offset: int) -> Finding | None:
        """Fill the gap before an entry that does not follow the last one, if it is not too wide.

        Returns a finding for a gap, except before the first entry of a queue and for gaps that the caller meant.

        upstream: it appends the entry without a gap, so every later message is at another queue offset than its record
        says.
        """
        gap = queue_offset - self.next_offset
        if gap <= 0:
            return None
        fits = queue_offset <= LAST_OFFSET
        if fits and self.max_physic_offset < 0 and not self.next_offset:
            # The messages before this one are removed: the queue begins in the file that has this entry.
            fillers = queue_offset % (self._files.file_size // UNIT_SIZE)
            self.next_offset = queue_offset
            self._pending.append(FILLER_UNIT * fillers)
            return None
        if gap <= self._meant_gap.widest and fits:
            self._pending.append(self._meant_gap.fill(gap))
            self.next_offset = queue_offset
            return None
        topic, queue_id = self.key
        text = f"the record at {physical_offset} has queue offset {queue_offset}, but {self.next_offset} is next"
        finding = new_finding("CL-QOFF", text, Place(topic=topic, queue_id=queue_id), commitLogOffset=physical_offset)
        if gap <= WIDEST_GAP and fits:
            self._pending.append(FILLER_UNIT * gap)
            self.next_offset = queue_offset
        return finding

    def _put_ext(self, queue: ConsumeQueueExt, unit: ConsumeQueueUnit, ext: ExtUnit) -> int:
        """Write the part of an entry that goes into the extension; return the tags code that points to it."""
        size = ext_unit_size(len(ext.bit_map))
        return queue.put(ConsumeQueueExtUnit(size, unit.tags_code, ext.store_timestamp, ext.bit_map))


class BatchConsumeQueue:
    """One batch queue: each entry has the queue offsets of its record's messages."""

    def __init__(
        self, key: QueueKey, files: DerivedQueue, end: int = 0, last: BatchConsumeQueueUnit | None = None
    ) -> None:
        self.key = key
        self.max_offset = self.next_offset = last.msg_base_offset + last.batch_size if last else 0
        self._files = files
        self._end = end
        self._last_physical_offset = last.physical_offset if last else -1
        self._pending: list[bytes] = []

    def put(self, unit: BatchConsumeQueueUnit) -> None:
        """Add the entry of a record, unless the queue has an entry of it or of a later record."""
        if unit.physical_offset > self._last_physical_offset:
            self._pending.append(layouts.BATCH_CONSUME_QUEUE_UNIT.packer.pack(*unit))
            self._last_physical_offset = unit.physical_offset
            self.next_offset = unit.msg_base_offset + unit.batch_size

    def remove_file(self, base: int) -> None:
        """Remove the file that begins at a position: all its entries point to removed messages."""
        self._files.remove(base)

    def write_pending(self) -> None:
        """Write the gathered entries to the files."""
        if self._pending:
            units = b"".join(self._pending)
            self._files.write(self._end, units)
            self._end += len(units)
            self._pending.clear()
            self.max_offset = self.next_offset


AnyQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue


@dataclass(frozen=True)
class QueueSizes:
    """The file sizes of the three kinds of queues, in bytes."""

    consume_queue: int
    ext: int
    batch: int

    @classmethod
    def rounded(cls, consume_queue: int, ext: int, batch: int) -> QueueSizes:
        """Return the sizes, rounded up to whole entries as brokers do; entries of an extension vary in size."""
        return cls(-(-consume_queue // UNIT_SIZE) * UNIT_SIZE, ext, -(-batch // BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE)


class ConsumeQueues:
    """All queues of a store. An unknown queue is empty.

    With ``rows`` the simple queues are in RocksDB, and with ``in_files`` also in files.
    """

    def __init__(
        self,
        files: DerivedFiles,
        sizes: QueueSizes,
        *,
        with_ext: bool,
        meant_gap: MeantGap | None = None,
        rows: QueueRows | None = None,
        in_files: bool = True,
    ) -> None:
        self.simple: dict[QueueKey, ConsumeQueue] = {}
        self.batch: dict[QueueKey, BatchConsumeQueue] = {}
        self.files = files
        self.rows = rows
        # Queues that are read from RocksDB; a store with both kinds reads the files.
        self.database: Mapping[QueueKey, DatabaseQueue] = {}
        self._in_files = in_files
        self._sizes = sizes
        self._with_ext = with_ext
        self._meant_gap = meant_gap
        self._touched: dict[QueueKey, AnyQueue] = {}

    def simple_queue(self, key: QueueKey) -> ConsumeQueue:
        """Return a simple queue to add entries to; ``write_pending`` writes them."""
        queue = self.simple.get(key)
        if queue is None:
            queue = self.simple[key] = self.restored(key, 0, -1)
        self._touched[key] = queue
        return queue

    def batch_queue(self, key: QueueKey) -> BatchConsumeQueue:
        """Return a batch queue to add entries to; ``write_pending`` writes them."""
        queue = self.batch.get(key)
        if queue is None:
            queue = self.batch[key] = BatchConsumeQueue(key, self.files_of(FileKind.BATCH_CONSUME_QUEUE, key))
        self._touched[key] = queue
        return queue

    def restored(self, key: QueueKey, max_offset: int, max_physic_offset: int, ext_end: int = 0) -> ConsumeQueue:
        """Return a simple queue that continues existing files, at ``max_offset``."""
        ext = ConsumeQueueExt(self.files_of(FileKind.CONSUME_QUEUE_EXT, key), ext_end) if self._with_ext else None
        files: QueueBytes = self.files_of(FileKind.CONSUME_QUEUE, key)
        if self.rows is not None:
            rows = RowFiles(self.rows, key)
            files = BothKinds(files, rows) if self._in_files else rows
        return ConsumeQueue(key, files, max_offset, max_physic_offset, ext, self._meant_gap)

    def files_of(self, kind: FileKind, key: QueueKey) -> DerivedQueue:
        """Return the files of a queue; ``kind`` decides their directory and size."""
        size = {
            FileKind.CONSUME_QUEUE: self._sizes.consume_queue,
            FileKind.CONSUME_QUEUE_EXT: self._sizes.ext,
            FileKind.BATCH_CONSUME_QUEUE: self._sizes.batch,
        }[kind]
        return DerivedQueue(self.files, segment_directory(kind, *key), size)

    def write_pending(self) -> list[AnyQueue]:
        """Write the entries of this pass to the files.

        Return all queues that were asked for in it, even without an entry.
        """
        grown = list(self._touched.values())
        for queue in grown:
            queue.write_pending()
        self._touched.clear()
        if self.rows is not None:
            self.rows.write_pending()
        return grown

    def take_back(self, physical_offset: int) -> bool:
        """Remove the entries of messages at ``physical_offset`` and after it, which an unfinished pass added.

        Returns False, with nothing done, for queues with an extension and batch queues: only a recovery finds their
        ends again.
        """
        touched = [queue for queue in self._touched.values() if isinstance(queue, ConsumeQueue) and queue.ext is None]
        if len(touched) < len(self._touched):
            return False
        for queue in touched:
            queue.take_back(physical_offset)
        self._touched.clear()
        self.files.flush()
        if self.rows is not None:
            self.rows.cut(physical_offset)
        return True

    def flush(self, least_pages: int = 0) -> None:
        """Force the files with at least ``least_pages`` dirty pages; with 0 all of them, and publish the rows."""
        self.files.flush(least_pages)
        if self.rows is not None and not least_pages:
            self.rows.publish(self.files.filesystem)

    def close(self) -> None:
        """Close all files; rows that were not published are lost."""
        self.files.close()
        if self.rows is not None:
            self.rows.close()

    def max_offsets(self) -> Iterable[tuple[QueueKey, int]]:
        """Return the next offset of every queue, entries that are not written yet included."""
        queues: list[AnyQueue] = [*self.simple.values(), *self.batch.values()]
        return [(queue.key, queue.next_offset) for queue in queues]
