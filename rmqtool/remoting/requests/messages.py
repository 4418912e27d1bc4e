"""Requests that carry messages, or act on one: sending, pulling, queries, retries, transactions."""

from __future__ import annotations

from rmqtool.formats.property_names import MSG_REGION, TRACE_ON
from rmqtool.remoting.body import Content
from rmqtool.remoting.declared import GROUP, TOPIC, Boolean, Integer, Long, String, field, long
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


class SendMessageAnswer(Header):
    """The answer to ``SendMessage``."""

    java = "SendMessageResponseHeader"
    strict = True

    msg_id: String
    queue_id: Integer
    queue_offset: Long
    transaction_id: String | None = None
    batch_uniq_id: String | None = field(default=None, since="5.0.0")
    recall_handle: String | None = field(default=None, since="5.3.2")
    msg_region: String | None = field(default=None, wire=MSG_REGION)
    trace_on: String | None = field(default=None, wire=TRACE_ON)


class SendMessage(TopicQueueRequest):
    """Store a message, a batch of them (320), or the reply to one (324, 325).

    Java and Node send 310, Go and C++ 10.
    """

    codes = (
        Code(10, "SEND_MESSAGE"),
        Code(310, "SEND_MESSAGE_V2", short=True),
        Code(320, "SEND_BATCH_MESSAGE", short=True),
        Code(324, "SEND_REPLY_MESSAGE"),
        Code(325, "SEND_REPLY_MESSAGE_V2", short=True),
    )
    java = "SendMessageRequestHeader"
    java_short = "SendMessageRequestHeaderV2"
    strict = True
    answer = SendMessageAnswer
    body = Content.MESSAGE
    rights = (Right.PUB,)
    old_right = OldRight.PUB

    producer_group: String = field(short="a")
    topic: String = field(acl=TOPIC, short="b")
    default_topic: String = field(short="c")
    default_topic_queue_nums: Integer = field(short="d")
    queue_id: Integer = field(short="e")
    sys_flag: Integer = field(short="f")
    born_timestamp: Long = field(short="g")
    flag: Integer = field(short="h")
    properties: String | None = field(default=None, short="i")
    reconsume_times: Integer | None = field(default=None, short="j")
    unit_mode: Boolean | None = field(default=None, short="k", boxed_since="5.0.0")
    batch: Boolean | None = field(default=None, short="m", boxed_since="5.0.0")
    max_reconsume_times: Integer | None = field(default=None, short="l")
    bname: String | None = field(default=None, short="n")


class PullMessageAnswer(Header):
    """The answer to ``PullMessage``."""

    java = "PullMessageResponseHeader"
    strict = True

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = field(default=None, since="5.0.0")
    topic_sys_flag: Integer | None = field(default=None, since="5.0.0")
    group_sys_flag: Integer | None = field(default=None, since="5.0.0")
    forbidden_type: Integer | None = field(default=None, since="5.0.0")


class PullMessage(TopicQueueRequest):
    """Read messages of one queue.

    The broker may hold the request until there are some (`sysFlag` 2); `sysFlag` 1 says that `commitOffset` counts.
    """

    codes = (Code(11, "PULL_MESSAGE"), Code(361, "LITE_PULL_MESSAGE", since="5.0.0"))
    java = "PullMessageRequestHeader"
    strict = True
    answer = PullMessageAnswer
    answer_body = Content.RECORDS
    rights = (Right.SUB,)
    old_right = OldRight.SUB

    consumer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    queue_id: Integer
    queue_offset: Long
    max_msg_nums: Integer
    sys_flag: Integer
    commit_offset: Long
    suspend_timeout_millis: Long
    subscription: String | None = None
    sub_version: Long
    expression_type: String | None = None
    max_msg_bytes: Integer | None = field(default=None, since="5.0.0")
    request_source: Integer | None = field(default=None, since="5.1.0")
    proxy_froward_client_id: String | None = field(default=None, since="5.1.0")
    lite_topic: String | None = field(default=None, since="5.5.0")
    bname: String | None = None


class QueryMessageAnswer(Header):
    """The answer to ``QueryMessage``."""

    java = "QueryMessageResponseHeader"

    index_last_update_timestamp: Long
    index_last_update_phyoffset: Long


