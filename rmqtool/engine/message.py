"""The values of a put: a new message within the limits, its status, the queue offsets, its record without a place.

``NewMessage`` is what a producer gives to the store. upstream: MessageExtBrokerInner.

``PutStatus`` has the answers that a store can give. Those of proxies and remote brokers do not occur here. Those about
slaves are given by a broker without slaves: the message is stored anyway. upstream: PutMessageStatus.

``QueueOffsets`` has the next offset of each queue. Only the writer changes it, and only for messages that it stores, so
a refused message leaves no gap. upstream: topicQueueTable of CommitLog (4.9), QueueOffsetOperator (5.x).

The limits of topic, body and properties are enforced here, with the status that upstream gives.

``Record`` is an encoded message without queue offset, physical offset and store time. Encoding is done outside the
writer's lock, so that the writer only numbers and packs. ``Encoder`` makes it of a checked message, by the rules of
the store's version. upstream: MessageExtEncoder, MessageDecoder.messageProperties2String, MessageVersion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import TypeAlias

from rmqtool import kernel
from rmqtool.config import StoreConfig, Version
from rmqtool.formats import layouts
from rmqtool.formats.codes import HOST_BITS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, BodyCodec, SysFlag
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.compression import compress_body, compression_flag
from rmqtool.formats.hosts import IPV4_LENGTH, parse_address
from rmqtool.formats.java import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, crc31, encode_text, string_length
from rmqtool.formats.properties import (
    BUILT_BINS,
    CRC_BLOCK_LENGTH,
    DECODED_BINS,
    MAX_PROPERTIES_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    decode_properties,
    encode_property_crc,
    is_terminated,
    order_properties,
    split_property_crc,
)
from rmqtool.formats.property_names import PROPERTY_CRC32, UNIQ_KEY
from rmqtool.formats.topics import MAX_RETRY_TOPIC_LENGTH, MAX_TOPIC_LENGTH, RETRY_PREFIX, is_directory_name

# An address, 4 or 16 bytes, and a port.
Host: TypeAlias = tuple[bytes, int]

# Clients compress bodies of at least this size by default.
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


# The statuses after which another message may still be stored; see ``PutStatus.is_about_message``.
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
_BORN_V6, _STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)

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


def fastest_plain_record() -> Callable[..., bytearray | None]:
    """Return the kernel's function that makes the record of a message of a kind (``Encoder.record_kind``).

    Without the kernel, the function returns None for every message.
    """
    return _no_record if kernel.NATIVE is None else kernel.NATIVE.plain_record


def _no_record(*_values: object) -> None:
    """Return None, as the kernel's ``plain_record`` does for a message that it declines."""


def encode_topic(topic: bytes, magic: int) -> bytes:
    """Return a topic after its length: one byte, or two in records of version 2."""
    return (bytes((len(topic),)) if magic == MESSAGE_MAGIC_V1 else encode_length(len(topic))) + topic


def property_text(properties: Mapping[str, str], bins: int, *, terminated: bool) -> bytes:
    """Return the property text in the order of a hash map with ``bins`` bins; empty without properties.

    ``terminated`` ends any other text with 0x02.
    """
    return text_template(tuple(properties), bins, terminated)(properties)


@lru_cache(maxsize=4096)
def text_template(names: tuple[str, ...], bins: int, terminated: bool) -> Callable[[Mapping[str, str]], bytes]:
    """Return a function that makes the text of properties with exactly these ``names``.

    Their order depends on the names and on ``bins`` alone, so it is worked out once and kept.
    """
    if not names:
        return lambda _properties: b""
    ordered = _in_order(names, bins)
    pairs = [f"{name.replace('%', '%%')}{NAME_VALUE_SEPARATOR}%s" for name in ordered]
    template = PROPERTY_SEPARATOR.join(pairs) + (PROPERTY_SEPARATOR if terminated else "")
    values = itemgetter(*ordered)

    def spell(properties: Mapping[str, str]) -> bytes:
        text: str = template % values(properties)
        return text.encode("utf-8", "replace")

    return spell if kernel.NATIVE is None else kernel.NATIVE.text_maker(ordered, terminated, spell)


def _in_order(names: tuple[str, ...], bins: int) -> tuple[str, ...]:
    """Return names in the order of a hash map with ``bins`` bins."""
    return tuple(order_properties(dict.fromkeys(names, ""), bins))


# Upstream allows this for everything in a record except the body.
_RECORD_OVER_BODY = 64 << 10
# Upstream ignores a smaller maxMessageSize.
_LEAST_MAX_MESSAGE_SIZE = 10
# The most names of properties that the kernel takes in a plain record.
_MOST_NAMES = 64
# Topics whose rules are cached. A producer of random topics must not fill the memory.
_MOST_TOPICS_KNOWN = 1 << 16
# How to pack the fields before the body, and their size in bytes, by the host bits of the system flag.
_PREFIXES = {bits: (layout.packer.pack, layout.size) for bits, layout in PREFIXES.items()}


