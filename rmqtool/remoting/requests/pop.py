"""Consumption by POP: a message is acknowledged by itself, or comes again after a while."""

from __future__ import annotations

from rmqtool.remoting.bodies.clients import (
    BatchAckMessageRequestBody,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)
from rmqtool.remoting.body import Content
from rmqtool.remoting.declared import GROUP, TOPIC, Boolean, Integer, Long, String, field, long
from rmqtool.remoting.headers import Code, Header, Request, Right, TopicQueueRequest


class PopMessageAnswer(Header):
    """The answer to ``PopMessage``."""

    java = "PopMessageResponseHeader"
    java_since = "5.0.0"

    pop_time: long = field()
    invisible_time: long = field()
    revive_qid: int = field()
    rest_num: long = field()
    start_offset_info: String | None = None
    msg_offset_info: String | None = None
    order_count_info: String | None = None


class PopMessage(TopicQueueRequest):
    """Take messages of a topic for a while. The code does not fit into a ROCKETMQ header."""

    codes = (Code(200050, "POP_MESSAGE", since="5.0.0"),)
    java = "PopMessageRequestHeader"
    java_since = "5.0.0"
    answer = PopMessageAnswer
    answer_body = Content.RECORDS
    rights = (Right.SUB,)

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: int = field()
    max_msg_nums: int = field()
    invisible_time: long = field()
    poll_time: long = field()
    born_time: long = field()
    init_mode: int = field()
    exp_type: String | None = None
    exp: String | None = None
    order: Boolean = False
    attempt_id: String | None = field(default=None, since="5.1.1")


class AckMessage(TopicQueueRequest):
    """Say that a message is consumed. `extraInfo` is the handle that came with it."""

    codes = (Code(200051, "ACK_MESSAGE", since="5.0.0"),)
    java = "AckMessageRequestHeader"
    java_since = "5.0.0"
    rights = (Right.SUB,)

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: Integer
    extra_info: String
    offset: Long
    lite_topic: String | None = field(default=None, since="5.5.0")


class BatchAckMessage(Request):
    """Say it of many; proxies do."""

    codes = (Code(200151, "BATCH_ACK_MESSAGE", since="5.1.3"),)
    body = BatchAckMessageRequestBody


class PeekMessage(TopicQueueRequest):
    """Look at messages without taking them."""

    codes = (Code(200052, "PEEK_MESSAGE", since="5.0.0"),)
    java = "PeekMessageRequestHeader"
    java_since = "5.0.0"
    answer = PopMessageAnswer
    answer_body = Content.RECORDS
    rights = (Right.SUB,)

    topic: String = field(acl=TOPIC)
    queue_id: int = field()
    max_msg_nums: int = field()
    consumer_group: String = field(acl=GROUP)


class ChangeInvisibleTimeAnswer(Header):
    """The answer to ``ChangeInvisibleTime``."""

    java = "ChangeInvisibleTimeResponseHeader"
    java_since = "5.0.0"

    pop_time: long = field()
    invisible_time: long = field()
    revive_qid: int = field()


class ChangeInvisibleTime(TopicQueueRequest):
    """Give a message that was taken another time to come again."""

    codes = (Code(200053, "CHANGE_MESSAGE_INVISIBLETIME", since="5.0.0"),)
    java = "ChangeInvisibleTimeRequestHeader"
    java_since = "5.0.0"
    answer = ChangeInvisibleTimeAnswer
    rights = (Right.SUB,)

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: Integer
    extra_info: String
    offset: Long
    invisible_time: Long
    lite_topic: String | None = field(default=None, since="5.5.0")
    suspend: bool = field(default=False, since="5.5.0")


class NotificationAnswer(Header):
    """The answer to ``Notification``."""

    java = "NotificationResponseHeader"
    java_since = "5.0.0"

    has_msg: bool = field()
    polling_full: bool = field(default=False, since="5.3.2")


class Notification(TopicQueueRequest):
    """Wait until there are messages; proxies do."""

    codes = (Code(200054, "NOTIFICATION", since="5.0.0"),)
    java = "NotificationRequestHeader"
    java_since = "5.0.0"
    answer = NotificationAnswer
    rights = (Right.SUB,)

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: int = field()
    poll_time: long = field()
    born_time: long = field()
    order: Boolean = field(default=False, since="5.1.2")
    attempt_id: String | None = field(default=None, since="5.1.2")
    exp_type: String | None = field(default=None, since="5.5.0")
    exp: String | None = field(default=None, since="5.5.0")


class PollingInfoAnswer(Header):
    """The answer to ``PollingInfo``."""

    java = "PollingInfoResponseHeader"
    java_since = "5.0.0"

    polling_num: int = field()


class PollingInfo(TopicQueueRequest):
    """Ask how many requests wait for a queue."""

    codes = (Code(200055, "POLLING_INFO", since="5.0.0"),)
    java = "PollingInfoRequestHeader"
    java_since = "5.0.0"
    answer = PollingInfoAnswer
    rights = (Right.GET,)

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: int = field()


class SetMessageRequestMode(Request):
    """Set whether a group pulls or pops a topic."""

    codes = (Code(401, "SET_MESSAGE_REQUEST_MODE", since="5.0.0"),)
    body = SetMessageRequestModeRequestBody


class GetAllMessageRequestMode(Request):
    """Read these modes of all groups; slaves do."""

    codes = (Code(402, "GET_ALL_MESSAGE_REQUEST_MODE", since="5.0.0"),)
    answer_body = MessageRequestModeSerializeWrapper
