"""The values of a put: a new message, its status, the queue offsets, and a record without its place.

``NewMessage`` is what a producer gives to the store. upstream: MessageExtBrokerInner.

``PutStatus`` has the answers that a store can give. Those of proxies and remote brokers do not occur here. Those about
slaves are given by a broker without slaves: the message is stored anyway. upstream: PutMessageStatus.

``QueueOffsets`` has the next offset of each queue. Only the writer changes it, and only for messages that it stores, so
a refused message leaves no gap. upstream: topicQueueTable of CommitLog (4.9), QueueOffsetOperator (5.x).

``Record`` is an encoded message without queue offset, physical offset and store time. Encoding is done outside the
writer's lock, so that the writer only numbers and packs. upstream: MessageExtEncoder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import TypeAlias

from rmqtool import kernel
from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, BodyCodec, SysFlag
from rmqtool.formats.compression import compress_body, compression_flag
from rmqtool.formats.java import crc31
from rmqtool.formats.properties import (
    CRC_BLOCK_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_property_crc,
    order_properties,
)

# An address, 4 or 16 bytes, and a port.
Host: TypeAlias = tuple[bytes, int]

# Clients compress bodies of at least this size.
COMPRESS_OVER = 4096


@dataclass(slots=True)
class NewMessage:
    """A message for the store, or a batch whose ``body`` is the client's encoding of its messages.

    ``properties`` decide what happens to the message. ``property_text`` is stored instead if it is given: brokers
    deliver a delayed message with the text that still asks for the delay. ``property_bins`` is the size of the Java
    hash map that decides the order of the text, if it is not the usual one of the version: 16 for a map filled by
    put-property calls, 128 for one that a 5.x broker decoded from a text. A missing ``born_timestamp`` is now; missing
    hosts are the broker's own.
    """

    topic: str
    body: bytes | None
    queue_id: int = 0
    properties: Mapping[str, str] | bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int | None = None
    born_host: Host | None = None
    store_host: Host | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    property_bins: int | None = None
    property_text: bytes | None = None

    def property_map(self) -> Mapping[str, str]:
        """Return the properties as a mapping; stored bytes are decoded."""
        return decode_properties(self.properties) if isinstance(self.properties, bytes) else self.properties

    def with_properties(self, properties: Mapping[str, str], text: bytes | None = None) -> NewMessage:
        """Return the message with other properties; ``dataclasses.replace`` takes ten times as long."""
        return NewMessage(
            self.topic,
            self.body,
            self.queue_id,
            properties,
            self.flag,
            self.sys_flag,
            self.born_timestamp,
            self.born_host,
            self.store_host,
            self.reconsume_times,
            self.prepared_transaction_offset,
            self.property_bins,
            self.property_text if text is None else text,
        )


def compressed(message: NewMessage, codec: BodyCodec, over: int = COMPRESS_OVER) -> NewMessage:
    """Return ``message`` as a client with that codec sends it: the body is compressed from ``over`` bytes on."""
    if message.body is None or len(message.body) < over:
        return message
    body = compress_body(codec, message.body)
    return replace(message, body=body, sys_flag=message.sys_flag | compression_flag(codec))


class PutStatus(StrEnum):
    """The answers to a put, by upstream's names in the spelling of 5.x."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"

    @property
    def is_stored(self) -> bool:
        """Whether the message is certainly in the log."""
        return self in (PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT) or self.is_about_slave

    @property
    def is_about_slave(self) -> bool:
        """Whether the message is stored, but not on a slave."""
        return self in (PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)

    @property
    def is_about_message(self) -> bool:
        """Whether the message itself was not acceptable: another one would have been stored."""
        return self in _ABOUT_MESSAGE

    @property
    def reason(self) -> str:
        """The reason why the message is not certainly stored and durable. PUT_OK does not have one (KeyError)."""
        return _REASONS[self]


_ABOUT_MESSAGE = frozenset(
    {
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.PROPERTIES_SIZE_EXCEEDED,
        PutStatus.WHEEL_TIMER_MSG_ILLEGAL,
        PutStatus.WHEEL_TIMER_NOT_ENABLE,
    }
)
_REASONS = {
    PutStatus.FLUSH_DISK_TIMEOUT: "written, but not confirmed to be on disk",
    PutStatus.FLUSH_SLAVE_TIMEOUT: "stored, but no slave has acknowledged it",
    PutStatus.SLAVE_NOT_AVAILABLE: "stored, but there is no slave",
    PutStatus.SERVICE_NOT_AVAILABLE: "the store does not accept messages now",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "there is no space for the next segment of the log",
    PutStatus.OS_PAGE_CACHE_BUSY: "too many messages wait to be written",
    PutStatus.UNKNOWN_ERROR: "a write failed",
    PutStatus.MESSAGE_ILLEGAL: "its body is above maxMessageSize, or its topic or properties are too long",
    PutStatus.PROPERTIES_SIZE_EXCEEDED: "its properties take more than 32767 bytes",
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: "its delay is longer than timerMaxDelaySec",
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "it has a delivery time, but timerWheelEnable is false",
}
# A topic and a queue id.
QueueKey: TypeAlias = tuple[str, int]


