"""A log that a broker is writing: reading on as it grows, and how much of it is settled.

Nothing at the end of such a log is certain yet. A place that is not right is waited for; it is damage only when a right
record comes after it. The last record is yielded when it did not change between two looks, because no checksum covers
all of it. A reader continues in new files, and skips files that retention deletes before they are read.

A record is *settled* when reading it will give the same result for ever: when another record, or the blank, follows it,
because a broker writes records one after the other. The last record is settled when it looks complete: its checksum
covers the body, and the parts after the body have no zeros that may be unwritten. Whether it survives a crash cannot be
seen, so callers also choose up to which store time records are old enough.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqtool.columns.records import Records
from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import ReadableFile
from rmqtool.formats import layouts
from rmqtool.formats.commit_log import Blank, Message
from rmqtool.formats.flaws import Flaw
from rmqtool.log.ranges import read_first_time
from rmqtool.log.read import STALE, TORN, Damage, DLedgerScan, Note, Part, Rows, SegmentScan, run_end
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile, LogKind
from rmqtool.log.walk import Place, SegmentWalk, read_record_at


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record that was read. Whether it is still there tells whether the log was cut back since."""

    physical_offset: int
    size: int
    body_crc: int
    store_timestamp: int

    @classmethod
    def of(cls, message: Message) -> LastRecord:
        return cls(message.physical_offset, message.total_size, message.body_crc, message.store_timestamp)


class Mark(NamedTuple):
    """A physical offset where reading stops and continues, and the record before it, if one was read."""

    physical_offset: int
    last: LastRecord | None = None


def find_settled(files: Sequence[LogFile], start: Mark, not_after: int, upto: int | None = None) -> Mark:
    """Return up to where the log is settled, from ``start`` on. Records stored later than ``not_after`` (ms) are not.

    With ``upto``, the log is walked from ``start`` to the first record at or after that offset. Without it, the walk
    begins at the last file whose first record is old enough, if ``start`` is before that.
    """
    files = _begun(files)
    mark = _near_end(files, start, not_after) if upto is None else start
    while upto is None or mark.physical_offset < upto:
        at = mark.physical_offset
        file = next((file for file in files if at < file.end_offset), None)
        if file is None:
            break
        if at < file.base_offset:
            mark = mark._replace(physical_offset=file.base_offset)
        walk = _FileWalk(file, mark, not_after, upto)
        mark = walk.run(is_last=file == files[-1])
        if mark.physical_offset < file.end_offset:
            break
    return mark


def find_record(files: Sequence[LogFile], physical_offset: int) -> Message | None:
    """Return the message at a physical offset, even with a wrong checksum.

    None if its lengths do not add up, or if no file has that offset.
    """
    file = next((file for file in files if file.base_offset <= physical_offset < file.end_offset), None)
    if file is None:
        return None
    with file.open() as opened:
        found = read_record_at(opened, file.base_offset, physical_offset - file.base_offset, verify=False)
    return found if isinstance(found, Message) else None


def is_cut_back(files: Sequence[LogFile], mark: Mark) -> bool:
    """Return whether a broker cut the log back (and maybe wrote it again) since it was read up to ``mark``."""
    if files and files[-1].end_offset < mark.physical_offset:
        return True
    last = mark.last
    if last is None or all(not file.base_offset <= last.physical_offset < file.end_offset for file in files):
        return False  # the record was deleted by retention, which does not show that the log was cut
    found = find_record(files, last.physical_offset)
    return found is None or LastRecord.of(found) != last


def find_next_record(files: Sequence[LogFile], physical_offset: int) -> int | None:
    """Return where the first right record probably begins, from a physical offset on; None without one."""
    for file in files:
        if physical_offset < file.end_offset:
            with file.open() as opened:
                at = max(physical_offset - file.base_offset, 0)
                found = SegmentScan(opened, file.base_offset).find_start(at)
            if found is not None:
                return file.base_offset + found
    return None


def _begun(files: Sequence[LogFile]) -> Sequence[LogFile]:
    """Return the files up to the last one with a record, because a broker creates files before it needs them."""
    for count in range(len(files), 0, -1):
        if _holds_record(files[count - 1]):
            return files[:count]
    return []


