"""Turns a stored message into a new one, as a broker does to deliver, commit, check, send back or revive it.

upstream makes a MessageExtBrokerInner of a MessageExt in many places, which differ in what they keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rmqtool.config import Version
from rmqtool.engine.message import NewMessage, property_text
from rmqtool.formats.codes import HOST_BITS, TRANSACTION_MASK
from rmqtool.formats.commit_log import Message
from rmqtool.formats.java import parse_int
from rmqtool.formats.properties import BUILT_BINS, DECODED_BINS, decode_properties
from rmqtool.formats.property_names import PROPERTY_CRC32


def stored_properties(record: Message) -> dict[str, str]:
    """Return the properties of a record, without the checksum that belongs to the record only."""
    # The record would cache its own mapping; many records are processed at once.
    found = decode_properties(record.raw_properties)
    found.pop(PROPERTY_CRC32, None)
    return found


def text_of(properties: Mapping[str, str], version: Version) -> bytes:
    """Return the property text that a broker makes of a decoded mapping."""
    is_4_9 = version is Version.V4_9
    return property_text(properties, BUILT_BINS if is_4_9 else DECODED_BINS, terminated=not is_4_9)


def stored_again(record: Message, topic: str, queue_id: int, properties: Mapping[str, str]) -> NewMessage:
    """Return a record as a new message with the same body, flag, birth time, hosts and count of deliveries."""
    return NewMessage(
        topic,
        record.raw_body,
        queue_id,
        properties,
        record.flag,
        record.sys_flag & ~HOST_BITS,
        record.born_timestamp,
        (record.born_host_ip, record.born_host_port),
        (record.store_host_ip, record.store_host_port),
        record.reconsume_times,
    )


def with_transaction_type(sys_flag: int, kind: int) -> int:
    """Return a system flag with another transaction type. upstream: resetTransactionValue"""
    return sys_flag & ~TRANSACTION_MASK | kind


@lru_cache(maxsize=256)
def find_number(text: str | None) -> int | None:
    """Return the Java int of a property; None if it is missing or not a number."""
    return None if text is None else parse_int(text)
