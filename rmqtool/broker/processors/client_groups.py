"""Groups of clients: heartbeats, lists of members, locks of queues, and what tools ask of members.

Upstream: ``ClientManageProcessor``, ``ConsumerManageProcessor.getConsumerListByGroup``,
``AdminBrokerProcessor.lockBatchMQ`` and ``callConsumer``.
"""

from __future__ import annotations

from functools import partial

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.pull_message import TAG, subscription_flaw
from rmqtool.broker.processors.queries import record_bytes
from rmqtool.broker.processors.replies import Forwarded, Reply, Steps, Telling
from rmqtool.config import Version
from rmqtool.formats.ids import decode_offset_msg_id
from rmqtool.formats.message_queue import MessageQueue, order_queues
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import PERM_READ, PERM_WRITE, retry_topic
from rmqtool.remoting.answers import (
    GROUP_NOT_ONLINE_TO_RESET,
    MEMBER_NOT_ONLINE,
    NO_CONSUMER,
    NO_FILTER_BY,
    NO_MEMBERS,
    NO_TOPIC_TO_RESET,
    SUBSCRIPTION_UNREADABLE,
    answer,
    refuse,
)
from rmqtool.remoting.bodies.clients import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    GetConsumerStatusBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmqtool.remoting.command import ONEWAY, Language, RemotingCommand
from rmqtool.remoting.headers import NoFields
from rmqtool.remoting.requests.clients import (
    ConsumeMessageDirectly,
    GetConsumerListByGroup,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    HeartbeatAnswer,
    ResetOffset,
    UnregisterClient,
)

# RESET_CONSUMER_CLIENT_OFFSET: a broker of 4.9 sends it to the members of a group whose offsets are reset.
RESET_BY_MEMBER = 220
# GET_CONSUMER_STATUS_FROM_CLIENT
OFFSETS_OF_MEMBER = 221


def take_heartbeat(broker: Broker, asked: Asked) -> RemotingCommand:
    """Take a client's groups and subscriptions; their retry topics are made."""
    data = HeartbeatData.decode(asked.command.body)
    if data.without_sub:
        broker.clients.renew(asked.peer, data)
    else:
        for consumer in data.consumer_data_set or ():
            _take_consumer(broker, asked, data.client_id, consumer)
        for producer in data.producer_data_set or ():
            broker.clients.produce(asked.peer, data.client_id, producer.group_name)
    if broker.config.version is Version.V4_9:
        return answer(asked.command, header=NoFields())
    # 5.3 sets both in each answer: a client of short heartbeats (V2) then sends its subscriptions again.
    header = HeartbeatAnswer(is_support_heart_beat_v2=True, is_sub_change=True)
    return answer(asked.command, header=header)


def _take_consumer(broker: Broker, asked: Asked, client_id: str, data: ConsumerData) -> None:
    config = broker.groups.find_or_create(data.group_name)
    if config is None and broker.config.version is not Version.V4_9:
        # upstream: 4.9 registers the members of a group that it does not make.
        return
    queues = 1 if config is None else int(config.get("retryQueueNums", 1))
    broker.topics.ensure(retry_topic(data.group_name), queues, PERM_READ | PERM_WRITE)
    broker.clients.consume(asked.peer, client_id, data)
    if config is not None and not config.get("notifyConsumerIdsChangedEnable", True):
        broker.clients.changed.discard(data.group_name)


def unregister_client(broker: Broker, asked: Asked) -> RemotingCommand:
    """Take a client out of a group."""
    header: UnregisterClient = asked.header  # type: ignore[assignment]
    if header.producer_group:
        broker.clients.leave_producers(asked.peer.connection, header.producer_group)
    if header.consumer_group:
        broker.clients.leave_consumers(asked.peer.connection, header.consumer_group)
    return answer(asked.command, header=NoFields())


