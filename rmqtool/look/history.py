"""The history of a message: all records that a broker made of it, and who decided, popped, and read it.

A delayed, transactional, retried or popped message is stored several times, in topics of the broker and in its own. The
records of one unique key, in the order of the log, are its *story*. POP keeps its check points and acks as messages of
the revive topic; a group that pops in order has its messages in flight in ``consumerOrderInfo.json`` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtool.config import Version
from rmqtool.errors import OptionalMissing, ReadFailed
from rmqtool.filters.wanted import Wanted
from rmqtool.formats import paths, topics
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import Message
from rmqtool.formats.consume_queue import is_ext_address
from rmqtool.formats.dispatch import tags_code
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.java import parse_long
from rmqtool.formats.property_names import (
    DELAY,
    FIRST_POP_TIME,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TRANS_OFFSET,
    TRANSACTION_CHECK_TIMES,
)
from rmqtool.formats.system_bodies import decode_op_body, decode_pop_body, popped_offsets
from rmqtool.formats.topics import REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TopicKind, topic_kind
from rmqtool.log.end import read_record
from rmqtool.look.key_search import KeySearch
from rmqtool.look.place_search import LogSearch, find_in_queue, iter_messages_since
from rmqtool.look.question import QuestionKind
from rmqtool.store.config_files import Configs, read_config, read_configs
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store


@dataclass(frozen=True, slots=True)
class Event:
    """An event, and the record that shows it. ``about`` are further facts, by the names of docs/contract.md.

    A ``timestamp`` in ``about`` is the time of the event if that is not the store time; None if it is unknown.
    """

    event: str
    message: Message
    about: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the event object of docs/contract.md."""
        return {
            "event": self.event,
            "timestamp": self.message.store_timestamp,
            "topic": self.message.topic,
            "queueId": self.message.queue_id,
            "queueOffset": self.message.queue_offset,
            "commitLogOffset": self.message.physical_offset,
            **self.about,
        }


_TAGS = frozenset(tag.value for tag in PopTag)


def is_pop_topic(topic: str) -> bool:
    """Return whether a topic contains check points and acks. They can be in the timer topic first."""
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)


def is_pop_mark(message: Message) -> bool:
    """Return whether a message of the timer topic is a check point or an ack."""
    return message.properties.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX)


def iter_pop_events(records: Iterable[Message], queue: QueueId, queue_offset: int) -> Iterator[Event]:
    """Yield who popped, renewed and acked the message at an offset of a queue; ``records`` come in the order of the
    log.

    A consumer that needs more time gets a new check point for the message, and the broker acks the old one.
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
    """Yield the pops of ``message`` in order, from the ``table`` of consumerOrderInfo.json.

    The file has only the last pop of a queue, and not when a message was acked or got more time. Upstream:
    ``ConsumerOrderInfoManager.OrderInfo``.
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
    """Return the queue offsets that were popped. The first is stored whole, the others as distances from it.

    5.0.0 used other names and did not store the time of the pop, so its entries are not read.
    """
    offsets = order.get("o") or [] if order.get("popTime") else []
    return [*offsets[:1], *(offsets[0] + offset for offset in offsets[1:])]


def _find_body(record: Message, queue: QueueId, seen: set[str]) -> dict[str, Any] | None:
    """Return the fields of a check point or an ack for this queue; None for other records and for repeated ones."""
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


# Stories told in one answer.
MOST_STORIES = 20
# Topics of half messages, and the topics of the op records that decide them.
HALF_TOPICS = {
    topics.HALF_TOPIC: topics.OP_HALF_TOPIC,
    topics.ROCKSDB_HALF_TOPIC: topics.ROCKSDB_OP_HALF_TOPIC,
}