class QueryMessage(TopicRequest):
    """Find messages by key, or by unique key where the field `_UNIQUE_KEY_QUERY` is true."""

    codes = (Code(12, "QUERY_MESSAGE"),)
    java = "QueryMessageRequestHeader"
    answer = QueryMessageAnswer
    answer_body = Content.RECORDS
    rights = (Right.SUB, Right.GET)
    old_right = OldRight.SUB

    topic: String = field(acl=TOPIC)
    key: String
    max_num: Integer
    begin_timestamp: Long
    end_timestamp: Long
    index_type: String | None = field(default=None, since="5.4.0")
    last_key: String | None = field(default=None, since="5.4.0")


class ViewMessage(Request):
    """Read the one message at a physical offset."""

    codes = (Code(33, "VIEW_MESSAGE_BY_ID"),)
    java = "ViewMessageRequestHeader"
    answer_body = Content.RECORDS
    rights = (Right.GET,)

    offset: Long
    topic: String | None = field(default=None, acl=TOPIC, since="5.3.0")


class ConsumerSendMsgBack(RpcRequest):
    """Deliver a message again later. `offset` is the physical one."""

    codes = (Code(36, "CONSUMER_SEND_MSG_BACK"),)
    java = "ConsumerSendMsgBackRequestHeader"
    rights = (Right.SUB,)
    old_right = OldRight.SUB

    offset: Long
    group: String = field(acl=GROUP)
    delay_level: Integer
    origin_msg_id: String | None = None
    origin_topic: String | None = field(default=None, acl=TOPIC, acl_since="5.0.0")
    unit_mode: bool = False
    max_reconsume_times: Integer | None = None
    bname: String | None = None


class EndTransaction(RpcRequest):
    """Commit (8) or roll back (12) a prepared message. Java sends it oneway, Go does not."""

    codes = (Code(37, "END_TRANSACTION"),)
    java = "EndTransactionRequestHeader"
    rights = (Right.PUB,)

    producer_group: String
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Integer
    from_transaction_check: Boolean = False
    msg_id: String
    transaction_id: String | None = None
    topic: String | None = field(default=None, acl=TOPIC, since="5.3.0")
    bname: String | None = None


class CheckTransactionState(RpcRequest):
    """Ask a producer what became of a transaction; it answers with 37. The body is the prepared message."""

    codes = (Code(39, "CHECK_TRANSACTION_STATE"),)
    java = "CheckTransactionStateRequestHeader"
    to = Role.CLIENT
    body = Content.RECORDS
    rights = (Right.PUB,)

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: String | None = None
    transaction_id: String | None = None
    offset_msg_id: String | None = None
    topic: String | None = field(default=None, acl=TOPIC, since="5.3.0")
    bname: String | None = None


class ReplyMessage(TopicQueueRequest):
    """Pass a reply on to the client that waits for it. The client answers."""

    codes = (Code(326, "PUSH_REPLY_MESSAGE_TO_CLIENT"),)
    java = "ReplyMessageRequestHeader"
    to = Role.CLIENT
    body = Content.MESSAGE
    rights = (Right.SUB,)

    producer_group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    default_topic: String
    default_topic_queue_nums: Integer
    queue_id: Integer
    sys_flag: Integer
    born_timestamp: Long
    flag: Integer
    properties: String | None = None
    reconsume_times: Integer | None = None
    unit_mode: bool = False
    born_host: String
    store_host: String
    store_timestamp: long = field()


class RecallMessageAnswer(Header):
    """The answer to ``RecallMessage``."""

    java = "RecallMessageResponseHeader"
    java_since = "5.3.2"

    msg_id: String


class RecallMessage(TopicRequest):
    """Take back a message that waits for its time."""

    codes = (Code(370, "RECALL_MESSAGE", since="5.3.2"),)
    java = "RecallMessageRequestHeader"
    java_since = "5.3.2"
    answer = RecallMessageAnswer
    rights = (Right.PUB,)

    producer_group: String | None = None
    topic: String = field(acl=TOPIC)
    recall_handle: String
