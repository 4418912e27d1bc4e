"""Client batches, which a broker splits into records, and inner batches, which it stores whole.

Upstream: ``MessageDecoder.encodeMessage`` / ``decodeMessage``. The messages stand back to back, each with a head of
its own.
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
    """One message of a batch."""

    flag: int
    body: bytes
    raw_properties: bytes


def iter_batch_items(data: Buffer) -> Iterator[BatchItem | Flaw]:
    """Yield the messages of a batch; a flaw is the last one."""
    at = 0
    while at < len(data):
        left = len(data) - at
        if left < _PREFIX.size + _LENGTH_SIZE:
            yield Flaw("CL-LEN", f"{left} bytes after the last message of a batch", at, left)
            return
        prefix = _PREFIX.decode(data, at)
        body_at = at + _PREFIX.size
        properties_at = body_at + prefix.body_length + _LENGTH_SIZE
        if prefix.total_size > left or prefix.body_length < 0 or properties_at > at + prefix.total_size:
            yield Flaw("CL-LEN", f"message of {prefix.total_size} bytes in a batch with {left} left", at, left)
            return
        (properties_length,) = layouts.SHORT.unpack_from(data, properties_at - _LENGTH_SIZE)
        if properties_length < 0 or properties_at + properties_length != at + prefix.total_size:
            yield Flaw(
                "CL-LEN", f"the lengths in a message of a batch do not add up to its size {prefix.total_size}", at, left
            )
            return
        body = bytes(data[body_at : body_at + prefix.body_length])
        yield BatchItem(prefix.flag, body, bytes(data[properties_at : properties_at + properties_length]))
        at += prefix.total_size


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """Return the body of a batch of ``items``."""
    parts = []
    for item in items:
        size = _PREFIX.size + len(item.body) + _LENGTH_SIZE + len(item.raw_properties)
        parts += [_PREFIX.pack(size, 0, 0, item.flag, len(item.body)), item.body]
        parts += [layouts.SHORT.pack(len(item.raw_properties)), item.raw_properties]
    return b"".join(parts)
