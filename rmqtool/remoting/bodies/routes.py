"""Where topics are: what brokers tell name servers, and name servers clients."""

from __future__ import annotations

from typing import Any

from rmqtool.remoting.body import Body
from rmqtool.remoting.declared import Boolean, Integer, Long, String, field


class DataVersion(Body):
    """Which state of a table this is: a change counts on."""

    counter: Long
    state_version: Long | None = field(default=None, since="5.0.0")
    timestamp: Long


class TopicConfig(Body):
    """The settings of a topic."""

    attributes: dict[str, str] | None = field(default=None, since="5.0.0")
    order: Boolean | None = None
    perm: Integer
    read_queue_nums: Integer
    topic_filter_type: String | None = None
    topic_name: String
    topic_sys_flag: Integer | None = None
    write_queue_nums: Integer


class TopicConfigAndQueueMapping(TopicConfig):
    """The settings of a topic, and where its queues are if it is a static one."""

    topic_queue_mapping_detail: dict[str, Any] | None = field(default=None, since="5.0.0", wire="mappingDetail")


class TopicConfigSerializeWrapper(Body):
    """The settings of all topics of a broker."""

    data_version: DataVersion | None = None
    mapping_data_version: DataVersion | None = field(default=None, since="5.0.0")
    topic_config_table: dict[str, TopicConfig]
    topic_queue_mapping_detail_map: dict[str, Any] | None = field(default=None, since="5.0.0")
    topic_queue_mapping_info_map: dict[str, Any] | None = field(default=None, since="5.0.0")


class RegisterBrokerBody(Body):
    """The topics that a broker registers."""

    filter_server_list: list[str] | None = None
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper


class CreateTopicListRequestBody(Body):
    """Settings of several topics."""

    topic_config_list: list[TopicConfig]


class BrokerData(Body):
    """The addresses of one broker name, by broker id: 0 is the master."""

    broker_addrs: dict[int, str]
    broker_name: String
    cluster: String | None = None
    enable_acting_master: Boolean | None = field(default=None, since="5.0.0")
    zone_name: String | None = field(default=None, since="5.0.0")


class QueueData(Body):
    """How many queues of a topic one broker name has."""

    broker_name: String
    perm: Integer
    read_queue_nums: Integer
    topic_sys_flag: Integer | None = None
    write_queue_nums: Integer


class TopicRouteData(Body):
    """Where a topic is."""

    broker_datas: list[BrokerData]
    filter_server_table: dict[str, Any] | None = None
    order_topic_conf: String | None = None
    queue_datas: list[QueueData]
    topic_queue_mapping_by_broker: dict[str, Any] | None = field(default=None, since="5.0.0")


class ClusterInfo(Body):
    """All brokers, by name, and the broker names of each cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]


class BrokerMemberGroup(Body):
    """The addresses of one broker name."""

    broker_addrs: dict[int, str]
    broker_name: String
    cluster: String


class GetBrokerMemberGroupResponseBody(Body):
    """The addresses of one broker name, as an answer."""

    broker_member_group: BrokerMemberGroup


class TopicList(Body):
    """Names of topics, and whom to ask next."""

    broker_addr: String | None = None
    topic_list: list[str]


class KVTable(Body):
    """Names and values: settings of a namespace, or what a broker says of its state."""

    table: dict[str, str]
