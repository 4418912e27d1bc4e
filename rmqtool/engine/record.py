"""Records that lack only their place: everything of a message is encoded but queue offset, physical offset, store time.

Upstream: ``MessageExtEncoder``. Encoding goes on outside the writer's lock, so that the writer only numbers and packs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from rmqtool.engine.message import Host, NewMessage
from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, SysFlag
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.hosts import IPV4_LENGTH
from rmqtool.formats.java import crc31
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
encode_length = layouts.SHORT.packer.pack


class Record(NamedTuple):
    """One record before it has a place: the struct packer of its prefix, and what it packs around the place.

    ``tail`` is topic and properties, each behind its length. ``size`` is final.
    """

    size: int
    pack: Callable[..., bytes]
    before_place: tuple[int, int, int, int, int]
    between: tuple[int, int, bytes, int]
    behind_store_time: tuple[bytes, int, int, int, int]
    body: bytes
    tail: bytes
    has_crc: bool

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


# What all records of one put share: packer and size of the prefix; magic and queue id; what Record calls ``between``;
# the beginning of ``behind_store_time``. A plain tuple: one is made for every message.
FixedFields: TypeAlias = tuple[
    Callable[..., bytes], int, int, int, tuple[int, int, bytes, int], tuple[bytes, int, int, int]
]
_new = tuple.__new__


def make_record(fixed: FixedFields, body: bytes, flag: int, tail: bytes, *, has_crc: bool) -> Record:
    """Return the record of a body."""
    pack, size, magic, queue_id, between, behind = fixed
    length = len(body)
    size += length + len(tail)
    if has_crc:
        size += CRC_BLOCK_LENGTH
    before = (size, magic, crc31(body), queue_id, flag)
    # Around the constructor of named tuples, which costs as much as all the rest.
    return _new(Record, (size, pack, before, between, (*behind, length), body, tail, has_crc))


def fixed_fields(message: NewMessage, magic: int, queue_id: int, store_host: Host, now: int) -> FixedFields:
    """Return the fixed fields of a message; addresses of sixteen bytes set their bits."""
    born_timestamp = message.born_timestamp
    address, port = message.born_host or store_host
    sys_flag = message.sys_flag
    if len(address) != IPV4_LENGTH:
        sys_flag |= _BORN_V6
    if len(store_host[0]) != IPV4_LENGTH:
        sys_flag |= _STORE_V6
    return (
        *_PLACED[sys_flag & _HOST_BITS],
        magic,
        queue_id,
        (sys_flag, now if born_timestamp is None else born_timestamp, address, port),
        (*store_host, message.reconsume_times, message.prepared_transaction_offset),
    )


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
