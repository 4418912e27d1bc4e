"""Where in a log the first wanted message may lie, as the queues tell and the log itself confirms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rmqtool.errors import ReadFailed
from rmqtool.scan.gathering import Places, gather_records
from rmqtool.scan.logs import LogFile, LogKind
from rmqtool.scan.queue_units import Named, QueueFiles, read_named
from rmqtool.scan.selection import Queue, Selection


def bound_by_queues(files: Sequence[LogFile], queues: Sequence[QueueFiles], selection: Selection) -> Selection:
    """Return the selection, begun behind messages that are not wanted when the units of all wanted queues tell where.

    A unit is believed when the record that it names says the same.
    """
    wanted = _wanted_offsets(queues, selection)
    if not wanted:
        return selection
    by_queue = {(queue.queue.topic, queue.queue.queue_id): queue for queue in queues if not queue.is_batch}
    place = min(_place_of(files, by_queue.get(queue), offset) for queue, offset in wanted.items())
    return replace(selection, physical_from=max(place, selection.physical_from))


def _wanted_offsets(queues: Sequence[QueueFiles], selection: Selection) -> dict[Queue, int]:
    """Return the wanted queues and the first wanted offset of each, where these are all there can be."""
    if selection.least_offsets is not None:
        found = {queue: offset for queue, offset in selection.least_offsets.items() if selection.wants_queue(*queue)}
        others = [(queue.queue.topic, queue.queue.queue_id) for queue in queues]
        return {**dict.fromkeys((queue for queue in others if selection.wants_queue(*queue)), 0), **found}
    topic = selection.topics.exact
    if topic is None or selection.queue_id is None or not selection.least_offset:
        return {}
    return {(topic, selection.queue_id): selection.least_offset}


def _place_of(files: Sequence[LogFile], queue: QueueFiles | None, queue_offset: int) -> int:
    """Return the place of a message, or of the last one before it that is dispatched; 0 where that is not certain."""
    if queue is None or queue_offset <= 0:
        return 0
    try:
        named = read_named(queue, queue_offset)
        return named.place if named is not None and _is_confirmed(files, queue, named) else 0
    except ReadFailed:
        return 0


def _is_confirmed(files: Sequence[LogFile], queue: QueueFiles, named: Named) -> bool:
    for file in files:
        if file.base_offset <= named.place < file.end_offset and file.kind is LogKind.COMMIT_LOG:
            places = Places(np.array([named.place - file.base_offset]), np.array([named.size]))
            with file.open() as opened:
                records = gather_records(opened, file, places)
            topics = records.topics
            found = [*topics.values, *records.column("queue_id").tolist(), *records.column("queue_offset").tolist()]
            return found == [*queue.queue, named.queue_offset]
    return False
