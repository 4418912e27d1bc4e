"""Which queues go back: the queue offsets that a start gives to new messages a second time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.java import LONG_MAX, parse_long
from rmqtool.upstream.consume_queues import ConsumeQueue
from rmqtool.upstream.files import StoreView
from rmqtool.upstream.startup import MessageStore

# So many bytes are looked at behind the place where a broker takes a file's units to end.
_LOOKED_AT = 3277 * UNIT_SIZE


class Rewind(NamedTuple):
    """A queue whose next offset is lower after the start than it was."""

    topic: str
    queue_id: int
    before: int
    after: int


def find_rewinds(before: StoreView, store: MessageStore, end: int | None) -> list[Rewind]:
    """Return the queues that go back, those that lose most first.

    What a queue held before is told by its files, not by what the broker makes of them: behind the first unit that is
    not valid it sees none. Units that point to ``end`` or behind it are leftovers where that is given.
    """
    found = []
    for (topic, queue_id), queue in store.queues.queues.items():
        loaded = store.loaded_max_offsets.get((topic, queue_id))
        if loaded is not None:
            sure = loaded if end is None else queue.max_offset
            held = max([sure, *_iter_written_behind(before, queue, sure, end)])
            if held > queue.max_offset:
                found.append(Rewind(topic, queue_id, held, queue.max_offset))
    return sorted(found, key=lambda one: (one.after - one.before, one.topic, one.queue_id))


def _iter_written_behind(files: StoreView, queue: ConsumeQueue, sure: int, end: int | None) -> Iterator[int]:
    """Yield, for each file that goes on behind a queue offset, the offset behind the last unit that is seen there."""
    import numpy as np

    dtype = np.dtype(layouts.CONSUME_QUEUE_UNIT.dtype())
    for directory in queue.mapped.directories:
        for entry in files.entries(directory):
            start = parse_long(entry.name)
            if start is None or entry.is_directory or start + entry.size <= sure * UNIT_SIZE:
                continue
            at = max(sure * UNIT_SIZE - start, 0)
            data = files.read(f"{directory}/{entry.name}", at, _LOOKED_AT)
            units = np.frombuffer(data, dtype, count=len(data) // UNIT_SIZE)
            offsets = units["physical_offset"]
            within = (offsets >= 0) & (offsets < (LONG_MAX if end is None else end))
            written = np.flatnonzero(within & (units["size"] > 0))
            if len(written):
                yield (start + at) // UNIT_SIZE + int(written[-1]) + 1
