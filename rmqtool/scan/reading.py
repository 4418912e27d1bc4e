"""A log as an ordered stream: wanted messages in parts, and what was damaged between them.

What stands behind the last message is told apart from damage: older records that a recovery left there, and, while a
broker is writing, a record that is not whole yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.bulk.records import Records
from rmqtool.errors import ReadFailed
from rmqtool.formats.commit_log import Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.scan.columns import Rows, SegmentScan
from rmqtool.scan.dledger import DLedgerScan
from rmqtool.scan.logs import LogFile, LogKind
from rmqtool.scan.selection import Selection
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.walk import Place

STALE, TORN, UNWRITTEN = "CL-STALE", "CL-TORN", "CL-MAGIC"


class Damage(NamedTuple):
    """Bytes of a file that hold no message, or not the one they should: what is wrong, and where."""

    code: str
    file: str
    file_offset: int
    length: int
    message: str

    def as_json(self) -> dict[str, object]:
        """Return the Damage object of the contract."""
        names = ("code", "file", "offset", "length", "message")
        return {"damage": dict(zip(names, self, strict=True))}


def is_damage(left_over: Damage, *, records_behind: bool, live: bool) -> bool:
    """Return whether what stands behind the last record of a file is damage.

    It is where records follow in the files behind. At the end of a log zeros, older records and, while a broker is
    writing, a record that is not whole yet are what is to be expected.
    """
    return records_behind or not (left_over.code in (STALE, UNWRITTEN) or (left_over.code == TORN and live))


class Note(NamedTuple):
    """Something that a reader of the stream should know and that is no damage."""

    text: str


class Part(NamedTuple):
    """Wanted messages of one file, in their order.

    Byte 0 of their buffer is at ``file_offset`` of the file. With None the buffer was put together, and each record
    lies where it says.
    """

    records: Records
    file: LogFile
    file_offset: int | None

    def record_offset(self, row: int) -> int:
        """Return where the record of a row begins in the file."""
        if self.file_offset is None:
            return int(self.records.column("physical_offset")[row]) - self.file.base_offset
        return self.file_offset + int(self.records.file_offsets[row])

    def body_damage(self, row: int, flaw: Flaw) -> Damage:
        """Return the damage of a body that does not inflate."""
        at = int(self.records.body_offsets[row]) - int(self.records.file_offsets[row])
        return Damage(flaw.code, self.file.name, self.record_offset(row) + at, flaw.length, flaw.message)


class Range(NamedTuple):
    """Bytes of a file from ``start`` to the first right record at or behind ``stop``; None is the end of the file.

    Where ``is_guess``, no record need begin at ``start``: the range then begins with the first one that is found.
    """

    file: LogFile
    start: int = 0
    stop: int | None = None
    is_guess: bool = False


class RangeReader:
    """One range being read.

    Afterwards ``began`` and ``reached`` say where it really began and ended: None where no record was found, or where
    reading failed. ``rows`` counts right records, wanted or not. ``left_over`` is what stands behind the last of them
    in the file, when only what follows in the log can tell whether it is damage.
    """

    def __init__(self, asked: Range, selection: Selection, *, checksums: bool = True) -> None:
        self.asked = asked
        self.selection = selection
        self.checksums = checksums
        self.began: int | None = None
        self.reached: int | None = None
        self.rows = 0
        self.left_over: Damage | None = None

    def parts(self) -> Iterator[Part | Damage]:
        """Yield the wanted messages and the damage of the range."""
        try:
            with self.asked.file.open() as file:
                yield from self._read(file)
        except ReadFailed as error:
            if isinstance(error.__cause__, PermissionError):
                raise
            self.reached = None
            at = max(self.asked.start, error.offset or 0)
            end = self.asked.file.size if self.asked.stop is None else self.asked.stop
            yield Damage("ST-READ", self.asked.file.name, at, max(end - at, 0), error.message)

    def _read(self, file: ReadableFile) -> Iterator[Part | Damage]:
        log, start, stop, is_guess = self.asked
        if log.kind is LogKind.DLEDGER:
            entries = DLedgerScan(file, log.base_offset, checksums=self.checksums)
            self.began = start
            yield from self._taken(entries.pieces(start), entries.end)
            self.reached = entries.end
            return
        compacted = log.kind is LogKind.COMPACTION
        segment = SegmentScan(file, log.base_offset, checksums=self.checksums, compacted=compacted)
        self.began = segment.find_start(start, stop) if is_guess else start
        if self.began is not None:
            yield from self._taken(segment.pieces(self.began, stop), segment.end)
            self.reached = segment.reached

    def _taken(self, pieces: Iterator[Rows | Place], end: int) -> Iterator[Part | Damage]:
        """Yield what is wanted of the pieces of a file that ends at ``end``."""
        for piece in pieces:
            if isinstance(piece, Place):
                yield from self._damage(piece, end)
                continue
            self.rows += len(piece.records)
            wanted = self.selection.select(piece.records)
            if len(wanted):
                yield Part(wanted, self.asked.file, piece.file_offset)

    def _damage(self, place: Place, end: int) -> Iterator[Damage]:
        reaches_end = place.file_offset + place.length == end
        if isinstance(place.what, Flaw):
            code, text = place.what.code, place.what.message
        elif isinstance(place.what, Nothing) and reaches_end and self.asked.file.kind is not LogKind.COMPACTION:
            # A compacted file is never full: its zeros tell nothing.
            code, text = UNWRITTEN, "zeros where a record is due"
        else:
            return
        found = Damage(code, self.asked.file.name, place.file_offset, place.length, text)
        if reaches_end and (code in (STALE, TORN) or isinstance(place.what, Nothing)):
            self.left_over = found
        elif self._concerns(place):
            yield found

    def _concerns(self, place: Place) -> bool:
        """Return whether damage may have taken a wanted message."""
        if self.asked.file.base_offset + place.file_offset + place.length <= self.selection.physical_from:
            return False
        return place.damaged is None or self.selection.may_want(place.damaged)
