"""Pop consumption of 5.x: popped messages are invisible for some time, and come back unless they are acked.

A check point records which messages were popped and when they come back; an ack records that one of them does not. Both
are timer messages, so they arrive in the revive topic when they are needed. upstream: PopMessageProcessor,
AckMessageProcessor, ChangeInvisibleTimeProcessor.

``Revival`` reads the revive queues, where records are in the order of their times, acks a second after their check
points. When enough time has passed after a check point, its messages without an ack are put into the group's retry
topic. Progress is the last check point that is finished. upstream: PopReviveService.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from rmqtool.broker.offsets import ConsumerOffsets
from rmqtool.broker.services.events import Happened, Service
from rmqtool.broker.services.retry import stored_again, stored_properties
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import Version
from rmqtool.engine.get import GetMessageStatus, MessageFilter
from rmqtool.engine.message import NewMessage
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
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


def real_topic(topic: str, group: str, receipt: PopReceipt) -> str:
    """Return the topic of a receipt. For a message from the retry topic, that is not the topic that was popped."""
    if topic.startswith(RETRY_PREFIX) or receipt.retry_flag not in (_V1, _V2):
        return topic
    return pop_retry_topic(group, topic, v2=receipt.retry_flag == _V2)


class Pops:
    """The pops of one store. The progress of groups is that of ``offsets``."""

    def __init__(self, store: MessageStore, offsets: ConsumerOffsets, chance: Random | None = None) -> None:
        config = store.setup.config
        self.revive_topic = REVIVE_PREFIX + config.broker_cluster_name
        self._store = store
        self._offsets = offsets
        self._config = config
        self._dialect = dialect_of(config.version.value)
        self._chance = chance or Random()  # noqa: S311  (which queue first, not a secret)
        self._pops = 0

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
        v2 = self._config.enable_retry_topic_v2
        retry = (pop_retry_topic(group, topic, v2=v2), (0,), None)
        sources = [(topic, tuple(queue_ids), message_filter), retry]
        if self._chance.randrange(_HUNDRED) < self._config.pop_from_retry_probability:
            sources.reverse()
        revive_queue = self._next_revive_queue()
        found: list[Popped] = []
        for name, queues, wanted in sources:
            for queue_id in queues:
                if len(found) < most:
                    place = name, queue_id, revive_queue
                    found += self.pop_queue(group, place, most - len(found), invisible, wanted)
        return found

    def pop_queue(
        self,
        group: str,
        place: tuple[str, int, int],
        most: int,
        invisible: int,
        message_filter: MessageFilter | None = None,
    ) -> list[Popped]:
        """Pop messages of one queue; ``place`` is topic, queue, and the revive queue of the check point.

        Nothing is popped unless its check point is stored.
        """
        topic, queue_id, revive_queue = place
        offset, now = self._start(group, topic, queue_id), self._store.setup.clock.now()
        got = self._store.reader.get(topic, queue_id, offset, most, message_filter)
        if got.status in _MOVED:
            offset = got.next_begin_offset
            got = self._store.reader.get(topic, queue_id, offset, most, message_filter)
        records = [record for record in got.decoded() if isinstance(record, Message)]
        if records:
            offsets = [one.queue_offset for one in got.messages]
            if not self._put_check_point(group, place, offsets, (offset, now, invisible)).is_ok:
                return []
        if got.next_begin_offset > offset:
            self._offsets.commit_offset(group, topic, queue_id, got.next_begin_offset)
        flag = (_V2 if "+" in topic else _V1) if topic.startswith(RETRY_PREFIX) else "0"
        receipt = PopReceipt(offset, now, invisible, revive_queue, flag, self._config.broker_name, queue_id)
        return [
            Popped(record, receipt._replace(queue_offset=one.queue_offset))
            for record, one in zip(records, got.messages, strict=True)
        ]

    def ack(self, group: str, topic: str, receipt: PopReceipt) -> PutTicket:
        """Store that a message does not come back."""
        return self._put_ack(group, real_topic(topic, group, receipt), receipt)

    def change_invisible(self, group: str, topic: str, receipt: PopReceipt, invisible: int) -> PopReceipt | None:
        """Change when a message comes back: with a check point of its own, and an ack of the old one."""
        assert receipt.queue_offset is not None, "the receipt of one message"
        real, now, offset = real_topic(topic, group, receipt), self._store.setup.clock.now(), receipt.queue_offset
        place = real, receipt.queue_id, receipt.revive_queue_id
        if not self._put_check_point(group, place, [offset], (offset, now, invisible)).is_ok:
            return None
        self._put_ack(group, real, receipt)
        return receipt._replace(check_point_offset=offset, pop_time=now, invisible_time=invisible)

    def _start(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset from which a group continues. A new group begins at the first message."""
        stored = self._offsets.query_offset(group, topic, queue_id)
        return stored if stored >= 0 else max(self._store.reader.bounds(topic, queue_id).min_offset, 0)

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
        return self._put(pop_id, body, revive_queue, pop_time + invisible - ACK_INTERVAL)

    def _put_ack(self, group: str, topic: str, receipt: PopReceipt) -> PutTicket:
        assert receipt.queue_offset is not None, "the receipt of one message"
        body = {
            "ao": receipt.queue_offset,
            "bn": receipt.broker_name,
            "c": group,
            "pt": receipt.pop_time,
            "q": receipt.queue_id,
            "so": receipt.check_point_offset,
            "t": topic,
        }
        pop_id = PopId(
            PopTag.ACK,
            topic,
            receipt.queue_id,
            (receipt.queue_offset,),
            group,
            receipt.pop_time,
            receipt.broker_name,
        )
        return self._put(pop_id, body, receipt.revive_queue_id, receipt.pop_time + receipt.invisible_time)

    def _put(self, pop_id: PopId, body: dict[str, Any], revive_queue: int, deliver: int) -> PutTicket:
        properties = {TAGS: pop_id.tag.value, TIMER_DELIVER_MS: str(deliver), UNIQ_KEY: encode_pop_id(pop_id)}
        data = encode_pop_body(pop_id.tag, body, self._dialect)
        return self._store.put(NewMessage(self.revive_topic, data, revive_queue, properties, property_bins=BUILT_BINS))


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
        if self._config.version is Version.V5_4:
            properties[ORIGIN_GROUP] = group
        message = stored_again(record, topic, 0, properties)
        message.born_host = message.store_host = None
        message.reconsume_times = record.reconsume_times + 1
        message.property_bins = BUILT_BINS
        return message
