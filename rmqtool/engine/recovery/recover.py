"""Recovers a store, from taking the lock to removing the mark of an open store. Cuts what follows the end of the log.

The file ``abort`` tells whether the store was closed: after a crash more of the log is read (``engine.load`` has the
mark). The log decides and is read once; queues and index are compared with it meanwhile. Differences are written at
once, after the store is marked as open, so an interrupted recovery is simply repeated. A store without differences is
not written.

The checkpoint is written last: everything is durable, up to the last record. upstream: a recovery never corrects it,
and the next crash trusts it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from shlex import quote
from typing import TYPE_CHECKING

from rmqtool.config import Version
from rmqtool.engine.commit_log import LogDirectory
from rmqtool.engine.consume_queue import DerivedFiles
from rmqtool.engine.index_file import IndexService
from rmqtool.engine.load import mark_open, refuse_linked, refuse_without_log, without_log
from rmqtool.engine.parts import Setup, log_directories, read_only_directories
from rmqtool.engine.recovery.index_pass import IndexCheck
from rmqtool.engine.recovery.places import (
    BeforeWrite,
    queue_size_of,
    remove_directories,
    restore_names,
    restore_queue_files,
    restore_segment_sizes,
    segment_size_of,
)
from rmqtool.engine.recovery.queues import QueuesCheck
from rmqtool.engine.recovery.report import RecoveryReport
from rmqtool.engine.recovery.rows import RowQueuesCheck
from rmqtool.engine.row_queues import QueueRows
from rmqtool.errors import OptionalMissing, ReadFailed, Refused
from rmqtool.files.filesystem import Kind, ReadableFileSystem, WritableFileSystem, split
from rmqtool.files.free_space import require_free_space
from rmqtool.findings import Finding, Place, new_finding
from rmqtool.findings.finding import counted
from rmqtool.formats import paths
from rmqtool.formats.checkpoints import PAGE_SIZE, check_checkpoint, decode_checkpoint, encode_checkpoint
from rmqtool.formats.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from rmqtool.formats.layouts import StoreCheckpoint
from rmqtool.formats.paths import ABORT, CHECKPOINT, INDEX, FileKind
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.config_files import read_batch_topics
from rmqtool.store.index_files import Geometry, read_header
from rmqtool.store.listing import StoreListing, list_store, lock_store
from rmqtool.store.open import rules_for
from rmqtool.store.rocksdb import ListedStore
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from rmqtool.audit.damage import Damage
    from rmqtool.audit.log_pass import LogExtract, LogPass, LogReading, LogTail

# A clock that is set back by more than this (ms) is noticed, so a checkpoint further ahead of the log is wrong.
_AHEAD_MS = 3_600_000


def heal_checkpoint(
    files: WritableFileSystem,
    reading: LogPass,
    log_end: int,
    before_write: BeforeWrite,
    latest: int,
    *,
    abnormal: bool,
    has_queues: bool,
) -> None:
    """Write the checkpoint of a clean stop, if the store was not closed or the file cannot be right.

    Without ``has_queues`` the queues are in RocksDB, and their time is only lowered to that of the last record. Times
    of log and queues after ``latest`` (ms) are wrong.
    """
    data = _read(files)
    fields = decode_checkpoint(data or b"")
    newest = reading.newest_timestamp
    times = fields.physic_msg_timestamp, fields.logics_msg_timestamp, fields.index_msg_timestamp
    is_wrong = data is None or check_checkpoint(data) is not None or times[2] > newest + _AHEAD_MS
    is_wrong |= max(fields.confirm_phy_offset, fields.master_flushed_offset) > log_end
    is_wrong |= max(times[:2]) > latest
    # A clean stop writes the time of the last record, even if the clock ran backwards before.
    last = min(reading.last_timestamp, newest)
    indexed = min(max(fields.index_msg_timestamp, 0), last)
    ends = _iter_index_ends(files)
    if fields.index_msg_timestamp > next(ends, fields.index_msg_timestamp):
        # The entry with this time is not in the index any more. A clean stop leaves the end of the last full file.
        indexed, is_wrong = next(ends, 0), True
    if not (is_wrong or abnormal):
        return
    made = StoreCheckpoint(
        physic_msg_timestamp=last,
        logics_msg_timestamp=last if has_queues else min(max(fields.logics_msg_timestamp, 0), last),
        index_msg_timestamp=indexed,
        master_flushed_offset=min(max(fields.master_flushed_offset, 0), log_end),
        confirm_phy_offset=min(max(fields.confirm_phy_offset, 0), log_end),
    )
    page = encode_checkpoint(made)
    if page == data:
        return
    before_write(CHECKPOINT, "modify" if data is not None else "create")
    with files.create(CHECKPOINT, PAGE_SIZE) if data is None else files.open_write(CHECKPOINT) as file:
        file.pwrite(page, 0)
        file.truncate(PAGE_SIZE)
        file.fsync()
    files.fsync_dir()


def _iter_index_ends(files: WritableFileSystem) -> Iterator[int]:
    """Yield the end time of each index file with entries, newest file first."""
    for entry in reversed(files.listdir(INDEX) if files.is_directory(INDEX) else []):
        if entry.kind is not Kind.FILE:
            continue
        with files.open_read(f"{INDEX}/{entry.name}") as file:
            header = read_header(file)
        if header is not None and header.end_timestamp > 0:
            yield header.end_timestamp


def _read(files: WritableFileSystem) -> bytes | None:
    """Return the bytes of the checkpoint, or None without one."""
    if not files.exists(CHECKPOINT):
        return None
    with files.open_read(CHECKPOINT) as file:
        # More than a page, so that a file that is too long is noticed.
        return file.pread(2 * PAGE_SIZE, 0)


# Called with the size of each segment, in bytes, after it was read.
Advance = Callable[[int], None]
# Bytes that are zeroed at once.
_ZEROS = 1 << 20
# The settings of the sizes of queue files.
_QUEUE_SIZE = "mappedFileSizeConsumeQueue"
_BATCH_SIZE = "mapperFileSizeBatchConsumeQueue"
_EXT_SIZE = "mappedFileSizeConsumeQueueExt"


def recover(
    setup: Setup,
    advance: Advance | None = None,
    extract: LogExtract | None = None,
    *,
    room: int = 0,
    thorough: bool = False,
    past_unread: bool = False,
) -> RecoveryReport:
    """Recover a store that is not open anywhere, and leave it closed. ``advance`` is called with the bytes of log read.

    Segments that ``extract`` has kept are not read again. If a write is necessary and less than ``room`` bytes are
    free, NoSpace is raised and nothing is written. With ``thorough`` everything is repaired that a check reports, also
    what a broker leaves after a clean stop.

    A log whose last bytes the disk cannot read is refused: it may have messages there, and their entries would be
    removed. With ``past_unread``, for an overlay, its end is taken to be before those bytes.
    """
    directories = log_directories(setup)
    has_log = any(filesystem.exists(path) for filesystem, path in directories)
    if not has_log and not any(list_store(setup.files, ()).of_kind(FileKind.DLEDGER_DATA)):
        raise without_log(setup.files, setup.config)
    with lock_store(setup.files, directories):
        return _Recovery(setup, directories, advance, extract, room, thorough=thorough, past_unread=past_unread).run()


class _Recovery:
    """One recovery. ``run`` calls the steps in their order; the report grows with each."""

    def __init__(
        self,
        setup: Setup,
        directories: tuple[LogDirectory, ...],
        advance: Advance | None,
        extract: LogExtract | None,
        room: int,
        *,
        thorough: bool,
        past_unread: bool,
    ) -> None:
        self.setup = setup
        self.files = setup.files
        self.config = setup.config
        self.directories = directories
        self.advance = advance
        self.extract = extract
        self.room = room
        self.thorough = thorough
        self.past_unread = past_unread
        self.report = RecoveryReport(abnormal=setup.files.exists(ABORT))
        self._is_marked = self.report.abnormal
        self._stays_open = False
        self._dledger: frozenset[str] = frozenset()

    def run(self) -> RecoveryReport:
        """Repair names and sizes of files, compare and repair queues and index, then remove the mark."""
        listing = self._list()
        refuse_linked(listing)
        entries = listing.dledger_data().segments
        if not entries:
            refuse_without_log(listing)
        listing, segment_size = self._restore_files(listing)
        log = SegmentQueue([*listing.log_segments, *entries], segment_size)
        self._dledger = frozenset(segment.path for segment in entries)
        derived = DerivedFiles(self.files)
        try:
            with self._rows(listing) as rows:
                self._compare(listing, log, derived, rows)
        finally:
            derived.close()
            log.close()
            listing.open_files.close()
        self._close()
        return self.report

    def _list(self) -> StoreListing:
        where: list[tuple[str, ReadableFileSystem]] = [(one.path, one.filesystem) for one in self.directories]
        return list_store(self.files, [*where, *read_only_directories(self.setup)])

    def _before_write(self, path: str, action: str) -> None:
        """Record a write. Before the first one check the free space, and mark the store as open."""
        if self.room:
            require_free_space(self.files, self.room, "the recovery needs")
            self.room = 0
        if not self._is_marked:
            mark_open(self.files, self.config.version)
            self._is_marked = True
        self.report.note(path, action)

    def _find(self, findings: Iterator[Finding]) -> bool:
        """Report the findings of a step; return whether there was one, so that files changed."""
        found = list(findings)
        self.report.findings += found
        return bool(found)

    def _restore_files(self, listing: StoreListing) -> tuple[StoreListing, int]:
        """Repair names and sizes of the files of log and queues.

        Return the listing of the files after that, and the size of a segment.

        The size of the log's segments, and of the files of each kind of queue, is the one that most of them have, or
        else that of the settings. For 4.9 empty directories among the segments are removed. Each repair is a finding of
        the report.
        """
        key = "mappedFileSizeCommitLog"
        configured = self.config.mapped_file_size_commit_log
        size = segment_size_of(listing.log_segments, configured if key in self.config.origins else None) or configured
        moved = self._find(restore_names(self.directories, size, self._before_write))
        if self.config.version is Version.V4_9:
            moved |= self._find(remove_directories(self.directories, self._before_write))
        if moved:
            listing = self._list()
        changed = self._find(restore_segment_sizes(self.directories, listing.log_segments, size, self._before_write))
        for kind, unit, key, setting in (
            (FileKind.CONSUME_QUEUE, UNIT_SIZE, _QUEUE_SIZE, self.config.mapped_file_size_consume_queue),
            (
                FileKind.BATCH_CONSUME_QUEUE,
                BATCH_UNIT_SIZE,
                _BATCH_SIZE,
                self.config.mapper_file_size_batch_consume_queue,
            ),
            (FileKind.CONSUME_QUEUE_EXT, 1, _EXT_SIZE, self.config.mapped_file_size_consume_queue_ext),
        ):
            found, rounded = list(listing.of_kind(kind)), -(-setting // unit) * unit
            is_stated = key in self.config.origins
            queue_size = queue_size_of(self.files, found, unit, rounded, is_stated=is_stated)
            changed |= self._find(restore_queue_files(self.files, listing, kind, queue_size, self._before_write))
        return (self._list() if changed else listing), size

    def _source(self, listing: StoreListing) -> LogReading:
        """Return the reader of the log: ``extract`` if it has all that is wanted, so that segments are read once."""
        from rmqtool.audit.due import Wanted
        from rmqtool.audit.log_pass import LogReading

        topics = self.setup.batch_topics
        topics = read_batch_topics(self.files) if topics is None else topics
        topics |= {queue.topic for queue in listing.queues(FileKind.BATCH_CONSUME_QUEUE)}
        rules = rules_for(self.config)
        wanted = Wanted(rules, topics, tag_keys=rules.tag_entries)
        if self.extract is not None and self.extract.serves(wanted):
            return self.extract
        return LogReading(wanted, self._dledger)

    @contextmanager
    def _rows(self, listing: StoreListing) -> Iterator[QueueRows | None]:
        """Give the queues in RocksDB; if RocksDB cannot read them, they are built again from the log.

        None if the store has no such queues, or if the extra for RocksDB is not installed (``report.missing``).
        """
        if not listing.queue_kinds(self.config).in_rows:
            yield None
            return
        store = ListedStore(self.files.shown("").rstrip("/"), self.files, listing)
        with ExitStack() as stack:
            rows = None
            try:
                rows = stack.enter_context(closing(QueueRows(store)))
                rows.prove()
            except OptionalMissing as error:
                self.report.missing = error
            except ReadFailed as error:
                name = os.path.basename(error.file or paths.CONSUME_QUEUE)
                text = f"RocksDB cannot read {name}; all rows are written again, from the log"
                self.report.findings.append(new_finding("RX-OPEN", text, Place(paths.CONSUME_QUEUE)))
                rows = stack.enter_context(closing(QueueRows(store, fresh=True)))
            yield rows

    def _compare(
        self,
        listing: StoreListing,
        log: SegmentQueue,
        derived: DerivedFiles,
        rows: QueueRows | None,
    ) -> None:
        """Read the log, and repair queues, index and checkpoint."""
        from rmqtool.audit.log_pass import LogPass

        report, source = self.report, self._source(listing)
        reading = LogPass(log, self.setup.clock.now(), source, self.advance)
        has_queues = listing.queue_kinds(self.config).in_files
        database = None if rows is None else RowQueuesCheck(rows, reading, in_files=has_queues)
        topics = source.wanted.batch_topics
        queues = QueuesCheck(listing, derived, self.config, reading, self._before_write, topics)
        index = self._index(listing, log, has_tags=source.wanted.rules.tag_entries)
        for batch in reading.batches():
            if has_queues:
                queues.take(batch)
            if database is not None:
                database.take(batch)
            if index is not None:
                index[0].take(batch)
        tail = reading.tail()
        self._refuse_without_records(reading, queues, database)
        if not self.past_unread:
            self._refuse_unread_end(tail)
        report.left += [_finding_of(damage) for damage in reading.damage.spans]
        report.findings += report.left
        if index is not None:
            self._finish_index(*index, reading, LogPass(log, self.setup.clock.now(), source))
        is_known = queues.has_unit_at(tail.offset) or (database is not None and database.has_row_at(tail.offset))
        was_cut = self._cut(log, tail, is_known)
        # Entries may point to bytes that a broker cut off. If there are no such bytes, the log has lost its end.
        left = None if was_cut or report.abnormal else tail.stale
        if has_queues:
            queues.finish(report, tail.offset, left)
        has_lost_end = left is None and any(finding.code == "CQ-AHEAD" for finding in report.findings)
        if rows is not None and database is not None:
            database.finish(report, tail.offset)
            rows.publish(self.files, self._before_write)
        # The mark stays: only after a crash does a broker complete queues that cannot be written here.
        self._stays_open = report.missing is not None and report.abnormal
        derived.flush()
        is_abnormal = report.abnormal or has_lost_end
        heal_checkpoint(
            self.files,
            reading,
            tail.offset,
            self._before_write,
            self._latest_time(reading),
            abnormal=is_abnormal,
            has_queues=has_queues,
        )
        report.min_offset, report.max_offset = log.min_offset, tail.offset
        report.bridges = len(reading.damage.bridges)
        report.messages = reading.records - report.bridges

    def _latest_time(self, reading: LogPass) -> int:
        """Return the latest time that a checkpoint may have. A broker's clock may have been set back meanwhile."""
        if self.thorough:
            return max(reading.last_timestamp, reading.last_damaged_timestamp)
        return reading.newest_timestamp + _AHEAD_MS

    def _index(
        self, listing: StoreListing, log: SegmentQueue, *, has_tags: bool
    ) -> tuple[IndexCheck, IndexService] | None:
        """Return the comparison of the index files, and the service that writes them.

        Returns None if the settings turn index files off, or if the index is in RocksDB.
        """
        config = self.config
        if not (config.message_index_enable and config.index_file_write_enable):
            return None
        if listing.has_rows(paths.ROCKSDB_STORE) and not any(listing.of_kind(FileKind.INDEX)):
            return None
        service = IndexService(self.files, Geometry(config.max_hash_slot_num, config.max_index_num), self.setup.clock)
        service.restore(sorted(file.what.name or "" for file in listing.of_kind(FileKind.INDEX)), None)
        as_left = not self.report.abnormal
        check = IndexCheck(
            self.files,
            service,
            self._before_write,
            log,
            has_tags=has_tags,
            as_left=as_left,
            thorough=self.thorough,
        )
        return check, service

    def _finish_index(self, check: IndexCheck, service: IndexService, reading: LogPass, again: LogPass) -> None:
        """Make the index durable. If a wrong file was found too late, read the log ``again`` and rebuild from there."""
        check.finish(reading.is_odd_time)
        if check.wrong_file is not None:
            for batch in again.batches(check.restart()):
                check.take(batch)
        if check.is_rewriting:
            service.flush()
            service.close()
        elif check.left_out:
            some, them = counted(check.left_out, "key is", "keys are"), "it" if check.left_out == 1 else "them"
            text = f"{some} in no index file: a broker's recovery left {them} out"
            self.report.findings.append(new_finding("IX-MISSING", text, Place(INDEX), keys=check.left_out))

    def _refuse_without_records(self, reading: LogPass, queues: QueuesCheck, rows: RowQueuesCheck | None) -> None:
        """Refuse a log without a valid record if queues have entries: it is not the log of these queues."""
        begin = reading.log.min_offset
        have_entries = queues.have_units_since(begin) or (rows is not None and rows.have_rows_since(begin))
        if not reading.records and have_entries:
            raise Refused(
                "no record of the commit log is valid, but queues exist: they would be emptied",
                file=self.files.shown(""),
                hint="check that this is the right commit log: rmqtool check STORE",
            )

    def _refuse_unread_end(self, tail: LogTail) -> None:
        """Refuse a log that cannot be read after its last message: there may be more of them."""
        unread = next((damage for damage in tail.torn if damage.flaw.code == "ST-READ"), None)
        if unread is None or unread.segment is None or unread.segment.path in self._dledger:
            return
        root = quote(self.files.shown("").rstrip("/"))
        raise Refused(
            f"the log cannot be read from offset {unread.start} on, so it is not known where it ends: "
            "entries of messages there would be removed",
            file=self.files.shown(unread.segment.path),
            hint="copy the disk and recover the copy; "
            f"the messages that can be read: rmqtool copy --salvage {root} DIR",
        )

    def _cut(self, log: SegmentQueue, tail: LogTail, is_known: bool) -> bool:
        """Clear a torn record at the end, and remove the segments after it; return whether a record was cut.

        After a clean stop and without ``thorough`` it is cut only if the fields of a record are all there, or if it
        ``is_known``: a queue entry points to it. Segments that begin after the end are removed in any case. With older
        records after the end (``tail.stale``) no file changes; the result still says whether a record was to be cut.
        Bytes that cannot be read are not zeroed.
        """
        if tail.stale is not None:
            self.report.left.append(_finding_of(tail.stale))
            self.report.findings.append(self.report.left[-1])
        # Unreadable bytes may be valid: a later read may succeed.
        can_cut = bool(tail.torn) and not any(damage.flaw.code == "ST-READ" for damage in tail.torn)
        was_cut = can_cut and (self.report.abnormal or self.thorough or tail.has_torn_record or is_known)
        if was_cut:
            self.report.findings += [_finding_of(damage, "CL-TORN") for damage in tail.torn]
        for segment in log:
            directory = next((one for one in self.directories if one.filesystem is segment.filesystem), None)
            if segment.path in self._dledger:
                # Only a DLedger group may cut its log. Its member does that at start, and fetches what is missing.
                continue
            if directory is None or segment.end_offset <= tail.offset or tail.stale is not None:
                continue
            if segment.base_offset > tail.offset:
                self._before_write(segment.path, "delete")
                directory.filesystem.unlink(segment.path)
                directory.filesystem.fsync_dir(split(segment.path)[0])
            elif was_cut:
                self._zero(directory, segment, tail.offset - segment.base_offset)
        return was_cut

    def _zero(self, directory: LogDirectory, segment: Segment, start: int) -> None:
        """Write zeros after the end of the log, so that no later start finds records there."""
        with directory.filesystem.open_write(segment.path) as file:
            walk = SegmentWalk(file, segment.base_offset)
            while (at := walk.find_nonzero(start)) is not None:
                self._before_write(segment.path, "modify")
                length = min(_ZEROS, segment.size - at)
                file.pwrite(bytes(length), at)
                start = at + length
            file.fdatasync()

    def _close(self) -> None:
        """Remove the mark, because everything is durable; unless the broker has to recover its queues in RocksDB."""
        if not self._is_marked or self._stays_open:
            return
        if self.report.abnormal:
            self.report.note(ABORT, "delete")
        if self.files.stat(ABORT).kind is Kind.DIRECTORY:
            self.files.rmdir(ABORT)
        else:
            self.files.unlink(ABORT)
        self.files.fsync_dir()


def _finding_of(damage: Damage, code: str | None = None) -> Finding:
    """Return the finding of a damaged range; ``code`` replaces the range's own.

    A record is only torn at the end of the log, and there the caller gives the code. Damage inside the log has its own.
    """
    own = damage.flaw.code
    if damage.segment is None:
        return new_finding(own, damage.flaw.message, Place(None, damage.start, damage.end - damage.start))
    place = Place(damage.segment.path, damage.start - damage.segment.base_offset, damage.end - damage.start)
    if damage.record is not None:
        place = place._replace(topic=damage.record.topic, queue_id=damage.record.queue_id)
    return new_finding(code or own, damage.flaw.message, place)
