"""Names of properties that have a meaning for RocketMQ. All other names belong to the user.

A constant has the name as it is stored. ``RESERVED_NAMES`` says since which version a name is used, and what its value
means. Upstream: ``MessageConst``.
"""

from __future__ import annotations

from typing import NamedTuple

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG = "TRANSFER_FLAG"
CORRECTION_FLAG = "CORRECTION_FLAG"
MQ2_FLAG = "MQ2_FLAG"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
UNIQ_KEY = "UNIQ_KEY"
CONSUME_START_TIME = "CONSUME_START_TIME"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID = "INSTANCE_ID"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
CLUSTER = "CLUSTER"
MSG_TYPE = "MSG_TYPE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
EXTEND_UNIQ_INFO = "EXTEND_UNIQ_INFO"
TRANSACTION_ID = "__transactionId__"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
DUP_INFO = "DUP_INFO"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
SHARDING_KEY = "__SHARDINGKEY"
FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT = "REDIRECT"
TRACE_CONTEXT = "TRACE_CONTEXT"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_CRC32 = "__CRC32#"
PRIORITY = "_SYS_MSG_PRIORITY_"
ORIGIN_GROUP = "ORIGIN_GROUP"
TIMER_ROLL_LABEL = "TIMER_ROLL_LABEL"
TRANS_OFFSET = "TRANS_OFFSET"

# Clients and brokers use properties with this prefix in memory only.
TRANSIENT_PREFIX = "__RMQ.TRANSIENT."


def is_reserved(name: str) -> bool:
    """Return whether upstream uses ``name``; all other names are the user's."""
    return name in RESERVED_NAMES or name.startswith(TRANSIENT_PREFIX)


class ReservedName(NamedTuple):
    """The first version that uses a property name, and what the value means."""

    since: str
    meaning: str