def list_consumers(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the client ids of a group, the asking one's too."""
    header: GetConsumerListByGroup = asked.header  # type: ignore[assignment]
    found = broker.clients.client_ids(header.consumer_group)
    if not found:
        return refuse(asked.command, NO_CONSUMER, broker.version, group=header.consumer_group)
    body = GetConsumerListByGroupResponseBody(consumer_id_list=found)
    return answer(asked.command, header=NoFields(), body=body)


def check_client_config(broker: Broker, asked: Asked) -> RemotingCommand:
    """Say whether a subscription can be served, before a consumer starts."""
    data = CheckClientRequestBody.decode(asked.command.body).subscription_data
    kind = data.expression_type or TAG
    if kind != TAG and not broker.config.enable_property_filter:
        return refuse(asked.command, NO_FILTER_BY, broker.version, expression_type=kind)
    flaw = subscription_flaw(data, broker.version)
    if flaw is not None:
        code, _ = SUBSCRIPTION_UNREADABLE.of(broker.version)
        return answer(asked.command, code, flaw)
    return answer(asked.command)


def lock_queues(broker: Broker, asked: Asked) -> RemotingCommand:
    """Lock queues for an ordered consumer; the answer lists those that it holds now."""
    body = LockBatchRequestBody.decode(asked.command.body)
    held = broker.locks.lock(body.consumer_group, body.client_id, body.mq_set)
    return answer(asked.command, body=LockBatchResponseBody(lock_ok_mq_set=order_queues(sorted(held))))


def unlock_queues(broker: Broker, asked: Asked) -> RemotingCommand:
    """Give locked queues back."""
    body = LockBatchRequestBody.decode(asked.command.body)
    broker.locks.unlock(body.consumer_group, body.client_id, body.mq_set)
    return answer(asked.command, ResponseCode.SUCCESS)


def ask_running_info(broker: Broker, asked: Asked) -> Reply:
    """Ask a member how it is doing."""
    header: GetConsumerRunningInfo = asked.header  # type: ignore[assignment]
    return _ask(broker, asked, header.consumer_group, header.client_id)


def have_consumed(broker: Broker, asked: Asked) -> Steps:
    """Have a member consume one message now; the broker adds the message to the request."""
    header: ConsumeMessageDirectly = asked.header  # type: ignore[assignment]
    place = decode_offset_msg_id(header.msg_id or "")
    reader = broker.store.reader
    record = None if place is None else (yield partial(reader.message_at, place.physical_offset))
    if record is None:
        return answer(asked.command, ResponseCode.SYSTEM_ERROR, f"no message has the id {header.msg_id}")
    return _ask(broker, asked, header.consumer_group, header.client_id or "", record_bytes(broker, record))


def _ask(broker: Broker, asked: Asked, group: str, client_id: str, body: bytes = b"") -> Reply:
    command, member = asked.command, broker.clients.find_member(group, client_id)
    if member is None:
        return refuse(command, MEMBER_NOT_ONLINE, broker.version, group=group, client_id=client_id)

    def answered(found: RemotingCommand | None) -> Reply:
        if found is None:
            remark = f"consumer <{group}> <{client_id}> Timeout"
            return answer(command, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        return found.replaced(opaque=command.opaque, serialize_type=command.serialize_type)

    return Forwarded(member, RemotingCommand(command.code, dict(command.ext), body), answered)


def ask_offsets(broker: Broker, asked: Asked) -> Reply:
    """Ask the members of a group, or one, which offsets they have in memory; one that does not answer is left out."""
    header: GetConsumerStatus = asked.header  # type: ignore[assignment]
    group = broker.clients.consumers.get(header.group)
    if group is None or not group.members:
        return refuse(asked.command, NO_MEMBERS, broker.version, group=header.group)
    one = (header.client_addr or "").strip()
    members = [(member, client.client_id) for member, client in group.members.items() if one in ("", client.client_id)]
    told = GetConsumerStatus(topic=header.topic, group=header.group).encode()
    found: dict[str, dict[MessageQueue, int]] = {}

    def ask_next() -> Reply:
        if not members:
            return answer(asked.command, body=GetConsumerStatusBody(consumer_table=found))
        member, client_id = members.pop(0)

        def answered(said: RemotingCommand | None) -> Reply:
            if said is not None and said.code == ResponseCode.SUCCESS and said.body:
                found[client_id] = GetConsumerStatusBody.decode(said.body).message_queue_table or {}
            return ask_next()

        return Forwarded(member, RemotingCommand(OFFSETS_OF_MEMBER, told), answered)

    return ask_next()


def reset_offsets(broker: Broker, asked: Asked) -> Reply:
    """Set the offsets of a group. With 5.x its members learn of it at their next pull; 4.9 has them set the offsets."""
    header: ResetOffset = asked.header  # type: ignore[assignment]
    if broker.config.version is Version.V4_9:
        return _have_members_reset(broker, asked, header)
    config = broker.topics.find(header.topic) or {}
    one_queue = header.queue_id is not None and header.queue_id >= 0
    queues = [header.queue_id] if one_queue else list(range(int(config.get("readQueueNums", 0))))
    to = header.offset if header.offset is not None and header.offset >= 0 and one_queue else None
    done = broker.offset_requests.reset(header.group, header.topic, queues, timestamp=header.timestamp, to=to)
    if done.code is not ResponseCode.SUCCESS:
        return answer(asked.command, done.code, done.remark)
    broker.forget_pulls(header.group, header.topic)
    table = {
        MessageQueue(header.topic, broker.config.broker_name, queue_id): offset
        for queue_id, offset in done.offsets.items()
    }
    return answer(asked.command, body=ResetOffsetBody(offset_table=table))


def _have_members_reset(broker: Broker, asked: Asked, header: ResetOffset) -> Reply:
    """Answer with the new offsets, and send them to each member of the group.

    C++ members get them as a list. upstream: all members do if a C++ client resets, else none.
    """
    command, group, topic = asked.command, header.group, header.topic
    config = broker.topics.find(topic)
    if config is None:
        return refuse(command, NO_TOPIC_TO_RESET, broker.version, topic=topic)
    members = broker.clients.consumers[group].members if group in broker.clients.consumers else {}
    queues, how = range(int(config["writeQueueNums"])), {"force": header.is_force, "is_online": bool(members)}
    done = broker.offset_requests.reset_online(group, topic, queues, header.timestamp, **how)
    if done.code is ResponseCode.CONSUMER_NOT_ONLINE:
        holes = {"group": group, "topic": topic, "timestamp": header.timestamp}
        return refuse(command, GROUP_NOT_ONLINE_TO_RESET, broker.version, **holes)
    if done.code is not ResponseCode.SUCCESS:
        return answer(command, done.code, done.remark)
    name = broker.config.broker_name
    body = ResetOffsetBody(offset_table={MessageQueue(topic, name, one): to for one, to in done.offsets.items()})
    listed = [
        MessageQueueForC(broker_name=name, offset=to, queue_id=one, topic=topic) for one, to in done.offsets.items()
    ]
    forms = body.encode(), ResetOffsetBodyForC(offset_table=listed).encode()
    told = ResetOffset(topic=topic, group=group, timestamp=header.timestamp, is_force=header.is_force).encode()
    requests = [
        (one, RemotingCommand(RESET_BY_MEMBER, told, forms[client.language == Language.CPP.name], flag=ONEWAY))
        for one, client in members.items()
    ]
    return Telling(answer(command, body=body), list(requests))
