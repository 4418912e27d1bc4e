"""One message of a cluster, by an id, a key or a place: the requests that brokers answer from their index and log.

Upstream: ``MQAdminImpl.queryMessage``, ``viewMessage``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rmqtool.client.admin import find_topics, for_each
from rmqtool.client.cluster import Cluster, read_records
from rmqtool.client.puller import find_bounds, find_offset, pull_one
from rmqtool.errors import NotFound
from rmqtool.filters.wanted import Wanted
from rmqtool.formats.commit_log import Message
from rmqtool.formats.ids import encode_offset_msg_id
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.properties import key_tokens
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import PERM_READ
from rmqtool.look.question import Question, QuestionKind
from rmqtool.remoting.requests.messages import QueryMessage, ViewMessage
from rmqtool.remoting.signature import UNIQUE_KEY_QUERY

# upstream: the most that a broker gives for a key; mqadmin asks for 64.
_MOST: Final = 64
_TIMEOUT: Final = 15.0
_QUERY_CODES: Final = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)})
# A broker that has no message at an offset answers SYSTEM_ERROR.
_VIEW_CODES: Final = frozenset({int(ResponseCode.SUCCESS), int(ResponseCode.SYSTEM_ERROR)})


@dataclass
class Found:
    """The messages that answer a question, the kind that it was taken as, and where they were looked for."""

    kind: QuestionKind
    messages: list[Message]
    searched: dict[str, Any] = field(default_factory=dict)
    # For a time: the offset in each queue.
    offsets: dict[MessageQueue, int] = field(default_factory=dict)


async def find_messages(cluster: Cluster, question: Question, wanted: Wanted) -> Found:
    """Return the messages that a question asks for; its kinds are tried in their order."""
    kinds: Mapping[QuestionKind, Callable[[Cluster, Question, Wanted], Awaitable[Found]]] = {
        QuestionKind.OFFSET_MSG_ID: _by_offset,
        QuestionKind.PHYSICAL_OFFSET: _by_offset,
        QuestionKind.UNIQ_KEY: _by_uniq_key,
        QuestionKind.KEY: _by_key,
        QuestionKind.QUEUE_OFFSET: _by_queue_offset,
        QuestionKind.TIME: _by_time,
    }
    found = Found(question.kinds[0], [])
    for kind in question.kinds:
        if kind in kinds:
            found = await kinds[kind](cluster, question, wanted)
            found.kind = kind
        if found.kind is not QuestionKind.TIME:
            found.messages = _narrowed(found.messages, wanted)
        if found.messages or found.offsets:
            break
    return found


def _narrowed(messages: Iterable[Message], wanted: Wanted) -> list[Message]:
    """Return the messages of the wanted topics, queue and store times; the newest ones where there is a limit."""
    kept = [
        one
        for one in messages
        if wanted.allows_queue(one.topic, one.queue_id) and wanted.allows_time(one.store_timestamp)
    ]
    return kept if wanted.limit is None else kept[max(len(kept) - wanted.limit, 0) :]


def offset_msg_id(message: Message) -> str:
    """Return the offset message id of a stored message."""
    return encode_offset_msg_id(message.store_host_ip, message.store_host_port, message.physical_offset)


async def view_message(
    cluster: Cluster, address: str, physical_offset: int, topic: str | None = None
) -> Message | None:
    """Return the message at a place in the log of the broker at an address, None where no message begins.

    A broker with access control of version 2 wants to know the ``topic``.
    """
    request = ViewMessage(offset=physical_offset, topic=topic)
    answer = await cluster.ask(address, request, accept=_VIEW_CODES, timeout=_TIMEOUT)
    return next(read_records(answer.body, "a view"), None)


async def _by_offset(cluster: Cluster, question: Question, _: Wanted) -> Found:
    """Ask every broker for the record at an offset; with an id, the record must have that id."""
    masters = await cluster.masters()
    offset = question.physical_offset
    assert offset is not None
    is_id = question.text.upper() if QuestionKind.OFFSET_MSG_ID in question.kinds else None

    async def view(address: str) -> Message | None:
        return await view_message(cluster, address, offset)

    viewed = [message for message in await for_each(masters.values(), view) if message is not None]
    messages = [one for one in viewed if is_id is None or offset_msg_id(one) == is_id]
    return Found(QuestionKind.PHYSICAL_OFFSET, messages, {"brokers": sorted(masters)})


async def _by_key(cluster: Cluster, question: Question, wanted: Wanted) -> Found:
    return await _by_index(cluster, question, wanted, is_unique=False)


async def _by_uniq_key(cluster: Cluster, question: Question, wanted: Wanted) -> Found:
    return await _by_index(cluster, question, wanted, is_unique=True)


async def _by_index(cluster: Cluster, question: Question, wanted: Wanted, *, is_unique: bool) -> Found:
    """Ask the index of every broker that has one of the topics."""
    masters = await cluster.masters()
    topics = await find_topics(cluster)
    places = [(topic, broker) for topic in topics if wanted.topics.matches(topic) for broker in topics[topic]]

    async def ask(place: tuple[str, str]) -> list[Message]:
        topic, broker = place
        request = QueryMessage(
            topic=topic,
            key=question.text,
            max_num=_MOST,
            begin_timestamp=wanted.begin or 0,
            end_timestamp=LONG_MAX if wanted.end is None else wanted.end - 1,
        )
        more = {UNIQUE_KEY_QUERY: "true" if is_unique else "false"}
        answer = await cluster.ask(masters[broker], request, accept=_QUERY_CODES, timeout=_TIMEOUT, more=more)
        return [
            one for one in read_records(answer.body, "a query") if _has_key(one, question.text, is_unique=is_unique)
        ]

    messages = [message for part in await for_each(places, ask) for message in part]
    messages.sort(key=lambda message: (message.store_timestamp, message.physical_offset))
    return Found(
        QuestionKind.KEY, messages, {"topics": len({topic for topic, _ in places}), "brokers": sorted(masters)}
    )


def _has_key(message: Message, key: str, *, is_unique: bool) -> bool:
    return message.uniq_key == key if is_unique else key in key_tokens(message.properties)


async def _queues(cluster: Cluster, wanted: Wanted) -> list[MessageQueue]:
    return [
        MessageQueue(topic, broker, number)
        for topic, brokers in (await find_topics(cluster)).items()
        for broker, config in brokers.items()
        if config.perm & PERM_READ
        for number in range(config.read_queue_nums)
        if wanted.allows_queue(topic, number)
    ]


async def _by_queue_offset(cluster: Cluster, question: Question, _: Wanted) -> Found:
    topic, queue_id, offset = question.topic, question.queue_id, question.queue_offset
    assert topic is not None
    assert queue_id is not None
    assert offset is not None
    try:
        route = await cluster.routes.find(topic)
    except NotFound:
        return Found(QuestionKind.QUEUE_OFFSET, [])
    queues = [queue for queue in route.read_queues if queue.queue_id == queue_id]

    async def read(queue: MessageQueue) -> Message | None:
        least, most = await find_bounds(cluster, queue)
        return await pull_one(cluster, queue, offset) if least <= offset < most else None

    found = await for_each(queues, read)
    messages = [one for one in found if one is not None and one.queue_offset == offset]
    return Found(QuestionKind.QUEUE_OFFSET, messages, {"brokers": sorted(queue.broker_name for queue in queues)})


async def _by_time(cluster: Cluster, question: Question, wanted: Wanted) -> Found:
    timestamp = question.timestamp
    assert timestamp is not None
    queues = await _queues(cluster, wanted)

    async def read(queue: MessageQueue) -> tuple[int, Message | None]:
        offset = await find_offset(cluster, queue, timestamp)
        _, most = await find_bounds(cluster, queue)
        return offset, await pull_one(cluster, queue, offset) if offset < most else None

    found = await for_each(queues, read)
    messages = [message for _, message in found if message is not None]
    offsets = {queue: offset for queue, (offset, _) in zip(queues, found, strict=True)}
    return Found(QuestionKind.TIME, messages, {"queues": len(queues)}, offsets)
