"""The commit log being written: appending, rolling to the next segment, committing, forcing.

Upstream: ``CommitLog``, ``MappedFileQueue``, ``AllocateMappedFileService``. Four positions of the log grow one behind
the other: ``wrote`` is what was appended, ``committed`` what stands in the file and can be read, ``flushed`` what
survives a power cut, and the dispatcher has a fourth. Without the off-heap pool an append is committed at once.

Bytes reach the file by ``pwrite``, forcing is ``fdatasync``: a store through a shared map would kill the process on a
bad sector. A new segment is reserved, synced and named durably before anything in it is acknowledged.

One thread appends at a time, one forces at a time; the two may overlap, and readers may come from anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from rmqtool.errors import WriteFailed
from rmqtool.formats.commit_log import BLANK_SIZE, encode_blank
from rmqtool.formats.paths import segment_name
from rmqtool.storage.filesystem import WritableFile, WritableFileSystem, join, make_directories
from rmqtool.storage.segments import Segment, SegmentQueue

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
    ) -> None:
        self.directories = tuple(directories)
        self.segment_size = segment_size
        self.segments = SegmentQueue(segments, segment_size)
        self.wrote_offset = self.committed_offset = self.flushed_offset = tail.offset
        # Store times of the last record that was appended, and of the last one that is committed.
        self.store_timestamp = self._committed_timestamp = tail.store_timestamp
        # Directories whose disks are too full for a new segment.
        self.full_directories: Callable[[], frozenset[LogDirectory]] = frozenset
        self._pending: list[bytes] = []
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

    def append(self, data: bytes, store_timestamp: int) -> None:
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

    def write(self, data: bytes, store_timestamp: int) -> None:
        """Append bytes that fit, and commit them, when nothing waits for that."""
        file = self._current
        assert file is not None, "there is room only in a segment"
        offset, base = self.wrote_offset, self._base
        self._unsynced[base] = file
        file.pwrite(data, offset - base)
        self.store_timestamp = store_timestamp
        self.wrote_offset = self.committed_offset = offset + len(data)
        self._committed_timestamp = store_timestamp

    def prepare_next(self) -> None:
        """Make the segment behind the one that is written, or the first one; any thread may do it ahead of time.

        Nothing has changed if it cannot be made. upstream: CommitLog writes the blank before it asks for the segment,
        and burns one whenever that fails.
        """
        with self._creation:
            if self._prepared is None:
                is_first = self._current is None
                self._prepared = self._create(self._base if is_first else self._base + self.segment_size)

    def roll(self) -> None:
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
        file = files.create(path, self.segment_size)
        try:
            file.fsync()
            files.fsync_dir(directory.path)
        except WriteFailed:
            file.close()
            # The first error tells what is wrong; that the file stays behind, too, adds nothing to it.
            with suppress(WriteFailed):
                files.unlink(path)
            raise
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
        hint = "readOnlyCommitLogStorePaths names it"
        raise WriteFailed(f"{segment.path} lies in a directory that is only read", file=segment.path, hint=hint)


def _pages(offset: int) -> int:
    return offset // PAGE_SIZE
