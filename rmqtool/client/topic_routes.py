"""Where topics are: the name servers' answers, kept for 30 seconds.

One name server is asked until it fails, then the next. A route that cannot be read again is used as it was: brokers
outlive their name servers.

Upstream: ``MQClientInstance.updateTopicRouteInfoFromNameServer``, ``topicRouteData2TopicPublishInfo``,
``topicRouteData2TopicSubscribeInfo``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rmqtool.client.connection import RequestRefused
from rmqtool.errors import NotFound, RemoteError
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import AUTO_CREATE_TOPIC, PERM_INHERIT, PERM_READ, PERM_WRITE
from rmqtool.remoting.bodies.routes import QueueData, TopicRouteData
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.headers import Request
from rmqtool.remoting.requests.topics import GetRouteInfo

# In seconds. upstream: pollNameServerInterval
LIFETIME: Final = 30.0
MASTER: Final = 0
# How many queues a new topic gets. upstream: DefaultMQProducer.defaultTopicQueueNums
NEW_TOPIC_QUEUES: Final = 4

Ask = Callable[[Request], Awaitable[RemotingCommand]]


@dataclass
class Route:
    """The brokers and queues of a topic. ``is_new``: the topic does not exist, and would be made like these."""

    topic: str
    data: TopicRouteData
    is_new: bool = False
    read_at: float = field(default=0.0, compare=False)

    @cached_property
    def addresses(self) -> dict[str, dict[int, str]]:
        """The addresses of each broker name, by broker id."""
        return {one.broker_name: one.broker_addrs for one in self.data.broker_datas}

    @cached_property
    def write_queues(self) -> list[MessageQueue]:
        """The queues that a producer may choose from: those of brokers that have a master."""
        if self.data.order_topic_conf:
            return _ordered_queues(self.topic, self.data.order_topic_conf)
        return [
            MessageQueue(self.topic, one.broker_name, queue_id)
            for one in self._sorted_queues()
            if one.perm & PERM_WRITE and MASTER in self.addresses.get(one.broker_name, {})
            for queue_id in range(self._new_queues(one) if self.is_new else one.write_queue_nums)
        ]

    @cached_property
    def read_queues(self) -> list[MessageQueue]:
        """The queues that a consumer reads."""
        if self.is_new:
            return []
        return [
            MessageQueue(self.topic, one.broker_name, queue_id)
            for one in self._sorted_queues()
            if one.perm & PERM_READ
            for queue_id in range(one.read_queue_nums)
        ]

    def write_address(self, broker: str) -> str | None:
        """Return the address of a broker's master."""
        return self.addresses.get(broker, {}).get(MASTER)

    def read_address(self, broker: str, broker_id: int = MASTER) -> str | None:
        """Return the address to read from: that of the broker id, else of the first one there is."""
        known = self.addresses.get(broker, {})
        return known.get(broker_id) or next((known[one] for one in sorted(known)), None)

    def only(self, broker: str) -> Route:
        """Return what of the route is at one broker."""
        data = self.data.replace(
            broker_datas=[one for one in self.data.broker_datas if one.broker_name == broker],
            queue_datas=[one for one in self.data.queue_datas if one.broker_name == broker],
            order_topic_conf=None,
        )
        return Route(self.topic, data, self.is_new, self.read_at)

    def _sorted_queues(self) -> list[QueueData]:
        return sorted(self.data.queue_datas, key=lambda one: one.broker_name)

    @staticmethod
    def _new_queues(like: QueueData) -> int:
        return min(NEW_TOPIC_QUEUES, like.write_queue_nums) if like.perm & PERM_INHERIT else 0


def _ordered_queues(topic: str, conf: str) -> list[MessageQueue]:
    """Return the queues that ``broker-a:4;broker-b:4`` lists. upstream: orderTopicConf"""
    found = []
    for part in conf.split(";"):
        broker, _, count = part.partition(":")
        if count.strip().isdecimal():
            found += [MessageQueue(topic, broker, queue_id) for queue_id in range(int(count))]
    return found


class Routes:
    """The routes that are known. ``ask`` asks a name server that answers; ``broker`` leaves the others out."""

    def __init__(self, ask: Ask, broker: str | None = None) -> None:
        self._ask, self._broker = ask, broker
        self._known: dict[str, Route] = {}
        self._under_way: dict[str, asyncio.Task[Route]] = {}
        self._loop = asyncio.get_running_loop()

    def known(self, topic: str) -> Route | None:
        """Return a route that need not be read again."""
        route = self._known.get(topic)
        return route if route is not None and self._loop.time() - route.read_at < LIFETIME else None

    def forget(self, topic: str) -> None:
        """Read the route of a topic again before it is used next."""
        if (route := self._known.get(topic)) is not None:
            route.read_at = float("-inf")

    async def find(self, topic: str, *, creates: bool = False) -> Route:
        """Return the route of a topic; ``creates``: that of the one it would be made like, where it does not exist.

        Raises NotFound where both are missing.
        """
        if (route := self.known(topic)) is not None:
            return route
        try:
            return await self._read(topic)
        except NotFound:
            if not creates:
                raise
        return await self._read_new(topic)

    async def _read(self, topic: str) -> Route:
        """Read a route once for all who wait for it."""
        task = self._under_way.get(topic)
        if task is None:
            task = self._under_way[topic] = self._loop.create_task(self._read_now(topic))
            task.add_done_callback(lambda done: self._finish(topic, done))
        return await asyncio.shield(task)

    def _finish(self, topic: str, task: asyncio.Task[Route]) -> None:
        self._under_way.pop(topic, None)
        if not task.cancelled():
            task.exception()  # those who wait were told

    async def _read_now(self, topic: str) -> Route:
        try:
            answer = await self._ask(GetRouteInfo(topic=topic))
        except RequestRefused as error:
            self._known.pop(topic, None)
            if error.response_code == ResponseCode.TOPIC_NOT_EXIST:
                raise NotFound(f"there is no topic {topic} in the cluster", hint="rmqtool topic STORE list") from None
            raise
        except RemoteError:
            if (old := self._known.get(topic)) is not None:
                return old
            raise
        route = Route(topic, TopicRouteData.decode(answer.body), read_at=self._loop.time())
        if self._broker is not None:
            route = route.only(self._broker)
            if not route.data.broker_datas:
                raise NotFound(f"broker {self._broker} has no queue of topic {topic}", hint="rmqtool info STORE")
        old = self._known.get(topic)
        if old is not None and old == route:
            # Those who hold it see that it is still right.
            old.read_at = route.read_at
            return old
        self._known[topic] = route
        return route

    async def _read_new(self, topic: str) -> Route:
        try:
            like = await self.find(AUTO_CREATE_TOPIC)
        except NotFound:
            raise NotFound(
                f"there is no topic {topic}, and no broker of the cluster creates topics",
                hint=f"rmqtool topic STORE create {topic}",
            ) from None
        return Route(topic, like.data, is_new=True, read_at=like.read_at)
