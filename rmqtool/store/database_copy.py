"""Writes RocksDB databases of a store: rows go to a working copy, whose files are then brought into the store.

The working copy is a temporary directory with links to the table files, which never change, and copies of all others.
So no call of RocksDB writes to the store, and a store in memory or under an overlay has databases, too. ``publish``
brings new table files and the new manifest into the store, and then CURRENT, which names the manifest: until then
RocksDB reads the old rows, afterwards the new ones. Rows are written without RocksDB's own log, as a broker writes
those of queues; what was not published is lost with the process.

The tables have the format that the RocksDB of 5.2 and later reads (8.4). upstream: RocksDBOptionsFactory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rmqtool.errors import WriteFailed
from rmqtool.files.filesystem import Kind, WritableFileSystem, join, make_directories
from rmqtool.store.rocksdb import Database, Listed, copy_database, import_rocksdict, opened_copy, room_for_copy

_CURRENT, _LOCK = "CURRENT", "LOCK"
_NEW_CURRENT = "CURRENT.dbtmp"
_TABLE, _MANIFEST, _LOG = ".sst", "MANIFEST-", ".log"
_STARTS, _IDENTITY = (_MANIFEST, "OPTIONS-"), "IDENTITY"
_PIECE = 1 << 20
# The format of tables, the size of their blocks, and the bits of their filter for each key. As upstream.
_FORMAT, _BLOCK, _FILTER_BITS = 5, 32 << 10, 16
# Each publication adds a table to each changed family. With more than this they are merged; a broker stops its writes
# at ten.
_MOST_TABLES = 6

# Called with the path and the action (create, modify, delete) before a file of the store is changed.
BeforeWrite = Callable[[str, str], None]


class Row(NamedTuple):
    """A row to write; without a value it is deleted."""

    family: str
    key: bytes
    value: bytes | None


class DatabaseCopy:
    """A working copy of one database. Its rows can be read and written; ``publish`` brings them into the store.

    With ``fresh`` it begins empty, and replaces the database in the store. Raises as ``open_database`` does.
    """

    def __init__(self, store: Listed, directory: str, families: Iterable[str], *, fresh: bool = False) -> None:
        self.directory = directory
        self._fresh = fresh
        self._rocksdict: Any = import_rocksdict(directory)
        self._temporary: tempfile.TemporaryDirectory[str] = room_for_copy()
        self.path = self._temporary.name
        self._is_changed = fresh
        try:
            if not fresh:
                copy_database(store, directory, self.path)
            self._opened, names = opened_copy(store, directory, lambda: self._open(families))
        except BaseException:
            self._temporary.cleanup()
            raise
        self.rows = Database(self._opened, names, directory, store)
        self._handles = {name: self._opened.get_column_family_handle(name) for name in names}

    def _open(self, families: Iterable[str]) -> tuple[Any, list[str]]:
        known = set() if self._fresh else set(self._rocksdict.Rdict.list_cf(self.path))
        names = sorted({"default", *families, *known})
        options = {name: self._options() for name in names}
        own = self._options()
        own.create_if_missing(True)
        own.create_missing_column_families(True)
        own.set_atomic_flush(True)
        return self._rocksdict.Rdict(self.path, own, options), names

    def _options(self) -> Any:
        tables = self._rocksdict.BlockBasedOptions()
        tables.set_format_version(_FORMAT)
        tables.set_checksum_type(self._rocksdict.ChecksumType.crc32c())
        tables.set_bloom_filter(_FILTER_BITS, False)
        tables.set_block_size(_BLOCK)
        options = self._rocksdict.Options(raw_mode=True)
        options.set_block_based_table_factory(tables)
        options.set_disable_auto_compactions(True)
        return options

    def write(self, rows: Iterable[Row]) -> None:
        """Write rows together: a reader of this copy sees all of them or none."""
        batch, count = self._rocksdict.WriteBatch(raw_mode=True), 0
        for family, key, value in rows:
            count += 1
            if value is None:
                batch.delete(key, self._handles[family])
            else:
                batch.put(key, value, self._handles[family])
        if not count:
            return
        options = self._rocksdict.WriteOptions()
        options.disable_wal = True
        self._is_changed = True
        self._call(lambda: self._opened.write(batch, options))

    def publish(self, files: WritableFileSystem, before_write: BeforeWrite | None = None) -> bool:
        """Bring the rows into the store, durably; return whether anything had to be written."""
        if not self._is_changed:
            return False
        self._call(self._flush)
        publishing = _Publishing(files, self.directory, self.path, before_write or _tell_nobody)
        tables = {table["name"].lstrip("/") for table in self._opened.live_files()}
        publishing.run(tables, fresh=self._fresh)
        self._is_changed = self._fresh = False
        return True

    def close(self) -> None:
        """Remove the working copy; rows that were not published are lost."""
        self._opened.close()
        self._temporary.cleanup()

    def _flush(self) -> None:
        for name in self.rows.families:
            family = self._opened.get_column_family(name)
            family.flush()
            if self.count_unmerged(name) > _MOST_TABLES:
                family.compact_range(None, None)

    def count_unmerged(self, name: str) -> int:
        """Return the number of tables of a family that were flushed and are not merged."""
        return int(self._opened.get_column_family(name).property_value("rocksdb.num-files-at-level0") or 0)

    def _call(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # rocksdict raises plain Exception for every error of RocksDB
            raise WriteFailed(
                f"RocksDB cannot write rows of {self.directory}: {error}",
                file=self.directory,
                hint="free some space for temporary files, or set TMPDIR",
            ) from error


def _tell_nobody(_path: str, _action: str) -> None:
    """Take the name of a file that is about to be changed."""


class _Publishing:
    """Brings the files of a working copy into the store."""

    def __init__(self, files: WritableFileSystem, directory: str, source: str, before_write: BeforeWrite) -> None:
        self._files = files
        self._directory = directory
        self._source = source
        self._before_write = before_write

    def run(self, tables: set[str], *, fresh: bool) -> None:
        """Bring ``tables`` and the manifest, then CURRENT, then remove what RocksDB does not need any more."""
        make_directories(self._files, self._directory)
        there = {entry.name for entry in self._files.listdir(self._directory) if entry.kind is Kind.FILE}
        if fresh:
            # The numbers of files begin again. Without CURRENT a broker makes an empty database, and rebuilds it.
            there -= {name for name in sorted(there, key=lambda name: name != _CURRENT) if self._remove_old(name)}
        with open(os.path.join(self._source, _CURRENT), "rb") as file:
            current = file.read()
        manifest = current.decode("ascii").strip()
        for name in sorted(tables - there):
            self._copy(name, 0)
        # A manifest that CURRENT names already tells readers of these tables: their names must be durable before it.
        self._files.fsync_dir(self._directory)
        self._copy(manifest, self._size_of(manifest) if manifest in there else 0)
        for name in (_IDENTITY, _LOCK):
            if name not in there:
                self._copy(name, 0)
        self._files.fsync_dir(self._directory)
        if self._read(_CURRENT) != current:
            self._switch(current)
        for name in sorted(there - tables - {manifest, _CURRENT}):
            if name.endswith((_TABLE, _LOG)) or name.startswith(_MANIFEST):
                self._remove(name)
        self._files.fsync_dir(self._directory)

    def _switch(self, current: bytes) -> None:
        path, new = self._path(_CURRENT), self._path(_NEW_CURRENT)
        self._before_write(path, "modify" if self._files.exists(path) else "create")
        if self._files.exists(new):
            # A publication stopped here. RocksDB does not know this name, and leaves the file.
            self._files.unlink(new)
        with self._files.create(new) as file:
            file.pwrite(current, 0)
            file.fsync()
        self._files.rename(new, path)
        self._files.fsync_dir(self._directory)

    def _copy(self, name: str, begin: int) -> None:
        """Copy a file from an offset on; the bytes before it are in the store already."""
        path, source = self._path(name), os.path.join(self._source, name)
        if begin == os.path.getsize(source) and begin:
            return
        self._before_write(path, "modify" if begin else "create")
        with open(source, "rb") as read, self._files.open_write(path) if begin else self._files.create(path) as file:
            read.seek(begin)
            while piece := read.read(_PIECE):
                file.pwrite(piece, begin)
                begin += len(piece)
            file.fsync()

    def _read(self, name: str) -> bytes:
        path = self._path(name)
        if not self._files.exists(path):
            return b""
        with self._files.open_read(path) as file:
            return file.pread(_PIECE, 0)

    def _size_of(self, name: str) -> int:
        return self._files.stat(self._path(name)).size

    def _remove_old(self, name: str) -> bool:
        """Remove a file of a database that is replaced; LOCK, IDENTITY and files that are not RocksDB's stay."""
        is_its = name.endswith((_TABLE, _LOG)) or name.startswith(_STARTS) or name == _CURRENT
        if is_its:
            self._remove(name)
            self._files.fsync_dir(self._directory)
        return is_its

    def _remove(self, name: str) -> None:
        self._before_write(self._path(name), "delete")
        self._files.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return join(self._directory, name)
