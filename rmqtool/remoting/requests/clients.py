"""Requests of clients about themselves, and of brokers to clients: heartbeats, members, locks."""

from __future__ import annotations

from rmqtool.remoting.bodies.clients import (
    CheckClientRequestBody,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    GetConsumerListByGroupResponseBody,
    GetConsumerStatusBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerTableInfo,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    ResetOffsetBody,
    UnlockBatchRequestBody,
)
from rmqtool.remoting.body import Content
from rmqtool.remoting.declared import CLUSTER, GROUP, TOPIC, Boolean, Integer, Long, String, field, long
from rmqtool.remoting.headers import (
    Code,
    Header,
    OldRight,
    Request,
    Right,
    Role,
    RpcRequest,
    TopicQueueRequest,
    TopicRequest,
)


class HeartbeatAnswer(Header):
    """Whether the broker takes short heartbeats (V2), and whether it wants the subscriptions again."""

    is_support_heart_beat_v2: Boolean | None = field(default=None, wire="IS_SUPPORT_HEART_BEAT_V2", since="5.1.0")
    is_sub_change: Boolean | None = field(default=None, wire="IS_SUB_CHANGE", since="5.1.0")


class Heartbeat(RpcRequest):
    """Say which groups this client is in and what it subscribes to; every 30 seconds."""

    codes = (Code(34, "HEART_BEAT"),)
    java = "HeartbeatRequestHeader"
    java_since = "5.2.0"
    answer = HeartbeatAnswer
    body = HeartbeatData
    rights = (Right.SUB,)
    old_right = OldRight.SUB


class UnregisterClient(RpcRequest):
    """Leave a group. Go never sends it: it closes the connection."""

    codes = (Code(35, "UNREGISTER_CLIENT"),)
    java = "UnregisterClientRequestHeader"
    rights = (Right.PUB, Right.SUB)
    old_right = OldRight.SUB

    client_id: String = field(wire="clientID")
    producer_group: String | None = None
    consumer_group: String | None = field(default=None, acl=GROUP)


class GetConsumerListByGroup(RpcRequest):
    """List the client ids of a group; a member shares out the queues from it."""

    codes = (Code(38, "GET_CONSUMER_LIST_BY_GROUP"),)
    java = "GetConsumerListByGroupRequestHeader"
    answer_body = GetConsumerListByGroupResponseBody
    rights = (Right.SUB, Right.GET)
    old_right = OldRight.SUB

    consumer_group: String = field(acl=GROUP)


class NotifyConsumerIdsChanged(RpcRequest):
    """Tell a member that the group changed: it rebalances at once. Oneway."""

    codes = (Code(40, "NOTIFY_CONSUMER_IDS_CHANGED"),)
    java = "NotifyConsumerIdsChangedRequestHeader"
    to = Role.CLIENT
    rights = (Right.SUB,)

    consumer_group: String = field(acl=GROUP)


class LockBatchMq(RpcRequest):
    """Lock queues for ordered consumption; the answer lists those that are held."""

    codes = (Code(41, "LOCK_BATCH_MQ"),)
    java = "LockBatchMqRequestHeader"
    java_since = "5.2.0"
    body = LockBatchRequestBody
    answer_body = LockBatchResponseBody
    rights = (Right.SUB,)


class UnlockBatchMq(RpcRequest):
    """Give locked queues back."""

    codes = (Code(42, "UNLOCK_BATCH_MQ"),)
    java = "UnlockBatchMqRequestHeader"
    java_since = "5.2.0"
    body = UnlockBatchRequestBody
    rights = (Right.SUB,)


class CheckClientConfig(Request):
    """Check a subscription that is not by tag, before the consumer starts."""

    codes = (Code(46, "CHECK_CLIENT_CONFIG"),)
    body = CheckClientRequestBody


class QueryAssignment(Request):
    """Ask which queues of a topic to take, and whether to pull or to pop."""

    codes = (Code(400, "QUERY_ASSIGNMENT", since="5.0.0"),)
    body = QueryAssignmentRequestBody
    answer_body = QueryAssignmentResponseBody


class GetConsumerConnectionList(RpcRequest):
    """List the members of a consumer group and their subscriptions."""

    codes = (Code(203, "GET_CONSUMER_CONNECTION_LIST"),)
    java = "GetConsumerConnectionListRequestHeader"
    answer_body = ConsumerConnection
    rights = (Right.GET,)

    consumer_group: String = field(acl=GROUP)


class GetProducerConnectionList(RpcRequest):
    """List the members of a producer group."""

    codes = (Code(204, "GET_PRODUCER_CONNECTION_LIST"),)
    java = "GetProducerConnectionListRequestHeader"
    answer_body = ProducerConnection
    rights = (Right.GET,)
    scope = CLUSTER

    producer_group: String


class GetAllProducerInfo(Request):
    """List the producers of every group."""

    codes = (Code(328, "GET_ALL_PRODUCER_INFO"),)
    java = "GetAllProducerInfoRequestHeader"
    answer_body = ProducerTableInfo
    rights = (Right.GET,)
    scope = CLUSTER


class GetConsumerRunningInfo(RpcRequest):
    """Ask a member how it is doing. The broker passes it on to the client, and its answer back."""

    codes = (Code(307, "GET_CONSUMER_RUNNING_INFO"),)
    java = "GetConsumerRunningInfoRequestHeader"
    answer_body = ConsumerRunningInfo
    rights = (Right.GET,)

    consumer_group: String = field(acl=GROUP)
    client_id: String
    jstack_enable: bool = False


class ConsumeMessageDirectly(TopicRequest):
    """Have a member consume one message now. The broker passes it on with the message."""

    codes = (Code(309, "CONSUME_MESSAGE_DIRECTLY"),)
    java = "ConsumeMessageDirectlyResultRequestHeader"
    body = Content.RECORDS
    answer_body = ConsumeMessageDirectlyResult
    rights = (Right.SUB,)

    consumer_group: String = field(acl=GROUP)
    client_id: String | None = None
    msg_id: String | None = None
    broker_name: String | None = None
    topic: String | None = field(default=None, acl=TOPIC, since="5.0.0")
    topic_sys_flag: Integer | None = field(default=None, since="5.0.0")
    group_sys_flag: Integer | None = field(default=None, since="5.0.0")


class ResetOffset(TopicQueueRequest):
    """Set the offsets of a group back or forward to a time; -1 is the end.

    A 4.9 broker tells the members (220).
    """

    codes = (Code(222, "INVOKE_BROKER_TO_RESET_OFFSET"), Code(220, "RESET_CONSUMER_CLIENT_OFFSET"))
    java = "ResetOffsetRequestHeader"
    body = ResetOffsetBody
    answer_body = ResetOffsetBody
    rights = (Right.UPDATE,)

    topic: String = field(acl=TOPIC)
    group: String = field(acl=GROUP)
    timestamp: long = field()
    is_force: bool = field()
    queue_id: int = field(default=-1, since="5.1.0")
    offset: Long | None = field(default=None, since="5.1.0")


class GetConsumerStatus(TopicRequest):
    """Ask members which offsets they have in memory."""

    codes = (Code(223, "INVOKE_BROKER_TO_GET_CONSUMER_STATUS"), Code(221, "GET_CONSUMER_STATUS_FROM_CLIENT"))
    java = "GetConsumerStatusRequestHeader"
    answer_body = GetConsumerStatusBody
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)
    group: String = field(acl=GROUP)
    client_addr: String | None = None
