"""The files that services of a store load when it starts and write when it stops."""

from __future__ import annotations

from typing import Any

from rmqtool.config import Version
from rmqtool.formats import paths
from rmqtool.formats.config_files import decode_config, dialect_of, encode_config
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.upstream import broker_log
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.config_load import load_table
from rmqtool.upstream.consume_queues import ConsumeQueueStore
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.mapped_files import LoadRefused
from rmqtool.upstream.settings import StartSettings

BACKUP = ".bak"

_DELAY_OFFSETS = paths.config_path(paths.DELAY_OFFSET)
_COMPACTION_POSITIONS = f"{paths.COMPACTION}/{paths.POSITION_CHECKPOINT}"


def persist(files: StoreFiles, path: str, data: bytes) -> None:
    """Write a file; its old bytes become the backup, whatever they are. upstream: ``MixAll.string2File``."""
    if files.exists(path):
        files.replace(path + BACKUP, files.read_whole(path))
    files.replace(path, data)


class DelayOffsets:
    """How far each delay level is delivered. upstream: ``ScheduleMessageService`` of 4.9."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._offsets: dict[int, int] = {}

    def load(self, queues: ConsumeQueueStore, log: BrokerLog) -> None:
        """Read the table and bring every offset between the bounds of its queue."""
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
    """How far each topic is compacted. upstream: ``CompactionPositionMgr``, which loads while it is constructed.

    A file that gives way to its copy is deleted by 5.4, so that no later save makes it the copy.
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
    """Write the empty table of offsets, as a 4.9 broker does that stops before it has read them."""
    data = encode_config(paths.CONSUMER_OFFSET, {"offsetTable": {}}, dialect_of(Version.V4_9))
    persist(files, paths.config_path(paths.CONSUMER_OFFSET), data)
