"""What the engine must know of a store's configuration files: topics with batch queues, filters of groups.

Upstream: ``QueueTypeUtils.getCQType``, ``ConfigManager.load``.
"""

from __future__ import annotations

from typing import Any

from rmqtool.formats import paths
from rmqtool.formats.config_files import decode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import Copy
from rmqtool.storage.filesystem import ReadableFileSystem

_LARGEST = 256 << 20


def read_config(files: ReadableFileSystem, name: str) -> dict[str, Any]:
    """Return the value of a configuration file; as a broker does, of its copy where the file does not parse."""
    for copy in (Copy.MAIN, Copy.BAK):
        path = paths.config_path(name, copy)
        if files.exists(path):
            with files.open_read(path) as file:
                decoded = decode_config(name, file.pread(min(file.size(), _LARGEST), 0))
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
