"""A live cluster for code that runs on an asyncio loop: the client of ``cluster``, with methods to await."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from rmqtool.api.cluster import CONNECTING, Connecting, Opening
from rmqtool.api.other_names import explained, explained_call, no_attribute
from rmqtool.api.outgoing import (
    Called,
    Check,
    Reply,
    answer_checks,
    answer_request,
    ask,
    message_of,
    messages_alike,
    state_of,
)
from rmqtool.api.wanted import WHERE, Where, Which, require_known, wanted_of
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.api.consumer import AsyncConsumer
    from rmqtool.api.consumer_settings import ConsumerSettings
    from rmqtool.api.shapes import Answer, ClusterInfo, Group, Message, Topic
    from rmqtool.api.topic import Settings as TopicSettings
    from rmqtool.client.cluster import Cluster as Connections
    from rmqtool.client.producer import Producer as Sends
    from rmqtool.client.producer import SendResult


@explained
class AsyncCluster(Opening):
    """A live cluster. ``async with connect_async(...)`` opens and closes it; ``await connect_async(...)`` opens it."""

    def __init__(self, address: str, **how: Unpack[Connecting]) -> None:
        super().__init__(address, **how)
        self._connections: Connections | None = None
        self.called = Called()

    def __repr__(self) -> str:
        return f"<AsyncCluster {self.address}>"

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._connections is None:
            self._connections = self.open_connections()
            try:
                await self._connections.brokers()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        connections, self._connections = self._connections, None
        await self.called.close()
        if connections is not None:
            await connections.close()

    @property
    def connections(self) -> Connections:
        """The connections of this client."""
        if self._connections is None:
            raise UsageError("this client is not open", hint="async with rmqtool.connect_async(...) as cluster")
        return self._connections

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            raise no_attribute("AsyncCluster", name)

        def __enter__(self) -> Self:
            """Refuse to be the client of code without a loop."""
            raise UsageError("connect_async is for code with asyncio", hint="with rmqtool.connect(...) as cluster")

        def __exit__(self, *_: object) -> None:
            """Nothing was entered."""

    # Questions.

    async def info(self) -> ClusterInfo:
        """Return the cluster at a glance: brokers, topics, groups with their lag."""
        from rmqtool.api.remote import info_json

        return cast("ClusterInfo", await info_json(self.connections))

    async def topics(self) -> list[Topic]:
        """Return the topics with their settings."""
        from rmqtool.api.remote import topics_json

        return await topics_json(self.connections)

    async def topic(self, action: str, name: str = "", **settings: Unpack[TopicSettings]) -> list[Topic]:
        """List, show, create, alter or delete topics, as ``rmqtool.topic`` does in a store."""
        from rmqtool.api.remote import change_topic, show_topic, topics_json
        from rmqtool.api.topic import parse_action, parse_settings

        wanted, found = parse_action(action), parse_settings(settings)
        if wanted == "list":
            return await topics_json(self.connections)
        if wanted == "show":
            return await show_topic(self.connections, name)
        return await change_topic(self.connections, wanted, name, found)

    async def groups(self) -> dict[str, Group]:
        """Return the consumer groups: their settings, and the committed offset and lag of each queue."""
        from rmqtool.api.remote import group_rows

        return await group_rows(self.connections)

    async def group(
        self, action: str, name: str = "", settings: Mapping[str, str | bool | int] | Iterable[str] | None = None
    ) -> dict[str, Group]:
        """List, show, create, alter or delete consumer groups, as ``rmqtool.group`` does in a store."""
        from rmqtool.api.remote import act_on_group

        return await act_on_group(self.connections, action, name, settings)

    async def query(
        self, what: str, *, kind: str | None = None, limit: int | None = None, **which: Unpack[Where]
    ) -> Answer:
        """Find a message by an id, a key or an offset, as ``rmqtool.query`` does in a store."""
        from rmqtool.api.query import question_of
        from rmqtool.api.remote import answer_json

        require_known("query", which, WHERE)
        narrowed = wanted_of(which, limit=limit)
        return await answer_json(self.connections, question_of(what, {"kind": kind}, narrowed), narrowed)

    async def scan(
        self, *, order: str = "log", limit: int | None = None, **which: Unpack[Which]
    ) -> AsyncIterator[Message]:
        """Yield messages as ``cat --jsonl`` prints them: all that are there now."""
        from contextlib import aclosing

        from rmqtool.api.cat import request_of
        from rmqtool.api.remote import parts_of, plan_of
        from rmqtool.log.read import Part
        from rmqtool.log.stream import iter_rows

        request = request_of({"order": order, "limit": limit}, which)
        plan, request, _ = await plan_of(self.connections, request, None, follows=False)
        left = limit
        async with aclosing(parts_of(self.connections, plan, request, follows=False)) as parts:
            async for part in parts:
                for row in iter_rows(part) if isinstance(part, Part) else ():
                    if left == 0:
                        return
                    left = None if left is None else left - 1
                    yield cast("Message", row.fields)

    # Messages.

    def consumer(self, topics: str | list[str], group: str, **settings: Unpack[ConsumerSettings]) -> AsyncConsumer:
        """Return a member of a consumer group, with connections of its own; see ``ConsumerSettings``."""
        from rmqtool.api.consumer import AsyncConsumer

        return AsyncConsumer(self.open_connections, topics, group, **settings)

    async def consume(
        self, topics: str | list[str], group: str, *, limit: int | None = None, **settings: Unpack[ConsumerSettings]
    ) -> AsyncIterator[Message]:
        """Yield messages as a member of a group; each is consumed when the next one is asked for.

        It ends after ``limit`` messages, and after ``timeout`` seconds without one; without them it goes on.
        """
        left = limit
        async with self.consumer(topics, group, **settings) as consumer:
            while left != 0:
                try:
                    yield await anext(consumer)
                except StopAsyncIteration:
                    return
                left = None if left is None else left - 1

    def producer(self, *, check: Check | None = None, **settings: Any) -> AsyncProducer:
        """Return a producer. Settings: group, timeout, retries, retry_unknown, latency_aware, compress_over.

        ``check`` makes it one of transactions: brokers that do not know the end of a transaction have it called with
        the message, in a thread, and it returns "commit", "rollback" or "unknown".
        """
        return AsyncProducer(self, check, **settings)

    async def produce(self, topic: str, body: bytes | str, **message: Any) -> SendResult:
        """Send one message and return where it is stored; see ``AsyncProducer.send``."""
        return await self.producer().send(topic, body, **message)


@explained
class AsyncProducer:
    """Sends messages to a cluster. ``async with`` waits at its end for those that are under way."""

    def __init__(self, cluster: AsyncCluster, check: Check | None, **settings: Any) -> None:
        from rmqtool.client.producer import Producer, ProducerSettings

        require_known("producer", settings, tuple(ProducerSettings.__dataclass_fields__))
        self._cluster, self._check = cluster, check
        self.sends: Sends = Producer(cluster.connections, ProducerSettings(**settings))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.flush()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            raise no_attribute("AsyncProducer", name)

    async def start(self) -> None:
        """Tell the brokers about a producer of transactions; of other producers they need not know."""
        check, self._check = self._check, None
        if check is not None:
            await answer_checks(self._cluster, self.sends.settings.group, check)

    async def send(self, topic: str, body: bytes | str, **message: Any) -> SendResult:
        """Send a message and return where it is stored; the parts of a message are those of ``Producer.send``."""
        return await self.sends.send(message_of(topic, body, **message))

    def send_soon(self, topic: str, body: bytes | str, **message: Any) -> Awaitable[SendResult]:
        """Send a message without waiting; the future has where it is stored."""
        return self.sends.begin(message_of(topic, body, **message))

    async def send_oneway(self, topic: str, body: bytes | str, **message: Any) -> None:
        """Send a message and wait for nothing: whether it is stored remains unknown."""
        await self.sends.send_oneway(message_of(topic, body, **message))

    async def send_batch(self, topic: str, bodies: Iterable[bytes | str], **message: Any) -> list[SendResult]:
        """Send messages to one queue, all of them or none, and return where each is stored."""
        return await self.sends.send_alike(*messages_alike(topic, bodies, **message))

    async def send_in_transaction(
        self, topic: str, body: bytes | str, work: Callable[[SendResult], Awaitable[str]], **message: Any
    ) -> SendResult:
        """Store a message that consumers do not see, await ``work``, and end the transaction with what it returns."""
        from rmqtool.client.half_messages import end, send_half

        await self.start()
        connections = self._cluster.connections
        half = await send_half(self.sends, connections, message_of(topic, body, **message))
        await end(connections, half, state_of(await work(half.result)))
        return half.result

    async def request(self, topic: str, body: bytes | str, *, timeout: float = 3.0, **message: Any) -> Reply:
        """Send a message and return the reply of the consumer that gets it; the parts are those of ``send``.

        Raises NoReply after ``timeout`` seconds without a reply. The consumer calls ``reply`` with the message.
        """
        return await ask(self._cluster, self.sends, message_of(topic, body, **message), timeout)

    async def reply(self, request: Message, body: bytes | str, **message: Any) -> SendResult:
        """Reply to a message that ``request`` of another client sent: that client gets ``body``, if it still waits."""
        return await answer_request(self.sends, request, body, **message)

    async def flush(self) -> None:
        """Wait until every send that was begun has ended."""
        await self.sends.flush()


@explained_call
def connect_async(address: str, **how: Unpack[Connecting]) -> AsyncCluster:
    """Return a client of a live cluster for code on a loop; the keywords are those of ``connect``.

    ``async with connect_async(...) as cluster``, or ``cluster = await connect_async(...)`` and ``cluster.close()``.
    """
    require_known("connect_async", how, CONNECTING)
    return AsyncCluster(address, **how)