RESERVED_NAMES: dict[str, ReservedName] = {
    KEYS: ReservedName("4.0", "the user's keys, separated by single spaces; indexed"),
    TAGS: ReservedName("4.0", "the tag; its hash is the tags code in the queue"),
    WAIT: ReservedName("4.0", "whether the sender waits for flush and replicas"),
    DELAY: ReservedName("4.0", "delay level, from 1"),
    RETRY_TOPIC: ReservedName("4.0", "topic that a message sent back for retry came from"),
    REAL_TOPIC: ReservedName("4.0", "where a delayed, timed or half message belongs: topic"),
    REAL_QID: ReservedName("4.0", "where a delayed, timed or half message belongs: queue"),
    TRAN_MSG: ReservedName("4.0", "true on transactional messages"),
    PGROUP: ReservedName("4.0", "producer group of a transaction"),
    MIN_OFFSET: ReservedName("4.0", "client side: minimum of the queue when pulled"),
    MAX_OFFSET: ReservedName("4.0", "client side: maximum of the queue when pulled"),
    BUYER_ID: ReservedName("4.0", "a user id, opaque"),
    ORIGIN_MESSAGE_ID: ReservedName("4.0", "offset message id of the first delivery of a retried message"),
    TRANSFER_FLAG: ReservedName("4.0", "legacy marker"),
    CORRECTION_FLAG: ReservedName("4.0", "legacy marker"),
    MQ2_FLAG: ReservedName("4.0", "legacy marker"),
    RECONSUME_TIME: ReservedName("4.0", "retry count that the client states"),
    MAX_RECONSUME_TIMES: ReservedName("4.0", "retry limit that the client states"),
    MSG_REGION: ReservedName("4.0", "region of the broker, for tracing"),
    TRACE_ON: ReservedName("4.0", "whether the broker lets the message be traced"),
    UNIQ_KEY: ReservedName("4.0", "unique id made by the client, from 5.0 by the broker when absent; indexed"),
    CONSUME_START_TIME: ReservedName("4.0", "client side: when consumption began"),
    TRAN_PREPARED_QUEUE_OFFSET: ReservedName("4.3", "half-queue offset of the half message that this one replaces"),
    TRANSACTION_CHECK_TIMES: ReservedName("4.3", "how often the producer was asked about a half message"),
    CHECK_IMMUNITY_TIME_IN_SECONDS: ReservedName("4.3", "time before the first such question"),
    INSTANCE_ID: ReservedName("4.5.1", "instance of the service"),
    CORRELATION_ID: ReservedName("4.6.0", "request and reply belong together"),
    REPLY_TO_CLIENT: ReservedName("4.6.0", "client that waits for the reply"),
    TTL: ReservedName("4.6.0", "how long a request waits"),
    ARRIVE_TIME: ReservedName("4.6.0", "when the reply reached the broker"),
    PUSH_REPLY_TIME: ReservedName("4.6.0", "when the reply was pushed"),
    CLUSTER: ReservedName("4.6.0", "cluster of the broker, which adds it on every send"),
    MSG_TYPE: ReservedName("4.6.0", "kind of message in request and reply"),
    INNER_MULTI_DISPATCH: ReservedName("4.9.3", "further queues of the message, separated by commas"),
    INNER_MULTI_QUEUE_OFFSET: ReservedName("4.9.3", "its offsets in those queues, same order"),
    EXTEND_UNIQ_INFO: ReservedName("5.0", "what else makes the message unique"),
    TRANSACTION_ID: ReservedName("5.0", "transaction id of a half message: its unique id"),
    INNER_NUM: ReservedName("5.0", "messages in an inner batch"),
    INNER_BASE: ReservedName("5.0", "queue offset of the first message of an inner batch"),
    DUP_INFO: ReservedName("5.0", "a_b, needed on every record with duplicationEnable"),
    POP_CK: ReservedName("5.0", "receipt of a popped message"),
    POP_CK_OFFSET: ReservedName("5.0", "offset of the check point of a popped message"),
    FIRST_POP_TIME: ReservedName("5.0", "when the message was first popped"),
    SHARDING_KEY: ReservedName("5.0", "group of messages that stay in order"),
    FORWARD_QUEUE_ID: ReservedName("5.0", "queue the message is forwarded to"),
    REDIRECT: ReservedName("5.0", "the message was redirected"),
    TRACE_CONTEXT: ReservedName("5.0", "trace context of the producer"),
    TIMER_DELAY_SEC: ReservedName("5.0", "wanted delay in s"),
    TIMER_DELAY_MS: ReservedName("5.0", "wanted delay in ms"),
    TIMER_DELIVER_MS: ReservedName("5.0", "wanted time of delivery"),
    TIMER_ENQUEUE_MS: ReservedName("5.0", "when the message entered the timer"),
    TIMER_DEQUEUE_MS: ReservedName("5.0", "when the message left the timer"),
    TIMER_ROLL_TIMES: ReservedName("5.0", "how often the timer rolled the message"),
    TIMER_OUT_MS: ReservedName("5.0", "time of delivery, rounded to the timer's precision"),
    TIMER_DEL_UNIQKEY: ReservedName("5.0", "unique id of the timed message to cancel; 5.3 puts topic+ before it"),
    TIMER_DELAY_LEVEL: ReservedName("5.0", "delay level turned into a timer"),
    BORN_HOST: ReservedName("5.0", "host of the first producer, kept by a proxy"),
    BORN_TIMESTAMP: ReservedName("5.0", "time of the first producer, kept by a proxy"),
    DLQ_ORIGIN_TOPIC: ReservedName("5.1.0", "topic a dead letter came from"),
    DLQ_ORIGIN_MESSAGE_ID: ReservedName("5.1.0", "id of the message a dead letter was"),
    PROPERTY_CRC32: ReservedName("5.2.0", "checksum of the record up to this block, digits reversed"),
    PRIORITY: ReservedName("5.4.0", "priority; names the queue"),
    ORIGIN_GROUP: ReservedName("5.4.0", "consumer group of a POP retry"),
    TIMER_ROLL_LABEL: ReservedName("5.4.0", "R on a copy that the RocksDB timer rolled"),
    TRANS_OFFSET: ReservedName("5.4.0", "physical offset of the half record an op record decides"),
}