def _holds_record(file: LogFile) -> bool:
    """Return whether a file has a right record, at its beginning or after damage."""
    if read_first_time(file) is not None:
        return True
    with file.open() as opened:
        # A file that begins with zeros has only reserved room, which is not read through.
        if not any(opened.pread(layouts.RECORD_START.size, 0)):
            return False
        return SegmentScan(opened, file.base_offset).find_start(0) is not None


def _near_end(files: Sequence[LogFile], start: Mark, not_after: int) -> Mark:
    """Return the beginning of the last file whose first record is old enough, or ``start`` if that is later."""
    for file in reversed(files):
        first = read_first_time(file)
        if first is not None and first <= not_after:
            return max(start, Mark(file.base_offset), key=lambda mark: mark.physical_offset)
    return start


class _FileWalk:
    """Walks one file from a mark on, to find how far it is settled; for the arguments see ``find_settled``."""

    def __init__(self, file: LogFile, start: Mark, not_after: int, upto: int | None) -> None:
        self.file = file
        self.start = start
        self.not_after = not_after
        self.upto = upto
        # The mark after the last record that is old enough, and after the one before that.
        self.mark = self.before = start
        self._reached: int | None = None
        self._closed = False

    def run(self, *, is_last: bool) -> Mark:
        """Return how far the file is settled. It ``is_last`` if no later file has a record."""
        base = self.file.base_offset
        with self.file.open() as opened:
            if not self._take_all(opened):
                return self.mark
            # The walk ended before the end of the file, at the bound.
            if self._reached is not None and self._reached < self.file.size:
                return Mark(base + self._reached, self.mark.last)
            # The blank, or another file with records, follows the last record.
            if not is_last or self._closed:
                return Mark(self.file.end_offset, self.mark.last)
            return self.mark if self._last_is_whole(opened) else self.before

    def _take_all(self, opened: ReadableFile) -> bool:
        """Walk the file; return whether all of it is old enough and before the bound."""
        for piece in self._pieces(opened):
            self._closed = isinstance(piece, Place) and isinstance(piece.what, Blank)
            if isinstance(piece, Rows) and not self._take(piece):
                return False
        return True

    def _pieces(self, opened: ReadableFile) -> Iterator[Rows | Place]:
        """Yield the records and places of the file from the start mark on, up to the bound if there is one."""
        at = self.start.physical_offset - self.file.base_offset
        if self.file.kind is LogKind.DLEDGER:
            yield from DLedgerScan(opened, self.file.base_offset, checksums=False).pieces(at)
            return
        scan = SegmentScan(opened, self.file.base_offset, checksums=False)
        if self.start.last is not None:
            # Stale records after the end of the log must not be taken for new ones.
            scan.walk.last_timestamp = self.start.last.store_timestamp
        yield from scan.pieces(at, None if self.upto is None else self.upto - self.file.base_offset)
        self._reached = scan.reached

    def _take(self, rows: Rows) -> bool:
        """Move the mark past the rows that are old enough and before the bound; return whether all of them are."""
        late = np.flatnonzero(rows.records.column("store_timestamp") > self.not_after)
        count = int(late[0]) if len(late) else len(rows.records)
        if self.upto is not None:
            count = min(count, int(np.searchsorted(rows.file_offsets(), self.upto - self.file.base_offset)))
        if count:
            self.before = self._mark(rows, count - 2) if count > 1 else self.mark
            self.mark = self._mark(rows, count - 1)
        return count == len(rows.records)

    def _mark(self, rows: Rows, row: int) -> Mark:
        """Return the mark after the record in a row."""
        names = ("physical_offset", "total_size", "body_crc", "store_timestamp")
        last = LastRecord(*(int(rows.records.column(name)[row]) for name in names))
        begin = self.file.base_offset + rows.file_offset + int(rows.records.file_offsets[row])
        return Mark(begin + last.size, last)

    def _last_is_whole(self, opened: ReadableFile) -> bool:
        """Return whether the last record is written completely, as far as its bytes tell; True without a record."""
        if self.mark == self.start or self.mark.last is None:
            return True
        at = self.mark.last.physical_offset - self.file.base_offset
        found = SegmentWalk(opened, self.file.base_offset).place_at(at).what
        return isinstance(found, Message) and all(found.raw_topic) and all(found.raw_properties)


