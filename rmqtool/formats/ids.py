"""Message ids as text: where a message lies, who made it, and what POP calls its messages and receipts.

Upstream: ``MessageDecoder.createMessageId`` (offset message id), ``MessageClientIDSetter`` (unique key),
``PopMessageProcessor.gen...UniqueId`` and ``ExtraInfoUtil`` (POP). Both hexadecimal ids are 32 digits long with IPv4
and 56 with IPv6, so they are told apart by what their bytes would mean.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import NamedTuple

from rmqtool.formats.hosts import IPV4_LENGTH, IPV6_LENGTH, format_host
from rmqtool.formats.java import LONG_MAX, LONG_MIN

_HEX_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")

# What follows the address: four bytes of port and eight of offset, or the same twelve bytes of a unique key.
_TAIL_LENGTH = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# No log is that long: an offset of 2**48 (281 TB) and up speaks for the other reading of an id.
_IMPLAUSIBLE_OFFSET = 1 << 48


def _split_hex(text: str) -> tuple[bytes, bytes] | None:
    """Return the address and the twelve bytes behind it, None when ``text`` is no hexadecimal id."""
    if not _HEX_ID.fullmatch(text):
        return None
    raw = bytes.fromhex(text)
    return raw[:-_TAIL_LENGTH], raw[-_TAIL_LENGTH:]


class OffsetMsgId(NamedTuple):
    """Where a message lies: the store host that its record names, and its physical offset there."""

    address: bytes
    port: int
    physical_offset: int

    @property
    def host(self) -> str:
        """The store host as text."""
        return format_host(self.address, self.port)


def encode_offset_msg_id(address: bytes, port: int, physical_offset: int) -> str:
    """Return the offset message id: upper-case hexadecimal digits."""
    tail = port.to_bytes(4, "big", signed=True) + physical_offset.to_bytes(8, "big", signed=True)
    return (address + tail).hex().upper()


def decode_offset_msg_id(text: str) -> OffsetMsgId | None:
    """Return what an offset message id says, None when ``text`` cannot be one by its form."""
    parts = _split_hex(text)
    if parts is None:
        return None
    address, tail = parts
    port = int.from_bytes(tail[:4], "big", signed=True)
    return OffsetMsgId(address, port, int.from_bytes(tail[4:], "big", signed=True))


class UniqKey(NamedTuple):
    """Who made a message: its producer's address, process and class loader, when in the month, and a counter.

    ``address`` holds the start-up time when the producer did not know its own; ``month_span`` is in ms since the month
    began where the producer lives, and nothing says which month.
    """

    address: bytes
    pid: int
    loader_hash: int
    month_span: int
    counter: int


def encode_uniq_key(key: UniqKey) -> str:
    """Return the unique key: upper-case hexadecimal digits."""
    parts = (
        key.address,
        key.pid.to_bytes(2, "big"),
        key.loader_hash.to_bytes(4, "big", signed=True),
        key.month_span.to_bytes(4, "big"),
        key.counter.to_bytes(2, "big"),
    )
    return b"".join(parts).hex().upper()


def decode_uniq_key(text: str) -> UniqKey | None:
    """Return what a unique key made by the client says, None when ``text`` is not of that form.

    Any text may be a unique key: producers set their own, POP makes others.
    """
    parts = _split_hex(text)
    if parts is None:
        return None
    address, tail = parts
    return UniqKey(
        address,
        int.from_bytes(tail[:2], "big"),
        int.from_bytes(tail[2:6], "big", signed=True),
        int.from_bytes(tail[6:10], "big"),
        int.from_bytes(tail[10:], "big"),
    )


def uniq_key_span(now: int, zone: tzinfo) -> int | None:
    """Return what a unique key made at ``now`` says of its time; None when ``now`` is beyond any calendar."""
    start = _month_start(now, zone, 0)
    return None if start is None else (now - start) & 0xFFFFFFFF


def uniq_key_time(month_span: int, now: int, zone: tzinfo) -> int | None:
    """Return the time of a unique key as a client of time zone ``zone`` tells it at ``now``.

    That is in this month, or in the one before when it would lie ahead. None when ``now`` is beyond any calendar.
    """
    start = _month_start(now, zone, 0)
    if start is not None and start + month_span >= now:
        start = _month_start(now, zone, -1)
    return None if start is None else start + month_span


def nearest_uniq_key_time(month_span: int, reference: int, zone: tzinfo) -> int | None:
    """Return the time of a unique key in the month that brings it nearest to ``reference``, say the born time.

    None when ``reference`` is beyond any calendar.
    """
    starts = (_month_start(reference, zone, months) for months in (-2, -1, 0, 1))
    times = [start + month_span for start in starts if start is not None]
    return min(times, key=lambda time: abs(time - reference), default=None)


def _month_start(time: int, zone: tzinfo, months: int) -> int | None:
    """Return when the month of ``time`` began, or the one ``months`` later."""
    try:
        local = (_EPOCH + timedelta(milliseconds=time)).astimezone(zone)
        years, month = divmod(local.year * 12 + local.month - 1 + months, 12)
        return (datetime(years, month + 1, 1, tzinfo=zone) - _EPOCH) // _MILLISECOND
    except (OverflowError, ValueError):
        return None


class PopTag(StrEnum):
    """What a record of the revive topic is; also the last part of its unique key."""

    CHECK_POINT = "ck"
    ACK = "ack"
    BATCH_ACK = "bAck"


class PopId(NamedTuple):
    """Unique key of a record of the revive topic.

    ``offsets`` holds the start offset of a check point, the offset of an ack, or those of a batch ack; only a batch
    ack has no broker name.
    """

    tag: PopTag
    topic: str
    queue_id: int
    offsets: tuple[int, ...]
    group: str
    pop_time: int
    broker_name: str | None


_POP_ID = re.compile(
    r"(?P<topic>[^@]*)@(?P<queue_id>\d{1,10})@(?P<offset>-?\d{1,19}|\[[-\d, ]*\])@(?P<group>[^@]*)"
    r"@(?P<pop_time>-?\d{1,19})(?:@(?P<broker_name>[^@]*))?@(?P<tag>ck|ack|bAck)",
    re.ASCII,
)


def encode_pop_id(pop_id: PopId) -> str:
    """Return the unique key of a record of the revive topic."""
    batch = pop_id.tag is PopTag.BATCH_ACK
    offset = f"[{', '.join(map(str, pop_id.offsets))}]" if batch else str(pop_id.offsets[0])
    parts = [pop_id.topic, str(pop_id.queue_id), offset, pop_id.group, str(pop_id.pop_time)]
    if pop_id.broker_name is not None:
        parts.append(pop_id.broker_name)
    return "@".join((*parts, pop_id.tag.value))


def decode_pop_id(text: str) -> PopId | None:
    """Return what the unique key of a record of the revive topic says, None when it is none."""
    match = _POP_ID.fullmatch(text)
    if match is None:
        return None
    tag = PopTag(match["tag"])
    batch = tag is PopTag.BATCH_ACK
    if batch != match["offset"].startswith("[") or batch != (match["broker_name"] is None):
        return None
    offsets = _parse_longs(match["offset"].strip("[]").split(", ")) if match["offset"] != "[]" else ()
    numbers = _parse_longs([match["queue_id"], match["pop_time"]])
    if offsets is None or numbers is None:
        return None
    return PopId(tag, match["topic"], numbers[0], offsets, match["group"], numbers[1], match["broker_name"])


class PopReceipt(NamedTuple):
    """Receipt of a popped message (property ``POP_CK``, ``extraInfo`` of an ack).

    ``retry_flag`` is 0 for the topic itself, 1 and 2 for its retry topics of both namings, ``revive_queue_id`` 999 in
    ordered consumption. ``queue_offset`` is missing in receipts for a whole pop.
    """

    check_point_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    retry_flag: str
    broker_name: str
    queue_id: int
    queue_offset: int | None = None


def encode_pop_receipt(receipt: PopReceipt) -> str:
    """Return the text of a receipt."""
    return " ".join(str(part) for part in receipt if part is not None)


def decode_pop_receipt(text: str) -> PopReceipt | None:
    """Return what a receipt says, None when ``text`` is none."""
    parts = text.split(" ")
    if len(parts) not in (7, 8):
        return None
    numbers = _parse_longs([*parts[:4], *parts[6:]])
    if numbers is None:
        return None
    check_point_offset, pop_time, invisible_time, revive_queue_id, queue_id = numbers[:5]
    offset = numbers[5] if len(parts) == 8 else None
    return PopReceipt(
        check_point_offset, pop_time, invisible_time, revive_queue_id, parts[4], parts[5], queue_id, offset
    )


_LONG = re.compile(r"-?\d{1,19}", re.ASCII)


def _parse_longs(texts: list[str]) -> tuple[int, ...] | None:
    """Return the numbers, None when one is not a Java ``long`` in decimal digits."""
    if not all(_LONG.fullmatch(text) for text in texts):
        return None
    numbers = tuple(map(int, texts))
    return numbers if all(LONG_MIN <= number <= LONG_MAX for number in numbers) else None


class IdKind(StrEnum):
    """What an id may be."""

    OFFSET_MSG_ID = "offsetMsgId"
    UNIQ_KEY = "uniqKey"


class IdGuess(NamedTuple):
    """What a text may be, the likeliest first, and why. No kind: any producer's own key, or no id."""

    kinds: tuple[IdKind, ...]
    reasons: tuple[str, ...]


