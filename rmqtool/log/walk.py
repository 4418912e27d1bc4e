"""The tolerant walk: every record of a segment in order, and damage. It finds the next record after damage.

The walk never stops at damage. A record with sound lengths but a wrong checksum or offset is passed by its size. Where
the structure is broken, the walk searches for the next *self-consistent* record: its magic, lengths that add up, a
right body checksum, and its own physical offset.

Valid records can also be old: a recovery moves the end of the log back and clears nothing. A record after a break is
*stale* if it is older than the last record before the break.

A size is trusted until something valid contradicts it: a damaged record or a blank ends where a record with a right
physical offset begins. Bytes that the disk cannot read are damage too; see ``files.salvaged``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.files.filesystem import Extent, ReadableFile
from rmqtool.files.salvaged import salvaged
from rmqtool.formats import layouts
from rmqtool.formats.codes import MAGIC_BYTES, RECORD_MAGICS
from rmqtool.formats.commit_log import (
    BLANK_SIZE,
    MIN_RECORD_SIZE,
    Blank,
    Message,
    Nothing,
    check_record,
    decode_record,
    find_record_end,
)
from rmqtool.formats.dledger import HEAD_SIZE, DLedgerBlank, decode_entry_head
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import DLedgerEntryHead

# Bytes of a file that a walk reads at once.
WINDOW = 1 << 20
# Bytes read for a single record, unless it is larger.
RECORD_WINDOW = 4096
_ZEROS = bytes(WINDOW)
# The next record is usually near, so a search begins with a small piece and takes larger ones.
_FIRST_PIECE = 16 << 10
_GROWTH = 4
_START_SIZE = layouts.RECORD_START.size
_MAGIC_AT = layouts.RECORD_START.field("magic").offset


class Place(NamedTuple):
    """The bytes at ``file_offset``: a valid message, a blank, nothing, or a flaw; and its length.

    ``damaged`` is the message of a flaw if its structure is sound (wrong checksum, wrong offset).
    """

    file_offset: int
    length: int
    what: Message | Blank | Nothing | Flaw
    damaged: Message | None = None


class Window:
    """A view of a file that is read in large pieces, for a walk that mostly goes forward."""

    def __init__(self, file: ReadableFile, end: int, least: int = WINDOW) -> None:
        self.file = salvaged(file)
        self.end = end
        self.least = least
        self.start = 0
        self.data = b""

    def view(self, file_offset: int, length: int) -> tuple[bytes, int]:
        """Return a buffer that holds up to ``length`` bytes from ``file_offset`` on, and the index of the first one."""
        length = min(length, self.end - file_offset)
        if file_offset < self.start or file_offset + length > self.start + len(self.data):
            self.start = file_offset
            self.data = self.file.pread(min(max(length, self.least), self.end - file_offset), file_offset)
        return self.data, file_offset - self.start


class SegmentWalk:
    """One walk over one segment.

    ``base_offset`` is the physical offset of the file's first byte, or None if it is unknown; offsets in records are
    not compared then. ``compacted`` is for compaction logs, whose records keep the checksum block of their original
    offset.
    """

    def __init__(
        self, file: ReadableFile, base_offset: int | None, end: int | None = None, *, compacted: bool = False
    ) -> None:
        size = file.size()
        self.end = size if end is None else min(end, size)
        self.base_offset = base_offset
        self.compacted = compacted
        self.file = salvaged(file)
        self.window = Window(self.file, self.end)
        # The store time of the last valid record: after a break an older record is stale.
        self.last_timestamp = 0
        # Whether zeros followed the last record: bytes after those are stale, not torn.
        self.ended = False

    def places(self, start: int = 0) -> Iterator[Place]:
        """Yield all places from ``start`` to the end; they follow each other without a gap."""
        at = start
        last: Place | None = None
        while at < self.end:
            place = self.place_at(at)
            if last is not None and isinstance(place.what, Flaw) and place.damaged is None:
                inside = self._find_overlapped(last, at)
                if inside is not None:
                    place = self._overlap(last, inside)
                    last, at = None, inside
                    yield place
                    continue
            if last is not None:
                yield last
            last = None
            if isinstance(place.what, Message):
                self.last_timestamp = place.what.store_timestamp
                last = place
            else:
                yield place
            at += place.length
        if last is not None:
            yield last

    def _find_overlapped(self, last: Place, end: int) -> int | None:
        """Return where a record begins that is inside the last one and reaches past its end, or None.

        The size of the last record is wrong then: only a record with its own physical offset counts, and that cannot
        be inside another one by chance.
        """
        found = self.find_record(last.file_offset + MIN_RECORD_SIZE, end)
        record = None if found is None else self._decode(found)
        if found is None or not isinstance(record, Message) or found + record.total_size <= end:
            return None
        return found

    def _overlap(self, last: Place, inside: int) -> Place:
        """Return a record as damage that ends where a record ``inside`` it begins."""
        length = inside - last.file_offset
        text = f"the record overlaps the next one by {last.length - length} bytes"
        message = last.what if isinstance(last.what, Message) else last.damaged
        return Place(last.file_offset, length, Flaw("CL-LEN", text, 0, length), message)

    def place_at(self, file_offset: int) -> Place:
        """Return the place at ``file_offset``, where a record is expected."""
        place = self._place_at(file_offset)
        unread = self.file.find_unreadable(file_offset, file_offset + place.length)
        return place if unread is None else self._unread(place, unread)

    def _place_at(self, file_offset: int) -> Place:
        """Return the place at an offset, before unreadable bytes are considered.

        A blank counts only if it reaches the end of the segment and no newer record is inside. If no structure is
        sound, all bytes up to the next self-consistent record are one flaw.
        """
        found = self._decode(file_offset)
        if isinstance(found, Message):
            flaw = next(self._check(found, file_offset), None)
            if flaw is None:
                return Place(file_offset, found.total_size, found)
            place = Place(file_offset, found.total_size, flaw, found)
            inside = self._find_inside(place)
            return place if inside is None else self._overlap(place, inside)
        if isinstance(found, Blank):
            left = self.end - file_offset
            inside = None if self.base_offset is None else self._find_newer(file_offset + BLANK_SIZE)
            if found.total_size == left and inside is None:
                return Place(file_offset, found.total_size, found)
            if found.total_size == left:
                text = f"a blank record to the end of the segment, but records follow in it, first at {inside}"
                found = Flaw("CL-MAGIC", text)
            else:
                found = Flaw("CL-LEN", f"blank record of {found.total_size} bytes, but {left} are left in the segment")
        written = self.find_nonzero(file_offset) if isinstance(found, Nothing) else file_offset
        following = None if written is None else self.find_record(max(written - _MAGIC_AT, file_offset) + 1)
        if following is None:
            return self._rest(file_offset, found, written)
        record = self._decode(following)
        if isinstance(record, Message) and record.store_timestamp < self.last_timestamp:
            length = self.end - file_offset
            text = f"older records follow after the end of the log, first at {following}"
            return Place(file_offset, length, Flaw("CL-STALE", text, 0, length))
        length = following - file_offset
        if isinstance(found, Nothing):
            return Place(file_offset, length, Flaw("CL-MID", "zeros where a record is expected", 0, length))
        return Place(file_offset, length, found._replace(length=length))

    def _find_inside(self, damaged: Place) -> int | None:
        """Return where a valid record begins inside the bytes of a damaged one, whose size is wrong then; else None."""
        end = damaged.file_offset + damaged.length
        found = None if self.base_offset is None else self.find_record(damaged.file_offset + MIN_RECORD_SIZE, end)
        return found if found is not None and found < end else None

    def _find_newer(self, file_offset: int) -> int | None:
        """Return where the next record begins if it is not older than the last one before.

        None without a record, and for an older one: a recovery left it there.
        """
        found = self.find_record(file_offset)
        record = None if found is None else self._decode(found)
        is_newer = isinstance(record, Message) and record.store_timestamp >= self.last_timestamp
        return found if is_newer else None

    def _unread(self, place: Place, unread: Extent) -> Place:
        """Return the place with the unreadable bytes as its flaw."""
        end = place.file_offset + place.length
        if end == self.end and place.damaged is None and not isinstance(place.what, Blank):
            end = min(end, unread.end)  # it is unknown what was here; what follows is decided on its own
        length = end - place.file_offset
        begin, stop = max(unread.file_offset, place.file_offset), min(unread.end, end)
        text = f"{stop - begin} bytes at {begin} cannot be read: the disk reports an error"
        return Place(place.file_offset, length, Flaw("ST-READ", text, begin - place.file_offset, stop - begin))

    def record_at(self, file_offset: int, *, verify: bool = True) -> Message | Flaw | None:
        """Return the valid record at ``file_offset``; the flaw of a sound structure; None without a record.

        Without ``verify`` a sound structure is enough: checksum and offset may be wrong.
        """
        found = self._decode(file_offset)
        if not isinstance(found, Message):
            return None
        return next(self._check(found, file_offset), None) or found if verify else found

    def find_record(self, file_offset: int, before: int | None = None) -> int | None:
        """Return where the next self-consistent record begins, or the blank that reaches the end; None without one.

        With ``before``, only records that begin before that offset are looked for.
        """
        at, length = file_offset, _FIRST_PIECE
        end = self.end if before is None else min(before + _START_SIZE - 1, self.end)
        while at + _START_SIZE <= end:
            piece = self.file.pread(min(length, end - at), at)
            length = min(length * _GROWTH, WINDOW)
            for candidate in _candidates(piece):
                if self._is_self_consistent(at + candidate):
                    return at + candidate
            if len(piece) < _START_SIZE:
                return None
            at += len(piece) - _START_SIZE + 1
            # Continue at the next data, because a hole can be as large as a disk. A magic is after a size, whose zeros
            # may be the end of the hole.
            if piece == _ZEROS:
                data = next(iter(self.file.iter_data(at, end)), None)
                if data is None:
                    return None
                at = max(at, data.file_offset - _MAGIC_AT)
        return None

    def _is_self_consistent(self, file_offset: int) -> bool:
        """Return whether a right record is at an offset, or a blank that reaches the end of the segment."""
        found = self._decode(file_offset)
        if isinstance(found, Blank):
            return found.total_size == self.end - file_offset
        if not isinstance(found, Message) or found.store_timestamp <= 0:
            return False
        return next(self._check(found, file_offset), None) is None

    def _decode(self, file_offset: int) -> Message | Blank | Nothing | Flaw:
        """Decode the record at an offset. A large size is trusted only after its lengths were added up."""
        data, at = self.window.view(file_offset, _START_SIZE)
        if len(data) - at >= _START_SIZE:
            total_size, magic = layouts.RECORD_START.unpack_from(data, at)
            left = self.end - file_offset
            if magic in RECORD_MAGICS and MIN_RECORD_SIZE <= total_size <= left:
                if total_size > WINDOW and not self._adds_up(file_offset, total_size):
                    return Flaw(
                        "CL-LEN", f"the record header says {total_size} bytes, its fields add up to something else"
                    )
                data, at = self.window.view(file_offset, total_size)
            elif magic in RECORD_MAGICS:
                return Flaw("CL-LEN", f"size {total_size}, {left} bytes are left in the segment")
        return decode_record(data, at)

    def _adds_up(self, file_offset: int, total_size: int) -> bool:
        """Return whether the lengths of a large record add up, before it is read: a damaged size may be gigabytes."""

        def read(length: int, at: int) -> bytes:
            return self.file.pread(length, file_offset + at)

        return find_record_end(read, total_size) == total_size

    def _check(self, message: Message, file_offset: int) -> Iterator[Flaw]:
        """Yield the flaws of a structurally sound record: unreadable bytes, checksum, offset, time."""
        end = file_offset + message.total_size
        if self.file.find_unreadable(file_offset, end) is not None:
            return iter((Flaw("ST-READ", "bytes of the record cannot be read", 0, message.total_size),))
        data, at = self.window.view(file_offset, message.total_size)
        physical_offset = None if self.base_offset is None else self.base_offset + file_offset
        return check_record(message, data, at, physical_offset, compacted=self.compacted)

    def _rest(self, file_offset: int, found: Nothing | Flaw, written: int | None) -> Place:
        """Return the rest of the segment, in which no record follows: a torn record, zeros, or stale bytes after zeros.

        ``written`` is where the first byte is that is not zero, None if all are zeros.
        """
        left = self.end - file_offset
        if written is None:
            return Place(file_offset, left, Nothing(left))
        if written == file_offset and self.ended:
            return Place(file_offset, left, Flaw("CL-STALE", "bytes after the end of the log", 0, left))
        if written == file_offset:
            text = found.message if isinstance(found, Flaw) else f"{left} bytes are too few for a record"
            return Place(file_offset, left, Flaw("CL-TORN", text, 0, left))
        self.ended = True
        return Place(file_offset, written - file_offset, Nothing(written - file_offset))

    def find_nonzero(self, file_offset: int) -> int | None:
        """Return the offset of the first byte that is not zero, or None. Holes are not read."""
        # Take all extents before reading: a read makes reserved room look like data, and so does the
        # read-ahead past it.
        for extent in tuple(self.file.iter_data(file_offset, self.end)):
            for at in range(extent.file_offset, extent.end, WINDOW):
                piece = self.file.pread(min(WINDOW, extent.end - at), at)
                if piece != _ZEROS[: len(piece)]:
                    return at + len(piece) - len(piece.lstrip(b"\0"))
        return None


def _candidates(data: bytes) -> Iterator[int]:
    """Yield the offsets in ``data`` where a record could begin, found by the magics, in order."""
    places = {magic: data.find(magic, _MAGIC_AT) for magic in MAGIC_BYTES}
    while True:
        due = [(place, magic) for magic, place in places.items() if place >= 0]
        if not due:
            return
        place, magic = min(due)
        yield place - _MAGIC_AT
        places[magic] = data.find(magic, place + 1)


def read_record_at(
    file: ReadableFile, base_offset: int, file_offset: int, *, verify: bool = True, compacted: bool = False
) -> Message | Flaw | None:
    """Return ``SegmentWalk.record_at`` for a caller that knows where a record begins; read nothing else."""
    walk = SegmentWalk(file, base_offset, compacted=compacted)
    walk.window = Window(walk.file, walk.end, RECORD_WINDOW)
    return walk.record_at(file_offset, verify=verify)


class EntryPlace(NamedTuple):
    """An entry of a DLedger data file with its record, or what ends the entries: then ``record`` is Nothing."""

    file_offset: int
    length: int
    head: DLedgerEntryHead | DLedgerBlank | Nothing | Flaw
    record: Place


def find_dledger_entry(file: ReadableFile, base_offset: int, file_offset: int) -> int:
    """Return where the next entry with a right record begins; the end of the file without one."""
    file = salvaged(file)
    walk, end = SegmentWalk(file, base_offset), file.size()
    found = walk.find_record(file_offset + HEAD_SIZE)
    while found is not None:
        at = found - HEAD_SIZE
        head = decode_entry_head(file.pread(HEAD_SIZE, at), 0, end - at)
        if isinstance(head, DLedgerEntryHead) and head.pos == base_offset + at:
            return at
        found = walk.find_record(found + 1)
    return end


def walk_dledger(file: ReadableFile, base_offset: int, start: int = 0) -> Iterator[EntryPlace]:
    """Yield the entries of a DLedger data file from ``start``, where one is expected, and last what ends the file."""
    file = salvaged(file)
    at, size = start, file.size()
    while at < size:
        data = file.pread(HEAD_SIZE, at).ljust(HEAD_SIZE, b"\0")
        head = decode_entry_head(data, 0, size - at)
        if not isinstance(head, DLedgerEntryHead):
            rest = Nothing(size - at)
            yield EntryPlace(at, size - at, head, Place(at, size - at, rest))
            return
        record_at = at + HEAD_SIZE
        if head.size > HEAD_SIZE:
            record = SegmentWalk(file, base_offset, at + head.size).place_at(record_at)
        else:
            record = Place(record_at, 0, Nothing(0))
        yield EntryPlace(at, head.size, head, record)
        at += head.size
