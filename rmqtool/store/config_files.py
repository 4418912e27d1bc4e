"""One text of a broker's configuration on the disk: the file, and the copy of what it said before.

Upstream: ``ConfigManager.persist``, ``MixAll.string2File``. Both files are always whole: a text is written aside, made
durable, and takes the name in one instant.
upstream: no version before 5.4 forces anything, 4.9 removes the file before the new one has its name, 5.3 overwrites
both in place, and all of them copy a damaged file over the last good copy.

Read access to a store's configuration: JSON files with their ``.bak``, or RocksDB databases.

A broker takes the main file, and the ``.bak`` when the main file is missing, empty or does not parse.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rmqtool.errors import ReadFailed, RmqtoolError, StoreError
from rmqtool.files.filesystem import Attributes, WritableFileSystem, make_directories, split
from rmqtool.findings import Finding, Severity
from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.config_files import LARGEST_TEXT, decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from rmqtool.formats.paths import Copy
from rmqtool.formats.rocksdb_rows import ConfigRowKey, ConfigTable
from rmqtool.store.open import Store, unread_finding
from rmqtool.store.rocksdb import has_rows, open_database

# What stands for nothing in a text: blanks, and the zeros that a crash leaves of a file that was never flushed.
_BLANK = b"\0 \t\r\n"


def require_text(file: str, size: int) -> None:
    """Refuse to read a text as a whole that is larger than any that a broker writes."""
    if size > LARGEST_TEXT:
        raise StoreError(
            f"{file} has {size} bytes: a broker reads all of it into its heap, and may not start on it",
            file=file,
            hint="if it ends in zeros, cut them off: truncate -s SIZE FILE; rmqtool dump shows where the text ends",
        )


@dataclass
class Configs:
    """What the configuration says, whatever form it is stored in."""

    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    offsets: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)  # (topic, group) -> queue -> offset
    delay_offsets: dict[int, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def read_config(store: Store, name: str) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Return the value of a JSON file as a broker would load it, and what is wrong with its copies."""
    findings: list[Finding] = []
    for copy in (Copy.MAIN, Copy.BAK):
        path = paths.config_path(name, copy)
        data = store.read_file(path, LARGEST_TEXT)
        if data is None:
            continue
        if len(data) == LARGEST_TEXT:
            text = (
                f"{path} is read up to byte {LARGEST_TEXT}: a broker reads all of it into its heap, and may not start"
            )
            findings.append(Finding("CF-JSON", Severity.WARNING, text, file=path, offset=LARGEST_TEXT))
        decoded = decode_config(name, data) if data.strip(_BLANK) else Flaw("CF-JSON", _nothing(data), 0, len(data))
        if not isinstance(decoded, Flaw) and isinstance(decoded.value, dict):
            if copy is Copy.BAK:
                text = f"{path} is what a broker would load: {name} is missing or does not parse"
                findings.append(Finding("CF-BAK", Severity.WARNING, text, file=path))
            return decoded.value, findings
        why = decoded.message if isinstance(decoded, Flaw) else "no object"
        offset, length = (decoded.at, decoded.length or None) if isinstance(decoded, Flaw) else (0, len(data))
        severity = Severity.ERROR if copy is Copy.MAIN else Severity.WARNING
        findings.append(
            Finding("CF-JSON", severity, f"{path} does not parse: {why}", file=path, offset=offset, length=length)
        )
    return None, findings


def loads(name: str, text: bytes) -> bool:
    """Tell whether a text is what a broker would load; one of nothing but blanks is not."""
    if not text.strip(_BLANK):
        return False
    decoded = decode_config(name, text)
    return not isinstance(decoded, Flaw) and isinstance(decoded.value, dict)


def _nothing(data: bytes) -> str:
    return f"nothing but {len(data)} zeros and blanks" if data else "empty"


def read_configs(store: Store, *, tolerant: bool = False) -> Configs:
    """Return topics, groups and offsets from the files and the databases there are.

    With ``tolerant`` a file that cannot be read is a finding, and its table is empty: for who only looks.
    """
    configs = Configs()
    _add_files(store, configs, tolerant=tolerant)
    for directory in store.listing.databases():
        if directory.startswith(paths.CONFIG + "/") and has_rows(store, directory):
            with open_database(store, directory) as database:
                for family in database.families:
                    for key, value in database.iter_rows(family):
                        _add_row(configs, directory.removeprefix(paths.CONFIG + "/"), family, key, value)
    return configs


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
    """Take the offsets of ``topic@group``; a broker ignores a key that is not exactly that."""
    parts = key.split("@")
    if len(parts) == 2:
        known = configs.offsets.setdefault((parts[0], parts[1]), {})
        known.update({int(queue): int(offset) for queue, offset in queues.items()})


def _add_row(configs: Configs, database: str, family: str, key: bytes, value: bytes) -> None:
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
    """The file at ``path`` and its copy. ``is_loadable`` tells whether a broker would load a text."""

    def __init__(self, files: WritableFileSystem, path: str, is_loadable: Callable[[bytes], bool]) -> None:
        self._files = files
        self._path = path
        self._is_loadable = is_loadable

    def read_copies(self) -> list[tuple[str, bytes]]:
        """Return name and content of the file and of its copy, in the order in which a broker tries them.

        What is missing or empty is left out.
        """
        found = []
        for copy in (Copy.MAIN, Copy.BAK):
            path = self._path + copy
            data = self._read(path)
            if data:
                found.append((self._files.shown(path), data))
        return found

    def write(self, data: bytes) -> None:
        """Make ``data`` what the file says; what it said before is the copy from then on, if a broker would load it.

        Whenever this is cut short, the file says the one or the other. After an error nothing half-written is left.
        """
        make_directories(self._files, split(self._path)[0])
        previous = self._read(self._path)
        if previous and self._is_loadable(previous):
            self._replace(self._path + Copy.BAK, previous)
        self._replace(self._path, data)

    def _read(self, path: str) -> bytes | None:
        if not self._files.exists(path):
            return None
        with self._files.open_read(path) as file:
            return file.pread(min(file.size(), LARGEST_TEXT), 0)

    def _replace(self, target: str, data: bytes) -> None:
        aside = self._path + Copy.TMP
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


def config_text(files: WritableFileSystem, name: str) -> ConfigText:
    """Return the configuration file ``name`` of a store."""
    return ConfigText(files, paths.config_path(name), lambda data: not isinstance(decode_config(name, data), Flaw))
