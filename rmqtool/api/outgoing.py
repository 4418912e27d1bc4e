"""Messages of programs on their way to a cluster: their parts, and the ends of transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from rmqtool.api.wanted import Time, milliseconds, require_known
from rmqtool.errors import UsageError

if TYPE_CHECKING:
    from rmqtool.api.async_cluster import AsyncCluster
    from rmqtool.api.cluster import Cluster
    from rmqtool.api.shapes import Message
    from rmqtool.broker.services.transactions import TransactionState
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
    from rmqtool.broker.producer.lines import message_of as message_from
    from rmqtool.formats.property_names import TIMER_DELAY_MS

    require_known("send", rest, ("queue", "sharding_key", "delay_level", "delay", "deliver_at", "flag"))
    delay = rest.get("delay")
    more = {} if delay is None else {TIMER_DELAY_MS: str(round(float(delay) * 1000))}
    data = body.encode() if isinstance(body, str) else body
    if not isinstance(data, bytes | bytearray | memoryview):
        raise UsageError(f"a body is bytes or a text, not {type(body).__name__}", hint="json.dumps(value), or bytes")
    return message_from(
        {
            "topic": topic,
            "body": bytes(data),
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


async def answer_checks(cluster: Cluster | AsyncCluster, group: str, check: Check) -> None:
    """Answer the checks of brokers for a group of producers, with what ``check`` returns in a thread."""
    import asyncio

    from rmqtool.broker.services.transactions import TransactionState
    from rmqtool.client.half_messages import Checks
    from rmqtool.client.heartbeats import Heartbeats
    from rmqtool.formats.message_json import message_json

    connections = cluster.connections
    if cluster.checks is None or cluster.heartbeats is None:
        cluster.checks, cluster.heartbeats = Checks(connections), Heartbeats(connections)

    async def ask(message: Record) -> TransactionState:
        shown = cast("Message", message_json(message).fields)
        return TransactionState(await asyncio.to_thread(check, shown))

    cluster.checks.checkers[group] = ask
    await cluster.heartbeats.join(group)


def state_of(said: str) -> TransactionState:
    """Return the end of a transaction by its word. Raises UsageError."""
    from rmqtool.broker.services.transactions import TransactionState

    if said not in list(TransactionState):
        raise UsageError(f"a transaction does not end with {said!r}", hint="one of commit, rollback, unknown")
    return TransactionState(said)
