"""The files of a store, listed without reading them, and the check of its names before a store is written.

The commit log can be in several directories, in the store or elsewhere, which ``broker.conf`` names. Without it, any
directory is taken for part of the log whose files have names of segments and begin like a commit log.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.config import StoreConfig
from rmqtool.errors import ReadFailed, StoreError
from rmqtool.files.filesystem import Closable, Entry, Kind, ReadableFileSystem, WritableFileSystem, join
from rmqtool.formats import layouts, paths
from rmqtool.formats.codes import BLANK_MAGIC, RECORD_MAGICS
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.store.segments import OpenFiles, Segment, SegmentQueue

# One text for everything that finds such a store: it usually means that the log's volume is not mounted.
LOG_IS_EMPTY = "the commit log is empty but queues exist"
_LOG_MAGICS = (*RECORD_MAGICS, BLANK_MAGIC)
# Of a file of RocksDB with rows.
TABLE_SUFFIX = ".sst"


class FoundFile(NamedTuple):
    """A regular file of the store."""

    path: str
    what: StorePath
    size: int
    mtime_ns: int


class Stranger(NamedTuple):
    """A name that no broker gives, or something that is not a regular file."""

    path: str
    kind: Kind


class Link(NamedTuple):
    """A symbolic link that is followed, and its target."""

    path: str
    target: str


class QueueKinds(NamedTuple):
    """Where a store has its simple queues. A broker that writes both kinds reads the files."""

    in_files: bool
    in_rows: bool


# Settings are in the last two only if the queues are in RocksDB, too.
_WITH_QUEUES = frozenset({paths.CONSUME_QUEUE, f"{paths.CONFIG}/topics", f"{paths.CONFIG}/metadata"})


class QueueId(NamedTuple):
    topic: str
    queue_id: int


@dataclass
class StoreListing:
    """Everything below the root of a store, and the parts of its commit log elsewhere."""

    filesystem: ReadableFileSystem
    files: list[FoundFile] = field(default_factory=list)
    strangers: list[Stranger] = field(default_factory=list)
    # Files with several names, by device and inode: all their names in this store.
    linked: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    # Symbolic links to a part of the store; the part is read through them.
    followed: list[Link] = field(default_factory=list)
    log_segments: list[Segment] = field(default_factory=list)
    log_directories: list[str] = field(default_factory=list)
    open_files: OpenFiles = field(default_factory=OpenFiles)
    _queues: dict[FileKind, dict[QueueId, SegmentQueue]] = field(default_factory=dict, repr=False)

    def of_kind(self, *kinds: FileKind) -> Iterator[FoundFile]:
        """Yield the files of these kinds, in the order of their paths."""
        return (file for file in self.files if file.what.kind in kinds)

    def find(self, path: str) -> FoundFile | None:
        return next((file for file in self.files if file.path == path), None)

    def segments(self, files: Iterable[FoundFile]) -> SegmentQueue:
        """Return a segment queue of ``files``."""
        found = (
            Segment(file.what.base_offset, file.size, file.path, self.filesystem)
            for file in files
            if file.what.base_offset is not None
        )
        return SegmentQueue(found, files=self.open_files)

    def dledger_data(self) -> SegmentQueue:
        """Return DLedger's data files as one log."""
        return self.segments(self.of_kind(FileKind.DLEDGER_DATA))

    def queues(self, kind: FileKind) -> dict[QueueId, SegmentQueue]:
        """Return the queues of a kind. The listing must be complete, because the result is kept."""
        if kind not in self._queues:
            self._queues[kind] = self._read_queues(kind)
        return self._queues[kind]

    def _read_queues(self, kind: FileKind) -> dict[QueueId, SegmentQueue]:
        grouped: dict[QueueId, list[FoundFile]] = {}
        for file in self.of_kind(kind):
            what = file.what
            if what.topic is not None and what.queue_id is not None and what.stage is None:
                grouped.setdefault(QueueId(what.topic, what.queue_id), []).append(file)
        return {queue: self.segments(grouped[queue]) for queue in sorted(grouped)}

    def iter_linked(self) -> Iterator[list[str]]:
        """Yield the names of each file with several names in this store: a write to one name changes the others.

        RocksDB's files are left out: it makes hard links itself and never writes to a file again.
        """
        own = {file.path for file in self.of_kind(FileKind.ROCKSDB)}
        for names in self.linked.values():
            found = [name for name in names if name not in own]
            if len(found) > 1:
                yield found

    def linked_outside(self) -> list[str]:
        """Return the files that have one name in this store and others outside it: copies with hard links.

        Databases are left out: RocksDB's own checkpoints are such copies, and it never writes a table twice.
        """
        own = {file.path for file in self.of_kind(FileKind.ROCKSDB)}
        return sorted(names[0] for names in self.linked.values() if len(names) == 1 and names[0] not in own)

    def queue_kinds(self, config: StoreConfig) -> QueueKinds:
        """Return where the queues are, as the files tell, or for an empty store the settings."""
        both = config.rocksdb_cq_double_write_enable
        in_rows = both or config.store_type != "default" or not _WITH_QUEUES.isdisjoint(self.databases())
        has_files = any(True for _ in self.of_kind(FileKind.CONSUME_QUEUE, FileKind.BATCH_CONSUME_QUEUE))
        return QueueKinds(has_files or both or not in_rows, in_rows)

    def databases(self) -> list[str]:
        """Return the directories that contain a RocksDB database."""
        return sorted({file.what.owner or "" for file in self.of_kind(FileKind.ROCKSDB)})

    def has_rows(self, directory: str) -> bool:
        """Return whether the database in ``directory`` can have rows: a table file, or a log that is not empty."""
        files = (file for file in self.of_kind(FileKind.ROCKSDB) if file.what.owner == directory)
        return any(file.path.endswith((TABLE_SUFFIX, ".log")) and file.size for file in files)


