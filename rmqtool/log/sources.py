"""Sources named by a path: the log of a store, a queue, the log of a compacted queue, or one file.

The files of a log are ``LogFile`` values, which any process can open. Commands open a ``Source``, with the store.
Export and Spark take a ``StoreLog``, a value that they can send to tasks.
"""

from __future__ import annotations

import glob
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from shlex import quote
from typing import NamedTuple, Self

from rmqtool.errors import FileMissing, ReadFailed, StoreError, UsageError
from rmqtool.files.filesystem import Kind, ReadableFile, join, split
from rmqtool.files.objects import ObjectReadableFileSystem
from rmqtool.files.posix import FOLLOWED
from rmqtool.formats import paths
from rmqtool.formats.paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT, FileKind
from rmqtool.log.end import LogEnd, find_log_end, first_record
from rmqtool.log.queue_entries import QueueFiles, first_offset_from, queue_files_of
from rmqtool.store.listing import QueueId, beneath
from rmqtool.store.open import (
    CONF_ENDINGS,
    Root,
    Store,
    absolute,
    is_file,
    kept_listing,
    locate,
    open_root,
    open_store,
    require_path,
    size_of,
)
from rmqtool.store.open import is_directory as is_a_directory
from rmqtool.store.queues import simple_queues
from rmqtool.store.segments import Segment
from rmqtool.store.tiers import Tier, TierPlace, find_tier, open_tier, tier_of


class LogKind(StrEnum):
    """The container of the records: a commit log, entries of DLedger, a compaction log, or a queue's log in a tier."""

    COMMIT_LOG = "commit log"
    DLEDGER = "DLedger data"
    COMPACTION = "compaction log"
    TIER = "tier commit log"


class TierPart(NamedTuple):
    """The queue of a tier whose messages are in a file.

    The logs of all queues are put one after the other, so that each place has an offset of its own: ``shift`` is how
    much more that is than the offset in the queue's own log, which records name. Messages from queue offset ``until``
    on are left out: the store that the tier belongs to has them.
    """

    topic: str
    queue_id: int
    shift: int
    until: int | None = None


class LogFile(NamedTuple):
    """One file of a log, at ``path`` below ``directory``. ``name`` is the name that people and programs see."""

    base_offset: int
    size: int
    directory: str
    path: str
    name: str
    kind: LogKind = LogKind.COMMIT_LOG
    tier: TierPart | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.size

    @property
    def shift(self) -> int:
        """How much more the offset of a byte of this file is than what a record there names as its offset."""
        return 0 if self.tier is None else self.tier.shift

    @property
    def record_base(self) -> int:
        """The physical offset that a record at the beginning of this file names."""
        return self.base_offset - self.shift

    @property
    def keeps_checksums(self) -> bool:
        """Whether records were moved here and kept the checksum, over all of a record, from where they were before."""
        return self.kind in (LogKind.COMPACTION, LogKind.TIER)

    def open(self) -> ReadableFile:
        """Open the file. The handle stays valid when the file is renamed or removed."""
        with open_root(self.directory, FOLLOWED) as files:
            return files.open_read(self.path)


def logs_of(store: Store) -> list[LogFile]:
    """Return the files of a store's log in order. A store that was changed over to DLedger has files of both kinds."""
    found = [_log_file(store, segment, LogKind.COMMIT_LOG) for segment in store.listing.log_segments]
    found += [_log_file(store, segment, LogKind.DLEDGER) for segment in store.dledger_data]
    return sorted(found)


def _log_file(store: Store, segment: Segment, kind: LogKind) -> LogFile:
    files = segment.filesystem
    assert isinstance(files, Root), "a log that other processes read must be in real files"
    name = segment.path if files is store.filesystem else files.shown(segment.path)
    return LogFile(segment.base_offset, segment.size, files.root, segment.path, name, kind)


