"""The case: the store under judgement, and what is known about it so far."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqtool.audit.damage import Stretch, find_covering, is_any_between, lost_between
from rmqtool.errors import DatabaseUnopened, FileMissing, OptionalMissing, ReadFailed
from rmqtool.files.filesystem import LockState
from rmqtool.files.salvaged import SalvagedFile
from rmqtool.findings import Finding, Place, Severity
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.log.end import LogEnd, aligned_log, find_log_end
from rmqtool.store.config_files import Configs, batch_topics, read_configs
from rmqtool.store.listing import FoundFile, QueueId
from rmqtool.store.open import Store, relative_to, unread_finding
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.checks.next_start import NextStart


class Depth(IntEnum):
    """How closely a store is checked."""

    QUICK = 0
    DEFAULT = 1
    DEEP = 2


class Walk(NamedTuple):
    """The part of the log that a check has read, and whether it reaches the log's beginning and end."""

    start: int
    end: int
    begins: bool = True
    ends: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether the whole log was read."""
        return self.begins and self.ends


# The files that the log is read without where they cannot be read.
_SET_ASIDE = (FileKind.CONSUME_QUEUE, FileKind.CONSUME_QUEUE_EXT, FileKind.BATCH_CONSUME_QUEUE, FileKind.INDEX)
_PIECE = 1 << 20


@dataclass
class Case:
    """A store under judgement.

    ``live``: another process holds the lock, so nothing after ``settled`` is judged: it may be in flight.
    ``damage`` are the damaged ranges of the log, ``stale`` the ranges that an earlier recovery left after the end.
    ``odd_times``, ``odd_records`` and ``odd_properties`` are records with a wrong time, a queue that is not their own,
    or changed properties; ``last_seen`` is the newest store time in a record with a flaw.
    ``row_queues`` are the queues that are rows of a database, ``log_queues`` those that records of the log belong to;
    both are empty until that was read.
    """

    store: Store
    depth: Depth
    lock: LockState | None
    damage: list[Stretch] = field(default_factory=list)
    stale: list[Stretch] = field(default_factory=list)
    odd_times: list[Stretch] = field(default_factory=list)
    odd_records: set[int] = field(default_factory=set)
    odd_properties: set[int] = field(default_factory=set)
    last_seen: int = 0
    missing: OptionalMissing | None = None
    row_queues: frozenset[QueueId] = frozenset()
    log_queues: frozenset[QueueId] = frozenset()
    # Queues and index files that cannot be read: left out of ``store``, and not reported as missing.
    unread_queues: frozenset[QueueId] = frozenset()
    unread_indexes: frozenset[str] = frozenset()
    # The rehearsed start, once it was needed.
    _next_start: NextStart | None = None

    @classmethod
    def of(cls, store: Store, depth: Depth) -> Case:
        """Return the case of a store. ``lock`` stays None if the lock is not a file."""
        try:
            lock = store.filesystem.lock_state()
        except ReadFailed:
            lock = None
        case = cls(store, depth, lock)
        for gap in case.log.gaps():
            case.damage.append(Stretch(gap.start_offset, gap.end_offset))
        return case

    @property
    def live(self) -> bool:
        """Whether a broker or another writer has the lock."""
        return self.lock is not None and self.lock.held

    @cached_property
    def abort(self) -> bool:
        """Whether the last stop was not clean, by the marker."""
        return self.store.filesystem.find_stat(paths.ABORT) is not None

    @cached_property
    def log(self) -> SegmentQueue:
        """The commit log: each segment at its real offset, without segments that overlap others."""
        return aligned_log(self.store.commit_log)

    @cached_property
    def queues(self) -> dict[QueueId, SegmentQueue]:
        """The simple queues on disk."""
        return self.store.listing.queues(FileKind.CONSUME_QUEUE)

    @cached_property
    def exts(self) -> dict[QueueId, SegmentQueue]:
        """The extensions of queues."""
        return self.store.listing.queues(FileKind.CONSUME_QUEUE_EXT)

    @cached_property
    def batch_queues(self) -> dict[QueueId, SegmentQueue]:
        """The batch queues on disk."""
        return self.store.listing.queues(FileKind.BATCH_CONSUME_QUEUE)

    @cached_property
    def configs(self) -> Configs:
        """The readable topics, groups and offsets; ``missing`` tells why some are not readable."""
        try:
            found = read_configs(self.store, tolerant=True)
        except OptionalMissing as error:
            self.missing = error
            return Configs()
        if self.live:  # its files changed while they were copied
            found.findings = [
                replace(one, severity=Severity.NOTICE) if one.code == "RX-OPEN" else one for one in found.findings
            ]
        return found

    def is_deleted(self, topic: str) -> bool:
        """Return whether a topic is not in topics.json, though others are."""
        known = self.store.listing.find(paths.config_path(paths.TOPICS)) is not None
        return known and bool(self.configs.topics) and topic not in self.configs.topics

    def learn_end(self, end: LogEnd) -> None:
        """Set the end of the log that a full reading has found."""
        self.__dict__["end"] = end

    @cached_property
    def end(self) -> LogEnd:
        """The end of the log, found without a full reading; for a live store the end at the first look."""
        queues = (ConsumeQueueFiles(*item) for item in self.queues.items())
        return find_log_end(self.log, queues, dledger=self.store.is_dledger)

    @cached_property
    def last_written(self) -> int:
        """Base offset of the last segment with other bytes than zeros; -1 for an empty log.

        For a live store it is the segment of the end at the first look, even if more was written since.
        """
        if self.live:
            last = self.log.find(self.end.physical_offset) or (self.log.segments[-1] if len(self.log) else None)
            return -1 if last is None else last.base_offset
        for segment in reversed(self.log.segments):
            with segment.filesystem.open_read(segment.path) as file:
                salvaged = SalvagedFile(file)
                for extent in file.iter_data(0, min(segment.size, file.size())):
                    # Unreadable bytes can be messages.
                    written = salvaged.pread(min(extent.length, 1 << 16), extent.file_offset).strip(b"\0")
                    if written or salvaged.has_unreadable:
                        return segment.base_offset
        return -1

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """The topics with batch queues: those marked so in the configuration, and those that have such queues."""
        return batch_topics(self.configs.topics) | {queue.topic for queue in self.batch_queues}

    def place(self, physical_offset: int, length: int | None = None) -> Place:
        """Return the file and file offset of a physical offset."""
        segment = self.log.find(physical_offset)
        if segment is None:
            return Place(paths.COMMIT_LOG, None, length)
        return Place(self.shown(segment), physical_offset - segment.base_offset, length)

    def shown(self, segment: Segment) -> str:
        """Return a segment's path for findings: relative to the store if it is inside."""
        if segment.filesystem is self.store.filesystem:
            return segment.path
        return os.path.relpath(segment.filesystem.shown(segment.path), self.store.root)

    def unread(self, error: ReadFailed) -> Finding:
        """Return the finding of a failed read. A file that a running broker removes is not damage."""
        # A running broker creates and removes files of a database while rmqtool copies them.
        is_gone = isinstance(error, (FileMissing, DatabaseUnopened)) and self.live
        return unread_finding(self.store.root, error, severity=Severity.NOTICE if is_gone else None)

    def is_of_queues_or_index(self, file: str | None) -> bool:
        """Return whether ``file``, as errors name it, is one of a queue or of the index: the log is read without it."""
        found = None if file is None else self.store.listing.find(relative_to(self.store.root, file))
        return found is not None and found.what.kind in _SET_ASIDE

    def find_unread(self) -> dict[str, ReadFailed]:
        """Return the files of queues and index that cannot be read, by their paths. Reads each of them."""
        found = {}
        for file in self.files(*_SET_ASIDE):
            try:
                with self.store.filesystem.open_read(file.path) as opened:
                    for extent in opened.iter_data():
                        for at in range(extent.file_offset, extent.end, _PIECE):
                            opened.pread(min(_PIECE, extent.end - at), at)
            except ReadFailed as error:
                found[file.path] = error
        return found

    def set_aside(self, unread: Collection[str]) -> Case:
        """Return the case without the queues and index files that have one of these paths."""
        files = [file for file in self.store.listing.files if file.path in unread]
        queues = {QueueId(file.what.topic or "", file.what.queue_id or 0) for file in files if file.what.topic}
        kept = [
            file
            for file in self.store.listing.files
            if file.path not in unread
            and (file.what.kind not in _SET_ASIDE or (file.what.topic, file.what.queue_id) not in queues)
        ]
        store = replace(self.store, listing=replace(self.store.listing, files=kept, _queues={}))
        case = Case.of(store, self.depth)
        case.unread_queues = frozenset(queues)
        case.unread_indexes = frozenset(file.path for file in files if file.what.kind is FileKind.INDEX)
        return case

    def words_of_next_start(self, finding: Finding) -> str | None:
        """Say what the next start of the broker does at damage in the log; None of other findings, or if not known."""
        from rmqtool.checks.next_start import DAMAGE, NextStart

        if finding.code not in DAMAGE:
            return None
        if self._next_start is None:
            self._next_start = NextStart.of(self)
        return self._next_start.words(finding, self)

    def explains(self, physical_offset: int) -> Stretch | None:
        """Return the damage that covers a physical offset."""
        return find_covering(self.damage, physical_offset)

    def is_odd_in_time(self, physical_offset: int) -> bool:
        """Return whether the record at an offset has an impossible store time."""
        return find_covering(self.odd_times, physical_offset) is not None

    def is_stale(self, physical_offset: int) -> bool:
        """Return whether an offset is among bytes that a recovery left after the end."""
        return find_covering(self.stale, physical_offset) is not None

    def damaged_between(self, start: int, end: int) -> bool:
        """Return whether there is damage between two physical offsets."""
        return is_any_between(self.damage, start, end)

    def lost_between(self, start: int, end: int) -> int:
        """Return the largest number of records that the damage between two physical offsets can have held."""
        return lost_between(start, end, self.damage)

    def files(self, *kinds: FileKind) -> list[FoundFile]:
        """Return the files of these kinds."""
        return list(self.store.listing.of_kind(*kinds))
