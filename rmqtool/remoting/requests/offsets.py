"""Offsets of queues and of groups."""

from __future__ import annotations

from rmqtool.remoting.bodies.broker import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    QueryCorrectionOffsetBody,
)
from rmqtool.remoting.declared import GROUP, TOPIC, Boolean, BoundaryType, Integer, Long, String, field
from rmqtool.remoting.headers import Code, Header, OldRight, Request, Right, RpcRequest, TopicQueueRequest, TopicRequest


class QueryConsumerOffsetAnswer(Header):
    """The answer to ``QueryConsumerOffset``."""

    java = "QueryConsumerOffsetResponseHeader"

    offset: Long


class QueryConsumerOffset(TopicQueueRequest):
    """Read the offset of a group in a queue; 22 if it does not exist."""

    codes = (Code(14, "QUERY_CONSUMER_OFFSET"),)
    java = "QueryConsumerOffsetRequestHeader"
    answer = QueryConsumerOffsetAnswer
    rights = (Right.SUB, Right.GET)

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: Integer
    set_zero_if_not_found: Boolean | None = field(default=None, since="5.0.0")
    bname: String | None = None


class UpdateConsumerOffset(TopicQueueRequest):
    """Store the next offset that a group wants to read. Java sends it oneway."""

    codes = (Code(15, "UPDATE_CONSUMER_OFFSET"),)
    java = "UpdateConsumerOffsetRequestHeader"
    rights = (Right.SUB, Right.UPDATE)
    old_right = OldRight.SUB

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: Integer
    commit_offset: Long
    bname: String | None = None


class SearchOffsetAnswer(Header):
    """The answer to ``SearchOffset``."""

    java = "SearchOffsetResponseHeader"

    offset: Long


class SearchOffset(TopicQueueRequest):
    """Find the first offset of a queue at or after a time."""

    codes = (Code(29, "SEARCH_OFFSET_BY_TIMESTAMP"),)
    java = "SearchOffsetRequestHeader"
    answer = SearchOffsetAnswer
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)
    queue_id: Integer
    timestamp: Long
    boundary_type: BoundaryType | None = field(default=None, since="5.1.4")
    lite_topic: String | None = field(default=None, since="5.5.0")
    bname: String | None = None


class GetMaxOffsetAnswer(Header):
    """The answer to ``GetMaxOffset``."""

    java = "GetMaxOffsetResponseHeader"

    offset: Long


class GetMaxOffset(TopicQueueRequest):
    """Read the next offset that a queue will give."""

    codes = (Code(30, "GET_MAX_OFFSET"),)
    java = "GetMaxOffsetRequestHeader"
    answer = GetMaxOffsetAnswer
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)
    queue_id: Integer
    committed: bool = field(default=True, since="5.0.0")
    bname: String | None = None


class GetMinOffsetAnswer(Header):
    """The answer to ``GetMinOffset``."""

    java = "GetMinOffsetResponseHeader"

    offset: Long


class GetMinOffset(TopicQueueRequest):
    """Read the first offset that a queue still has."""

    codes = (Code(31, "GET_MIN_OFFSET"),)
    java = "GetMinOffsetRequestHeader"
    answer = GetMinOffsetAnswer
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)
    queue_id: Integer
    bname: String | None = None


class GetEarliestMsgStoretimeAnswer(Header):
    """The answer to ``GetEarliestMsgStoretime``."""

    java = "GetEarliestMsgStoretimeResponseHeader"

    timestamp: Long


class GetEarliestMsgStoretime(TopicQueueRequest):
    """Read when the first message of a queue was stored; -1 if the queue has no message."""

    codes = (Code(32, "GET_EARLIEST_MSG_STORETIME"),)
    java = "GetEarliestMsgStoretimeRequestHeader"
    answer = GetEarliestMsgStoretimeAnswer
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)
    queue_id: Integer
    bname: String | None = None


class GetAllConsumerOffset(Request):
    """Read the offsets of all groups; slaves do."""

    codes = (Code(43, "GET_ALL_CONSUMER_OFFSET"),)
    answer_body = ConsumerOffsetSerializeWrapper


class GetAllDelayOffset(Request):
    """Read how far each delay level is delivered; slaves do."""

    codes = (Code(45, "GET_ALL_DELAY_OFFSET"),)
    answer_body = DelayOffsetSerializeWrapper


class CloneGroupOffset(RpcRequest):
    """Give one group the offsets of another."""

    codes = (Code(314, "CLONE_GROUP_OFFSET"),)
    java = "CloneGroupOffsetRequestHeader"
    rights = (Right.UPDATE,)

    src_group: String
    dest_group: String = field(acl=GROUP)
    topic: String | None = field(default=None, acl=TOPIC)
    offline: bool = False


class QueryCorrectionOffset(TopicRequest):
    """Compare the offsets of groups."""

    codes = (Code(308, "QUERY_CORRECTION_OFFSET"),)
    java = "QueryCorrectionOffsetHeader"
    answer_body = QueryCorrectionOffsetBody
    rights = (Right.GET,)

    filter_groups: String | None = field(default=None, acl=GROUP, splitter=",")
    compare_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
