"""The commit log: message records of versions 1 and 2 by their magic, and the blank record that ends a segment.

Big-endian. With IPv4 hosts (an IPv6 host adds 12 bytes; B, T and P are the lengths of body, topic and properties)::

    0     4  totalSize, this field included       56    8  storeTimestamp, ms
    4     4  magic 0xDAA320A7 (v1), ..20AB (v2)   64    4  store host: address (16 with IPv6)
    8     4  bodyCRC, 31 bits                     68    4  store host: port
    12    4  queueId                              72    4  reconsumeTimes
    16    4  flag of the producer                 76    8  preparedTransactionOffset
    20    8  queueOffset                          84    4  bodyLength B
    28    8  physicalOffset of this record        88    B  body as stored
    36    4  sysFlag                              88+B  1  topicLength T (2 bytes in version 2)
    40    8  bornTimestamp, ms                    89+B  T  topic
    48    4  born host: address (16 with IPv6)    ...   2  propertiesLength P
    52    4  born host: port                      ...   P  properties: name 0x01 value 0x02 ...

A segment is records back to back from byte 0. If the next record does not fit with 8 bytes to spare, a blank record
ends the segment: its length to the end of the segment (4), magic 0xCBD43194 (4), undefined bytes. Records never span
segments. A crash leaves a torn last record, often a whole prefix and zeros. A truncation leaves old bytes.

Upstream writes records in ``CommitLog.DefaultAppendMessageCallback`` (4.9) and ``MessageExtEncoder`` (5.x), and reads
them in ``CommitLog.checkMessageAndReturnSize`` and ``MessageDecoder``.

Decoding checks the structure only and never raises: bytes that are not a record become a ``Flaw``. ``check_record``
checks the rest: checksums, offset, time.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, Protocol

from rmqtool import kernel
from rmqtool.formats import layouts, properties
from rmqtool.formats.codes import (
    BLANK_MAGIC,
    COMPRESSION_MASK,
    HOST_BITS,
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    SysFlag,
    TransactionType,
    transaction_type,
)
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import crc31, decode_text
from rmqtool.formats.layout import Buffer, Layout, LayoutError, bytes_left

# The fixed part of a record up to the body, by its two host bits.
PREFIXES: dict[int, Layout[layouts.MessagePrefix]] = {
    0: layouts.MESSAGE_PREFIX_V4V4,
    int(SysFlag.STORE_HOST_V6): layouts.MESSAGE_PREFIX_V4V6,
    int(SysFlag.BORN_HOST_V6): layouts.MESSAGE_PREFIX_V6V4,
    HOST_BITS: layouts.MESSAGE_PREFIX_V6V6,
}
# The versions of a record differ in the length field of the topic alone, which depends on the magic. Another version
# begins here, in ``codes`` and in ``declarations``.
_TOPIC_LENGTHS: dict[int, Layout[layouts.Byte] | Layout[layouts.Short]] = {
    MESSAGE_MAGIC_V1: layouts.BYTE,
    MESSAGE_MAGIC_V2: layouts.SHORT,
}

# Size and magic come first in every record. Up to the born host, fields are where ``_SHORTEST`` has them, with any
# hosts.
_START = layouts.RECORD_START
_SHORTEST = layouts.MESSAGE_PREFIX_V4V4
_PROPERTIES_LENGTH = layouts.SHORT

# The size of a record with IPv4 hosts, version 1, and an empty body, topic and properties.
MIN_RECORD_SIZE = _SHORTEST.size + layouts.BYTE.size + _PROPERTIES_LENGTH.size
BLANK_SIZE = layouts.BLANK_RECORD.size

# A port has 16 bits; the record has 32 bits for it.
MOST_PORT = 0xFFFF
# By default a message is delivered again 16 times at most. A count of 65,536 is a damaged field.
MOST_RECONSUME_TIMES = 1 << 16
# Clocks of clients drift by seconds. Ten minutes ahead of the broker is not drift.
MOST_AHEAD_MS = 600_000
# A client that replays old messages may keep their birth time. Ten years before the store time is damage.
MOST_BEHIND_MS = 10 * 365 * 86_400_000
# The low byte and the codec bits. No version of RocketMQ sets another bit.
KNOWN_SYS_FLAGS = 0xFF | COMPRESSION_MASK

# ``decode_record_in_python`` is called for each record of a log: names are bound once, fields are found by position.
_new = tuple.__new__
_unpack_shortest = _SHORTEST.unpack_from
_SHORTEST_SIZE = _SHORTEST.size
_MAGIC, _SYS_FLAG, _BODY_LENGTH = map(layouts.MessagePrefix._fields.index, ("magic", "sys_flag", "body_length"))


class Message(layouts.MessageRecord):
    """A message record: the fields as stored, and topic and properties decoded when they are asked for."""

    @cached_property
    def topic(self) -> str:
        return decode_text(self.raw_topic)

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties as brokers and clients see them; see ``properties.decode_properties``."""
        return properties.decode_properties(self.raw_properties)

    @property
    def tags(self) -> str | None:
        """The tag as stored; None without one."""
        return properties.tags(self.properties)

    @property
    def keys(self) -> str | None:
        """The user's keys as stored: one text, keys separated by blanks; None without keys."""
        return properties.keys(self.properties)

    @property
    def uniq_key(self) -> str | None:
        """The unique id that the client made, also called msgId; None without one."""
        return properties.uniq_key(self.properties)


