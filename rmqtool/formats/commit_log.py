"""Commit log records: message records of both versions and the blank that ends a segment.

Upstream writes them in ``CommitLog.DefaultAppendMessageCallback`` (4.9) and ``MessageExtEncoder`` (5.x) and reads
them in ``CommitLog.checkMessageAndReturnSize`` and ``MessageDecoder``. A segment is records back to back from byte 0,
ended by one blank when the next record did not fit; records never span segments. A crash leaves a torn last record
(often a whole prefix and zeros), a truncation leaves stale bytes behind the end.

Decoding looks at structure only and never raises on bytes: what is not a record is a ``Flaw``. ``check_record``
judges the rest (checksums, place).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import BLANK_MAGIC, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, SysFlag
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import crc31, decode_text
from rmqtool.formats.layout import Buffer, Layout
from rmqtool.formats.properties import decode_properties, find_property_crc

_HOST_BITS = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6

# Which of the four prefixes a record has, by its two host bits.
PREFIXES: dict[int, Layout[layouts.MessagePrefix]] = {
    0: layouts.MESSAGE_PREFIX_V4V4,
    int(SysFlag.STORE_HOST_V6): layouts.MESSAGE_PREFIX_V4V6,
    int(SysFlag.BORN_HOST_V6): layouts.MESSAGE_PREFIX_V6V4,
    int(_HOST_BITS): layouts.MESSAGE_PREFIX_V6V6,
}

_START = layouts.RECORD_START
_SHORTEST = layouts.MESSAGE_PREFIX_V4V4
_SYS_FLAG_AT = _SHORTEST.field("sys_flag").offset
_PROPERTIES_LENGTH_SIZE = layouts.SHORT.size

# The smallest record there can be: IPv4 hosts, version 1, nothing in it.
MIN_RECORD_SIZE = _SHORTEST.size + 1 + _PROPERTIES_LENGTH_SIZE
BLANK_SIZE = layouts.BLANK_RECORD.size


class Message(layouts.MessageRecord):
    """A message record: the fields as stored, and what they mean."""

    @cached_property
    def topic(self) -> str:
        """The topic."""
        return decode_text(self.raw_topic)

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties, by upstream's rules of tolerance."""
        return decode_properties(self.raw_properties)

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> str | None:
        """The keys, separated by single spaces."""
        return self.properties.get("KEYS")

    @property
    def uniq_key(self) -> str | None:
        """The client's unique id."""
        return self.properties.get("UNIQ_KEY")


class Blank(NamedTuple):
    """The record that ends a segment."""

    total_size: int


class Nothing(NamedTuple):
    """No record was ever written here: zeros, or too few bytes for one."""

    length: int


def decode_record(data: Buffer, file_offset: int = 0, end: int | None = None) -> Message | Blank | Nothing | Flaw:
    """Return what stands at ``file_offset``; nothing at or behind ``end`` is looked at.

    Only the structure is judged: a message comes back when its lengths add up to its size.
    """
    end = len(data) if end is None else end
    left = end - file_offset
    if left < _START.size:
        return Nothing(max(left, 0))
    total_size, magic = _START.unpack_from(data, file_offset)
    if magic != MESSAGE_MAGIC_V1 and magic != MESSAGE_MAGIC_V2:
        return _other_than_message(total_size, magic, left)
    if total_size < MIN_RECORD_SIZE or total_size > left:
        return _bad_size(total_size, left)
    sys_flag_at = file_offset + _SYS_FLAG_AT
    host_bits = data[sys_flag_at + 3] & 0x30
    prefix = PREFIXES[host_bits]
    if total_size < prefix.size + 3:
        return Flaw("CL-LEN", f"size {total_size} is too small for IPv6 hosts", 0, total_size)
    values = prefix.unpack_from(data, file_offset)
    body_length = values[-1]
    body_at = file_offset + prefix.size
    record_end = file_offset + total_size
    topic_length_size = 1 if magic == MESSAGE_MAGIC_V1 else 2
    topic_at = body_at + body_length + topic_length_size
    if body_length < 0 or topic_at + _PROPERTIES_LENGTH_SIZE > record_end:
        return Flaw("CL-LEN", f"body length {body_length} does not fit into size {total_size}", 0, total_size)
    topic_length = int.from_bytes(data[topic_at - topic_length_size : topic_at], "big", signed=True)
    properties_at = topic_at + topic_length + _PROPERTIES_LENGTH_SIZE
    if topic_length < 0 or properties_at > record_end:
        return Flaw("CL-LEN", f"topic length {topic_length} does not fit into size {total_size}", 0, total_size)
    properties_length = int.from_bytes(
        data[properties_at - _PROPERTIES_LENGTH_SIZE : properties_at], "big", signed=True
    )
    if properties_length < 0 or properties_at + properties_length != record_end:
        added_up = properties_at + properties_length - file_offset
        return Flaw("CL-LEN", f"the lengths add up to {added_up}, the size says {total_size}", 0, total_size)
    return Message._make(
        (
            *values,
            bytes(data[body_at : body_at + body_length]),
            bytes(data[topic_at : topic_at + topic_length]),
            bytes(data[properties_at:record_end]),
        )
    )


