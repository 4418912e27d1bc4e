"""A live cluster, for programs: ``connect`` gives a client with the verbs of a store, and a producer.

The client works on an asyncio loop in a thread of its own, so it can be used from anywhere. ``connect_async`` gives the
same client for code that runs on a loop: its methods are awaited there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack, cast

from rmqtool.api.other_names import explained, explained_call, new_sending, no_attribute
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
from rmqtool.api.wanted import Where, Which, require_known
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Future

    import pyarrow

    from rmqtool.api.consumer import Consumer
    from rmqtool.api.consumer_settings import ConsumerSettings
    from rmqtool.api.shapes import Answer, ClusterInfo, Exported, Group, Message, Topic
    from rmqtool.api.topic import Settings as TopicSettings
    from rmqtool.client.address import Credentials
    from rmqtool.client.cluster import Cluster as Connections
    from rmqtool.client.face import Face
    from rmqtool.client.producer import Producer as AsyncProducer
    from rmqtool.client.producer import SendResult

Result = TypeVar("Result")
# An access key and a secret key, or a file that has them.
Keys = tuple[str, str] | str | os.PathLike[str]


class Connecting(TypedDict, total=False):
    """How connections are opened."""

    credentials: Keys | None
    tls: bool
    timeout: float
    binary: bool
    vip: bool
    broker: str | None


# The keywords of ``connect``.
CONNECTING = tuple(name for name in Connecting.__annotations__ if name != "broker")


class Opening:
    """The address of a cluster, its keys, and the way to connect."""

    def __init__(
        self,
        address: str,
        *,
        credentials: Keys | None = None,
        tls: bool = False,
        timeout: float = 3.0,
        binary: bool = False,
        vip: bool = False,
        broker: str | None = None,
    ) -> None:
        from rmqtool.client.address import parse_cluster

        self.address = parse_cluster(address)
        self._keys = _credentials(credentials)
        self._tls, self._timeout, self._binary, self._vip = tls, timeout, binary, vip
        # The address to dial for the only broker of a store that is served here.
        self._broker = broker

    def open_connections(self) -> Connections:
        """Return connections as those of another client; to be called on the loop that uses them."""
        from rmqtool.client.cluster import Cluster as Connections
        from rmqtool.client.connection import Manners
        from rmqtool.remoting.command import SerializeType

        context = None
        if self._tls:
            import ssl

            context = ssl.create_default_context()
        manners = Manners(
            credentials=self._keys,
            serialize_type=SerializeType.ROCKETMQ if self._binary else SerializeType.JSON,
            tls=context,
            timeout=self._timeout,
            vip=self._vip,
            broker=self._broker,
        )
        return Connections(self.address, manners)


@explained
class Cluster(Opening):
    """A live cluster. ``connect`` makes it, a context manager closes it."""

    def __init__(self, address: str, **how: Unpack[Connecting]) -> None:
        super().__init__(address, **how)
        self._face: Face | None = None
        self._connections: Connections | None = None
        self.called = Called()
        # Whether it is open until ``close``, and whether that was.
        self.is_kept = self._is_closed = False

    def __repr__(self) -> str:
        return f"<Cluster {self.address}>"

    def __enter__(self) -> Self:
        self.is_kept = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            raise no_attribute("Cluster", name)

        async def __aenter__(self) -> Self:
            """Refuse to be the client of code on a loop."""
            raise UsageError("connect is for code without asyncio", hint="async with rmqtool.connect_async(...)")

        __aexit__ = __aenter__

    # Its client.

    @property
    def face(self) -> Face:
        """The loop that the client works on."""
        if self._is_closed:
            raise UsageError("this client is closed", hint="open another one: rmqtool.connect(...)")
        if self._face is None:
            from rmqtool.client.face import Face

            self._face = Face()
        return self._face

    @property
    def connections(self) -> Connections:
        """The connections of this client."""
        if self._connections is None:
            self._connections = self.face.run(self.connected())
        return self._connections

    async def connected(self) -> Connections:
        """Return the connections of this client, on its loop."""
        if self._connections is None:
            self._connections = self.open_connections()
        return self._connections

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine of the client and return what it gives."""
        return self.face.run(work)

    def close(self) -> None:
        """Close every connection."""
        if self._face is not None:
            self._face.run(self.called.close())
            if self._connections is not None:
                self._face.run(self._connections.close())
            self._face.close()
        self._face = self._connections = None
        self._is_closed = self.is_kept

    # Questions.

    def info(self) -> ClusterInfo:
        """Return the cluster at a glance: brokers, topics, groups with their lag."""
        from rmqtool.api.remote import info_json

        return cast("ClusterInfo", self.run(info_json(self.connections)))

    def topics(self) -> list[Topic]:
        """Return the topics with their settings."""
        from rmqtool.api.remote import topics_json

        return self.run(topics_json(self.connections))

    def topic(self, action: str, name: str = "", **settings: Unpack[TopicSettings]) -> list[Topic]:
        """List, show, create, alter or delete topics, as ``rmqtool.topic`` does in a store."""
        from rmqtool.api.remote import change_topic, show_topic, topics_json
        from rmqtool.api.topic import parse_action, parse_settings

        wanted, found = parse_action(action), parse_settings(settings)
        if wanted == "list":
            return self.run(topics_json(self.connections))
        if wanted == "show":
            return self.run(show_topic(self.connections, name))
        return self.run(change_topic(self.connections, wanted, name, found))

    def groups(self) -> dict[str, Group]:
        """Return the consumer groups: their settings, and the committed offset and lag of each queue."""
        from rmqtool.api.remote import group_rows

        return self.run(group_rows(self.connections))

    def group(
        self, action: str, name: str = "", settings: Mapping[str, str | bool | int] | Iterable[str] | None = None
    ) -> dict[str, Group]:
        """List, show, create, alter or delete consumer groups, as ``rmqtool.group`` does in a store."""
        from rmqtool.api.remote import act_on_group

        return self.run(act_on_group(self.connections, action, name, settings))

    def query(self, what: str, *, kind: str | None = None, limit: int | None = None, **which: Unpack[Where]) -> Answer:
        """Find a message by an id, a key or an offset, as ``rmqtool.query`` does in a store."""
        from rmqtool.api.query import query

        return query(self, what, kind=kind, limit=limit, **which)

    def scan(self, *, order: str = "log", limit: int | None = None, **which: Unpack[Which]) -> Iterator[Message]:
        """Yield messages as ``cat --jsonl`` prints them: all that are there now."""
        from rmqtool.api.cat import scan

        return cast("Iterator[Message]", scan(self, order=order, limit=limit, **which))

    def batches(self, *, columns: Sequence[str] | None = None, **which: Unpack[Which]) -> pyarrow.RecordBatchReader:
        """Return messages as a stream of Arrow batches, with the columns of ``export``."""
        from rmqtool.api.cat import batches

        return batches(self, columns=columns, **which)

    def export(
        self,
        to: str | os.PathLike[str],
        *,
        format: str = "parquet",  # noqa: A002
        since_last: bool = False,
        **which: Unpack[Where],
    ) -> Exported:
        """Write messages as Parquet, or into a Delta table; see ``rmqtool.export``."""
        from rmqtool.api.export import export

        return export(self, to, format=format, since_last=since_last, **which)

    # Messages.

    def consumer(self, topics: str | list[str], group: str, **settings: Unpack[ConsumerSettings]) -> Consumer:
        """Return a member of a consumer group; see ``AsyncConsumer`` and ``ConsumerSettings``."""
        from rmqtool.api.consumer import AsyncConsumer, Consumer

        return Consumer(self.face, AsyncConsumer(self.open_connections, topics, group, **settings))

    def consume(
        self, topics: str | list[str], group: str, *, limit: int | None = None, **settings: Unpack[ConsumerSettings]
    ) -> Iterator[Message]:
        """Yield messages as a member of a group; each is consumed when the next one is asked for.

        It ends after ``limit`` messages, and after ``timeout`` seconds without one; without them it goes on.
        """
        from itertools import islice

        with self.consumer(topics, group, **settings) as consumer:
            yield from islice(consumer, limit)

    def producer(self, *, check: Check | None = None, **settings: Any) -> Producer:
        """Return a producer. Settings: group, timeout, retries, retry_unknown, latency_aware, compress_over.

        ``check`` makes it one of transactions: brokers that do not know the end of a transaction have it called with
        the message, and it returns "commit", "rollback" or "unknown".
        """
        producer = Producer(self, **settings)
        if check is not None:
            self.run(answer_checks(self, producer.sends.settings.group, check))
        return producer

    def produce(self, topic: str, body: bytes | str, **message: Any) -> SendResult:
        """Send one message and return where it is stored; see ``Producer.send``."""
        with self.producer() as producer:
            return producer.send(topic, body, **message)


