"""A cluster's topics, groups and brokers: asked of every broker, changed at every master.

Upstream: ``DefaultMQAdminExtImpl``. A table that a 5.4 broker gives in pages is asked for as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from rmqtool.client.cluster import Cluster, read_body
from rmqtool.client.connection import RequestRefused
from rmqtool.client.puller import pull_one
from rmqtool.client.topic_routes import MASTER
from rmqtool.errors import NotFound, RemoteError
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import AUTO_CREATE_TOPIC, PERM_READ, PERM_WRITE
from rmqtool.remoting.bodies.broker import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicOffset,
    TopicStatsTable,
)
from rmqtool.remoting.bodies.routes import KVTable, TopicConfig, TopicConfigSerializeWrapper
from rmqtool.remoting.requests.broker import GetBrokerRuntimeInfo
from rmqtool.remoting.requests.groups import DeleteSubscriptionGroup, GetAllSubscriptionGroup, UpdateSubscriptionGroup
from rmqtool.remoting.requests.offsets import GetAllConsumerOffset
from rmqtool.remoting.requests.topics import (
    CreateTopic,
    DeleteTopic,
    DeleteTopicFromNamesrv,
    GetAllTopicConfig,
    GetTopicStatsInfo,
)

# Requests under way at a time, and seconds for one that reads a whole table.
_AT_ONCE, _TABLE_TIMEOUT = 32, 15.0
_ONE_TAG: Final = "SINGLE_TAG"
_NOT_THERE: Final = frozenset({int(ResponseCode.TOPIC_NOT_EXIST)})

Item = TypeVar("Item")
Result = TypeVar("Result")


async def for_each(items: Iterable[Item], work: Callable[[Item], Awaitable[Result]]) -> list[Result]:
    """Do something with each item, some at a time, and return the results in the order of the items."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(item: Item) -> Result:
        async with gate:
            return await work(item)

    return list(await asyncio.gather(*map(one, items)))


async def topic_tables(cluster: Cluster) -> dict[str, dict[str, TopicConfig]]:
    """Return the topics of each broker, by name, with their settings."""
    masters = await cluster.masters()

    async def read(address: str) -> dict[str, TopicConfig]:
        answer = await cluster.ask(address, GetAllTopicConfig(), timeout=_TABLE_TIMEOUT)
        return read_body(TopicConfigSerializeWrapper, answer).topic_config_table

    return dict(zip(masters, await for_each(masters.values(), read), strict=True))


async def group_tables(cluster: Cluster) -> dict[str, dict[str, SubscriptionGroupConfig]]:
    """Return the groups of each broker, by name, with their settings."""
    masters = await cluster.masters()

    async def read(address: str) -> dict[str, SubscriptionGroupConfig]:
        answer = await cluster.ask(address, GetAllSubscriptionGroup(), timeout=_TABLE_TIMEOUT)
        return read_body(SubscriptionGroupWrapper, answer).subscription_group_table

    return dict(zip(masters, await for_each(masters.values(), read), strict=True))


class GroupPlace(NamedTuple):
    """The committed offset of a group in a queue, the end of the queue, and when the first unread message was stored.

    Without that queue there is no end, and without an unread message no time.
    """

    committed: int
    max_offset: int | None
    oldest_unread: int | None = None

    @property
    def lag(self) -> int | None:
        """How many messages are unread."""
        return None if self.max_offset is None else self.max_offset - self.committed


@dataclass
class Overview:
    """The brokers, topics and groups of a cluster at one moment."""

    addresses: dict[str, dict[int, str]]
    clusters: dict[str, list[str]]
    runtime: dict[str, dict[str, str]]
    topics: dict[str, dict[MessageQueue, TopicOffset]]
    groups: dict[str, dict[MessageQueue, GroupPlace]] = field(default_factory=dict)


async def read_overview(cluster: Cluster, *, with_times: bool = True) -> Overview:
    """Return everything that a cluster has, at a glance."""
    info = await cluster.brokers()
    masters = await cluster.masters()

    async def runtime(address: str) -> dict[str, str]:
        return read_body(KVTable, await cluster.ask(address, GetBrokerRuntimeInfo())).table

    tables = await topic_tables(cluster)
    runtimes = dict(zip(masters, await for_each(masters.values(), runtime), strict=True))
    bounds = await read_bounds(cluster, [(broker, topic) for broker in tables for topic in tables[broker]])
    topics: dict[str, dict[MessageQueue, TopicOffset]] = {topic: {} for table in tables.values() for topic in table}
    for queue, offsets in sorted(bounds.items()):
        topics[queue.topic][queue] = offsets
    addresses = {name: data.broker_addrs for name, data in info.broker_addr_table.items()}
    found = Overview(addresses, info.cluster_addr_table, runtimes, dict(sorted(topics.items())))
    found.groups = await read_groups(cluster, bounds, with_times=with_times)
    return found


async def read_bounds(cluster: Cluster, places: Iterable[tuple[str, str]]) -> dict[MessageQueue, TopicOffset]:
    """Return the bounds of the queues of topics; ``places`` are pairs of broker and topic."""
    masters = await cluster.masters()

    async def read(place: tuple[str, str]) -> dict[MessageQueue, TopicOffset]:
        broker, topic = place
        try:
            answer = await cluster.ask(masters[broker], GetTopicStatsInfo(topic=topic), timeout=_TABLE_TIMEOUT)
        except RequestRefused as error:
            if error.response_code in _NOT_THERE:
                return {}
            raise
        table = read_body(TopicStatsTable, answer).offset_table
        return {MessageQueue(topic, broker, queue.queue_id): offsets for queue, offsets in table.items()}

    found: dict[MessageQueue, TopicOffset] = {}
    for part in await for_each(list(places), read):
        found |= part
    return found


