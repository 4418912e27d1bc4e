"""Answers: general ones, templates for frequent ones, and refusals.

An answer goes back with the request's number and in the request's kind of header, as a 4.9 broker does and every client
reads it. A broker's answers to sends and pulls differ in a few fields only: a template encodes the rest once, for both
kinds of header. Its bytes are the same as those of ``encode_frame`` for the same command.

People search for the remarks of refusals, and tools compare them, so they are upstream's, letter by letter and by
version. A remark names its placeholders.

A frame that cannot be read gets no answer, as upstream: the connection is closed (``FrameError``). A header or body
that cannot be read is answered 1 with the reason (``HeaderError``, ``BodyError``), and an unknown code 3. A 4.9 name
server does not answer unknown codes at all, so its clients wait in vain; that is not repeated here.

Upstream: the processors of ``broker`` and ``namesrv``, ``NettyRemotingAbstract``, ``FAQUrl``.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from rmqtool import kernel
from rmqtool.formats.codes import is_since
from rmqtool.formats.java import encode_text
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting import limits
from rmqtool.remoting.binary_header import encode_binary_header
from rmqtool.remoting.body import Body, BodyError
from rmqtool.remoting.command import ANSWER, OWN_VERSION, RemotingCommand, SerializeType
from rmqtool.remoting.declared import HeaderError
from rmqtool.remoting.frames import join_frame
from rmqtool.remoting.headers import Header
from rmqtool.remoting.json_header import encode_json_header, quote

# The placeholder of a value; no value of upstream contains it.
_HOLE: Final = "\ufffc"
_INT: Final = struct.Struct(">i")
# In a ROCKETMQ header: after code, language and version.
_OPAQUE_AT: Final = 5


def answer(
    request: RemotingCommand,
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    *,
    header: Header | None = None,
    body: Body | bytes = b"",
) -> RemotingCommand:
    """Return the answer to a request."""
    return RemotingCommand(
        int(code),
        None if header is None else header.encode(),
        body if isinstance(body, bytes) else body.encode(),
        request.opaque,
        ANSWER,
        version=OWN_VERSION,
        remark=remark,
        serialize_type=request.serialize_type,
    )


# Errors of a request whose header or body cannot be read.
UNREADABLE: Final = (HeaderError, BodyError)


def unreadable(request: RemotingCommand, error: ValueError) -> RemotingCommand:
    """Return the answer to a request whose header or body cannot be read: code 1 with the reason."""
    return answer(request, ResponseCode.SYSTEM_ERROR, str(error))


class AnswerTemplate:
    """An answer of one kind. ``header`` has the constant fields; ``holes`` are the attributes that differ.

    The holes must be numbers or texts that the header was not given.
    """

    def __init__(self, header: Header, *holes: str, code: int = 0, remark: str | None = None) -> None:
        names = [header.fields[name].wire for name in holes]
        is_text = [header.fields[name].java == "String" for name in holes]
        self._texts = [place for place, is_one in enumerate(is_text) if is_one]
        fields = header.encode() | dict.fromkeys(names, _HOLE)
        command = RemotingCommand(code, fields, flag=ANSWER, version=OWN_VERSION, remark=remark)
        text = encode_json_header(command).decode().replace("%", "%%")
        for is_one in is_text:
            text = text.replace(f'"{_HOLE}"', "%s" if is_one else '"%d"', 1)
        # The members are sorted by name: opaque comes after the fields.
        self._json = text.replace('"opaque":0', '"opaque":%d', 1)
        # The same for the kernel: what is around the values, whose quotes it writes.
        pieces = self._json.replace("%d", _HOLE).replace("%s", _HOLE).replace("%%", "%").split(_HOLE)
        self._parts = tuple(map(encode_text, pieces))
        self._binary = self._split(encode_binary_header(command))
        self._fields_at = len(encode_binary_header(command.replaced(ext_fields=None))) - _INT.size

    @staticmethod
    def _split(header: bytes) -> list[bytes]:
        """Return the parts of a ROCKETMQ header around its holes, without their lengths."""
        hole = encode_text(_HOLE)
        return header.split(_INT.pack(len(hole)) + hole)

    def encode(self, serialize_type: SerializeType, opaque: int, values: tuple[Any, ...], body: bytes = b"") -> bytes:
        """Return the frame that answers ``opaque``, with a header of the request's type."""
        if serialize_type is SerializeType.ROCKETMQ:
            return join_frame(self._binary_header(opaque, values), body, serialize_type)
        if kernel.NATIVE is not None:
            limits_of = limits.HEADER_BYTES, limits.FRAME_BYTES
            frame = kernel.NATIVE.answer_frame(self._parts, (*values, opaque), body, *limits_of)
            if frame is not None:
                return frame
        spelled = [*values, opaque]
        for place in self._texts:
            spelled[place] = quote(spelled[place])
        header = self._json % tuple(spelled)
        return join_frame(header.encode() if header.isascii() else encode_text(header), body, serialize_type)

    def _binary_header(self, opaque: int, values: tuple[Any, ...]) -> bytes:
        parts = [self._binary[0]]
        for value, part in zip(values, self._binary[1:], strict=True):
            text = encode_text(str(value))
            parts += [_INT.pack(len(text)), text, part]
        header = bytearray(b"".join(parts))
        _INT.pack_into(header, _OPAQUE_AT, opaque)
        _INT.pack_into(header, self._fields_at, len(header) - self._fields_at - _INT.size)
        return bytes(header)


