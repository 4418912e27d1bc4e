"""Turns messages into tickets that can be written: checks, delays (SCHEDULE_TOPIC_XXXX), encoding.

All of it is done before the writer's lock is taken. The first check that fails decides. upstream:
DefaultMessageStore.asyncPutMessage and CommitLog.asyncPutMessage (4.9), HookUtils (5.x).

A delayed message is stored elsewhere until it is due: in a queue of the schedule topic for a delay level, in the topic
of the timer wheel for a time of delivery (5.x). It keeps its own topic and queue as properties.

A ``PutTicket`` is a put in progress and its result. upstream: PutMessageContext, AppendMessageResult.

Some properties contain queue offsets, which are known only under the writer's lock. Such records are encoded there: of
messages that are also in further queues without another copy of the body (upstream: MultiDispatch in 4.9, LmqDispatch
in 5.x), and of inner batches, which take one offset for each message (upstream: BatchConsumeQueue.assignQueueOffset).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rmqtool import kernel
from rmqtool.config import StoreConfig, Version
from rmqtool.engine.message import Encoder, Host, NewMessage, PutStatus, QueueKey, QueueOffsets, Record, TopicRules
from rmqtool.formats.batches import iter_batch_items
from rmqtool.formats.codes import TRANSACTION_MASK, SysFlag, TransactionType, transaction_type
from rmqtool.formats.dispatch import has_queue_unit, topic_allows_lmq
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import encode_offset_msg_ids
from rmqtool.formats.java import SHORT_MAX, int64, parse_int, parse_long, parse_short
from rmqtool.formats.properties import decode_properties, join_properties
from rmqtool.formats.property_names import (
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    WAIT,
)
from rmqtool.formats.topics import LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, parse_delay_levels

# The properties that ask for a time of delivery (5.x); the first that is there decides.
_TIMER_WISHES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
# A second, in ms.
_SECOND = 1000


class Destination(NamedTuple):
    """The place and the properties to store a message with.

    ``rewritten`` if they differ from those that it was sent with.
    """

    topic: str
    queue_id: int
    properties: Mapping[str, str]
    rewritten: bool


def is_for_later(properties: Mapping[str, str]) -> bool:
    """Return whether a property asks for a delay, by a level or by a time of delivery."""
    return DELAY in properties or any(name in properties for name in _TIMER_WISHES)


def find_destination(
    sent: Destination, sys_flag: int, config: StoreConfig, levels: int, now: int
) -> Destination | PutStatus:
    """Return where to store a message that was ``sent`` at ``now`` (ms), or why it is refused.

    ``levels`` is the number of delay levels.
    """
    # A half message is delayed only when it is committed.
    if transaction_type(sys_flag) not in (TransactionType.NONE, TransactionType.COMMIT):
        return sent
    level = delay_level(sent.properties)
    if level is None:
        return PutStatus.MESSAGE_ILLEGAL
    if config.version is not Version.V4_9 and sent.topic != TIMER_TOPIC:
        if level > 0:
            # A delay level wins over a time of delivery.
            if any(name in sent.properties for name in _TIMER_WISHES):
                kept = {name: value for name, value in sent.properties.items() if name not in _TIMER_WISHES}
                sent = sent._replace(properties=kept)
        elif TIMER_OUT_MS not in sent.properties and any(name in sent.properties for name in _TIMER_WISHES):
            return _by_timer(sent, config, now)
    return _by_level(sent, level, levels) if level > 0 else sent


def delay_level(properties: Mapping[str, str]) -> int | None:
    """Return the delay level of a message: 0 without one, None if it is not a number."""
    text = properties.get(DELAY)
    return 0 if text is None else parse_int(text)


def _by_level(sent: Destination, level: int, levels: int) -> Destination:
    """Move a message to the schedule topic. Levels above the highest become the highest."""
    level = min(level, levels)
    properties = {**sent.properties, DELAY: str(level)}
    return Destination(SCHEDULE_TOPIC, level - 1, _belonging(properties, sent), True)


def _by_timer(sent: Destination, config: StoreConfig, now: int) -> Destination | PutStatus:
    """Move a message to the topic of the timer wheel, unless it is due already; or return why it is refused.

    It is refused if the wheel is off, if the time is malformed or too far away, or if it is due already and deletes
    another message.
    """
    if not config.timer_wheel_enable:
        return PutStatus.WHEEL_TIMER_NOT_ENABLE
    deliver = _deliver_time(sent.properties, now)
    if deliver is None:
        return PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    if deliver <= now:
        return PutStatus.WHEEL_TIMER_MSG_ILLEGAL if TIMER_DEL_UNIQKEY in sent.properties else sent
    if deliver - now > config.timer_max_delay_sec * _SECOND:
        return PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    precision = config.timer_precision_ms
    # A slot is delivered when the clock has left it, one precision later.
    rounded = deliver - precision if deliver % precision == 0 else deliver - deliver % precision
    properties = {**sent.properties, TIMER_OUT_MS: str(rounded)}
    return Destination(TIMER_TOPIC, 0, _belonging(properties, sent), True)


def due_time(properties: Mapping[str, str], delays: Sequence[int], stored: int) -> int | None:
    """Return when a message that was ``stored`` at a time is due, by its level or its timer. All times are in ms.

    Returns None if it is not delayed, if the number in the property is malformed, or if it has a level and ``delays``
    is empty.
    """
    level = delay_level(properties)
    if level is not None and level > 0:
        return stored + delays[min(level, len(delays)) - 1] if delays else None
    return _deliver_time(properties, stored)


def _belonging(properties: dict[str, str], sent: Destination) -> dict[str, str]:
    """Return ``properties`` with the topic and queue that the message is delivered to when it is due."""
    return {**properties, REAL_TOPIC: sent.topic, REAL_QID: str(sent.queue_id)}


def _deliver_time(properties: Mapping[str, str], now: int) -> int | None:
    """Return the time of delivery (ms) that a message asks for by the first of ``_TIMER_WISHES`` that it has.

    None without one, or if that is not a number. Sums overflow as Java's do.
    """
    for name, unit, base in (
        (TIMER_DELAY_SEC, _SECOND, now),
        (TIMER_DELAY_MS, 1, now),
        (TIMER_DELIVER_MS, 1, 0),
    ):
        if name in properties:
            number = parse_long(properties[name])
            return None if number is None else int64(base + number * unit)
    return None


# Encodes a record when its queue offsets are known; also returns the other queues that advance.
LateRecord: TypeAlias = Callable[[QueueOffsets], "tuple[Record, Sequence[QueueKey]] | PutStatus"]


class PutTicket:
    """A put in progress, and its result.

    ``status`` is set when the result is known; ``is_written`` says that the record is in the log.

    A client's batch has several ``records``; of a batch that the kernel made, the only item is all of them back to
    back (``is_slab``). ``count`` is the number of queue offsets that the message takes: 0 for prepared and rolled-back
    transactions. The offsets are those of the first record, -1 if nothing was stored. Before the write,
    ``store_timestamp`` is the time of arrival. ``late`` encodes the record under the writer's lock, if it needs queue
    offsets. ``waits``: the producer wants to wait for the disk, if the store flushes synchronously.
    """

    __slots__ = (
        "count",
        "is_slab",
        "is_written",
        "late",
        "physical_offset",
        "queue",
        "queue_offset",
        "record_offsets",
        "records",
        "size",
        "status",
        "store_host",
        "store_timestamp",
        "waits",
    )

    def __init__(
        self, queue: QueueKey, records: Sequence[Record], count: int, store_host: tuple[bytes, int], now: int = 0
    ) -> None:
        self.queue = queue
        self.records = records
        self.count = count
        self.store_host = store_host
        self.late: LateRecord | None = None
        self.waits = True
        self.is_slab = self.is_written = False
        self.status: PutStatus | None = None
        self.physical_offset = self.queue_offset = -1
        self.store_timestamp = now
        self.size = 0
        self.record_offsets: Sequence[int] = ()

    @property
    def is_ok(self) -> bool:
        """Whether the message is stored and as durable as requested."""
        return self.status is PutStatus.PUT_OK

    @property
    def topic(self) -> str:
        """The topic that the message was stored under: while it is delayed, one of the broker's own topics."""
        return self.queue[0]

    @property
    def queue_id(self) -> int:
        """The id of the queue of ``topic`` in which the message was stored."""
        return self.queue[1]

    @property
    def end_offset(self) -> int:
        """The physical offset after the message; -1 if nothing was stored."""
        return self.physical_offset + self.size

    @property
    def offset_msg_id(self) -> str:
        """The offset message id; for a batch the ids of its records, separated by commas; empty if not stored."""
        offsets = self.record_offsets or ([self.physical_offset] if self.physical_offset >= 0 else [])
        return encode_offset_msg_ids(*self.store_host, offsets)

    def is_done_at(self, flushed_offset: int) -> bool:
        """Return whether the result is known when the log is durable up to an offset."""
        return self.status is not None or (self.is_written and self.physical_offset + self.size <= flushed_offset)

    def refuse(self, status: PutStatus) -> None:
        """Set the status of a message that is not stored. After a failed write it may be stored: UNKNOWN_ERROR.

        The ticket then has no offsets, time and size.
        """
        self.status = status
        self.physical_offset = self.queue_offset = -1
        self.store_timestamp = self.size = 0
        self.record_offsets = ()