def _other_than_message(total_size: int, magic: int, left: int) -> Blank | Nothing | Flaw:
    if magic == BLANK_MAGIC:
        return Blank(total_size)
    if magic == 0 and total_size == 0:
        return Nothing(left)
    return Flaw("CL-MAGIC", f"magic {magic:#010x} is no record's")


def _bad_size(total_size: int, left: int) -> Flaw:
    if total_size < MIN_RECORD_SIZE:
        return Flaw("CL-LEN", f"size {total_size} is below the smallest record's {MIN_RECORD_SIZE}")
    return Flaw("CL-LEN", f"size {total_size} exceeds the {left} bytes left", 0, left)


def find_record_end(read: Callable[[int, int], bytes], total_size: int) -> int | None:
    """Return what the lengths of a record add up to, from a few small reads: ``read(length, offset in the record)``.

    For a record too large to be read on the word of its size alone.
    """
    head = read(layouts.MESSAGE_PREFIX_V6V6.size, 0)
    if len(head) < layouts.MESSAGE_PREFIX_V6V6.size:
        return None
    layout = PREFIXES[head[_SYS_FLAG_AT + 3] & _HOST_BITS]
    prefix = layout.decode(head)
    end = layout.size
    length = prefix.body_length
    for length_size in (1 if prefix.magic == MESSAGE_MAGIC_V1 else 2, _PROPERTIES_LENGTH_SIZE):
        length_at = end + length
        if length < 0 or length_at + length_size > total_size:
            return None
        length = int.from_bytes(read(length_size, length_at), "big", signed=True)
        end = length_at + length_size
    return end + length if length >= 0 else None


def check_record(
    message: Message, data: Buffer, file_offset: int, physical_offset: int | None, *, property_crc: bool = True
) -> Iterator[Flaw]:
    """Yield what is wrong with a structurally whole ``message`` that stands at ``file_offset`` of ``data``.

    ``physical_offset`` is where the record lies in its log, None where that is not known (a raw blob). The property
    checksum covers the record before its block; it is compared wherever a block stands.
    """
    actual = crc31(message.raw_body)
    if actual != message.body_crc:
        at = PREFIXES[message.sys_flag & _HOST_BITS].size
        text = f"body checksum {actual:#010x}, the record says {message.body_crc & 0xFFFFFFFF:#010x}"
        yield Flaw("CL-CRC", text, at, message.body_length)
    if physical_offset is not None and message.physical_offset != physical_offset:
        field = _SHORTEST.field("physical_offset")
        text = f"the record says it lies at {message.physical_offset}, it lies at {physical_offset}"
        yield Flaw("CL-PHY", text, field.offset, field.size)
    if message.store_timestamp <= 0:
        at = PREFIXES[message.sys_flag & _HOST_BITS].field("store_timestamp").offset
        yield Flaw("CL-TIME", f"store timestamp {message.store_timestamp}", at, layouts.LONG.size)
    stored = find_property_crc(message.raw_properties) if property_crc else None
    if stored is not None:
        covered = message.total_size - stored.length
        actual = crc31(memoryview(data)[file_offset : file_offset + covered])
        if actual != stored.value:
            text = f"property checksum {stored.value}, the record gives {actual}"
            yield Flaw("CL-CRC", text, covered, stored.length)


def encode_message(message: layouts.MessageRecord) -> bytes:
    """Return the bytes of a record, lengths and all other fields as they are in ``message``."""
    prefix = PREFIXES[message.sys_flag & _HOST_BITS].packer.pack(*message[:-3])
    topic_length_size = 1 if message.magic == MESSAGE_MAGIC_V1 else 2
    return b"".join(
        (
            prefix,
            message.raw_body,
            len(message.raw_topic).to_bytes(topic_length_size, "big"),
            message.raw_topic,
            len(message.raw_properties).to_bytes(_PROPERTIES_LENGTH_SIZE, "big"),
            message.raw_properties,
        )
    )


def record_size(sys_flag: int, magic: int, body_length: int, topic_length: int, properties_length: int) -> int:
    """Return the size of a record with these parts."""
    topic_length_size = 1 if magic == MESSAGE_MAGIC_V1 else 2
    head = PREFIXES[sys_flag & _HOST_BITS].size + topic_length_size + _PROPERTIES_LENGTH_SIZE
    return head + body_length + topic_length + properties_length


def encode_blank(length: int) -> bytes:
    """Return the bytes that end a segment with ``length`` bytes left; what follows the head stays as it is."""
    return layouts.BLANK_RECORD.packer.pack(length, BLANK_MAGIC)
