"""Topics: their settings and what is in them, at brokers and name servers."""

from __future__ import annotations

from rmqtool.remoting.bodies.broker import (
    GroupList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rmqtool.remoting.bodies.routes import (
    CreateTopicListRequestBody,
    TopicConfigAndQueueMapping,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
)
from rmqtool.remoting.declared import CLUSTER, GROUP, TOPIC, Boolean, Integer, String, field, long
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


class CreateTopic(TopicRequest):
    """Create a topic or change its settings."""

    codes = (Code(17, "UPDATE_AND_CREATE_TOPIC"),)
    java = "CreateTopicRequestHeader"
    rights = (Right.CREATE,)
    old_right = OldRight.ADMIN

    topic: String = field(acl=TOPIC)
    default_topic: String
    read_queue_nums: Integer
    write_queue_nums: Integer
    perm: Integer
    topic_filter_type: String
    topic_sys_flag: Integer | None = None
    order: Boolean = field(default=False, needed=True)
    attributes: String | None = field(default=None, since="5.0.0")
    force: Boolean = field(default=False, since="5.0.0")


class CreateTopicList(RpcRequest):
    """Create or change several topics."""

    codes = (Code(18, "UPDATE_AND_CREATE_TOPIC_LIST", since="5.3.0"),)
    java = "CreateTopicListRequestHeader"
    java_since = "5.3.0"
    body = CreateTopicListRequestBody
    rights = (Right.CREATE,)


class GetAllTopicConfigAnswer(Header):
    """The answer to ``GetAllTopicConfig``."""

    java = "GetAllTopicConfigResponseHeader"

    total_topic_num: Integer | None = field(default=None, since="5.4.0", optional_since="5.5.0")


class GetAllTopicConfig(Request):
    """Read the settings of all topics. 5.4 asks page by page."""

    codes = (Code(21, "GET_ALL_TOPIC_CONFIG"),)
    java = "GetAllTopicConfigRequestHeader"
    java_since = "5.4.0"
    answer = GetAllTopicConfigAnswer
    answer_body = TopicConfigSerializeWrapper
    rights = (Right.GET,)
    scope = TOPIC

    topic_seq: Integer | None = field(default=None, needed=True)
    data_version: String | None = None
    max_topic_num: Integer | None = None


class DeleteTopic(TopicRequest):
    """Delete a topic, its queues included."""

    codes = (Code(215, "DELETE_TOPIC_IN_BROKER"),)
    java = "DeleteTopicRequestHeader"
    rights = (Right.DELETE,)
    old_right = OldRight.ADMIN

    topic: String = field(acl=TOPIC)


class GetTopicConfig(TopicRequest):
    """Read the settings of one topic."""

    codes = (Code(351, "GET_TOPIC_CONFIG", since="5.0.0"),)
    java = "GetTopicConfigRequestHeader"
    java_since = "5.0.0"
    answer_body = TopicConfigAndQueueMapping
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)


class GetTopicStatsInfo(TopicRequest):
    """Read the bounds of each queue of a topic."""

    codes = (Code(202, "GET_TOPIC_STATS_INFO"),)
    java = "GetTopicStatsInfoRequestHeader"
    answer_body = TopicStatsTable
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)


class QueryTopicConsumeByWho(TopicRequest):
    """List the groups that consume a topic."""

    codes = (Code(300, "QUERY_TOPIC_CONSUME_BY_WHO"),)
    java = "QueryTopicConsumeByWhoRequestHeader"
    answer_body = GroupList
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)


class QueryConsumeTimeSpan(TopicRequest):
    """Read between which times a group has the messages of each queue before it."""

    codes = (Code(303, "QUERY_CONSUME_TIME_SPAN"),)
    java = "QueryConsumeTimeSpanRequestHeader"
    answer_body = QueryConsumeTimeSpanBody
    rights = (Right.GET,)

    topic: String = field(acl=TOPIC)
    group: String = field(acl=GROUP)


class QueryConsumeQueue(TopicQueueRequest):
    """Read entries of a queue."""

    codes = (Code(321, "QUERY_CONSUME_QUEUE"),)
    java = "QueryConsumeQueueRequestHeader"
    answer_body = QueryConsumeQueueResponseBody
    rights = (Right.GET,)

    topic: String | None = field(default=None, acl=TOPIC)
    queue_id: int = 0
    index: long = 0
    count: int = 0
    consumer_group: String | None = field(default=None, acl=GROUP)


class GetSystemTopicListFromBroker(Request):
    """List the topics that a broker has for itself."""

    codes = (Code(305, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER"),)
    answer_body = TopicList


class CleanUnusedTopic(Request):
    """Delete queues whose topics no longer exist."""

    codes = (Code(316, "CLEAN_UNUSED_TOPIC"),)


class GetRouteInfo(TopicRequest):
    """Ask which brokers have queues of a topic."""

    codes = (Code(105, "GET_ROUTEINFO_BY_TOPIC"),)
    java = "GetRouteInfoRequestHeader"
    to = Role.NAME_SERVER
    answer_body = TopicRouteData
    rights = (Right.PUB, Right.SUB, Right.GET)

    topic: String
    accept_standard_json_only: Boolean | None = None


class GetAllTopicListFromNameServer(Request):
    """List all topics."""

    codes = (Code(206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER"),)
    to = Role.NAME_SERVER
    answer_body = TopicList


class DeleteTopicFromNamesrv(TopicRequest):
    """Forget the route of a topic."""

    codes = (Code(216, "DELETE_TOPIC_IN_NAMESRV"),)
    java = "DeleteTopicFromNamesrvRequestHeader"
    to = Role.NAME_SERVER
    rights = (Right.UPDATE,)
    scope = CLUSTER

    topic: String
    cluster_name: String | None = field(default=None, acl=CLUSTER)


class RegisterTopic(TopicRequest):
    """Add the route of a topic."""

    codes = (Code(217, "REGISTER_TOPIC_IN_NAMESRV", since="5.0.0"),)
    java = "RegisterTopicRequestHeader"
    java_since = "5.0.0"
    to = Role.NAME_SERVER
    body = TopicRouteData
    rights = (Right.UPDATE,)
    scope = CLUSTER

    topic: String


class GetTopicsByCluster(Request):
    """List the topics of a cluster."""

    codes = (Code(224, "GET_TOPICS_BY_CLUSTER"),)
    java = "GetTopicsByClusterRequestHeader"
    to = Role.NAME_SERVER
    answer_body = TopicList
    rights = (Right.LIST,)
    scope = TOPIC

    cluster: String


class GetSystemTopicListFromNameServer(Request):
    """List the names of clusters and brokers, which are topics too."""

    codes = (Code(304, "GET_SYSTEM_TOPIC_LIST_FROM_NS"),)
    to = Role.NAME_SERVER
    answer_body = TopicList


class GetUnitTopicList(Request):
    """List topics by their unit flags."""

    codes = (
        Code(311, "GET_UNIT_TOPIC_LIST"),
        Code(312, "GET_HAS_UNIT_SUB_TOPIC_LIST"),
        Code(313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"),
    )
    to = Role.NAME_SERVER
    answer_body = TopicList
