"""Sending: a message, a batch, a half message, and what a consumer could not consume and sends again.

Upstream: ``SendMessageProcessor``, ``AbstractSendMessageProcessor``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from rmqtool.broker.one_broker import Asked, Broker
from rmqtool.broker.processors.replies import Forwarded, PlainRow, Putting, Reply
from rmqtool.broker.producer.client import UniqKeys
from rmqtool.broker.producer.send import broker_properties, receive, status_without_slave
from rmqtool.broker.services.retry import text_of
from rmqtool.broker.services.transactions import EndStatus
from rmqtool.broker.topics import TopicConfig
from rmqtool.config import StoreConfig, Version
from rmqtool.engine.message import COMPRESS_OVER, Host, NewMessage, PutStatus, fastest_plain_record
from rmqtool.engine.put import MATTERS, PutTicket
from rmqtool.formats.codes import SysFlag, is_since
from rmqtool.formats.hosts import format_host
from rmqtool.formats.java import encode_text
from rmqtool.formats.properties import read_properties
from rmqtool.formats.property_names import (
    DELAY,
    MSG_REGION,
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    WAIT,
)
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import (
    DLQ_PREFIX,
    MAX_TOPIC_LENGTH,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    TIMER_TOPIC,
    check_topic_name,
    dlq_topic,
    is_allowed_to_send,
)
from rmqtool.remoting.answers import (
    FURTHER_4,
    FURTHER_5,
    MESSAGE_ILLEGAL,
    NO_RECEIVER_OF_REPLY,
    SEND_QUEUE_ILLEGAL,
    SENDING_FORBIDDEN,
    SERVICE_NOT_AVAILABLE,
    TOPIC_IS_SYSTEMS,
    TOPIC_NOT_EXIST,
    AnswerTemplate,
    answer,
    refuse,
)
from rmqtool.remoting.command import RemotingCommand, SerializeType
from rmqtool.remoting.requests.messages import ReplyMessage, SendMessage, SendMessageAnswer

# A client from this version on says itself how often a message of its group is tried again.
_SAYS_MOST_RETRIES = 121
_RETRY_QUEUES = 1
_MULTI_TAG = "MULTI_TAG"
_MULTI_TAGS = int(SysFlag.MULTI_TAGS)

_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
_REFUSED = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: (
        ResponseCode.SYSTEM_ERROR,
        "create mapped file failed, server is busy or broken.",
    ),
    PutStatus.OS_PAGE_CACHE_BUSY: (
        ResponseCode.SYSTEM_ERROR,
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    ),
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "timer message illegal, the delay time should not be bigger than the max delay {limit}ms; or if set del msg, "
        "the delay time should be bigger than the current time",
    ),
    PutStatus.WHEEL_TIMER_NOT_ENABLE: (
        ResponseCode.SYSTEM_ERROR,
        "accurate timer message is not enabled, timerWheelEnable is false",
    ),
    PutStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
}
_SECOND = 1000
# Kinds of messages that are known. A producer of random property names must not fill the memory.
_MOST_KINDS = 4096


class Sending:
    """Takes the messages of clients for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._config = broker.config
        self._is_4_9 = broker.config.version is Version.V4_9
        self._put, self._added = broker.store.put_async, broker_properties(broker.config)
        self._keys = UniqKeys(*broker.address, 0, broker.store.setup.clock)
        # With slaves the server waits for them, and decides the status.
        self._without_slave = None if broker.ha_address is not None else status_without_slave(broker.config)
        # The kinds of plain messages, by topic and names of properties; None for those that need a closer look.
        self._kinds: dict[tuple[str, ...], object | None] = {}
        self._record = fastest_plain_record()
        self._templates = {code: self._template(code) for code in _CODES.values()}

    def _template(self, code: ResponseCode) -> AnswerTemplate:
        fixed = SendMessageAnswer.decode_answer({MSG_REGION: self._config.region_id, TRACE_ON: self._trace})
        holes = ("msg_id", "queue_id", "queue_offset")
        return AnswerTemplate(fixed, *holes, *(() if self._is_4_9 else ("transaction_id",)), code=code)

    @property
    def _trace(self) -> str:
        return str(self._config.trace_on).lower()

    def send(self, asked: Asked) -> Reply:
        """Store a message; the answer comes when it is known what came of it."""
        header: SendMessage = asked.header  # type: ignore[assignment]
        topic = header.topic
        config = self._broker.topics.table.get(topic)
        refusal = self._refusal(asked, header, config)
        if refusal is not None:
            return refusal
        config = config or self._broker.topics.table[topic]
        queue_id, command = header.queue_id, asked.command
        if queue_id < 0:
            queue_id = self._broker.chance.randrange(max(int(config["writeQueueNums"]), 1))
        properties = read_properties(header.properties or "")
        sys_flag = header.sys_flag
        if config.get("topicFilterType") == _MULTI_TAG:
            sys_flag |= _MULTI_TAGS
        times = header.reconsume_times or 0
        born, host = header.born_timestamp, asked.host
        message = NewMessage(topic, command.body, queue_id, properties, header.flag, sys_flag, born, host, None, times)
        if topic.startswith(RETRY_PREFIX):
            retried = self._as_retried(asked, header, message)
            if not isinstance(retried, NewMessage):
                return retried
            message, properties = retried, dict(retried.property_map())
            message.properties = properties
        if header.batch:
            return self._send_batch(asked, message)
        if self._is_4_9:
            receive(message, self._config, "")
        else:
            # As ``receive`` does for 5.x, written out: each message comes here.
            if UNIQ_KEY not in properties:
                properties[UNIQ_KEY] = self._keys.next()
            properties.update(self._added)
        if TRAN_MSG in properties and properties[TRAN_MSG].lower() == "true" and not _is_retry_later(message):
            half = self._broker.services.transactions.half_of(message)
            if isinstance(half, EndStatus):
                remark = f"the broker[{self._address}] sending transaction message is forbidden"
                return answer(asked.command, ResponseCode.NO_PERMISSION, remark)
            message = half
        ticket = self._put(message)
        key = "" if self._is_4_9 else properties[UNIQ_KEY]
        if ticket.queue[0] == TIMER_TOPIC and is_since(self._broker.version, "5.3.2"):
            return Putting(ticket, partial(self._answer_timer, command, topic, queue_id, ticket, key))
        return Putting(ticket, partial(self._answer, command, topic, queue_id, ticket, key))

    def take_row(self, row: PlainRow, host: Host) -> tuple[PutTicket, str] | None:
        """Store a plain message as ``send`` does; return its ticket and unique key, None if it needs a closer look."""
        _, _, _, topic, queue_id, born, flag, properties, body = row
        broker = self._broker
        config = broker.topics.table.get(topic)
        if config is None or broker.read_only or not self._config.broker_permission & PERM_WRITE:
            return None
        if queue_id >= config["writeQueueNums"] or config.get("topicFilterType") == _MULTI_TAG:
            return None
        names = (topic, *properties)
        try:
            kind = self._kinds[names]
        except KeyError:
            kind = self._kind_of(names)
        if kind is None or len(body) >= COMPRESS_OVER:
            return None
        key = properties.get(UNIQ_KEY) or self._keys.next()
        record = self._record(kind, properties, key, body, flag, queue_id, 0, 0, born, 0, host)
        if record is None:
            return None
        ticket = broker.store.put_made((topic, queue_id), record, properties.get(WAIT, "true").lower() == "true")
        return None if ticket is None else (ticket, key)

    def _kind_of(self, names: tuple[str, ...]) -> object | None:
        """Return the kind of plain messages with a topic and names of properties, and keep it; else None."""
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        topic, *given = names
        kind = None
        is_plain = MATTERS.isdisjoint(given) and TRAN_MSG not in given and self._without_slave is None
        is_plain = is_plain and not topic.startswith(RETRY_PREFIX) and (UNIQ_KEY in given or not self._is_4_9)
        if is_plain and is_allowed_to_send(topic, self._broker.version):
            whole = dict.fromkeys((*given, UNIQ_KEY, *self._added))
            # 4.9 does not store whether the sender waits.
            stored = tuple(name for name in whole if name != WAIT or not self._is_4_9)
            kind = self._broker.store.plain_kind(topic, stored, self._added)
        self._kinds[names] = kind
        return kind

    def finish(self, command: RemotingCommand, ticket: PutTicket, key: str) -> Callable[[], RemotingCommand | bytes]:
        """Return what makes the answer to a plain message when it is known what came of it."""
        return partial(self._answer, command, *ticket.queue, ticket, "" if self._is_4_9 else key)

    def stored(self, opaque: int, ticket: PutTicket, key: str) -> bytes:
        """Return the answer to a plain message that is stored."""
        topic, queue_id = ticket.queue
        counts = self._broker.counts
        counts.put_calls[topic] += 1
        counts.puts[topic] += 1
        counts.put_bytes[topic] += ticket.size
        values = (ticket.offset_msg_id, queue_id, ticket.queue_offset)
        if not self._is_4_9:
            values = (*values, key)  # type: ignore[assignment]
        return self._templates[ResponseCode.SUCCESS].encode(SerializeType.JSON, opaque, values)

    def reply(self, asked: Asked) -> Reply:
        """Pass a reply on to the client that waits for it, then store it. upstream: ReplyMessageProcessor."""
        header: SendMessage = asked.header  # type: ignore[assignment]
        config = self._broker.topics.table.get(header.topic)
        refusal = self._refusal(asked, header, config)
        if refusal is not None:
            return refusal
        config = config or self._broker.topics.table[header.topic]
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = self._broker.chance.randrange(max(int(config["writeQueueNums"]), 1))
        properties = read_properties(header.properties or "")
        message = NewMessage(
            header.topic,
            asked.command.body,
            queue_id,
            encode_text(header.properties or ""),
            header.flag,
            born_timestamp=header.born_timestamp,
            born_host=asked.host,
            reconsume_times=header.reconsume_times or 0,
        )
        waiting = properties.get(REPLY_TO_CLIENT)
        if waiting is None:
            code, remark = NO_RECEIVER_OF_REPLY.of(self._broker.version, name=REPLY_TO_CLIENT)
            return self._stored_reply(asked.command, message, code, remark)
        target = self._broker.clients.find_producer(waiting)
        if target is None:
            remark = f"push reply message fail, channel of <{waiting}> not found."
            return self._stored_reply(asked.command, message, ResponseCode.SYSTEM_ERROR, remark)

        def pushed(found: RemotingCommand | None) -> Reply:
            if found is not None and found.code == ResponseCode.SUCCESS:
                return self._stored_reply(asked.command, message, ResponseCode.SUCCESS, None)
            remark = f"push reply message to {waiting}fail."
            return self._stored_reply(asked.command, message, ResponseCode.SYSTEM_ERROR, remark)

        return Forwarded(target, self._push(asked, header, properties, queue_id), pushed)

    def _push(self, asked: Asked, header: SendMessage, properties: dict[str, str], queue_id: int) -> RemotingCommand:
        """Return the request that passes a reply on."""
        now = self._broker.store.setup.clock.now()
        told = {**properties, PUSH_REPLY_TIME: str(now)}
        if not self._is_4_9:
            told |= {MSG_REGION: self._config.region_id, TRACE_ON: self._trace}
        pushed = ReplyMessage(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=text_of(told, self._config.version).decode(),
            reconsume_times=header.reconsume_times or 0,
            unit_mode=bool(header.unit_mode),
            born_host=format_host(*asked.host),
            store_host=self._broker.shown_address,
            store_timestamp=now,
        )
        return RemotingCommand(ReplyMessage.codes[0].code, pushed.encode(), asked.command.body)

    def _stored_reply(self, command: RemotingCommand, message: NewMessage, code: int, remark: str | None) -> Reply:
        """Store a reply; the answer says what came of passing it on, and where it is stored."""
        ticket = self._broker.store.put_async(message)

        def finish() -> RemotingCommand:
            stored = ticket.is_ok
            header = SendMessageAnswer(
                msg_id=ticket.offset_msg_id if stored else "0",
                queue_id=message.queue_id,
                queue_offset=ticket.queue_offset if stored else 0,
                msg_region=self._config.region_id,
                trace_on=self._trace,
            )
            return answer(command, code, remark, header=header)

        return Putting(ticket, finish)

    def _refusal(self, asked: Asked, header: SendMessage, config: TopicConfig | None) -> RemotingCommand | None:
        """Refuse what upstream's ``msgCheck`` refuses; a topic that is not there is made where that is allowed."""
        topic, version, command = header.topic, self._broker.version, asked.command
        # A message to a retry topic comes from a consumer, and comes back to its group.
        is_forbidden = self._broker.read_only and not topic.startswith(RETRY_PREFIX)
        if is_forbidden or (not self._config.broker_permission & PERM_WRITE and (config or {}).get("order")):
            return refuse(command, SENDING_FORBIDDEN, version, address=self._address)
        if config is None:
            text = check_topic_name(topic, version)
            if text is not None:
                code = ResponseCode.SYSTEM_ERROR if self._is_4_9 else ResponseCode.INVALID_PARAMETER
                return answer(command, code, _name_refusal(topic))
        if not is_allowed_to_send(topic, version):
            return refuse(command, TOPIC_IS_SYSTEMS, version, topic=topic)
        if config is None:
            config = self._make(header)
            if config is None:
                return refuse(command, TOPIC_NOT_EXIST, version, topic=topic)
        limit = max(int(config["writeQueueNums"]), int(config["readQueueNums"]))
        if header.queue_id >= limit:
            shown = _shown_config(config)
            holes = {"queue_id": header.queue_id, "topic_config": shown, "client": asked.client}
            return refuse(command, SEND_QUEUE_ILLEGAL, version, **holes)
        return None

    @property
    def _address(self) -> str:
        return self._config.broker_ip1

    def _make(self, header: SendMessage) -> TopicConfig | None:
        """Make the topic that a client sends to, by the model that it names; a retry topic needs none."""
        topics, queues = self._broker.topics, header.default_topic_queue_nums
        if self._config.auto_create_topic_enable or header.default_topic in topics.table:
            made = topics.auto_create(header.topic, header.default_topic, queues)
            if made is not None:
                return made
        if header.topic.startswith(RETRY_PREFIX):
            topics.ensure(header.topic, _RETRY_QUEUES, PERM_READ | PERM_WRITE)
        return topics.find(header.topic)

    def _as_retried(self, asked: Asked, header: SendMessage, message: NewMessage) -> NewMessage | RemotingCommand:
        """Return a message for the retry topic, or the dead letter that it becomes after too many retries.

        upstream: in 5.x also any message of a group with locked queues: ordered consumers send when they give up.
        """
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._broker.groups.find_or_create(group)
        if config is None:
            more = (FURTHER_4 if self._is_4_9 else FURTHER_5).lstrip("\n")
            remark = f"subscription group not exist, {group} {more}"
            return answer(asked.command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        most = int(config.get("retryMaxTimes", 16))
        if asked.command.version >= _SAYS_MOST_RETRIES and header.max_reconsume_times is not None:
            most = header.max_reconsume_times
        times = header.reconsume_times or 0
        gives_up = times >= most if self._is_4_9 else times > most or self._broker.locks.is_any_held(group)
        if not gives_up:
            return message
        topic = dlq_topic(group)
        self._broker.topics.ensure(topic, 1, PERM_READ | PERM_WRITE)
        properties = dict(message.property_map())
        if self._is_4_9:
            properties[DELAY] = "0"
        else:
            properties[DELAY] = "-1"
        message.topic, message.queue_id = topic, 0
        return message.with_properties(properties)

    def _send_batch(self, asked: Asked, message: NewMessage) -> Reply:
        """Store a batch. Each message gets the properties of the batch except its unique key.

        upstream: 5.3 adds that key too, and then no query finds the message by its own key (#9416).
        """
        if len(message.topic) > MAX_TOPIC_LENGTH:
            remark = f"message topic length too long {len(message.topic)}"
            return answer(asked.command, ResponseCode.MESSAGE_ILLEGAL, remark)
        if message.topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            remark = f"batch request does not support retry group {message.topic}"
            return answer(asked.command, ResponseCode.MESSAGE_ILLEGAL, remark)
        shared = {name: value for name, value in message.property_map().items() if name != UNIQ_KEY}
        shared |= broker_properties(self._config)
        ticket = self._broker.store.put_async(message.with_properties(shared), is_batch=True)
        finish = partial(self._answer, asked.command, message.topic, message.queue_id, ticket, "")
        return Putting(ticket, finish)

    def _answer(
        self, command: RemotingCommand, topic: str, queue_id: int, ticket: PutTicket, key: str
    ) -> RemotingCommand | bytes:
        status = ticket.status or PutStatus.UNKNOWN_ERROR
        if status is PutStatus.PUT_OK and self._without_slave is not None and ticket.waits:
            status = self._without_slave
        code = _CODES.get(status)
        counts = self._broker.counts
        if code is None:
            counts.failed_puts += 1
            return self._refused(command, status)
        counts.put_calls[topic] += 1
        counts.puts[topic] += len(ticket.record_offsets) or 1
        counts.put_bytes[topic] += ticket.size
        values = (ticket.offset_msg_id, queue_id, ticket.queue_offset)
        if not self._is_4_9:
            values = (*values, key)  # type: ignore[assignment]
        return self._templates[code].encode(command.serialize_type, command.opaque, values)

    def _answer_timer(
        self, command: RemotingCommand, topic: str, queue_id: int, ticket: PutTicket, key: str
    ) -> RemotingCommand | bytes:
        """Answer a message that waits for its time with the handle to recall it."""
        found = self._answer(command, topic, queue_id, ticket, key)
        handle = self._broker.recall_handle(ticket.physical_offset) if isinstance(found, bytes) else None
        if handle is None:
            return found
        header = SendMessageAnswer(
            msg_id=ticket.offset_msg_id,
            queue_id=queue_id,
            queue_offset=ticket.queue_offset,
            transaction_id=key,
            recall_handle=handle,
            msg_region=self._config.region_id,
            trace_on=self._trace,
        )
        return answer(command, _CODES[ticket.status or PutStatus.PUT_OK], header=header)

    def _refused(self, command: RemotingCommand, status: PutStatus) -> RemotingCommand:
        version, store = self._broker.version, self._broker.store
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            return refuse(command, MESSAGE_ILLEGAL, version, limit=self._config.max_message_size)
        if status is PutStatus.SERVICE_NOT_AVAILABLE or store.condition().failure is not None:
            code, remark = SERVICE_NOT_AVAILABLE.of(version, disk=self._broker.refusal_of_puts())
            return answer(command, code, remark)
        code, text = _REFUSED[status]
        return answer(command, code, text.format(limit=_longest_delay(self._config)))


def _longest_delay(config: StoreConfig) -> int:
    return config.timer_max_delay_sec * _SECOND


def _is_retry_later(message: NewMessage) -> bool:
    """Tell whether a half message is a retry: then it is stored as an ordinary message."""
    return message.reconsume_times > 0 and message.property_map().get(DELAY, "0") != "0"


@lru_cache(maxsize=64)
def _name_refusal(topic: str) -> str:
    if not topic.strip():
        return "The specified topic is blank."
    if len(topic) > MAX_TOPIC_LENGTH:
        return f"The specified topic is longer than topic max length {MAX_TOPIC_LENGTH}."
    return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"


def _shown_config(config: TopicConfig) -> str:
    """Return the settings of a topic as Java prints them."""
    perm = int(config["perm"])
    letters = "".join(letter if perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    names = ("topicFilterType", "topicSysFlag", "order", "attributes")
    kind, flag, order, attributes = (config.get(name) for name in names)
    return (
        f"TopicConfig [topicName={config['topicName']}, readQueueNums={config['readQueueNums']}, "
        f"writeQueueNums={config['writeQueueNums']}, perm={letters}, topicFilterType={kind}, "
        f"topicSysFlag={flag}, order={str(bool(order)).lower()}, attributes={{{_pairs(attributes)}}}]"
    )


def _pairs(attributes: object) -> str:
    return ", ".join(f"{name}={value}" for name, value in attributes.items()) if isinstance(attributes, dict) else ""
