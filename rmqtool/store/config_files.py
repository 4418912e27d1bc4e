"""Configuration of a store on disk: JSON files with their copies, and RocksDB databases.

A broker loads the main file, or the copy ``.bak`` if the main file is missing, empty or does not parse. rmqtool keeps
both whole: a text is written to a temporary file, synced, and renamed. upstream: before 5.4 nothing is synced; 4.9
removes the file before the new one has its name, 5.3 overwrites both in place, and all versions copy a damaged file
over the last good copy.

Upstream: ``ConfigManager.persist``, ``MixAll.string2File``, ``QueueTypeUtils.getCQType``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rmqtool.config import Version
from rmqtool.errors import ReadFailed, RmqtoolError, StoreError
from rmqtool.files.filesystem import Attributes, ReadableFileSystem, WritableFileSystem, make_directories, split
from rmqtool.findings import Finding, Severity
from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.config_files import LARGEST_TEXT, decode_config, dialect_of, encode_config, new_bean, with_entry
from rmqtool.formats.config_shapes import DATA_VERSION, TOPIC_CONFIG
from rmqtool.formats.config_shapes import TOPICS as TOPICS_SHAPE
from rmqtool.formats.fastjson import Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from rmqtool.formats.paths import Copy
from rmqtool.formats.rocksdb_rows import ConfigRowKey, ConfigTable
from rmqtool.store.config_rows import TableRows
from rmqtool.store.open import Store, unread_finding
from rmqtool.store.rocksdb import open_database

# A text of only these is empty: blanks, and the zeros that a crash leaves in a file that was never synced.
_BLANK = b"\0 \t\r\n"

Value = TypeVar("Value")


def require_text(file: str, size: int) -> None:
    """Refuse to read a text that is larger than any that a broker writes."""
    if size > LARGEST_TEXT:
        raise StoreError(
            f"{file} has {size} bytes: a broker reads all of it into its heap, and may not start on it",
            file=file,
            hint="if it ends in zeros, cut them off: truncate -s SIZE FILE; rmqtool dump shows where the text ends",
        )


@dataclass
class Configs:
    """The configuration of a store, from files and databases."""

    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)  # (topic, group) -> queue -> offset
    delay_offsets: dict[int, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class Loaded(Generic[Value]):
    """The value of the first copy that loads, and the flaws of those before it.

    ``path`` is the copy that the value is from.
    """

    value: Value | None = None
    path: str | None = None
    flaws: list[tuple[str, Flaw]] = field(default_factory=list)


def load_copies(copies: Iterable[tuple[str, bytes]], decode: Callable[[bytes], Value | Flaw]) -> Loaded[Value]:
    """Return what a broker loads: the first of ``copies`` that decodes."""
    loaded = Loaded[Value]()
    for path, data in copies:
        value = decode(data)
        if not isinstance(value, Flaw):
            loaded.value, loaded.path = value, path
            break
        loaded.flaws.append((path, value))
    return loaded


def iter_copies(read: Callable[[str], bytes | None], path: str) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of a file and of its copy, as far as they exist."""
    for copy in (Copy.MAIN, Copy.BAK):
        data = read(path + copy)
        if data is not None:
            yield path + copy, data


def _decode_object(name: str, data: bytes) -> dict[str, Any] | Flaw:
    """Return the object in a configuration file, or a flaw; a text of blanks only is a flaw."""
    if not data.strip(_BLANK):
        return Flaw("CF-JSON", f"{len(data)} zeros and blanks, nothing else" if data else "empty", 0, len(data))
    decoded = decode_config(name, data)
    if isinstance(decoded, Flaw):
        return decoded
    return decoded.value if isinstance(decoded.value, dict) else Flaw("CF-JSON", "it is not an object", 0, len(data))


