"""The state of a broker that tools and slaves read: tables of groups and offsets, bounds of queues, counters, rules."""

from __future__ import annotations

from typing import Any

from rmqtool.formats.message_queue import MessageQueue
from rmqtool.remoting.bodies.clients import SubscriptionData
from rmqtool.remoting.bodies.routes import DataVersion
from rmqtool.remoting.body import Body
from rmqtool.remoting.declared import Boolean, Integer, Long, String, field


class SubscriptionGroupConfig(Body):
    """The settings of a group."""

    attributes: dict[str, str] | None = field(default=None, since="5.1.3")
    broker_id: Long | None = None
    consume_broadcast_enable: Boolean | None = None
    consume_enable: Boolean | None = None
    consume_from_min_enable: Boolean | None = None
    consume_message_orderly: Boolean | None = field(default=None, since="5.0.0")
    consume_timeout_minute: Integer | None = field(default=None, since="5.0.0")
    group_name: String
    group_retry_policy: dict[str, Any] | None = field(default=None, since="5.0.0")
    group_sys_flag: Integer | None = field(default=None, since="5.0.0")
    notify_consumer_ids_changed_enable: Boolean | None = None
    retry_max_times: Integer | None = None
    retry_queue_nums: Integer | None = None
    subscription_data_set: list[dict[str, Any]] | None = field(default=None, since="5.1.1")
    which_broker_when_consume_slowly: Long | None = None


class SubscriptionGroupList(Body):
    """Settings of several groups."""

    group_config_list: list[SubscriptionGroupConfig]


class SubscriptionGroupWrapper(Body):
    """The settings of all groups, and which topics they may not read."""

    data_version: DataVersion | None = None
    forbidden_table: dict[str, dict[str, int]] | None = field(default=None, since="5.0.0")
    subscription_group_table: dict[str, SubscriptionGroupConfig]


class GroupForbidden(Body):
    """Whether a group may read a topic."""

    group: String
    readable: Boolean
    topic: String


class ConsumerOffsetSerializeWrapper(Body):
    """The offsets of all groups: for each ``topic@group`` those of the queues."""

    data_version: DataVersion | None = field(default=None, since="5.0.0")
    offset_table: dict[str, dict[int, int]]


class DelayOffsetSerializeWrapper(Body):
    """How far each delay level is delivered."""

    data_version: DataVersion | None = field(default=None, since="5.0.0")
    offset_table: dict[int, int]


class TimerMetrics(Body):
    """How many messages of each topic wait for their time."""

    data_version: DataVersion | None = None
    timing_count: dict[str, dict[str, int]]


class TopicOffset(Body):
    """The bounds of a queue."""

    last_update_timestamp: Long
    max_offset: Long
    min_offset: Long


class TopicStatsTable(Body):
    """The bounds of all queues of a topic."""

    offset_table: dict[MessageQueue, TopicOffset]
    topic_put_tps: float | None = field(default=None, since="5.0.0")


class OffsetWrapper(Body):
    """How far a group is with a queue. mqadmin of 5.x shows ``pull_offset`` less ``consumer_offset``."""

    broker_offset: Long
    consumer_offset: Long
    last_timestamp: Long
    pull_offset: Long | None = field(default=None, since="5.0.0")


class ConsumeStats(Body):
    """How far a group is with all its queues."""

    consume_tps: float
    offset_table: dict[MessageQueue, OffsetWrapper]


class ConsumeStatsList(Body):
    """That of all groups of a broker."""

    broker_addr: String
    consume_stats_list: list[dict[str, list[ConsumeStats]]]
    total_diff: Long | None = None
    total_inflight_diff: Long | None = field(default=None, since="5.0.0")


class GroupList(Body):
    """Names of groups."""

    group_list: list[str]


class QueueTimeSpan(Body):
    """Between which times messages of a queue are."""

    consume_time_stamp: Long
    delay_time: Long
    max_time_stamp: Long
    message_queue: MessageQueue
    min_time_stamp: Long


class QueryConsumeTimeSpanBody(Body):
    """That of all queues of a topic."""

    consume_time_span_set: list[QueueTimeSpan]


class QueryCorrectionOffsetBody(Body):
    """The least offset of all groups in each queue of a topic."""

    correction_offsets: dict[int, int]


class ConsumeQueueData(Body):
    """An entry of a queue."""

    bit_map: String | None = None
    eval: Boolean
    extend_data_json: String | None = None
    msg: String | None = None
    physic_offset: Long
    physic_size: Integer
    tags_code: Long


class QueryConsumeQueueResponseBody(Body):
    """Entries of a queue."""

    filter_data: String | None = None
    max_queue_index: Long
    min_queue_index: Long
    queue_data: list[ConsumeQueueData]
    subscription_data: SubscriptionData | None = None


class QuerySubscriptionResponseBody(Body):
    """The subscription of a group to a topic."""

    group: String
    subscription_data: SubscriptionData | None = None
    topic: String


class BrokerStatsItem(Body):
    """A counter over some time: the sum, by the second, and by the call."""

    avgpt: float
    sum: Long
    tps: float


class BrokerStatsData(Body):
    """A counter over the last minute, hour and day."""

    stats_day: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_minute: BrokerStatsItem


class HARuntimeInfo(Body):
    """How far the slaves of a master are."""

    ha_client_runtime_info: dict[str, Any] | None = None
    ha_connection_info: list[dict[str, Any]]
    in_sync_slave_nums: Integer
    master: Boolean
    master_commit_log_max_offset: Long


class UserInfo(Body):
    """A user of 5.x."""

    password: String | None = field(default=None, secret=True)
    user_status: String | None = None
    user_type: String | None = None
    username: String


class AclInfo(Body):
    """The access rules of a subject."""

    policies: list[dict[str, Any]]
    subject: String