_MORE: Final = "\nSee {} for further details."
FURTHER_4: Final = _MORE.format("http://rocketmq.apache.org/docs/faq/")
FURTHER_5: Final = _MORE.format("https://rocketmq.apache.org/docs/bestPractice/06FAQ")


class Refusal(NamedTuple):
    """A refusal. ``code_5`` and ``text_5`` are what 5.x answers if that differs."""

    code: ResponseCode
    text: str
    code_5: ResponseCode | None = None
    text_5: str | None = None

    def of(self, version: str, **holes: object) -> tuple[ResponseCode, str]:
        """Return code and remark as a broker of ``version`` writes them."""
        is_5 = is_since(version, "5.0.0")
        code = self.code_5 if is_5 and self.code_5 is not None else self.code
        text = self.text_5 if is_5 and self.text_5 is not None else self.text
        return code, text.format(see=FURTHER_5 if is_5 else FURTHER_4, **holes)


_C = ResponseCode

UNSUPPORTED: Final = Refusal(_C.REQUEST_CODE_NOT_SUPPORTED, " request type {code} not supported")
REJECTED: Final = Refusal(_C.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
OVERLOADED: Final = Refusal(_C.SYSTEM_BUSY, "[OVERLOAD]system busy, start flow control for a while")
WAITED_TOO_LONG: Final = Refusal(
    _C.SYSTEM_BUSY,
    "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {ms}ms, size of queue: {size}",
)
NO_ROUTE: Final = Refusal(_C.TOPIC_NOT_EXIST, "No topic route info in name server for the topic: {topic}{see}")
NO_CONFIG_ITEM: Final = Refusal(_C.QUERY_NOT_FOUND, "No config item, Namespace: {namespace} Key: {key}")
BAD_REGISTRATION: Final = Refusal(_C.SYSTEM_ERROR, "crc32 not match")

TOPIC_NOT_EXIST: Final = Refusal(_C.TOPIC_NOT_EXIST, "topic[{topic}] not exist, apply first please!{see}")
TOPIC_NOT_EXIST_TO_PULL: Final = Refusal(_C.TOPIC_NOT_EXIST, "topic[{topic}] not exist, apply first please! {see}")
TOPIC_IS_SYSTEMS: Final = Refusal(_C.NO_PERMISSION, "Sending message to topic[{topic}] is forbidden.")
SENDING_FORBIDDEN: Final = Refusal(_C.NO_PERMISSION, "the broker[{address}] sending message is forbidden")
SEND_QUEUE_ILLEGAL: Final = Refusal(
    _C.SYSTEM_ERROR, "request queueId[{queue_id}] is illegal, {topic_config} Producer: {client}", _C.INVALID_PARAMETER
)
MESSAGE_ILLEGAL: Final = Refusal(
    _C.MESSAGE_ILLEGAL,
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {limit}B, msg properties length limit 32KB.",
)
TOPIC_TOO_LONG: Final = Refusal(_C.MESSAGE_ILLEGAL, "message topic length too long {length}")
SERVICE_NOT_AVAILABLE: Final = Refusal(
    _C.SERVICE_NOT_AVAILABLE,
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full [{disk}], "
    "messages are put to the slave, message store has been shut down, etc.",
)
MESSAGE_BACK_NOT_FOUND: Final = Refusal(_C.SYSTEM_ERROR, "look message by offset failed, {offset}")

PULL_FORBIDDEN: Final = Refusal(_C.NO_PERMISSION, "the broker[{address}] pulling message is forbidden")
GROUP_NOT_EXIST: Final = Refusal(_C.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group [{group}] does not exist, {see}")
GROUP_NO_PERMISSION: Final = Refusal(_C.NO_PERMISSION, "subscription group no permission, {group}")
TOPIC_NOT_READABLE: Final = Refusal(_C.NO_PERMISSION, "the topic[{topic}] pulling message is forbidden")
NO_BROADCAST: Final = Refusal(_C.NO_PERMISSION, "the consumer group[{group}] can not consume by broadcast way")
PULL_QUEUE_ILLEGAL: Final = Refusal(
    _C.SYSTEM_ERROR,
    "queueId[{queue_id}] is illegal, topic:[{topic}] topicConfig.readQueueNums:[{queues}] consumer:[{client}]",
    _C.INVALID_PARAMETER,
)
SUBSCRIPTION_UNREADABLE: Final = Refusal(_C.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
GROUP_NOT_KNOWN: Final = Refusal(_C.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist{see}")
SUBSCRIPTION_NOT_KNOWN: Final = Refusal(_C.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist{see}")
SUBSCRIPTION_NOT_LATEST: Final = Refusal(_C.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
NO_FILTER_BY: Final = Refusal(
    _C.SYSTEM_ERROR, "The broker does not support consumer to filter message by {expression_type}"
)

NO_OFFSET: Final = Refusal(_C.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
NO_CONSUMER: Final = Refusal(_C.SYSTEM_ERROR, "no consumer for this group, {group}")
NO_MEMBERS: Final = Refusal(_C.SYSTEM_ERROR, "No Any Consumer online in the consumer group: [{group}]")
NO_MESSAGE_AT: Final = Refusal(_C.SYSTEM_ERROR, "can not find message by the offset, {offset}")
NO_MESSAGE_FOUND: Final = Refusal(_C.QUERY_NOT_FOUND, "can not find message, maybe time range not correct")

GROUP_NOT_ONLINE: Final = Refusal(_C.CONSUMER_NOT_ONLINE, "the consumer group[{group}] not online")
GROUP_NOT_ONLINE_TO_RESET: Final = Refusal(
    _C.CONSUMER_NOT_ONLINE,
    "Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}",
)
NO_RECEIVER_OF_REPLY: Final = Refusal(_C.SYSTEM_ERROR, "reply message properties[{name}] is null")
NO_TOPIC_TO_RESET: Final = Refusal(
    _C.SYSTEM_ERROR, "[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
)
PRODUCERS_NOT_EXIST: Final = Refusal(_C.SYSTEM_ERROR, "the producer group[{group}] not exist")
MEMBER_NOT_ONLINE: Final = Refusal(_C.SYSTEM_ERROR, "The Consumer <{group}> <{client_id}> not online")
NO_STATISTICS: Final = Refusal(_C.SYSTEM_ERROR, "The stats <{name}> <{key}> not exist")
NOT_ON_A_SLAVE: Final = Refusal(
    _C.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
)


def refuse(request: RemotingCommand, refusal: Refusal, version: str, **holes: object) -> RemotingCommand:
    """Return the answer that refuses a request as a broker of ``version`` does."""
    code, remark = refusal.of(version, **holes)
    return answer(request, code, remark)