class Blank(NamedTuple):
    """The record that fills a segment from the last message to its end."""

    total_size: int


class Nothing(NamedTuple):
    """Zeros, or fewer bytes than a record head: no record was written here; ``length`` bytes are left."""

    length: int


def decode_record_in_python(
    data: Buffer, file_offset: int = 0, end: int | None = None
) -> Message | Blank | Nothing | Flaw:
    """Return the record at ``file_offset``, ``Nothing``, or a flaw; bytes from ``end`` on are not read.

    Only the structure is checked: a message is returned when its lengths add up to its size. Without the kernel this
    runs once for each record of a log, so a sound record takes a fast path with no separate checks. All others go to
    ``_what_else``, which finds out what the bytes are.
    """
    end = len(data) if end is None else min(end, len(data))
    try:
        values = _unpack_shortest(data, file_offset)
        body_at = file_offset + _SHORTEST_SIZE
        if values[_SYS_FLAG] & HOST_BITS:
            prefix = PREFIXES[values[_SYS_FLAG] & HOST_BITS]
            values = prefix.unpack_from(data, file_offset)
            body_at = file_offset + prefix.size
        body_end = body_at + values[_BODY_LENGTH]
        # The byte where the length of the topic begins: all of it in version 1, the high byte in version 2.
        topic_sign = data[body_end]
        if values[_MAGIC] == MESSAGE_MAGIC_V1:
            topic_at = body_end + 1
            topic_end = topic_at + topic_sign
        elif values[_MAGIC] == MESSAGE_MAGIC_V2:
            topic_at = body_end + 2
            topic_end = topic_at + (topic_sign << 8 | data[body_end + 1])
        else:
            return _what_else(data, file_offset, end)
        properties_at = topic_end + 2
        record_end = properties_at + (data[topic_end] << 8 | data[topic_end + 1])
        # The lengths of topic and properties were read as unsigned here; one that is negative has its top bit set.
        if (
            record_end == file_offset + values[0]
            and topic_sign < 0x80
            and data[topic_end] < 0x80
            and values[_BODY_LENGTH] >= 0
            and file_offset >= 0
            and record_end <= end
        ):
            body = data[body_at:body_end]
            if type(body) is bytes:
                return _new(Message, values + (body, data[topic_at:topic_end], data[properties_at:record_end]))  # noqa: RUF005  (faster)
            variable = bytes(body), bytes(data[topic_at:topic_end]), bytes(data[properties_at:record_end])
            return _new(Message, values + variable)
    except (struct.error, IndexError, OverflowError):
        pass  # the bytes end within the record, or a length or the offset itself leads out of them
    return _what_else(data, file_offset, end)


