"""A tier at a glance, and what is asked of its files: bounds of queues, records by their places, keys of the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rmqtool.errors import ReadFailed
from rmqtool.findings import Finding, Place, addressed, new_finding
from rmqtool.formats import layouts
from rmqtool.formats.commit_log import Message
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.formats.index import key_hash, key_text
from rmqtool.formats.layouts import ConsumeQueueUnit, IndexHeader, TieredIndexHeader
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.tier_index import (
    HEADER_SIZE,
    ITEM_SIZE,
    SLOT_SIZE,
    count_slots,
    decode_header,
    iter_items,
    slot_offset,
)
from rmqtool.formats.topics import topic_kind
from rmqtool.log.end import LogEnd
from rmqtool.log.sources import tier_label
from rmqtool.log.walk import read_record_at
from rmqtool.look.overview import Attempts, IndexOverview, Overview, TopicOverview
from rmqtool.look.queue_bounds import QueueBounds
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store
from rmqtool.store.segments import Segment
from rmqtool.store.tiers import Tier, TierAbsent, tier_of

_UNIT = layouts.CONSUME_QUEUE_UNIT
_QUEUE_OFFSET = layouts.MESSAGE_PREFIX_V4V4.field("queue_offset")


def read_unit(tier: Tier, queue: QueueId, queue_offset: int) -> ConsumeQueueUnit | None:
    """Return an entry of a queue; None if the tier does not have it."""
    data = tier.entries_of(queue).read(queue_offset * UNIT_SIZE, UNIT_SIZE)
    return _UNIT.decode(data) if len(data) == UNIT_SIZE else None


def read_message(tier: Tier, queue: QueueId, place: int) -> Message | None:
    """Return the right record at an offset of the log of a queue, or None."""
    log = tier.log_of(queue)
    segment = log.find(place)
    if segment is None:
        return None
    at = place - segment.base_offset
    found = read_record_at(log.open(segment), segment.base_offset, at, compacted=True)
    return found if isinstance(found, Message) else None


def bounds_of(tier: Tier, queue: QueueId) -> QueueBounds:
    """Return the bounds that the real tiered store gives a queue: it asks the queue and the first record of the log."""
    entries, log = tier.entries_of(queue), tier.log_of(queue)
    first = entries.min_offset // UNIT_SIZE
    data = log.read(log.min_offset + _QUEUE_OFFSET.offset, layouts.LONG.size)
    if len(data) == layouts.LONG.size:
        first = max(first, layouts.LONG.unpack_from(data)[0])
    return QueueBounds(first, entries.end_offset // UNIT_SIZE)


def read_tier_overview(tier: Tier) -> Overview:
    """Read what ``info`` shows of a tier: its log is those of all queues."""
    attempts = Attempts(tier.root)
    logs = [segment for queue in tier.queues.values() for segment in queue.log]
    ends = [message for queue in tier.queues for message in _ends(tier, queue, attempts)]
    ends.sort(key=lambda message: message.store_timestamp)
    index = [found for segment in tier.index if (found := _index(tier, segment, attempts)) is not None]
    length = sum(segment.size for segment in logs)
    topics: dict[str, TopicOverview] = {}
    for queue, bounds in _read_bounds(tier, attempts):
        topic = topics.setdefault(queue.topic, TopicOverview(topic_kind(queue.topic, frozenset())))
        topic.queues[queue.queue_id] = bounds
    return Overview(
        store=tier.root,
        layout="tier",
        version="5.3",
        version_reason="tiered storage is of 5.x",
        lock="free",
        has_lock_file=False,
        lock_pid=None,
        abort=False,
        log_files=len(logs),
        log_file_size=max((segment.size for segment in logs), default=0),
        log_min=0,
        log_end=LogEnd(length, ends[-1] if ends else None),
        queues_end=length,
        first=ends[0] if ends else None,
        topics=topics,
        index=index,
        checkpoint=None,
        groups={},
        findings=attempts.findings,
        attempts=attempts,
        tier={"path": tier.root, "cluster": tier.cluster, "broker": tier.broker, **_sizes(tier)},
    )


def _sizes(tier: Tier) -> dict[str, object]:
    return {"queues": len(tier.queues), "bytes": tier.size}


def _read_bounds(tier: Tier, attempts: Attempts) -> Iterator[tuple[QueueId, QueueBounds]]:
    for queue in tier.queues:
        yield queue, attempts.get(partial(bounds_of, tier, queue), QueueBounds(0, 0))


def _ends(tier: Tier, queue: QueueId, attempts: Attempts) -> Iterator[Message]:
    """Yield the first and the last message of a queue, by its entries."""
    low, high, _ = attempts.get(partial(bounds_of, tier, queue), QueueBounds(0, 0))
    for offset in (low, high - 1) if low < high else ():
        message = attempts.get(partial(find_message, tier, queue, offset), None)
        if message is not None:
            yield message


def find_message(tier: Tier, queue: QueueId, queue_offset: int) -> Message | None:
    """Return the message that an entry points to, if it has this queue offset."""
    unit = read_unit(tier, queue, queue_offset)
    message = None if unit is None else read_message(tier, queue, unit.physical_offset)
    return message if message is not None and message.queue_offset == queue_offset else None


def read_index_header(tier: Tier, segment: Segment) -> TieredIndexHeader | None:
    """Return the header of an index file of a tier; None if it is not sealed."""
    return decode_header(tier.open_files.open(segment).pread(HEADER_SIZE, 0))


def _index(tier: Tier, segment: Segment, attempts: Attempts) -> IndexOverview | None:
    header = attempts.get(partial(read_index_header, tier, segment), None)
    if header is None:
        return None
    times = header.begin_timestamp, header.end_timestamp
    return IndexOverview(segment.path, IndexHeader(*times, 0, 0, header.hash_slot_count, header.index_item_count + 1))


def add_tier(overview: Overview, store: Store) -> None:
    """Add the tier of a store to its overview: queues begin where the tier has them, as a broker answers."""
    found = tier_of(store)
    if isinstance(found, TierAbsent):
        absent = new_finding("TI-MOUNT", found.reason, Place(found.path))
        overview.findings.append(addressed(absent, store.root))
    if not isinstance(found, Tier):
        return
    with found as tier:
        try:
            bounds = {queue: bounds_of(tier, queue) for queue in tier.queues}
        except ReadFailed as error:
            overview.attempts.get(partial(_fail, error), None)
            return
        overview.tier = {
            "path": tier_label(store, tier),
            "cluster": tier.cluster,
            "broker": tier.broker,
            **_sizes(tier),
            "topics": _bounds_json(bounds),
        }
    for queue, (low, high, _) in bounds.items():
        if low < high:
            _extend(overview, queue, low, high)


def _fail(error: ReadFailed) -> None:
    raise error


def _bounds_json(bounds: dict[QueueId, QueueBounds]) -> dict[str, object]:
    shown: dict[str, dict[str, object]] = {}
    for (topic, queue_id), (low, high, _) in bounds.items():
        shown.setdefault(topic, {})[str(queue_id)] = {"minOffset": low, "maxOffset": high}
    return dict(shown)


def _extend(overview: Overview, queue: QueueId, low: int, high: int) -> None:
    topic = overview.topics.setdefault(queue.topic, TopicOverview(topic_kind(queue.topic, frozenset())))
    local = topic.queues.get(queue.queue_id)
    if local is None:
        topic.queues[queue.queue_id] = QueueBounds(low, high)
    else:
        topic.queues[queue.queue_id] = QueueBounds(min(low, local.min_offset), max(high, local.max_offset))


class Indexed(NamedTuple):
    """The answer of one index file: messages with the key, and how many others have its hash.

    ``is_whole`` is False if the file is not sealed or cannot be read; it has entries up to ``end_timestamp`` (ms).
    """

    messages: list[Message]
    collisions: int = 0
    is_whole: bool = False
    end_timestamp: int = 0
    findings: tuple[Finding, ...] = ()


def iter_indexed(tier: Tier, topics: Sequence[str], key: str) -> Iterator[Indexed]:
    """Yield what each index file has of a key in some topics; a file without a byte has no entry and is left out."""
    hashes = {topic: key_hash(key_text(topic, key)) for topic in topics}
    for segment in tier.index:
        if segment.size:
            try:
                yield _look_into(tier, segment, hashes, key)
            except ReadFailed as error:
                unread = new_finding(error.finding, error.message, Place(segment.path, error.offset))
                yield Indexed([], findings=(unread,))


def _look_into(tier: Tier, segment: Segment, hashes: dict[str, int], key: str) -> Indexed:
    header = read_index_header(tier, segment)
    slots = None if header is None else count_slots(header, segment.size)
    if header is None or slots is None:
        return Indexed([])
    found = [one for topic, wanted in hashes.items() for one in _iter_hash(tier, segment, slots, topic, wanted)]
    mine = [message for message in found if message.uniq_key == key or key in key_tokens(message.properties)]
    return Indexed(mine, len(found) - len(mine), is_whole=True, end_timestamp=header.end_timestamp)


def _iter_hash(tier: Tier, segment: Segment, slots: int, topic: str, wanted: int) -> Iterator[Message]:
    """Yield the messages of a topic to which the items with a hash point."""
    file = tier.open_files.open(segment)
    slot = file.pread(SLOT_SIZE, slot_offset(wanted, slots))
    if len(slot) < SLOT_SIZE:
        return
    position, length = layouts.TIERED_INDEX_SLOT.decode(slot)
    if position <= 0 or not 0 < length <= segment.size:
        return
    for item in iter_items(file.pread(length - length % ITEM_SIZE, position)):
        queue = QueueId(topic, item.queue_id)
        message = read_message(tier, queue, item.offset) if item.hash_code == wanted else None
        if message is not None and message.topic == topic:
            yield message