@explained
class Producer:
    """Sends messages to a cluster. A context manager waits for those that are under way."""

    def __init__(self, cluster: Cluster, **settings: Any) -> None:
        from rmqtool.client.producer import ProducerSettings

        require_known("producer", settings, tuple(ProducerSettings.__dataclass_fields__))
        self._cluster = cluster
        connections = cluster.connections

        async def make() -> AsyncProducer:
            from rmqtool.client.producer import Producer as AsyncProducer

            return AsyncProducer(connections, ProducerSettings(**settings))

        self.sends = cluster.run(make())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            raise no_attribute("Producer", name)

    def send(self, topic: str, body: bytes | str, **message: Any) -> SendResult:
        """Send a message and return where it is stored.

        Further parts of a message: ``tags``, ``keys`` (one, or several), ``properties``, ``queue``, ``sharding_key``
        (equal ones go to one queue), ``delay_level``, ``delay`` (seconds), ``deliver_at`` (a time), ``flag``.
        """
        return self._cluster.run(self.sends.send(message_of(topic, body, **message)))

    def send_async(self, topic: str, body: bytes | str, **message: Any) -> Future[SendResult]:
        """Send a message; the future has where it is stored."""
        return self._cluster.face.begin_for(new_sending(), self.sends.send(message_of(topic, body, **message)))

    def send_oneway(self, topic: str, body: bytes | str, **message: Any) -> None:
        """Send a message and wait for nothing: whether it is stored remains unknown."""
        self._cluster.run(self.sends.send_oneway(message_of(topic, body, **message)))

    def send_batch(self, topic: str, bodies: Iterable[bytes | str], **message: Any) -> list[SendResult]:
        """Send messages to one queue, all of them or none, and return where each is stored."""
        return self._cluster.run(self.sends.send_alike(*messages_alike(topic, bodies, **message)))

    def send_in_transaction(
        self, topic: str, body: bytes | str, work: Callable[[SendResult], str], **message: Any
    ) -> SendResult:
        """Store a message that consumers do not see, call ``work``, and end the transaction with what it returns.

        ``work`` returns "commit", "rollback" or "unknown". Where it raises, or the end is lost, the transaction stays
        open: the broker asks the ``check`` of the producer's group.
        """
        from rmqtool.client.half_messages import end, send_half

        connections = self._cluster.connections
        half = self._cluster.run(send_half(self.sends, connections, message_of(topic, body, **message)))
        self._cluster.run(end(connections, half, state_of(work(half.result))))
        return half.result

    def request(self, topic: str, body: bytes | str, *, timeout: float = 3.0, **message: Any) -> Reply:
        """Send a message and return the reply of the consumer that gets it; the parts are those of ``send``.

        Raises NoReply after ``timeout`` seconds without a reply. The consumer calls ``reply`` with the message.
        """
        return self._cluster.run(ask(self._cluster, self.sends, message_of(topic, body, **message), timeout))

    def reply(self, request: Message, body: bytes | str, **message: Any) -> SendResult:
        """Reply to a message that ``request`` of another client sent: that client gets ``body``, if it still waits."""
        return self._cluster.run(answer_request(self.sends, request, body, **message))

    def flush(self) -> None:
        """Wait until every send that was begun has ended."""
        self._cluster.run(self.sends.flush())


@explained_call
def connect(address: str, **how: Unpack[Connecting]) -> Cluster:
    """Connect to a live cluster, ``rocketmq://HOST:PORT[,HOST:PORT...][/BROKER]``.

    ``credentials`` are an access key and a secret key, or a file that has them. ``timeout`` is that of a request in
    seconds. ``binary`` writes headers in the binary form; ``vip`` sends to the second port of brokers, which is free of
    pulls. Raises RemoteError where no name server answers.
    """
    require_known("connect", how, CONNECTING)
    cluster = Cluster(address, **how)
    cluster.is_kept = True
    try:
        cluster.run(cluster.connections.brokers())
    except BaseException:
        cluster.close()
        raise
    return cluster


def _credentials(given: Keys | None) -> Credentials | None:
    from rmqtool.client.address import Credentials, find_credentials

    if isinstance(given, tuple):
        return Credentials(*given)
    return find_credentials(given)


@contextmanager
def opened_cluster(place: object) -> Iterator[Cluster]:
    """Give a cluster that is open already, or one that is opened for now."""
    cluster = place if isinstance(place, Cluster) else Cluster(str(place))
    try:
        yield cluster
    finally:
        if not cluster.is_kept:
            cluster.close()