class LogDirectory(NamedTuple):
    """A directory with files of a log, at ``path`` below ``directory``; ``name`` is the name that people see."""

    directory: str
    path: str
    name: str
    kind: LogKind

    def files(self) -> Iterator[LogFile]:
        """Yield the files that are in it now; none if the directory is gone."""
        with suppress(FileMissing), open_root(self.directory, FOLLOWED) as found:
            if isinstance(found, ObjectReadableFileSystem):
                yield from self._objects(found)
                return
            for entry in found.listdir(self.path):
                base_offset = paths.parse_segment_name(entry.name)
                path = join(self.path, entry.name)
                status = found.find_stat(path) if base_offset is not None and entry.kind is Kind.FILE else None
                if base_offset is not None and status is not None:
                    yield LogFile(
                        base_offset, status.size, self.directory, path, join(self.name, entry.name), self.kind
                    )

    def _objects(self, found: ObjectReadableFileSystem) -> Iterator[LogFile]:
        """Yield the files of a directory on object storage, by one new listing."""
        for name, size in found.list_now(self.path):
            base_offset = paths.parse_segment_name(name)
            if base_offset is not None:
                path, shown = join(self.path, name), join(self.name, name)
                yield LogFile(base_offset, size, self.directory, path, shown, self.kind)


def directories_of(store: Store) -> list[LogDirectory]:
    """Return the directories of a store's log; for a store without one, the directory that a broker would create."""
    found = {
        LogDirectory(file.directory, split(file.path)[0], split(file.name)[0], file.kind): None
        for file in logs_of(store)
    }
    usual = store.listing.log_directories or [paths.COMMIT_LOG]
    return list(found) or [LogDirectory(store.root, path, path, LogKind.COMMIT_LOG) for path in usual]


def list_logs(directories: Iterable[LogDirectory]) -> list[LogFile]:
    """Return the files that are in the directories now, in the order of the log."""
    return sorted(file for directory in directories for file in directory.files())


class OpenLogs:
    """Open files of logs, up to sixteen at a time."""

    _MOST = 16

    def __init__(self) -> None:
        self._open: OrderedDict[LogFile, ReadableFile] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def get(self, file: LogFile) -> ReadableFile:
        """Return the open file. It stays open until sixteen other files were asked for."""
        opened = self._open.pop(file, None) or file.open()
        self._open[file] = opened
        if len(self._open) > self._MOST:
            self._open.popitem(last=False)[1].close()
        return opened


# The files of a queue, which a path can name.
_QUEUES = (FileKind.CONSUME_QUEUE, FileKind.CONSUME_QUEUE_EXT, FileKind.BATCH_CONSUME_QUEUE)


