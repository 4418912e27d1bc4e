"""Pop consumption of 5.x: popped messages are invisible for some time, and come back unless they are acked.

A check point records which messages were popped and when they come back; an ack records that one of them does not. Both
are timer messages, so they arrive in the revive topic when they are needed. upstream: PopMessageProcessor,
AckMessageProcessor, ChangeInvisibleTimeProcessor.

``Revival`` reads the revive queues, where records are in the order of their times, acks a second after their check
points. When enough time has passed after a check point, its messages without an ack are put into the group's retry
topic. Progress is the last check point that is finished. upstream: PopReviveService.

A pop in order has no check point: ``ordered_pops`` keeps what was popped, and blocks the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple

from rmqtool.broker.offsets import ConsumerOffsets
from rmqtool.broker.services.events import Happened, Service
from rmqtool.broker.services.ordered_pops import NO_COMMIT, REVIVE_QUEUE, GroupQueue, OrderedPops
from rmqtool.broker.services.retry import stored_again, stored_properties
from rmqtool.broker.topics import TopicConfigs
from rmqtool.engine.consume_queue import ConsumeQueue
from rmqtool.engine.get import GetMessageResult, GetMessageStatus, Limits, MessageFilter
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.errors import ReadFailed
from rmqtool.files.filesystem import NotInMemory
from rmqtool.formats.commit_log import Message
from rmqtool.formats.config_files import dialect_of
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopId, PopReceipt, PopTag, encode_pop_id
from rmqtool.formats.properties import BUILT_BINS
from rmqtool.formats.property_names import FIRST_POP_TIME, ORIGIN_GROUP, TAGS, TIMER_DELIVER_MS, UNIQ_KEY
from rmqtool.formats.system_bodies import decode_pop_body, encode_pop_body, popped_offsets
from rmqtool.formats.topics import PERM_READ, PERM_WRITE, RETRY_PREFIX, REVIVE_GROUP, REVIVE_PREFIX, pop_retry_topic

DEFAULT_INVISIBLE = 60_000
MOST_AT_ONCE = 32
# A pop that has this much takes no more: each queue gives a message of any size, and all have to fit into a frame.
_ENOUGH_BYTES = 8 << 20
# A check point arrives this long (ms) before the acks that are due with it.
ACK_INTERVAL = 1_000
_HUNDRED = 100
_V1, _V2 = "1", "2"
_MOVED = (
    GetMessageStatus.OFFSET_TOO_SMALL,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    GetMessageStatus.OFFSET_FOUND_NULL,
    GetMessageStatus.MESSAGE_WAS_REMOVING,
)


class Popped(NamedTuple):
    """A popped message, and the receipt to ack it with."""

    record: Message
    receipt: PopReceipt


class Fate(Enum):
    """The end of a popped message: it is acked, delivered again, or acked because it is a dead letter now."""

    CONSUMED = auto()
    AGAIN = auto()
    DEAD = auto()


def fate_of(record: Message, retries: int, *, is_ok: bool) -> Fate:
    """Return what happens to a message; one that failed is delivered again ``retries`` times."""
    if is_ok:
        return Fate.CONSUMED
    return Fate.AGAIN if record.reconsume_times < retries else Fate.DEAD


def real_topic(topic: str, group: str, receipt: PopReceipt) -> str:
    """Return the topic of a receipt. For a message from the retry topic, that is not the topic that was popped."""
    if topic.startswith(RETRY_PREFIX) or receipt.retry_flag not in (_V1, _V2):
        return topic
    return pop_retry_topic(group, topic, v2=receipt.retry_flag == _V2)


class Pop(NamedTuple):
    """A pop: for which group, when (ms) and for how long its messages become invisible, and which are wanted.

    ``revive_queue`` gets the check points. A new group begins at the first message, or ``at_end``. With ``in_order``
    a queue is blocked until its messages are acked, except for the attempt that popped them.
    """

    group: str
    revive_queue: int
    time: int
    invisible: int
    message_filter: MessageFilter | None = None
    at_end: bool = False
    in_order: bool = False
    attempt_id: str | None = None


class Taken(NamedTuple):
    """The messages that a pop took of one queue, from an offset on, and how many are ``left`` there.

    ``counts`` are those of a pop in order: how often its messages were consumed before.
    """

    topic: str
    queue_id: int
    start: int
    got: GetMessageResult | None
    left: int
    counts: list[tuple[str, int]]

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of the messages."""
        return [] if self.got is None else [one.queue_offset for one in self.got.messages]

    @property
    def retry_flag(self) -> str:
        """Which kind of topic it is, as receipts say it."""
        return (_V2 if "+" in self.topic else _V1) if self.topic.startswith(RETRY_PREFIX) else "0"

    def receipt(self, pop: Pop, broker_name: str) -> PopReceipt:
        """Return the receipt for all of it."""
        times = pop.time, pop.invisible, pop.revive_queue
        return PopReceipt(self.start, *times, self.retry_flag, broker_name, self.queue_id)