def guess_id(text: str) -> IdGuess:
    """Return which kind of id ``text`` is, by what its bytes would mean."""
    if decode_pop_id(text) is not None:
        return IdGuess((IdKind.UNIQ_KEY,), ("it is the key of a POP record",))
    as_offset = decode_offset_msg_id(text)
    if as_offset is None:
        lengths = f"{2 * (IPV4_LENGTH + _TAIL_LENGTH)} or {2 * (IPV6_LENGTH + _TAIL_LENGTH)}"
        return IdGuess((), (f"not {lengths} hexadecimal digits: only a producer's own key can look like this",))
    if not 0 <= as_offset.port <= 0xFFFF:
        return IdGuess((IdKind.UNIQ_KEY,), ("as an offset id its port would be more than 65535",))
    if as_offset.physical_offset < 0:
        return IdGuess((IdKind.UNIQ_KEY,), ("as an offset id its offset would be negative",))
    if as_offset.physical_offset >= _IMPLAUSIBLE_OFFSET:
        reason = f"as an offset id it would be at {as_offset.physical_offset}, past the end of any log"
        return IdGuess((IdKind.UNIQ_KEY, IdKind.OFFSET_MSG_ID), (reason,))
    reasons = (
        f"it would be at {as_offset.physical_offset} of {as_offset.host}",
        "as a unique key its process id would be a multiple of 65536",
    )
    return IdGuess((IdKind.OFFSET_MSG_ID, IdKind.UNIQ_KEY), reasons)
