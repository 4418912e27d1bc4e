"""Records that lack only their place: everything of a message is encoded but queue offset, physical offset, store time.

Upstream: ``MessageExtEncoder``. Encoding goes on outside the writer's lock, so that the writer only numbers and packs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

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


class Record(NamedTuple):
    """One record before it has a place: the struct packer of its prefix, and what it packs around the place.

    ``tail`` is topic and properties, each behind its length. ``size`` is final.
    """

    size: int
    pack: Callable[..., bytes]
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_ip: bytes
    born_port: int
    store_ip: bytes
    store_port: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    tail: bytes
    has_crc: bool

    def encode(self, queue_offset: int, physical_offset: int, store_timestamp: int) -> bytes:
        """Return the bytes of the record at its place."""
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
        ) = self
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