async def read_groups(
    cluster: Cluster,
    bounds: Mapping[MessageQueue, TopicOffset],
    *,
    with_times: bool = True,
    only_bounded: bool = False,
) -> dict[str, dict[MessageQueue, GroupPlace]]:
    """Return where each group is that has an offset at a broker, in all queues or in those with ``bounds``."""
    masters = await cluster.masters()

    async def read(address: str) -> dict[str, dict[int, int]]:
        answer = await cluster.ask(address, GetAllConsumerOffset(), timeout=_TABLE_TIMEOUT)
        return read_body(ConsumerOffsetSerializeWrapper, answer).offset_table

    tables = dict(zip(masters, await for_each(masters.values(), read), strict=True))
    found: dict[str, dict[MessageQueue, GroupPlace]] = {}
    for broker, table in tables.items():
        for key, offsets in table.items():
            topic, _, group = key.partition("@")
            places = found.setdefault(group, {})
            for queue_id, committed in sorted(offsets.items()):
                queue = MessageQueue(topic, broker, queue_id)
                if only_bounded and queue not in bounds:
                    continue
                places[queue] = GroupPlace(committed, bounds[queue].max_offset if queue in bounds else None)
    if with_times:
        await _add_times(cluster, found)
    return {group: dict(sorted(places.items())) for group, places in sorted(found.items())}


async def find_progressed(cluster: Cluster) -> list[tuple[str, str]]:
    """Return the pairs of topic and group with a committed offset at any broker."""
    groups = await read_groups(cluster, {}, with_times=False)
    return sorted({(queue.topic, group) for group, places in groups.items() for queue in places})


async def _add_times(cluster: Cluster, groups: dict[str, dict[MessageQueue, GroupPlace]]) -> None:
    """Read when the first unread message of each queue was stored."""
    behind = [(group, queue) for group, places in groups.items() for queue, one in places.items() if (one.lag or 0) > 0]

    async def read(place: tuple[str, MessageQueue]) -> None:
        group, queue = place
        one = groups[group][queue]
        message = await pull_one(cluster, queue, one.committed)
        if message is not None:
            groups[group][queue] = one._replace(oldest_unread=message.store_timestamp)

    await for_each(behind, read)


async def create_topic(
    cluster: Cluster, name: str, *, queues: int, perm: int, attributes: Mapping[str, str], order: bool = False
) -> None:
    """Create a topic at every master, or change its settings."""
    pairs = ",".join(f"+{key}={value}" if value else f"-{key}" for key, value in attributes.items())
    request = CreateTopic(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type=_ONE_TAG,
        topic_sys_flag=0,
        order=order,
        attributes=pairs or None,
    )
    await _at_masters(cluster, lambda address: cluster.ask(address, request, timeout=_TABLE_TIMEOUT))
    cluster.routes.forget(name)


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic at every broker, and its route at every name server."""
    await _at_masters(cluster, lambda address: cluster.ask(address, DeleteTopic(topic=name), timeout=_TABLE_TIMEOUT))
    for server in cluster.address.names:
        await cluster.ask(server, DeleteTopicFromNamesrv(topic=name))
    cluster.routes.forget(name)


async def put_group(cluster: Cluster, config: SubscriptionGroupConfig) -> None:
    """Create a group at every master, or change its settings."""
    request = UpdateSubscriptionGroup()
    await _at_masters(cluster, lambda address: cluster.ask(address, request, config, timeout=_TABLE_TIMEOUT))


async def delete_group(cluster: Cluster, name: str) -> None:
    """Delete a group and its offsets at every master."""
    request = DeleteSubscriptionGroup(group_name=name, remove_offset=True, clean_offset=True)
    await _at_masters(cluster, lambda address: cluster.ask(address, request, timeout=_TABLE_TIMEOUT))


async def _at_masters(cluster: Cluster, work: Callable[[str], Awaitable[Any]]) -> None:
    """Do something at every master. If one refuses, the error names the brokers where it is done."""
    brokers = (await cluster.brokers()).broker_addr_table
    done: list[str] = []
    for name, data in sorted(brokers.items()):
        address = data.broker_addrs.get(MASTER)
        try:
            if address is None:
                raise RemoteError(f"broker {name} has no master now", hint="try again when it is back")
            await work(address)
        except RemoteError as error:
            if done:
                error.message += f"; it is done at {', '.join(done)}"
                error.args = (error.message,)
            raise
        done.append(name)


async def find_topics(cluster: Cluster) -> dict[str, dict[str, TopicConfig]]:
    """Return the topics of a cluster by name, each with its settings at every broker that has it."""
    found: dict[str, dict[str, TopicConfig]] = {}
    for broker, table in (await topic_tables(cluster)).items():
        for topic, config in table.items():
            found.setdefault(topic, {})[broker] = config
    return dict(sorted(found.items()))


async def require_topic(cluster: Cluster, name: str) -> dict[str, TopicConfig]:
    """Return the settings of one topic at every broker that has it. Raises NotFound."""
    found = (await find_topics(cluster)).get(name)
    if found is None:
        raise NotFound(f"there is no topic {name} in the cluster", hint="rmqtool topic STORE list")
    return found


READ_WRITE: Final = PERM_READ | PERM_WRITE
