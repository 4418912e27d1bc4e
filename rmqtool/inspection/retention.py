"""What a broker deletes next, and who has not read it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqtool.errors import OptionalMissing
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import TopicKind, topic_kind
from rmqtool.inspection.statistics import Statistics, Wish, read_statistics
from rmqtool.storage.configs import read_configs
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.store import Store

if TYPE_CHECKING:
    from rmqtool.scan.ranges import Effort
    from rmqtool.scan.selection import Selection

_HOUR_MS = 3_600_000


def report_retention(store: Store, selection: Selection, effort: Effort) -> Statistics:
    """Count messages by segment, the next one to be deleted first: when it expires, and which groups still need it.

    A broker deletes a segment so many hours after it was last written to, and earlier when the disk is nearly full.
    """
    (found,) = read_statistics(store, selection, [Wish(("segment",))], effort)
    reserved = store.config.file_reserved_time * _HOUR_MS
    mtimes = {file.path: file.mtime_ns // 1_000_000 for file in store.listing.files}
    segments = {segment.base_offset: segment for segment in store.commit_log}
    for row in found.rows:
        segment = segments.get(row["segment"])
        if segment is not None:
            row["expiresTimestamp"] = mtimes[segment.path] + reserved if segment.path in mtimes else None
            row["unread"] = _unread(store, segment.base_offset, segment.end_offset)
    return found


def _unread(store: Store, start: int, end: int) -> list[dict[str, Any]]:
    """Return how many messages of a part of the log each group has not read, by topic."""
    try:
        offsets = read_configs(store).offsets
    except OptionalMissing:
        return []
    queues = store.listing.queues(FileKind.CONSUME_QUEUE)
    counts: dict[tuple[str, str], int] = {}
    for (topic, group), committed in offsets.items():
        if topic_kind(topic) is TopicKind.SYSTEM:
            continue
        for queue_id, offset in committed.items():
            segments = queues.get(QueueId(topic, queue_id))
            if segments is not None:
                queue = ConsumeQueueFiles(QueueId(topic, queue_id), segments)
                first = max(queue.find_offset(start), offset)
                counts[group, topic] = counts.get((group, topic), 0) + max(queue.find_offset(end) - first, 0)
    return [
        {"group": group, "topic": topic, "messages": count} for (group, topic), count in sorted(counts.items()) if count
    ]
