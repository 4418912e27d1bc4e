"""Commit log records: message records of both versions and the blank record that ends a segment.

With IPv4 hosts (each IPv6 host adds 12 bytes; B, T and P are the lengths of body, topic and properties)::

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

Decoding looks at structure only and never raises on bytes: what is not a record is a ``Flaw``. ``check_record``
judges the rest (checksums, place).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, Protocol

from rmqtool import kernel
from rmqtool.formats import layouts, properties
from rmqtool.formats.codes import BLANK_MAGIC, HOST_BITS, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, SysFlag
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import crc31, decode_text
from rmqtool.formats.layout import Buffer, Layout, LayoutError, bytes_left

# Which of the four prefixes a record has, by its two host bits.
PREFIXES: dict[int, Layout[layouts.MessagePrefix]] = {
    0: layouts.MESSAGE_PREFIX_V4V4,
    int(SysFlag.STORE_HOST_V6): layouts.MESSAGE_PREFIX_V4V6,
    int(SysFlag.BORN_HOST_V6): layouts.MESSAGE_PREFIX_V6V4,
    HOST_BITS: layouts.MESSAGE_PREFIX_V6V6,
}
_TOPIC_LENGTHS: dict[int, Layout[layouts.Byte] | Layout[layouts.Short]] = {
    MESSAGE_MAGIC_V1: layouts.BYTE,
    MESSAGE_MAGIC_V2: layouts.SHORT,
}

_START = layouts.RECORD_START
_SHORTEST = layouts.MESSAGE_PREFIX_V4V4
_PROPERTIES_LENGTH = layouts.SHORT

# The smallest record there can be: IPv4 hosts, version 1, nothing in it.
MIN_RECORD_SIZE = _SHORTEST.size + layouts.BYTE.size + _PROPERTIES_LENGTH.size
BLANK_SIZE = layouts.BLANK_RECORD.size

# For the decoder's straight way: bound once, positions within the unpacked prefix.
_new = tuple.__new__
_unpack_shortest = _SHORTEST.unpack_from
_SHORTEST_SIZE = _SHORTEST.size
_MAGIC, _SYS_FLAG, _BODY_LENGTH = map(layouts.MessagePrefix._fields.index, ("magic", "sys_flag", "body_length"))


class Message(layouts.MessageRecord):
    """A message record: the fields as stored, and what they mean."""

    @cached_property
    def topic(self) -> str:
        """The topic."""
        return decode_text(self.raw_topic)

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties, by upstream's rules of tolerance."""
        return properties.decode_properties(self.raw_properties)

    @property
    def tags(self) -> str | None:
        """The tag."""
        return properties.tags(self.properties)

    @property
    def keys(self) -> str | None:
        """The keys, separated by single spaces."""
        return properties.keys(self.properties)

    @property
    def uniq_key(self) -> str | None:
        """The client's unique id."""
        return properties.uniq_key(self.properties)


class Blank(NamedTuple):
    """The record that ends a segment."""

    total_size: int


class Nothing(NamedTuple):
    """No record was ever written here: zeros, or too few bytes for one."""

    length: int


def decode_record_in_python(
    data: Buffer, file_offset: int = 0, end: int | None = None
) -> Message | Blank | Nothing | Flaw:
    """Return what stands at ``file_offset``; nothing at or behind ``end`` is looked at.

    Only the structure is judged: a message comes back when its lengths add up to its size. This is the one decoder
    that runs over whole logs record by record, so a sound record takes the straight way; whatever is odd about the
    bytes is found out afterwards, by ``_what_else``.
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
        # The lengths were taken as unsigned; those above the half are negative.
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
                return _new(Message, values + (body, data[topic_at:topic_end], data[properties_at:record_end]))  # noqa: RUF005
            variable = bytes(body), bytes(data[topic_at:topic_end]), bytes(data[properties_at:record_end])
            return _new(Message, values + variable)
    except (struct.error, IndexError, OverflowError):
        pass  # the bytes end within the record, or a length or the offset itself leads out of them
    return _what_else(data, file_offset, end)


def _what_else(data: Buffer, file_offset: int, end: int) -> Blank | Nothing | Flaw:
    """Return what stands at ``file_offset``, which is no sound message."""
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
    """Decodes one record, as ``decode_record_in_python`` says."""

    def __call__(
        self, data: Buffer, file_offset: int = 0, end: int | None = None
    ) -> Message | Blank | Nothing | Flaw: ...


# By the kernel where it is there: the same, in a third of the time.
decode_record: Decode = decode_record_in_python if kernel.NATIVE is None else kernel.NATIVE.decoder(Message, _what_else)


def _wrong_length(record: bytes, magic: int) -> str:
    """Return which of a record's lengths does not fit; ``record`` is as long as it says it is."""
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
    """Return what the lengths of a record add up to, from a few small reads: ``read(length, offset in the record)``.

    For a record too large to be read on the word of its size alone.
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
    """Yield what is wrong with a structurally whole ``message`` that stands at ``file_offset`` of ``data``.

    ``physical_offset`` is where the record lies in its log, None where that is not known (a raw blob). The property
    checksum covers the record before its block; it is compared wherever a block stands, but for ``compacted`` records:
    they were given another place and kept the block.
    """
    # Of an empty body brokers and clients do not look at the checksum.
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


def encode_message(message: layouts.MessageRecord) -> bytes:
    """Return the bytes of a record.

    Raises LayoutError where a value does not fit its field, or a length in the prefix is not that of its part.
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
    """Return the size of a record with these parts."""
    head = PREFIXES[sys_flag & HOST_BITS].size + _TOPIC_LENGTHS[magic].size + _PROPERTIES_LENGTH.size
    return head + body_length + topic_length + properties_length


def encode_blank(length: int) -> bytes:
    """Return the bytes that end a segment with ``length`` bytes left; what follows the head stays as it is."""
    return layouts.BLANK_RECORD.pack(length, BLANK_MAGIC)
