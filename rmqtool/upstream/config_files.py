"""The config files at a start: which ones a broker loads, which ones it writes, and which ones end the start.

If a file is missing, empty or does not parse, its ``.bak`` is loaded. If that is missing or empty, the table is empty,
and the start continues. If it does not parse, the start ends before the store is touched. upstream:
BrokerController.initialize, ConfigManager.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.config import Version
from rmqtool.formats import paths
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config
from rmqtool.formats.fastjson import Dialect
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import Copy
from rmqtool.formats.topics import HALF_TOPIC, SCHEDULE_TOPIC
from rmqtool.upstream import broker_log
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.consume_queues import ConsumeQueueStore
from rmqtool.upstream.files import StoreFiles, StoreView
from rmqtool.upstream.mapped_files import LoadRefused
from rmqtool.upstream.settings import StartSettings

Source = Literal["main", "bak", "empty"]

# The files in the order in which a broker loads them, with the table that matters here.
_TABLES = {
    paths.TOPICS: "topicConfigTable",
    paths.CONSUMER_OFFSET: "offsetTable",
    paths.SUBSCRIPTION_GROUP: "subscriptionGroupTable",
    paths.CONSUMER_FILTER: "filterDataByTopic",
}


# Directories in which a broker of 5.x keeps its settings in a database instead.
_DATABASES = ("topics", "subscriptionGroups", "consumerOffsets", "rdb", "metadata")
_TOLD = [name for name in _TABLES if name != paths.CONSUMER_FILTER]


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """One config file: where the broker loads it from, and whether it writes it again.

    ``empty`` is also a file that was read and has an empty table, ``damaged`` one that was not accepted. None means
    unknown, because the broker keeps its settings in a database.
    """

    file: str
    loaded_from: Source | None
    rewritten: bool | None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class ConfigLoad:
    """The config files of a broker, the one that ends its start, and those that it deletes while loading."""

    files: tuple[LoadedConfig, ...]
    unreadable: str | None
    deleted: tuple[str, ...] = ()


class _Unreadable(Exception):
    """Neither the file nor its copy can be read."""


def unread_config() -> ConfigLoad:
    """Return the config files of a broker that reads none of them."""
    return ConfigLoad(tuple(LoadedConfig(paths.config_path(name), None, None) for name in _TOLD), None)


def load_config(files: StoreView, version: Version) -> ConfigLoad:
    """Load the files in a broker's order. After one that fails the others are not read, so their tables are empty."""
    if any(files.is_directory(f"{paths.CONFIG}/{name}") for name in _DATABASES):
        return unread_config()
    dialect = dialect_of(str(version))
    found: dict[str, tuple[Source, dict[Any, Any]]] = {}
    unreadable = None
    deleted = []
    for name, table in _TABLES.items():
        if unreadable is None:
            if version is Version.V5_4 and _is_damaged(files, name, dialect):
                # upstream: so that no later save makes it the copy.
                deleted.append(paths.config_path(name))
            try:
                found[name] = _load_file(files, name, table, dialect)
                continue
            except _Unreadable:
                unreadable = paths.config_path(name)
        found[name] = ("empty", {})
    return ConfigLoad(
        tuple(
            LoadedConfig(
                paths.config_path(name),
                found[name][0],
                _is_rewritten(name, found, version, unreadable) or paths.config_path(name) in deleted,
                _is_damaged(files, name, dialect),
            )
            for name in _TOLD
        ),
        unreadable,
        tuple(deleted),
    )


def load_table(files: StoreView, name: str, table: str, version: Version) -> dict[Any, Any] | None:
    """Return the table of one config file as a broker loads it; None if loading fails."""
    try:
        return _load_file(files, name, table, dialect_of(str(version)))[1]
    except _Unreadable:
        return None


def _load_file(files: StoreView, name: str, table: str, dialect: Dialect) -> tuple[Source, dict[Any, Any]]:
    """Return the source and the table of a file. upstream: ``ConfigManager.load`` and ``loadBak``."""
    sources: dict[Copy, Source] = {Copy.MAIN: "main", Copy.BAK: "bak"}
    for copy, source in sources.items():
        path = paths.config_path(name, copy)
        data = files.read_whole(path) if files.is_file(path) else b""
        if not data:
            continue
        decoded = decode_config(name, data, dialect)
        if isinstance(decoded, Flaw):
            if copy is Copy.BAK:
                raise _Unreadable
            continue
        entries = decoded.value.get(table) or {}
        return source if entries else "empty", entries
    return "empty", {}