class Position(NamedTuple):
    """The committed offset of a group in the queue of a message."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    committed: int

    @property
    def passed(self) -> bool:
        """Whether the group has consumed the message."""
        return self.committed > self.queue_offset

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "committed": self.committed,
            "passed": self.passed,
        }


@dataclass
class Story:
    """All events of one message in the order of the log, its state after them, and the groups that read its queue.

    ``whole`` is False if a record of the message may be missing from the events.
    """

    uniq_key: str | None
    events: list[Event] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    state: str = ""
    whole: bool = True

    def events_json(self) -> list[dict[str, Any]]:
        return [event.as_json() for event in self.events]

    def as_json(self) -> dict[str, Any]:
        """Return the story without its events."""
        positions = [position.as_json() for position in self.positions]
        story = {"uniqKey": self.uniq_key, "events": len(self.events), "state": self.state, "positions": positions}
        return story if self.whole else {**story, "complete": False}


def read_stories(store: Store, messages: Iterable[Message], group: str | None = None) -> list[Story]:
    """Return the stories of ``messages``; records with one unique key are one story.

    ``group`` limits the positions to one group.
    """
    try:
        configs = read_configs(store, tolerant=True)
    except OptionalMissing:
        configs = Configs()
    if group is not None:
        configs.offsets = {place: offsets for place, offsets in configs.offsets.items() if place[1] == group}
    in_order = (read_config(store, paths.CONSUMER_ORDER_INFO)[0] or {}).get("table") or {}
    stories: dict[str, Story] = {}
    for message in messages:
        key = message.uniq_key or f"@{message.physical_offset}"
        if key not in stories and len(stories) < MOST_STORIES:
            stories[key] = _read_story(store, configs, in_order, message)
    return list(stories.values())


def _read_story(store: Store, configs: Configs, in_order: dict[str, Any], message: Message) -> Story:
    # Without a unique key nothing leads from a message to the copies that a broker makes of it.
    found = _find_records(store, message) if message.uniq_key else _Records([message], whole=False)
    records = found.records
    events = [_event_of(record, store, is_damaged=record.physical_offset in found.damaged) for record in records]
    events += _decisions(store, records)
    events += _cancellations(store, records)
    for record in records:
        if topic_kind(record.topic) in (TopicKind.NORMAL, TopicKind.RETRY):
            queue = QueueId(record.topic, record.queue_id)
            marks = iter_messages_since(store, is_pop_topic, record.physical_offset)
            events += iter_pop_events(marks, queue, record.queue_offset)
            events += iter_ordered_pops(in_order, record)
    events.sort(key=lambda event: event.message.physical_offset)
    positions = [position for record in records for position in _iter_positions(configs, record)]
    return Story(message.uniq_key, events, positions, _state(events, configs), found.whole)


class _Records(NamedTuple):
    """The records of a message, the places of those whose body is damaged, and whether these are surely all."""

    records: list[Message]
    damaged: frozenset[int] = frozenset()
    whole: bool = True


def _find_records(store: Store, message: Message) -> _Records:
    """Return the records of a message. A damaged body says nothing against the topic that the record names."""
    assert message.uniq_key is not None
    log = LogSearch(store)
    search = KeySearch(store, QuestionKind.UNIQ_KEY, message.uniq_key, Wanted(), log)
    search.found.add(message.physical_offset)
    search.run()
    found = (read_record(store.commit_log, place) for place in search.found)
    records = [*(record for record in found if record is not None), *search.damaged.values()]
    records.sort(key=lambda record: record.physical_offset)
    return _Records(records, frozenset(search.damaged), whole=not (search.bridged or log.unread))


def _event_of(record: Message, store: Store, *, is_damaged: bool) -> Event:
    event, record, about = _name_event(record, store)
    return Event(event, record, {**about, "damaged": True} if is_damaged else about)


def _name_event(record: Message, store: Store) -> tuple[str, Message, dict[str, Any]]:
    """Return the event that a record of a message shows."""
    properties, topic = record.properties, record.topic
    if topic in HALF_TOPICS:
        times = properties.get(TRANSACTION_CHECK_TIMES)
        return ("checked", record, {"times": _number(times)}) if times else ("half", record, {})
    if topic == topics.CHECK_MAX_TIME_TOPIC:
        return "given up", record, {}
    if topic == SCHEDULE_TOPIC:
        about = {"level": _number(properties.get(DELAY)), "for": properties.get(REAL_TOPIC)}
        return "delayed", record, {**about, "dueTimestamp": due_time(store, record)}
    if topic == TIMER_TOPIC:
        about = {"for": properties.get(REAL_TOPIC), "dueTimestamp": _number(properties.get(TIMER_OUT_MS))}
        return ("rolled" if properties.get(TIMER_ROLL_TIMES) else "timer"), record, about
    kind = topic_kind(topic)
    if kind is TopicKind.DLQ:
        return "dlq", record, {"times": record.reconsume_times}
    if kind is TopicKind.RETRY:
        return ("revived" if FIRST_POP_TIME in properties else "retry"), record, {"times": record.reconsume_times}
    if record.sys_flag & SysFlag.TRANSACTION_COMMIT and not record.sys_flag & SysFlag.TRANSACTION_PREPARED:
        return "committed", record, {"preparedTransactionOffset": record.prepared_transaction_offset}
    delayed = properties.get(REAL_TOPIC) == topic and (DELAY in properties or TIMER_OUT_MS in properties)
    return ("delivered" if delayed else "stored"), record, {}


def due_time(store: Store, record: Message) -> int:
    """Return when a delayed message is due. Its queue entry has the time, computed with the levels of that broker."""
    try:
        unit = find_in_queue(store, QueueId(record.topic, record.queue_id), record.queue_offset)
    except ReadFailed:  # the record says the same, unless the levels of its day were others
        unit = None
    if unit is None or unit.physical_offset != record.physical_offset or is_ext_address(unit.tags_code):
        return tags_code(record, store.dispatch_rules.delays)
    return unit.tags_code


def _number(text: str | None) -> int | None:
    """Return the Java long in a property, or None."""
    return None if text is None else parse_long(text)


def _decisions(store: Store, records: list[Message]) -> Iterator[Event]:
    """Yield the op records that decide the half messages among ``records``."""
    halves = {
        (HALF_TOPICS[record.topic], record.queue_id, record.queue_offset): record
        for record in records
        if record.topic in HALF_TOPICS
    }
    if not halves:
        return
    committed = any(record.sys_flag & SysFlag.TRANSACTION_COMMIT for record in records)
    first = min(record.physical_offset for record in halves.values())
    for op in iter_messages_since(store, frozenset(HALF_TOPICS.values()).__contains__, first):
        decided = {place for place in decided_by(op) if place in halves}
        decided |= {place for place, half in halves.items() if str(half.physical_offset) == decided_offset(op)}
        for place in decided:
            about = {"halfQueueOffset": place[2]}
            del halves[place]
            yield Event("commit" if committed else "rollback", op, about)
        if not halves:
            return


def decided_by(op: Message) -> Iterator[tuple[str, int, int]]:
    """Yield the half messages that an op record decides: its own topic, the queue and the offset of each."""
    offsets = decode_op_body(op.raw_body)
    if not isinstance(offsets, Flaw):
        yield from ((op.topic, op.queue_id, offset) for offset in offsets)


def decided_offset(op: Message) -> str | None:
    """Return the physical offset of the half message, which 5.4's op records for RocksDB have."""
    return op.properties.get(TRANS_OFFSET) if op.topic == topics.ROCKSDB_OP_HALF_TOPIC else None


