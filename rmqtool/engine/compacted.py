"""Reads of compacted topics: they have queues and logs of their own, with the last message of each key.

Upstream: ``CompactionStore``, ``CompactionLog.getMessage``, ``SparseConsumeQueue``. Tags filter nothing there, and what
lies before the first message is answered with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.get_result import GetMessageResult, GetMessageStatus
from rmqtool.engine.queue_offsets import QueueKey
from rmqtool.engine.reading import Limits, LogWindow, Unit, get_messages
from rmqtool.engine.stored_config import read_compacted_topics
from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import is_batch_written
from rmqtool.formats.paths import FileKind, parse_segment_name, segment_directory
from rmqtool.storage.filesystem import ReadableFileSystem, join
from rmqtool.storage.segments import OpenFiles, Segment, SegmentQueue

_UNIT = layouts.BATCH_CONSUME_QUEUE_UNIT


class _CompactedLog(NamedTuple):
    """The log of one compacted queue, as the window on a log wants it."""

    segments: SegmentQueue
    committed_offset: int
    segment_size: int
    min_offset: int

    def read(self, physical_offset: int, length: int) -> bytes:
        """Return what stands at an offset."""
        return self.segments.read(physical_offset, length)


class CompactedQueues:
    """The compacted queues of a store."""

    def __init__(self, files: ReadableFileSystem, config: StoreConfig, limits: Limits) -> None:
        self._files = files
        self._is_enabled = config.enable_compaction and config.version is not Version.V4_9
        self._limits = limits
        self._open = OpenFiles()

    @cached_property
    def _topics(self) -> frozenset[str]:
        return read_compacted_topics(self._files) if self._is_enabled else frozenset()

    def holds(self, topic: str) -> bool:
        """Return whether a topic is read from here."""
        return topic in self._topics

    def get(self, key: QueueKey, offset: int, most: int) -> GetMessageResult:
        """Return up to ``most`` messages from a queue offset on."""
        files = [self._units(segment) for segment in self._segments(FileKind.COMPACTION_QUEUE, key)]
        files = [units for units in files if units]
        log = self._segments(FileKind.COMPACTION_LOG, key)
        if not log and not files:
            return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        low = files[0][0].queue_offset if files else 0
        high = files[-1][-1].queue_offset + 1 if files else 0
        if not files:
            return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset == high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            # upstream: a queue that begins with 0 sends the consumer back to its beginning.
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high if low else 0, low, high)
        result = GetMessageResult(GetMessageStatus.FOUND, offset, low, high)
        window = LogWindow(_CompactedLog(log, log.end_offset, log.segment_size, log.min_offset), self._open)
        get_messages(lambda begin: _from(files, begin), window, self._limits, result, most, None)
        return result

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def _segments(self, kind: FileKind, key: QueueKey) -> SegmentQueue:
        directory = segment_directory(kind, *key)
        found = []
        for entry in self._files.listdir(directory) if self._files.exists(directory) else ():
            base = parse_segment_name(entry.name)
            if base is not None:
                path = join(directory, entry.name)
                found.append(Segment(base, self._files.stat(path).size, path, self._files))
        return SegmentQueue(found, files=self._open)

    def _units(self, segment: Segment) -> list[Unit]:
        data = self._open.open(segment).pread(segment.size, 0)
        return [
            Unit(unit.msg_base_offset, unit.physical_offset, unit.size, unit.tags_code)
            for unit in takewhile(is_batch_written, _UNIT.iter_decode(data))
        ]


def _from(files: list[list[Unit]], begin: int) -> Iterator[Unit] | None:
    """Return the units from an offset on, to the end of the file that has it."""
    for units in files:
        if units[-1].queue_offset >= begin:
            return (unit for unit in units if unit.queue_offset >= begin)
    return None