@dataclass
class Source:
    """The files of a log, and the store they belong to, if any.

    ``directories`` are the ones where new files will appear; empty if one file was named. ``topic`` (a pattern) and
    ``queue_id`` are set if the path named a queue. ``note`` says what is not read.
    """

    files: list[LogFile]
    directories: list[LogDirectory] = field(default_factory=list)
    store: Store | None = None
    queues: list[QueueFiles] = field(default_factory=list)
    topic: str | None = None
    queue_id: int | None = None
    note: str | None = None

    @property
    def live(self) -> bool:
        """Whether a broker is writing to the store."""
        return self.store is not None and self.store.is_live

    def list_files(self) -> list[LogFile]:
        """Return the files of the log as they are now, without those that are gone."""
        if self.directories:
            return list_logs(self.directories)
        places = [(file, os.path.join(file.directory, file.path)) for file in self.files]
        return [file._replace(size=size_of(place)) for file, place in places if is_file(place)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


class CompactionLog(NamedTuple):
    """The log of a compacted queue, or one file of it; ``root`` is its store."""

    root: str
    files: list[LogFile]
    directories: list[LogDirectory]


def find_compaction_log(path: str) -> CompactionLog | None:
    """Return the compaction log that ``path`` names, or None if it names something else."""
    require_path(path)
    is_directory = is_a_directory(path)
    root, relative, what = _located(os.path.join(path, paths.segment_name(0)) if is_directory else path)
    if what.kind is not FileKind.COMPACTION_LOG:
        return None
    if is_directory:
        found = _of_directory(root, os.path.dirname(relative), LogKind.COMPACTION)
        return CompactionLog(root, found.files, found.directories)
    file = LogFile(what.base_offset or 0, size_of(path), root, relative, relative, LogKind.COMPACTION)
    return CompactionLog(root, [file], [])


def open_source(path: str, open_store: Callable[[str], Store]) -> Source:
    """Open the source that ``path`` names: a store, a queue, a directory of segments, or one file of a log.

    Raises StoreError for any other path.
    """
    with kept_listing(path):
        return _open_source(path, open_store)


def _open_source(path: str, open_store: Callable[[str], Store]) -> Source:
    """Do the work of ``open_source``, for which object storage is listed only once."""
    require_path(path)
    is_directory = is_a_directory(path)
    root, relative, what = _located(os.path.join(path, paths.segment_name(0)) if is_directory else path)
    if what.kind in _QUEUES:
        source = source_of(open_store(root))
        source.topic, source.queue_id = glob.escape(what.topic or ""), what.queue_id
        return source
    compacted = find_compaction_log(path)
    if compacted is not None:
        return Source(compacted.files, compacted.directories)
    if is_directory and what.kind is FileKind.DLEDGER_DATA:
        return _of_directory(root, os.path.dirname(relative), LogKind.DLEDGER)
    try:
        source = source_of(open_store(path))
        if not is_directory and not path.endswith(CONF_ENDINGS):
            source.directories.clear()
            _require_log(source, path)
        return source
    except StoreError:
        place = find_tier(path)
        if place is not None:
            return _of_tier(place)
        # The directory may have segments that were copied out of their store.
        found = _of_directory(path, "", LogKind.COMMIT_LOG) if is_directory else None
        if found is None or not found.files:
            raise
        return found


def _of_tier(place: TierPlace) -> Source:
    """Return the log of a tier, or of the queue or the file of it that a path names."""
    with open_tier(place.root) as tier:
        files = tier_files(tier)
    for wanted, of in ((place.topic, 0), (place.queue_id, 1)):
        files = [file for file in files if wanted is None or (file.tier and file.tier[of] == wanted)]
    files = [file for file in files if place.file in (None, file.path)]
    if not files and place.topic is not None:
        named = f"{place.root}/{place.file or place.topic}"
        raise StoreError(f"{named} has no log of a queue", file=named, hint=f"rmqtool cat {quote(place.root)}")
    return Source(files)


def _require_log(source: Source, path: str) -> None:
    """Raise StoreError if ``source`` has no files: ``path`` is a file that is not part of a log."""
    if not source.files:
        source.close()
        raise StoreError(
            f"{path} is not a file of a log", file=path, hint=f"records in any file: rmqtool cat --carve {path}"
        )


def _located(path: str) -> tuple[str, str, paths.StorePath]:
    """Return the root of the store that contains ``path``, the path below it, and what it is by its name."""
    files, relative, what = locate(path)
    with files:
        return files.root, relative, what


def source_of(store: Store) -> Source:
    """Return the log of an open store as a source, with the older messages of its tier before it."""
    logs, queues = logs_of(store), queue_files_of(store)
    earlier = _tier_before(store, logs, queues)
    return Source([*earlier.files, *logs], directories_of(store), store, queues, note=earlier.note)


class _Earlier(NamedTuple):
    """The files of a tier that come before the log of its store, or a note on why they are not read."""

    files: list[LogFile]
    note: str | None = None


def _tier_before(store: Store, logs: Sequence[LogFile], queues: Sequence[QueueFiles]) -> _Earlier:
    """Return the files of the tier that the settings of a store name, without messages that the log has too.

    A queue of the tier is left out if it is not known which of its messages the log has.
    """
    if not store.config.tiered_store_file_path:
        return _Earlier([])
    found = tier_of(store)
    if not isinstance(found, Tier):
        return _Earlier([], found and f"{found.reason}: older messages are not read")
    with found as tier:
        label = tier_label(store, tier)
        if not queues and paths.CONSUME_QUEUE in store.listing.databases():
            return _Earlier([], f"{label} is not read beside queues in RocksDB: name it to read it")
        if not logs:  # a log whose volume is not mounted must not look like one without messages
            return _Earlier([], f"{label} is not read: the commit log is empty. Name the tier to read it")
        log_min = logs[0].base_offset
        until = first_kept(queues, log_min)
        unknown = _without_boundary(store, tier, until)
        for queue in unknown:
            del tier.queues[queue]
        return _Earlier(tier_files(tier, label, log_min, until), _note_on_unknown(label, unknown) if unknown else None)


def _without_boundary(store: Store, tier: Tier, until: Mapping[QueueId, int]) -> list[QueueId]:
    """Return the queues of a tier of which the log can have messages too, and the queues of the store do not say which.

    A broker removes a queue when the log has no message of it any more. Then the messages in the tier are older than
    the log.
    """
    untold = [queue for queue in tier.queues if queue not in until]
    if not untold:
        return []
    try:
        first = first_record(store.commit_log, dledger=store.is_dledger)
    except ReadFailed:
        return untold
    if first is None:
        return []
    return [queue for queue in untold if not _ends_before(tier, queue, first.store_timestamp)]


def _ends_before(tier: Tier, queue: QueueId, time: int) -> bool:
    """Return whether the last message of a queue in a tier was stored before ``time`` (ms)."""
    try:
        last = tier.last_time(queue)
    except ReadFailed:
        return False
    return last is not None and last < time


# Queues that a note names at most.
_MOST_NAMED = 3


def _note_on_unknown(label: str, unknown: Sequence[QueueId]) -> str:
    names = [f"{queue.topic}/{queue.queue_id}" for queue in unknown[:_MOST_NAMED]]
    more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
    return (
        f"{', '.join(names)}{more} of {label} {'are' if len(unknown) > 1 else 'is'} not read: the queues of the store "
        "do not say which of the messages the log has too. Name the tier to read it"
    )


def tier_label(store: Store, tier: Tier) -> str:
    """Return the directory of a tier as people see it: relative to its store if it is there."""
    return beneath(store.root, tier.root) or tier.root


def tier_files(
    tier: Tier, name: str = "", end: int | None = None, until: Mapping[QueueId, int] | None = None
) -> list[LogFile]:
    """Return the files of the logs of a tier as one log.

    ``name`` is the directory of the tier as people see it. The log begins at 0, or it ends at ``end``. Messages from
    the queue offsets in ``until`` on are left out.
    """
    found: list[LogFile] = []
    at = 0
    for queue in tier.queues.values():
        if queue.log:
            part = TierPart(*queue.queue, at - queue.log[0].base_offset, (until or {}).get(queue.queue))
            found += [_tier_file(tier, segment, name, part) for segment in queue.log]
            at = found[-1].end_offset
    back = 0 if end is None else end - at
    return [
        file._replace(
            base_offset=file.base_offset + back, tier=file.tier and file.tier._replace(shift=file.shift + back)
        )
        for file in found
    ]


def _tier_file(tier: Tier, segment: Segment, name: str, part: TierPart) -> LogFile:
    shown = f"{name}/{segment.path}" if name else segment.path
    place = segment.base_offset + part.shift
    return LogFile(place, segment.size, tier.root, segment.path, shown, LogKind.TIER, part)


def first_kept(queues: Sequence[QueueFiles], log_min: int) -> dict[QueueId, int]:
    """Return the queue offset from which the log of a store has each queue; without an entry a queue is left out."""
    found = {}
    for queue in queues:
        try:
            first = first_offset_from(queue, log_min)
        except ReadFailed:  # then the tier may have messages that the log has too
            continue
        if first is not None:
            found[queue.queue] = first
    return found


def _of_directory(directory: str, path: str, kind: LogKind) -> Source:
    found = LogDirectory(directory, path, path, kind)
    return Source(list_logs([found]), [found])


# Most store directories have this name, so the directory above is the better name for a broker.
_USUAL_NAME = "store"
_QUEUE_DIRECTORY = (CONSUME_QUEUE, CONSUME_QUEUE_EXT)
# The first release that compacts topics.
COMPACTING = "5.1.0"
# The first release that has tiers of these names.
TIERING = "5.1.0"


class StoreLog(NamedTuple):
    """The log of a store: files, queues, whether a broker is writing, the broker's name, and the end of the log.

    Without a broker name in the settings of the store ``broker`` has the value None. ``version`` is the broker that
    wrote the log. ``note`` says what is not read.
    """

    root: str
    files: list[LogFile]
    queues: list[QueueFiles]
    live: bool
    broker: str | None
    end: LogEnd
    version: str
    note: str | None = None


class StoreDirectories(NamedTuple):
    """The directories of a store's log, for readers that list them again while a broker adds files.

    ``StoreLog`` has the files of one moment. ``broker`` and ``version`` are as there.
    """

    root: str
    broker: str | None
    directories: list[LogDirectory]
    version: str


@contextmanager
def _opened(path: str, without: Collection[str] = ()) -> Iterator[Store]:
    """Give the store at ``path``, open for reading; ``without`` names directories that are not listed."""
    store = open_store(path, without=without)
    try:
        yield store
    finally:
        store.close()


def read_store_log(path: str) -> StoreLog:
    """Read the log of the store at ``path``: its files, and the end of its last sound record at this moment.

    ``path`` may also name the log of a compacted queue. Its records keep the physical offsets of the commit log, so it
    has no gaps and no end of its own, and the store's queues do not point into it.
    """
    with kept_listing(path):
        return _read_store_log(path)


def _read_store_log(path: str) -> StoreLog:
    """Do the work of ``read_store_log``, for which object storage is listed only once."""
    compacted = find_compaction_log(path)
    if compacted is not None:
        files = compacted.files
        end = LogEnd(files[-1].end_offset if files else 0, None)
        name = _directory_name(compacted.root)
        return StoreLog(path, files, [], live=False, broker=name, end=end, version=COMPACTING)
    try:
        return _log_of_store(path)
    except StoreError:
        place = find_tier(path)
        if place is None:
            raise
    files = _of_tier(place).files
    end = LogEnd(files[-1].end_offset if files else 0, None)
    return StoreLog(path, files, [], live=False, broker=os.path.basename(place.root), end=end, version=TIERING)


def _log_of_store(path: str) -> StoreLog:
    with _opened(path) as store:
        queues, source = simple_queues(store.listing), source_of(store)
        return StoreLog(
            root=store.root,
            files=source.files,
            queues=source.queues,
            live=store.is_live,
            broker=_broker_name(store),
            end=find_log_end(store.commit_log, queues, dledger=store.is_dledger),
            version=store.version.value,
            note=source.note,
        )


def read_store_directories(path: str) -> StoreDirectories:
    """Return the directories of the log. Queues are not listed: there can be thousands of them."""
    with _opened(path, _QUEUE_DIRECTORY) as store:
        return StoreDirectories(store.root, _broker_name(store), directories_of(store), store.version.value)


def log_up_to(store: StoreDirectories, files: list[LogFile], end: int, queues: list[QueueFiles]) -> StoreLog:
    """Return the log of a store up to ``end``, the end of a settled record, while a broker may be writing to it."""
    end_of_log = LogEnd(end, None)
    return StoreLog(store.root, files, queues, True, store.broker, end_of_log, store.version)


def broker_names(stores: Sequence[StoreLog] | Sequence[StoreDirectories]) -> list[str]:
    """Return a unique name for each store's broker: its own, else that of its directory.

    Stores that would have the same name are named by their paths. Raises UsageError if a store is given twice.
    """
    roots = [store.root for store in stores]
    names = [store.broker or _directory_name(store.root) for store in stores]
    often = Counter(names)
    names = [name if often[name] == 1 else root for name, root in zip(names, roots, strict=True)]
    for root, times in Counter(roots).items():
        if times > 1:
            raise UsageError(
                f"{root} is named {times} times, and each message would be counted {times} times", hint="name it once"
            )
    return names


def _directory_name(root: str) -> str:
    """Return the name of a store's directory, or of the one above if that is the usual name."""
    above, name = os.path.split(absolute(root))
    return os.path.basename(above) or name if name == _USUAL_NAME else name


def _broker_name(store: Store) -> str | None:
    """Return the name of the broker; None if the settings of the store do not give it."""
    return store.config.broker_name if "brokerName" in store.config.origins else None


def read_queue_files(path: str) -> list[QueueFiles]:
    """Return the queues of the store at ``path`` that are in files."""
    with _opened(path) as store:
        return queue_files_of(store)