class Pops:
    """The pops of one store. The progress of groups is that of ``offsets``."""

    def __init__(
        self, store: MessageStore, offsets: ConsumerOffsets, ordered: OrderedPops, chance: Random | None = None
    ) -> None:
        config = store.setup.config
        self.revive_topic = REVIVE_PREFIX + config.broker_cluster_name
        self.ordered = ordered
        self._store = store
        self._offsets = offsets
        self._config = config
        self._dialect = dialect_of(config.version.value)
        self._chance = chance or Random()  # noqa: S311  (which queue first, not a secret)
        self._pops = 0
        self._in_memory = Limits(config).in_memory

    def begin(self, group: str, invisible: int = DEFAULT_INVISIBLE, **more: Any) -> Pop:
        """Return a pop that happens now."""
        revive_queue = REVIVE_QUEUE if more.get("in_order") else self._next_revive_queue()
        return Pop(group, revive_queue, self._store.setup.clock.now(), invisible, **more)

    def pop(
        self,
        group: str,
        topic: str,
        queue_ids: Sequence[int],
        most: int = MOST_AT_ONCE,
        invisible: int = DEFAULT_INVISIBLE,
        message_filter: MessageFilter | None = None,
    ) -> list[Popped]:
        """Pop up to ``most`` messages of a topic and of its retry topic, which sometimes goes first."""
        pop = self.begin(group, invisible, message_filter=message_filter)
        return [popped for taken in self.take(pop, topic, queue_ids, most) for popped in self.popped(pop, taken)]

    def take(
        self,
        pop: Pop,
        topic: str,
        queue_ids: Sequence[int],
        most: int = MOST_AT_ONCE,
        *,
        waits: bool = True,
        takes_part: bool = False,
    ) -> list[Taken]:
        """Take up to ``most`` messages of a topic, and of its retry topic, which sometimes goes first.

        There is no retry topic of a pop in order: what is not acked stays where it is. Without ``waits`` the disk is
        not waited for: NotInMemory is raised, and nothing taken; or less is taken than there is, from the queues
        before the cold one, and with ``takes_part`` what that queue has in memory; without any the disk is waited for.
        """
        sources = [(topic, tuple(queue_ids), pop)]
        if not pop.in_order:
            retry = pop_retry_topic(pop.group, topic, v2=self._config.enable_retry_topic_v2)
            sources.append((retry, (0,), pop._replace(message_filter=None, at_end=False)))
            if self._chance.randrange(_HUNDRED) < self._config.pop_from_retry_probability:
                sources.reverse()
        found: list[Taken] = []
        size = 0
        for name, queues, one in sources:
            for queue_id in queues:
                try:
                    taken = self.take_queue(one, name, queue_id, most, waits=waits, takes_part=takes_part)
                except NotInMemory:
                    if any(before.got is not None for before in found):
                        most = 0
                    elif not takes_part:
                        raise
                    taken = self.take_queue(one, name, queue_id, most)
                except ReadFailed:
                    if any(before.got is not None for before in found):
                        continue  # what was taken is answered
                    raise
                found.append(taken)
                if taken.got is not None:
                    most, size = most - taken.got.count, size + taken.got.size
                    most = 0 if size >= _ENOUGH_BYTES else most
        return found

    def popped(self, pop: Pop, taken: Taken) -> list[Popped]:
        """Return the messages that were taken, each with its receipt."""
        if taken.got is None:
            return []
        receipt = taken.receipt(pop, self._config.broker_name)
        return [
            Popped(record, receipt._replace(queue_offset=one.queue_offset))
            for record, one in zip(taken.got.decoded(), taken.got.messages, strict=True)
            if isinstance(record, Message)
        ]

    def take_queue(
        self, pop: Pop, topic: str, queue_id: int, most: int, *, waits: bool = True, takes_part: bool = False
    ) -> Taken:
        """Take messages of one queue. Nothing is taken unless its check point is stored."""
        place, reader = GroupQueue(topic, pop.group, queue_id), self._store.reader
        if pop.in_order and self.ordered.is_blocked(place, pop.invisible, pop.attempt_id):
            return Taken(topic, queue_id, 0, None, 0, [])
        offset = self._start(pop, place)
        if most <= 0:
            return Taken(topic, queue_id, offset, None, max(reader.bounds(topic, queue_id).max_offset - offset, 0), [])
        try:
            got = reader.get(topic, queue_id, offset, most, pop.message_filter, waits=waits)
            if got.status in _MOVED:
                offset = got.next_begin_offset
                got = reader.get(topic, queue_id, offset, most, pop.message_filter, waits=waits)
        except NotInMemory as cold:
            if not takes_part or not isinstance(cold.so_far, GetMessageResult):
                raise
            got = cold.so_far
        left = max(got.max_offset - got.next_begin_offset, 0)
        if not got.count:
            if got.next_begin_offset > offset:
                self._offsets.commit_offset(pop.group, topic, queue_id, got.next_begin_offset)
            return Taken(topic, queue_id, offset, None, left, [])
        offsets = [one.queue_offset for one in got.messages]
        if pop.in_order:
            counts = self.ordered.take(place, offsets, (pop.time, pop.invisible), pop.attempt_id)
            self._offsets.commit_offset(pop.group, topic, queue_id, offset)
            return Taken(topic, queue_id, offset, got, left, counts)
        check_point = topic, queue_id, pop.revive_queue
        if not self._put_check_point(pop.group, check_point, offsets, (offset, pop.time, pop.invisible)).is_ok:
            return Taken(topic, queue_id, offset, None, left + got.count, [])
        self._offsets.commit_offset(pop.group, topic, queue_id, got.next_begin_offset)
        return Taken(topic, queue_id, offset, got, left, [])

    def ack(self, group: str, topic: str, receipt: PopReceipt) -> PutTicket:
        """Store that a message does not come back."""
        return self._store.put(self.ack_message(group, topic, receipt))

    def ack_message(self, group: str, topic: str, receipt: PopReceipt) -> NewMessage:
        """Return the record that says that a message does not come back."""
        assert receipt.queue_offset is not None, "the receipt of one message"
        topic = real_topic(topic, group, receipt)
        body = {"ao": receipt.queue_offset, **self._ack_body(group, topic, receipt)}
        return self._ack_record(PopTag.ACK, body, receipt)

    def batch_ack_message(self, group: str, topic: str, receipt: PopReceipt, offsets: Sequence[int]) -> NewMessage:
        """Return the record that says that some messages of one pop do not come back."""
        topic = real_topic(topic, group, receipt)
        body = {"ao": -1, "aol": list(offsets), **self._ack_body(group, topic, receipt)}
        return self._ack_record(PopTag.BATCH_ACK, body, receipt)

    def ack_in_order(self, place: GroupQueue, receipt: PopReceipt, offset: int) -> int:
        """Take an ack of a pop in order; return the offset that is committed, or why none is."""
        group, topic, queue_id = place.group, place.topic, place.queue_id
        if offset < self._offsets.query_offset(group, topic, queue_id):
            return NO_COMMIT
        found = self.ordered.ack(place, offset, receipt.pop_time)
        if found >= 0 and not self._offsets.has_pending_reset(group, topic, queue_id):
            self._offsets.commit_offset(group, topic, queue_id, found)
        return found

    def postpone_in_order(self, place: GroupQueue, receipt: PopReceipt, offset: int, invisible: int) -> PopReceipt:
        """Change when a message of a pop in order is visible again."""
        if offset < self._offsets.query_offset(place.group, place.topic, place.queue_id):
            return receipt
        visible = self._store.setup.clock.now() + invisible
        self.ordered.postpone(place, offset, receipt.pop_time, visible)
        return receipt._replace(invisible_time=visible - receipt.pop_time)

    def change_invisible(self, group: str, topic: str, receipt: PopReceipt, invisible: int) -> PopReceipt | None:
        """Change when a message comes back: with a check point of its own, and an ack of the old one."""
        assert receipt.queue_offset is not None, "the receipt of one message"
        real, now, offset = real_topic(topic, group, receipt), self._store.setup.clock.now(), receipt.queue_offset
        place = real, receipt.queue_id, receipt.revive_queue_id
        if not self._put_check_point(group, place, [offset], (offset, now, invisible)).is_ok:
            return None
        self.ack(group, real, receipt)
        return receipt._replace(check_point_offset=offset, pop_time=now, invisible_time=invisible)

    def _start(self, pop: Pop, place: GroupQueue) -> int:
        """Return the offset from which a group continues. A new group begins at the first message, or at the last.

        A group that begins at the end still gets all messages of a queue whose first one is in memory.
        """
        topic, group, queue_id = place
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self.ordered.clear(place)
            self._offsets.commit_offset(group, topic, queue_id, reset)
            return reset
        stored = self._offsets.query_offset(group, topic, queue_id)
        if stored >= 0:
            return stored
        low, high = self._store.reader.bounds(topic, queue_id)
        begin = max(low, 0)
        if pop.at_end and not (low <= 0 and self._is_young(topic, queue_id)):
            begin = max(high - 1, 0)
        self._offsets.commit_offset(group, topic, queue_id, begin)
        return begin

    def _is_young(self, topic: str, queue_id: int) -> bool:
        """Return whether the first message of a queue is in memory, by the broker's rule."""
        queue = self._store.find_queue(topic, queue_id)
        first = queue.read_units(0, 1) if isinstance(queue, ConsumeQueue) else []
        if not self._config.init_pop_offset_by_check_msg_in_mem or not first:
            return False
        return self._store.commit_log.committed_offset - first[0].physical_offset <= self._in_memory

    def _next_revive_queue(self) -> int:
        found = self._pops % max(self._config.revive_queue_num, 1)
        self._pops += 1
        return found

    def _put_check_point(
        self, group: str, place: tuple[str, int, int], offsets: Sequence[int], pop: tuple[int, int, int]
    ) -> PutTicket:
        topic, queue_id, revive_queue = place
        start, pop_time, invisible = pop
        body = {
            "bm": 0,
            "bn": self._config.broker_name,
            "c": group,
            "d": [offset - start for offset in offsets],
            "it": invisible,
            "n": len(offsets),
            "pt": pop_time,
            "q": queue_id,
            "reviveTime": pop_time + invisible,
            "ro": 0,
            "so": start,
            "t": topic,
        }
        pop_id = PopId(PopTag.CHECK_POINT, topic, queue_id, (start,), group, pop_time, self._config.broker_name)
        due = revive_queue, pop_time + invisible - ACK_INTERVAL
        return self._store.put(self._record(PopTag.CHECK_POINT, pop_id, body, due))

    def _ack_body(self, group: str, topic: str, receipt: PopReceipt) -> dict[str, Any]:
        """Return the members of an ack after its offsets. upstream: fastjson writes them by their names."""
        return {
            "bn": receipt.broker_name,
            "c": group,
            "pt": receipt.pop_time,
            "q": receipt.queue_id,
            "so": receipt.check_point_offset,
            "t": topic,
        }

    def _ack_record(self, tag: PopTag, body: dict[str, Any], receipt: PopReceipt) -> NewMessage:
        # upstream: also the key of a batch is that of an ack, of no message.
        place = body["t"], body["q"], (body["ao"],)
        pop_id = PopId(PopTag.ACK, *place, body["c"], receipt.pop_time, receipt.broker_name)
        deliver = receipt.pop_time + receipt.invisible_time
        return self._record(tag, pop_id, body, (receipt.revive_queue_id, deliver))

    def _record(self, tag: PopTag, pop_id: PopId, body: dict[str, Any], due: tuple[int, int]) -> NewMessage:
        """Return a record for a revive queue, where it is at a time; ``due`` has both."""
        revive_queue, deliver = due
        properties = {TAGS: tag.value, TIMER_DELIVER_MS: str(deliver), UNIQ_KEY: encode_pop_id(pop_id)}
        data = encode_pop_body(tag, body, self._dialect)
        return NewMessage(self.revive_topic, data, revive_queue, properties, property_bins=BUILT_BINS)