def refused(status: PutStatus, queue: QueueKey) -> PutTicket:
    """Return the ticket of a message that is not stored."""
    ticket = PutTicket(queue, (), 0, (b"", 0))
    ticket.refuse(status)
    return ticket


class LateParts(NamedTuple):
    """The parts of a record that is encoded later, with its queue offsets.

    ``place`` is queue id, store host and current time.
    """

    encoder: Encoder
    message: NewMessage
    rules: TopicRules
    properties: Mapping[str, str]
    place: tuple[int, Host, int]

    def encode(self, properties: Mapping[str, str]) -> Record | PutStatus:
        """Return the record with ``properties`` in place of its own, or why it is refused."""
        text = self.encoder.text(properties, self.message.property_bins)
        return self.encoder.encode(self.message, self.rules, *self.place, text)


class MultiDispatchRecord:
    """A message for further queues, which has its offsets in them as a property."""

    def __init__(self, parts: LateParts, queue: QueueKey) -> None:
        self._parts = parts
        self._targets = _targets(parts.encoder, queue, parts.properties[INNER_MULTI_DISPATCH])

    def __call__(self, offsets: QueueOffsets) -> tuple[Record, Sequence[QueueKey]] | PutStatus:
        """Return the record, and the further queues in which it takes an offset; or why it is refused."""
        encoder = self._parts.encoder
        texts = ["" if target is None else str(offsets.next(target)) for target in self._targets]
        properties = {**self._parts.properties, INNER_MULTI_QUEUE_OFFSET: ",".join(texts)}
        if encoder.is_4_9:
            properties.pop(WAIT, None)
        record = self._parts.encode(properties)
        if isinstance(record, PutStatus):
            return record
        if not encoder.is_4_9 and len(record) > encoder.max_body:
            return PutStatus.MESSAGE_ILLEGAL
        # upstream: a queue that is named twice skips a number, and its entries get out of order.
        return record, [target for target in dict.fromkeys(self._targets) if target is not None]


