"""RocksDB databases of a store, opened for reading through the extra ``rocksdb``, and the queues in them.

RocksDB cannot open a directory without writing to it. So a temporary directory is opened instead, with links to the
table files, which never change, and copies of all other files. The write-ahead logs are replayed in memory.

Upstream: ``RocksDBConsumeQueueTable``, ``RocksDBConsumeQueueOffsetTable``.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any, NamedTuple, Protocol, TypeVar

from rmqtool.errors import DatabaseUnopened, OptionalMissing, RowsUnread, WriteFailed
from rmqtool.files.failures import write_failed
from rmqtool.files.filesystem import Kind, ReadableFile, ReadableFileSystem, join
from rmqtool.files.overlay import OverlayFileSystem
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.layouts import RocksDBOffsetValue, RocksDBQueueValue
from rmqtool.formats.paths import FileKind
from rmqtool.formats.rocksdb_rows import CHECKPOINT_TOPIC, BoundRowKey, QueueRowKey
from rmqtool.store.listing import TABLE_SUFFIX, FoundFile, QueueId, StoreListing

_PIECE = 1 << 20
_MANIFEST = "MANIFEST-"
_TABLE_NAME = re.compile(r"[0-9]+\.sst")
# The files without which RocksDB opens nothing; of several that an error names, the first one is damaged or missing.
_NEEDED_NAME = re.compile(r"[0-9]+\.(?:sst|log)|MANIFEST-[0-9]+|CURRENT")
_TEMPORARY = re.compile(r"\S*/rmqtool-rocksdb-[^/\s]+/")


_Opened = TypeVar("_Opened")
_ROOM = "the database is opened as a temporary copy: free some space there, or set TMPDIR"


class Listed(Protocol):
    """A store, as far as a database needs it."""

    @property
    def root(self) -> str:
        """Its directory."""

    @property
    def filesystem(self) -> ReadableFileSystem:
        """Its files."""

    @property
    def listing(self) -> StoreListing:
        """The listing of its files."""


class ListedStore(NamedTuple):
    """A store as ``open_database`` needs it."""

    root: str
    filesystem: ReadableFileSystem
    listing: StoreListing


def find_database(files: ReadableFileSystem, directory: str) -> ListedStore | None:
    """Return a store with the files of one database listed, or None without a database."""
    found = []
    for entry in files.listdir(directory) if files.is_directory(directory) else ():
        path = join(directory, entry.name)
        what = paths.classify(path, ())
        if entry.kind is Kind.FILE and what.kind is FileKind.ROCKSDB:
            status = files.stat(path)
            found.append(FoundFile(path, what, status.size, status.mtime_ns))
    return ListedStore(files.shown("").rstrip("/"), files, StoreListing(files, found)) if found else None


class Database:
    """An open database: column families of rows, in the order of their keys.

    Raises ``RowsUnread``, with the name of the table file, if RocksDB cannot read a row.
    """

    def __init__(self, opened: Any, families: list[str], directory: str, store: Listed) -> None:
        self._opened = opened
        self._directory = directory
        self._store = store
        self.families = families

    def iter_rows(self, family: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a family whose keys begin with ``prefix``, from the key ``start`` on."""
        if family not in self.families:
            return
        at = start or prefix
        rows = self._opened.get_column_family(family)
        for key, value in rows.items(from_key=at or None):
            if not key.startswith(prefix):
                return
            at = key
            yield bytes(key), bytes(value)
        self._require_end(rows, at)

    def find_key(self, family: str, start: bytes) -> bytes | None:
        """Return the first key at or after ``start``."""
        if family not in self.families:
            return None
        rows = self._opened.get_column_family(family)
        found = next(iter(rows.keys(from_key=start)), None)
        if found is None:
            self._require_end(rows, start)
        return None if found is None else bytes(found)

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a row, or None."""
        if family not in self.families:
            return None
        try:
            value = self._opened.get_column_family(family).get(key)
        except Exception as error:  # rocksdict raises plain Exception for every error of RocksDB
            raise _unreadable(self._store, self._directory, error) from error
        return None if value is None else bytes(value)

    def _require_end(self, rows: Any, last: bytes) -> None:
        """Raise unless the rows really end after the key ``last``.

        An iterator stops silently at a block that it cannot read. Only its status tells, and rocksdict's iterators over
        items do not give it. So another iterator looks at what follows.
        """
        follower = rows.iter()
        try:
            if last:
                follower.seek(last)
            else:
                follower.seek_to_first()
            if follower.valid():
                follower.next()
            follower.status()
        except Exception as error:
            raise _unreadable(self._store, self._directory, error) from error


def _unreadable(store: Listed, directory: str, error: Exception) -> RowsUnread:
    """Return the error for an unreadable row, with the table file that RocksDB names, by its name in the store."""
    said = _TEMPORARY.sub("", str(error))
    table = _TABLE_NAME.search(said)
    file = directory if table is None else f"{directory}/{table[0]}"
    where = os.path.join(store.root, file)
    return RowsUnread(f"RocksDB cannot read {file}: {said}", file=where, hint=_way_out(store, directory))


def _way_out(store: Listed, directory: str) -> str:
    """Return a command that works without the database, because the log has the messages of all queues."""
    if directory == paths.CONSUME_QUEUE:
        return f"rmqtool repair {quote(store.root)}"
    return f"rmqtool copy {quote(store.root)} {quote(store.root)}.new --salvage"


@contextmanager
def open_database(store: Listed, directory: str) -> Iterator[Database]:
    """Open the database in ``directory`` of the store.

    Raises ``OptionalMissing`` without the extra, ``DatabaseUnopened`` when RocksDB refuses the files.
    """
    rocksdict = import_rocksdict(directory)
    with room_for_copy() as copy:
        copy_database(store, directory, copy)

        def open_copy() -> tuple[Any, list[str]]:
            families = rocksdict.Rdict.list_cf(copy)
            options = {family: rocksdict.Options(raw_mode=True) for family in families}
            access = rocksdict.AccessType.read_only()
            return rocksdict.Rdict(copy, rocksdict.Options(raw_mode=True), options, access), families

        opened, families = opened_copy(store, directory, open_copy)
        try:
            yield Database(opened, families, directory, store)
        finally:
            opened.close()


def find_unread_log(store: Listed, directory: str) -> RowsUnread | None:
    """Return the error for a write-ahead log of a database that is damaged before its end, None if it is not.

    RocksDB opens such a database, without the rows after the damage. A record that is torn at the end of the log is
    usual after a crash. Queues have no such rows: brokers write them past the log.
    """
    files = [file for file in store.listing.of_kind(FileKind.ROCKSDB) if file.what.owner == directory and file.size]
    logs = [file.path for file in files if (file.what.name or "").endswith(".log")]
    if not logs or directory == paths.CONSUME_QUEUE:
        return None
    rocksdict = import_rocksdict(directory)
    with room_for_copy() as copy:
        copy_database(store, directory, copy)
        own = rocksdict.Options(raw_mode=True)
        own.set_wal_recovery_mode(rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records())
        families = {family: rocksdict.Options(raw_mode=True) for family in rocksdict.Rdict.list_cf(copy)}
        try:
            rocksdict.Rdict(copy, own, families, rocksdict.AccessType.read_only()).close()
        except Exception as error:  # rocksdict raises plain Exception for every error of RocksDB
            said = f"RocksDB does not read {logs[-1]} to its end, rows are lost: {_TEMPORARY.sub('', str(error))}"
            where = os.path.join(store.root, logs[-1] if len(logs) == 1 else directory)
            return RowsUnread(said, file=where, hint=_way_out(store, directory))
    return None


def import_rocksdict(directory: str) -> Any:
    """Return the module of the extra ``rocksdb``; raise ``OptionalMissing`` without it."""
    try:
        import rocksdict
    except ImportError:
        raise OptionalMissing(
            f"{directory} is a RocksDB database; opening it needs the extra rocksdb",
            file=directory,
            hint="pip install 'rmqtool[rocksdb]'",
        ) from None
    return rocksdict


def opened_copy(store: Listed, directory: str, open_copy: Callable[[], _Opened]) -> _Opened:
    """Return what ``open_copy`` returns; raise ``DatabaseUnopened`` if RocksDB refuses the files."""
    try:
        return open_copy()
    except Exception as error:  # rocksdict raises plain Exception for every error of RocksDB
        said = _TEMPORARY.sub("", str(error))
        where = os.path.join(store.root, _damaged_file(store, directory, said))
        raise DatabaseUnopened(
            f"RocksDB cannot open {directory}: {said}", file=where, hint=_way_out(store, directory)
        ) from error


def _damaged_file(store: Listed, directory: str, said: str) -> str:
    """Return the file that an error of RocksDB is about, or the directory if it names none."""
    named = _NEEDED_NAME.search(said)
    if named is None:
        return directory
    name = named[0]
    is_manifest = name.startswith(_MANIFEST)
    if is_manifest and store.listing.find(f"{directory}/{name}") is None:
        # CURRENT names the manifest. If there is another one, CURRENT is wrong.
        files = store.listing.of_kind(FileKind.ROCKSDB)
        if any(file.what.owner == directory and (file.what.name or "").startswith(_MANIFEST) for file in files):
            name = "CURRENT"
    return f"{directory}/{name}"


def room_for_copy() -> tempfile.TemporaryDirectory[str]:
    """Make the temporary directory of a copy."""
    try:
        return tempfile.TemporaryDirectory(prefix="rmqtool-rocksdb-")
    except OSError as error:
        raise WriteFailed(f"no temporary directory can be made: {error.strerror}", hint=_ROOM) from error


def copy_database(store: Listed, directory: str, target: str) -> None:
    """Copy a database to a directory of this machine; table files become links."""
    for file in store.listing.of_kind(FileKind.ROCKSDB):
        name = file.what.name or ""
        if file.what.owner != directory or "/" in name:
            continue
        table = _find_real(store.filesystem, file.path) if name.endswith(TABLE_SUFFIX) else None
        if table is not None:
            os.symlink(table, os.path.join(target, name))
        else:
            with store.filesystem.open_read(file.path) as opened:
                _copy_file(opened, file.size, os.path.join(target, name))


def _find_real(files: ReadableFileSystem, path: str) -> str | None:
    """Return the path of a file on this machine; None if a file system in memory has its bytes."""
    while isinstance(files, OverlayFileSystem):
        below = files.below(path)
        if below is None:
            return None
        files = below
    return os.path.join(os.path.abspath(files.root), path) if isinstance(files, PosixReadableFileSystem) else None


def _copy_file(source: ReadableFile, size: int, target: str) -> None:
    try:
        with open(target, "wb") as out:
            for at in range(0, size, _PIECE):
                out.write(source.pread(min(_PIECE, size - at), at))
    except OSError as error:
        failure = write_failed("write to", target, error)
        failure.hint = _ROOM
        raise failure from error


_VALUE = layouts.ROCKSDB_QUEUE_VALUE


class QueueRow(NamedTuple):
    """An entry of a queue in RocksDB."""

    queue_offset: int
    value: RocksDBQueueValue


def has_database_queues(store: Listed) -> bool:
    """Return whether the store has a queue database that can have rows."""
    return store.listing.has_rows(paths.CONSUME_QUEUE)


def iter_bound_rows(database: Database) -> Iterator[tuple[QueueId, str, RocksDBOffsetValue]]:
    """Yield for each queue its first (``min``) and its last message (``max``)."""
    for key, value in database.iter_rows("offset"):
        bound = rocksdb_rows.decode_bound_key(key)
        offset = rocksdb_rows.decode_bound_value(value)
        if isinstance(bound, BoundRowKey) and offset is not None and bound.topic != CHECKPOINT_TOPIC:
            yield QueueId(bound.topic, bound.queue_id), bound.bound, offset


def read_bounds(database: Database) -> dict[QueueId, tuple[int, int]]:
    """Return the first and the next queue offset of each queue."""
    greatest: dict[QueueId, int] = {}
    smallest: dict[QueueId, int] = {}
    for queue, bound, offset in iter_bound_rows(database):
        table, add = (greatest, 1) if bound == "max" else (smallest, 0)
        table[queue] = offset.queue_offset + add
    return {queue: (smallest.get(queue, 0), end) for queue, end in greatest.items()}


def read_queue_bounds(store: Listed) -> dict[QueueId, tuple[int, int]]:
    """Return the first and the next queue offset of each queue in the database of a store, if it has one."""
    if not has_database_queues(store):
        return {}
    with open_database(store, paths.CONSUME_QUEUE) as database:
        return read_bounds(database)


def read_queue_row(database: Database, queue: QueueId, queue_offset: int) -> RocksDBQueueValue | None:
    data = database.get("default", rocksdb_rows.encode_queue_key(QueueRowKey(*queue, queue_offset)))
    return _VALUE.decode(data) if data is not None and len(data) == _VALUE.size else None


def iter_queue_rows(database: Database, queue: QueueId, begin: int = 0) -> Iterator[QueueRow]:
    """Yield the entries of a queue from a queue offset on."""
    start = rocksdb_rows.encode_queue_key(QueueRowKey(*queue, begin))
    for key, data in database.iter_rows("default", start[: -layouts.LONG.size], start):
        place = rocksdb_rows.decode_queue_key(key)
        if isinstance(place, QueueRowKey) and len(data) == _VALUE.size:
            yield QueueRow(place.queue_offset, _VALUE.decode(data))
