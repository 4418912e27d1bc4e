"""Message ids as text: the offset message id, the client's unique key, and the keys and receipts of POP.

An *offset message id* is the store host of a message and its physical offset; a *unique key* is made by the producer
before it sends. Both are hexadecimal, 32 digits with IPv4 and 56 with IPv6::

    offset message id   address (4 or 16 bytes)  port (4)     physical offset (8)
    unique key          address (4 or 16 bytes)  process (2)  class loader (4)  ms of the month (4)  counter (2)

Nothing in an id says which of the two it is, so ``guess_id`` goes by what its bytes would mean.

Upstream: ``MessageDecoder.createMessageId`` (offset message id), ``MessageClientIDSetter`` (unique key),
``PopMessageProcessor.gen...UniqueId`` and ``ExtraInfoUtil`` (POP).
"""

from __future__ import annotations

import re
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from rmqtool.formats.hosts import IPV4_LENGTH, IPV6_LENGTH, format_host
from rmqtool.formats.java import LONG_MAX, LONG_MIN

# Both kinds of id have 16 bytes with IPv4 and 28 with IPv6.
_HEX_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")

# The bytes after the address: port and offset, or the last four parts of a unique key.
_TAIL_LENGTH = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# An offset from here on (281 TB) is longer than any log, so the id is more likely a unique key.
_IMPLAUSIBLE_OFFSET = 1 << 48


def _split_hex(text: str) -> tuple[bytes, bytes] | None:
    """Return the address and the twelve bytes after it, or None if ``text`` is not 32 or 56 hexadecimal digits."""
    if not _HEX_ID.fullmatch(text):
        return None
    raw = bytes.fromhex(text)
    return raw[:-_TAIL_LENGTH], raw[-_TAIL_LENGTH:]


class OffsetMsgId(NamedTuple):
    """Where a message is: the store host in its record, and its physical offset there."""

    address: bytes
    port: int
    physical_offset: int

    @property
    def host(self) -> str:
        return format_host(self.address, self.port)


def encode_offset_msg_id(address: bytes, port: int, physical_offset: int) -> str:
    """Return the id in upper-case hexadecimal digits."""
    tail = port.to_bytes(4, "big", signed=True) + physical_offset.to_bytes(8, "big", signed=True)
    return (address + tail).hex().upper()


def encode_offset_msg_ids(address: bytes, port: int, physical_offsets: Sequence[int]) -> str:
    """Return the ids of records of one store host, separated by commas, as a broker answers a batch."""
    host = _host_digits(address, port)
    if len(physical_offsets) == 1:
        return f"{host}{physical_offsets[0]:016X}"
    return ",".join([f"{host}{offset:016X}" for offset in physical_offsets])


@lru_cache(maxsize=64)
def _host_digits(address: bytes, port: int) -> str:
    return (address + port.to_bytes(4, "big", signed=True)).hex().upper()


def decode_offset_msg_id(text: str) -> OffsetMsgId | None:
    """Return the place that an offset message id names, or None if ``text`` does not have its form."""
    parts = _split_hex(text)
    if parts is None:
        return None
    address, tail = parts
    port = int.from_bytes(tail[:4], "big", signed=True)
    return OffsetMsgId(address, port, int.from_bytes(tail[4:], "big", signed=True))


class UniqKey(NamedTuple):
    """The parts of a unique key: producer, time, counter.

    ``address`` is the producer's; a producer that does not know its own puts its start time there. ``month_span`` is in
    ms since the month began in the producer's time zone; the key does not say which month.
    """

    address: bytes
    pid: int
    loader_hash: int
    month_span: int
    counter: int


def encode_uniq_key(key: UniqKey) -> str:
    """Return the key in upper-case hexadecimal digits."""
    parts = (
        key.address,
        key.pid.to_bytes(2, "big"),
        key.loader_hash.to_bytes(4, "big", signed=True),
        key.month_span.to_bytes(4, "big"),
        key.counter.to_bytes(2, "big"),
    )
    return b"".join(parts).hex().upper()