def _targets(encoder: Encoder, queue: QueueKey, names: str) -> list[QueueKey | None]:
    """Return the named queues; None for one in which the message gets no queue offset: in 5.x a plain topic."""
    found: list[QueueKey | None] = []
    for name in names.split(","):
        if encoder.is_4_9:
            light = name.startswith(LMQ_PREFIX) and encoder.config.enable_lmq
            found.append((name, 0 if light else queue[1]))
        else:
            found.append((name, 0) if name.startswith(LMQ_PREFIX) else None)
    return found


def names_queues(topic: str, properties: Mapping[str, str], config: StoreConfig, *, is_4_9: bool) -> bool:
    """Return whether a message names further queues and the settings give it queue offsets there."""
    if not properties.get(INNER_MULTI_DISPATCH, "").strip():
        return False
    if is_4_9:
        return config.enable_multi_dispatch
    return config.enable_lmq and topic_allows_lmq(topic)


class InnerBatchRecord:
    """A batch stored as one record, which has the offset of its first message as a property."""

    def __init__(self, parts: LateParts, queue: QueueKey) -> None:
        self._parts = parts
        self._queue = queue

    def __call__(self, offsets: QueueOffsets) -> tuple[Record, Sequence[QueueKey]] | PutStatus:
        """Return the record, numbered from the next offset of its queue, or why it is refused.

        No other queue advances.
        """
        properties = {**self._parts.properties, INNER_BASE: str(offsets.next(self._queue))}
        record = self._parts.encode(properties)
        return record if isinstance(record, PutStatus) else (record, ())


def inner_count(properties: Mapping[str, str], sys_flag: int, *, is_batch_topic: bool) -> int | PutStatus:
    """Return the number of messages in a record, 1 without INNER_NUM (5.x).

    Returns a refusal if flag, number and topic contradict each other, or if the number is not a positive short.
    """
    is_inner = bool(sys_flag & SysFlag.INNER_BATCH)
    text = properties.get(INNER_NUM)
    if text is not None and not is_inner:
        return PutStatus.MESSAGE_ILLEGAL
    if is_inner and not is_batch_topic:
        return PutStatus.MESSAGE_ILLEGAL
    if text is None:
        return 1
    count = parse_short(text)
    return count if count is not None and count > 0 else PutStatus.MESSAGE_ILLEGAL


