"""The commit log being written: appending, rolling to the next segment, committing, forcing.

Upstream: ``CommitLog``, ``MappedFileQueue``, ``AllocateMappedFileService``. Four positions of the log grow one behind
the other: ``wrote`` is what was appended, ``committed`` what stands in the file and can be read, ``flushed`` what
survives a power cut, and the dispatcher has a fourth. Without the off-heap pool an append is committed at once.

Bytes reach the file by ``pwrite``, forcing is ``fdatasync``: a store through a shared map would kill the process on a
bad sector. A new segment is reserved, synced and named durably before anything in it is acknowledged.

One thread appends at a time, one forces at a time; the two may overlap, and readers may come from anywhere.

The one place where records get their numbers and places, in one order.

Upstream: the put lock of ``CommitLog`` and ``DefaultAppendMessageCallback``. Producers put their tickets into a queue;
whoever has the lock writes all that wait there, in one call to the file where they fit: a lone producer writes for
itself, of many one writes for all. Nothing is acknowledged before it stands in the file (or, with the off-heap pool,
in its buffer).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from rmqtool.engine.clock import Clock
from rmqtool.engine.health import Health
from rmqtool.engine.message import PutStatus, QueueKey, QueueOffsets, fastest_place
from rmqtool.engine.put import PutTicket
from rmqtool.errors import NoSpace, WriteFailed
from rmqtool.files.filesystem import WritableFile, WritableFileSystem, join, make_directories, new_file
from rmqtool.formats.commit_log import BLANK_SIZE, encode_blank
from rmqtool.formats.paths import segment_name
from rmqtool.store.segments import Segment, SegmentQueue

# Dirty bytes are counted in pages of this size, whatever the machine's is.
PAGE_SIZE = 4096


class LogDirectory(NamedTuple):
    """One of the directories that the segments lie in."""

    filesystem: WritableFileSystem
    path: str


class Tail(NamedTuple):
    """An offset of the log, and the store time of the last record before it."""

    offset: int
    store_timestamp: int


EMPTY = Tail(0, 0)


class Ends(Protocol):
    """Ascending numbers: a list or an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Any: ...


class _NewSegment(NamedTuple):
    directory: LogDirectory
    segment: Segment
    file: WritableFile


