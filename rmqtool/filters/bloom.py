"""The bit maps of queue extension units: which groups' SQL filters matched a message when it was dispatched.

A bit map may say yes for no, never no for yes; the properties decide. Upstream: ``BloomFilter``, ``BitsArray``,
``CommitLogDispatcherCalcBitMap``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqtool.formats.java import encode_text, int32
from rmqtool.formats.murmur import murmur_low64

# What upstream's defaults give: 32 groups, one false yes in five.
HASHES = 3
BITS = 112


def bit_positions(group: str, topic: str, *, hashes: int = HASHES, bits: int = BITS) -> tuple[int, ...]:
    """Return the bits of ``group``'s filter on ``topic``, in upstream's order; some may coincide."""
    hashed = murmur_low64(encode_text(f"{group}#{topic}"))
    step = hashed >> 32
    combined = (int32(hashed + i * step) for i in range(1, hashes + 1))
    return tuple((~word if word < 0 else word) % bits for word in combined)


def make_bit_map(groups: Iterable[tuple[int, ...]], *, bits: int = BITS) -> bytes:
    """Return the bit map of a message that matched the filters of ``groups``, given by their positions."""
    made = bytearray(bits // 8)
    for positions in groups:
        for position in positions:
            made[position // 8] |= 1 << position % 8
    return bytes(made)


def may_match(bit_map: bytes, positions: tuple[int, ...], *, bits: int = BITS) -> bool:
    """Tell whether a broker goes on to look at the properties. It does when the length is not its own."""
    if len(bit_map) * 8 != bits:
        return True
    return all(bit_map[position // 8] >> position % 8 & 1 for position in positions)
