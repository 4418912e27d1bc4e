"""Read access to a store's configuration: JSON files with their ``.bak``, or RocksDB databases.

A broker takes the main file, and the ``.bak`` when the main file is missing, empty or does not parse.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from rmqtool.findings import Finding, Severity
from rmqtool.formats import layouts, paths, rocksdb_rows
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from rmqtool.formats.paths import Copy
from rmqtool.formats.rocksdb_rows import ConfigRowKey, ConfigTable
from rmqtool.storage.rocksdb import has_rows, open_database
from rmqtool.storage.store import Store

_LARGEST = 256 << 20
# What stands for nothing in a text: blanks, and the zeros that a crash leaves of a file that was never flushed.
_BLANK = b"\0 \t\r\n"


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
        data = store.read_file(path, _LARGEST)
        if data is None:
            continue
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


def read_configs(store: Store) -> Configs:
    """Return topics, groups and offsets from the files and the databases there are."""
    configs = Configs()
    _add_files(store, configs)
    for directory in store.listing.databases():
        if directory.startswith(paths.CONFIG + "/") and has_rows(store, directory):
            with open_database(store, directory) as database:
                for family in database.families:
                    for key, value in database.iter_rows(family):
                        _add_row(configs, directory.removeprefix(paths.CONFIG + "/"), family, key, value)
    return configs


def _add_files(store: Store, configs: Configs) -> None:
    for name in (paths.TOPICS, paths.SUBSCRIPTION_GROUP, paths.CONSUMER_OFFSET, paths.LMQ_CONSUMER_OFFSET):
        value, findings = read_config(store, name)
        configs.findings += findings
        if value is None:
            continue
        configs.topics.update(value.get("topicConfigTable") or {})
        configs.groups.update(value.get("subscriptionGroupTable") or {})
        for key, queues in (value.get("offsetTable") or {}).items():
            _add_offsets(configs, key, queues)
        for key, offset in (value.get("lmqOffsetTable") or {}).items():
            _add_offsets(configs, key, {0: offset})
    value, findings = read_config(store, paths.DELAY_OFFSET)
    configs.findings += findings
    configs.delay_offsets.update((value or {}).get("offsetTable") or {})


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
