"""Records that lack only their place: everything of a message is encoded but queue offset, physical offset, store time.

Upstream: ``MessageExtEncoder``. Encoding goes on outside the writer's lock, so that the writer only numbers and packs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import TypeAlias

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

_BORN_V6, _STORE_V6 = int(SysFlag.BORN_HOST_V6), int(SysFlag.STORE_HOST_V6)
_HOST_BITS = _BORN_V6 | _STORE_V6
_PLACED = {bits: (layout.packer.pack, layout.size) for bits, layout in PREFIXES.items()}
_encode_length = layouts.SHORT.packer.pack


class Record:
    """One record before it has a place. ``size`` is final; ``tail`` is topic and properties, each behind its length.

    The writer of one record after the other takes the pieces of the prefix itself: ``pack`` of the fields before the
    place, queue offset, physical offset, those between, store time, those behind.
    """

    __slots__ = ("before_place", "behind_store_time", "between", "body", "has_crc", "pack", "size", "tail")

    def __init__(self, fixed: FixedFields, body: bytes, flag: int, tail: bytes, *, has_crc: bool = False) -> None:
        magic, queue_id, sys_flag, born_timestamp, born_host, store_host, reconsume_times, prepared_offset = fixed
        self.pack, prefix_size = _PLACED[sys_flag & _HOST_BITS]
        length = len(body)
        size = prefix_size + length + len(tail)
        self.size = size = size + CRC_BLOCK_LENGTH if has_crc else size
        self.before_place = size, magic, crc31(body), queue_id, flag
        self.between = sys_flag, born_timestamp, *born_host
        self.behind_store_time = *store_host, reconsume_times, prepared_offset, length
        self.body = body
        self.tail = tail
        self.has_crc = has_crc

    def encode(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """Return the bytes of the record at its place."""
        prefix = self.pack(
            *self.before_place,
            queue_offset,
            physical_offset,
            *self.between,
            store_timestamp,
            *self.behind_store_time,
        )
        data = b"".join((prefix, self.body, self.tail))
        return data + encode_property_crc(crc31(data)) if self.has_crc else data


# Magic, queue id, system flag, born time, born host, store host, reconsume times, prepared transaction offset: what
# all records of one put share. A plain tuple: one is made for every message.
FixedFields: TypeAlias = tuple[int, int, int, int, Host, Host, int, int]


def fixed_fields(message: NewMessage, magic: int, queue_id: int, default_host: Host, now: int) -> FixedFields:
    """Return the fixed fields of a message; addresses of sixteen bytes set their bits."""
    born = message.born_timestamp
    born_host, store_host = message.born_host, message.store_host or default_host
    sys_flag = message.sys_flag
    if len(born_host[0]) != IPV4_LENGTH:
        sys_flag |= _BORN_V6
    if len(store_host[0]) != IPV4_LENGTH:
        sys_flag |= _STORE_V6
    return (
        magic,
        queue_id,
        sys_flag,
        now if born is None else born,
        born_host,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )


def encode_topic(topic: bytes, magic: int) -> bytes:
    """Return a topic behind its length."""
    return (bytes((len(topic),)) if magic == MESSAGE_MAGIC_V1 else _encode_length(len(topic))) + topic


def encode_tail(topic: bytes, raw_properties: bytes, *, with_crc: bool) -> bytes:
    """Return what follows the body, ``topic`` behind its length already; the length counts the checksum to come."""
    length = len(raw_properties) + CRC_BLOCK_LENGTH if with_crc else len(raw_properties)
    return topic + _encode_length(length) + raw_properties


def property_text(properties: Mapping[str, str], bins: int, *, terminated: bool) -> bytes:
    """Return the text that a hash map of ``bins`` initial bins gives; ``terminated`` puts 0x02 behind the last pair."""
    return text_template(tuple(properties), bins, terminated)(properties)


@lru_cache(maxsize=4096)
def text_template(names: tuple[str, ...], bins: int, terminated: bool) -> Callable[[Mapping[str, str]], bytes]:
    """Return what makes the text of properties with these ``names``: messages of one kind share it."""
    if not names:
        return lambda _properties: b""
    ordered = tuple(order_properties(dict.fromkeys(names, ""), bins))
    pairs = [f"{name.replace('%', '%%')}{NAME_VALUE_SEPARATOR}%s" for name in ordered]
    template = PROPERTY_SEPARATOR.join(pairs) + (PROPERTY_SEPARATOR if terminated else "")
    values = itemgetter(*ordered)
    return lambda properties: encode_text(template % values(properties))
