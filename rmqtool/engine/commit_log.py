"""Appends records to the commit log, rolls to new segments, and preallocates them.

``Writer`` decides the order. Producers queue their tickets; the producer that holds the lock gives every queued ticket
its queue offset and its place and writes them all, in one call where they fit into one segment. A lone producer thus
writes for itself; of many, one writes for all. upstream: the put lock of CommitLog, DefaultAppendMessageCallback.

``CommitLog`` has the segments, preallocates them, and has three positions, each at most the one before:
``wrote_offset`` (appended), ``committed_offset`` (in the file and readable), ``flushed_offset`` (survives a power cut).
Without the off-heap pool an append is committed at once. upstream: CommitLog, MappedFileQueue,
AllocateMappedFileService.

Bytes are written with ``pwrite`` and forced with ``fdatasync``: with a shared memory map, a bad sector would kill the
process. The space of a new segment is reserved, and its size and name are durable, before anything in it is
acknowledged. One thread appends at a time and one forces; both may run at once, and any thread may read.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from rmqtool import kernel
from rmqtool.engine.clock import Clock
from rmqtool.engine.health import Health
from rmqtool.engine.interrupts import INTERRUPTS
from rmqtool.engine.message import (
    Host,
    NewMessage,
    PutStatus,
    QueueKey,
    QueueOffsets,
    fastest_place,
    fastest_plain_record,
)
from rmqtool.engine.put import PutTicket
from rmqtool.errors import NoSpace, WriteFailed
from rmqtool.files.filesystem import WritableFile, WritableFileSystem, join, make_directories, new_file
from rmqtool.formats.commit_log import BLANK_SIZE, encode_blank
from rmqtool.formats.paths import segment_name
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.engine.message import Encoder

# Settings count dirty pages of 4 KiB. Upstream uses this size on every machine.
PAGE_SIZE = 4096


class LogDirectory(NamedTuple):
    """A directory of segments: ``path`` on ``filesystem``. A log can have several, also on other disks."""

    filesystem: WritableFileSystem
    path: str


class Tail(NamedTuple):
    """An offset of the log, and the store time (ms) of the last record before it."""

    offset: int
    store_timestamp: int


# The result of a plain put: status, queue, queue offset, physical offset, store time (ms), host of the store. If the
# write failed, the offsets are -1 and the time is 0.
Placed: TypeAlias = "tuple[PutStatus, QueueKey, int, int, int, Host]"

# The tail of a log without records.
EMPTY = Tail(0, 0)


class Ends(Protocol):
    """The ends of records that are back to back, in ascending order: a list or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Any: ...


class _NewSegment(NamedTuple):
    """A preallocated segment: durable, and not in use yet."""

    directory: LogDirectory
    segment: Segment
    file: WritableFile


