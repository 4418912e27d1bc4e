"""Bridges: the placeholder records that a repair writes over damage in the log.

Every reader skips them, and the damage with them. Brokers do not write them. A bridge is not a message: what reads a
log leaves it out, unless its topic is asked for by name (``filters.wanted``). It is a record of a rolled-back
transaction, because no broker puts those into a queue or the index. Its topic is not used otherwise, its body is zeros.
A broker that scans it checks it like any other record.
"""

from __future__ import annotations

from rmqtool.formats import layouts
from rmqtool.formats.codes import BLANK_MAGIC, HOST_BITS, MESSAGE_MAGIC_V1, SysFlag, TransactionType, transaction_type
from rmqtool.formats.commit_log import BLANK_SIZE, PREFIXES, Message, encode_message
from rmqtool.formats.java import crc31
from rmqtool.formats.properties import CRC_BLOCK_LENGTH, encode_property_crc, find_property_crc

# The topic of all bridges, as text and as bytes.
QUARANTINE = "RMQTOOL_QUARANTINE"
QUARANTINE_TOPIC = QUARANTINE.encode("ascii")
# The default of maxMessageSize. That setting limits only puts: a broker that scans the log does not compare the size
# of a record with it. Longer damage gets several bridges.
LARGEST_SIZE = 4 << 20
# The bytes from which a reader tells the size and the kind of a record.
START_SIZE = layouts.RECORD_START.size
_LENGTHS = 3  # bytes of two length fields: 1 of the topic, 2 of the properties


def least_size(like: Message) -> int:
    """Return the size of the smallest bridge beside the record ``like``: one with an empty body."""
    prefix = PREFIXES[_sys_flag(like) & HOST_BITS]
    return prefix.size + len(QUARANTINE_TOPIC) + _LENGTHS + (CRC_BLOCK_LENGTH if _has_crc(like) else 0)


def encode_bridge(physical_offset: int, size: int, like: Message) -> bytes:
    """Return a bridge of exactly ``size`` bytes, at least ``least_size(like)``, for ``physical_offset``.

    ``like`` is a sound record next to the damage: the bridge takes its time, so that the times of the log stay in
    order, and its host. If it has a property checksum, the bridge has one too: with forceVerifyPropCRC a broker
    requires one in every record.
    """
    body = bytes(size - least_size(like))
    checksum = encode_property_crc(0) if _has_crc(like) else b""
    record = encode_message(
        layouts.MessageRecord(
            total_size=size,
            magic=MESSAGE_MAGIC_V1,
            body_crc=crc31(body),
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=physical_offset,
            sys_flag=_sys_flag(like),
            born_timestamp=like.store_timestamp,
            born_host_ip=like.store_host_ip,
            born_host_port=like.store_host_port,
            store_timestamp=like.store_timestamp,
            store_host_ip=like.store_host_ip,
            store_host_port=like.store_host_port,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_length=len(body),
            raw_body=body,
            raw_topic=QUARANTINE_TOPIC,
            raw_properties=checksum,
        )
    )
    if not checksum:
        return record
    # The checksum covers all bytes before its own block, so it is computed from the finished record.
    covered = record[: -len(checksum)]
    return covered + encode_property_crc(crc31(covered))


def _sys_flag(like: Message) -> int:
    # The store host of the neighbour is both hosts of the bridge, so both have the same length.
    return int(TransactionType.ROLLBACK) | (HOST_BITS if like.sys_flag & SysFlag.STORE_HOST_V6 else 0)


def _has_crc(like: Message) -> bool:
    return find_property_crc(like.raw_properties) is not None


def encode_blank(size: int) -> bytes:
    """Return the first ``BLANK_SIZE`` bytes of a blank record over the last ``size`` bytes of a segment.

    Its other bytes may have any value.
    """
    return layouts.RECORD_START.pack(size, BLANK_MAGIC).ljust(BLANK_SIZE, b"\0")


def is_bridge(message: Message) -> bool:
    """Return whether a record is a bridge. The topic alone does not tell: a user can send messages to it."""
    rolled_back = transaction_type(message.sys_flag) is TransactionType.ROLLBACK
    return rolled_back and message.raw_topic == QUARANTINE_TOPIC


def find_last_start(data: bytes) -> int | None:
    """Return where the last record in ``data`` that could be a bridge begins; None if ``data`` has no magic of one.

    The body of a bridge is zeros. So if ``data`` ends inside a bridge, the last magic in it is that of the bridge.
    """
    field = layouts.RECORD_START.field("magic")
    found = data.rfind(MESSAGE_MAGIC_V1.to_bytes(field.size, "big"), field.offset)
    return None if found < 0 else found - field.offset


def bridge_sizes(size: int, least: int) -> list[int]:
    """Return the sizes of the bridges that fill ``size`` bytes together, about equal.

    ``least`` is the size of the smallest bridge. The list is empty if not even that fits.
    """
    if size < least:
        return []
    count = -(-size // LARGEST_SIZE)
    each, more = divmod(size, count)
    return [each + (number < more) for number in range(count)]
