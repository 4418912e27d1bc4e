"""Consumer groups: their settings and how far they are."""

from __future__ import annotations

from rmqtool.remoting.bodies.broker import (
    ConsumeStats,
    ConsumeStatsList,
    GroupForbidden,
    QuerySubscriptionResponseBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rmqtool.remoting.bodies.routes import TopicList
from rmqtool.remoting.declared import CLUSTER, GROUP, TOPIC, Boolean, Integer, String, field
from rmqtool.remoting.headers import Code, Header, OldRight, Request, Right, RpcRequest, TopicRequest


class UpdateSubscriptionGroup(Request):
    """Create a group or change its settings."""

    codes = (Code(200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"),)
    body = SubscriptionGroupConfig
    old_right = OldRight.ADMIN


class UpdateSubscriptionGroupList(Request):
    """Create or change several groups."""

    codes = (Code(225, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST", since="5.3.1"),)
    body = SubscriptionGroupList


class GetAllSubscriptionGroupAnswer(Header):
    """The answer to ``GetAllSubscriptionGroup``."""

    java = "GetAllSubscriptionGroupResponseHeader"
    java_since = "5.4.0"

    total_group_num: Integer


class GetAllSubscriptionGroup(Request):
    """Read the settings of all groups. 5.4 asks page by page."""

    codes = (Code(201, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG"),)
    java = "GetAllSubscriptionGroupRequestHeader"
    java_since = "5.4.0"
    answer = GetAllSubscriptionGroupAnswer
    answer_body = SubscriptionGroupWrapper
    rights = (Right.GET,)
    scope = GROUP

    group_seq: Integer | None = field(default=None, needed=True)
    data_version: String | None = None
    max_group_num: Integer | None = None


class DeleteSubscriptionGroup(RpcRequest):
    """Delete a group."""

    codes = (Code(207, "DELETE_SUBSCRIPTIONGROUP"),)
    java = "DeleteSubscriptionGroupRequestHeader"
    rights = (Right.DELETE,)
    old_right = OldRight.ADMIN

    group_name: String = field(acl=GROUP)
    remove_offset: bool = field(default=False, until="5.0.0")
    clean_offset: bool = field(default=False, since="5.0.0")


class GetSubscriptionGroupConfig(RpcRequest):
    """Read the settings of one group."""

    codes = (Code(352, "GET_SUBSCRIPTIONGROUP_CONFIG", since="5.0.0"),)
    java = "GetSubscriptionGroupConfigRequestHeader"
    java_since = "5.0.0"
    answer_body = SubscriptionGroupConfig
    rights = (Right.GET,)

    group: String = field(acl=GROUP)


class UpdateGroupForbidden(TopicRequest):
    """Say whether a group may read a topic."""

    codes = (Code(353, "UPDATE_AND_GET_GROUP_FORBIDDEN", since="5.0.0"),)
    java = "UpdateGroupForbiddenRequestHeader"
    java_since = "5.0.0"
    answer_body = GroupForbidden
    rights = (Right.UPDATE,)

    group: String = field(acl=GROUP)
    topic: String = field(acl=TOPIC)
    readable: Boolean | None = None


class GetConsumeStats(TopicRequest):
    """Read the offsets of a group in each queue, and those of the queues."""

    codes = (Code(208, "GET_CONSUME_STATS"),)
    java = "GetConsumeStatsRequestHeader"
    answer_body = ConsumeStats
    rights = (Right.GET,)

    consumer_group: String = field(acl=GROUP)
    topic: String | None = field(default=None, acl=TOPIC)
    topic_list: String | None = field(default=None, acl=TOPIC, splitter=";", since="5.3.2")


class GetConsumeStatsInBroker(Request):
    """Read this of all groups of a broker."""

    codes = (Code(317, "GET_BROKER_CONSUME_STATS"),)
    java = "GetConsumeStatsInBrokerHeader"
    answer_body = ConsumeStatsList
    rights = (Right.GET,)
    scope = CLUSTER

    is_order: bool = field()


class QueryTopicsByConsumer(RpcRequest):
    """List the topics that a group consumes."""

    codes = (Code(343, "QUERY_TOPICS_BY_CONSUMER", since="5.0.0"),)
    java = "QueryTopicsByConsumerRequestHeader"
    java_since = "5.0.0"
    answer_body = TopicList
    rights = (Right.GET,)

    group: String = field(acl=GROUP)


class QuerySubscriptionByConsumer(TopicRequest):
    """Read what a group subscribes to of a topic."""

    codes = (Code(345, "QUERY_SUBSCRIPTION_BY_CONSUMER", since="5.0.0"),)
    java = "QuerySubscriptionByConsumerRequestHeader"
    java_since = "5.0.0"
    answer_body = QuerySubscriptionResponseBody
    rights = (Right.GET,)

    group: String = field(acl=GROUP)
    topic: String | None = field(default=None, acl=TOPIC)
