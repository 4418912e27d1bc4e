"""Queries: offsets of groups and queues, messages by key, and the one at a place of the log; and commits of offsets.

Upstream: ``ConsumerManageProcessor``, ``AdminBrokerProcessor``, ``QueryMessageProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.replies import Searching, Steps
from rmqtool.config import Version
from rmqtool.formats.commit_log import Message
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.answers import NO_MESSAGE_AT, NO_MESSAGE_FOUND, NO_OFFSET, answer, refuse
from rmqtool.remoting.bodies.broker import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from rmqtool.remoting.bodies.routes import DataVersion
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.declared import BoundaryType
from rmqtool.remoting.headers import NoFields, Request
from rmqtool.remoting.requests.messages import QueryMessage, QueryMessageAnswer, ViewMessage
from rmqtool.remoting.requests.offsets import (
    GetAllConsumerOffset,
    GetAllDelayOffset,
    GetEarliestMsgStoretime,
    GetEarliestMsgStoretimeAnswer,
    GetMaxOffset,
    GetMaxOffsetAnswer,
    GetMinOffset,
    GetMinOffsetAnswer,
    QueryConsumerOffset,
    QueryConsumerOffsetAnswer,
    SearchOffset,
    SearchOffsetAnswer,
    UpdateConsumerOffset,
)
from rmqtool.store.time_search import Boundary

_REMARKS = {
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "Group {group} not exist!",
    ResponseCode.TOPIC_NOT_EXIST: "Topic {topic} not exist!",
    ResponseCode.INVALID_PARAMETER: "QueueId is null, topic is {topic}",
}
# The field by which clients say that a key is a unique one.
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_PREVIOUSLY_RESET = "Offset has been previously reset"


def query_offset(broker: Broker, asked: Asked) -> RemotingCommand:
    """Say where a group goes on in a queue."""
    header: QueryConsumerOffset = asked.header  # type: ignore[assignment]
    found = broker.offset_requests.query(
        header.consumer_group,
        header.topic,
        header.queue_id,
        zero_if_not_found=header.set_zero_if_not_found is not False,
    )
    if found is None:
        code, remark = NO_OFFSET.of(broker.version)
        return answer(asked.command, code, remark, header=NoFields())
    return answer(asked.command, header=QueryConsumerOffsetAnswer(offset=found))


def all_offsets(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read how far all groups are."""
    table = {
        f"{topic}@{group}": dict(broker.offsets.offsets_of(group, topic))
        for topic, group in broker.offsets.iter_subscriptions()
    }
    body = ConsumerOffsetSerializeWrapper(offset_table=table)
    if broker.config.version is not Version.V4_9:
        # A slave of 5.x fails without it.
        body = body.replace(data_version=DataVersion.read(broker.offsets.data_version))
    return answer(asked.command, body=body)