def _cancellations(store: Store, records: list[Message]) -> Iterator[Event]:
    """Yield the records that cancel a timer among ``records``, and whether a broker accepts them."""
    timers = {_number(record.properties.get(TIMER_OUT_MS)): record for record in records if record.topic == TIMER_TOPIC}
    own = {record.physical_offset for record in records}
    if not timers:
        return
    first = min(record.physical_offset for record in timers.values())
    key = next(iter(timers.values())).uniq_key
    for record in iter_messages_since(store, TIMER_TOPIC.__eq__, first):
        named = record.properties.get(TIMER_DEL_UNIQKEY)
        if not named or not key or named.rpartition("+")[2] != key or record.physical_offset in own:
            continue
        timer = timers.get(_number(record.properties.get(TIMER_OUT_MS)))
        heeded = timer is not None and _is_heeded(store, named, timer)
        yield Event("cancel", record, {"heeded": heeded})


def is_cancelled_by(store: Store, timer: Message, cancel: Message) -> bool:
    """Return whether a broker takes ``cancel`` as being for this timer: it has the timer's key and the same second."""
    named = cancel.properties.get(TIMER_DEL_UNIQKEY, "")
    same_time = timer.properties.get(TIMER_OUT_MS) == cancel.properties.get(TIMER_OUT_MS)
    return same_time and cancel is not timer and _is_heeded(store, named, timer)


def _is_heeded(store: Store, named: str, timer: Message) -> bool:
    """Return whether a broker cancels ``timer``: 5.3 needs the topic before the key, 5.4 accepts the key alone too."""
    whole = f"{timer.properties.get(REAL_TOPIC)}+{timer.uniq_key}"
    return named == whole or (store.version is Version.V5_4 and named == timer.uniq_key)


def _iter_positions(configs: Configs, record: Message) -> Iterator[Position]:
    if topic_kind(record.topic) not in (TopicKind.NORMAL, TopicKind.RETRY, TopicKind.DLQ):
        return
    for (topic, group), offsets in sorted(configs.offsets.items()):
        if topic == record.topic and record.queue_id in offsets:
            yield Position(group, topic, record.queue_id, record.queue_offset, offsets[record.queue_id])


def _state(events: list[Event], configs: Configs) -> str:
    """Return the state of the message after the last event."""
    names = [event.event for event in events]
    reached = {"stored", "delivered", "committed", "retry", "revived"} & set(names)
    if "dlq" in names:
        return "dead letter"
    if "given up" in names:
        return "given up: never decided"
    if "rollback" in names:
        return "rolled back"
    last = next((event for event in reversed(events) if event.event not in ("popped", "acked", "renewed")), None)
    if last is not None and last.event in ("delayed", "timer", "rolled"):
        return "delivered, but not found" if _was_delivered(last, configs) else "waiting for delivery"
    if last is not None and last.event == "cancel" and not reached:
        return "cancelled" if any(event.about.get("heeded") for event in events) else "waiting for delivery"
    if {"half", "checked"} & set(names) and not reached:
        return "undecided"
    pops = [event.event for event in events if event.event in ("popped", "acked", "renewed", "revived")]
    if pops and pops[-1] in ("popped", "renewed"):
        return "popped, not acked"
    return "acked" if pops and pops[-1] == "acked" else "stored"


def _was_delivered(event: Event, configs: Configs) -> bool:
    """Return whether the broker has passed a delayed message in its level: it stored it again, for its own topic."""
    message = event.message
    return event.event == "delayed" and message.queue_offset < configs.delay_offsets.get(message.queue_id + 1, 0)
