"""5.4's index in RocksDB: rows by hour, topic and key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.java import encode_text
from rmqtool.formats.rocksdb_rows import IndexRowKey
from rmqtool.inspection.question import QuestionKind
from rmqtool.storage.rocksdb import Database, has_rows, open_database
from rmqtool.storage.store import Store

_FAMILY = "default"
# A query by key of one kind asks for rows of these, as a broker does.
_ROW_KINDS = {QuestionKind.UNIQ_KEY: "U", QuestionKind.KEY: "KU", QuestionKind.TAG: "T"}


def has_database_index(store: Store) -> bool:
    """Return whether the message database of 5.4 can hold rows."""
    return paths.ROCKSDB_STORE in store.listing.databases() and has_rows(store, paths.ROCKSDB_STORE)


def find_in_database(store: Store, kind: QuestionKind, text: str, topics: Iterable[str]) -> list[int]:
    """Return the physical offsets that the database leads to, in order. Raises ``OptionalMissing`` without the extra.

    Nothing in a row escapes ``@``, so what is returned still has to be compared with the messages.
    """
    wanted = [encode_text(f"@{topic}@{letter}@{text}@") for topic in topics for letter in _ROW_KINDS[kind]]
    found = set()
    with open_database(store, paths.ROCKSDB_STORE) as database:
        for hour in _iter_hours(database):
            for middle in wanted:
                for key, _ in database.iter_rows(_FAMILY, hour + middle):
                    row = rocksdb_rows.decode_index_key(key)
                    if isinstance(row, IndexRowKey):
                        found.add(row.physical_offset)
    return sorted(found)


def _iter_hours(database: Database) -> Iterator[bytes]:
    """Yield the hours that have rows, as their keys begin, without reading the rows."""
    size = layouts.LONG.size
    start = bytes(size)
    while (key := database.find_key(_FAMILY, start)) is not None:
        (hour,) = layouts.LONG.unpack_from(key.ljust(size, b"\0"))
        if key[size : size + 1] == b"@":
            yield key[:size]
            start = layouts.LONG.packer.pack(hour + rocksdb_rows.HOUR_MS)
        else:  # a row of bookkeeping, with a plain name
            start = key + b"\0"
