"""``CommitLog``: with which file recovery begins, how far it reads, where it cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import BLANK_MAGIC, MESSAGE_MAGIC_V1, RECORD_MAGICS, SysFlag
from rmqtool.formats.commit_log import Message
from rmqtool.formats.java import remainder
from rmqtool.upstream import broker_log
from rmqtool.upstream.batches import Run
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.checkpoint import Checkpoint
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.mapped_files import LoadRefused, MappedFile, MappedFileQueue
from rmqtool.upstream.record_check import EndOfFile, RecordCheck, SegmentWindow, Unreadable
from rmqtool.upstream.settings import StartSettings

# After a clean stop a 4.9 broker reads this many files at the end of the log.
NORMAL_FILES_4_9 = 3

_START = layouts.RECORD_START
_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_PREFIX_V6 = layouts.MESSAGE_PREFIX_V6V4


class Taker(NamedTuple):
    """Takes the records that recovery reads: single ones, and runs of them."""

    one: Callable[[Message], None]
    run: Callable[[Run], None]


class Place(NamedTuple):
    """A place in a file."""

    path: str
    file_offset: int


class CommitLog:
    """The log of a store."""

    def __init__(self, files: StoreFiles, settings: StartSettings, log: BrokerLog, *, in_runs: bool) -> None:
        self._in_runs = in_runs
        self._files = files
        self._settings = settings
        self._log = log
        self.mapped = MappedFileQueue(files, settings.commit_log_dirs, settings.commit_log_file_size)
        self.check = RecordCheck(settings, log)
        # Results of the last recovery: the files that it read, the start of the last record, and where it ended.
        self.scanned: list[str] = []
        self.last_record: int | None = None
        self.end: Place | None = None
        # Whether none of the files that 5.4 looks at qualified, so that it begins with the oldest of them.
        self.limited = False

    def load(self) -> None:
        """Load the segments."""
        self.mapped.load(self._log, self._settings.is_4_9)

    def window(self, file: MappedFile) -> SegmentWindow:
        """Return a window on a segment."""
        return SegmentWindow(lambda at, length: self._files.read(file.path, at, length))

    def start_index(self, clean: bool, max_physic_offset: int, checkpoint: Checkpoint) -> int:
        """Return the number of the file with which recovery begins."""
        files = self.mapped.mapped
        if self._settings.is_5_4:
            return self._start_index_5_4(clean, max_physic_offset, checkpoint)
        if clean and self._settings.is_4_9:
            return max(0, len(files) - NORMAL_FILES_4_9)
        if clean:
            accepts: Callable[[MappedFile], bool] = lambda file: file.start <= max_physic_offset  # noqa: E731
        else:
            latest = checkpoint.min_timestamp
            if self._settings.index_safe:
                latest = min(latest, checkpoint.index_msg_timestamp)
            accepts = lambda file: self._is_old_enough(file, latest)  # noqa: E731
        return next((i for i in reversed(range(len(files))) if accepts(files[i])), 0)

    def _is_old_enough(self, file: MappedFile, latest: int) -> bool:
        """Return whether a file qualifies, by magic and time of its first record.

        Upstream: ``isMappedFileMatchedRecover``.
        """
        head = self._files.read(file.path, 0, _PREFIX_V6.size)
        if len(head) < _PREFIX_V6.size:
            return False
        values = layouts.MessagePrefix._make(_PREFIX.unpack_from(head))
        magics = (MESSAGE_MAGIC_V1,) if self._settings.is_4_9 else RECORD_MAGICS
        if values.magic not in magics:
            return False
        if values.sys_flag & SysFlag.BORN_HOST_V6:
            values = layouts.MessagePrefix._make(_PREFIX_V6.unpack_from(head))
        return values.store_timestamp != 0 and values.store_timestamp <= latest

    def _start_index_5_4(self, clean: bool, max_physic_offset: int, checkpoint: Checkpoint) -> int:
        """Return the newest file whose first record passes the full check, else the oldest that it looks at."""
        files = self.mapped.mapped
        oldest = max(0, len(files) - self._settings.recover_max_num)
        for i in range(len(files) - 1, oldest, -1):
            if self._is_start_5_4(files[i], clean, max_physic_offset, checkpoint):
                return i
        self.limited = oldest > 0
        return oldest

    def _is_start_5_4(self, file: MappedFile, clean: bool, max_physic_offset: int, checkpoint: Checkpoint) -> bool:
        first = self.check.check(self.window(file), 0, file.size, crc=self._settings.check_crc)
        if not isinstance(first, Message) or first.store_timestamp == 0:
            return False
        safe = self._settings.index_safe
        if safe and first.store_timestamp > checkpoint.index_msg_timestamp:
            return False
        if clean:
            return first.physical_offset <= max_physic_offset
        return first.store_timestamp <= checkpoint.min_timestamp

    def scan(self, start: int, taker: Taker | None) -> int:
        """Read from file number ``start`` on, give each record to ``taker``, and return where reading ended."""
        for file in self.mapped.mapped[start:]:
            self.scanned.append(file.path)
            at = 0
            self.end = Place(file.path, at)
            for found in self._iter_found(file):
                if isinstance(found, Run):
                    self.last_record = file.start + at + found.last_start
                    at += found.size
                    if taker is not None:
                        taker.run(found)
                elif isinstance(found, Message):
                    self.last_record = file.start + at
                    at += found.total_size
                    if taker is not None:
                        taker.one(found)
                self.end = Place(file.path, at)
            if isinstance(found, Unreadable):
                if found.size > 0 and not self._settings.is_4_9:
                    self._log.warn(broker_log.HALF_MESSAGE)
                break
        return file.start + at

    def _iter_found(self, file: MappedFile) -> Iterator[Run | Message | EndOfFile | Unreadable]:
        """Yield the records of a file, sound ones in runs, and at last the reason why reading ended."""
        window, at = self.window(file), 0
        while True:
            for found in self.iter_at(window, at, file.size, crc=self._settings.check_crc):
                yield found
                if not isinstance(found, Run | Message):
                    return
                at += found.size if isinstance(found, Run) else found.total_size

    def iter_at(
        self, window: SegmentWindow, at: int, limit: int, *, crc: bool, body: bool = True
    ) -> Iterator[Run | Message | EndOfFile | Unreadable]:
        """Yield the records from a place on, in runs if possible; the last item may be the reason why reading ended."""
        batch = self.check.find_batch(window, at, limit) if self._in_runs else None
        for run in [None] if batch is None else batch.pieces(crc):
            if run is not None:
                yield run
                at += run.size
                continue
            found = self.check.check(window, at, limit, crc=crc, body=body)
            yield found
            if not isinstance(found, Message):
                return
            at += found.total_size

    def walk_unconfirmed(self, confirmed: int) -> None:
        """Read each record after ``confirmed``, as 5.x does with duplicationEnable to correct its queue offsets.

        Records are checked again here, and may end the start: a magic number other than version 1 raises. upstream:
        ``compensateForHA``, ``selectOneMessageByOffset``.
        """
        offset = 0 if confirmed == -1 else confirmed
        while (file := self.mapped.find(offset, first_if_none=offset == 0)) is not None:
            position = remainder(offset, self.mapped.file_size)
            if position + _START.size > file.wrote:
                self._log.warn(broker_log.POSITION_INVALID)
                return
            total_size, magic = _START.decode(self._files.read(file.path, position, _START.size))
            if position + total_size > file.wrote:
                self._log.warn(broker_log.POSITION_INVALID)
                return
            if file.start + position > offset:
                offset = file.start + position
                continue
            if magic == BLANK_MAGIC:
                offset += total_size
                continue
            if magic != MESSAGE_MAGIC_V1:
                self._log.warn(broker_log.LOAD_EXCEPTION)
                raise LoadRefused(
                    f"the record at {offset} is of a kind that duplicationEnable does not know", exception=True
                )
            if not isinstance(self.check.check(self.window(file), position, position + total_size), Message):
                return
            offset += total_size
