"""Messages of programs on their way to a cluster: their parts, and the ends of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast

from rmqtool.api.wanted import Time, milliseconds, require_known
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.api.async_cluster import AsyncCluster
    from rmqtool.api.cluster import Cluster
    from rmqtool.api.shapes import Message
    from rmqtool.broker.services.transactions import TransactionState
    from rmqtool.client.half_messages import Checks
    from rmqtool.client.heartbeats import Heartbeats
    from rmqtool.client.producer import Producer as Sends
    from rmqtool.client.producer import SendResult
    from rmqtool.client.request_reply import Requests
    from rmqtool.engine.message import NewMessage
    from rmqtool.formats.commit_log import Message as Record

# Returns "commit", "rollback" or "unknown" for the message of a transaction, as ``cat --jsonl`` prints it.
Check = Callable[["Message"], str]


def message_of(
    topic: str,
    body: bytes | str,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] | None = None,
    properties: Mapping[str, str] | None = None,
    **rest: Any,
) -> NewMessage:
    """Return a message of its parts; see ``Producer.send``. Raises TypeError for a part that does not exist."""
    if not rest and properties is None and type(body) in (bytes, str) and type(topic) is str and topic:
        plain = _plain(topic, body, tags, keys)
        if plain is not None:
            return plain
    from rmqtool.broker.producer.lines import message_of as message_from
    from rmqtool.formats.property_names import TIMER_DELAY_MS

    require_known("send", rest, _PARTS)
    delay = rest.get("delay")
    more = {} if delay is None else {TIMER_DELAY_MS: str(round(float(delay) * 1000))}
    return message_from(
        {
            "topic": topic,
            "body": _bytes_of(body),
            "tags": tags,
            "keys": keys if keys is None or isinstance(keys, str) else " ".join(keys),
            "properties": {**(properties or {}), **more},
            "queueId": rest.get("queue"),
            "shardingKey": rest.get("sharding_key"),
            "delayLevel": rest.get("delay_level"),
            "deliverAt": milliseconds(cast("Time | None", rest.get("deliver_at"))),
            "flag": rest.get("flag"),
        }
    )


def messages_alike(topic: str, bodies: Iterable[bytes | str], **parts: Any) -> tuple[NewMessage, list[bytes]]:
    """Return a message with the parts that all have, and their bodies."""
    found = [body if type(body) is bytes else _bytes_of(body) for body in bodies]
    return message_of(topic, found[0] if found else b"", **parts), found


def _bytes_of(body: object) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    if not isinstance(data, bytes | bytearray | memoryview):
        raise UsageError(f"a body is bytes or a text, not {type(body).__name__}", hint="json.dumps(value), or bytes")
    return bytes(data)


_PARTS = ("queue", "sharding_key", "delay_level", "delay", "deliver_at", "flag", "tags", "keys", "properties")


def _plain(topic: str, body: bytes | str, tags: object, keys: object) -> NewMessage | None:
    """Return a message of the most frequent kind at once, None where its parts must be looked at."""
    from rmqtool.engine.message import NewMessage

    properties = {}
    if tags is not None or keys is not None:
        from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
        from rmqtool.formats.property_names import KEYS, TAGS

        for name, text in ((TAGS, tags), (KEYS, keys)):
            if text is None:
                continue
            if not isinstance(text, str) or NAME_VALUE_SEPARATOR in text or PROPERTY_SEPARATOR in text:
                return None
            properties[name] = text
    return NewMessage(topic, body.encode() if isinstance(body, str) else body, -1, properties)


class Reply(TypedDict):
    """The reply to a request: the members of a message that a broker passes on. It tells no place in its log."""

    topic: str
    queueId: int
    flag: int
    sysFlag: int
    bornTimestamp: int
    bornHost: str
    storeTimestamp: int
    storeHost: str
    uniqKey: str | None
    tags: str | None
    keys: str | None
    properties: dict[str, str]
    body: str
    bodyEncoding: str
    bodyCodec: str | None
    bodyLength: int


@dataclass
class Called:
    """The parts of a client that brokers send requests to. They are made when they are needed."""

    checks: Checks | None = None
    heartbeats: Heartbeats | None = None
    requests: Requests | None = None

    async def close(self) -> None:
        """Leave every group."""
        if self.heartbeats is not None:
            await self.heartbeats.close()
        self.checks = self.heartbeats = self.requests = None


async def heartbeats_of(cluster: Cluster | AsyncCluster) -> Heartbeats:
    """Return the heartbeats of a client, by which brokers can reach it."""
    from rmqtool.client.heartbeats import Heartbeats

    if cluster.called.heartbeats is None:
        cluster.called.heartbeats = Heartbeats(cluster.connections)
    return cluster.called.heartbeats


async def ask(cluster: Cluster | AsyncCluster, sends: Sends, message: NewMessage, timeout: float) -> Reply:
    """Send a message, and return the reply of the consumer that gets it."""
    from rmqtool.client.request_reply import Requests
    from rmqtool.formats.message_json import message_json

    heartbeats = await heartbeats_of(cluster)
    if sends.settings.group not in heartbeats.groups:
        await heartbeats.join(sends.settings.group)
    if cluster.called.requests is None:
        cluster.called.requests = Requests(cluster.connections)
    found = message_json(await cluster.called.requests.request(sends, message, timeout)).fields
    return cast("Reply", {name: found[name] for name in Reply.__annotations__})


async def answer_request(sends: Sends, request: Message, body: bytes | str, **message: Any) -> SendResult:
    """Send the reply to a message that was consumed; its client gets it if it still waits."""
    from rmqtool.client.request_reply import reply_properties, send_reply

    topic, _ = reply_properties(request["properties"])
    return await send_reply(sends, request["properties"], message_of(topic, body, **message))


async def answer_checks(cluster: Cluster | AsyncCluster, group: str, check: Check) -> None:
    """Answer the checks of brokers for a group of producers, with what ``check`` returns in a thread."""
    import asyncio

    from rmqtool.broker.services.transactions import TransactionState
    from rmqtool.client.half_messages import Checks
    from rmqtool.formats.message_json import message_json

    heartbeats = await heartbeats_of(cluster)
    if cluster.called.checks is None:
        cluster.called.checks = Checks(cluster.connections)

    async def ask(message: Record) -> TransactionState:
        shown = cast("Message", message_json(message).fields)
        return TransactionState(await asyncio.to_thread(check, shown))

    cluster.called.checks.checkers[group] = ask
    await heartbeats.join(group)


def state_of(said: str) -> TransactionState:
    """Return the end of a transaction by its word. Raises UsageError."""
    from rmqtool.broker.services.transactions import TransactionState

    if said not in list(TransactionState):
        raise UsageError(f"a transaction does not end with {said!r}", hint="one of commit, rollback, unknown")
    return TransactionState(said)
