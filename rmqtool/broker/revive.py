"""What was popped and not acked comes back: to the retry topic of its group.

Upstream: ``PopReviveService``. The records of a revive queue are in the order of their times, acks a second behind
their check points. When time has passed far enough behind a check point, whatever of it is not acked is put again.
Progress is the last check point that is done with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rmqtool.broker.happened import Happened, Service
from rmqtool.broker.offsets import ConsumerOffsets
from rmqtool.broker.pop import ACK_INTERVAL, Pops
from rmqtool.broker.stored_again import stored_again, stored_properties
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.properties import BUILT_BINS
from rmqtool.formats.system_bodies import decode_pop_body, popped_offsets
from rmqtool.formats.topics import PERM_READ, PERM_WRITE, RETRY_PREFIX, REVIVE_GROUP, pop_retry_topic

_AT_ONCE = 32
_TAGS = {tag.value for tag in PopTag}
# Behind a check point time must have passed so far (ms) that all its acks are there.
_BEHIND = ACK_INTERVAL + 1_000
# When nothing more comes, the clock itself says what time it is, after so long (ms).
_SILENCE = 3_000
_NEEDED = {"c", "t", "q", "pt", "so"}


@dataclass
class _CheckPoint:
    """A check point, where it lies in its revive queue, and which of its messages are acked."""

    body: dict[str, Any]
    revive_offset: int
    acked: set[int] = field(default_factory=set)

    @property
    def revive_time(self) -> int:
        """When what is not acked comes back."""
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
        """Revive what is due, and tell each message."""
        for queue_id in self._queues():
            yield from self.iter_queue(queue_id)

    def iter_queue(self, queue_id: int) -> Iterator[Happened]:
        """Revive what is due in one revive queue, check point by check point, until one cannot be put."""
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
        """Return when the first check point is due that has come to its revive queue."""
        firsts = [check_points[0] for queue_id in self._queues() if (check_points := self._read(queue_id)[0])]
        return min((first.revive_time + _BEHIND + 1 for first in firsts), default=None)

    def waiting(self) -> int:
        """Return how many messages of check points in the revive queues are not acked yet."""
        return sum(
            len(popped_offsets(check_point.body)) - len(check_point.acked)
            for queue_id in self._queues()
            for check_point in self._read(queue_id)[0]
        )

    def _queues(self) -> list[int]:
        return sorted(queue.key[1] for queue in self._store.queues() if queue.key[0] == self._topic)

    def _read(self, queue_id: int) -> tuple[list[_CheckPoint], int]:
        """Return the check points of a revive queue that are not done with, and the time it has come to."""
        # The last record that is done with is what progress names; without any it is the one before the first.
        offset = self._offsets.query_offset(REVIVE_GROUP, self._topic, queue_id) + 1
        found: dict[tuple[Any, ...], _CheckPoint] = {}
        reached = 0
        while True:
            got = self._store.reader.get(self._topic, queue_id, offset, _AT_ONCE)
            for one in got.messages:
                record = decode_record(one.data)
                if isinstance(record, Message):
                    self._join(found, record, one.queue_offset)
                    reached = max(reached, int(record.properties.get("TIMER_DELIVER_MS") or 0))
            if got.next_begin_offset <= offset:
                break
            offset = got.next_begin_offset
        now = self._store.setup.clock.now()
        if reached and now - reached > _SILENCE:
            reached = now
        return list(found.values()), reached

    def _join(self, found: dict[tuple[Any, ...], _CheckPoint], record: Message, queue_offset: int) -> None:
        """Take a check point, or join an ack to its check point."""
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
        """Put the messages of a check point that are not acked; what has expired meanwhile is gone."""
        body = check_point.body
        bits = int(body.get("bm") or 0)
        for index, offset in enumerate(popped_offsets(body)):
            if offset in check_point.acked or bits >> index & 1:
                continue
            got = self._store.reader.get(body["t"], body["q"], offset, 1)
            record = decode_record(got.messages[0].data) if got.messages else None
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
        if not record.reconsume_times or "1ST_POP_TIME" not in properties:
            properties["1ST_POP_TIME"] = str(body["pt"])
        if self._config.version is Version.V5_4:
            properties["ORIGIN_GROUP"] = group
        message = stored_again(record, topic, 0, properties)
        message.born_host = message.store_host = None
        message.reconsume_times = record.reconsume_times + 1
        message.property_bins = BUILT_BINS
        return message