def _what_else(data: Buffer, file_offset: int, end: int) -> Blank | Nothing | Flaw:
    """Return what is at ``file_offset`` where no sound message is: a blank, nothing, or a flaw."""
    left = min(bytes_left(data, file_offset), max(end - file_offset, 0))
    if left < _START.size:
        return Nothing(left)
    total_size, magic = _START.unpack_from(data, file_offset)
    if magic == BLANK_MAGIC:
        return Blank(total_size)
    if magic == 0 and total_size == 0:
        return Nothing(left)
    if magic not in _TOPIC_LENGTHS:
        return Flaw("CL-MAGIC", f"magic {magic:#010x} is not a record magic", 0, _START.size)
    if total_size < MIN_RECORD_SIZE:
        return Flaw("CL-LEN", f"size {total_size} is below the smallest record's {MIN_RECORD_SIZE}", 0, _START.size)
    if total_size > left:
        return Flaw("CL-LEN", f"size {total_size} is more than the {left} bytes left", 0, left)
    return Flaw("CL-LEN", _wrong_length(bytes(data[file_offset : file_offset + total_size]), magic), 0, total_size)


class Decode(Protocol):
    """The signature that the two decoders share: ``decode_record_in_python`` and the kernel's."""

    def __call__(
        self, data: Buffer, file_offset: int = 0, end: int | None = None
    ) -> Message | Blank | Nothing | Flaw: ...


# The values that ``fields_decoder`` decodes, in the order of the kernel: the fields as stored, then decoded texts.
FIELDS = (*Message._fields, "topic", "tags", "keys", "uniq_key")
# The positions of the stored fields, which the kernel needs to make a whole ``Message``.
_WHOLE = tuple(range(len(Message._fields)))

# The kernel's decoder gives the same results in a third of the time.
decode_record: Decode = (
    decode_record_in_python if kernel.NATIVE is None else kernel.NATIVE.decoder(Message, _WHOLE, _what_else)
)


@lru_cache(maxsize=256)
def fields_decoder(names: tuple[str, ...]) -> Callable[[Buffer, array[int]], list[tuple[Any, ...] | None]]:
    """Return a function that decodes only the fields ``names`` (of ``FIELDS``) of many records.

    It takes the bytes and an array of offsets, and returns for each offset a tuple of the values in the order of
    ``names``, or None where there is no message. Making a ``Message`` costs more than reading three of its fields.
    """
    one = partial(_fields_at, names)
    if kernel.NATIVE is not None:
        return kernel.NATIVE.decoder_of_many(tuple, tuple(map(FIELDS.index, names)), one)
    return lambda data, offsets: [one(data, at) for at in offsets]


def _fields_at(names: tuple[str, ...], data: Buffer, offset: int) -> tuple[Any, ...] | None:
    """Return the values of the fields ``names`` of the message at ``offset``; None where there is no message."""
    found = decode_record_in_python(data, offset)
    return tuple(getattr(found, name) for name in names) if isinstance(found, Message) else None


def decode_records(data: Buffer, offsets: array[int]) -> list[Message | Blank | Nothing | Flaw]:
    """Return ``decode_record`` at each offset, in one call of the kernel if there is one."""
    if _decode_many is not None:
        return _decode_many(data, offsets)
    return [decode_record(data, at) for at in offsets]


# The kernel's decoder of many records in one call; None without the kernel.
_decode_many = None if kernel.NATIVE is None else kernel.NATIVE.decoder_of_many(Message, _WHOLE, decode_record)


