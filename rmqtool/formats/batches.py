"""Batches: several messages in one body. Big-endian.

A producer sends a batch as one request. A broker splits it into records, or stores it whole as an *inner batch*, one
record. The messages are back to back::

    0   4  size of this message   12  4  flag of the producer   20+B  2  length of the properties
    4   4  0                      16  4  length B of the body   22+B  .  properties
    8   4  0                      20  B  body

Upstream: ``MessageDecoder.encodeMessage`` / ``decodeMessage``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer, LayoutError

_PREFIX = layouts.BATCH_ITEM_PREFIX
_LENGTH_SIZE = layouts.SHORT.size


class BatchItem(NamedTuple):
    """One message of a batch, as its producer made it. The topic is that of the whole batch; a broker adds the rest."""

    flag: int
    body: bytes
    raw_properties: bytes


def iter_batch_items(data: Buffer) -> Iterator[BatchItem | Flaw]:
    """Yield the messages of a batch.

    The first one that does not decode is yielded as a flaw CL-LEN, and nothing after it.
    """
    at = 0
    while at < len(data):
        left = len(data) - at
        if left < _PREFIX.size + _LENGTH_SIZE:
            yield Flaw("CL-LEN", f"{left} bytes after the last message of a batch", at, left)
            return
        total_size, _, _, flag, body_length = _PREFIX.unpack_from(data, at)
        body_at, end = at + _PREFIX.size, at + total_size
        properties_at = body_at + body_length + _LENGTH_SIZE
        if total_size > left or body_length < 0 or properties_at > end:
            yield Flaw("CL-LEN", f"message of {total_size} bytes in a batch with {left} left", at, left)
            return
        (properties_length,) = layouts.SHORT.unpack_from(data, properties_at - _LENGTH_SIZE)
        if properties_length < 0 or properties_at + properties_length != end:
            yield Flaw(
                "CL-LEN", f"the lengths in a message of a batch do not add up to its size {total_size}", at, left
            )
            return
        yield BatchItem(flag, bytes(data[body_at : properties_at - _LENGTH_SIZE]), bytes(data[properties_at:end]))
        at = end


def encode_batch(items: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """Return the body of a batch, of items or equal tuples.

    Magic and checksum of each message are 0: a broker computes them as it stores it.
    """
    prefix, length = _PREFIX.packer.pack, layouts.SHORT.packer.pack
    fixed = _PREFIX.size + _LENGTH_SIZE
    parts: list[bytes] = []
    try:
        for flag, body, raw_properties in items:
            size = len(body)
            parts += prefix(fixed + size + len(raw_properties), 0, 0, flag, size), body
            parts += length(len(raw_properties)), raw_properties
    except struct.error as error:
        raise LayoutError(f"message of a batch: {error}") from None
    return b"".join(parts)
