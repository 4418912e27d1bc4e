"""RocksDB databases of a store, opened for reading through the extra ``rocksdb``.

RocksDB cannot open a directory without leaving traces in it, so a temporary one is opened instead: links to the table
files, which never change, and copies of everything else. The write-ahead logs are replayed in memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.formats.paths import FileKind
from rmqtool.storage.discovery import StoreListing
from rmqtool.storage.filesystem import ReadableFileSystem

_TABLE_SUFFIX = ".sst"
_PIECE = 1 << 20


class Listed(Protocol):
    """A store that was listed."""

    @property
    def root(self) -> str:
        """Its directory."""

    @property
    def filesystem(self) -> ReadableFileSystem:
        """Its files."""

    @property
    def listing(self) -> StoreListing:
        """What is there."""


class Database:
    """An open database: families of rows, bytes to bytes, in the order of the keys."""

    def __init__(self, opened: Any, families: list[str]) -> None:
        self._opened = opened
        self.families = families

    def iter_rows(self, family: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a family whose keys begin with ``prefix``, from ``start``; none without such a family."""
        if family in self.families:
            for key, value in self._opened.get_column_family(family).items(from_key=start or prefix or None):
                if not key.startswith(prefix):
                    return
                yield bytes(key), bytes(value)

    def find_key(self, family: str, start: bytes) -> bytes | None:
        """Return the first key at or behind ``start``."""
        if family not in self.families:
            return None
        found = next(iter(self._opened.get_column_family(family).keys(from_key=start)), None)
        return None if found is None else bytes(found)

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of one row."""
        if family not in self.families:
            return None
        value = self._opened.get_column_family(family).get(key)
        return None if value is None else bytes(value)


def has_rows(store: Listed, directory: str) -> bool:
    """Return whether a database can hold rows at all: it has a table, or a log that is not empty."""
    return any(
        file.what.owner == directory and file.path.endswith((_TABLE_SUFFIX, ".log")) and file.size
        for file in store.listing.of_kind(FileKind.ROCKSDB)
    )


@contextmanager
def open_database(store: Listed, directory: str) -> Iterator[Database]:
    """Open the database in ``directory`` of the store.

    Raises ``OptionalMissing`` without the extra, ``ReadFailed`` when RocksDB refuses the files.
    """
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        raise OptionalMissing(
            f"{directory} is a RocksDB database; reading it needs the extra rocksdb",
            file=directory,
            hint="pip install 'rmqtool[rocksdb]'",
        ) from None
    with tempfile.TemporaryDirectory(prefix="rmqtool-rocksdb-") as copy:
        _copy_database(store, directory, copy)
        try:
            families = Rdict.list_cf(copy)
            options = {family: Options(raw_mode=True) for family in families}
            access = AccessType.read_only()
            opened = Rdict(copy, Options(raw_mode=True), column_families=options, access_type=access)
        except Exception as error:  # rocksdict raises plain Exception for whatever RocksDB says
            raise ReadFailed(
                f"RocksDB does not open {directory}: {error}", file=directory, hint="rmqtool check STORE --only RX"
            ) from error
        try:
            yield Database(opened, families)
        finally:
            opened.close()


def _copy_database(store: Listed, directory: str, target: str) -> None:
    source = os.path.join(os.path.abspath(store.root), directory)
    for file in store.listing.of_kind(FileKind.ROCKSDB):
        name = file.what.name or ""
        if file.what.owner != directory or "/" in name:
            continue
        if name.endswith(_TABLE_SUFFIX):
            os.symlink(os.path.join(source, name), os.path.join(target, name))
        else:
            with store.filesystem.open_read(file.path) as opened, open(os.path.join(target, name), "wb") as out:
                for at in range(0, file.size, _PIECE):
                    out.write(opened.pread(min(_PIECE, file.size - at), at))