_AT_ONCE = 32
_TAGS = {tag.value for tag in PopTag}
# A check point is revived this long (ms) after its time, when all its acks have arrived.
_BEHIND = ACK_INTERVAL + 1_000
# If no record arrives for this long (ms), the clock replaces the times of records.
_SILENCE = 3_000
_NEEDED = {"c", "t", "q", "pt", "so"}


@dataclass
class _CheckPoint:
    """A check point, its offset in the revive queue, and its acked messages."""

    body: dict[str, Any]
    revive_offset: int
    acked: set[int] = field(default_factory=set)

    @property
    def revive_time(self) -> int:
        """When the messages without an ack come back."""
        return int(self.body["pt"]) + int(self.body["it"])


class Revival:
    """The revive queues of one store."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, topics: TopicConfigs, pops: Pops) -> None:
        self._store = store
        self._offsets = offsets
        self._topics = topics
        self._topic = pops.revive_topic
        self._config = store.setup.config

    def iter_due(self) -> Iterator[Happened]:
        """Revive popped messages whose time is over; yield one event for each."""
        for queue_id in self._queues():
            yield from self.iter_queue(queue_id)

    def iter_queue(self, queue_id: int) -> Iterator[Happened]:
        """Revive from one revive queue, one check point after the other, until a message cannot be put."""
        check_points, reached = self._read(queue_id)
        for check_point in check_points:
            if reached - check_point.revive_time <= _BEHIND:
                return
            for told in self._revive(check_point):
                yield told
                if told.event == "stuck":
                    return
            self._offsets.commit_offset(REVIVE_GROUP, self._topic, queue_id, check_point.revive_offset)

    def next_due(self) -> int | None:
        """Return when the first check point in the revive queues is due."""
        firsts = [check_points[0] for queue_id in self._queues() if (check_points := self._read(queue_id)[0])]
        return min((first.revive_time + _BEHIND + 1 for first in firsts), default=None)

    def waiting(self) -> int:
        """Return the number of messages in check points that are not acked yet."""
        return sum(
            len(popped_offsets(check_point.body)) - len(check_point.acked)
            for queue_id in self._queues()
            for check_point in self._read(queue_id)[0]
        )

    def _queues(self) -> list[int]:
        return sorted(queue.key[1] for queue in self._store.queues() if queue.key[0] == self._topic)

    def _read(self, queue_id: int) -> tuple[list[_CheckPoint], int]:
        """Return the unfinished check points of a revive queue, and the time that its records have reached."""
        # Progress is the last finished record; without one it is -1, before the first.
        offset = self._offsets.query_offset(REVIVE_GROUP, self._topic, queue_id) + 1
        found: dict[tuple[Any, ...], _CheckPoint] = {}
        reached = 0
        while True:
            got = self._store.reader.get(self._topic, queue_id, offset, _AT_ONCE)
            for one, record in zip(got.messages, got.decoded(), strict=True):
                if isinstance(record, Message):
                    self._join(found, record, one.queue_offset)
                    reached = max(reached, int(record.properties.get(TIMER_DELIVER_MS) or 0))
            if got.next_begin_offset <= offset:
                break
            offset = got.next_begin_offset
        now = self._store.setup.clock.now()
        if reached and now - reached > _SILENCE:
            reached = now
        return list(found.values()), reached

    def _join(self, found: dict[tuple[Any, ...], _CheckPoint], record: Message, queue_offset: int) -> None:
        """Add a check point, or an ack to its check point."""
        tag = record.tags
        if tag not in _TAGS:
            return
        decoded = decode_pop_body(PopTag(tag), record.raw_body)
        if isinstance(decoded, Flaw) or not isinstance(decoded.value, dict) or not decoded.value.keys() >= _NEEDED:
            return
        body = decoded.value
        key = tuple(body.get(name) for name in ("t", "c", "q", "so", "pt", "bn"))
        if tag == PopTag.CHECK_POINT:
            found[key] = _CheckPoint(body, queue_offset)
        elif (check_point := found.get(key)) is not None:
            acked = body["aol"] if tag == PopTag.BATCH_ACK else [body["ao"]]
            check_point.acked |= set(acked or ()) & set(popped_offsets(check_point.body))

    def _revive(self, check_point: _CheckPoint) -> Iterator[Happened]:
        """Put the messages of a check point that are not acked. Messages that have expired are skipped."""
        body = check_point.body
        bits = int(body.get("bm") or 0)
        for index, offset in enumerate(popped_offsets(body)):
            if offset in check_point.acked or bits >> index & 1:
                continue
            got = self._store.reader.get(body["t"], body["q"], offset, 1)
            record = got.decoded()[0] if got.messages else None
            if not isinstance(record, Message) or got.messages[0].queue_offset != offset:
                continue
            ticket = self._store.put(self._made(record, body))
            about = {"group": body["c"], "dueTimestamp": check_point.revive_time, "times": record.reconsume_times + 1}
            if ticket.is_ok:
                yield Happened(Service.POP, "revived", record, ticket, about)
            else:
                yield Happened(Service.POP, "stuck", record, None, {**about, "status": str(ticket.status)})
                return

    def _made(self, record: Message, body: dict[str, Any]) -> NewMessage:
        group, topic = body["c"], body["t"]
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(group, topic, v2=self._config.enable_retry_topic_v2)
        self._topics.ensure(topic, 1, PERM_READ | PERM_WRITE)
        properties = stored_properties(record)
        if not record.reconsume_times or FIRST_POP_TIME not in properties:
            properties[FIRST_POP_TIME] = str(body["pt"])
        if self._config.version.value == "5.4":
            properties[ORIGIN_GROUP] = group
        message = stored_again(record, topic, 0, properties)
        message.born_host = message.store_host = None
        message.reconsume_times = record.reconsume_times + 1
        message.property_bins = BUILT_BINS
        return message
