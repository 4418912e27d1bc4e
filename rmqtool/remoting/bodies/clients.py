"""Bodies that clients send about themselves and their locks, and that brokers send about clients."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting.body import Body
from rmqtool.remoting.declared import Boolean, Integer, Long, String, field


# The order of each is upstream's: the C++ client sends the number.
class ConsumeType(StrEnum):
    """How a group takes its messages."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether each member gets every message, or all together."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without an offset begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body):
    """The subscription of a group to a topic. ``code_set`` are the hashes of the tags."""

    class_filter_mode: Boolean | None = None
    code_set: list[int] | None = None
    expression_type: String | None = None
    filter_class_source: String | None = None
    sub_string: String
    sub_version: Long | None = None
    tags_set: list[str] | None = None
    topic: String


class ConsumerData(Body):
    """A group that a client consumes for."""

    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    group_name: String
    message_model: MessageModel | None = None
    subscription_data_set: list[SubscriptionData] | None = None
    unit_mode: Boolean | None = None


class ProducerData(Body):
    """A group that a client produces for."""

    group_name: String


class HeartbeatData(Body):
    """The body of a heartbeat. ``without_sub``: the subscriptions are those of the fingerprint (V2)."""

    client_id: String = field(wire="clientID")
    consumer_data_set: list[ConsumerData] | None = None
    heartbeat_fingerprint: Integer | None = field(default=None, since="5.0.0")
    producer_data_set: list[ProducerData] | None = None
    without_sub: Boolean | None = field(default=None, since="5.0.0")


class CheckClientRequestBody(Body):
    """A subscription to be checked."""

    client_id: String
    group: String
    namespace: String | None = None
    subscription_data: SubscriptionData


class GetConsumerListByGroupResponseBody(Body):
    """The client ids of a group."""

    consumer_id_list: list[str]


class LockBatchRequestBody(Body):
    """Queues to be locked for a client."""

    client_id: String
    consumer_group: String
    mq_set: list[MessageQueue]
    only_this_broker: Boolean | None = field(default=None, since="5.0.0")


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Queues that a client gives back."""


class LockBatchResponseBody(Body):
    """The queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = field(wire="lockOKMQSet")


class QueryAssignmentRequestBody(Body):
    """Which queues of a topic should this client take?"""

    client_id: String
    consumer_group: String
    message_model: MessageModel
    strategy_name: String
    topic: String


class MessageRequestMode(StrEnum):
    """Whether a group pulls or pops."""

    PULL = "PULL"
    POP = "POP"


class MessageQueueAssignment(Body):
    """A queue to take. A queue id of -1 means all."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue
    mode: MessageRequestMode


class QueryAssignmentResponseBody(Body):
    """These ones; none are named where that is not known."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequestBody(Body):
    """Whether a group pulls or pops a topic."""

    consumer_group: String
    mode: MessageRequestMode
    pop_share_queue_num: Integer | None = None
    topic: String


class MessageRequestModeSerializeWrapper(Body):
    """These modes of all topics and groups."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]]


class Connection(Body):
    """A client that is connected."""

    client_addr: String
    client_id: String
    language: String
    version: Integer


class ConsumerConnection(Body):
    """The members of a consumer group and what they subscribe to."""

    connection_set: list[Connection]
    consume_from_where: ConsumeFromWhere | None = None
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    subscription_table: dict[str, SubscriptionData]


class ProducerConnection(Body):
    """The members of a producer group."""

    connection_set: list[Connection]


class ProducerInfo(Body):
    """A producer."""

    client_id: String
    language: String
    last_update_timestamp: Long
    remote_ip: String = field(wire="remoteIP")
    version: Integer


class ProducerTableInfo(Body):
    """The producers of every group."""

    data: dict[str, list[ProducerInfo]]


class ProcessQueueInfo(Body):
    """How far a client is with a queue."""

    cached_msg_count: Integer | None = None
    cached_msg_max_offset: Long | None = None
    cached_msg_min_offset: Long | None = None
    cached_msg_size_in_mib: Integer | None = field(default=None, wire="cachedMsgSizeInMiB")
    commit_offset: Long | None = None
    droped: Boolean | None = None
    last_consume_timestamp: Long | None = None
    last_lock_timestamp: Long | None = None
    last_pull_timestamp: Long | None = None
    locked: Boolean | None = None
    transaction_msg_count: Integer | None = None
    transaction_msg_max_offset: Long | None = None
    transaction_msg_min_offset: Long | None = None
    try_unlock_times: Long | None = None


class ConsumerRunningInfo(Body):
    """How a member of a group is doing."""

    jstack: String | None = None
    mq_pop_table: dict[MessageQueue, Any] | None = field(default=None, since="5.0.0")
    mq_table: dict[MessageQueue, ProcessQueueInfo]
    properties: dict[str, str]
    status_table: dict[str, Any]
    subscription_set: list[SubscriptionData]
    user_consumer_info: dict[str, str] | None = None


class ConsumeMessageDirectlyResult(Body):
    """The result for a message that a client was told to consume."""

    auto_commit: Boolean | None = None
    consume_result: String
    order: Boolean | None = None
    remark: String | None = None
    spent_time_mills: Long | None = None


class ResetOffsetBody(Body):
    """The offset that each queue gets."""

    offset_table: dict[MessageQueue, int]


class MessageQueueForC(Body):
    """A queue, and the offset that it gets."""

    broker_name: String
    offset: Long
    queue_id: int
    topic: String


class ResetOffsetBodyForC(Body):
    """The same for clients in C++."""

    offset_table: list[MessageQueueForC]


class GetConsumerStatusBody(Body):
    """The offsets that members have in memory, by client id."""

    consumer_table: dict[str, dict[MessageQueue, int]] | None = None
    message_queue_table: dict[MessageQueue, int] | None = None


class BatchAck(Body):
    """Messages of one pop of one queue: ``bit_set`` has a bit for each, the lowest first, as bytes in base64."""

    bit_set: String | None = field(default=None, wire="b")
    consumer_group: String = field(wire="c")
    invisible_time: Long = field(wire="it")
    pop_time: Long = field(wire="pt")
    queue_id: Integer = field(wire="q")
    revive_queue_id: Integer = field(wire="rq")
    retry: String = field(wire="r")
    start_offset: Long = field(wire="so")
    topic: String = field(wire="t")


class BatchAckMessageRequestBody(Body):
    """Messages that are consumed."""

    acks: list[BatchAck]
    broker_name: String
