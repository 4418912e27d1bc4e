"""Who popped a message, and what became of it: from the check points and acks that a broker keeps as messages.

A group that pops in order makes no such records: a file of the configuration holds what it has in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.system_bodies import decode_pop_body, popped_offsets
from rmqtool.formats.topics import REVIVE_PREFIX, TIMER_TOPIC
from rmqtool.inspection.events import Event
from rmqtool.storage.discovery import QueueId

_TAGS = frozenset(tag.value for tag in PopTag)


def is_pop_topic(topic: str) -> bool:
    """Return whether check points and acks lie there: they wait in the timer topic first."""
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)


def is_pop_mark(message: Message) -> bool:
    """Return whether a message of the timer topic is a check point or an ack."""
    return message.properties.get("REAL_TOPIC", "").startswith(REVIVE_PREFIX)


def iter_pop_events(records: Iterable[Message], queue: QueueId, queue_offset: int) -> Iterator[Event]:
    """Yield who popped, renewed and acked the message at a place in a queue; ``records`` are in the order of the log.

    A consumer that wants more time gets a check point of its own for the message, and the broker acks the old one.
    """
    seen: set[str] = set()
    popped: dict[str, int] = {}  # group -> time of the pop that holds the message
    for record in records:
        body = _find_body(record, queue, seen)
        if body is None:
            continue
        group, pop_time = body["c"], body["pt"]
        about = {"group": group, "popTimestamp": pop_time}
        if record.tags == PopTag.CHECK_POINT:
            if queue_offset in popped_offsets(body):
                event = "renewed" if group in popped else "popped"
                yield Event(event, record, {**about, "dueTimestamp": pop_time + body["it"]})
                popped[group] = pop_time
        elif queue_offset in (body.get("aol") or [body["ao"]]) and popped.get(group, pop_time) == pop_time:
            yield Event("acked", record, about)


def iter_ordered_pops(in_flight: Mapping[str, Any], message: Message) -> Iterator[Event]:
    """Yield who has popped ``message`` in order and what became of it, from the ``table`` of consumerOrderInfo.json.

    That tells of the last pop of a queue only, and not when a message was acked or got more time.
    Upstream: ``ConsumerOrderInfoManager.OrderInfo``.
    """
    for name, queues in sorted(in_flight.items()):
        topic, _, group = name.partition("@")
        order = queues.get(message.queue_id) if topic == message.topic else None
        popped = _offsets_of(order) if order else []
        if order and message.queue_offset in popped:
            yield from _iter_in_flight(order, popped.index(message.queue_offset), group, message)


def _iter_in_flight(order: Mapping[str, Any], at: int, group: str, message: Message) -> Iterator[Event]:
    pop_time, offset = order["popTime"], message.queue_offset
    about = {"group": group, "popTimestamp": pop_time}
    invisible, times, later = order.get("i"), (order.get("oc") or {}).get(offset), (order.get("ot") or {}).get(offset)
    due = None if invisible is None else pop_time + invisible
    yield Event("popped", message, {**about, "timestamp": pop_time, "dueTimestamp": due, "times": times})
    if later is not None:
        yield Event("renewed", message, {**about, "timestamp": None, "dueTimestamp": later})
    if (order.get("cm") or 0) >> at & 1:
        yield Event("acked", message, {**about, "timestamp": None})


def _offsets_of(order: Mapping[str, Any]) -> list[int]:
    """Return the queue offsets that were popped: the first is written whole, the others count from it.

    5.0.0 had other names, and did not keep the time of the pop: nothing can be told from it.
    """
    offsets = order.get("o") or [] if order.get("popTime") else []
    return [*offsets[:1], *(offsets[0] + offset for offset in offsets[1:])]


def _find_body(record: Message, queue: QueueId, seen: set[str]) -> dict[str, Any] | None:
    """Return the fields of a check point or an ack for this queue that was not seen before."""
    key = record.uniq_key or ""
    if record.tags not in _TAGS or key in seen or not key.startswith(f"{queue.topic}@{queue.queue_id}@"):
        return None
    seen.add(key)
    decoded = decode_pop_body(PopTag(record.tags), record.raw_body)
    if isinstance(decoded, Flaw) or not isinstance(decoded.value, dict):
        return None
    body: dict[str, Any] = decoded.value
    needed = ("c", "pt", "so", "n", "it") if record.tags == PopTag.CHECK_POINT else ("c", "pt", "ao")
    return body if all(name in body for name in needed) else None
