"""Bit maps in the extension of a queue: the groups whose SQL filters accepted a message when it was dispatched.

A bit map is a Bloom filter: it can say yes wrongly, never no. After a yes the broker evaluates the filter on the
properties. Upstream: ``BloomFilter``, ``BitsArray``, ``CommitLogDispatcherCalcBitMap``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqtool.formats.java import encode_text, int32
from rmqtool.formats.murmur import murmur_low64

# Upstream computes these from its defaults: 32 groups, and a wrong yes in one of five cases.
HASHES = 3
BITS = 112


def bit_positions(group: str, topic: str, *, hashes: int = HASHES, bits: int = BITS) -> tuple[int, ...]:
    """Return the bits of ``group``'s filter on ``topic``, in upstream's order. Some can be the same."""
    hashed = murmur_low64(encode_text(f"{group}#{topic}"))
    step = hashed >> 32
    combined = (int32(hashed + i * step) for i in range(1, hashes + 1))
    return tuple((~word if word < 0 else word) % bits for word in combined)


def make_bit_map(groups: Iterable[tuple[int, ...]], *, bits: int = BITS) -> bytes:
    """Return the bit map of a message that the filters of ``groups`` accepted; a group is given by its bits."""
    made = bytearray(bits // 8)
    for positions in groups:
        for position in positions:
            made[position // 8] |= 1 << position % 8
    return bytes(made)


def may_match(bit_map: bytes, positions: tuple[int, ...], *, bits: int = BITS) -> bool:
    """Return whether a broker evaluates the filter itself.

    It does so too if the bit map does not have the expected length.
    """
    if len(bit_map) * 8 != bits:
        return True
    return all(bit_map[position // 8] >> position % 8 & 1 for position in positions)
