"""The messages of a cluster as an ordered stream of columns: what ``log`` makes of files.

Each queue comes in its own order. The order of a broker's log is that of the physical offsets: what is at most at the
place that every queue has reached is sorted and handed on, the rest waits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

import numpy as np

from rmqtool.client.admin import find_topics, for_each
from rmqtool.client.cluster import Cluster
from rmqtool.client.puller import PATIENCE, Chunk, Fetch, Span, ask_queue, find_bounds, find_offset, records_of
from rmqtool.columns.records import Records
from rmqtool.filters.tags import ALL
from rmqtool.filters.wanted import parse_patterns
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import HALF_TOPIC, OP_HALF_TOPIC, PERM_READ
from rmqtool.log.order import Order
from rmqtool.log.read import MOST_ROWS, Note, Part
from rmqtool.log.select import Selection
from rmqtool.log.sources import LogFile
from rmqtool.log.stream import Request
from rmqtool.progress import NoProgress
from rmqtool.remoting.bodies.routes import TopicConfig
from rmqtool.remoting.requests.offsets import (
    GetMaxOffset,
    GetMaxOffsetAnswer,
    QueryConsumerOffset,
    QueryConsumerOffsetAnswer,
)

# Bytes that are sorted at a time, and seconds that a broker may hold a pull back.
_PIECE, _WAIT = 2 << 20, 15.0
_ANY_CODE: Final = frozenset(map(int, ResponseCode))
_OFFSET_CODES: Final = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})


@dataclass
class Plan:
    """The spans to read, notes for the user, and the topics that were named and do not exist.

    ``advance`` is called with the number of messages that were pulled, wanted or not, in the thread of the client.
    """

    spans: list[Span]
    notes: list[Note] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    advance: Callable[[int], None] = NoProgress().advance

    @property
    def messages(self) -> int:
        """How many messages the spans have."""
        return sum(span.end - span.begin for span in self.spans if span.end is not None)


async def find_queues(cluster: Cluster, selection: Selection) -> tuple[list[MessageQueue], list[Note], list[str]]:
    """Return the queues that are wanted, notes on those that cannot be read, and the topics that do not exist."""
    topics = await find_topics(cluster)
    named = selection.topics.patterns
    if selection.topics.is_expression:
        unknown = [] if any(map(selection.topics.matches, topics)) else list(named)
    else:
        unknown = [one for one in named if not any(map(parse_patterns([one]).matches, topics))]
    queues, notes = [], []
    for topic, brokers in topics.items():
        if not selection.topics.matches(topic):
            continue
        for broker, config in brokers.items():
            if not config.perm & PERM_READ:
                notes.append(Note(f"topic {topic} is not readable at broker {broker}: its messages are left out"))
                continue
            queues += [
                MessageQueue(topic, broker, number)
                for number in range(config.read_queue_nums)
                if selection.wants_queue(topic, number)
            ]
    notes += [one async for one in _iter_unlisted(cluster, topics, selection)]
    return queues, notes, unknown


async def _iter_unlisted(
    cluster: Cluster, topics: Mapping[str, Mapping[str, TopicConfig]], selection: Selection
) -> AsyncGenerator[Note, None]:
    """Yield which topics of transactions have messages that cannot be pulled.

    A 4.9 broker has settings of its half messages only after it has looked for old ones, a minute after its start,
    and never of the other topic. It refuses pulls of a topic without settings, but says where a queue of it ends.
    """
    listed = {broker: topic for topic, brokers in topics.items() for broker in brokers}
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        if not (selection.topics.matches(topic) and selection.wants_queue(topic, 0)):
            continue
        for broker in sorted(listed.keys() - topics.get(topic, {}).keys()):
            request = GetMaxOffset(topic=topic, queue_id=0, bname=broker)
            answer = await ask_queue(cluster, MessageQueue(listed[broker], broker, 0), request, accept=_ANY_CODE)
            if answer.code == ResponseCode.SUCCESS and (GetMaxOffsetAnswer.decode_answer(answer.ext).offset or 0) > 0:
                yield Note(f"broker {broker} does not list {topic}: its messages are left out")


async def plan_request(
    cluster: Cluster, request: Request, *, follows: bool = False, begins: Mapping[MessageQueue, int] | None = None
) -> Plan:
    """Return which offsets of which queues answer a request; ``begins`` are where queues begin at the earliest."""
    selection = request.selection
    queues, notes, unknown = await find_queues(cluster, selection)

    async def span(queue: MessageQueue) -> Span:
        least, most = await find_bounds(cluster, queue)
        begin, end = least, most
        if selection.begin is not None and most > least:
            begin = await find_offset(cluster, queue, selection.begin)
        if selection.end is not None and most > least:
            end = await find_offset(cluster, queue, selection.end)
        wanted = (begins or {}).get(queue, selection.least_of(queue.topic, queue.queue_id))
        if wanted is not None:
            begin = max(begin, wanted)
        if request.last is not None:
            begin = max(begin, end - request.last)
        return Span(queue, min(begin, most), None if follows else end)

    spans = await for_each(queues, span)
    return Plan([one for one in spans if follows or one.end is None or one.begin < one.end], notes, unknown)


async def committed_offset(cluster: Cluster, group: str, queue: MessageQueue) -> int | None:
    """Return the committed offset of a group in a queue, None without one."""
    request = QueryConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
        bname=queue.broker_name,
    )
    answer = await ask_queue(cluster, queue, request, accept=_OFFSET_CODES)
    if answer.code != ResponseCode.SUCCESS:
        return None
    return QueryConsumerOffsetAnswer.decode_answer(answer.ext).offset


async def iter_parts(
    cluster: Cluster, plan: Plan, request: Request, *, patience: float = PATIENCE
) -> AsyncGenerator[Part | Note, None]:
    """Yield the wanted messages of a plan in the order of the request; a broker may be away for ``patience`` (s)."""
    for note in plan.notes:
        yield note
    key = "store_timestamp" if request.order is Order.TIME else "physical_offset"
    for spans in _rounds(plan.spans, request.order):
        merge = _Merge(spans, key)
        # The broker leaves out messages with other tags. Of several queues those of one would be kept here until the
        # next one of each other queue comes.
        tags = request.selection.tags.text if request.selection.tags is not None and len(spans) == 1 else ALL
        fetch = Fetch(cluster, spans, patience=patience, tags=tags)
        try:
            while chunks := await fetch.take():
                for chunk in chunks:
                    plan.advance(chunk.end - chunk.begin)
                    if chunk.is_gone:
                        yield _gone(chunk)
                if merge.add(chunks):
                    for part in _parts(merge.take(), request.selection):
                        yield part
        finally:
            fetch.close()
        for part in _parts(merge.finish(), request.selection):
            yield part


async def iter_followed(cluster: Cluster, plan: Plan, request: Request) -> AsyncGenerator[Part | Note, None]:
    """Yield the wanted messages of a plan, and those that come after them, as they come; it does not end."""
    for note in plan.notes:
        yield note
    fetch = Fetch(cluster, plan.spans, wait=_WAIT)
    try:
        while chunks := await fetch.take():
            for chunk in chunks:
                if chunk.is_gone:
                    yield _gone(chunk)
            records = records_of([one for one in chunks if one.body])
            for part in _parts([records.select(np.argsort(_keys(records, "physical_offset")))], request.selection):
                yield part
    finally:
        fetch.close()


def _rounds(spans: list[Span], order: Order) -> Iterable[list[Span]]:
    """Return which queues are read at a time: those of a broker in the order of its log, else one, or all."""
    if order is Order.TIME:
        return [spans]

    def place(span: Span) -> tuple[str, int, str]:
        topic, broker, queue_id = span.queue
        return (topic, queue_id, broker) if order is Order.QUEUE else (broker, 0, "")

    return [list(spans) for _, spans in groupby(sorted(spans, key=place), place)]


def _gone(chunk: Chunk) -> Note:
    queue, last = chunk.queue, chunk.end - 1
    return Note(
        f"queue {queue.queue_id} of {queue.topic}: the broker deleted messages {chunk.begin} to {last} meanwhile"
    )


def _parts(found: Iterable[Records], selection: Selection) -> Iterable[Part]:
    file = LogFile(0, 0, "", "", "cluster")
    for records in found:
        for first in range(0, len(records), MOST_ROWS):
            wanted = selection.select(records.select(slice(first, first + MOST_ROWS)))
            if len(wanted):
                yield Part(wanted, file, None)


class _Merge:
    """Chunks of several queues, put into one order. ``key`` is the column that gives it: it grows in each queue."""

    def __init__(self, spans: Iterable[Span], key: str) -> None:
        self._key = key
        self._ends = {span.queue: span.end for span in spans}
        # How far each queue that goes on has come, by the key.
        self._reached = dict.fromkeys(self._ends, -1)
        self._chunks: list[Chunk] = []
        self._size = 0
        # The first messages are wanted soon.
        self._enough = _PIECE >> 5

    def add(self, chunks: Iterable[Chunk]) -> bool:
        """Take chunks; True where there is enough to sort."""
        for chunk in chunks:
            end = self._ends[chunk.queue]
            if chunk.body:
                self._chunks.append(chunk if end is None or chunk.end <= end else _cut(chunk, end))
                self._size += len(chunk.body)
            if end is not None and chunk.end >= end:
                self._reached.pop(chunk.queue, None)
        return self._size >= self._enough

    def take(self) -> list[Records]:
        """Return what is certain to come before everything that has not been fetched."""
        records = records_of(self._chunks)
        keys = _keys(records, self._key)
        counts = _rows_of(self._chunks, records)
        at = 0
        for chunk, count in zip(self._chunks, counts, strict=True):
            if chunk.queue in self._reached:
                self._reached[chunk.queue] = int(keys[at + count - 1])
            at += count
        limit = min(self._reached.values(), default=None)
        ready = np.ones(len(records), np.bool_) if limit is None else keys <= limit
        self._keep(records, ready, counts)
        return [self._sorted(records.select(ready))] if ready.any() else []

    def finish(self) -> list[Records]:
        """Return the rest."""
        self._reached.clear()
        return self.take() if self._chunks else []

    def _keep(self, records: Records, ready: np.ndarray[tuple[int], np.dtype[np.bool_]], counts: list[int]) -> None:
        """Keep what is not ready: in each chunk the keys grow, so it is the end of it."""
        kept, at = [], 0
        begins = records.file_offsets
        base = 0
        for chunk, count in zip(self._chunks, counts, strict=True):
            rows = np.flatnonzero(~ready[at : at + count])
            if len(rows):
                kept.append(chunk._replace(body=chunk.body[int(begins[at + rows[0]]) - base :]))
                # Out of order in its queue, which a clock that was set back makes of times: it goes with the rest.
                ready[at + rows[0] : at + count] = False
            at += count
            base += len(chunk.body)
        self._chunks = kept
        self._size = sum(len(chunk.body) for chunk in kept)
        # Where a queue keeps the others waiting, they are not sorted again for a few bytes more.
        self._enough = max(_PIECE, 2 * self._size)

    def _sorted(self, records: Records) -> Records:
        keys, places = _keys(records, self._key), _keys(records, "physical_offset")
        return records.select(np.lexsort((places, keys)))


def _cut(chunk: Chunk, end: int) -> Chunk:
    """Return the records of a chunk before an offset: a broker may answer with more messages than it was asked for."""
    records = records_of([chunk])
    beyond = np.flatnonzero(_keys(records, "queue_offset") >= end)
    size = int(records.file_offsets[beyond[0]]) if len(beyond) else len(chunk.body)
    return chunk._replace(end=end, body=chunk.body[:size])


def _keys(records: Records, name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = records.column(name)
    return found


def _rows_of(chunks: list[Chunk], records: Records) -> list[int]:
    """Return how many records each chunk has."""
    ends = np.cumsum([len(chunk.body) for chunk in chunks])
    return [int(count) for count in np.diff(np.searchsorted(records.file_offsets, ends), prepend=0)]