class QueueOffsets:
    """The next offset of each queue; a queue that is not in the table begins at 0."""

    def __init__(self, offsets: Mapping[QueueKey, int] | None = None) -> None:
        self.table: dict[QueueKey, int] = dict(offsets or {})

    def next(self, queue: QueueKey) -> int:
        """Return the offset that the next message of a queue gets; 0 in a new queue."""
        return self.table.get(queue, 0)

    def advance(self, queue: QueueKey, count: int) -> None:
        """Move the next offset of a queue past messages that were stored."""
        self.table[queue] = self.table.get(queue, 0) + count


# The length before a property text, and before a topic in records of version 2: two bytes.
encode_length = layouts.SHORT.packer.pack
LENGTH_SIZE = layouts.SHORT.size

# An encoded message with zeros for queue offset, physical offset and store time, and for a checksum property at its
# end. The writer fills them in.
Record: TypeAlias = bytearray

# Positions in a record. They are the same for all host lengths, except that of the store time: it follows the born
# host. The physical offset follows the queue offset.
_PLACE_AT = layouts.MESSAGE_PREFIX_V4V4.field("queue_offset").offset
_FLAG_AT = layouts.MESSAGE_PREFIX_V4V4.field("sys_flag").offset
_TIME_AT, _TIME_AFTER_V6_AT = (
    layout.field("store_timestamp").offset for layout in (layouts.MESSAGE_PREFIX_V4V4, layouts.MESSAGE_PREFIX_V6V4)
)
_pack_long = layouts.LONG.packer.pack_into
_unpack_flag = layouts.INT.packer.unpack_from
_BORN_V6 = int(SysFlag.BORN_HOST_V6)

# Writes queue offset, physical offset and store time into a record, and its checksum property if it has one.
Place: TypeAlias = Callable[[Record, int, int, int, bool], None]


def place_record(record: Record, queue_offset: int, physical_offset: int, store_timestamp: int, has_crc: bool) -> None:
    """Write into a record the fields that only the writer knows: its two offsets, its store time, its checksum."""
    _pack_long(record, _PLACE_AT, queue_offset)
    _pack_long(record, _PLACE_AT + layouts.LONG.size, physical_offset)
    has_long_host = _unpack_flag(record, _FLAG_AT)[0] & _BORN_V6
    _pack_long(record, _TIME_AFTER_V6_AT if has_long_host else _TIME_AT, store_timestamp)
    if has_crc:
        covered = len(record) - CRC_BLOCK_LENGTH
        record[covered:] = encode_property_crc(crc31(memoryview(record)[:covered]))


def fastest_place() -> Place:
    """Return the fastest ``place_record``: the kernel's, if there is one."""
    return place_record if kernel.NATIVE is None else kernel.NATIVE.place


def encode_topic(topic: bytes, magic: int) -> bytes:
    """Return a topic after its length: one byte, or two in records of version 2."""
    return (bytes((len(topic),)) if magic == MESSAGE_MAGIC_V1 else encode_length(len(topic))) + topic


def property_text(properties: Mapping[str, str], bins: int, *, terminated: bool) -> bytes:
    """Return the property text in the order of a hash map with ``bins`` bins; ``terminated`` ends it with 0x02."""
    return text_template(tuple(properties), bins, terminated)(properties)


@lru_cache(maxsize=4096)
def text_template(names: tuple[str, ...], bins: int, terminated: bool) -> Callable[[Mapping[str, str]], bytes]:
    """Return a function that makes the text of properties with these ``names``; messages of one kind share it."""
    if not names:
        return lambda _properties: b""
    ordered = tuple(order_properties(dict.fromkeys(names, ""), bins))
    pairs = [f"{name.replace('%', '%%')}{NAME_VALUE_SEPARATOR}%s" for name in ordered]
    template = PROPERTY_SEPARATOR.join(pairs) + (PROPERTY_SEPARATOR if terminated else "")
    values = itemgetter(*ordered)

    def spell(properties: Mapping[str, str]) -> bytes:
        text: str = template % values(properties)
        return text.encode("utf-8", "replace")

    return spell if kernel.NATIVE is None else kernel.NATIVE.text_maker(ordered, terminated, spell)
