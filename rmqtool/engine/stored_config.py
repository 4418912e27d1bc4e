"""What the engine must know of a store's configuration files: topics and their queues, filters of groups.

Upstream: ``QueueTypeUtils.getCQType``, ``ConfigManager.load``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqtool.config import Version
from rmqtool.files.filesystem import ReadableFileSystem, WritableFileSystem
from rmqtool.formats import paths
from rmqtool.formats.config_files import LARGEST_TEXT, decode_config, dialect_of, encode_config, new_bean, with_entry
from rmqtool.formats.config_shapes import DATA_VERSION, TOPIC_CONFIG
from rmqtool.formats.config_shapes import TOPICS as TOPICS_SHAPE
from rmqtool.formats.fastjson import Table
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import Copy
from rmqtool.store.config_files import config_text

_TOPIC_TABLE = TOPICS_SHAPE.fields["topicConfigTable"].shape


def read_config(files: ReadableFileSystem, name: str) -> dict[str, Any]:
    """Return the value of a configuration file; as a broker does, of its copy where the file does not parse."""
    for copy in (Copy.MAIN, Copy.BAK):
        path = paths.config_path(name, copy)
        if files.exists(path):
            with files.open_read(path) as file:
                decoded = decode_config(name, file.pread(min(file.size(), LARGEST_TEXT), 0))
            if not isinstance(decoded, Flaw) and isinstance(decoded.value, dict):
                return decoded.value
    return {}


def read_batch_topics(files: ReadableFileSystem) -> frozenset[str]:
    """Return the topics with batch queues. Only 5.x has them."""
    table = read_config(files, paths.TOPICS).get("topicConfigTable") or {}
    return frozenset(
        topic
        for topic, settings in table.items()
        if isinstance(settings, dict) and (settings.get("attributes") or {}).get("queue.type") == "BatchCQ"
    )


def read_compacted_topics(files: ReadableFileSystem) -> frozenset[str]:
    """Return the topics of which only the last message of each key is kept. Only 5.x has them."""
    table = read_config(files, paths.TOPICS).get("topicConfigTable") or {}
    return frozenset(
        topic
        for topic, settings in table.items()
        if isinstance(settings, dict) and (settings.get("attributes") or {}).get("cleanup.policy") == "COMPACTION"
    )


def queue_counts(files: ReadableFileSystem) -> dict[str, int]:
    """Return how many queues may be written of each topic that the store knows."""
    table = read_config(files, paths.TOPICS).get("topicConfigTable") or {}
    return {
        topic: int(settings.get("writeQueueNums") or 0)
        for topic, settings in table.items()
        if isinstance(settings, dict)
    }


def add_topics(files: WritableFileSystem, version: Version, queues: Mapping[str, int], now: int) -> None:
    """Let the store know topics that it does not know yet, with so many queues."""
    found = read_config(files, paths.TOPICS)
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