class Follower:
    """Reads a log on from ``place`` as it grows; ``list_files`` returns its files at the moment."""

    def __init__(self, list_files: Callable[[], Sequence[LogFile]], selection: Selection, place: int) -> None:
        self.list_files = list_files
        self.selection = selection
        self.place = place
        self._last_timestamp = 0
        # A place that was not right although records follow it. If it is the same at the next look, it is damage.
        self._suspect: int | None = None
        # The bytes of the last record at the last look.
        self._tail = b""

    def poll(self) -> Iterator[Part | Damage | Note]:
        """Yield the messages that are new since the last call, and the damage and notes among them."""
        going = True
        while going:
            files = self.list_files()
            file = next((file for file in files if file.base_offset <= self.place < file.end_offset), None)
            after = self.place if file is None else file.end_offset
            following = next((other for other in files if other.base_offset >= after), None)
            going = False
            if file is not None:
                is_last = following is None or read_first_time(following) is None
                try:
                    going = yield from self._read(file, is_last)
                except ReadFailed:
                    return  # deleted or cut at this moment; the next listing tells
            elif following is not None and following.base_offset > self.place:
                yield Note(f"the log from {self.place} to {following.base_offset} was deleted before it was read")
                self.place, going = following.base_offset, True

    def _read(self, file: LogFile, is_last: bool) -> Generator[Part | Damage, None, bool]:
        """Yield what is new in a file; return whether to look again at once."""
        suspect, self._suspect = self._suspect, None
        with file.open() as opened:
            pieces = self._pieces(opened, file)
            held: Rows | None = None
            for piece in pieces:
                if held is not None and not (isinstance(piece, Place) and is_last and self._is_open(piece)):
                    yield from self._give(held, file)
                    held = None
                if isinstance(piece, Rows):
                    held = piece
                    continue
                if held is not None:
                    yield from self._give_settled(held, file)
                    return False
                if isinstance(piece.what, Flaw):
                    if is_last and self.place != suspect:
                        self._suspect = self.place if any(isinstance(later, Rows) for later in pieces) else None
                        return self._suspect is not None
                    yield Damage(piece.what.code, file.name, piece.file_offset, piece.length, piece.what.message)
                elif is_last and not isinstance(piece.what, Blank):
                    return False
                self.place = file.base_offset + piece.file_offset + piece.length
            if held is not None:
                yield from self._give_settled(held, file) if is_last else self._give(held, file)
        return self.place == file.end_offset

    def _pieces(self, opened: ReadableFile, file: LogFile) -> Iterator[Rows | Place]:
        """Yield the records and places of a file from ``place`` on."""
        start = self.place - file.base_offset
        if file.kind is LogKind.DLEDGER:
            return DLedgerScan(opened, file.base_offset).pieces(start)
        scan = SegmentScan(opened, file.base_offset)
        scan.walk.last_timestamp = self._last_timestamp
        return scan.pieces(start)

    def _is_open(self, place: Place) -> bool:
        """Return whether a broker may still write at a place."""
        return not isinstance(place.what, Blank) and (
            not isinstance(place.what, Flaw) or place.what.code in (STALE, TORN)
        )

    def _give(self, rows: Rows, file: LogFile) -> Iterator[Part]:
        """Yield those of some right records that are wanted, and move ``place`` past all of them."""
        self.place = file.base_offset + rows.file_offset + run_end(rows.records)
        self._last_timestamp = int(rows.records.column("store_timestamp")[-1])
        wanted = self.selection.select(rows.records)
        if len(wanted):
            yield Part(wanted, file, rows.file_offset)

    def _give_settled(self, rows: Rows, file: LogFile) -> Iterator[Part]:
        """Yield the records at the end of the log; the last one only if it did not change since the last look."""
        records, count = rows.records, len(rows.records)
        begin = int(records.file_offsets[-1])
        tail = records.data[begin : begin + int(records.column("total_size")[-1])].tobytes()
        is_whole = tail == self._tail and not _has_zeros(records)
        self._tail = b"" if is_whole else tail
        if is_whole or count > 1:
            yield from self._give(rows if is_whole else rows._replace(records=records.select(slice(count - 1))), file)


def _has_zeros(records: Records) -> bool:
    """Return whether the topic or properties of the last record contain zeros that may be unwritten bytes."""
    begin = int(records.topic_offsets[-1])
    topic = records.data[begin : begin + int(records.topic_lengths[-1])]
    begin = int(records.properties_offsets[-1])
    properties = records.data[begin : begin + int(records.properties_lengths[-1])]
    return not (topic.all() and properties.all())
