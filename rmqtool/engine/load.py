"""Reads the state of a store when it is opened: sizes, and the ends of log, queues and index. Creates empty stores.

Sizes come from the files; the settings only decide about files that do not exist yet. Only a store that was closed
cleanly is opened. A contradiction means that it needs recovery, and it is refused here: queues and index of such a
store must not decide what is written. upstream: DefaultMessageStore.load.

The file ``abort`` exists while the store is open, so finding it at start means that the last process did not close the
store. It is durable before the first change, and is removed when everything else is durable. upstream:
DefaultMessageStore.createTempFile creates it as the last file of the start, and never forces it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote
from typing import NamedTuple

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.commit_log import LogDirectory, Tail
from rmqtool.engine.consume_queue import QueueSizes
from rmqtool.engine.message import Host, QueueKey
from rmqtool.engine.row_queues import QueueRows
from rmqtool.errors import Refused, RmqtoolError, StoreError, UsageError, WriteFailed
from rmqtool.files.filesystem import (
    Kind,
    ReadableFile,
    ReadableFileSystem,
    WritableFileSystem,
    iter_tree,
    join,
    make_directories,
)
from rmqtool.formats import paths
from rmqtool.formats.bridges import is_bridge
from rmqtool.formats.codes import FILLER_SIZE
from rmqtool.formats.commit_log import Message, Nothing
from rmqtool.formats.consume_queue import (
    BATCH_UNIT_SIZE,
    ConsumeQueueExtUnit,
    decode_ext_unit,
    ext_offset,
    is_ext_address,
)
from rmqtool.formats.dispatch import DispatchRules, queue_entries
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.layouts import BatchConsumeQueueUnit
from rmqtool.formats.paths import ABORT, INDEX, Copy, FileKind
from rmqtool.log.end import find_log_end, is_filled, read_record
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.index_files import DEFAULT, Geometry, open_index, read_header
from rmqtool.store.listing import LOG_IS_EMPTY, FoundFile, QueueId, StoreListing, list_store
from rmqtool.store.open import AS_VERSION, BROKER_CONF
from rmqtool.store.queues import BatchQueueFiles, ConsumeQueueFiles, simple_queues
from rmqtool.store.rocksdb import ListedStore
from rmqtool.store.segments import OpenFiles, Segment, SegmentQueue, usual_size

# Where 5.x keeps the previous content of abort.
_BAK = ABORT + Copy.BAK


def mark_open(files: WritableFileSystem, version: Version) -> tuple[str, ...]:
    """Mark the store as open by the file abort; return the files that were created. On an error none of them stays.

    5.x writes its process id to abort, and keeps abort's previous content in a second file, which is empty here.
    """
    content = b"" if version is Version.V4_9 else str(os.getpid()).encode("ascii")
    made = (ABORT,) if version is Version.V4_9 or files.exists(_BAK) else (ABORT, _BAK)
    try:
        with files.create(ABORT) as marker:
            if content:
                marker.pwrite(content, 0)
            marker.fsync()
        if _BAK in made:
            files.create(_BAK).close()
        files.fsync_dir()
    except WriteFailed:
        for path in made:
            # Keep the original error; a failed cleanup is not worth reporting.
            with suppress(WriteFailed):
                if files.exists(path):
                    files.unlink(path)
        raise
    return made


def mark_closed(files: WritableFileSystem, made: tuple[str, ...] = (ABORT,)) -> None:
    """Remove the mark of an open store, durably. ``made`` are the files to remove: abort, or all of ``mark_open``."""
    for path in made:
        files.unlink(path)
    files.fsync_dir()


# The settings of a store whose creation is not finished.
_UNFINISHED = f"{BROKER_CONF}.new"
# The directories of an empty store. A broker creates those that are missing.
DIRECTORIES = (paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.INDEX, paths.CONFIG)


def create_store(filesystem: WritableFileSystem, config: StoreConfig) -> None:
    """Create an empty store with the settings of ``config``.

    Raises Refused if the directory is not empty, and UsageError for a file size below 1. The settings come last, whole:
    a creation that was interrupted is done again.
    """
    if not is_blank(filesystem):
        raise Refused(
            "the directory is not empty",
            file=filesystem.shown(""),
            hint="name a new or empty directory",
        )
    _require_sizes(config)
    for directory in DIRECTORIES:
        make_directories(filesystem, directory)
    comments = (
        f"Settings of this store, created for RocketMQ {config.version}.",
        "A broker reads this file, too: start it with -c.",
    )
    text = config.with_unknown(AS_VERSION, config.version.value).encode_broker_conf(comments)
    if filesystem.exists(_UNFINISHED):
        filesystem.unlink(_UNFINISHED)
    with filesystem.create(_UNFINISHED) as file:
        file.pwrite(text.encode("utf-8"), 0)
        file.fsync()
    filesystem.rename(_UNFINISHED, BROKER_CONF)
    filesystem.fsync_dir()


def is_blank(filesystem: ReadableFileSystem) -> bool:
    """Return whether a directory is empty, or has no more than the creation of a store that was interrupted."""
    left = {(directory, Kind.DIRECTORY) for directory in DIRECTORIES} | {(_UNFINISHED, Kind.FILE)}
    return all(found in left for found in iter_tree(filesystem))


# The sizes of new files. With 0, a broker creates files that cannot hold anything.
_SIZES = {
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "mappedFileSizeConsumeQueueExt": "mapped_file_size_consume_queue_ext",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
}


def _require_sizes(config: StoreConfig) -> None:
    """Raise UsageError for a file size below 1."""
    for name, attribute in _SIZES.items():
        value = getattr(config, attribute)
        if value < 1:
            raise UsageError(
                f"{name}={value}: no file can be made of that size", hint=f"leave {name} out for the default"
            )


# Bytes of a segment that ``count_messages`` reads at once.
_PIECE = 16 << 20


def count_messages(file: ReadableFile, size: int) -> int:
    """Return how many records a segment has. After damage the count continues at the next valid record."""
    from rmqtool.columns.starts import record_starts

    at, count = 0, 0
    walk = SegmentWalk(file, None)
    while at < size:
        starts = record_starts(file.pread(min(_PIECE, size - at), at))
        count += len(starts.file_offsets)
        at += starts.stopped_at
        if not len(starts.file_offsets):
            following = walk.find_record(at + 1)
            if following is None:
                break
            # A record larger than a piece begins where the columns stopped.
            count += isinstance(starts.stopped_by, Flaw) and walk.record_at(at) is not None
            at = following
    return count


# The advice for a store that only its own broker can write.
_COPY = "copy its messages to a store with file queues: rmqtool copy STORE DST"


class QueueEnd(NamedTuple):
    """The end of a simple queue: next queue offset, end of its last message in the log, end of its extension.

    ``max_physic_offset`` is -1 without messages, or if the last entry only fills a gap.
    """

    max_offset: int
    max_physic_offset: int
    ext_end: int
    # Whether the files go on after the end, with entries that a broker cut off and left there.
    has_leftovers: bool = False


class BatchQueueEnd(NamedTuple):
    """The end of a batch queue in bytes, and its last entry; None for an empty queue."""

    end: int
    last: BatchConsumeQueueUnit | None


@dataclass
class StoreState:
    """The state of a store on disk, as far as it decides where and how new messages are written."""

    segment_size: int
    segments: tuple[Segment, ...]
    tail: Tail
    # The log is dispatched at least up to here.
    dispatched: int
    queue_sizes: QueueSizes
    queues: dict[QueueKey, QueueEnd]
    batch_queues: dict[QueueKey, BatchQueueEnd]
    index_names: list[str] = field(default_factory=list)
    index_geometry: Geometry = DEFAULT
    # The host in the last record; new records get the same unless the settings name one.
    store_host: Host | None = None
    # An empty last segment, which brokers drop. It is removed before the first change.
    empty_segment: str | None = None
    # The queues in RocksDB, opened, and whether there are queues in files, too.
    rows: QueueRows | None = None
    in_files: bool = True


def read_state(
    files: WritableFileSystem,
    config: StoreConfig,
    directories: Sequence[LogDirectory],
    read_only: Sequence[tuple[str, ReadableFileSystem]] = (),
) -> StoreState:
    """Return the state of a store that was closed cleanly; refuse any other store."""
    where: list[tuple[str, ReadableFileSystem]] = [(one.path, one.filesystem) for one in directories]
    listing = list_store(files, [*where, *read_only])
    refuse_unsupported(listing, config)
    refuse_linked(listing)
    require_closed(listing)
    refuse_without_log(listing)
    _check_log_directories(directories, config.version)
    segments, empty = _whole_segments(files, listing, config)
    opened = OpenFiles()
    own = SegmentQueue(segments, files=opened)
    log = SegmentQueue([*listing.dledger_data(), *segments], files=opened)
    simple = simple_queues(listing)
    batch = [BatchQueueFiles(*item) for item in listing.queues(FileKind.BATCH_CONSUME_QUEUE).items()]
    kinds = listing.queue_kinds(config)
    rows = QueueRows(ListedStore(files.shown("").rstrip("/") or ".", files, listing)) if kinds.in_rows else None
    try:
        state = _read_ends(listing, config, own, log, simple, batch)
        state.empty_segment, state.rows, state.in_files = empty, rows, kinds.in_files
        if rows is not None:
            _read_row_ends(state, rows, log)
        return state
    except BaseException:
        if rows is not None:
            rows.close()
        raise
    finally:
        for one in (*(queue.segments for queue in simple), *(queue.segments for queue in batch)):
            one.close()
        opened.close()


def _read_ends(
    listing: StoreListing,
    config: StoreConfig,
    own: SegmentQueue,
    log: SegmentQueue,
    simple: Sequence[ConsumeQueueFiles],
    batch: Sequence[BatchQueueFiles],
) -> StoreState:
    """Return the ends of log, queues and index; raise Refused if they contradict each other.

    ``own`` are the segments of the commit log, ``log`` has those of a DLedger log before it, too.
    """
    # First the log: the ends of queues and index are compared with its end.
    tail, store_host = _find_tail(own, simple)
    exts = listing.queues(FileKind.CONSUME_QUEUE_EXT)
    sizes = QueueSizes.rounded(
        _size_of(listing, FileKind.CONSUME_QUEUE) or config.mapped_file_size_consume_queue,
        _size_of(listing, FileKind.CONSUME_QUEUE_EXT) or config.mapped_file_size_consume_queue_ext,
        _size_of(listing, FileKind.BATCH_CONSUME_QUEUE) or config.mapper_file_size_batch_consume_queue,
    )
    queues: dict[QueueKey, QueueEnd] = {
        queue.queue: _queue_end(queue, exts.get(queue.queue), log, tail.offset) for queue in simple
    }
    batch_queues: dict[QueueKey, BatchQueueEnd] = {
        queue.queue: _batch_queue_end(queue, log, tail.offset) for queue in batch
    }
    ends = [end.max_physic_offset for end in queues.values()]
    ends += [end.last.physical_offset + end.last.size for end in batch_queues.values() if end.last]
    names, geometry = _read_index(listing, config, tail.offset)
    return StoreState(
        segment_size=own.segment_size or config.mapped_file_size_commit_log,
        segments=log.segments,
        tail=tail,
        # Records after the last one with an entry are in no queue, or were not dispatched yet.
        dispatched=min(max([own.min_offset, *ends]), tail.offset),
        queue_sizes=sizes,
        queues=queues,
        batch_queues=batch_queues,
        index_names=names,
        index_geometry=geometry,
        store_host=store_host,
    )


def _read_row_ends(state: StoreState, rows: QueueRows, log: SegmentQueue) -> None:
    """Take the ends of queues from RocksDB; raise Refused if they contradict the log, or queues in files."""
    found: dict[QueueKey, QueueEnd] = {}
    for queue, (max_offset, last) in rows.iter_ends():
        if last is None or last.size == FILLER_SIZE:
            found[queue] = QueueEnd(max_offset, -1, 0)
            continue
        if last.physical_offset < log.min_offset:
            # All messages of the queue were removed from the log; only its next queue offset is left.
            found[queue] = QueueEnd(max_offset, last.physical_offset + last.size, 0)
            continue
        record = read_record(log, last.physical_offset) if last.physical_offset < state.tail.offset else None
        if not _is_own(record, queue, max_offset - 1) and not _is_damage(log, last.physical_offset):
            raise _needs_recovery(
                f"the last row of queue {queue.topic}/{queue.queue_id}, {max_offset - 1}, does not match its record",
                paths.CONSUME_QUEUE,
            )
        found[queue] = QueueEnd(max_offset, last.physical_offset + last.size, 0)
    if not state.in_files:
        ends = [end.max_physic_offset for end in found.values()]
        state.queues = found
        state.dispatched = min(max([log.min_offset, state.dispatched, *ends]), state.tail.offset)
        return
    for key, end in state.queues.items():
        queue = QueueId(*key)
        there = found.get(queue)
        if end.max_physic_offset >= 0 and (there is None or there.max_offset != end.max_offset):
            said = "no rows" if there is None else f"rows up to {there.max_offset}"
            raise _needs_recovery(
                f"queue {queue.topic}/{queue.queue_id} ends at {end.max_offset} in files, but has {said} in RocksDB",
                paths.CONSUME_QUEUE,
            )


def without_log(files: ReadableFileSystem, config: StoreConfig) -> RmqtoolError:
    """Return the error for a store whose log is not where the settings say."""
    listing = list_store(files, ())
    shown = files.shown("")
    if (unsupported := find_unsupported(listing, config)) is not None:
        return unsupported
    if listing.log_directories:
        found = ",".join(files.shown(directory) for directory in sorted(listing.log_directories))
        return Refused(
            f"the commit log is not in {','.join(config.commit_log_dirs)}, but in {found}",
            file=shown,
            hint=f"use the broker's setting: --conf storePathCommitLog={found}",
        )
    return _queues_alone(listing) or StoreError(
        f"{shown} has no commit log", file=shown, hint="make a new store: rmqtool init STORE"
    )


def refuse_unsupported(listing: StoreListing, config: StoreConfig) -> None:
    """Raise the error of ``find_unsupported``, if there is one."""
    if (unsupported := find_unsupported(listing, config)) is not None:
        raise unsupported


def refuse_linked(listing: StoreListing) -> None:
    """Refuse a store with hard links: writing to one name of a file would change what the other names hold."""
    for names in listing.iter_linked():
        shown = listing.filesystem.shown(names[1])
        raise Refused(
            f"{' and '.join(names)} are one file under several names (hard links): a write to one changes the others",
            file=shown,
            hint=f"give each a file of its own: cp -p {quote(shown)} {quote(shown + '.own')}"
            f" && mv {quote(shown + '.own')} {quote(shown)}",
        )


def find_unsupported(listing: StoreListing, config: StoreConfig) -> StoreError | None:
    """Return the error for a store that only a DLedger group can write, because its log is a DLedger log.

    None for others, and where a commit log goes on after the DLedger log.
    """
    shown = listing.filesystem.shown("")
    entries = listing.dledger_data()
    goes_on = any(segment.base_offset >= entries.end_offset for segment in listing.log_segments)
    if config.enable_dledger_commit_log or (entries and not goes_on):
        return StoreError("the log is a DLedger log; only its group can append to it", file=shown, hint=_COPY)
    return None


def require_closed(listing: StoreListing) -> None:
    """Refuse a store that must be recovered first: its last process was killed, or is still running."""
    if listing.filesystem.exists(ABORT):
        raise _needs_recovery("nothing was changed: the store was not closed cleanly, its file abort is present", ABORT)


def refuse_without_log(listing: StoreListing) -> None:
    """Refuse a store without a log but with queues: new messages would get queue offsets that are taken."""
    if (refusal := _queues_alone(listing)) is not None:
        raise refusal


def _queues_alone(listing: StoreListing) -> Refused | None:
    """Return the refusal of a store with queues but without a log; None for any other store."""
    if listing.log_segments or not any(listing.of_kind(FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE)):
        return None
    return Refused(
        f"{LOG_IS_EMPTY}: a write now would number messages from 0 again",
        file=listing.filesystem.shown(""),
        hint="mount the volume of the commit log; if the log is lost, create a new store",
    )


def _needs_recovery(reason: str, file: str) -> Refused:
    return Refused(reason, file=file, hint="rmqtool repair STORE")


def _check_log_directories(directories: Sequence[LogDirectory], version: Version) -> None:
    """Raise StoreError for a subdirectory in a directory of the log, if the version is 4.9: 5.x ignores it.

    A directory of the log that is missing passes. upstream: MappedFileQueue.doLoad.
    """
    for filesystem, path in directories:
        if filesystem.exists(path):
            for entry in filesystem.listdir(path):
                if entry.kind is Kind.DIRECTORY and version is Version.V4_9:
                    shown = filesystem.shown(join(path, entry.name))
                    raise StoreError(
                        "there is a directory among the segments; a 4.9 broker refuses to start",
                        file=shown,
                        hint="move it out of the store",
                    )


def _whole_segments(
    files: WritableFileSystem, listing: StoreListing, config: StoreConfig
) -> tuple[list[Segment], str | None]:
    """Return the segments, without an empty last one, which brokers of 5.x drop; and the path of that, or None.

    The path is also None if that segment is not in ``files``. Raises Refused for segments of different sizes.
    """
    segments, empty = sorted(listing.log_segments), None
    if segments and not segments[-1].size and config.version is not Version.V4_9:
        last = segments.pop()
        if last.filesystem is files:
            empty = last.path
    size = usual_size(segments)
    for segment in segments:
        if segment.size != size:
            raise _needs_recovery(f"the segment has {segment.size} bytes, the others have {size}", segment.path)
    return segments, empty


def _find_tail(log: SegmentQueue, queues: Sequence[ConsumeQueueFiles]) -> tuple[Tail, Host | None]:
    """Return the end of the log with its last store time, and the host of the last record, None without a record.

    A blank record at the end belongs to the log. Raises Refused if there is a segment after the end.
    """
    if not log:
        return Tail(0, 0), None
    end = find_log_end(log, queues)
    offset, timestamp = end.physical_offset, end.last.store_timestamp if end.last else 0
    segment = log.find(offset)
    if segment is not None and _goes_on(log, segment, offset):
        # A recovery kept damage here. The records after it decide where the log ends.
        from rmqtool.audit.due import Wanted
        from rmqtool.audit.log_pass import LogPass, LogReading

        # With this time of the clock no record is from the future.
        reading = LogPass(log, LONG_MAX // 2, LogReading(Wanted(DispatchRules(), keys=False)))
        for _ in reading.batches(segment.base_offset):
            pass
        tail = reading.tail()
        offset, timestamp = max((offset, timestamp), (tail.offset, tail.store_timestamp))
        segment = log.find(offset)
    if segment is not None and segment.base_offset != offset and is_filled(log, segment, offset):
        offset = segment.end_offset
    later = [one for one in log if one.base_offset > offset]
    if later:
        raise _needs_recovery(f"the log ends at {offset}, but there is a segment after that", later[0].path)
    return Tail(offset, timestamp), (end.last.store_host_ip, end.last.store_host_port) if end.last else None


def _goes_on(log: SegmentQueue, segment: Segment, offset: int) -> bool:
    """Return whether the log goes on after its apparent end: another segment, or bytes that are not a blank record."""
    if segment.base_offset != log.segments[-1].base_offset:
        return True
    if is_filled(log, segment, offset):
        return False
    walk = SegmentWalk(log.open(segment), segment.base_offset)
    return walk.find_nonzero(offset - segment.base_offset) is not None


def _size_of(listing: StoreListing, kind: FileKind) -> int:
    """Return the size of all files of a kind, 0 without any; raise Refused if the sizes differ."""
    found: list[FoundFile] = list(listing.of_kind(kind))
    sizes = {file.size for file in found}
    if len(sizes) > 1:
        size = usual_size([Segment(0, file.size, file.path, listing.filesystem) for file in found])
        odd = next(file for file in found if file.size != size)
        raise _needs_recovery(f"the file has {odd.size} bytes, others of its kind have {size}", odd.path)
    return sizes.pop() if sizes else 0


def _queue_end(queue: ConsumeQueueFiles, ext: SegmentQueue | None, log: SegmentQueue, log_end: int) -> QueueEnd:
    """Return the end of a queue; raise Refused if its last entry does not match its record."""
    max_offset, last = queue.max_offset, queue.last_unit
    written = max_offset
    # Entries that a broker cut off stay in the file and point past the end of the log.
    while last is not None and last.physical_offset >= log_end and max_offset > queue.first_offset:
        max_offset -= 1
        last = queue.read_unit(max_offset - 1) if max_offset > queue.first_offset else None
    if last is None or last.size == FILLER_SIZE:
        return QueueEnd(max_offset, -1, 0, max_offset < written)
    is_there = last.physical_offset >= log.min_offset
    is_own = is_there and _is_own(read_record(log, last.physical_offset), queue.queue, max_offset - 1)
    if is_there and not is_own and not _is_damage(log, last.physical_offset):
        path = queue.segments.segments[-1].path
        raise _needs_recovery(f"the last entry of the queue, {max_offset - 1}, does not match its record", path)
    ext_end = _ext_end(queue, ext) if ext else 0
    return QueueEnd(max_offset, last.physical_offset + last.size, ext_end, max_offset < written)


def _is_own(record: Message | None, queue: QueueKey, queue_offset: int) -> bool:
    """Return whether a record may belong to an entry of a queue.

    Topic and queue, or the queue offset, must be right: a recovery keeps a record with one wrong number in its header.
    Entries of messages that a bridge replaced point to the bridge.
    """
    if record is None or is_bridge(record):
        return record is not None
    entries = [*queue_entries(record, DispatchRules())]
    return any((entry.topic, entry.queue_id) == queue or entry.queue_offset == queue_offset for entry in entries)


def _is_damage(log: SegmentQueue, physical_offset: int) -> bool:
    """Return whether an offset is in damage. Entries may point to damage, but not to the middle of a record."""
    segment = log.find(physical_offset)
    if segment is None:
        return any(gap.start_offset <= physical_offset < gap.end_offset for gap in log.gaps())
    at = physical_offset - segment.base_offset
    places = SegmentWalk(log.open(segment), segment.base_offset).places()
    found = next((place for place in places if at < place.file_offset + place.length), None)
    return found is not None and isinstance(found.what, Flaw | Nothing)


def _ext_end(queue: ConsumeQueueFiles, ext: SegmentQueue) -> int:
    """Return the end of an extension: after the entry that the queue's last address points to.

    If the queue has no address, that is the end of the files. Raises Refused if there is no entry at the address.
    """
    try:
        for queue_offset in range(queue.max_offset - 1, queue.first_offset - 1, -1):
            unit = queue.read_unit(queue_offset)
            if unit is not None and is_ext_address(unit.tags_code):
                at = ext_offset(unit.tags_code)
                segment = ext.find(at)
                found = decode_ext_unit(ext.read(at, segment.end_offset - at)) if segment else None
                if not isinstance(found, ConsumeQueueExtUnit):
                    raise _needs_recovery(
                        f"queue entry {queue_offset} has no extension entry at {at}", ext.segments[-1].path
                    )
                return at + found.size
        return ext.end_offset
    finally:
        ext.close()


def _batch_queue_end(queue: BatchQueueFiles, log: SegmentQueue, log_end: int) -> BatchQueueEnd:
    """Return the end of a batch queue; raise Refused if its last entry does not match its record."""
    count = sum(1 for _ in queue.iter_units())
    last = queue.last_unit
    if last is not None and last.physical_offset >= log.min_offset:
        record = read_record(log, last.physical_offset) if last.physical_offset < log_end else None
        is_own = record is not None and (record.topic, record.queue_id) == queue.queue
        if not is_own and not _is_damage(log, last.physical_offset):
            path = queue.segments.segments[-1].path
            raise _needs_recovery(
                f"the last entry of the queue points to {last.physical_offset}, where there is no record", path
            )
    return BatchQueueEnd(queue.segments.min_offset + count * BATCH_UNIT_SIZE, last)


def _read_index(listing: StoreListing, config: StoreConfig, log_end: int) -> tuple[list[str], Geometry]:
    """Return the names of the index files, oldest first, and the geometry of the last one.

    Without files there are no names, and the geometry is that of the settings; so too if the only file has no entry and
    does not show its geometry. Raises Refused if the last file is damaged, or names a record past the end of the log.
    """
    configured = Geometry(config.max_hash_slot_num, config.max_index_num)
    found = [file for file in listing.of_kind(FileKind.INDEX) if file.what.name]
    names = sorted(file.what.name or "" for file in found)
    if not names:
        return [], configured
    hints = [configured]
    for name in names[-2:]:
        path = join(INDEX, name)
        with listing.filesystem.open_read(path) as file:
            opened = open_index(file, hints)
            header = read_header(file)
        if opened is not None:
            # A file without entries does not show its geometry; it has that of the file before it.
            hints.insert(0, opened.geometry)
    if opened is None and header is not None and header.index_count <= 1 and len(names) == 1:
        return [], configured
    if opened is None:
        raise _needs_recovery("index file has an impossible header or size", path)
    if opened.header.end_phy_offset >= log_end > 0:
        raise _needs_recovery(
            f"the index names a record at {opened.header.end_phy_offset}, but the log ends before it", path
        )
    return names, opened.geometry
