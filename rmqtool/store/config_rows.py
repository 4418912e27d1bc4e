"""Topics, groups and committed offsets in RocksDB, as the texts of the files that they replace.

Version 1 has a database for each table, 5.4 can have one database with a family for each, and version 2 has one
database in which each key begins with the number of its table. A broker loads the rows into memory, and writes a row
for each change. Here the rows are read as the text of the table's file, and a new text becomes the rows that differ.

upstream: RocksDBConfigManager, ConfigManagerV2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple, Self

from rmqtool.files.filesystem import ReadableFileSystem, WritableFileSystem
from rmqtool.formats import config_shapes, layouts, paths, rocksdb_rows
from rmqtool.formats.config_files import decode_config, decode_value, encode_value
from rmqtool.formats.fastjson import Dialect, Shape, Style
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text, encode_text
from rmqtool.formats.rocksdb_rows import KV_DATA_VERSION_KEY, ConfigRowKey, ConfigTable
from rmqtool.store.database_copy import DatabaseCopy, Row
from rmqtool.store.rocksdb import Database, ListedStore, find_database, open_database

_ONE_FOR_ALL, _VERSION_2 = f"{paths.CONFIG}/metadata", f"{paths.CONFIG}/rdb"
_SHARED = (_VERSION_2, _ONE_FOR_ALL)
_VERSION_SUFFIX = "Version"


class _Table(NamedTuple):
    """One table: its map in the file, the shape of an entry, its directory, family and number."""

    map_name: str
    shape: Shape
    directory: str
    family: str
    number: ConfigTable


_TABLES = {
    paths.TOPICS: _Table(
        "topicConfigTable", config_shapes.TOPIC_CONFIG, f"{paths.CONFIG}/topics", "topic", ConfigTable.TOPIC
    ),
    paths.SUBSCRIPTION_GROUP: _Table(
        "subscriptionGroupTable",
        config_shapes.SUBSCRIPTION_GROUP_CONFIG,
        f"{paths.CONFIG}/subscriptionGroups",
        "subscriptionGroup",
        ConfigTable.SUBSCRIPTION_GROUP,
    ),
    paths.CONSUMER_OFFSET: _Table(
        "offsetTable",
        config_shapes.ROCKSDB_OFFSETS,
        f"{paths.CONFIG}/consumerOffsets",
        "consumerOffset",
        ConfigTable.CONSUMER_OFFSET,
    ),
}


class TableRows:
    """One table of the configuration in RocksDB."""

    def __init__(self, listed: ListedStore, name: str, directory: str) -> None:
        self.directory = directory
        self._listed = listed
        self._name = name
        self._table = _TABLES[name]
        self._is_v2 = directory == _VERSION_2
        self._family = self._table.family if directory == _ONE_FOR_ALL else "default"

    @classmethod
    def find(cls, files: ReadableFileSystem, name: str, directories: Iterable[str]) -> Self | None:
        """Return the rows of the file ``name`` from the first of the directories that is a database with its table."""
        for directory in directories:
            listed = find_database(files, directory)
            if name in _TABLES and listed is not None and directory in (*_SHARED, _TABLES[name].directory):
                return cls(listed, name, directory)
        return None

    def read(self) -> bytes:
        """Return the rows as the text of the file."""
        with open_database(self._listed, self.directory) as database:
            rows = dict(self._iter_rows(database))
        value = self._new_value()
        for key, data in rows.items():
            self._add(value, key, data)
        return encode_text(json.dumps(value, ensure_ascii=False))

    def write(self, files: WritableFileSystem, text: bytes) -> None:
        """Write the rows that differ from a text of the file. Rows that do not parse stay as they are."""
        decoded = decode_config(self._name, text)
        assert not isinstance(decoded, Flaw), "the text was encoded here"
        # The last write may have made new files.
        listed = find_database(files, self.directory) or self._listed
        with closing(DatabaseCopy(listed, self.directory, ())) as copy:
            stored = dict(self._iter_rows(copy.rows))
            # Brokers write no version of the offsets in version 1, and before 5.3.1 there is no family for versions.
            known = copy.rows.families
            wanted = {place: data for place, data in self._iter_wanted(decoded.value) if place[0] in known}
            changed = [Row(*key, value) for key, value in wanted.items() if not self._is_same(stored.get(key), value)]
            left = {self._version_place(), *wanted}
            unused = self._new_value()
            gone = [Row(*key, None) for key, data in stored.items() if key not in left and self._add(unused, key, data)]
            copy.write([*changed, *gone])
            copy.publish(files)

    def _iter_rows(self, database: Database) -> Iterator[tuple[tuple[str, bytes], bytes]]:
        """Yield the rows of this table by family and key, and that of its version."""
        prefix = rocksdb_rows.table_prefix(self._table.number) if self._is_v2 else b""
        for key, value in database.iter_rows(self._family, prefix):
            yield (self._family, key), value
        if not self._is_v2:
            family, key = self._version_place()
            found = database.get(family, key)
            if found is not None:
                yield (family, key), found

    def _version_place(self) -> tuple[str, bytes]:
        """Return family and key of the version's row."""
        if self._is_v2:
            return self._family, rocksdb_rows.encode_config_key(ConfigRowKey(self._table.number, ()))
        if self.directory == _ONE_FOR_ALL:
            return self._family + _VERSION_SUFFIX, KV_DATA_VERSION_KEY
        return "kvDataVersion", KV_DATA_VERSION_KEY

    def _new_value(self) -> dict[str, Any]:
        return {self._table.map_name: {}}

    def _add(self, value: dict[str, Any], place: tuple[str, bytes], data: bytes) -> bool:
        """Add a row to the value of the file; return False, with nothing added, for one that does not parse."""
        if place == self._version_place():
            version = _decode_version(data) if self._is_v2 else _json(data)
            if isinstance(version, dict):
                value["dataVersion"] = version
            return isinstance(version, dict)
        name = self._name_of(place[1])
        if name is None:
            return False
        table = value[self._table.map_name]
        is_offset = self._table.number is ConfigTable.CONSUMER_OFFSET
        if self._is_v2 and is_offset:
            offset = rocksdb_rows.decode_row_value(layouts.LONG, data)
            if isinstance(offset, Flaw):
                return False
            table.setdefault(name[0], {})[name[1]] = offset.value
            return True
        text = data
        if self._is_v2:
            if isinstance(rocksdb_rows.decode_config_json(data), Flaw):
                return False
            text = data[1:]
        found = _json(text)
        if not isinstance(found, dict) or isinstance(decode_value(text, self._table.shape), Flaw):
            return False
        table[name[0]] = found.get("offsetTable") or {} if is_offset else found
        return True

    def _name_of(self, row_key: bytes) -> tuple[str, str] | None:
        """Return the name in the file's map for the key of a row, and the queue id of a single offset as text.

        Returns None for a key that has no name in the file.
        """
        if not self._is_v2:
            name = decode_text(row_key)
            return (name, "") if encode_text(name) == row_key else None
        key = rocksdb_rows.decode_config_key(row_key)
        if isinstance(key, Flaw) or not key.names:
            return None
        if key.queue_id is None:
            return key.names[0], ""
        group, topic = key.names
        return None if "@" in group + topic else (f"{topic}@{group}", str(key.queue_id))

    def _iter_wanted(self, value: dict[str, Any]) -> Iterator[tuple[tuple[str, bytes], bytes]]:
        """Yield the rows for the value of the file."""
        version = value.get("dataVersion") or {}
        if version and (self._is_v2 or self._table.number is not ConfigTable.CONSUMER_OFFSET):
            yield self._version_place(), self._encode_version(version)
        for name, entry in (value.get(self._table.map_name) or {}).items():
            if self._table.number is not ConfigTable.CONSUMER_OFFSET:
                yield self._place(name), self._encode(entry)
            elif not self._is_v2:
                yield self._place(name), self._encode({"offsetTable": entry})
            elif name.count("@") == 1:
                topic, group = name.split("@")
                for queue_id, offset in entry.items():
                    key = ConfigRowKey(self._table.number, (group, topic), int(queue_id))
                    yield (self._family, rocksdb_rows.encode_config_key(key)), layouts.LONG.pack(offset)

    def _place(self, name: str) -> tuple[str, bytes]:
        if self._is_v2:
            return self._family, rocksdb_rows.encode_config_key(ConfigRowKey(self._table.number, (name,)))
        return self._family, encode_text(name)

    def _encode(self, entry: Any) -> bytes:
        if self._is_v2:
            text = encode_value(entry, self._table.shape, Dialect.FASTJSON_2, Style.COMPACT)
            return rocksdb_rows.encode_config_json(decode_text(text))
        return encode_value(entry, self._table.shape, self._dialect(), Style.BROWSER)

    def _encode_version(self, version: dict[str, Any]) -> bytes:
        if self._is_v2:
            numbers = (int(version.get(name) or 0) for name in ("stateVersion", "timestamp", "counter"))
            return layouts.ROCKSDB_DATA_VERSION.packer.pack(*numbers)
        return encode_value(version, config_shapes.DATA_VERSION, self._dialect(), Style.BROWSER)

    def _dialect(self) -> Dialect:
        """Return a spelling that each version loads: databases for each table are those of 5.3, too."""
        return Dialect.FASTJSON_2 if self.directory == _ONE_FOR_ALL else Dialect.FASTJSON_1

    def _is_same(self, stored: bytes | None, wanted: bytes) -> bool:
        """Return whether a row has the wanted value, in any spelling."""
        if stored is None or stored == wanted:
            return stored is not None
        shape, begin = self._table.shape, 1 if self._is_v2 else 0
        if begin and stored[:1] != wanted[:1]:
            return False
        before, after = (decode_value(data[begin:], shape) for data in (stored, wanted))
        if isinstance(before, Flaw) or isinstance(after, Flaw):
            return False
        return bool(before.value == after.value)


def _decode_version(data: bytes) -> dict[str, int] | None:
    if len(data) != layouts.ROCKSDB_DATA_VERSION.size:
        return None
    found = layouts.ROCKSDB_DATA_VERSION.decode(data)
    return {"stateVersion": found.state_version, "timestamp": found.timestamp, "counter": found.counter}


def _json(data: bytes) -> Any:
    """Return the value of a text, None for one that does not parse."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