class CommitLog:
    """The segments of the log and what is appended to them."""

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
        # Store times of the last record that was appended, and of the last one that is committed.
        self.store_timestamp = self._committed_timestamp = tail.store_timestamp
        # Directories whose disks are too full for a new segment.
        self.full_directories = full_directories
        self._pending: list[bytes | bytearray] = []
        # Where a record may end at most: a blank must fit behind it. Without a segment no record fits.
        self.last_end = -1
        self._current: WritableFile | None = None
        self._base = tail.offset - tail.offset % segment_size
        self._unsynced: dict[int, WritableFile] = {}
        self._prepared: _NewSegment | None = None
        self._guard = threading.Lock()
        self._creation = threading.Lock()
        if segments and (last := self.segments.find(tail.offset)) is not None:
            self._go_on_in(self._open(last), last.base_offset)

    @property
    def min_offset(self) -> int:
        """The offset of the first byte there is; -1 without segments."""
        return self.segments.min_offset if len(self.segments) else -1

    @property
    def room(self) -> int:
        """How many bytes are left in the segment that is written; 0 when there is none."""
        return 0 if self._current is None else self._base + self.segment_size - self.wrote_offset

    @property
    def largest_record(self) -> int:
        """The size of the largest record that fits into a segment at all."""
        return self.segment_size - BLANK_SIZE

    def append(self, data: bytes | bytearray, store_timestamp: int) -> None:
        """Take bytes that fit; they stand in the file after ``commit``."""
        self._pending.append(data)
        self.wrote_offset += len(data)
        self.store_timestamp = store_timestamp

    @property
    def pending_size(self) -> int:
        """How many bytes wait for ``commit``."""
        return self.wrote_offset - self.committed_offset

    def pages_to_commit(self) -> int:
        """Return how many pages the commit would complete."""
        return _pages(self.wrote_offset) - _pages(self.committed_offset)

    def commit(self) -> None:
        """Write what was appended into the file."""
        pending = self._pending
        if pending and self._current is not None:
            data = pending[0] if len(pending) == 1 else b"".join(pending)
            self._unsynced[self._base] = self._current
            self._current.pwrite(data, self.committed_offset - self._base)
            pending.clear()
            # In this order: whoever looks meanwhile may take the time for too old, never for too new.
            self.committed_offset = self.wrote_offset
            self._committed_timestamp = self.store_timestamp

    def write(self, data: bytes | bytearray, store_timestamp: int) -> None:
        """Append bytes that fit, and commit them, when nothing waits for that."""
        file = self._current
        assert file is not None, "there is room only in a segment"
        offset, base = self.wrote_offset, self._base
        self._unsynced[base] = file
        file.pwrite(data, offset - base)
        self.store_timestamp = store_timestamp
        self.wrote_offset = self.committed_offset = offset + len(data)
        self._committed_timestamp = store_timestamp

    def place(self, size: int) -> int:
        """Return where ``size`` bytes go: the log goes on in the next segment where they do not fit into this one.

        A blank must fit after them. NoSpace: the next segment cannot be made, and nothing has changed.
        """
        if self.wrote_offset + size > self.last_end:
            self.prepare_next()
            self._roll()
        return self.wrote_offset

    def place_many(self, ends: Ends, at: int) -> int:
        """Return up to which record they go into one segment, in their order, from record ``at`` on: one at least.

        ``ends`` is where each of them ends, counted from the beginning of the first.
        """
        begin = int(ends[at - 1]) if at else 0
        position = self.place(int(ends[at]) - begin)
        return bisect_right(ends, begin + self.last_end - position, at)

    @property
    def has_next(self) -> bool:
        """Whether the segment behind the one that is written is made already."""
        return self._prepared is not None

    def prepare_next(self) -> None:
        """Make the segment behind the one that is written, or the first one; any thread may do it ahead of time.

        Nothing has changed if it cannot be made. upstream: CommitLog writes the blank before it asks for the segment,
        and burns one whenever that fails.
        """
        with self._creation:
            if self._prepared is None:
                is_first = self._current is None
                self._prepared = self._create(self._base if is_first else self._base + self.segment_size)

    def _roll(self) -> None:
        """Go on in the segment that was prepared; a blank ends the one before."""
        # Held to the end: who prepares a segment meanwhile must not take the old place for the current one.
        with self._creation:
            made, self._prepared = self._prepared, None
            assert made is not None, "the next segment is prepared before the log rolls"
            left = self.room
            if left:
                # Only the head of the blank is written: what lies behind it stays as it is.
                self._pending.append(encode_blank(left))
                self.wrote_offset = made.segment.base_offset
                self.commit()
            self.segments.add(made.segment)
            self._go_on_in(made.file, made.segment.base_offset)

    def _go_on_in(self, file: WritableFile, base: int) -> None:
        self._current, self._base = file, base
        self.last_end = base + self.segment_size - BLANK_SIZE

    def discard_prepared(self) -> None:
        """Remove a segment that was made and never used."""
        if self._prepared is not None:
            made, self._prepared = self._prepared, None
            made.file.close()
            made.directory.filesystem.unlink(made.segment.path)
            made.directory.filesystem.fsync_dir(made.directory.path)

    def begin_at(self, physical_offset: int) -> None:
        """Let the first segment of an empty log be the one that begins at an offset."""
        assert self._current is None, "the log has begun already"
        self.wrote_offset = self.committed_offset = self.flushed_offset = self._base = physical_offset

    def clear_next(self) -> None:
        """Make sure that no record is found where the next one goes."""
        if self._current is not None and self.room >= BLANK_SIZE and not self.pending_size:
            self._current.pwrite(bytes(BLANK_SIZE), self.wrote_offset - self._base)
            self._current.fdatasync()

    def may_remove(self, segment: Segment) -> bool:
        """Tell whether a segment may go: not the last, nor one not forced yet or in a directory that is only read."""
        is_last = segment is self.segments.segments[-1] or segment.end_offset > self.flushed_offset
        return not is_last and segment.base_offset not in self._unsynced and self._holder(segment) is not None

    def remove_first(self) -> bool:
        """Remove the oldest segment, unless it may not go."""
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
        return next((one for one in self.directories if one.filesystem is segment.filesystem), None)

    def pages_to_flush(self) -> int:
        """Return how many pages the flush would complete; a segment left behind counts as one at least."""
        flushed, committed = self.flushed_offset, self.committed_offset
        rolled = flushed // self.segment_size != committed // self.segment_size
        return _pages(committed) - _pages(flushed) + rolled

    def flush(self) -> Tail:
        """Force what is committed; return how far that is, and remember it only when it succeeded."""
        store_timestamp = self._committed_timestamp
        reached = self.committed_offset
        for base in sorted(self._unsynced):
            if base < reached:
                file = self._unsynced[base]
                # Whatever was written into a segment that was left before its sync began is covered by it.
                was_left = file is not self._current
                file.fdatasync()
                if was_left:
                    del self._unsynced[base]
                    file.close()
        self.flushed_offset = reached
        return Tail(reached, store_timestamp)

    def read(self, physical_offset: int, length: int) -> bytes:
        """Return committed bytes, of one segment, up to ``length``.

        At offset 0 of a log whose first segments are gone that is where the first one left begins.
        """
        if physical_offset == 0 and len(self.segments):
            physical_offset = self.segments.min_offset
        length = min(length, self.committed_offset - physical_offset)
        if length <= 0:
            return b""
        with self._guard:
            return self.segments.read(physical_offset, length)

    def close(self) -> None:
        """Close the files; nothing is written."""
        for file in (*self._unsynced.values(), *([self._current] if self._current else [])):
            file.close()
        if self._prepared is not None:
            self._prepared.file.close()
        self._unsynced.clear()
        with self._guard:
            self.segments.close()

    def _create(self, base: int) -> _NewSegment:
        """Make a segment: its room reserved, its size and its name durable."""
        directory = self._directory_of(base)
        files, path = directory.filesystem, join(directory.path, segment_name(base))
        make_directories(files, directory.path)
        with new_file(files, path, self.segment_size) as file:
            file.fsync()
            files.fsync_dir(directory.path)
        return _NewSegment(directory, Segment(base, self.segment_size, path, files), file)

    def _directory_of(self, base: int) -> LogDirectory:
        """Return the directory a segment goes to: brokers deal them out by number."""
        full = self.full_directories()
        usable = [directory for directory in self.directories if directory not in full] or self.directories
        return usable[base // self.segment_size % len(usable)]

    def _open(self, segment: Segment) -> WritableFile:
        for directory in self.directories:
            if directory.filesystem is segment.filesystem:
                return directory.filesystem.open_write(segment.path)
        hint = "it is in readOnlyCommitLogStorePaths"
        raise WriteFailed(f"{segment.path} is in a read-only directory", file=segment.path, hint=hint)


def _pages(offset: int) -> int:
    return offset // PAGE_SIZE


# So many tickets are written in one go; and so many bytes gathered before they go to the file.
_GROUP = 2048
_MOST_PENDING = 4 << 20


class Writer:
    """Numbers, places and writes tickets."""

    def __init__(
        self,
        log: CommitLog,
        offsets: QueueOffsets,
        health: Health,
        clock: Clock,
        *,
        commit_at_once: bool,
        waits_for_flush: bool,
        has_crc: bool = False,
    ) -> None:
        self.waiting: deque[PutTicket] = deque()
        self.written_count = 0
        # When the writer began with what it is doing now; None while it does nothing.
        self.busy_since: int | None = None
        self.on_written: Callable[[], None] = _do_nothing
        self._log = log
        self._offsets = offsets
        self._health = health
        self._now = clock.now
        self._commit_at_once = commit_at_once
        # Whether a checksum property ends each record.
        self._has_crc = has_crc
        self._place_record = fastest_place()
        self._status_when_written = None if waits_for_flush else PutStatus.PUT_OK
        # Who has it writes, or wants no put to come between.
        self.lock = threading.Lock()

    def write(self, ticket: PutTicket) -> None:
        """Write a ticket, and those that wait already."""
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
            # Whoever writes now does not see it any more; who comes next may, and so may we.
            self.waiting.append(ticket)
            self.write_waiting()

    def write_waiting(self) -> None:
        """Write all tickets that wait."""
        with self.lock:
            self._write_waiting()

    def write_with(self, write: Callable[[int], None]) -> bool:
        """Let ``write`` append records with the store time it is given; False when the store no longer writes."""
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
        """Bring into the file what the off-heap pool holds."""
        with self.lock:
            if self._health.failure is None and self._log.pending_size:
                try:
                    self._log.commit()
                except WriteFailed as error:
                    self._health.poison(error)
                    raise
        self.on_written()

    def _write_waiting(self) -> None:
        take = self.waiting.popleft
        while self.waiting:
            self._write_group([take() for _ in range(min(len(self.waiting), _GROUP))])

    def _write_group(self, group: Sequence[PutTicket]) -> None:
        """Write tickets; what becomes of them is known when they stand in the file."""
        if self._health.failure is not None:
            for ticket in group:
                ticket.refuse(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        log = self._log
        self.busy_since = now = self._now()
        # Store times never go backwards, whatever the clock does: searches by time and recovery rely on it.
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
                    # Only a flush decides what becomes of those that wait for one.
                    ticket.status = done if ticket.waits else PutStatus.PUT_OK
            self.written_count += len(group)
        finally:
            self.busy_since = None
        self.on_written()

    def _write_one(self, ticket: PutTicket) -> bool:
        """Write a ready record that fits, as a group of one; False when there is more to it.

        This is the way of a lone producer: a put spends its time here.
        """
        log = self._log
        position = log.wrote_offset
        if position + len(ticket.records[0]) > log.last_end or not self._commit_at_once:
            return False
        if self._health.failure is not None:
            return False
        # It came just now.
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

    def _fail(self, group: Sequence[PutTicket], error: BaseException) -> None:
        """Give up. What of the group reached the file nobody can say: no producer may believe that its message did."""
        self._health.poison(error)
        for ticket in group:
            ticket.refuse(PutStatus.UNKNOWN_ERROR)
        if not isinstance(error, WriteFailed):
            raise error

    def _append(self, ticket: PutTicket, store_timestamp: int) -> None:
        """Append any ticket, in the next segment where it does not fit into this one: a batch as a whole."""
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
        try:
            position = log.place(sum(map(len, records)))
        except NoSpace:
            # Nothing has been written for it: the store goes on when there is room again.
            ticket.refuse(PutStatus.CREATE_MAPPED_FILE_FAILED)
            return
        log.append(self._numbered(ticket, position, store_timestamp), store_timestamp)
        if ticket.count:
            for queue in further:
                offsets.advance(queue, 1)
        if log.pending_size >= _MOST_PENDING:
            log.commit()

    def _numbered(self, ticket: PutTicket, position: int, store_timestamp: int) -> bytes | bytearray:
        """Give a ticket its place and its queue offsets; return the bytes of its records."""
        queue_offset = 0
        if ticket.count:
            table, queue = self._offsets.table, ticket.queue
            queue_offset = table.get(queue, 0)
            table[queue] = queue_offset + ticket.count
        records = ticket.records
        place_record, has_crc = self._place_record, self._has_crc
        data: bytes | bytearray
        if len(records) == 1:
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


def _do_nothing() -> None:
    """Nobody wants to know."""
