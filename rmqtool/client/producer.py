"""A producer: it sends messages to brokers, each to the next queue.

A send ends in one of three ways: the message is stored (``SendResult``), it is not stored (an error), or that is
unknown (``SendUnknown``: it was written, and no answer came). A message that was surely not sent is sent again. With
``retry_unknown`` an unknown one is sent again too, and may then be stored twice.

Upstream: ``DefaultMQProducerImpl``. ``broker.producer`` has the rules for a message before it is sent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from random import randrange
from typing import TYPE_CHECKING, Any, Final

from rmqtool.broker.producer.client import (
    MAX_MESSAGE_SIZE,
    LeastLatency,
    Outgoing,
    QueueSelector,
    RoundRobin,
    UniqKeys,
    check_batch,
    check_body,
    check_message,
    is_retried,
    queue_by_key,
)
from rmqtool.client.cluster import Cluster
from rmqtool.client.connection import AnswerLost, Connection, NotSent, Outcome, RequestRefused
from rmqtool.client.topic_routes import NEW_TOPIC_QUEUES, Route
from rmqtool.config import Version
from rmqtool.engine.clock import SystemClock
from rmqtool.engine.message import COMPRESS_OVER, NewMessage, PutStatus, compressed
from rmqtool.errors import NotFound, RemoteError, RmqtoolError, UsageError
from rmqtool.formats.batches import encode_batch
from rmqtool.formats.codes import BodyCodec
from rmqtool.formats.ids import decode_offset_msg_id
from rmqtool.formats.java import INT_MAX
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import MSG_TYPE, SHARDING_KEY, UNIQ_KEY, WAIT
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import AUTO_CREATE_TOPIC
from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import RequestTemplate
from rmqtool.remoting.requests.messages import SendMessage, SendMessageAnswer

DEFAULT_GROUP: Final = "DEFAULT_PRODUCER"
# Which queue does not matter.
ANY_QUEUE: Final = -1
_SEND, _SEND_BATCH, _SEND_REPLY = 310, 320, 325
# The value of MSG_TYPE that makes a message a reply. upstream: MixAll.REPLY_MESSAGE_FLAG
REPLY: Final = "reply"
# TIMEOUT: for all tries together, in seconds. RETRIES: after an answer that says no, at other brokers.
TIMEOUT, RETRIES = 3.0, 2
# Between two tries to connect, in seconds: at first, and at most.
_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
# How clients of 5.x judge answers and slow brokers.
_RULES: Final = Version.V5_4

_STATUSES: Final[Mapping[int, PutStatus]] = {
    ResponseCode.SUCCESS: PutStatus.PUT_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: PutStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: PutStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: PutStatus.SLAVE_NOT_AVAILABLE,
}


class SendUnknown(AnswerLost):
    """The message was sent and no answer came: it is stored once, or not at all."""

    code = "send-unknown"

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, hint=f"rmqtool query STORE {key}")
        self.key = key


# The parts of a result as clients for Kafka, and in Java, call them.
_OTHER_NAMES: Final = {
    "partition": "queue_id",
    "offset": "queue_offset",
    "message_id": "msg_id",
    "send_status": "status",
    "get": "send waits, and this is the result; send_async returns a future",
    "result": "send waits, and this is the result; send_async returns a future",
}


@dataclass(slots=True, unsafe_hash=True)
class SendResult:
    """A message that is stored. ``msg_id`` is its unique key; ``status`` is PUT_OK, or what was not waited for."""

    status: str
    msg_id: str
    offset_msg_id: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Say what the name of another client is called here."""
            here = _OTHER_NAMES.get(name)
            raise AttributeError(f"a SendResult has no attribute {name!r}" + (f"; here: {here}" if here else ""))

    @property
    def physical_offset(self) -> int:
        """Where in the broker's log the record is."""
        found = decode_offset_msg_id(self.offset_msg_id)
        return -1 if found is None else found.physical_offset

    def as_json(self) -> dict[str, Any]:
        """Return the line of ``produce --jsonl``; a broker does not tell when it stored the message."""
        return {
            "status": self.status,
            "msgId": self.msg_id,
            "offsetMsgId": self.offset_msg_id,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "commitLogOffset": self.physical_offset,
            "storeTimestamp": None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer sends. ``latency_aware`` avoids brokers that were slow for some time."""

    group: str = DEFAULT_GROUP
    timeout: float = TIMEOUT
    retries: int = RETRIES
    retry_unknown: bool = False
    latency_aware: bool = False
    compress_over: int = COMPRESS_OVER


class _Send:
    """A message, or a batch, on its way."""

    __slots__ = (
        "body",
        "code",
        "deadline",
        "fields",
        "future",
        "is_found",
        "keys",
        "last_broker",
        "left",
        "message",
        "pause",
        "started",
        "unknown",
    )

    def __init__(
        self,
        future: asyncio.Future[Any],
        message: NewMessage,
        keys: list[str],
        code: int,
        body: bytes,
        fields: dict[str, str],
    ) -> None:
        self.future, self.message, self.keys, self.code, self.body = future, message, keys, code, body
        self.fields = fields
        self.last_broker: str | None = None
        self.pause = _PAUSE
        self.deadline = self.started = 0.0
        self.left = 0
        # What to say at the end, once an answer was lost: a later try does not tell about the earlier one.
        self.unknown: SendUnknown | None = None


_short = {name: field.short for name, field in SendMessage.fields.items() if field.short}
_SYS_FLAG, _BORN, _FLAG, _PROPERTIES = (_short[name] for name in ("sys_flag", "born_timestamp", "flag", "properties"))
_NUMBERS: Final = (_SYS_FLAG, _BORN, _FLAG)


class Producer:
    """Sends messages. It has no state that must be closed but the sends that are under way."""

    def __init__(self, cluster: Cluster, settings: ProducerSettings | None = None) -> None:
        self.settings = settings or ProducerSettings()
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        start = randrange(INT_MAX)  # noqa: S311  (nothing secret)
        # Keys of several producers of one process must differ too.
        self._keys = UniqKeys(b"\x7f\0\0\x01", os.getpid(), randrange(INT_MAX), self._clock)  # noqa: S311
        self._choice: QueueSelector = (
            LeastLatency(start, _RULES, self._clock) if self.settings.latency_aware else RoundRobin(start)
        )
        self._headers: dict[tuple[MessageQueue, int], dict[str, str]] = {}
        self._templates: dict[tuple[MessageQueue, int], RequestTemplate] = {}
        # The topics whose names were checked.
        self._named: set[str] = set()
        # The topics, and queues wanted of them, for which there was a place once.
        self._placed: set[tuple[str, int]] = set()
        self._under_way: set[_Send] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # Called by users.

    async def send(self, message: NewMessage) -> SendResult:
        """Send a message and return where it is stored. Raises what ``begin`` says."""
        found: SendResult = await self.begin(message)
        return found

    def begin(self, message: NewMessage) -> asyncio.Future[SendResult]:
        """Send a message; the future has where it is stored.

        Raises UsageError for a message that no client may send. The future raises SendUnknown where no answer came;
        RequestRefused with the broker's remark; NotSent where no byte left; NotFound where there is no such topic: at
        once, or after the timeout if there was one before.
        """
        return self._start(self._prepared(message)).future

    async def send_batch(self, messages: Sequence[NewMessage]) -> list[SendResult]:
        """Send messages of one topic to one queue, all of them or none, and return where each is stored."""
        found: list[SendResult] = await self.begin_batch(messages)
        return found

    def begin_batch(self, messages: Sequence[NewMessage]) -> asyncio.Future[list[SendResult]]:
        """Send messages of one topic to one queue, all of them or none."""
        _require_batch([Outgoing(one.topic, one.body or b"", dict(one.property_map())) for one in messages])
        keys, items = [], []
        for message in messages:
            self._check(message)
            properties, key = self._properties(message)
            keys.append(key)
            items.append((message.flag, message.body or b"", _encoded(properties)))
        return self._start_batch(messages[0], keys, items)

    async def send_alike(self, message: NewMessage, bodies: Sequence[bytes]) -> list[SendResult]:
        """Send messages that differ in their bodies only to one queue, all of them or none: a batch, made faster."""
        given = message.property_map()
        _require_batch([Outgoing(message.topic, b"", dict(given))] if bodies else [])
        self._check(replace(message, body=min(bodies, key=len)))
        self._check(replace(message, body=max(bodies, key=len)))
        if UNIQ_KEY in given:
            keys = [given[UNIQ_KEY]] * len(bodies)
            ends = [_encoded({WAIT: "true", **given})] * len(bodies)
        else:
            keys = self._keys.take(len(bodies))
            head = _encoded({WAIT: "true", **given, UNIQ_KEY: ""})
            ends = [head + key.encode() for key in keys]
        found: list[SendResult] = await self._start_batch(message, keys, zip(repeat(message.flag), bodies, ends))
        return found

    def _start_batch(
        self, first: NewMessage, keys: list[str], items: Iterable[tuple[int, bytes, bytes]]
    ) -> asyncio.Future[list[SendResult]]:
        body = encode_batch(items)
        if len(body) > MAX_MESSAGE_SIZE:
            hint = "send fewer messages in one batch"
            raise UsageError(f"a batch of {len(body)} bytes, at most {MAX_MESSAGE_SIZE} are allowed", hint=hint)
        waits = first.property_map().get(WAIT, "true")
        send = self._send(first, keys, _SEND_BATCH, body, _text({WAIT: waits}))
        send.fields[_FLAG] = "0"
        return self._start(send).future

    async def send_oneway(self, message: NewMessage) -> None:
        """Send a message and wait for nothing: whether it is stored remains unknown."""
        send = self._prepared(message)
        route = await self._cluster.routes.find(message.topic, creates=True)
        queue, address = self._place(send, route)
        connection = await self._cluster.connection(address)
        connection.tell(send.code, self._header(send, queue), send.body)

    async def flush(self) -> None:
        """Wait until every send that was begun has ended."""
        while left := [one.future for one in self._under_way if not one.future.done()]:
            await asyncio.wait(left)

    # Before the first try.

    def _check(self, message: NewMessage) -> None:
        if message.topic in self._named:
            refusal = check_body(message.body, MAX_MESSAGE_SIZE)
        elif (refusal := check_message(Outgoing(message.topic, message.body or b""), _RULES)) is None:
            self._named.add(message.topic)
        if refusal is not None:
            raise UsageError(refusal, hint="rmqtool man produce")

    def _properties(self, message: NewMessage) -> tuple[Mapping[str, str], str]:
        given = message.property_map()
        key = given.get(UNIQ_KEY) or self._keys.next()
        return {WAIT: "true", **given, UNIQ_KEY: key}, key

    def _prepared(self, message: NewMessage) -> _Send:
        self._check(message)
        if not message.properties and len(message.body or b"") < self.settings.compress_over:
            key = self._keys.next()
            return self._send(message, [key], _SEND, message.body or b"", _PLAIN + key)
        properties, key = self._properties(message)
        # A client compresses before it sends; batches are left as they are.
        packed = compressed(message, BodyCodec.ZLIB, self.settings.compress_over)
        code = _SEND_REPLY if properties.get(MSG_TYPE) == REPLY else _SEND
        return self._send(packed, [key], code, packed.body or b"", _text(properties))

    def _send(self, message: NewMessage, keys: list[str], code: int, body: bytes, properties: str) -> _Send:
        born = self._clock.now() if message.born_timestamp is None else message.born_timestamp
        fields = {
            _SYS_FLAG: str(message.sys_flag),
            _BORN: str(born),
            _FLAG: str(message.flag),
            _PROPERTIES: properties,
        }
        return _Send(self._loop.create_future(), message, keys, code, body, fields)

    def _start(self, send: _Send) -> _Send:
        send.deadline = self._loop.time() + self.settings.timeout
        send.left = self.settings.retries
        self._under_way.add(send)
        route = self._cluster.routes.known(send.message.topic)
        if route is None:
            self._later(self._find_and_try(send))
        else:
            self._try(send, route)
        return send

    def _later(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # One try.

    async def _find_and_try(self, send: _Send, pause: float = 0.0) -> None:
        try:
            if pause:
                await asyncio.sleep(pause)
            route = await self._cluster.routes.find(send.message.topic, creates=True)
        except RmqtoolError as error:
            self._miss(send, error)
            return
        self._try(send, route)

    def _try(self, send: _Send, route: Route) -> None:
        try:
            queue, address = self._place(send, route)
        except RmqtoolError as error:
            self._miss(send, error)
            return
        connection = self._cluster.connection_now(address)
        if connection is None:
            self._later(self._connect_and_write(send, queue, address))
        else:
            self._write(send, queue, connection)

    async def _connect_and_write(self, send: _Send, queue: MessageQueue, address: str) -> None:
        send.started = self._loop.time()
        try:
            connection = await self._cluster.connection(address)
        except RemoteError as error:
            self._end(send, queue, error)
            return
        self._write(send, queue, connection)

    def _write(self, send: _Send, queue: MessageQueue, connection: Connection) -> None:
        send.started = now = self._loop.time()
        left = send.deadline - now
        if left <= 0:
            self._fail(send, NotSent(f"the message was not sent in {self.settings.timeout:g} s: {connection.peer}"))
            return

        def done(outcome: Outcome) -> None:
            self._end(send, queue, outcome)

        if connection.is_plain and (frame := self._frame(send, queue, opaque := connection.next_opaque())) is not None:
            connection.ask_frame(send.code, frame, opaque, done, timeout=left)
        else:
            connection.ask(send.code, self._header(send, queue), send.body, done, timeout=left)

    def _frame(self, send: _Send, queue: MessageQueue, opaque: int) -> bytes | None:
        """Return the frame of a send, None for one that does not fit: the usual way says so."""
        template = self._templates.get((queue, send.code))
        if template is None:
            header = self._header(send, queue)
            template = self._templates[queue, send.code] = RequestTemplate(send.code, header, _NUMBERS, _PROPERTIES)
        sys_flag, born, flag, properties = send.fields.values()
        try:
            return template.encode(opaque, (sys_flag, born, flag), properties, send.body)
        except ValueError:
            return None

    def _place(self, send: _Send, route: Route) -> tuple[MessageQueue, str]:
        """Return the queue that a message goes to, and the address of its broker."""
        queues, wanted = route.write_queues, send.message.queue_id
        if wanted != ANY_QUEUE:
            queues = [queue for queue in queues if queue.queue_id == wanted]
        if not queues:
            what = f"no queue {wanted}" if wanted != ANY_QUEUE and route.write_queues else "no queue to write to"
            raise NotFound(f"topic {route.topic} has {what}", hint="rmqtool topic STORE list")
        sharding_key = send.message.property_map().get(SHARDING_KEY)
        if sharding_key is not None and wanted == ANY_QUEUE:
            queue = queue_by_key(sharding_key, queues)
        else:
            queue = self._choice.select(queues, send.last_broker)
        address = route.write_address(queue.broker_name)
        if address is None:
            raise RemoteError(
                f"broker {queue.broker_name} of topic {route.topic} has no master", hint="try again later"
            )
        self._placed.add((route.topic, wanted))
        return queue, self._cluster.address_to_send(address)

    def _header(self, send: _Send, queue: MessageQueue) -> dict[str, str]:
        base = self._headers.get((queue, send.code))
        if base is None:
            request = SendMessage(
                producer_group=self.settings.group,
                topic=queue.topic,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=NEW_TOPIC_QUEUES,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                properties="",
                reconsume_times=0,
                unit_mode=False,
                batch=send.code == _SEND_BATCH,
                bname=queue.broker_name,
            )
            base = self._headers[queue, send.code] = request.encode(short=True)
        return {**base, **send.fields}

    # After it.

    def _end(self, send: _Send, queue: MessageQueue, outcome: Outcome) -> None:
        took = int((self._loop.time() - send.started) * 1000)
        if isinstance(outcome, RemotingCommand):
            status = _STATUSES.get(outcome.code)
            self._report(queue.broker_name, took, failed=status is None)
            if status is not None:
                self._succeed(send, queue, status, outcome)
                return
            code = outcome.code
            outcome = RequestRefused(send.code, outcome, queue.broker_name)
            again = send.left > 0 and code in _CODES and is_retried(ResponseCode(code), _RULES)
            send.left -= 1
        else:
            self._report(queue.broker_name, took, failed=True, reachable=not isinstance(outcome, NotSent))
            again = isinstance(outcome, NotSent)
            if isinstance(outcome, AnswerLost):
                again = self.settings.retry_unknown and send.left > 0
                send.left -= 1
                outcome = send.unknown = SendUnknown(
                    f"{outcome.message}; the message {send.keys[0]} is stored once, or not at all", send.keys[0]
                )
        send.last_broker = queue.broker_name
        if again:
            self._try_later(send, outcome)
        else:
            self._fail(send, outcome)

    def _miss(self, send: _Send, error: RmqtoolError) -> None:
        """Go on where a message has no place: it comes back where there was one before.

        A name server forgets a broker that goes away, and then the topics that only this one had.
        """
        if (send.message.topic, send.message.queue_id) in self._placed:
            self._try_later(send, error)
        else:
            self._fail(send, error)

    def _try_later(self, send: _Send, error: RmqtoolError) -> None:
        """Try again after a pause; without the time for it the error is the end."""
        left = send.deadline - self._loop.time()
        if left > send.pause and not self._cluster.is_closed:
            self._cluster.routes.forget(send.message.topic)
            self._later(self._find_and_try(send, send.pause))
            send.pause = min(2 * send.pause, _LONGEST_PAUSE)
        else:
            self._fail(send, error)

    def _report(self, broker: str, took: int, *, failed: bool = False, reachable: bool = True) -> None:
        if isinstance(self._choice, LeastLatency):
            self._choice.report(broker, took, failed=failed, reachable=reachable)

    def _succeed(self, send: _Send, queue: MessageQueue, status: PutStatus, command: RemotingCommand) -> None:
        self._under_way.discard(send)
        if send.future.done():
            return
        if send.code == _SEND and (plain := _plain_result(send, queue, status, command.ext)) is not None:
            send.future.set_result(plain)
            return
        found = SendMessageAnswer.decode_answer(command.ext)
        ids = (found.msg_id or "").split(",")
        results = [
            SendResult(
                status.value,
                key,
                ids[number] if number < len(ids) else "",
                queue.topic,
                queue.broker_name,
                queue.queue_id if found.queue_id is None else found.queue_id,
                -1 if found.queue_offset is None else found.queue_offset + number,
                found.transaction_id,
            )
            for number, key in enumerate(send.keys)
        ]
        send.future.set_result(results if send.code == _SEND_BATCH else results[0])

    def _fail(self, send: _Send, error: RmqtoolError) -> None:
        self._under_way.discard(send)
        if not send.future.done():
            send.future.set_exception(send.unknown or error)


def _plain_result(send: _Send, queue: MessageQueue, status: PutStatus, ext: Mapping[str, str]) -> SendResult | None:
    """Return the result of a single message at once, None for an answer that must be looked at."""
    queue_id, offset, msg_id = ext.get("queueId", ""), ext.get("queueOffset", ""), ext.get("msgId")
    if msg_id is None or not (queue_id.isdecimal() and offset.isdecimal()) or len(offset) > _DIGITS:
        return None
    return SendResult(
        status.value,
        send.keys[0],
        msg_id,
        queue.topic,
        queue.broker_name,
        int(queue_id),
        int(offset),
        ext.get("transactionId"),
    )


# Of a long; a text with more is read by the usual way, which refuses what no number has.
_DIGITS: Final = 18
_CODES: Final = frozenset(int(code) for code in ResponseCode)


def _require_batch(messages: Sequence[Outgoing]) -> None:
    refusal = check_batch(messages)
    if refusal is not None:
        raise UsageError(refusal, hint="send such messages one by one")


def _encoded(properties: Mapping[str, str]) -> bytes:
    return _text(properties).encode("utf-8", "replace")


def _text(properties: Mapping[str, str]) -> str:
    return PROPERTY_SEPARATOR.join([f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items()])


# The properties that a message always has, up to its key.
_PLAIN: Final = _text({WAIT: "true", UNIQ_KEY: ""})