class CommitLog:
    """The segments of the log, and the end that grows."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        segment_size: int,
        segments: Iterable[Segment] = (),
        tail: Tail = EMPTY,
        full_directories: Callable[[], Collection[LogDirectory]] = tuple,
    ) -> None:
        self.directories = tuple(directories)
        self.segment_size = segment_size
        self.segments = SegmentQueue(segments, segment_size)
        self.wrote_offset = self.committed_offset = self.flushed_offset = tail.offset
        # The store times of the last appended record and of the last committed one.
        self.store_timestamp = self._committed_timestamp = tail.store_timestamp
        # Directories whose disks are too full for a new segment.
        self.full_directories = full_directories
        self._pending: list[bytes | bytearray] = []
        # The largest end of a record in this segment: a blank record must fit after it. Without a segment no record
        # fits.
        self.last_end = -1
        # The error of the last write that found the disk full, if nothing of that write stayed in the log.
        self.taken_back: NoSpace | None = None
        self._current: WritableFile | None = None
        # The base offset of the current segment, or of the one that will be created first.
        self._base = tail.offset - tail.offset % segment_size
        # Files with bytes that are not forced yet, by base offset.
        self._unsynced: dict[int, WritableFile] = {}
        self._prepared: _NewSegment | None = None
        # Held while the list of segments is read through or changed.
        self._guard = threading.Lock()
        # Held while the next segment is created, or taken into use.
        self._creation = threading.Lock()
        if segments and (last := self.segments.find(tail.offset)) is not None:
            self._go_on_in(self._open(last), last.base_offset)

    @property
    def min_offset(self) -> int:
        """The offset of the first byte in the log; -1 without segments."""
        return self.segments.min_offset if len(self.segments) else -1

    @property
    def room(self) -> int:
        """Bytes left in the current segment; 0 without one."""
        return 0 if self._current is None else self._base + self.segment_size - self.wrote_offset

    @property
    def largest_record(self) -> int:
        """The size of the largest record that fits into an empty segment."""
        return self.segment_size - BLANK_SIZE

    def append(self, data: bytes | bytearray, store_timestamp: int) -> None:
        """Append bytes that fit into the current segment (see ``place``); ``commit`` writes them to the file."""
        self._pending.append(data)
        self.wrote_offset += len(data)
        self.store_timestamp = store_timestamp

    @property
    def pending_size(self) -> int:
        """Bytes that wait for ``commit``."""
        return self.wrote_offset - self.committed_offset

    def pages_to_commit(self) -> int:
        """Return how many pages a commit would complete."""
        return _pages(self.wrote_offset) - _pages(self.committed_offset)

    def commit(self) -> None:
        """Write the appended bytes to the file, where readers see them; NoSpace means that they are dropped."""
        pending = self._pending
        if pending and self._current is not None:
            data = pending[0] if len(pending) == 1 else b"".join(pending)
            self._unsynced[self._base] = self._current
            try:
                self._current.pwrite(data, self.committed_offset - self._base)
            except NoSpace as error:
                self._take_back(len(data), error)
                raise
            pending.clear()
            # The order matters: a thread that reads both meanwhile gets a time that is too old, never one that is too
            # new.
            self.committed_offset = self.wrote_offset
            self._committed_timestamp = self.store_timestamp

    def write(self, data: bytes | bytearray, store_timestamp: int) -> None:
        """Append and commit bytes that fit; nothing may wait for ``commit``. After NoSpace the log is as before."""
        file = self._current
        assert file is not None, "there is room only in a segment"
        offset, base = self.wrote_offset, self._base
        self._unsynced[base] = file
        try:
            file.pwrite(data, offset - base)
        except NoSpace as error:
            self._take_back(len(data), error)
            raise
        self.store_timestamp = store_timestamp
        self.wrote_offset = self.committed_offset = offset + len(data)
        self._committed_timestamp = store_timestamp

    def _take_back(self, length: int, error: NoSpace) -> None:
        """Write zeros over what reached the file of ``length`` bytes, for which the disk had no room.

        The log then ends where it ended before. Only blocks that the file has are written.
        """
        file, place = self._current, self.committed_offset - self._base
        self._pending.clear()
        self.wrote_offset = self.committed_offset
        if file is not None:
            left = len(file.pread(length, place).rstrip(b"\0"))
            if left:
                file.pwrite(bytes(left), place)
            self.taken_back = error

    def place(self, size: int) -> int:
        """Return the place of a record of ``size`` bytes; roll to the next segment if it does not fit into this one.

        ``size`` is at most ``largest_record``. After it there is always space for a blank record. Raises NoSpace, with
        nothing changed, if there is no room for a segment; if that error is ``taken_back``, records that waited for
        ``commit`` are gone.
        """
        if self.wrote_offset + size > self.last_end:
            self.prepare_next()
            self._roll()
        return self.wrote_offset

    def place_many(self, ends: Ends, at: int) -> int:
        """Return the number of the first record, after record ``at``, that does not fit into the same segment.

        ``ends`` has the end of each record, relative to the start of the first. Record ``at`` always fits, after a roll
        if necessary.
        """
        begin = int(ends[at - 1]) if at else 0
        position = self.place(int(ends[at]) - begin)
        return bisect_right(ends, begin + self.last_end - position, at)

    @property
    def has_next(self) -> bool:
        """Whether ``prepare_next`` has created the segment after the current one already."""
        return self._prepared is not None

    def prepare_next(self) -> None:
        """Create the segment after the current one, or the first one. Any thread may call it ahead of time.

        If it fails, nothing has changed. upstream: CommitLog writes the blank record before it asks for the segment,
        and wastes a segment's rest each time that fails.
        """
        with self._creation:
            if self._prepared is None:
                is_first = self._current is None
                self._prepared = self._create(self._base if is_first else self._base + self.segment_size)

    def _roll(self) -> None:
        """Switch to the prepared segment; a blank record ends the old one."""
        # Hold the lock until the switch is done, so that a concurrent prepare_next() sees the new base.
        with self._creation:
            made, self._prepared = self._prepared, None
            assert made is not None, "the next segment is prepared before the log rolls"
            left, has_pending = self.room, bool(self._pending)
            if left:
                # Write only the head of the blank record: no reader looks at its body.
                self._pending.append(encode_blank(left))
                self.wrote_offset = made.segment.base_offset
                try:
                    self.commit()
                except NoSpace:
                    self._prepared = made
                    if not has_pending:
                        self.taken_back = None
                    raise
            self.segments.add(made.segment)
            self._go_on_in(made.file, made.segment.base_offset)

    def _go_on_in(self, file: WritableFile, base: int) -> None:
        """Append to ``file`` from now on, the segment that begins at ``base``."""
        self._current, self._base = file, base
        # Room is left for the blank record that ends a segment.
        self.last_end = base + self.segment_size - BLANK_SIZE

    def discard_prepared(self) -> None:
        """Remove the prepared segment, durably, at a clean close: the next start would find it empty after the log."""
        if self._prepared is not None:
            made, self._prepared = self._prepared, None
            made.file.close()
            made.directory.filesystem.unlink(made.segment.path)
            made.directory.filesystem.fsync_dir(made.directory.path)

    def begin_at(self, physical_offset: int) -> None:
        """Make the first segment of an empty log begin at an offset, a multiple of the segment size."""
        assert self._current is None, "the log has begun already"
        self.wrote_offset = self.committed_offset = self.flushed_offset = self._base = physical_offset

    def follow(self, segments: Sequence[Segment], physical_offset: int, store_timestamp: int) -> None:
        """Take over what another writer did: its segments, at least one, and what it has synced up to an offset."""
        with self._guard:
            while len(self.segments) and self.segments.min_offset < segments[0].base_offset:
                self.segments.remove_first()
            known = {segment.base_offset for segment in self.segments}
            for segment in segments:
                if segment.base_offset not in known:
                    self.segments.add(segment)
        self.wrote_offset = self.committed_offset = self.flushed_offset = physical_offset
        self.store_timestamp = self._committed_timestamp = max(store_timestamp, self.store_timestamp)

    def clear_next(self) -> None:
        """Write zeros, durably, where the next record begins: a start would take old bytes there for a record.

        Does nothing if there is no room for a blank record, or if bytes wait for ``commit``.
        """
        if self._current is not None and self.room >= BLANK_SIZE and not self.pending_size:
            self._current.pwrite(bytes(BLANK_SIZE), self.wrote_offset - self._base)
            self._current.fdatasync()

    def may_remove(self, segment: Segment) -> bool:
        """Return whether a segment may be removed.

        The last segment, unforced segments and those in a read-only directory may not.
        """
        is_last = segment is self.segments.segments[-1] or segment.end_offset > self.flushed_offset
        return not is_last and segment.base_offset not in self._unsynced and self._holder(segment) is not None

    def remove_first(self) -> bool:
        """Remove the oldest segment, if ``may_remove`` allows it; return whether it was removed."""
        first = self.segments.segments[0]
        directory = self._holder(first)
        if directory is None or not self.may_remove(first):
            return False
        with self._guard:
            self.segments.remove_first()
        directory.filesystem.unlink(first.path)
        directory.filesystem.fsync_dir(directory.path)
        return True

    def _holder(self, segment: Segment) -> LogDirectory | None:
        """Return the writable directory that has a segment, or None."""
        return next((one for one in self.directories if one.filesystem is segment.filesystem), None)

    def pages_to_flush(self) -> int:
        """Return how many pages a flush would complete.

        A segment that was left since the last flush counts as one page.
        """
        flushed, committed = self.flushed_offset, self.committed_offset
        rolled = flushed // self.segment_size != committed // self.segment_size
        return _pages(committed) - _pages(flushed) + rolled

    def flush(self) -> Tail:
        """Force everything that is committed; return its end. ``flushed_offset`` moves only if this succeeds."""
        # Read the time before the offset, because ``commit`` sets them in the opposite order.
        store_timestamp = self._committed_timestamp
        reached = self.committed_offset
        for base in sorted(self._unsynced):
            if base < reached:
                file = self._unsynced[base]
                # Nothing is written to a segment after the log has left it, so this sync is its last.
                was_left = file is not self._current
                file.fdatasync()
                if was_left:
                    del self._unsynced[base]
                    file.close()
        self.flushed_offset = reached
        return Tail(reached, store_timestamp)

    def read(self, physical_offset: int, length: int) -> bytes:
        """Return up to ``length`` committed bytes from one segment; no bytes if no segment has that offset.

        Offset 0 means the beginning of the first segment, even if older segments were removed: upstream reads it so.
        """
        if physical_offset == 0 and len(self.segments):
            physical_offset = self.segments.min_offset
        length = min(length, self.committed_offset - physical_offset)
        if length <= 0:
            return b""
        with self._guard:
            return self.segments.read(physical_offset, length)

    def close(self) -> None:
        """Close the files; bytes that wait for ``commit`` are dropped."""
        for file in (*self._unsynced.values(), *([self._current] if self._current else [])):
            file.close()
        if self._prepared is not None:
            self._prepared.file.close()
        self._unsynced.clear()
        with self._guard:
            self.segments.close()

    def _create(self, base: int) -> _NewSegment:
        """Create a segment: space reserved, size and name durable."""
        directory = self._directory_of(base)
        files, path = directory.filesystem, join(directory.path, segment_name(base))
        make_directories(files, directory.path)
        with new_file(files, path, self.segment_size) as file:
            file.fsync()
            files.fsync_dir(directory.path)
        return _NewSegment(directory, Segment(base, self.segment_size, path, files), file)

    def _directory_of(self, base: int) -> LogDirectory:
        """Return the directory of a new segment: in turn, as upstream, but a full one only if all are full."""
        full = self.full_directories()
        usable = [directory for directory in self.directories if directory not in full] or self.directories
        return usable[base // self.segment_size % len(usable)]

    def _open(self, segment: Segment) -> WritableFile:
        """Open a segment to append to it; raise WriteFailed if it is in a read-only directory."""
        for directory in self.directories:
            if directory.filesystem is segment.filesystem:
                return directory.filesystem.open_write(segment.path)
        hint = "it is in readOnlyCommitLogStorePaths"
        raise WriteFailed(f"{segment.path} is in a read-only directory", file=segment.path, hint=hint)


def _pages(offset: int) -> int:
    """Return how many whole pages are before an offset."""
    return offset // PAGE_SIZE


# The most tickets that are written as one group.
_GROUP = 2048
# Appended bytes after which they are written to the file, even within a group.
_MOST_PENDING = 4 << 20
# Bytes of an item of ``array("q")``.
_LONG = 8


class Writer:
    """Gives tickets their queue offsets and places, and writes them."""

    def __init__(
        self,
        log: CommitLog,
        offsets: QueueOffsets,
        health: Health,
        clock: Clock,
        *,
        commit_at_once: bool,
        waits_for_flush: bool,
        encoder: Encoder,
    ) -> None:
        self.waiting: deque[PutTicket] = deque()
        self.written_count = 0
        # The start of the current write (ms); None while idle. If it is long ago, puts are refused
        # (OS_PAGE_CACHE_BUSY).
        self.busy_since: int | None = None
        # Called after each write; the writer's lock may be held.
        self.on_written: Callable[[], None] = lambda: None
        self._log = log
        self._offsets = offsets
        self._health = health
        self._now = clock.now
        self._commit_at_once = commit_at_once
        # Whether each record ends with a checksum property.
        self._has_crc = encoder.has_property_crc
        self._encoder = encoder
        self._place_record = fastest_place()
        self._plain_record = fastest_plain_record()
        # None with synchronous flush: only the flush decides then.
        self._status_when_written = None if waits_for_flush else PutStatus.PUT_OK
        # Held while writing, and by callers that must exclude puts.
        self.lock = threading.Lock()

    def write(self, ticket: PutTicket) -> None:
        """Write or refuse a ticket, after those that wait already; return when this thread or another one has."""
        if self.lock.acquire(False):
            try:
                if self.waiting:
                    self.waiting.append(ticket)
                    self._write_waiting()
                elif len(ticket.records) != 1 or not self._write_one(ticket):
                    self._write_group([ticket])
            finally:
                self.lock.release()
        else:
            # The current holder may not see this ticket any more. Queue it; the next holder of the lock, perhaps this
            # thread, writes it.
            self.waiting.append(ticket)
            self.write_waiting()

    def write_waiting(self) -> None:
        """Write all queued tickets; return when this thread or another one has written them."""
        with self.lock:
            self._write_waiting()

    def write_with(self, write: Callable[[int], None]) -> bool:
        """Have ``write`` append records, with the store time that it is given.

        Return False if the store is read-only now: it was before, or this write failed. Any other exception poisons the
        store too, and is raised.
        """
        with self.lock:
            self._write_waiting()
            if self._health.failure is not None:
                return False
            self.busy_since = now = self._now()
            try:
                write(max(now, self._log.store_timestamp))
                if self._commit_at_once:
                    self._log.commit()
            except BaseException as error:
                self._health.poison(error)
                if not isinstance(error, WriteFailed):
                    raise
                return False
            finally:
                self.busy_since = None
        self.on_written()
        return True

    def commit(self) -> None:
        """Write to the file what the off-heap pool holds. If that fails, poison the store and raise WriteFailed."""
        with self.lock:
            if self._health.failure is None and self._log.pending_size:
                try:
                    self._log.commit()
                except WriteFailed as error:
                    self._health.poison(error)
                    raise
        self.on_written()

    def _write_waiting(self) -> None:
        """Write all queued tickets, group by group, in their order. The lock is held."""
        take = self.waiting.popleft
        while self.waiting:
            self._write_group([take() for _ in range(min(len(self.waiting), _GROUP))])

    def _write_group(self, group: Sequence[PutTicket]) -> None:
        """Write tickets and give each its status; with the off-heap pool they are then only in memory.

        A ticket that waits for a flush gets no status here.
        """
        if self._health.failure is not None:
            for ticket in group:
                ticket.refuse(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        log = self._log
        self.busy_since = now = self._now()
        # Store times never go backwards, even if the clock does: recovery and searches by time rely on it.
        store_timestamp = now if now >= log.store_timestamp else log.store_timestamp
        try:
            for ticket in group:
                self._append(ticket, store_timestamp)
            if self._commit_at_once:
                log.commit()
        except BaseException as error:
            self._fail(group, error)
        else:
            done = self._status_when_written
            for ticket in group:
                if ticket.status is None:
                    ticket.is_written = True
                    # For tickets that wait for a flush, only the flush decides.
                    ticket.status = done if ticket.waits else PutStatus.PUT_OK
            self.written_count += len(group)
        finally:
            self.busy_since = None
        self.on_written()

    def _write_one(self, ticket: PutTicket) -> bool:
        """Write a record that fits, as a group of one; return False if it needs more than that.

        The shortcut for a lone producer, whose put spends its time here.
        """
        log = self._log
        position = log.wrote_offset
        if position + len(ticket.records[0]) > log.last_end or not self._commit_at_once:
            return False
        if self._health.failure is not None:
            return False
        # The ticket got its time just before, so the clock is not read again: a call would cost more than the accuracy
        # is worth.
        self.busy_since = now = ticket.store_timestamp
        store_timestamp = now if now >= log.store_timestamp else log.store_timestamp
        try:
            log.write(self._numbered(ticket, position, store_timestamp), store_timestamp)
            ticket.is_written = True
            ticket.status = self._status_when_written if ticket.waits else PutStatus.PUT_OK
        except BaseException as error:
            self._fail((ticket,), error)
            return True
        finally:
            self.busy_since = None
        self.written_count += 1
        self.on_written()
        return True

    @INTERRUPTS.keep_from
    def write_plain(self, kind: object, message: NewMessage, uniq_key: str, now: int) -> Placed | None:
        """Make the record of a plain message and write it at once, or return None with nothing done.

        ``kind`` is that of ``Encoder.record_kind``, ``now`` is in ms. None: the message needs more than that, the
        writer is busy, or the store is poisoned.

        The whole put of a lone producer without synchronous flush, in one function: the calls that the general path
        makes cost more than what they do.
        """
        if (
            message.sys_flag
            or message.born_host is not None
            or message.store_host is not None
            or message.reconsume_times
            or message.prepared_transaction_offset
            or self.busy_since
            or not self.lock.acquire(False)
        ):
            return None
        try:
            if self.waiting or self._health.failure is not None:
                return None
            log, table = self._log, self._offsets.table
            position, stored_at, born = log.wrote_offset, log.store_timestamp, message.born_timestamp
            if now > stored_at:
                stored_at = now
            queue_id = message.queue_id
            queue = (message.topic, queue_id)
            queue_offset = table.get(queue, 0)
            numbers = (message.flag, queue_id, queue_offset, position, now if born is None else born, stored_at)
            record = self._plain_record(kind, message.properties, uniq_key, message.body, *numbers, None)
            if record is None or position + len(record) > log.last_end:
                return None
            self.busy_since = stored_at
            try:
                log.write(record, stored_at)
                table[queue] = queue_offset + 1
            except BaseException as error:
                self._fail((), error)
                return PutStatus.UNKNOWN_ERROR, queue, -1, -1, 0, self._encoder.store_host
            finally:
                self.busy_since = None
            self.written_count += 1
        finally:
            self.lock.release()
        self.on_written()
        return PutStatus.PUT_OK, queue, queue_offset, position, stored_at, self._encoder.store_host

    def _fail(self, group: Sequence[PutTicket], error: BaseException) -> None:
        """Poison the store. It is unknown what part of the group reached the file, so no producer gets an OK.

        An error that is not a WriteFailed is raised.
        """
        self._health.poison(error)
        for ticket in group:
            ticket.refuse(PutStatus.UNKNOWN_ERROR)
        if not isinstance(error, WriteFailed):
            raise error

    def _append(self, ticket: PutTicket, store_timestamp: int) -> None:
        """Append a ticket, in the next segment if it does not fit into this one, or refuse it. A batch is never split.

        Bytes that wait are committed when there are too many, so memory stays bounded.
        """
        log, offsets = self._log, self._offsets
        further: Sequence[QueueKey] = ()
        if ticket.late is not None:
            made = ticket.late(offsets)
            if isinstance(made, PutStatus):
                ticket.refuse(made)
                return
            record, further = made
            ticket.records = (record,)
        records = ticket.records
        size = len(records[0]) if len(records) == 1 else sum(map(len, records))
        try:
            position = log.wrote_offset
            if position + size > log.last_end:
                position = log.place(size)
        except NoSpace as error:
            if error is log.taken_back:
                raise  # tickets before this one are not in the log either
            # Nothing was written for this ticket, so the store continues: retention may free space.
            ticket.refuse(PutStatus.CREATE_MAPPED_FILE_FAILED)
            return
        log.append(self._numbered(ticket, position, store_timestamp), store_timestamp)
        if ticket.count:
            for queue in further:
                offsets.advance(queue, 1)
        if log.pending_size >= _MOST_PENDING:
            log.commit()

    def _numbered(self, ticket: PutTicket, position: int, store_timestamp: int) -> bytes | bytearray:
        """Give a ticket its place, queue offsets and store time; return the bytes of its records with these in them."""
        queue_offset = 0
        if ticket.count:
            table, queue = self._offsets.table, ticket.queue
            queue_offset = table.get(queue, 0)
            table[queue] = queue_offset + ticket.count
        records = ticket.records
        place_record, has_crc = self._place_record, self._has_crc
        data: bytes | bytearray
        if ticket.is_slab:
            assert kernel.NATIVE is not None, "the kernel made the records"
            data, found = records[0], array("q", bytes(_LONG * ticket.count))
            kernel.NATIVE.place_batch(data, queue_offset, position, store_timestamp, found)
            if ticket.count > 1:
                ticket.record_offsets = found.tolist()
        elif len(records) == 1:
            data = records[0]
            place_record(data, queue_offset, position, store_timestamp, has_crc)
        else:
            places = list(accumulate(map(len, records[:-1]), initial=position))
            ticket.record_offsets = places
            for number, (record, place) in enumerate(zip(records, places, strict=True), queue_offset):
                place_record(record, number, place, store_timestamp, has_crc)
            data = b"".join(records)
        ticket.physical_offset = position
        ticket.queue_offset = queue_offset
        ticket.store_timestamp = store_timestamp
        ticket.size = len(data)
        return data
