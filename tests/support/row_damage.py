"""Damage of the queue database of a store with queues in RocksDB, by name, and what `check` has to find then.

Rows and keys are laid by hand. They are brought into the store in tables that real brokers read, too: what RocksDB
writes by itself here has a newer format.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.store.database_copy import DatabaseCopy, Row
from rmqtool.store.listing import list_store
from rmqtool.store.rocksdb import ListedStore

TOPIC = "RocksA"
FAMILIES = ("default", "offset")
TABLE, BOUNDS, MANIFEST = "000011.sst", "000010.sst", "MANIFEST-000005"


class Found(NamedTuple):
    """A finding: its code, the file in the database, and the queue offset."""

    code: str
    file: str = ""
    queue_offset: int | None = None


class RowDamage(NamedTuple):
    """A damage, and what is found in a store that has its queues in RocksDB alone."""

    apply: Callable[[Path], None]
    found: Found


def entry_key(queue_offset: int, topic: str = TOPIC, queue_id: int = 0) -> bytes:
    """Return the key of a queue entry."""
    parts = struct.pack(">i", len(topic)), topic.encode(), struct.pack(">i", queue_id), struct.pack(">q", queue_offset)
    return b"\1".join(parts)


def bound_key(bound: str, topic: str = TOPIC, queue_id: int = 0) -> bytes:
    """Return the key of a bound, max or min."""
    return b"\1".join((struct.pack(">i", len(topic)), topic.encode(), bound.encode(), struct.pack(">i", queue_id)))


def change_rows(root: Path, rows: Iterable[Row] | Callable[[DatabaseCopy], Iterable[Row]]) -> None:
    """Write and delete rows of the queue database."""
    files = PosixWritableFileSystem(str(root))
    store = ListedStore(str(root), files, list_store(files, ()))
    with closing(DatabaseCopy(store, "consumequeue", FAMILIES)) as copy:
        copy.write(rows(copy) if callable(rows) else rows)
        copy.publish(files)


def _rows(*rows: tuple[str, bytes, bytes | None]) -> Callable[[Path], None]:
    return lambda root: change_rows(root, [Row(*row) for row in rows])


def _moved_max(by: int) -> Callable[[Path], None]:
    """Move the last queue offset of the queue, as its bound has it."""

    def moved(copy: DatabaseCopy) -> Iterable[Row]:
        place, last = struct.unpack(">qq", copy.rows.get("offset", bound_key("max")) or b"")
        return [Row("offset", bound_key("max"), struct.pack(">qq", place, last + by))]

    return lambda root: change_rows(root, moved)


def _lost(messages: int) -> Callable[[Path], None]:
    """Take the rows of the last messages of the log, and set the bounds to those before, as if it were older."""

    def lost(copy: DatabaseCopy) -> Iterable[Row]:
        places = sorted(
            (struct.unpack(">q", value[:8])[0], key, struct.unpack(">i", value[8:12])[0])
            for key, value in copy.rows.iter_rows("default")
        )
        kept, gone = places[:-messages], places[-messages:]
        last: dict[bytes, bytes | None] = {key[:-9]: None for _, key, _ in gone}
        for place, key, _ in kept:
            last[key[:-9]] = struct.pack(">q", place) + key[-8:]
        yield from (Row("default", key, None) for _, key, _ in gone)
        # The key of an entry without its queue offset ends with the queue id, before which that of a bound has a name.
        yield from (Row("offset", b"max\1".join((queue[:-4], queue[-4:])), value) for queue, value in last.items())
        end = kept[-1][0] + kept[-1][2]
        yield Row("offset", bound_key("max", "CHECKPOINT_TOPIC"), struct.pack(">q", end))

    return lambda root: change_rows(root, lost)


def _file(name: str, change: Callable[[bytes], bytes | None]) -> Callable[[Path], None]:
    """Change the bytes of a file of the database; None removes it."""

    def changed(root: Path) -> None:
        path = root / "consumequeue" / name
        data = change(path.read_bytes())
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)

    return changed


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def _gone(_data: bytes) -> None:
    return None


DAMAGES: dict[str, RowDamage] = {
    "directory gone": RowDamage(lambda root: shutil.rmtree(root / "consumequeue"), Found("CQ-MISSING", "RocksA/0")),
    "table gone": RowDamage(_file(TABLE, _gone), Found("RX-OPEN", TABLE)),
    "table cut": RowDamage(_file(TABLE, lambda data: data[:1000]), Found("RX-OPEN", TABLE)),
    "table empty": RowDamage(_file(TABLE, lambda _: b""), Found("RX-OPEN", TABLE)),
    "block of a table": RowDamage(_file(TABLE, _flip(1500)), Found("ST-READ", TABLE)),
    "foot of a table": RowDamage(_file(TABLE, _flip(-5 % 4795)), Found("RX-OPEN", TABLE)),
    "table of bounds": RowDamage(_file(BOUNDS, _flip(100)), Found("ST-READ", BOUNDS)),
    "manifest gone": RowDamage(_file(MANIFEST, _gone), Found("RX-OPEN", MANIFEST)),
    "manifest changed": RowDamage(_file(MANIFEST, _flip(200)), Found("RX-OPEN", MANIFEST)),
    "manifest empty": RowDamage(_file(MANIFEST, lambda _: b""), Found("RX-OPEN", MANIFEST)),
    "manifest cut": RowDamage(_file(MANIFEST, lambda data: data[:-30]), Found("CQ-MISSING", "", 0)),
    "CURRENT gone": RowDamage(_file("CURRENT", _gone), Found("RX-OPEN", "CURRENT")),
    "CURRENT changed": RowDamage(_file("CURRENT", lambda _: b"MANIFEST-000099\n"), Found("RX-OPEN", "CURRENT")),
    "row gone": RowDamage(_rows(("default", entry_key(2), None)), Found("CQ-MISSING", "", 2)),
    "first row gone": RowDamage(_rows(("default", entry_key(0), None)), Found("CQ-MISSING", "", 0)),
    "row wrong": RowDamage(
        _rows(("default", entry_key(2), struct.pack(">qiqq", 77, 99, 0, 0))), Found("CQ-WRONG", "", 2)
    ),
    "row of no message": RowDamage(
        _rows(("default", entry_key(500), struct.pack(">qiqq", 0, 99, 0, 0))), Found("CQ-WRONG", "", 500)
    ),
    "max gone": RowDamage(_rows(("offset", bound_key("max"), None)), Found("CQ-WRONG", "", 29)),
    "max too low": RowDamage(_moved_max(-3), Found("CQ-WRONG", "", 29)),
    "max too high": RowDamage(_moved_max(3), Found("CQ-WRONG", "", 29)),
    "min too high": RowDamage(
        _rows(("offset", bound_key("min"), struct.pack(">qq", 5000, 7))), Found("CQ-WRONG", "", 0)
    ),
    "min past the end": RowDamage(
        _rows(("offset", bound_key("min"), struct.pack(">qq", 5000, 700))), Found("CQ-WRONG", "", 0)
    ),
    "end of the log too high": RowDamage(
        _rows(("offset", bound_key("max", "CHECKPOINT_TOPIC"), struct.pack(">q", 10**9))), Found("CQ-AHEAD")
    ),
    "behind by 20": RowDamage(_lost(20), Found("CQ-MISSING", "", 28)),
}
