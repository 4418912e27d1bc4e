"""A log that a broker is writing, read on and on.

The end of such a log is never settled. A record that is not right is waited for, until one that was appended behind it
is right: only then it is damage. The last record is given when it has not changed between two looks, since no checksum
covers all of it. New files are gone over to; files that retention deletes before they are read are stepped over.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from rmqtool.bulk.records import Records
from rmqtool.errors import ReadFailed
from rmqtool.formats.commit_log import Blank
from rmqtool.formats.flaws import Flaw
from rmqtool.scan.columns import Rows, SegmentScan, run_end
from rmqtool.scan.dledger import DLedgerScan
from rmqtool.scan.logs import LogFile, LogKind
from rmqtool.scan.plan import read_first_time
from rmqtool.scan.reading import STALE, TORN, Damage, Note, Part
from rmqtool.scan.selection import Selection
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.walk import Place


class Follower:
    """Reads a log from ``place`` on; ``list_files`` says which files it has now."""

    def __init__(self, list_files: Callable[[], Sequence[LogFile]], selection: Selection, place: int) -> None:
        self.list_files = list_files
        self.selection = selection
        self.place = place
        self._last_timestamp = 0
        # A record that is not right though others follow: when it is no better at another look, it is damage.
        self._suspect: int | None = None
        # The last record as it was at the last look.
        self._tail = b""

    def poll(self) -> Iterator[Part | Damage | Note]:
        """Yield what is new."""
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
                    return  # deleted or cut this moment: the next look at the directory tells
            elif following is not None and following.base_offset > self.place:
                yield Note(f"the log from {self.place} to {following.base_offset} was deleted before it was read")
                self.place, going = following.base_offset, True

    def _read(self, file: LogFile, is_last: bool) -> Generator[Part | Damage, None, bool]:
        """Yield what is new in a file; return whether another look may find more at once."""
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
        start = self.place - file.base_offset
        if file.kind is LogKind.DLEDGER:
            return DLedgerScan(opened, file.base_offset).pieces(start)
        scan = SegmentScan(opened, file.base_offset)
        scan.walk.last_timestamp = self._last_timestamp
        return scan.pieces(start)

    def _is_open(self, place: Place) -> bool:
        """Return whether more may be written where a place is."""
        return not isinstance(place.what, Blank) and (
            not isinstance(place.what, Flaw) or place.what.code in (STALE, TORN)
        )

    def _give(self, rows: Rows, file: LogFile) -> Iterator[Part]:
        """Yield right records, and go on behind them."""
        self.place = file.base_offset + rows.file_offset + run_end(rows.records)
        self._last_timestamp = int(rows.records.column("store_timestamp")[-1])
        wanted = self.selection.select(rows.records)
        if len(wanted):
            yield Part(wanted, file, rows.file_offset)

    def _give_settled(self, rows: Rows, file: LogFile) -> Iterator[Part]:
        """Yield the records at the end of the log; the last one when it is as it was before."""
        records, count = rows.records, len(rows.records)
        begin = int(records.file_offsets[-1])
        tail = records.data[begin : begin + int(records.column("total_size")[-1])].tobytes()
        is_whole = tail == self._tail and not _has_zeros(records)
        self._tail = b"" if is_whole else tail
        if is_whole or count > 1:
            yield from self._give(rows if is_whole else rows._replace(records=records.select(slice(count - 1))), file)


def _has_zeros(records: Records) -> bool:
    """Return whether bytes of the last record's topic or properties may not be written yet."""
    begin = int(records.topic_offsets[-1])
    topic = records.data[begin : begin + int(records.topic_lengths[-1])]
    begin = int(records.properties_offsets[-1])
    properties = records.data[begin : begin + int(records.properties_lengths[-1])]
    return not (topic.all() and properties.all())