def list_store(
    filesystem: ReadableFileSystem,
    log_directories: Iterable[tuple[str, ReadableFileSystem]],
    without: Collection[str] = (),
) -> StoreListing:
    """List a store. ``log_directories`` are those of the settings, each with the file system it is in.

    Directories in ``without`` are not listed: the caller does not need them, and there can be thousands of queues.
    """
    configured = list(log_directories)
    inside = [directory for directory, where in configured if where is filesystem]
    listing = StoreListing(filesystem, log_directories=inside)
    _list_directory(listing, "", without)
    for directory, where in configured:
        if where is not filesystem:
            listing.log_segments += iter_segments(where, directory)
    listing.log_segments += [
        Segment(file.what.base_offset or 0, file.size, file.path, filesystem)
        for file in listing.of_kind(FileKind.COMMIT_LOG)
    ]
    if not listing.log_segments:
        _guess_log(listing)
    return listing


def _list_directory(listing: StoreListing, directory: str, without: Collection[str]) -> None:
    for entry in listing.filesystem.listdir(directory):
        path = join(directory, entry.name)
        if path in without:
            continue
        if entry.is_link:
            listing.followed.append(Link(path, os.path.realpath(listing.filesystem.shown(path))))
        if entry.kind is Kind.DIRECTORY:
            if paths.parse_segment_name(entry.name) is not None:  # a directory with the name of a segment
                listing.strangers.append(Stranger(path, entry.kind))
            _list_directory(listing, path, without)
        elif entry.kind is not Kind.FILE:
            listing.strangers.append(Stranger(path, entry.kind))
        else:
            _add_file(listing, path)


def _add_file(listing: StoreListing, path: str) -> None:
    status = listing.filesystem.find_stat(path)
    if status is None:  # deleted since the directory was listed
        return
    what = paths.classify(path, listing.log_directories)
    if status.links > 1:
        listing.linked.setdefault((status.device, status.inode), []).append(path)
    if what.kind is FileKind.UNKNOWN:
        listing.strangers.append(Stranger(path, Kind.FILE))
    listing.files.append(FoundFile(path, what, status.size, status.mtime_ns))


def iter_segments(filesystem: ReadableFileSystem, directory: str) -> Iterator[Segment]:
    """Yield the files of a directory that are named as segments, as they are now."""
    for name, base_offset in _segment_names(filesystem.listdir(directory)):
        path = join(directory, name)
        status = filesystem.find_stat(path)
        if status is not None:
            yield Segment(base_offset, status.size, path, filesystem)


