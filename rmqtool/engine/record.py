"""Records that lack only their place: everything of a message is encoded but queue offset, physical offset, store time.

Upstream: ``MessageExtEncoder``. Encoding goes on outside the writer's lock, so that the writer only numbers and packs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rmqtool.engine.message import Host, NewMessage
from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, SysFlag
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.hosts import IPV4_LENGTH
from rmqtool.formats.java import crc31, encode_text
from rmqtool.formats.properties import (
    CRC_BLOCK_LENGTH,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    encode_property_crc,
    order_properties,
)

_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_PLACED = {bits: (layout.packer.pack, layout.size) for bits, layout in PREFIXES.items()}
_encode_length = layouts.SHORT.packer.pack


class Record:
    """One record before it has a place. ``size`` is final; ``tail`` is topic and properties, each behind its length."""

    __slots__ = ("_after_store_time", "_before_place", "_between", "_body", "_has_crc", "_pack", "_tail", "size")

    def __init__(self, of: Envelope, body: bytes, flag: int, tail: bytes, *, has_crc: bool = False) -> None:
        self._pack, prefix_size = _PLACED[of.sys_flag & _HOST_BITS]
        size = prefix_size + len(body) + len(tail)
        self.size = size = size + CRC_BLOCK_LENGTH if has_crc else size
        self._before_place = (size, of.magic, crc31(body), of.queue_id, flag)
        self._between = (of.sys_flag, of.born_timestamp, *of.born_host)
        self._after_store_time = (*of.store_host, of.reconsume_times, of.prepared_transaction_offset, len(body))
        self._body = body
        self._tail = tail
        self._has_crc = has_crc

    def parts(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> tuple[bytes, ...]:
        """Return the bytes of the record at its place, in pieces."""
        prefix = self._pack(
            *self._before_place,
            queue_offset,
            physical_offset,
            *self._between,
            store_timestamp,
            *self._after_store_time,
        )
        if not self._has_crc:
            return prefix, self._body, self._tail
        covered = prefix + self._body + self._tail
        return covered, encode_property_crc(crc31(covered))


class Envelope:
    """The fixed fields that all records of one put share."""

    __slots__ = (
        "born_host",
        "born_timestamp",
        "magic",
        "prepared_transaction_offset",
        "queue_id",
        "reconsume_times",
        "store_host",
        "sys_flag",
    )

    def __init__(self, message: NewMessage, magic: int, queue_id: int, store_host: Host, now: int) -> None:
        born = message.born_timestamp
        self.magic = magic
        self.queue_id = queue_id
        self.born_timestamp = now if born is None else born
        self.born_host = message.born_host
        self.store_host = message.store_host or store_host
        self.reconsume_times = message.reconsume_times
        self.prepared_transaction_offset = message.prepared_transaction_offset
        self.sys_flag = message.sys_flag
        if len(self.born_host[0]) != IPV4_LENGTH:
            self.sys_flag |= SysFlag.BORN_HOST_V6
        if len(self.store_host[0]) != IPV4_LENGTH:
            self.sys_flag |= SysFlag.STORE_HOST_V6


def encode_topic(topic: bytes, magic: int) -> bytes:
    """Return a topic behind its length."""
    return (bytes((len(topic),)) if magic == MESSAGE_MAGIC_V1 else _encode_length(len(topic))) + topic


def encode_tail(topic: bytes, raw_properties: bytes, *, with_crc: bool) -> bytes:
    """Return what follows the body, ``topic`` behind its length already; the length counts the checksum to come."""
    length = len(raw_properties) + CRC_BLOCK_LENGTH if with_crc else len(raw_properties)
    return topic + _encode_length(length) + raw_properties


def property_text(properties: Mapping[str, str], bins: int, *, terminated: bool) -> bytes:
    """Return the text that a hash map of ``bins`` initial bins gives; ``terminated`` puts 0x02 behind the last pair."""
    if not properties:
        return b""
    names = _ordered(tuple(properties), bins)
    text = PROPERTY_SEPARATOR.join([f"{name}{NAME_VALUE_SEPARATOR}{properties[name]}" for name in names])
    return encode_text(text + PROPERTY_SEPARATOR if terminated else text)


@lru_cache(maxsize=4096)
def _ordered(names: tuple[str, ...], bins: int) -> tuple[str, ...]:
    return tuple(order_properties(dict.fromkeys(names, ""), bins))