def read_config(store: Store, name: str) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Return the value of a JSON file as a broker loads it, and findings about its copies."""
    main = paths.config_path(name)
    findings: list[Finding] = []

    def read(path: str) -> bytes | None:
        data = store.read_file(path, LARGEST_TEXT)
        if data is not None and len(data) == LARGEST_TEXT:
            text = f"only the first {LARGEST_TEXT} bytes of {path} were read; a broker reads all of it into its heap"
            findings.append(Finding("CF-JSON", Severity.WARNING, text, file=path, offset=LARGEST_TEXT))
        return data

    loaded = load_copies(iter_copies(read, main), lambda data: _decode_object(name, data))
    findings += [
        Finding(
            "CF-JSON",
            Severity.ERROR if path == main else Severity.WARNING,
            f"{path} does not parse: {flaw.message}",
            file=path,
            offset=flaw.at,
            length=flaw.length or None,
        )
        for path, flaw in loaded.flaws
    ]
    if loaded.path not in (None, main):
        text = f"{loaded.path} is what a broker would load: {name} is missing or does not parse"
        findings.append(Finding("CF-BAK", Severity.WARNING, text, file=loaded.path))
    return loaded.value, findings


def load_config(files: ReadableFileSystem, name: str) -> dict[str, Any]:
    """Return the value of a JSON file as a broker loads it; empty if there is no file."""
    rows = _find_rows(files, name)
    copies: Iterable[tuple[str, bytes]] = iter_copies(lambda path: _read_text(files, path), paths.config_path(name))
    if rows is not None:
        copies = [(rows.directory, rows.read())]
    return load_copies(copies, lambda data: _decode_object(name, data)).value or {}


def _read_text(files: ReadableFileSystem, path: str) -> bytes | None:
    if not files.exists(path):
        return None
    with files.open_read(path) as file:
        return file.pread(min(file.size(), LARGEST_TEXT), 0)


def loads(name: str, text: bytes) -> bool:
    """Return whether a broker would load a text."""
    return not isinstance(_decode_object(name, text), Flaw)


def read_configs(store: Store, *, tolerant: bool = False) -> Configs:
    """Return topics, groups and offsets from the files and the databases there are.

    With ``tolerant``, a file that cannot be read becomes a finding and its table is empty: for commands that only read.
    """
    configs = Configs()
    _add_files(store, configs, tolerant=tolerant)
    for directory in store.listing.databases():
        if directory.startswith(paths.CONFIG + "/") and store.listing.has_rows(directory):
            try:
                _add_database(store, directory, configs)
            except ReadFailed as error:
                if not tolerant:
                    raise
                configs.findings.append(unread_finding(store.root, error))
    return configs


def _add_database(store: Store, directory: str, configs: Configs) -> None:
    with open_database(store, directory) as database:
        for family in database.families:
            for key, value in database.iter_rows(family):
                _add_row(configs, directory.removeprefix(paths.CONFIG + "/"), family, key, value)


def _add_files(store: Store, configs: Configs, *, tolerant: bool) -> None:
    for name in (paths.TOPICS, paths.SUBSCRIPTION_GROUP, paths.CONSUMER_OFFSET, paths.LMQ_CONSUMER_OFFSET):
        value = _read_file(store, name, configs, tolerant=tolerant)
        if value is None:
            continue
        configs.topics.update(value.get("topicConfigTable") or {})
        configs.groups.update(value.get("subscriptionGroupTable") or {})
        for key, queues in (value.get("offsetTable") or {}).items():
            _add_offsets(configs, key, queues)
        for key, offset in (value.get("lmqOffsetTable") or {}).items():
            _add_offsets(configs, key, {0: offset})
    value = _read_file(store, paths.DELAY_OFFSET, configs, tolerant=tolerant)
    configs.delay_offsets.update((value or {}).get("offsetTable") or {})


def _read_file(store: Store, name: str, configs: Configs, *, tolerant: bool) -> dict[str, Any] | None:
    try:
        value, findings = read_config(store, name)
    except ReadFailed as error:
        if not tolerant:
            raise
        configs.findings.append(unread_finding(store.root, error))
        return None
    configs.findings += findings
    return value


def _add_offsets(configs: Configs, key: str, queues: dict[Any, Any]) -> None:
    """Take the offsets of ``topic@group``; a broker ignores any other key."""
    parts = key.split("@")
    if len(parts) == 2:
        known = configs.offsets.setdefault((parts[0], parts[1]), {})
        known.update({int(queue): int(offset) for queue, offset in queues.items()})


def _add_row(configs: Configs, database: str, family: str, key: bytes, value: bytes) -> None:
    """Take a row of a configuration database.

    Version 1 has a database for each table, 5.4 has a column family for each, version 2 has one database with a table
    number in each key.
    """
    if database == "rdb":
        _add_v2_row(configs, key, value)
        return
    if family not in ("default", "topic", "subscriptionGroup", "consumerOffset"):
        return
    name, parsed = decode_text(key), _json(value)
    kind = database if family == "default" else family
    if not isinstance(parsed, dict):
        return
    if kind in ("topics", "topic"):
        configs.topics[name] = parsed
    elif kind in ("subscriptionGroups", "subscriptionGroup"):
        configs.groups[name] = parsed
    elif kind in ("consumerOffsets", "consumerOffset"):
        _add_offsets(configs, name, parsed.get("offsetTable") or {})


def _add_v2_row(configs: Configs, key: bytes, value: bytes) -> None:
    decoded = rocksdb_rows.decode_config_key(key)
    if not isinstance(decoded, ConfigRowKey) or not decoded.names:
        return
    if decoded.table == ConfigTable.CONSUMER_OFFSET and decoded.queue_id is not None:
        offset = rocksdb_rows.decode_row_value(layouts.LONG, value)
        group, topic = decoded.names
        if isinstance(offset, layouts.Long):
            configs.offsets.setdefault((topic, group), {})[decoded.queue_id] = offset.value
    parsed = _json(value[1:])
    if decoded.table == ConfigTable.TOPIC and isinstance(parsed, dict):
        configs.topics[decoded.names[0]] = parsed
    elif decoded.table == ConfigTable.SUBSCRIPTION_GROUP and isinstance(parsed, dict):
        configs.groups[decoded.names[0]] = parsed


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


class ConfigText:
    """The file at ``path`` and its copy. ``is_loadable`` says whether a broker would load a text."""

    def __init__(self, files: WritableFileSystem, path: str, is_loadable: Callable[[bytes], bool]) -> None:
        self._files = files
        self.path = path
        self._is_loadable = is_loadable

    def read_copies(self) -> list[tuple[str, bytes]]:
        """Return name and content of the file and its copy, if they have any, in the order a broker tries them."""
        copies = iter_copies(lambda path: _read_text(self._files, path), self.path)
        return [(self._files.shown(path), data) for path, data in copies if data]

    def load(self, decode: Callable[[bytes], Value | Flaw]) -> Value | None:
        """Return the value of the file, or else of its copy; None if neither exists.

        upstream: ``ConfigManager.load`` takes a file that does not parse, and has no copy, for an empty one, and the
        next save overwrites it. Here that is an error.
        """
        copies = self.read_copies()
        loaded = load_copies(copies, decode)
        if loaded.path is not None or not copies:
            return loaded.value
        flaws = "; ".join(f"{path}: {flaw.message}" for path, flaw in loaded.flaws)
        raise StoreError(
            f"this file cannot be read, and the command would overwrite it: {flaws}",
            file=copies[0][0],
            hint="restore it from a backup; or move it away, and lose its content",
        )

    def write(self, data: bytes) -> None:
        """Replace the content of the file; the previous content becomes the copy, if a broker would load it.

        If this is interrupted at any point, the file has the old content or the new one. An error leaves no partial
        file.
        """
        make_directories(self._files, split(self.path)[0])
        previous = _read_text(self._files, self.path)
        if previous and self._is_loadable(previous):
            self._replace(self.path + Copy.BAK, previous)
        self._replace(self.path, data)

    def _replace(self, target: str, data: bytes) -> None:
        """Replace a file as a whole: write the new one beside it, sync, rename."""
        aside = self.path + Copy.TMP
        self._remove(aside)
        old = self._files.find_stat(target)
        try:
            with self._files.create(aside) as file:
                if old is not None:
                    self._files.set_attributes(aside, Attributes.of(old)._replace(mtime_ns=None))
                file.pwrite(data, 0)
                file.fsync()
            self._files.rename(aside, target)
            self._files.fsync_dir(split(target)[0])
        except BaseException:
            with suppress(RmqtoolError):
                self._remove(aside)
            raise

    def _remove(self, path: str) -> None:
        if self._files.exists(path):
            self._files.unlink(path)


# The names of databases below config: of version 2, of all tables, and of one table each.
_DATABASES = ("rdb", "metadata", "topics", "subscriptionGroups", "consumerOffsets")


def _find_rows(files: ReadableFileSystem, name: str) -> TableRows | None:
    """Return the rows of a table that is in RocksDB."""
    found = [directory for directory in map(paths.config_path, _DATABASES) if files.is_directory(directory)]
    return TableRows.find(files, name, found) if found else None


class DatabaseText(ConfigText):
    """A table in RocksDB, which is read and written as the text of its file."""

    def __init__(self, files: WritableFileSystem, rows: TableRows) -> None:
        super().__init__(files, rows.directory, lambda _data: True)
        self._rows = rows

    def read_copies(self) -> list[tuple[str, bytes]]:
        """Return the name of the database, and its rows as a text; there is no copy."""
        return [(self._files.shown(self._rows.directory), self._rows.read())]

    def write(self, data: bytes) -> None:
        """Write the rows that differ from a text."""
        self._rows.write(self._files, data)


def config_text(files: WritableFileSystem, name: str) -> ConfigText:
    """Return the text of the configuration file ``name``; its table can be in RocksDB."""
    rows = _find_rows(files, name)
    if rows is not None:
        return DatabaseText(files, rows)
    return ConfigText(files, paths.config_path(name), lambda data: not isinstance(decode_config(name, data), Flaw))


_TOPIC_TABLE = TOPICS_SHAPE.fields["topicConfigTable"].shape


def read_batch_topics(files: ReadableFileSystem) -> frozenset[str]:
    """Return the topics with batch queues; only 5.x has them."""
    return batch_topics(load_config(files, paths.TOPICS).get("topicConfigTable") or {})


def batch_topics(table: Mapping[str, Any]) -> frozenset[str]:
    """Return those topics of a topic table that have batch queues; only 5.x has them."""
    return frozenset(
        topic
        for topic, settings in table.items()
        if isinstance(settings, dict) and (settings.get("attributes") or {}).get("queue.type") == "BatchCQ"
    )


def read_compacted_topics(files: ReadableFileSystem) -> frozenset[str]:
    """Return the topics that are compacted to the last message of each key; only 5.x has them."""
    table = load_config(files, paths.TOPICS).get("topicConfigTable") or {}
    return frozenset(
        topic
        for topic, settings in table.items()
        if isinstance(settings, dict) and (settings.get("attributes") or {}).get("cleanup.policy") == "COMPACTION"
    )


def queue_counts(files: ReadableFileSystem) -> dict[str, int]:
    """Return the number of writable queues of each topic in the configuration."""
    table = load_config(files, paths.TOPICS).get("topicConfigTable") or {}
    return {
        topic: int(settings.get("writeQueueNums") or 0)
        for topic, settings in table.items()
        if isinstance(settings, dict)
    }


def add_topics(files: WritableFileSystem, version: Version, queues: Mapping[str, int], now: int) -> None:
    """Add topics that the configuration does not have, with their numbers of queues."""
    found = load_config(files, paths.TOPICS)
    table = dict(found.get("topicConfigTable") or {})
    missing = {topic: count for topic, count in queues.items() if topic not in table}
    if not missing:
        return
    assert isinstance(_TOPIC_TABLE, Table), "the shape of the file says so"
    for topic, count in missing.items():
        config = new_bean(TOPIC_CONFIG, version.value, topicName=topic, readQueueNums=count, writeQueueNums=count)
        table = with_entry(table, topic, config, _TOPIC_TABLE)
    known = found.get("dataVersion") or {}
    changed = new_bean(DATA_VERSION, version.value, timestamp=now)
    changed |= {name: value for name, value in known.items() if name in changed and name != "timestamp"}
    changed["counter"] = int(changed.get("counter") or 0) + 1
    value = {**found, "dataVersion": changed, "topicConfigTable": table}
    config_text(files, paths.TOPICS).write(encode_config(paths.TOPICS, value, dialect_of(version.value)))