# The properties that change how or where a message is stored. WAIT, which every client sets, is not one of them: it
# only decides who waits for the disk.
MATTERS = frozenset({DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, INNER_NUM, INNER_MULTI_DISPATCH})

# System flags that need more than a plain record.
_NEEDS_A_LOOK = TRANSACTION_MASK | int(SysFlag.INNER_BATCH)


# Kinds that are cached. A producer of random property names must not fill the memory.
_MOST_KINDS = 4096


@dataclass(slots=True)
class PropertyKind:
    """The facts that the names of a message's properties decide: whether it is plain, and how their text is made.

    It is plain if none of the names changes how a broker stores the message (``MATTERS``).
    """

    is_plain: bool
    text: Callable[[Mapping[str, str]], bytes]


class Intake:
    """Makes tickets by the rules of the store's version and settings."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._config = encoder.config
        # By the names of the properties in their order.
        self.kinds: dict[tuple[str, ...], PropertyKind] = {}
        self._levels = len(parse_delay_levels(self._config.message_delay_level))
        # Since 5.4 each record of a batch has exactly the properties that the client gave it.
        self._joins_batch_properties = self._config.version < Version.V5_4

    def accept(self, message: NewMessage, now: int) -> PutTicket | PutStatus:
        """Return the unwritten ticket of a message that arrives at ``now`` (ms), or why it is refused."""
        encoder = self.encoder
        topic, given = message.topic, message.properties
        if type(given) is dict and message.property_bins is None:
            names = tuple(given)
            kind = self.kinds.get(names) or self.kind_of(names)
            if kind.is_plain:
                text = message.property_text
                plain = encoder.plain_record(message, kind.text(given) if text is None else text, now)
                if plain is not None:
                    host = message.store_host or encoder.store_host
                    ticket = PutTicket((topic, message.queue_id), (plain,), 1, host, now)
                    if WAIT in given:
                        ticket.waits = _waits(given)
                    return ticket
        rules = encoder.topics.get(topic) or encoder.topic_rules(topic)
        if rules.refusal is not None:
            return rules.refusal
        if message.body is None and not encoder.is_4_9:
            return PutStatus.MESSAGE_ILLEGAL
        text = message.property_text
        if isinstance(given, bytes):
            properties: Mapping[str, str] = decode_properties(given)
            is_plain = MATTERS.isdisjoint(properties)
            text = given if text is None else text
        else:
            properties, names = given, tuple(given)
            kind = self.kinds.get(names) or self.kind_of(names)
            is_plain = kind.is_plain
            if text is None and is_plain:
                bins = message.property_bins
                text = kind.text(given) if bins is None else encoder.text(given, bins)
        if not is_plain or rules.is_batch or text is None or message.sys_flag & _NEEDS_A_LOOK:
            return self._accept_special(message, rules, properties, now)
        queue_id, store_host = message.queue_id, message.store_host or encoder.store_host
        if not encoder.do_numbers_fit(message, queue_id):
            return PutStatus.MESSAGE_ILLEGAL
        record = encoder.encode(message, rules, queue_id, store_host, now, text)
        if isinstance(record, PutStatus):
            return record
        ticket = PutTicket((topic, queue_id), (record,), 1, store_host, now)
        ticket.waits = _waits(properties)
        return ticket

    def kind_of(self, names: tuple[str, ...]) -> PropertyKind:
        """Return the kind of messages whose properties have these names, and keep it for the next such message."""
        if len(self.kinds) >= _MOST_KINDS:
            self.kinds.clear()
        kind = self.kinds[names] = PropertyKind(MATTERS.isdisjoint(names), self.encoder.text_maker(names))
        return kind

    def _accept_special(
        self, message: NewMessage, rules: TopicRules, properties: Mapping[str, str], now: int
    ) -> PutTicket | PutStatus:
        """Return the ticket of a message that is delayed, transactional, an inner batch, or for further queues.

        Or return why it is refused.
        """
        encoder = self.encoder
        count = 1 if has_queue_unit(message.sys_flag) else 0
        is_inner = False
        if not encoder.is_4_9:
            number = inner_count(properties, message.sys_flag, is_batch_topic=rules.is_batch)
            if isinstance(number, PutStatus):
                return number
            is_inner = bool(message.sys_flag & SysFlag.INNER_BATCH)
            count = number if count else 0
        found = self._destination(message, properties, now)
        if isinstance(found, PutStatus):
            return found
        rules = encoder.topic_rules(found.topic)
        store_host = message.store_host or encoder.store_host
        if not encoder.do_numbers_fit(message, found.queue_id):
            return PutStatus.MESSAGE_ILLEGAL
        ticket = PutTicket((found.topic, found.queue_id), (), count, store_host, now)
        ticket.waits = _waits(found.properties)
        parts = LateParts(encoder, message, rules, found.properties, (found.queue_id, store_host, now))
        if is_inner:
            ticket.late = InnerBatchRecord(parts, ticket.queue)
        elif names_queues(found.topic, found.properties, self._config, is_4_9=encoder.is_4_9):
            ticket.late = MultiDispatchRecord(parts, ticket.queue)
        else:
            text = self._text_of(message, found)
            record = encoder.encode(message, rules, found.queue_id, store_host, now, text)
            if isinstance(record, PutStatus):
                return record
            ticket.records = (record,)
        return ticket

    def _text_of(self, message: NewMessage, found: Destination) -> bytes:
        """Return the property text to store. A text that the client encoded is kept unless the message was moved."""
        given = message.properties if message.property_text is None else message.property_text
        if found.rewritten or not isinstance(given, bytes):
            return self.encoder.text(found.properties, message.property_bins)
        return given

    def _destination(self, message: NewMessage, properties: Mapping[str, str], now: int) -> Destination | PutStatus:
        sent = Destination(message.topic, message.queue_id, properties, False)
        return find_destination(sent, message.sys_flag, self._config, self._levels, now)

    def accept_batch(self, message: NewMessage, now: int) -> PutTicket | PutStatus:
        """Return the ticket of a client's batch, one record for each of its messages; or why all of it is refused.

        ``now`` (ms) is its time of arrival, and the born time if the client gave none.
        """
        encoder = self.encoder
        rules = encoder.topic_rules(message.topic)
        if rules.refusal is not None:
            return rules.refusal
        properties = message.property_map()
        if message.sys_flag & TRANSACTION_MASK != TransactionType.NONE or delay_level(properties) != 0:
            return PutStatus.MESSAGE_ILLEGAL
        # Refused here; upstream, an exception ends the request.
        if not message.body or len(message.body) > encoder.max_body:
            return PutStatus.MESSAGE_ILLEGAL
        store_host = message.store_host or encoder.store_host
        if not encoder.do_numbers_fit(message, message.queue_id):
            return PutStatus.MESSAGE_ILLEGAL
        shared = b""
        if self._joins_batch_properties:
            given = message.properties
            shared = given if isinstance(given, bytes) else encoder.text(given, message.property_bins)
        slab = self._encode_batch(message, rules, store_host, now, shared)
        if slab is not None:
            ticket = PutTicket((message.topic, message.queue_id), slab[:1], slab[1], store_host, now)
            ticket.is_slab, ticket.waits = True, _waits(properties)
            return ticket
        records: list[Record] = []
        # One message object is used for all of them in turn: a copy for each would cost more than all the rest.
        one = message.with_properties({})
        for item in iter_batch_items(message.body):
            if isinstance(item, Flaw):
                return PutStatus.MESSAGE_ILLEGAL
            one.flag, one.body, raw = item
            text = join_properties(raw, shared)
            plain = encoder.plain_record(one, text, now)
            if plain is None:
                record = encoder.encode(one, rules, message.queue_id, store_host, now, text)
                if isinstance(record, PutStatus):
                    return record
                plain = record
            records.append(plain)
        if sum(map(len, records)) > encoder.largest_record:
            return PutStatus.MESSAGE_ILLEGAL
        ticket = PutTicket((message.topic, message.queue_id), records, len(records), store_host, now)
        ticket.waits = _waits(properties)
        return ticket

    def _encode_batch(
        self, message: NewMessage, rules: TopicRules, store_host: Host, now: int, shared: bytes
    ) -> tuple[Record, int] | None:
        """Return the records of a batch by the kernel, back to back, and their number; None if it declines them."""
        encoder, native = self.encoder, kernel.NATIVE
        if native is None or encoder.compiled is None or message.sys_flag or encoder.has_property_crc:
            return None
        if type(message.body) is not bytes or len(shared) > SHORT_MAX:
            return None
        born = now if message.born_timestamp is None else message.born_timestamp
        made = native.encode_batch(
            rules.magic,
            message.queue_id,
            0,
            born,
            *(message.born_host or store_host),
            *store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            rules.encoded,
            shared,
            encoder.max_record,
        )
        return made if made is not None and len(made[0]) <= encoder.largest_record else None


def _waits(properties: Mapping[str, str]) -> bool:
    """Return whether the producer waits for the disk: if WAIT is ``true``, in any case, or missing, as upstream."""
    wait = properties.get(WAIT)
    return wait is None or wait == "true" or wait.lower() == "true"
