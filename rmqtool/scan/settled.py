"""How far a log is settled while a broker may be writing it: up to where reading it gives the same for ever.

A record is settled when another one, or the blank, follows it: a broker writes one after the other. The last record is
when it is right as far as its bytes tell: its checksum covers the body, and nothing in what follows the body may be
unwritten zeros. Whether it outlives a crash they do not tell: for that, whoever asks waits for a while and says up to
which store time records are old enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rmqtool.formats import layouts
from rmqtool.formats.commit_log import Blank, Message
from rmqtool.scan.columns import Rows, SegmentScan
from rmqtool.scan.dledger import DLedgerScan
from rmqtool.scan.logs import LogFile, LogKind
from rmqtool.scan.plan import read_first_time
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.walk import Place, SegmentWalk


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record that was read of a log: whether it still stands there tells whether the log was cut back."""

    physical_offset: int
    size: int
    body_crc: int
    store_timestamp: int

    @classmethod
    def of(cls, message: Message) -> LastRecord:
        """Return what is remembered of a message."""
        return cls(message.physical_offset, message.total_size, message.body_crc, message.store_timestamp)


class Mark(NamedTuple):
    """A place in a log where reading ends and goes on, and the record before it, if one was seen."""

    physical_offset: int
    last: LastRecord | None = None


def find_settled(files: Sequence[LogFile], start: Mark, not_after: int, upto: int | None = None) -> Mark:
    """Return where the log is settled, behind ``start``: records stored later than ``not_after`` (epoch ms) are not.

    With ``upto`` the answer is the first place at or behind that offset, if the log is settled so far: the log is then
    walked from ``start`` on. Without it only the last file is, if ``start`` lies before that.
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
    """Return the message whose lengths add up at a place of a log, sound or not; None where there is none."""
    file = next((file for file in files if file.base_offset <= physical_offset < file.end_offset), None)
    if file is None:
        return None
    with file.open() as opened:
        place = SegmentWalk(opened, file.base_offset).place_at(physical_offset - file.base_offset)
    return place.what if isinstance(place.what, Message) else place.damaged


def is_cut_back(files: Sequence[LogFile], mark: Mark) -> bool:
    """Return whether a log is not the one that was read up to ``mark``: a broker cut it back and wrote it anew."""
    if files and files[-1].end_offset < mark.physical_offset:
        return True
    last = mark.last
    if last is None or all(not file.base_offset <= last.physical_offset < file.end_offset for file in files):
        return False  # what was read is deleted: by that alone nobody can tell
    found = find_record(files, last.physical_offset)
    return found is None or LastRecord.of(found) != last


def find_next_record(files: Sequence[LogFile], physical_offset: int) -> int | None:
    """Return where the first right record most likely begins from a place of a log on."""
    for file in files:
        if physical_offset < file.end_offset:
            with file.open() as opened:
                at = max(physical_offset - file.base_offset, 0)
                found = SegmentScan(opened, file.base_offset).find_start(at)
            if found is not None:
                return file.base_offset + found
    return None


def _begun(files: Sequence[LogFile]) -> Sequence[LogFile]:
    """Return the files up to the last one that holds a record: a broker makes files before it needs them."""
    for count in range(len(files), 0, -1):
        if _holds_record(files[count - 1]):
            return files[:count]
    return []


def _holds_record(file: LogFile) -> bool:
    if read_first_time(file) is not None:
        return True
    with file.open() as opened:
        # Room that was only reserved is not read through.
        if not any(opened.pread(layouts.RECORD_START.size, 0)):
            return False
        return SegmentScan(opened, file.base_offset).find_start(0) is not None


def _near_end(files: Sequence[LogFile], start: Mark, not_after: int) -> Mark:
    """Return the beginning of the last file that holds a settled record, unless ``start`` lies behind it."""
    for file in reversed(files):
        first = read_first_time(file)
        if first is not None and first <= not_after:
            return max(start, Mark(file.base_offset), key=lambda mark: mark.physical_offset)
    return start


class _FileWalk:
    """One walk over a file from a mark on."""

    def __init__(self, file: LogFile, start: Mark, not_after: int, upto: int | None) -> None:
        self.file = file
        self.start = start
        self.not_after = not_after
        self.upto = upto
        # Behind the last record that is old enough, and behind the one before that.
        self.mark = self.before = start
        self._reached: int | None = None
        self._closed = False

    def run(self, *, is_last: bool) -> Mark:
        """Return how far the file is settled."""
        base = self.file.base_offset
        with self.file.open() as opened:
            if not self._take_all(opened):
                return self.mark
            if self._reached is not None and self._reached < self.file.size:
                return Mark(base + self._reached, self.mark.last)
            if not is_last or self._closed:
                return Mark(self.file.end_offset, self.mark.last)
            return self.mark if self._last_is_whole(opened) else self.before

    def _take_all(self, opened: ReadableFile) -> bool:
        """Go over what stands in the file; return whether all of it is old enough and lies before the bound."""
        for piece in self._pieces(opened):
            self._closed = isinstance(piece, Place) and isinstance(piece.what, Blank)
            if isinstance(piece, Rows) and not self._take(piece):
                return False
        return True

    def _pieces(self, opened: ReadableFile) -> Iterator[Rows | Place]:
        at = self.start.physical_offset - self.file.base_offset
        if self.file.kind is LogKind.DLEDGER:
            yield from DLedgerScan(opened, self.file.base_offset, checksums=False).pieces(at)
            return
        scan = SegmentScan(opened, self.file.base_offset, checksums=False)
        if self.start.last is not None:
            # Older records behind the end of the log must not pass for new ones.
            scan.walk.last_timestamp = self.start.last.store_timestamp
        yield from scan.pieces(at, None if self.upto is None else self.upto - self.file.base_offset)
        self._reached = scan.reached

    def _take(self, rows: Rows) -> bool:
        late = np.flatnonzero(rows.records.column("store_timestamp") > self.not_after)
        count = int(late[0]) if len(late) else len(rows.records)
        if self.upto is not None:
            count = min(count, int(np.searchsorted(rows.file_offsets(), self.upto - self.file.base_offset)))
        if count:
            self.before = self._mark(rows, count - 2) if count > 1 else self.mark
            self.mark = self._mark(rows, count - 1)
        return count == len(rows.records)

    def _mark(self, rows: Rows, row: int) -> Mark:
        names = ("physical_offset", "total_size", "body_crc", "store_timestamp")
        last = LastRecord(*(int(rows.records.column(name)[row]) for name in names))
        begin = self.file.base_offset + rows.file_offset + int(rows.records.file_offsets[row])
        return Mark(begin + last.size, last)

    def _last_is_whole(self, opened: ReadableFile) -> bool:
        """Return whether the last record is written to its end, as far as its bytes tell."""
        if self.mark == self.start or self.mark.last is None:
            return True
        at = self.mark.last.physical_offset - self.file.base_offset
        found = SegmentWalk(opened, self.file.base_offset).place_at(at).what
        return isinstance(found, Message) and all(found.raw_topic) and all(found.raw_properties)
