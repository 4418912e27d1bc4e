"""``BrokerController.initialize``: which config files a broker takes, and which of them it writes over.

A file that is missing, empty or does not parse gives way to its ``.bak``. A ``.bak`` that is missing or empty is an
empty table and no failure; one that does not parse ends the start, before the store is touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.config import Version
from rmqtool.formats import paths
from rmqtool.formats.config_files import decode_config, dialect_of
from rmqtool.formats.fastjson import Dialect
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import Copy
from rmqtool.formats.topics import HALF_TOPIC
from rmqtool.upstream.files import StoreView

Source = Literal["main", "bak", "empty"]

# Each with the table in it that matters here.
_TABLES = {
    paths.TOPICS: "topicConfigTable",
    paths.CONSUMER_OFFSET: "offsetTable",
    paths.SUBSCRIPTION_GROUP: "subscriptionGroupTable",
    paths.CONSUMER_FILTER: "filterDataByTopic",
}


# Where a broker of 5.x keeps them otherwise.
_DATABASES = ("topics", "subscriptionGroups", "consumerOffsets", "rdb", "metadata")
_TOLD = [name for name in _TABLES if name != paths.CONSUMER_FILTER]


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """One config file: where the broker takes it from, and whether it writes it anew.

    ``empty`` is also said of a file that was read and holds nothing, ``damaged`` of one that was not taken. None stands
    for what cannot be known: the broker keeps its settings in a database.
    """

    file: str
    loaded_from: Source | None
    rewritten: bool | None
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class ConfigLoad:
    """The config files of a broker, the one on which its start ends, and those that it deletes while it loads."""

    files: tuple[LoadedConfig, ...]
    unreadable: str | None
    deleted: tuple[str, ...] = ()


class _Unreadable(Exception):
    """Neither the file nor its copy can be read."""


def load_config(files: StoreView, version: Version) -> ConfigLoad:
    """Load the files in a broker's order; those behind the one that fails are not read, so their tables are empty."""
    if any(files.is_directory(f"{paths.CONFIG}/{name}") for name in _DATABASES):
        return ConfigLoad(tuple(LoadedConfig(paths.config_path(name), None, None) for name in _TOLD), None)
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
    """Return the table of one config file as a broker loads it; None where it cannot."""
    try:
        return _load_file(files, name, table, dialect_of(str(version)))[1]
    except _Unreadable:
        return None


def _load_file(files: StoreView, name: str, table: str, dialect: Dialect) -> tuple[Source, dict[Any, Any]]:
    """upstream: ``ConfigManager.load`` and ``loadBak``."""
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
    """Return whether a broker that starts and stops leaves other bytes in the file."""
    if unreadable is not None:
        # upstream: the shutdown() of 4.9 writes the offsets that were never loaded over the good ones.
        return version is Version.V4_9 and name == paths.CONSUMER_OFFSET
    if name == paths.CONSUMER_OFFSET:
        return True
    source, entries = found[name]
    if version is Version.V4_9:
        # It writes topics when it makes one, and at every start it needs the one for half messages.
        return name == paths.TOPICS and HALF_TOPIC not in entries
    return source != "main"
