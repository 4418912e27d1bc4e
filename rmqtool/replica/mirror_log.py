"""The log of a mirror: the bytes of a master, at the same physical offsets, in files of the same names and sizes.

Bytes come in the order of the log. Those before the end of the mirror are compared, not written: so a master that was
cut back or replaced is noticed before anything is lost. A segment is synced before the next one is created, so only the
last segment can lack bytes after a power cut; the records in it are verified when the mirror goes on.

Bytes that never came are zeros. No checksum tells them from topic and properties of a record, only from its body: a
record whose last bytes are missing looks whole. So a record with a zero in its topic or properties is not taken for
whole here, and the master sends it again.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from rmqtool.columns.records import have_zeros
from rmqtool.engine.commit_log import Tail
from rmqtool.errors import Refused, StoreError, WriteFailed
from rmqtool.files.filesystem import (
    Kind,
    ReadableFile,
    WritableFile,
    WritableFileSystem,
    join,
    make_directories,
    new_file,
)
from rmqtool.formats.commit_log import BLANK_SIZE, Blank, Message, decode_record
from rmqtool.formats.paths import COMMIT_LOG, segment_name
from rmqtool.log.read import Rows, SegmentScan
from rmqtool.store.segments import Segment, SegmentQueue

# Bytes before its end that a mirror compares with the master's, from the beginning of a record on.
_COMPARED = 64 << 10
_PIECE = 1 << 20
# Bytes in which whole records are looked for at once.
_WINDOW = 8 << 20


class MasterChanged(Refused):
    """The master does not have bytes that the mirror has: it was cut back, or it is another one."""

    code = "master-changed"


class Verified(NamedTuple):
    """How far the last segment has whole records, and where bytes end that were written but are not a whole record.

    ``joint`` is the beginning of a record before the end: what follows it is compared.
    """

    end: int
    written_end: int
    joint: int


class MirrorLog:
    """The log of one mirror, open for writing. One thread writes and one may sync."""

    def __init__(self, files: WritableFileSystem, segment_size: int) -> None:
        self.segment_size = segment_size
        self._files = files
        make_directories(files, COMMIT_LOG)
        self._complete_newest()
        self.segments = SegmentQueue(_iter_segments(files), segment_size)
        self._require_sizes()
        # Where the next bytes of the master belong, where unverified bytes begin, and how far the log is durable.
        self.next_offset = self.wrote_offset = self.durable_offset = 0
        # Where bytes end that an earlier process wrote, and where a record begins before them.
        self._written_end = self._record_start = 0
        # Bytes that look whole and lack some of the master's: where they begin, and what they should be.
        self._lost: list[tuple[int, bytes]] = []
        self._current: WritableFile | None = None
        self._base = -1
        self._failure: WriteFailed | None = None
        # Held while the disk is forced, and while a segment is left.
        self._syncing = threading.Lock()

    def _complete_newest(self) -> None:
        """Give the newest file its size, if it has no bytes yet: the mirror ended while it created the file."""
        newest = max(_iter_segments(self._files), default=None)
        if newest is None or newest.size >= self.segment_size:
            return
        with self._files.open_write(newest.path) as file:
            if not _data_end(file, 0):
                file.truncate(self.segment_size)
                file.fsync()

    def _require_sizes(self) -> None:
        for segment in self.segments:
            if segment.size != self.segment_size or segment.base_offset % self.segment_size:
                shown = self._files.shown(segment.path)
                raise Refused(
                    f"{shown} has {segment.size} bytes; the files of this master have {self.segment_size}",
                    file=shown,
                    hint="name a new directory for the mirror of this master",
                )

    @property
    def is_empty(self) -> bool:
        """Whether nothing was mirrored yet."""
        return not len(self.segments)

    @property
    def min_offset(self) -> int:
        """The offset of the first byte."""
        return self.segments.min_offset

    def begin_at(self, physical_offset: int) -> None:
        """Begin at an offset that is not the end: of an empty mirror, or after bytes that no master has any more."""
        self._leave()
        self.next_offset = self.wrote_offset = self.durable_offset = self._written_end = physical_offset

    def verify(self) -> Verified:
        """Verify the records of the last segment, go on at their end, and return it; to be called before a connection.

        Bytes after it stay, and are compared with what the master sends: a master that lacks them was cut back.
        """
        self.sync()
        self._leave()
        last = self.segments.segments[-1]
        with self._files.open_read(last.path) as file:
            starts, end = _whole_records(SegmentScan(file, last.base_offset))
            written_end = last.base_offset + _data_end(file, end)
            # Bytes that an earlier process wrote may not be durable yet.
            self._open_current(last.base_offset).fdatasync()
        # Byte 0 is never sent, because a report of 0 does not ask for it. It is 0: no record has 16 MiB.
        end = max(end + last.base_offset, 1)
        before = [start + last.base_offset for start in starts if start + last.base_offset <= end - _COMPARED]
        if not starts:
            before = self._starts_before(last)
        self._record_start = before[-1] if before else last.base_offset
        joint = max(self._record_start, 1)
        self.wrote_offset = self.durable_offset = end
        self._written_end = max(written_end, end)
        self.next_offset = joint
        self._lost.clear()
        return Verified(end, self._written_end, joint)

    @property
    def is_compared(self) -> bool:
        """Whether all bytes that an earlier process wrote after ``joint`` are compared or came again."""
        return self.next_offset >= self._written_end

    def _starts_before(self, segment: Segment) -> list[int]:
        """Return where records of the segment before this one begin."""
        before = self.segments.find(segment.base_offset - 1)
        if before is None:
            return []
        with self._files.open_read(before.path) as file:
            starts, _ = _whole_records(SegmentScan(file, before.base_offset))
        return [start + before.base_offset for start in starts]

    def take(self, physical_offset: int, data: memoryview) -> None:
        """Take bytes of the master, the next ones. Those that the mirror has are compared."""
        assert physical_offset == self.next_offset, "the stream has checked it"
        at, end = physical_offset, physical_offset + len(data)
        while at < end:
            stop = min(end, at - at % self.segment_size + self.segment_size)
            piece = data[at - physical_offset : stop - physical_offset]
            if at < self.wrote_offset:
                piece = piece[: self.wrote_offset - at]
                self._compare(at, piece)
            else:
                if at < self._written_end:
                    self._differs(at, piece, self._written_end)
                self._write(at, piece)
            at += len(piece)
        self.next_offset = end

    def _compare(self, at: int, data: memoryview) -> None:
        """Compare with records that look whole. Bytes that were lost nevertheless are written once all are compared."""
        if self._differs(at, data, self.wrote_offset):
            self._lost.append((at, bytes(data)))
        if at + len(data) == self.wrote_offset:
            for place, lost in self._lost:
                self._enter(place - place % self.segment_size).pwrite(lost, place % self.segment_size)
                self.durable_offset = min(self.durable_offset, place)
            self._lost.clear()

    def _differs(self, at: int, data: memoryview, end: int) -> bool:
        """Return whether bytes from ``at`` on lack some of the master's: zeros are bytes that a power cut left out.

        Raises MasterChanged for other bytes than the master's.
        """
        known = self.segments.read(at, min(len(data), end - at))
        if known == data[: len(known)]:
            return False
        for begin in range(0, len(known), 4096):
            page = known[begin : begin + 4096]
            other = bytes(data[begin : begin + len(page)])
            if page != other:
                for place, (ours, theirs) in enumerate(zip(page, other, strict=True), at + begin):
                    if ours and ours != theirs:
                        raise _changed(place, end)
        return True

    def _write(self, at: int, data: memoryview) -> None:
        base = at - at % self.segment_size
        file = self._current
        if base != self._base or file is None:
            file = self._enter(base)
        file.pwrite(data, at - base)
        self.wrote_offset = at + len(data)

    def _enter(self, base: int) -> WritableFile:
        """Go on in a segment; the one before is durable then."""
        self._leave()
        if self.segments.find(base) is None:
            path = join(COMMIT_LOG, segment_name(base))
            with new_file(self._files, path, self.segment_size) as file:
                file.fsync()
            file.close()
            self._files.fsync_dir(COMMIT_LOG)
            self.segments.add(Segment(base, self.segment_size, path, self._files))
        return self._open_current(base)

    def _open_current(self, base: int) -> WritableFile:
        if self._current is None or self._base != base:
            segment = self.segments.find(base)
            assert segment is not None, "it is there"
            self._current, self._base = self._files.open_write(segment.path), base
        return self._current

    def _leave(self) -> None:
        self.sync()
        with self._syncing:
            if self._current is not None:
                self._current.close()
            self._current, self._base = None, -1

    @property
    def unsynced(self) -> int:
        """Bytes that would not survive a power cut."""
        return self.wrote_offset - self.durable_offset

    def sync(self) -> int:
        """Make everything durable that was written; return the durable end. Any thread may call it."""
        with self._syncing:
            if self._failure is not None:
                raise self._failure
            reached = self.wrote_offset
            if reached > self.durable_offset:
                assert self._current is not None, "bytes were written to it"
                try:
                    self._current.fdatasync()
                except WriteFailed as error:
                    # It is unknown now which bytes are on disk. A second sync would succeed, and prove nothing.
                    self._failure = error
                    raise
                self.durable_offset = reached
        return self.durable_offset

    def whole_end(self, since: int) -> Tail:
        """Return where the last record ends that is whole and durable; a record begins at ``since``, or a gap."""
        at, window, time = since, _WINDOW, 0
        while at < self.durable_offset:
            segment = self.segments.find(at)
            if segment is None:
                following = [one for one in self.segments if one.base_offset > at]
                if not following:
                    break
                at = following[0].base_offset
                continue
            left = min(self.durable_offset, segment.end_offset) - at
            data = self.segments.read(at, min(window, left))
            step, latest = _whole_bytes(data, segment.end_offset - at)
            time = max(time, latest)
            if not step and len(data) == left:
                # A gap can follow bytes of a record that no master has any more.
                after = self.segments.find(segment.end_offset) or segment is not self.segments.segments[-1]
                if not after or segment.end_offset > self.durable_offset:
                    break
                step = left
            # A record that is longer than the window needs a wider one.
            window = _WINDOW if step else window * 4
            at += step
        return Tail(at, time)

    def remove_first(self) -> None:
        """Remove the oldest segment, durably. The last one stays."""
        first = self.segments.segments[0]
        self.segments.remove_first()
        self._files.unlink(first.path)
        self._files.fsync_dir(COMMIT_LOG)

    def close_at_record(self) -> None:
        """Close the log, with zeros, durably, in place of a last record of which a part is still to come.

        A recovery might take that part for a whole record.
        """
        self.sync()
        end = self.whole_end(self._record_start).offset
        segment = self.segments.find(end)
        self.close()
        if segment is not None:
            with self._files.open_write(segment.path) as file:
                begin = end - segment.base_offset
                file.pwrite(bytes(_data_end(file, begin) - begin), begin)
                file.fdatasync()

    def close(self) -> None:
        """Make everything durable and close the files."""
        try:
            self._leave()
        finally:
            if self._current is not None:
                self._current.close()
            self.segments.close()


def _iter_segments(files: WritableFileSystem) -> list[Segment]:
    found = []
    for entry in files.listdir(COMMIT_LOG):
        path = join(COMMIT_LOG, entry.name)
        if entry.kind is not Kind.FILE or not entry.name.isdecimal() or segment_name(int(entry.name)) != entry.name:
            raise StoreError(
                f"{files.shown(path)} is not a segment of a log", file=files.shown(path), hint="move it away"
            )
        found.append(Segment(int(entry.name), files.stat(path).size, path, files))
    return found


def _whole_records(scan: SegmentScan) -> tuple[list[int], int]:
    """Return where some of the whole records begin, and where the last one ends, as file offsets."""
    starts: list[int] = []
    end = 0
    for piece in scan.pieces():
        if isinstance(piece, Rows):
            offsets = piece.file_offsets()
            # The first one and the last few of each window are enough to find one at some distance from the end.
            lacking = have_zeros(piece.records)
            if lacking.any():
                first = int(lacking.argmax())
                return [*starts, *map(int, offsets[:first][-256:])], int(offsets[first])
            starts += [int(offsets[0]), *map(int, offsets[-256:])]
            end = int(offsets[-1]) + int(piece.records.column("total_size")[-1])
        elif isinstance(piece.what, Blank) and piece.file_offset + piece.length == scan.end:
            return starts, scan.end
        else:
            break
    return starts, end


def _whole_bytes(data: bytes, room: int) -> tuple[int, int]:
    """Return how many bytes of ``data`` are whole records, and the store time of the last; the segment has ``room``."""
    from rmqtool.columns.starts import record_starts

    starts = record_starts(data).file_offsets
    end = time = 0
    for start in map(int, starts[-2:]):
        found = decode_record(data, start)
        if isinstance(found, Message) and start + found.total_size <= len(data):
            end, time = start + found.total_size, found.store_timestamp
    if len(data) - end >= BLANK_SIZE:
        found = decode_record(data[end : end + BLANK_SIZE])
        if isinstance(found, Blank) and found.total_size == room - end and len(data) >= room:
            return room, time
    return end, time


def _data_end(file: ReadableFile, end: int) -> int:
    """Return the file offset after the last byte that is not zero, from ``end`` on."""
    found = end
    for extent in file.iter_data(end):
        for at in range(extent.file_offset, extent.end, _PIECE):
            data = file.pread(min(_PIECE, extent.end - at), at).rstrip(b"\0")
            if data:
                found = at + len(data)
    return found


def _changed(at: int, end: int) -> MasterChanged:
    return MasterChanged(
        f"the master has other bytes at physical offset {at}; the mirror has the log up to {end}: "
        "the master lost messages and wrote others in their place, or it is another broker",
        offset=at,
        hint="the mirror was not changed: keep it, and mirror this master into a new directory",
    )


def cut_back(end: int, master_end: int) -> MasterChanged:
    """Return the error about a master that ends before the mirror does."""
    return MasterChanged(
        f"the master ends at physical offset {master_end}, the mirror at {end}: "
        f"the master lost {end - master_end} bytes, or it is another broker",
        offset=master_end,
        hint="the mirror was not changed: keep it, and mirror this master into a new directory",
    )
