"""Requests that wait for a reply: a message that a consumer answers, and the answer on its way back.

A request is a message with three more properties: an id that the reply repeats, the client that waits, and how long it
does. A consumer sends its reply to a topic of the cluster, and the broker passes it on to the waiting client, which it
knows by its heartbeats. The reply is stored too.

Upstream: ``DefaultMQProducerImpl.request``, ``MessageUtil.createReplyMessage``, ``ClientRemotingProcessor``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import Connection
from rmqtool.client.producer import REPLY, Producer, SendResult
from rmqtool.engine.message import NewMessage
from rmqtool.errors import RemoteError, UsageError
from rmqtool.formats.codes import MESSAGE_MAGIC_V1
from rmqtool.formats.commit_log import Message
from rmqtool.formats.hosts import parse_host
from rmqtool.formats.java import crc31, encode_text
from rmqtool.formats.property_names import CLUSTER, CORRELATION_ID, MSG_TYPE, REPLY_TO_CLIENT, TTL
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import REPLY_SUFFIX
from rmqtool.remoting.answers import answer
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.declared import HeaderError
from rmqtool.remoting.requests.messages import ReplyMessage

PUSHED: Final = 326
_NOWHERE: Final = (bytes(4), 0)


class NoReply(RemoteError):
    """The request is stored, and no reply came in time: a consumer may still answer it."""

    code = "no-reply"


class Requests:
    """The requests of a client that wait for their replies."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        cluster.handlers[PUSHED] = self._take

    async def request(self, producer: Producer, message: NewMessage, timeout: float) -> Message:
        """Send a message and return the reply to it.

        Raises NoReply after ``timeout`` seconds without one, and what ``Producer.begin`` says of the message.
        """
        correlation_id = str(uuid4())
        asks = {
            CORRELATION_ID: correlation_id,
            REPLY_TO_CLIENT: self._cluster.client_id,
            TTL: str(round(timeout * 1000)),
        }
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = reply
        try:
            sent = producer.begin(replace(message, properties={**message.property_map(), **asks}))
            # A reply may come before the answer to the message that it is about.
            either: set[asyncio.Future[Any]] = {sent, reply}
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                key = (await sent).msg_id
                await asyncio.wait({reply}, timeout=timeout)
                if not reply.done():
                    raise _no_reply(message.topic, key, timeout)
            return reply.result()
        finally:
            del self._waiting[correlation_id]

    def _take(self, connection: Connection, command: RemotingCommand) -> None:
        """Take a reply. One that is no longer waited for is acknowledged too: the broker cannot do better."""
        try:
            header = ReplyMessage.decode(command.ext)
        except HeaderError as error:
            connection.answer(answer(command, ResponseCode.SYSTEM_ERROR, f"process reply message fail: {error}"))
            return
        message = _message_of(header, command.body)
        waiting = self._waiting.get(message.properties.get(CORRELATION_ID, ""))
        if waiting is not None and not waiting.done():
            waiting.set_result(message)
        if not command.is_oneway:
            connection.answer(answer(command, ResponseCode.SUCCESS, None))


def _no_reply(topic: str, key: str, timeout: float) -> NoReply:
    return NoReply(
        f"no reply to the message {key} of topic {topic} came in {timeout:g} s",
        hint="does a consumer of the topic call reply? The message is stored and may still be consumed",
    )


def _message_of(header: ReplyMessage, body: bytes) -> Message:
    """Return a reply as a message. It has no place in a log: the broker tells none."""
    properties, topic = encode_text(header.properties or ""), encode_text(header.topic)
    return Message(
        total_size=0,
        magic=MESSAGE_MAGIC_V1,
        body_crc=crc31(body),
        queue_id=header.queue_id,
        flag=header.flag,
        queue_offset=0,
        physical_offset=0,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        born_host_ip=(parse_host(header.born_host) or _NOWHERE)[0],
        born_host_port=(parse_host(header.born_host) or _NOWHERE)[1],
        store_timestamp=header.store_timestamp,
        store_host_ip=(parse_host(header.store_host) or _NOWHERE)[0],
        store_host_port=(parse_host(header.store_host) or _NOWHERE)[1],
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        body_length=len(body),
        raw_body=body,
        raw_topic=topic,
        raw_properties=properties,
    )


def reply_properties(request: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the topic of the reply to a message with these properties, and its properties. Raises UsageError."""
    missing = [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT, TTL) if not request.get(name)]
    if missing:
        raise UsageError(
            f"this message asks for no reply: it has no property {missing[-1]}",
            hint="producer.request(...) sends messages that can be answered",
        )
    properties = {name: request[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TTL)}
    return request[CLUSTER] + REPLY_SUFFIX, {**properties, MSG_TYPE: REPLY}


async def send_reply(producer: Producer, request: Mapping[str, str], answered: NewMessage) -> SendResult:
    """Send the reply to a message with these properties; raise RequestRefused where its client is gone."""
    topic, properties = reply_properties(request)
    return await producer.send(replace(answered, topic=topic, properties={**answered.property_map(), **properties}))
