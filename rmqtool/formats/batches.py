"""Batches: several messages in one body. Big-endian.

A producer sends a batch as one request. A broker splits it into records, or stores it whole as an *inner batch*, one
record. The messages are back to back::

    0   4  size of this message   12  4  flag of the producer   20+B  2  length of the properties
    4   4  0                      16  4  length B of the body   22+B  .  properties
    8   4  0                      20  B  body

Upstream: ``MessageDecoder.encodeMessage`` / ``decodeMessage``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer

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


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Return the body of a batch. Magic and checksum of each message are 0: a broker computes them as it stores it."""
    parts = []
    for item in items:
        size = _PREFIX.size + len(item.body) + _LENGTH_SIZE + len(item.raw_properties)
        parts += [_PREFIX.pack(size, 0, 0, item.flag, len(item.body)), item.body]
        parts += [layouts.SHORT.pack(len(item.raw_properties)), item.raw_properties]
    return b"".join(parts)
