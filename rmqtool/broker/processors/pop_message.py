"""Popping: messages that are invisible for a while, their acks, and the wait for more.

Upstream: ``PopMessageProcessor``, ``AckMessageProcessor``, ``ChangeInvisibleTimeProcessor``, ``NotificationProcessor``,
``PollingInfoProcessor``, ``PopLongPollingService``. A pop that finds nothing and may wait becomes a ``WaitingPop``: its
holder looks again when a queue grew or is free again, and answers it at the latest when its time is over.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, cast

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.pull_message import TAG, WholeRecords, filter_of
from rmqtool.broker.processors.replies import ENOUGH_FETCHES, Fetching, Putting, Reply, Steps, or_fetching
from rmqtool.broker.services.ordered_pops import ILLEGAL, REVIVE_QUEUE, GroupQueue
from rmqtool.broker.services.pop import MOST_AT_ONCE, Pop, Taken
from rmqtool.broker.services.retry import stored_properties, text_of
from rmqtool.engine.get import MessageFilter
from rmqtool.engine.put import PutTicket
from rmqtool.errors import UsageError
from rmqtool.formats.commit_log import Message, encode_message
from rmqtool.formats.ids import PopReceipt, decode_pop_receipt, encode_pop_receipt
from rmqtool.formats.java import encode_text
from rmqtool.formats.property_names import POP_CK
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import PERM_READ, RETRY_PREFIX, pop_retry_topic
from rmqtool.remoting.answers import (
    GROUP_NO_PERMISSION,
    GROUP_NOT_EXIST,
    PULL_QUEUE_ILLEGAL,
    SUBSCRIPTION_UNREADABLE,
    TOPIC_NOT_EXIST_TO_PULL,
    answer,
    refuse,
)
from rmqtool.remoting.bodies.clients import BatchAck, BatchAckMessageRequestBody
from rmqtool.remoting.body import BodyError
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests.pop import (
    AckMessage,
    ChangeInvisibleTime,
    ChangeInvisibleTimeAnswer,
    Notification,
    NotificationAnswer,
    PeekMessage,
    PollingInfo,
    PollingInfoAnswer,
    PopMessage,
    PopMessageAnswer,
)

# A pop is refused when its client stopped waiting this long (ms) ago, and not held when it has less than that left.
_TOO_LATE, _TOO_SHORT = 500, 50
# Clients wait for an answer this long (ms) after the time that they let a pop be held: a slow disk has that time.
_GIVEN_UP = 10_000
# Where a new group begins. upstream: ConsumeInitMode
_AT_END: Final = 1
# A multiple of most numbers of queues, so that each queue is as likely as another.
_MANY_QUEUES = 720_720
# The parts of the receipt of one message.
_PARTS = 8
_S = ResponseCode


@dataclass(slots=True)
class WaitingPop:
    """A pop, or a question whether there is something to pop, that waits until a time (monotonic ms).

    ``queue_id`` is -1 for any queue. ``also`` is the retry topic, whose messages it gets too. ``look`` answers it, or
    returns None; its argument says that the time is over.
    """

    asked: Asked
    group: str
    topic: str
    queue_id: int
    also: str
    wants: str
    until: int
    look: Callable[[bool], RemotingCommand | Fetching | None]


# An answer to a pop, or what it waits for; and what looks for messages: whether its time is over, and how often bytes
# were fetched for it.
Popped: TypeAlias = RemotingCommand | WaitingPop | Fetching
_Look: TypeAlias = Callable[[bool, int], RemotingCommand | None]


class Popping:
    """Answers the pops of one broker's clients.

    ``is_full`` says whether no further pop can wait, and ``count_waiting`` how many wait for a queue. ``freed`` is
    called when a queue is free again. The caller sets all three.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._config = broker.config
        self._pops = broker.services.pops
        self._clock = broker.store.setup.clock
        self.is_full: Callable[[Asked], bool] = lambda _asked: False
        self.count_waiting: Callable[[GroupQueue], int] = lambda _place: 0
        self.freed: Callable[[GroupQueue], None] = lambda _place: None

    # Pops.

    def pop(self, asked: Asked) -> Popped:
        """Give a client messages of a topic, now or as soon as there are some."""
        header: PopMessage = asked.header  # type: ignore[assignment]
        ip = self._config.broker_ip1
        if self._is_too_late(header):
            return self._timed_out(asked)
        if header.max_msg_nums > MOST_AT_ONCE:
            remark = f"the broker[{ip}] pop message's num is greater than {MOST_AT_ONCE}"
            return answer(asked.command, _S.INVALID_PARAMETER, remark)
        if not self._broker.services.timers.is_enabled or self._config.pop_consumer_kv_service_enable:
            why = "timerWheelEnable is false" if not self._config.timer_wheel_enable else "its state is in RocksDB"
            return answer(asked.command, _S.SYSTEM_ERROR, f"the broker[{ip}] pop message is forbidden because {why}")
        refusal = self._refusal(asked, header, "pop")
        if refusal is not None:
            return refusal
        try:
            wanted = filter_of(header.exp_type or TAG, header.exp or "*", self._broker.version)
        except UsageError:
            return refuse(asked.command, SUBSCRIPTION_UNREADABLE, self._broker.version)
        wanted = WholeRecords(wanted) if self._broker.read_only else wanted
        return self._look(asked, header, partial(self._pop, asked, header, wanted, self._any_queue()), False, 0)

    def _is_too_late(self, header: PopMessage, limit: int = _TOO_LATE) -> bool:
        """Whether the client of a pop waits no more, and would not get the messages."""
        now = self._clock.now()
        return now - (header.born_time or now) - header.poll_time > limit

    def _timed_out(self, asked: Asked) -> RemotingCommand:
        remark = f"the broker[{self._config.broker_ip1}] pop message is timeout too much"
        return answer(asked.command, _S.POLLING_TIMEOUT, remark)

    def _look(self, asked: Asked, header: PopMessage | Notification, look: _Look, is_over: bool, rounds: int) -> Popped:
        """Answer a pop or a question, or have it wait: for messages, or for their bytes."""
        return self._look_once(asked, header, look, rounds, is_over) or self._wait(asked, header, look)

    def _look_once(
        self, asked: Asked, header: PopMessage | Notification, look: _Look, rounds: int, is_over: bool
    ) -> RemotingCommand | Fetching | None:
        if self._broker.topics.find(header.topic) is None:  # it was deleted while the request waited
            return refuse(asked.command, TOPIC_NOT_EXIST_TO_PULL, self._broker.version, topic=header.topic)
        again = partial(self._look, asked, header, look, is_over)
        return cast("RemotingCommand | Fetching | None", or_fetching(partial(look, is_over), rounds, again))

    def _pop(
        self, asked: Asked, header: PopMessage, wanted: MessageFilter | None, first: int, is_over: bool, rounds: int
    ) -> RemotingCommand | None:
        """Answer a pop with messages; without messages only if its time is over. Raises NotInMemory."""
        if rounds and self._is_too_late(header, _GIVEN_UP):
            return self._timed_out(asked)
        more = {"message_filter": wanted, "at_end": header.init_mode == _AT_END, "in_order": bool(header.order)}
        pop = self._pops.begin(header.consumer_group, header.invisible_time, **more, attempt_id=header.attempt_id)
        takes_part = rounds >= ENOUGH_FETCHES
        queues, most = self._queues(header, first), header.max_msg_nums
        taken = self._pops.take(pop, header.topic, queues, most, waits=False, takes_part=takes_part)
        found = [one for one in taken if one.got is not None]
        if not found and not is_over:
            return None
        told = PopMessageAnswer(
            pop_time=pop.time,
            invisible_time=pop.invisible,
            revive_qid=pop.revive_queue,
            rest_num=sum(one.left for one in taken),
            start_offset_info=_joined((one, str(one.start)) for one in found),
            msg_offset_info=_joined((one, ",".join(map(str, one.offsets))) for one in found),
        )
        if header.order and found:
            counts = [f"{one.retry_flag} {key} {count}" for one in found for key, count in one.counts]
            told = told.replace(order_count_info=";".join(counts))
        if not found:
            return answer(asked.command, _S.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE", header=told)
        self._count(header, found)
        body = b"".join(self._records(header.topic, pop, one) for one in found)
        return answer(asked.command, _S.SUCCESS, "FOUND", header=told, body=body)

    def _any_queue(self) -> int:
        """Return a number for the queue that is looked at first."""
        return self._broker.chance.randrange(_MANY_QUEUES)

    def _queues(self, header: PopMessage | PeekMessage | Notification, first: int) -> list[int]:
        """Return the queues to look at: one, or all from a certain one on."""
        if header.queue_id >= 0:
            return [header.queue_id]
        count = int(self._broker.topics.table[header.topic]["readQueueNums"])
        return [(first + number) % count for number in range(count)]

    def _count(self, header: PopMessage, found: Iterable[Taken]) -> None:
        counts = self._broker.counts
        for one in found:
            assert one.got is not None, "it has messages"
            counts.get_calls[one.topic, header.consumer_group] += 1
            counts.gets[one.topic, header.consumer_group] += one.got.count
            counts.get_bytes[one.topic, header.consumer_group] += one.got.size

    def _records(self, topic: str, pop: Pop, taken: Taken) -> bytes:
        """Return the bytes of the messages; retried ones have the topic that was popped, and their receipt."""
        assert taken.got is not None, "it has messages"
        if not taken.topic.startswith(RETRY_PREFIX) or topic == taken.topic:
            return taken.got.joined()
        receipt, raw, found = taken.receipt(pop, self._config.broker_name), encode_text(topic), []
        for record, one in zip(taken.got.decoded(), taken.got.messages, strict=True):
            if not isinstance(record, Message):
                continue
            properties = stored_properties(record)
            properties.setdefault(POP_CK, encode_pop_receipt(receipt._replace(queue_offset=one.queue_offset)))
            text = text_of(properties, self._config.version)
            size = record.total_size + len(raw) - len(record.raw_topic) + len(text) - len(record.raw_properties)
            shown = record._replace(total_size=size, raw_topic=raw, raw_properties=text)
            found.append(encode_message(shown))
        return b"".join(found)

    def _refusal(
        self, asked: Asked, header: PopMessage | PeekMessage | Notification | PollingInfo, what: str
    ) -> RemotingCommand | None:
        """Refuse a topic, queue or group in upstream's order."""
        command, version, broker = asked.command, self._broker.version, self._broker
        if not self._config.broker_permission & PERM_READ:
            remark = f"the broker[{self._config.broker_ip1}] {what} message is forbidden"
            return answer(command, _S.NO_PERMISSION, remark)
        config = broker.topics.find(header.topic)
        if config is None:
            return refuse(command, TOPIC_NOT_EXIST_TO_PULL, version, topic=header.topic)
        if not int(config["perm"]) & PERM_READ:
            return answer(command, _S.NO_PERMISSION, f"the topic[{header.topic}] peeking message is forbidden")
        queues = int(config["readQueueNums"])
        if header.queue_id >= queues:
            holes = {"queue_id": header.queue_id, "topic": header.topic, "queues": queues, "client": asked.client}
            return refuse(command, PULL_QUEUE_ILLEGAL, version, **holes)
        group = broker.groups.find_or_create(header.consumer_group)
        if group is None:
            return refuse(command, GROUP_NOT_EXIST, version, group=header.consumer_group)
        if not group.get("consumeEnable", True):
            return refuse(command, GROUP_NO_PERMISSION, version, group=header.consumer_group)
        return None

    # The wait for messages.

    def _wait(self, asked: Asked, header: PopMessage | Notification, look: _Look) -> Popped:
        """Return a pop that waits, or its answer where it cannot."""
        now = self._clock.now()
        left = min((header.born_time or now) + header.poll_time - now, header.poll_time)
        if left <= _TOO_SHORT or self.is_full(asked):
            found = self._look_once(asked, header, look, 0, True)
            assert found is not None, "a pop whose time is over is answered"
            if left > _TOO_SHORT and isinstance(found, RemotingCommand):
                return self._as_full(asked, found)
            return found
        group, topic = header.consumer_group, header.topic
        also = pop_retry_topic(group, topic, v2=self._config.enable_retry_topic_v2)
        if "+" not in also and self._config.version.value == "5.3":
            # It gets those messages when it looks the next time. upstream: notifyMessageArrivingWithRetryTopic
            also = topic
        wants = f"{header.exp_type} {header.exp}"
        look_later = partial(self._look_once, asked, header, look, 0)
        return WaitingPop(asked, group, topic, header.queue_id, also, wants, self._clock.monotonic() + left, look_later)

    def _as_full(self, asked: Asked, found: RemotingCommand) -> RemotingCommand:
        if isinstance(asked.header, Notification):
            return answer(asked.command, header=NotificationAnswer(has_msg=False, polling_full=True))
        return found if found.code == _S.SUCCESS else found.replaced(code=int(_S.POLLING_FULL))

    def notify(self, asked: Asked) -> Popped:
        """Say that there are messages to pop, now or as soon as there are some."""
        header: Notification = asked.header  # type: ignore[assignment]
        refusal = self._refusal(asked, header, "peeking")
        if refusal is not None:
            return refusal
        return self._look(asked, header, partial(self._notify, asked, header), False, 0)

    def _notify(self, asked: Asked, header: Notification, is_over: bool, _rounds: int) -> RemotingCommand | None:
        group, topic = header.consumer_group, header.topic
        retry = pop_retry_topic(group, topic, v2=self._config.enable_retry_topic_v2)
        places = [GroupQueue(topic, group, queue_id) for queue_id in self._queues(header, 0)]
        if not header.order:
            places.append(GroupQueue(retry, group, 0))
        has_message = any(
            self._has_message(one) and not (header.order and self._pops.ordered.is_blocked(one, 0, header.attempt_id))
            for one in places
        )
        if not has_message and not is_over:
            return None
        return answer(asked.command, header=NotificationAnswer(has_msg=has_message))

    def _has_message(self, place: GroupQueue) -> bool:
        stored = self._broker.offsets.query_offset(place.group, place.topic, place.queue_id)
        low, high = self._broker.store.reader.bounds(place.topic, place.queue_id)
        return high > (stored if stored >= 0 else max(low, 0))

    def peek(self, asked: Asked) -> Steps:
        """Show the messages that a pop would take next; nothing is taken.

        Upstream: ``PeekMessageProcessor``.
        """
        header: PeekMessage = asked.header  # type: ignore[assignment]
        refusal = self._refusal(asked, header, "peek")
        if refusal is not None:
            return refusal
        group, most, left, found = header.consumer_group, header.max_msg_nums, 0, []
        retry = pop_retry_topic(group, header.topic, v2=self._config.enable_retry_topic_v2)
        for topic, queue_id in [*((header.topic, one) for one in self._queues(header, self._any_queue())), (retry, 0)]:
            low, high = self._broker.store.reader.bounds(topic, queue_id)
            stored = self._broker.offsets.query_offset(group, topic, queue_id)
            begin = stored if stored >= 0 else max(low, 0)
            left += max(high - begin, 0)
            if begin < high and most > 0:
                got = yield partial(self._broker.store.reader.get, topic, queue_id, begin, most)
                found.append(got.joined())
                most -= got.count
        told = PopMessageAnswer(pop_time=0, invisible_time=0, revive_qid=0, rest_num=left)
        if not any(found):
            return answer(asked.command, _S.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", header=told)
        return answer(asked.command, _S.SUCCESS, "FOUND", header=told, body=b"".join(found))

    def polling_info(self, asked: Asked) -> RemotingCommand:
        """Say how many pops wait for a queue."""
        header: PollingInfo = asked.header  # type: ignore[assignment]
        refusal = self._refusal(asked, header, "peeking")
        if refusal is not None:
            return refusal
        count = self.count_waiting(GroupQueue(header.topic, header.consumer_group, header.queue_id))
        return answer(asked.command, header=PollingInfoAnswer(polling_num=count))

    # Acks.

    def ack(self, asked: Asked) -> Reply:
        """Take the ack of a message."""
        header: AckMessage = asked.header  # type: ignore[assignment]
        receipt = self._receipt(asked, header)
        if isinstance(receipt, RemotingCommand):
            return receipt
        if receipt.revive_queue_id == REVIVE_QUEUE:
            place = GroupQueue(header.topic, header.consumer_group, header.queue_id)
            return self._ack_in_order(asked, place, receipt, [header.offset])
        message = self._pops.ack_message(header.consumer_group, header.topic, receipt)
        ticket = self._broker.store.put_async(message)
        return Putting(ticket, partial(_acked, asked.command, [ticket]))

    def _receipt(self, asked: Asked, header: AckMessage | ChangeInvisibleTime) -> PopReceipt | RemotingCommand:
        """Return the receipt of one message, or the answer that refuses it."""
        command, config = asked.command, self._broker.topics.find(header.topic)
        if config is None:
            return refuse(command, TOPIC_NOT_EXIST_TO_PULL, self._broker.version, topic=header.topic)
        queues = int(config["readQueueNums"])
        if not 0 <= header.queue_id < queues:
            holes = {"queue_id": header.queue_id, "topic": header.topic, "queues": queues, "client": asked.client}
            return answer(command, _S.MESSAGE_ILLEGAL, PULL_QUEUE_ILLEGAL.of(self._broker.version, **holes)[1])
        low, high = self._broker.store.reader.bounds(header.topic, header.queue_id)
        is_change = isinstance(header, ChangeInvisibleTime)
        if not max(low, 0) <= header.offset <= high - is_change:
            place = f"key:{header.topic}@{header.queue_id}, commit:{header.offset}, store:{max(low, 0)}~{high}"
            return answer(command, _S.NO_MESSAGE, None if is_change else f"offset is illegal, {place}")
        # A proxy adds the physical offset of the message.
        found = decode_pop_receipt(" ".join(header.extra_info.split(" ")[:_PARTS]))
        if found is None:
            return answer(command, _S.SYSTEM_ERROR, f"{header.extra_info!r} is not the handle of a message")
        return found._replace(queue_id=header.queue_id, queue_offset=header.offset)

    def _ack_in_order(
        self, asked: Asked, place: GroupQueue, receipt: PopReceipt, offsets: Iterable[int]
    ) -> RemotingCommand:
        for offset in offsets:
            before = self._broker.offsets.query_offset(place.group, place.topic, place.queue_id)
            found = self._pops.ack_in_order(place, receipt, offset)
            if found == ILLEGAL:
                key = f"{place.topic}@{place.group}@{place.queue_id}"
                told = f"old:{before}, commit:{offset}, next:{found}, {asked.client}"
                return answer(asked.command, _S.MESSAGE_ILLEGAL, f"offset is illegal, key:{key}, {told}")
        if not self._pops.ordered.is_blocked(place, receipt.invisible_time):
            self.freed(place)
        return answer(asked.command)

    def ack_many(self, asked: Asked) -> Reply:
        """Take the acks of many messages, which a proxy collects."""
        body = BatchAckMessageRequestBody.decode(asked.command.body)
        if not body.acks:
            return answer(asked.command, _S.NO_MESSAGE)
        tickets, refused = [], None
        for one in body.acks:
            times = one.start_offset, one.pop_time, one.invisible_time, one.revive_queue_id
            receipt = PopReceipt(*times, one.retry, body.broker_name, one.queue_id)
            topic = _popped_topic(one)
            low, high = self._broker.store.reader.bounds(topic, one.queue_id)
            offsets = [offset for offset in _acked_offsets(one) if max(low, 0) <= offset <= high]
            if one.revive_queue_id == REVIVE_QUEUE:
                place = GroupQueue(topic, one.consumer_group, one.queue_id)
                found = self._ack_in_order(asked, place, receipt, offsets)
                refused = refused or (found if found.code else None)
            elif offsets:
                message = self._pops.batch_ack_message(one.consumer_group, topic, receipt, offsets)
                tickets.append(self._broker.store.put_async(message))
        if refused is not None or not tickets:
            return refused or answer(asked.command)
        return Putting(tickets[-1], partial(_acked, asked.command, tickets))

    def change_invisible(self, asked: Asked) -> RemotingCommand:
        """Give a popped message another time to come again."""
        header: ChangeInvisibleTime = asked.header  # type: ignore[assignment]
        receipt = self._receipt(asked, header)
        if isinstance(receipt, RemotingCommand):
            return receipt
        group, topic = header.consumer_group, header.topic
        changed: PopReceipt | None
        if receipt.revive_queue_id == REVIVE_QUEUE:
            place = GroupQueue(topic, group, header.queue_id)
            changed = self._pops.postpone_in_order(place, receipt, header.offset, header.invisible_time)
        else:
            changed = self._pops.change_invisible(group, topic, receipt, header.invisible_time)
        if changed is None:
            return answer(asked.command, _S.SYSTEM_ERROR, self._broker.refusal_of_puts())
        told = ChangeInvisibleTimeAnswer(
            pop_time=changed.pop_time, invisible_time=changed.invisible_time, revive_qid=changed.revive_queue_id
        )
        return answer(asked.command, header=told)


def _joined(parts: Iterable[tuple[Taken, str]]) -> str:
    """Join a text for each queue, as upstream's ``ExtraInfoUtil`` does."""
    return ";".join(f"{one.retry_flag} {one.queue_id} {text}" for one, text in parts)


def _acked(command: RemotingCommand, tickets: list[PutTicket]) -> RemotingCommand:
    """Answer acks. upstream: it is a success even where the ack is not stored, and the message comes again."""
    for ticket in tickets:
        if ticket.status is not None and not ticket.status.is_stored:
            return answer(command, _S.SYSTEM_ERROR, ticket.status.value)
    return answer(command)


def _popped_topic(one: BatchAck) -> str:
    """Return the topic that has the messages: a proxy names the one that was popped."""
    if one.retry == "0" or one.topic.startswith(RETRY_PREFIX):
        return one.topic
    return pop_retry_topic(one.consumer_group, one.topic, v2=one.retry == "2")


def _acked_offsets(one: BatchAck) -> list[int]:
    """Return the queue offsets of a batch ack: each bit that is set is a distance from the first."""
    try:
        octets = b64decode(one.bit_set or "", validate=True)
    except ValueError:
        raise BodyError(f"{one.bit_set!r} are not the bits of acks") from None
    distances = [8 * place + bit for place, octet in enumerate(octets) for bit in range(8) if octet >> bit & 1]
    return [one.start_offset + distance for distance in distances]