@dataclass(slots=True)
class TopicRules:
    """The consequences of a topic's name: whether messages are refused, and how records spell the topic.

    ``encoded`` is the topic after its length; ``topic_length`` counts the bytes of the topic alone.
    """

    refusal: PutStatus | None
    magic: int
    encoded: bytes
    topic_length: int
    is_batch: bool
    # Whether its messages need the general path of a put.
    is_special: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_special = self.is_batch or self.refusal is not None


def store_host(config: StoreConfig, found: Host | None) -> Host:
    """Return the host that new records get: address and port of the settings, else those ``found`` in existing records.

    In a store without records the defaults of the settings count.
    """
    ip, port = found or (parse_address(config.broker_ip1) or bytes(IPV4_LENGTH), config.listen_port)
    if "brokerIP1" in config.origins:
        ip = parse_address(config.broker_ip1) or bytes(IPV4_LENGTH)
    return ip, config.listen_port if "listenPort" in config.origins else port


class Encoder:
    """The limits and the order of properties of one store, and the encoding of its records."""

    def __init__(
        self, config: StoreConfig, store_host: Host, largest_record: int, batch_topics: frozenset[str]
    ) -> None:
        self.config = config
        self.is_4_9 = config.version is Version.V4_9
        self.store_host = store_host
        self.max_body = max(config.max_message_size, _LEAST_MAX_MESSAGE_SIZE)
        # A message whose record fits into no segment is refused; upstream answers PUT_OK and wastes two segments.
        self.largest_record = largest_record
        self.max_record = min(self.max_body + _RECORD_OVER_BODY, largest_record)
        self._batch_topics = batch_topics
        self._bins = BUILT_BINS if self.is_4_9 else DECODED_BINS
        self.has_property_crc = config.enabled_append_prop_crc
        self.topics: dict[str, TopicRules] = {}
        # The kernel's encoder, which makes the same records; None without the kernel.
        self.compiled: Callable[..., Record] | None = None if kernel.NATIVE is None else kernel.NATIVE.encode

    def topic_rules(self, topic: str) -> TopicRules:
        """Return the rules for a topic, from the cache if possible."""
        rules = self.topics.get(topic)
        if rules is None:
            if len(self.topics) >= _MOST_TOPICS_KNOWN:
                self.topics.clear()
            rules = self.topics[topic] = self._make_topic_rules(topic)
        return rules

    def _make_topic_rules(self, topic: str) -> TopicRules:
        """Return the rules for a topic by the limits of the store's version; a topic without a directory is refused."""
        raw = encode_text(topic)
        long = len(raw) > MAX_TOPIC_LENGTH
        if self.is_4_9:
            # Upstream counts characters, and then stores a length of bytes that does not fit. Such topics are refused
            # here.
            illegal = string_length(topic) > MAX_TOPIC_LENGTH or long
        else:
            # Only retry topics may be long, and only if records of version 2 are switched on.
            illegal = len(raw) > MAX_RETRY_TOPIC_LENGTH or (long and not topic.startswith(RETRY_PREFIX))
            illegal = illegal or (long and not self.config.auto_message_version_on_topic_len)
        illegal = illegal or not is_directory_name(topic)
        magic = MESSAGE_MAGIC_V2 if long else MESSAGE_MAGIC_V1
        if illegal:
            return TopicRules(PutStatus.MESSAGE_ILLEGAL, magic, b"", 0, False)
        return TopicRules(None, magic, encode_topic(raw, magic), len(raw), topic in self._batch_topics)

    def do_numbers_fit(self, message: NewMessage, queue_id: int) -> bool:
        """Return whether every number of a message fits its field; ``queue_id`` is that of its destination."""
        born = message.born_timestamp
        if not 0 <= queue_id <= INT_MAX or not (born is None or LONG_MIN <= born <= LONG_MAX):
            return False
        if message.flag or message.sys_flag or message.reconsume_times or message.prepared_transaction_offset:
            ints = (message.flag, message.sys_flag, message.reconsume_times)
            fit = all(INT_MIN <= value <= INT_MAX for value in ints)
            return fit and LONG_MIN <= message.prepared_transaction_offset <= LONG_MAX
        return True

    def plain_record(self, message: NewMessage, text: bytes, now: int) -> Record | None:
        """Return the record of a message with a property text, made by the kernel, or None.

        The caller knows that the properties are plain (``PropertyKind``). None: the message is refused, its topic is
        not cached yet, or it needs the general path for another reason.
        """
        body, queue_id = message.body, message.queue_id
        rules = self.topics.get(message.topic)
        if (
            rules is None
            or rules.is_special
            or type(body) is not bytes
            or message.sys_flag
            or queue_id < 0
            or len(body) > self.max_body
            or self.compiled is None
            or self.has_property_crc
        ):
            return None
        host, born = message.store_host or self.store_host, message.born_timestamp
        born_ip, born_port = message.born_host or host
        try:
            record = self.compiled(
                rules.magic,
                queue_id,
                message.flag,
                0,
                now if born is None else born,
                born_ip,
                born_port,
                *host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                body,
                rules.encoded,
                text,
                False,
            )
        except (OverflowError, ValueError):
            # A number or text does not fit: the general path finds the right status.
            return None
        return record if len(record) <= self.max_record else None

    def record_kind(self, topic: str, names: tuple[str, ...], values: Mapping[str, str]) -> object | None:
        """Return the object that ``plain_record`` of the kernel takes: what messages of one kind have in common.

        They are plain messages of ``topic`` whose properties have these ``names``. ``values`` are the properties that
        all of them have; UNIQ_KEY is given with each. None: the kernel cannot make their records.
        """
        rules, native = self.topic_rules(topic), kernel.NATIVE
        if native is None or self.has_property_crc or rules.is_special or self.max_body < COMPRESS_OVER:
            return None
        ordered = _in_order(names, self._bins)
        if len(ordered) > _MOST_NAMES:
            return None
        constants = tuple(None if name == UNIQ_KEY else values.get(name) for name in ordered)
        head = (rules.magic, rules.encoded, *self.store_host, ordered, constants, ordered.index(UNIQ_KEY))
        try:
            return native.record_kind(*head, not self.is_4_9, self.max_record)
        except UnicodeEncodeError:
            return None

    def text(self, properties: Mapping[str, str], bins: int | None) -> bytes:
        """Return the property text of a mapping; ``bins`` decides the order, None for that of the store's version."""
        return self.text_maker(tuple(properties), bins)(properties)

    def text_maker(self, names: tuple[str, ...], bins: int | None = None) -> Callable[[Mapping[str, str]], bytes]:
        """Return a function that makes the text of a mapping with these ``names``.

        A checksum that the client sent is left out if the store writes its own.
        """
        if self.has_property_crc and PROPERTY_CRC32 in names:
            names = tuple(name for name in names if name != PROPERTY_CRC32)
        return text_template(names, bins or self._bins, not self.is_4_9)

    def status_of_long(self, text: bytes) -> PutStatus:
        """Return the status of a property text with too many bytes. 4.9 refuses too many characters before that."""
        too_long = self.is_4_9 and string_length(text.decode(errors="replace")) > MAX_PROPERTIES_LENGTH
        return PutStatus.MESSAGE_ILLEGAL if too_long else PutStatus.PROPERTIES_SIZE_EXCEEDED

    def encode(
        self, message: NewMessage, rules: TopicRules, queue_id: int, store_host: Host, now: int, text: bytes
    ) -> Record | PutStatus:
        """Return the record of a message with a property text, or the status of the limit that it exceeds.

        Addresses of 16 bytes set their bits in the system flag.
        """
        length, has_crc = len(text), self.has_property_crc
        if has_crc:
            text, _ = split_property_crc(text)
            text = text if not text or is_terminated(text) else text + PROPERTY_SEPARATOR.encode()
            length = len(text) + CRC_BLOCK_LENGTH
        if length > MAX_PROPERTIES_LENGTH:
            return self.status_of_long(text)
        body = message.body or b""
        born_ip, born_port = message.born_host or store_host
        store_ip, store_port = store_host
        sys_flag = message.sys_flag
        if len(born_ip) != IPV4_LENGTH:
            sys_flag |= _BORN_V6
        if len(store_ip) != IPV4_LENGTH:
            sys_flag |= _STORE_V6
        pack, size = _PREFIXES[sys_flag & HOST_BITS]
        size += len(body) + len(rules.encoded) + LENGTH_SIZE + length
        if len(body) > self.max_body or size > self.max_record:
            return PutStatus.MESSAGE_ILLEGAL
        born = now if message.born_timestamp is None else message.born_timestamp
        times, prepared = message.reconsume_times, message.prepared_transaction_offset
        hosts = (born_ip, born_port, store_ip, store_port)
        # The kernel sets the host bits from the addresses. A message that sets them itself is encoded here.
        if self.compiled is not None and type(body) is bytes and not message.sys_flag & HOST_BITS:
            numbers = (rules.magic, queue_id, message.flag, sys_flag, born)
            return self.compiled(*numbers, *hosts, times, prepared, body, rules.encoded, text, has_crc)
        # The zeros are queue offset, physical offset and store time, which the writer fills in.
        head = (size, rules.magic, crc31(body), queue_id, message.flag, 0, 0, sys_flag, born)
        prefix = pack(*head, born_ip, born_port, 0, store_ip, store_port, times, prepared, len(body))
        rest = bytes(CRC_BLOCK_LENGTH) if has_crc else b""
        return bytearray().join((prefix, body, rules.encoded, encode_length(length), text, rest))