def all_delay_offsets(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read how far each delay level is delivered."""
    delay = broker.services.delay
    body = DelayOffsetSerializeWrapper(offset_table=dict(delay.offsets))
    if broker.config.version is not Version.V4_9:
        body = body.replace(data_version=DataVersion.read(delay.data_version))
    return answer(asked.command, body=body)


def update_offset(broker: Broker, asked: Asked) -> RemotingCommand:
    """Take a commit."""
    header: UpdateConsumerOffset = asked.header  # type: ignore[assignment]
    group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
    is_reset = broker.offsets.has_pending_reset(group, topic, queue_id)
    code = broker.offset_requests.update(group, topic, queue_id, header.commit_offset)
    if code is ResponseCode.SUCCESS:
        return answer(asked.command, code, _PREVIOUSLY_RESET if is_reset else None, header=NoFields())
    text = _REMARKS.get(code, "")
    return answer(asked.command, code, text.format(group=group, topic=topic), header=NoFields())


def search_offset(broker: Broker, asked: Asked) -> Searching:
    """Find the offset for a time."""
    header: SearchOffset = asked.header  # type: ignore[assignment]
    boundary = Boundary.UPPER if header.boundary_type is BoundaryType.UPPER else Boundary.LOWER

    def search() -> RemotingCommand:
        found = broker.store.reader.offset_by_time(header.topic, header.queue_id, header.timestamp, boundary)
        return answer(asked.command, header=SearchOffsetAnswer(offset=found))

    return Searching(search)


def max_offset(broker: Broker, asked: Asked) -> RemotingCommand:
    """Say which offset the next message of a queue gets."""
    header: GetMaxOffset = asked.header  # type: ignore[assignment]
    found = broker.queues.max_offset(header.topic, header.queue_id)
    return answer(asked.command, header=GetMaxOffsetAnswer(offset=found))


def min_offset(broker: Broker, asked: Asked) -> RemotingCommand:
    """Say with which offset a queue begins."""
    header: GetMinOffset = asked.header  # type: ignore[assignment]
    found = broker.queues.min_offset(header.topic, header.queue_id)
    return answer(asked.command, header=GetMinOffsetAnswer(offset=found))


def earliest_time(broker: Broker, asked: Asked) -> Steps:
    """Say when the first message of a queue was stored."""
    header: GetEarliestMsgStoretime = asked.header  # type: ignore[assignment]
    low = broker.queues.min_offset(header.topic, header.queue_id)
    time = yield partial(stored_at, broker, header.topic, header.queue_id, low)
    return answer(asked.command, header=GetEarliestMsgStoretimeAnswer(timestamp=time))


def stored_at(broker: Broker, topic: str, queue_id: int, queue_offset: int, *, waits: bool) -> int:
    """Return when the message at an offset was stored, -1 without such a message. Without ``waits`` NotInMemory."""
    got = broker.store.reader.get(topic, queue_id, queue_offset, 1, waits=waits)
    record = next(iter(got.fields("store_timestamp")), None)
    return -1 if record is None else int(record[0])


def query_message(broker: Broker, asked: Asked) -> Searching:
    """Find messages with a key, in a time."""
    header: QueryMessage = asked.header  # type: ignore[assignment]
    is_unique = asked.command.ext.get(UNIQUE_KEY_QUERY) == "true"
    most = broker.config.default_query_max_num if is_unique else header.max_num

    def search() -> RemotingCommand:
        found = broker.store.reader.query(header.topic, header.key, most, header.begin_timestamp, header.end_timestamp)
        last = found[-1] if found else None
        told = QueryMessageAnswer(
            index_last_update_timestamp=0 if last is None else last.store_timestamp,
            index_last_update_phyoffset=0 if last is None else last.physical_offset,
        )
        if not found:
            code, remark = NO_MESSAGE_FOUND.of(broker.version)
            return answer(asked.command, code, remark, header=told)
        return answer(asked.command, header=told, body=b"".join(record_bytes(broker, one) for one in found))

    return Searching(search)


def view_message(broker: Broker, asked: Asked) -> Steps:
    """Read the message at a place of the log."""
    header: ViewMessage = asked.header  # type: ignore[assignment]
    record = yield partial(broker.store.reader.message_at, header.offset)
    if record is None:
        return refuse(asked.command, NO_MESSAGE_AT, broker.version, offset=header.offset)
    return answer(asked.command, ResponseCode.SUCCESS, body=record_bytes(broker, record))


def record_bytes(broker: Broker, record: Message) -> bytes:
    """Return the bytes of a record as they are stored."""
    return broker.store.commit_log.read(record.physical_offset, record.total_size)


# The function that answers each of these requests.
ANSWERS: Mapping[type[Request], Callable[[Broker, Asked], RemotingCommand | Searching | Steps]] = {
    GetAllConsumerOffset: all_offsets,
    GetAllDelayOffset: all_delay_offsets,
    GetEarliestMsgStoretime: earliest_time,
    GetMaxOffset: max_offset,
    GetMinOffset: min_offset,
    QueryConsumerOffset: query_offset,
    QueryMessage: query_message,
    SearchOffset: search_offset,
    UpdateConsumerOffset: update_offset,
    ViewMessage: view_message,
}
