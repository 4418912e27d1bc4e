"""The messages of a topic's queues, from a place in the log on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge

from rmqtool.errors import OptionalMissing
from rmqtool.formats.commit_log import Message
from rmqtool.formats.paths import FileKind
from rmqtool.inspection.log_search import LogSearch
from rmqtool.inspection.queue_bounds import read_database_bounds, read_database_queue
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.database_queues import has_database_queues
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.log_end import read_record
from rmqtool.storage.store import Store


def iter_messages_since(store: Store, wanted: Callable[[str], bool], physical_offset: int) -> Iterator[Message]:
    """Yield the messages of the wanted topics that lie at ``physical_offset`` or behind, in the order of the log.

    Their queues lead to them; where there are no queues at all the log is read.
    """
    if not store.has_file_queues and not has_database_queues(store):
        yield from _iter_log(store, wanted, physical_offset)
        return
    try:
        places = merge(*_iter_places(store, wanted, physical_offset))
        for place in places:
            message = read_record(store.commit_log, place)
            if message is not None and wanted(message.topic):
                yield message
    except OptionalMissing:
        yield from _iter_log(store, wanted, physical_offset)


def _iter_log(store: Store, wanted: Callable[[str], bool], start: int) -> Iterator[Message]:
    found = LogSearch(store).iter_messages(start, store.commit_log.end_offset)
    return (message for message in found if wanted(message.topic))


def _iter_places(store: Store, wanted: Callable[[str], bool], start: int) -> Iterator[Iterator[int]]:
    known = store.listing.queues(FileKind.CONSUME_QUEUE)
    for queue_id, segments in known.items():
        if wanted(queue_id.topic):
            yield _file_places(ConsumeQueueFiles(queue_id, segments), start)
    for queue_id in read_database_bounds(store):
        if wanted(queue_id.topic):
            yield _row_places(store, queue_id, start)


def _file_places(queue: ConsumeQueueFiles, start: int) -> Iterator[int]:
    return (unit.physical_offset for _, unit in queue.iter_units(queue.find_offset(start)))


def _row_places(store: Store, queue: QueueId, start: int) -> Iterator[int]:
    rows = (row.value.physical_offset for row in read_database_queue(store, queue))
    return (place for place in rows if place >= start)