def _wrong_length(record: bytes, magic: int) -> str:
    """Return which length does not fit, as text; ``record`` has as many bytes as its header says."""
    size = len(record)
    (sys_flag,) = layouts.INT.unpack_from(record, _SHORTEST.field("sys_flag").offset)
    prefix, topic_length_layout = PREFIXES[sys_flag & HOST_BITS], _TOPIC_LENGTHS[magic]
    least = prefix.size + topic_length_layout.size + _PROPERTIES_LENGTH.size
    if size < least:
        return f"size {size} is below the {least} that these hosts and this version need"
    body_length = prefix.unpack_from(record)[_BODY_LENGTH]
    if not 0 <= body_length <= size - least:
        return f"body length {body_length} is more than the record size {size} allows"
    (topic_length,) = topic_length_layout.unpack_from(record, prefix.size + body_length)
    if not 0 <= topic_length <= size - least - body_length:
        return f"topic length {topic_length} is more than the record size {size} allows"
    parts = least + body_length + topic_length
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(record, parts - _PROPERTIES_LENGTH.size)
    return f"the record header says {size} bytes, its fields add up to {parts + properties_length}"


def find_record_end(read: Callable[[int, int], bytes], total_size: int) -> int | None:
    """Return the size that a record's lengths add up to; None if a length field is past ``total_size`` or the file.

    ``read(length, offset)`` returns that many bytes, ``offset`` bytes after the start of the record, or fewer where the
    file ends. Only the length fields are read: a damaged ``total_size`` can be two gigabytes, so a caller confirms it
    here before it reads the whole record. The properties, which are last, can make the result greater than
    ``total_size``: the caller compares the two. None as well for a negative length, for bytes without the magic of a
    message, and where fewer bytes are left than the longest prefix has.
    """
    head = read(layouts.MESSAGE_PREFIX_V6V6.size, 0)
    if len(head) < layouts.MESSAGE_PREFIX_V6V6.size:
        return None
    sys_flag: int = _unpack_shortest(head)[_SYS_FLAG]
    prefix = PREFIXES[sys_flag & HOST_BITS]
    values = prefix.decode(head)
    if values.magic not in _TOPIC_LENGTHS:
        return None
    end, length = prefix.size, values.body_length
    for layout in (_TOPIC_LENGTHS[values.magic], _PROPERTIES_LENGTH):
        length_at = end + length
        if length < 0 or length_at + layout.size > total_size:
            return None
        data = read(layout.size, length_at)
        if len(data) < layout.size:
            return None
        (length,) = layout.unpack_from(data)
        end = length_at + layout.size
    return end + length if length >= 0 else None


def check_record(
    message: Message, data: Buffer, file_offset: int, physical_offset: int | None, *, compacted: bool = False
) -> Iterator[Flaw]:
    """Yield what is wrong with a structurally whole ``message`` at ``file_offset`` of ``data``.

    ``physical_offset`` is the record's place in its log, or None for bytes without one. The property checksum covers
    the record up to its own block. For ``compacted`` records it is not compared: compaction moved them, and kept the
    checksum that they had before.
    """
    # Brokers and clients ignore the checksum of an empty body.
    actual = crc31(message.raw_body)
    if message.raw_body and actual != message.body_crc:
        at = PREFIXES[message.sys_flag & HOST_BITS].size
        text = f"body checksum {actual:#010x}, the record says {message.body_crc & 0xFFFFFFFF:#010x}"
        yield Flaw("CL-CRC", text, at, message.body_length)
    if physical_offset is not None and message.physical_offset != physical_offset:
        field = _SHORTEST.field("physical_offset")
        text = f"the record is at {physical_offset}, but names {message.physical_offset} as its offset"
        yield Flaw("CL-PHY", text, field.offset, field.size)
    if message.store_timestamp <= 0:
        at = PREFIXES[message.sys_flag & HOST_BITS].field("store_timestamp").offset
        yield Flaw("CL-TIME", f"store timestamp {message.store_timestamp}", at, layouts.LONG.size)
    stored = None if compacted else properties.find_property_crc(message.raw_properties)
    if stored is not None:
        covered = message.total_size - stored.length
        actual = crc31(memoryview(data)[file_offset : file_offset + covered])
        if actual != stored.value:
            text = f"property checksum {stored.value}, the bytes of the record give {actual}"
            yield Flaw("CL-CRC", text, covered, stored.length)


