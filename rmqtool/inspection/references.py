"""Who points at a record: the queues, the index, the timer log. Looked up, not scanned for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.formats import index, layouts, timer
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts, queue_entries
from rmqtool.formats.paths import FileKind
from rmqtool.formats.topics import TIMER_TOPIC
from rmqtool.inspection.regions import time_words
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.index_files import iter_find, open_index
from rmqtool.storage.store import Store


class Reference(NamedTuple):
    """One place that points, or should point, at a record; ``right`` is None where nothing is there to agree."""

    file: str
    file_offset: int | None
    what: str
    right: bool | None


def iter_references(store: Store, message: Message) -> Iterator[Reference]:
    """Yield the places that point at ``message``, and those that should and do not."""
    yield from _queue_references(store, message)
    yield from _index_references(store, message)
    yield from _timer_references(store, message)


def _queue_references(store: Store, message: Message) -> Iterator[Reference]:
    queues = store.listing.queues(FileKind.CONSUME_QUEUE)
    for entry in queue_entries(message, store.dispatch_rules):
        segments = queues.get(QueueId(entry.topic, entry.queue_id))
        place = f"{entry.topic}/{entry.queue_id} @ {entry.queue_offset}"
        if segments is None:
            yield Reference(f"consumequeue/{entry.topic}/{entry.queue_id}", None, f"{place}: no such queue", False)
            continue
        unit = ConsumeQueueFiles(QueueId(entry.topic, entry.queue_id), segments).read_unit(entry.queue_offset)
        position = entry.queue_offset * layouts.CONSUME_QUEUE_UNIT.size
        segment = segments.find(position)
        if unit is None or segment is None:
            yield Reference(f"consumequeue/{entry.topic}/{entry.queue_id}", None, f"{place}: no unit", False)
            continue
        right = unit.physical_offset == message.physical_offset and unit.size == message.total_size
        words = place if right else f"{place}: the unit points to {unit.physical_offset}"
        yield Reference(segment.path, position - segment.base_offset, words, right)


def _index_references(store: Store, message: Message) -> Iterator[Reference]:
    texts = list(iter_index_texts(message, store.dispatch_rules))
    found: set[str] = set()
    for file in store.listing.of_kind(FileKind.INDEX):
        with store.filesystem.open_read(file.path) as opened:
            indexed = open_index(opened)
            if indexed is None:
                continue
            for text in texts:
                hashed = index.key_hash(text)
                for number, entry in indexed.iter_chain(hashed):
                    if entry.key_hash == hashed and entry.phy_offset == message.physical_offset:
                        found.add(text)
                        at = index.entry_offset(indexed.geometry.slots, number)
                        yield Reference(file.path, at, f"entry {number}: {text}", True)
    for text in dict.fromkeys(texts):
        if text not in found:
            yield Reference("index", None, f"no entry for {text}", None)


def _timer_references(store: Store, message: Message) -> Iterator[Reference]:
    """Search the timer log: its units are few, and nothing leads from a record to them."""
    if message.topic != TIMER_TOPIC:
        return
    pattern = layouts.LONG.packer.pack(message.physical_offset)
    place = layouts.TIMER_LOG_UNIT.field("offset_py").offset
    for file in store.listing.of_kind(FileKind.TIMER_LOG):
        with store.filesystem.open_read(file.path) as opened:
            for at in iter_find(opened, pattern, place):
                unit = timer.decode_timer_unit(opened.pread(timer.UNIT_SIZE, at - place))
                if isinstance(unit, layouts.TimerLogUnit) and (at - place) % timer.UNIT_SIZE == 0:
                    words = f"timer unit, due {time_words(unit.write_time + unit.delay)}"
                    yield Reference(file.path, at - place, words, unit.size_py == message.total_size)
