"""Requests of tools: topics and groups, their settings and progress, and the members of groups.

Upstream: ``AdminBrokerProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from rmqtool.broker.client_registry import Client
from rmqtool.broker.groups import SubscriptionGroups
from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.queries import stored_at
from rmqtool.broker.processors.replies import Steps
from rmqtool.broker.rates import Span
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import Version
from rmqtool.errors import Refused, UsageError
from rmqtool.formats.codes import is_since
from rmqtool.formats.config_shapes import is_own_group
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import SYSTEM_TOPICS, iter_own_topics
from rmqtool.remoting.answers import GROUP_NOT_ONLINE, PRODUCERS_NOT_EXIST, answer, refuse
from rmqtool.remoting.bodies.broker import (
    ConsumeStats,
    GroupList,
    OffsetWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicOffset,
    TopicStatsTable,
)
from rmqtool.remoting.bodies.clients import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
)
from rmqtool.remoting.bodies.routes import (
    CreateTopicListRequestBody,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.requests.clients import GetConsumerConnectionList, GetProducerConnectionList
from rmqtool.remoting.requests.groups import DeleteSubscriptionGroup, GetConsumeStats, GetSubscriptionGroupConfig
from rmqtool.remoting.requests.topics import (
    CreateTopic,
    DeleteTopic,
    GetTopicConfig,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
)

READ_ONLY = "the store is served read-only"


def put_topic(broker: Broker, asked: Asked) -> RemotingCommand:
    """Create a topic, or change its settings."""
    header: CreateTopic = asked.header  # type: ignore[assignment]
    if broker.read_only:
        return answer(asked.command, ResponseCode.NO_PERMISSION, READ_ONLY)
    if header.topic in SYSTEM_TOPICS:
        remark = f"The topic[{header.topic}] is conflict with system topic."
        return answer(asked.command, _invalid(broker), remark)
    settings: dict[str, Any] = {
        "readQueueNums": header.read_queue_nums,
        "writeQueueNums": header.write_queue_nums,
        "perm": header.perm,
        "topicFilterType": header.topic_filter_type,
        "topicSysFlag": header.topic_sys_flag,
        "attributes": _attributes(header.attributes),
    }
    if broker.config.version is not Version.V4_9:
        settings["order"] = header.order
    return _put(broker, asked, broker.topics, header.topic, settings)


def put_topics(broker: Broker, asked: Asked) -> RemotingCommand:
    """Create topics, or change their settings; the first that is refused ends it."""
    if broker.read_only:
        return answer(asked.command, ResponseCode.NO_PERMISSION, READ_ONLY)
    for one in CreateTopicListRequestBody.decode(asked.command.body).topic_config_list:
        if one.topic_name in SYSTEM_TOPICS:
            remark = f"The topic[{one.topic_name}] is conflict with system topic."
            return answer(asked.command, _invalid(broker), remark)
        settings = {one.fields[name].wire: value for name, value in one.given.items() if name != "topic_name"}
        done = _put(broker, asked, broker.topics, one.topic_name, settings)
        if done.code != ResponseCode.SUCCESS:
            return done
    return answer(asked.command)


def _put(
    broker: Broker, asked: Asked, table: TopicConfigs | SubscriptionGroups, name: str, settings: dict[str, Any]
) -> RemotingCommand:
    """Create an entry of a table, or change its settings."""
    change = table.create if table.find(name) is None else table.alter
    try:
        change(name, **settings)
    except (UsageError, Refused) as error:
        return answer(asked.command, _invalid(broker), error.message)
    return answer(asked.command)


def delete_topic(broker: Broker, asked: Asked) -> RemotingCommand:
    """Delete a topic, and how far groups are with it.

    Its queues stay, and its messages expire with the log. upstream: 4.9 does the same, 5.x also deletes the queues.
    """
    header: DeleteTopic = asked.header  # type: ignore[assignment]
    if broker.read_only:
        return answer(asked.command, ResponseCode.NO_PERMISSION, READ_ONLY)
    if not header.topic.strip():
        return answer(asked.command, _invalid(broker), "The specified topic is blank.")
    if header.topic in SYSTEM_TOPICS:
        remark = f"The topic[{header.topic}] is conflict with system topic."
        return answer(asked.command, _invalid(broker), remark)
    if broker.topics.find(header.topic) is not None:
        try:
            broker.topics.delete(header.topic)
        except Refused as error:
            return answer(asked.command, _invalid(broker), error.message)
    broker.offsets.remove(lambda topic, _group: topic == header.topic)
    broker.forget_pulls(None, header.topic)
    return answer(asked.command)


def _invalid(broker: Broker) -> ResponseCode:
    return ResponseCode.INVALID_PARAMETER if is_since(broker.version, "5.0.0") else ResponseCode.SYSTEM_ERROR


def _attributes(text: str | None) -> dict[str, str]:
    """Return the attributes of ``+name=value,-name``; an empty value removes one."""
    found = {}
    for part in (text or "").split(","):
        name, _, value = part[1:].partition("=")
        if name:
            found[name] = value if part[0] == "+" else ""
    return found


def get_topic(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the settings of a topic."""
    header: GetTopicConfig = asked.header  # type: ignore[assignment]
    config = broker.topics.find(header.topic)
    if config is None:
        remark = f"No topic in this broker. topic: {header.topic}"
        return answer(asked.command, ResponseCode.TOPIC_NOT_EXIST, remark)
    return answer(asked.command, body=TopicConfig.read(config))