def _is_damaged(files: StoreView, name: str, dialect: Dialect) -> bool:
    path = paths.config_path(name)
    return files.is_file(path) and isinstance(decode_config(name, files.read_whole(path) or b"?", dialect), Flaw)


def _is_rewritten(
    name: str, found: dict[str, tuple[Source, dict[Any, Any]]], version: Version, unreadable: str | None
) -> bool:
    """Return whether a broker that starts and stops changes the bytes of the file."""
    if unreadable is not None:
        # upstream: the shutdown() of 4.9 overwrites the good offsets with the empty table, because it never loaded
        # them.
        return version is Version.V4_9 and name == paths.CONSUMER_OFFSET
    if name == paths.CONSUMER_OFFSET:
        return True
    source, entries = found[name]
    if version is Version.V4_9:
        # 4.9 writes topics when it creates one, and each start needs the topic for half messages.
        return name == paths.TOPICS and HALF_TOPIC not in entries
    return source != "main"


BACKUP = ".bak"

_DELAY_OFFSETS = paths.config_path(paths.DELAY_OFFSET)
_COMPACTION_POSITIONS = f"{paths.COMPACTION}/{paths.POSITION_CHECKPOINT}"


def persist(files: StoreFiles, path: str, data: bytes) -> None:
    """Write a file; its old bytes become the backup without a check. upstream: ``MixAll.string2File``."""
    if files.exists(path):
        files.replace(path + BACKUP, files.read_whole(path))
    files.replace(path, data)


class DelayOffsets:
    """The delivered offset of each delay level. upstream: ``ScheduleMessageService`` of 4.9."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._offsets: dict[int, int] = {}

    def load(self, queues: ConsumeQueueStore, log: BrokerLog) -> None:
        """Read the table and correct each offset to the bounds of its queue."""
        offsets = load_table(self._files, paths.DELAY_OFFSET, "offsetTable", Version.V4_9)
        if offsets is None:
            raise LoadRefused(f"neither {_DELAY_OFFSETS} nor its {BACKUP} parses")
        levels = len(queues.settings.rules.delays)
        self._offsets = {level: _corrected(level, offsets[level], queues, levels, log) for level in sorted(offsets)}

    def persist(self) -> None:
        """Write the table."""
        value = {"offsetTable": self._offsets}
        persist(self._files, _DELAY_OFFSETS, encode_config(paths.DELAY_OFFSET, value, dialect_of(Version.V4_9)))


def _corrected(level: int, offset: int, queues: ConsumeQueueStore, levels: int, log: BrokerLog) -> int:
    if not 0 < level <= levels:
        return offset
    queue = queues.find_or_create(SCHEDULE_TOPIC, level - 1)
    corrected = min(max(offset, queue.min_offset), queue.max_offset)
    if corrected != offset:
        log.warn(broker_log.DELAY_OFFSET_INVALID)
        log.warn(broker_log.DELAY_OFFSET_CORRECTED)
    return corrected


class CompactionPositions:
    """The compacted offset of each topic. upstream: ``CompactionPositionMgr``, which loads in its constructor.

    5.4 deletes a file whose copy it loads, so that no later save makes it the copy.
    """

    def __init__(self, files: StoreFiles, settings: StartSettings) -> None:
        self._files = files
        self._version = settings.version
        main, backup = _COMPACTION_POSITIONS, _COMPACTION_POSITIONS + BACKUP
        positions = self._read(main)
        if positions is None:
            if settings.is_5_4 and files.is_file(main):
                files.delete(main)
            positions = self._read(backup)
        self._positions = positions or {}

    def _read(self, path: str) -> dict[Any, Any] | None:
        data = self._files.read_whole(path) if self._files.is_file(path) else b""
        decoded = decode_config(paths.POSITION_CHECKPOINT, data, dialect_of(str(self._version))) if data else None
        if decoded is None or isinstance(decoded, Flaw):
            return None
        return decoded.value.get("queueOffsetMap") or {}

    def persist(self) -> None:
        """Write the table, which a start does not change."""
        value = {"empty": not self._positions, "queueOffsetMap": self._positions}
        data = encode_config(paths.POSITION_CHECKPOINT, value, dialect_of(str(self._version)))
        persist(self._files, _COMPACTION_POSITIONS, data)


def wipe_consumer_offsets(files: StoreFiles) -> None:
    """Write an empty table of offsets, as a 4.9 broker does that stops before it has read them."""
    data = encode_config(paths.CONSUMER_OFFSET, {"offsetTable": {}}, dialect_of(Version.V4_9))
    persist(files, paths.config_path(paths.CONSUMER_OFFSET), data)
