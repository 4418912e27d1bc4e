"""Bodies of the records that a broker writes for itself: POP's check points and acks, op records of transactions.

POP writes one line of JSON into the revive topic; the record's tag says which object it is, its unique key is a
``ids.PopId``. An op record says which half messages are decided: one queue offset of the half topic up to 5.0, later a
list with a comma after each.

Upstream: ``PopCheckPoint``, ``AckMsg``, ``BatchAckMsg`` of ``store/pop``, ``TransactionalMessageBridge``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rmqtool.formats.config_files import Decoded, decode_value, encode_value
from rmqtool.formats.config_shapes import POP_ACK, POP_BATCH_ACK, POP_CHECK_POINT
from rmqtool.formats.fastjson import Bean, Dialect, Style
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.java import LONG_MAX

# The object in the body of a record of the revive topic, by the kind of the record.
POP_BODIES: dict[PopTag, Bean] = {
    PopTag.CHECK_POINT: POP_CHECK_POINT,
    PopTag.ACK: POP_ACK,
    PopTag.BATCH_ACK: POP_BATCH_ACK,
}

# As many digits as a Java ``long`` has at most; the range is checked after that.
_OFFSET = re.compile(rb"\d{1,19}")

# The body of an op record of 5.4's RocksDB transactions; its properties say which half message is decided.
ROCKSDB_OP_BODY = b"\0"


def decode_pop_body(tag: PopTag, body: bytes) -> Decoded | Flaw:
    """Return the fields of a record of the revive topic, by upstream's short names; a flaw if they do not load."""
    return decode_value(body, POP_BODIES[tag])


def encode_pop_body(tag: PopTag, value: Mapping[str, Any], dialect: Dialect) -> bytes:
    return encode_value(value, POP_BODIES[tag], dialect, Style.COMPACT)


def popped_offsets(check_point: Mapping[str, Any]) -> Sequence[int]:
    """Return the queue offsets that a check point covers, in order.

    ``d`` has the distances from the start offset; without it the offsets follow each other without a gap.
    """
    start, differences = check_point["so"], check_point.get("d")
    if differences is None:
        return range(start, start + check_point["n"])
    return [start + difference for difference in differences]


def decode_op_body(body: bytes) -> tuple[int, ...] | Flaw:
    """Return the queue offsets of the half messages that an op record decides; a flaw if one is not a number."""
    offsets = []
    at = 0
    for part in body.split(b","):
        # A list ends with a comma, so its last part is empty.
        number = int(part) if _OFFSET.fullmatch(part) else LONG_MAX + 1
        if part and number > LONG_MAX:
            return Flaw("TX-OP", f"{part[:32]!r} in an op record is not a queue offset", at, len(part))
        if part:
            offsets.append(number)
        at += len(part) + 1
    return tuple(offsets)


def encode_op_body(offsets: Iterable[int], *, listed: bool) -> bytes:
    """Return the body of an op record; ``listed`` for a broker from 5.1 on, otherwise ``offsets`` is a single one."""
    texts = [str(offset) for offset in offsets]
    return "".join(f"{text}," if listed else text for text in texts).encode()
