"""Records that lack only their place: everything of a message is encoded but queue offset, physical offset, store time.

Upstream: ``MessageExtEncoder``. Encoding goes on outside the writer's lock, so that the writer only numbers and packs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import TypeAlias

from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1
from rmqtool.formats.java import crc31
from rmqtool.formats.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    encode_property_crc,
    order_properties,
)

encode_length = layouts.SHORT.packer.pack


# A record before it has a place, as a plain tuple: a named one takes three times as long to make. Its size, which is
# final; the packer of its prefix, and what that packs around the place: magic, checksum of the body, queue, flag,
# system flag, birth, born host (address, port), store host (address, port), reconsume times, prepared transaction; the
# body; topic and properties, each behind its length; and whether a checksum property ends it.
Record: TypeAlias = tuple[
    int,
    Callable[..., bytes],
    int,
    int,
    int,
    int,
    int,
    int,
    bytes,
    int,
    bytes,
    int,
    int,
    int,
    bytes,
    bytes,
    bool,
]


def encode_record(record: Record, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
    """Return the bytes of a record at its place."""
    (
        size,
        pack,
        magic,
        body_crc,
        queue_id,
        flag,
        sys_flag,
        born,
        born_ip,
        born_port,
        store_ip,
        store_port,
        reconsume_times,
        prepared,
        body,
        tail,
        has_crc,
    ) = record
    prefix = pack(
        size,
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born,
        born_ip,
        born_port,
        store_timestamp,
        store_ip,
        store_port,
        reconsume_times,
        prepared,
        len(body),
    )
    data = prefix + body + tail
    return data + encode_property_crc(crc31(data)) if has_crc else data


def encode_topic(topic: bytes, magic: int) -> bytes:
    """Return a topic behind its length."""
    return (bytes((len(topic),)) if magic == MESSAGE_MAGIC_V1 else encode_length(len(topic))) + topic


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
    return lambda properties: (template % values(properties)).encode("utf-8", "replace")