def iter_odd_fields(message: Message) -> Iterator[tuple[str, str]]:
    """Yield the header fields with a value that a sound record does not have, each with a sentence about it.

    The two limits of the born time are a guess (``MOST_AHEAD_MS``, ``MOST_BEHIND_MS``): a client sets that time.
    """
    if message.sys_flag & 0xFFFFFFFF & ~KNOWN_SYS_FLAGS:
        yield "sys_flag", f"the system flag {message.sys_flag & 0xFFFFFFFF:#x} has undefined bits"
    if message.sys_flag & COMPRESSION_MASK and not message.sys_flag & SysFlag.COMPRESSED:
        yield "sys_flag", f"the system flag {message.sys_flag & 0xFFFFFFFF:#x} names a codec, and no body is compressed"
    for name in ("born_host_port", "store_host_port"):
        port = getattr(message, name)
        if not 1 <= port <= MOST_PORT:
            yield name, f"{port} is not a port"
    if not message.raw_body and message.body_crc:
        yield "body_crc", f"the checksum {message.body_crc & 0xFFFFFFFF:#010x} is not that of the body, which is empty"
    if not 0 <= message.reconsume_times < MOST_RECONSUME_TIMES:
        yield "reconsume_times", f"reconsumeTimes is {message.reconsume_times}"
    if message.prepared_transaction_offset and transaction_type(message.sys_flag) is TransactionType.NONE:
        offset = message.prepared_transaction_offset
        yield "prepared_transaction_offset", f"a record outside of transactions names half message {offset}"
    ahead = message.born_timestamp - message.store_timestamp
    if message.store_timestamp > 0 and not -MOST_BEHIND_MS <= ahead <= MOST_AHEAD_MS:
        yield "born_timestamp", f"it was born at {message.born_timestamp} and stored at {message.store_timestamp}"


def encode_message(message: layouts.MessageRecord) -> bytes:
    """Return the bytes of a record.

    Raises LayoutError if a value does not fit its field, or if a length in the prefix is not that of its part; KeyError
    for a magic that is not a message's.
    """
    prefix = PREFIXES[message.sys_flag & HOST_BITS]
    topic_length = _TOPIC_LENGTHS[message.magic]
    encoded = b"".join(
        (
            prefix.pack(*message[: len(layouts.MessagePrefix._fields)]),
            message.raw_body,
            topic_length.pack(len(message.raw_topic)),
            message.raw_topic,
            _PROPERTIES_LENGTH.pack(len(message.raw_properties)),
            message.raw_properties,
        )
    )
    if len(encoded) != message.total_size or len(message.raw_body) != message.body_length:
        said = f"{message.body_length}, {message.total_size}"
        text = f"body {len(message.raw_body)}, record {len(encoded)}; the header says {said}"
        raise LayoutError(f"lengths of a record: {text}")
    return encoded


def record_size(sys_flag: int, magic: int, body_length: int, topic_length: int, properties_length: int) -> int:
    """Return the ``totalSize`` of a record whose parts have these lengths in bytes."""
    head = PREFIXES[sys_flag & HOST_BITS].size + _TOPIC_LENGTHS[magic].size + _PROPERTIES_LENGTH.size
    return head + body_length + topic_length + properties_length


def encode_blank(length: int) -> bytes:
    """Return the head of a blank over the last ``length`` bytes of a segment; its other bytes are undefined."""
    return layouts.BLANK_RECORD.pack(length, BLANK_MAGIC)