def decode_uniq_key(text: str) -> UniqKey | None:
    """Return the parts of a unique key that a client made, or None if ``text`` does not have that form.

    A unique key can be any text: producers may set their own, and POP makes others.
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
    """Return the ms since the month of ``now`` (ms) began in ``zone``, as a client puts them into a key.

    None for a time that Python's calendar does not have.
    """
    start = _month_start(now, zone, 0)
    return None if start is None else (now - start) & 0xFFFFFFFF


def uniq_key_time(month_span: int, now: int, zone: tzinfo) -> int | None:
    """Return the time (ms) of a unique key as a client in ``zone`` computes it at ``now`` (ms).

    The client takes this month, or the month before if the time would be in the future. None for a time that Python's
    calendar does not have.
    """
    start = _month_start(now, zone, 0)
    if start is not None and start + month_span >= now:
        start = _month_start(now, zone, -1)
    return None if start is None else start + month_span


def nearest_uniq_key_time(month_span: int, reference: int, zone: tzinfo) -> int | None:
    """Return the time (ms) of a unique key in the month that brings it nearest to ``reference`` (ms).

    None for a time that Python's calendar does not have.
    """
    # The key can be from the next month too: its clock is the producer's.
    starts = (_month_start(reference, zone, months) for months in (-2, -1, 0, 1))
    times = [start + month_span for start in starts if start is not None]
    return min(times, key=lambda time: abs(time - reference), default=None)


def _month_start(time: int, zone: tzinfo, months: int) -> int | None:
    """Return when the month that is ``months`` after that of ``time`` (ms) began in ``zone``, in ms.

    None for a time that Python's calendar does not have.
    """
    try:
        local = (_EPOCH + timedelta(milliseconds=time)).astimezone(zone)
        years, month = divmod(local.year * 12 + local.month - 1 + months, 12)
        return (datetime(years, month + 1, 1, tzinfo=zone) - _EPOCH) // _MILLISECOND
    except (OverflowError, ValueError):
        return None


class PopTag(StrEnum):
    """The kind of a record of the revive topic: its tag, and the last part of its unique key."""

    CHECK_POINT = "ck"
    ACK = "ack"
    BATCH_ACK = "bAck"


class PopId(NamedTuple):
    """Unique key of a record of the revive topic; ``pop_time`` is in ms.

    ``offsets`` has the start offset of a check point, the offset of an ack, or the offsets of a batch ack. Only a batch
    ack has no broker name.
    """

    tag: PopTag
    topic: str
    queue_id: int
    offsets: tuple[int, ...]
    group: str
    pop_time: int
    broker_name: str | None


# topic@queue@offset@group@pop time@broker@tag; a batch ack has a list of offsets, and no broker.
_POP_ID = re.compile(
    r"(?P<topic>[^@]*)@(?P<queue_id>\d{1,10})@(?P<offset>-?\d{1,19}|\[[-\d, ]*\])@(?P<group>[^@]*)"
    r"@(?P<pop_time>-?\d{1,19})(?:@(?P<broker_name>[^@]*))?@(?P<tag>ck|ack|bAck)",
    re.ASCII,
)


def encode_pop_id(pop_id: PopId) -> str:
    """Return the key as a broker writes it: the parts joined by ``@``, a batch ack's offsets as Java prints a list."""
    batch = pop_id.tag is PopTag.BATCH_ACK
    offset = f"[{', '.join(map(str, pop_id.offsets))}]" if batch else str(pop_id.offsets[0])
    parts = [pop_id.topic, str(pop_id.queue_id), offset, pop_id.group, str(pop_id.pop_time)]
    if pop_id.broker_name is not None:
        parts.append(pop_id.broker_name)
    return "@".join((*parts, pop_id.tag.value))


def decode_pop_id(text: str) -> PopId | None:
    """Return the parts of the unique key of a record of the revive topic, or None for any other text."""
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
    """Receipt of a popped message: the property ``POP_CK``, and ``extraInfo`` of an ack.

    ``check_point_offset`` is the first queue offset of the pop; ``pop_time`` and ``invisible_time`` are in ms.
    ``retry_flag`` is 0 for the topic itself, 1 or 2 for its retry topic in the first or second naming.
    ``revive_queue_id`` is 999 for ordered consumption. A receipt for a whole pop has no ``queue_offset``.
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
    """Return the receipt: its parts, separated by blanks."""
    return " ".join(str(part) for part in receipt if part is not None)


def decode_pop_receipt(text: str) -> PopReceipt | None:
    """Return the parts of a receipt: 7 for a whole pop, 8 for one message. None for any other text."""
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


# At most as many digits as a ``long`` has.
_LONG = re.compile(r"-?\d{1,19}", re.ASCII)


class RecallHandle(NamedTuple):
    """Handle by which the producer of a timer message cancels it: topic, broker, time of delivery (ms), unique key."""

    topic: str
    broker_name: str
    time: str
    uniq_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """Return the handle: its version and parts with blanks in between, in base64 for URLs."""
    return urlsafe_b64encode(" ".join(("v1", *handle)).encode()).decode()


def decode_recall_handle(text: str) -> RecallHandle | None:
    """Return the parts of a handle, None for any other text."""
    try:
        version, *parts = b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
    except ValueError:
        return None
    return RecallHandle(*parts[:4]) if version == "v1" and len(parts) >= 4 else None


def _parse_longs(texts: list[str]) -> tuple[int, ...] | None:
    """Return the numbers, or None if one is not a Java ``long`` in decimal digits."""
    if not all(_LONG.fullmatch(text) for text in texts):
        return None
    numbers = tuple(map(int, texts))
    return numbers if all(LONG_MIN <= number <= LONG_MAX for number in numbers) else None


class IdKind(StrEnum):
    """The ids of 32 or 56 hexadecimal digits, by upstream's names."""

    OFFSET_MSG_ID = "offsetMsgId"
    UNIQ_KEY = "uniqKey"


class IdGuess(NamedTuple):
    """The kinds that an id can be, the likeliest first, and why. Without a kind it is a key that a producer chose."""

    kinds: tuple[IdKind, ...]
    reasons: tuple[str, ...]


def guess_id(text: str) -> IdGuess:
    """Return which kinds of id ``text`` can be, by what its bytes would mean."""
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