def _segment_names(entries: Iterable[Entry]) -> Iterator[tuple[str, int]]:
    for entry in entries:
        base_offset = paths.parse_segment_name(entry.name) if entry.kind is Kind.FILE else None
        if base_offset is not None:
            yield entry.name, base_offset


def _guess_log(listing: StoreListing) -> None:
    """Take each directory with files that look like segments of a commit log for one of the log's.

    The root can be one of them.
    """
    candidates: dict[str, list[int]] = {}
    for number, file in enumerate(listing.files):
        directory, _, name = file.path.rpartition("/")
        if file.what.kind is FileKind.UNKNOWN and paths.parse_segment_name(name) is not None:
            candidates.setdefault(directory, []).append(number)
    for directory, numbers in candidates.items():
        if any(_is_log(listing, listing.files[number]) for number in numbers):
            listing.log_directories.append(directory)
            for number in numbers:
                _take_for_log(listing, number, directory)


def _take_for_log(listing: StoreListing, number: int, directory: str) -> None:
    file = listing.files[number]
    base_offset = paths.parse_segment_name(file.path.rpartition("/")[2]) or 0
    what = StorePath(FileKind.COMMIT_LOG, base_offset=base_offset, owner=directory)
    listing.files[number] = file._replace(what=what)
    listing.log_segments.append(Segment(base_offset, file.size, file.path, listing.filesystem))
    listing.strangers = [stranger for stranger in listing.strangers if stranger.path != file.path]


def list_one_file(filesystem: ReadableFileSystem, path: str, what: StorePath) -> StoreListing:
    """List one file as a store of its own: a segment that was saved elsewhere, for example."""
    status = filesystem.stat(path)
    listing = StoreListing(filesystem, [FoundFile(path, what, status.size, status.mtime_ns)])
    if what.kind is FileKind.COMMIT_LOG:
        listing.log_segments.append(Segment(what.base_offset or 0, status.size, path, filesystem))
    return listing


def _is_log(listing: StoreListing, file: FoundFile) -> bool:
    try:
        with listing.filesystem.open_read(file.path) as opened:
            head = opened.pread(layouts.RECORD_START.size, 0)
    except ReadFailed:
        return False
    return len(head) == layouts.RECORD_START.size and layouts.RECORD_START.decode(head).magic in _LOG_MAGICS


def beneath(root: str, directory: str) -> str | None:
    """Return ``directory`` relative to ``root`` if it is below it, else None."""
    relative = os.path.relpath(directory, root)
    return None if relative == ".." or relative.startswith("../") or relative == "." else relative


_FILES = (paths.LOCK, paths.CHECKPOINT, paths.ABORT + paths.Copy.BAK)
_DIRECTORIES = (
    paths.CONSUME_QUEUE,
    paths.CONSUME_QUEUE_EXT,
    paths.BATCH_CONSUME_QUEUE,
    paths.INDEX,
    paths.CONFIG,
)


def lock_store(files: WritableFileSystem, log_directories: Iterable[tuple[ReadableFileSystem, str]] = ()) -> Closable:
    """Take the lock of a store before it is written; refuse one in which a name is of the wrong kind."""
    wanted = [(files, name, Kind.FILE) for name in _FILES]
    wanted += [(files, name, Kind.DIRECTORY) for name in _DIRECTORIES]
    for where, name, kind in (*wanted, *((where, name, Kind.DIRECTORY) for where, name in log_directories if name)):
        status = where.find_stat(name)
        if status is not None and status.kind is not kind:
            raise _refusal(name, kind, status.kind, where.shown(name))
    if files.is_directory(paths.ABORT) and files.listdir(paths.ABORT):
        raise _refusal(paths.ABORT, Kind.FILE, Kind.DIRECTORY, files.shown(paths.ABORT))
    return files.lock()


def _refusal(name: str, wanted: Kind, found: Kind, shown: str) -> StoreError:
    what = "directory" if wanted is Kind.DIRECTORY else "file"
    hint = "nothing was written; move it away"
    if found is Kind.SYMLINK:
        hint = "nothing was written; links are not followed: replace the link with its target"
        if wanted is Kind.DIRECTORY and name not in _DIRECTORIES:
            hint = "nothing was written; links are not followed: name its target, --conf storePathCommitLog=DIR"
    return StoreError(f"{name} is a {found.value}, a store has a {what} there", file=shown, hint=hint)
