"""Who popped a message, and what became of it: from the check points and acks that a broker keeps as messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