def all_topics(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the settings of all topics."""
    table = {topic: TopicConfig.read(config) for topic, config in broker.topics.table.items()}
    version = DataVersion.read(broker.topics.data_version)
    body = TopicConfigSerializeWrapper(data_version=version, topic_config_table=table)
    if is_since(broker.version, "5.0.0"):
        # There are no logical topics: their table never changes.
        body = body.replace(mapping_data_version=DataVersion(counter=0, state_version=0, timestamp=broker.started))
    return answer(asked.command, body=body)


def own_topics(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the topics that a broker has for itself."""
    config = broker.config
    names = {own.name for own in iter_own_topics(broker.version, config.broker_cluster_name, config.broker_name)}
    names |= {name for name, since in SYSTEM_TOPICS.items() if is_since(broker.version, since)}
    return answer(asked.command, body=TopicList(topic_list=sorted(names)))


def topic_stats(broker: Broker, asked: Asked) -> Steps:
    """Read the bounds of each queue of a topic."""
    header: GetTopicStatsInfo = asked.header  # type: ignore[assignment]
    config = broker.topics.find(header.topic)
    if config is None:
        remark = f"topic[{header.topic}] not exist"
        return answer(asked.command, ResponseCode.TOPIC_NOT_EXIST, remark)
    found = {}
    for queue_id in range(max(int(config["readQueueNums"]), int(config["writeQueueNums"]))):
        low, high = (bound(header.topic, queue_id) for bound in (broker.queues.min_offset, broker.queues.max_offset))
        last = (yield partial(stored_at, broker, header.topic, queue_id, high - 1)) if high > low else 0
        queue = MessageQueue(header.topic, broker.config.broker_name, queue_id)
        found[queue] = TopicOffset(last_update_timestamp=last, max_offset=high, min_offset=low)
    rate = _rate(broker, "TOPIC_PUT_NUMS", header.topic) if is_since(broker.version, "5.0.0") else None
    return answer(asked.command, body=TopicStatsTable(offset_table=found, topic_put_tps=rate))


def groups_of_topic(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the groups that consume a topic: those that are online, and those with offsets."""
    header: QueryTopicConsumeByWho = asked.header  # type: ignore[assignment]
    online = [name for name, group in broker.clients.consumers.items() if header.topic in group.subscriptions]
    stored = broker.offsets.groups_of(header.topic)
    return answer(asked.command, body=GroupList(group_list=list(dict.fromkeys([*online, *stored]))))


def put_group(broker: Broker, asked: Asked) -> RemotingCommand:
    """Create a group, or change its settings."""
    return _put_group(broker, asked, SubscriptionGroupConfig.decode(asked.command.body))


def _put_group(broker: Broker, asked: Asked, given: SubscriptionGroupConfig) -> RemotingCommand:
    settings = {given.fields[name].wire: value for name, value in given.given.items() if name != "group_name"}
    return _put(broker, asked, broker.groups, given.group_name, settings)


def put_groups(broker: Broker, asked: Asked) -> RemotingCommand:
    """Create groups, or change their settings; the first that is refused ends it."""
    for given in SubscriptionGroupList.decode(asked.command.body).group_config_list:
        done = _put_group(broker, asked, given)
        if done.code != ResponseCode.SUCCESS:
            return done
    return answer(asked.command)


def get_group(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the settings of a group."""
    header: GetSubscriptionGroupConfig = asked.header  # type: ignore[assignment]
    config = broker.groups.find_or_create(header.group)
    if config is None:
        remark = f"No group in this broker. group: {header.group}"
        return answer(asked.command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    return answer(asked.command, body=SubscriptionGroupConfig.read(config))


def all_groups(broker: Broker, asked: Asked) -> RemotingCommand:
    """Read the settings of all groups."""
    table = {group: SubscriptionGroupConfig.read(config) for group, config in broker.groups.table.items()}
    version = DataVersion.read(broker.groups.data_version)
    body = SubscriptionGroupWrapper(data_version=version, subscription_group_table=table)
    if is_since(broker.version, "5.0.0"):
        body = body.replace(forbidden_table=broker.groups.forbidden)
    return answer(asked.command, body=body)


def delete_group(broker: Broker, asked: Asked) -> RemotingCommand:
    """Delete a group, and its offsets where the tool asks for that."""
    header: DeleteSubscriptionGroup = asked.header  # type: ignore[assignment]
    if broker.groups.find(header.group_name) is not None and not is_own_group(header.group_name):
        broker.groups.delete(header.group_name)
    if header.clean_offset or header.remove_offset:
        broker.offsets.remove(lambda _topic, group: group == header.group_name)
        broker.forget_pulls(header.group_name, None)
    return answer(asked.command)


def consume_stats(broker: Broker, asked: Asked) -> Steps:
    """Read how far a group is in each queue."""
    header: GetConsumeStats = asked.header  # type: ignore[assignment]
    group = header.consumer_group
    topics = [header.topic] if header.topic else broker.offsets.topics_of(group)
    return answer(asked.command, body=(yield from stats_of_group(broker, group, topics)))


def stats_of_group(
    broker: Broker, group: str, topics: Sequence[str]
) -> Generator[Callable[..., Any], Any, ConsumeStats]:
    """Return how far a group is in each queue of some topics. It yields what it reads, as ``in_steps`` wants it."""
    found, tps = {}, 0.0
    online = broker.clients.consumers.get(group)
    for topic in topics:
        config = broker.topics.find(topic)
        if config is None or (online is not None and online.subscriptions and topic not in online.subscriptions):
            # upstream: what the members no longer subscribe to is not shown while they are there.
            continue
        tps += _rate(broker, "GROUP_GET_NUMS", f"{topic}@{group}")
        for queue_id in range(int(config["readQueueNums"])):
            offset = max(broker.offsets.query_offset(group, topic, queue_id), 0)
            queue = MessageQueue(topic, broker.config.broker_name, queue_id)
            last = (yield partial(stored_at, broker, topic, queue_id, offset - 1)) if offset else 0
            found[queue] = OffsetWrapper(
                broker_offset=broker.queues.max_offset(topic, queue_id),
                consumer_offset=offset,
                last_timestamp=max(last, 0),
                pull_offset=max(offset, broker.pulled.get((group, topic, queue_id), 0)),
            )
    return ConsumeStats(consume_tps=tps, offset_table=found)


def _rate(broker: Broker, name: str, key: str) -> float:
    """Return what a counter grew by the second over the last minute."""
    counter = broker.history.find(name, key)
    return 0.0 if counter is None else counter.over(Span.MINUTE).by_second


def consumer_connections(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the members of a consumer group and what they subscribe to."""
    header: GetConsumerConnectionList = asked.header  # type: ignore[assignment]
    group = broker.clients.consumers.get(header.consumer_group)
    if group is None:
        return refuse(asked.command, GROUP_NOT_ONLINE, broker.version, group=header.consumer_group)
    body = ConsumerConnection(
        connection_set=_connections(group.members.values()),
        consume_from_where=group.consume_from_where,
        consume_type=group.consume_type,
        message_model=group.message_model,
        subscription_table=group.subscriptions,
    )
    return answer(asked.command, body=body)


def producer_connections(broker: Broker, asked: Asked) -> RemotingCommand:
    """List the members of a producer group."""
    header: GetProducerConnectionList = asked.header  # type: ignore[assignment]
    members = broker.clients.producers.get(header.producer_group)
    if members is None:
        return refuse(asked.command, PRODUCERS_NOT_EXIST, broker.version, group=header.producer_group)
    return answer(asked.command, body=ProducerConnection(connection_set=_connections(members.values())))


def _connections(members: Iterable[Client]) -> list[Connection]:
    return [
        Connection(client_addr=one.address, client_id=one.client_id, language=one.language, version=one.version)
        for one in members
    ]
