"""Bit maps in the extension of a queue: the groups whose SQL filters accepted a message when it was dispatched.

A bit map is a Bloom filter of 112 bits: it can wrongly say yes, but never wrongly no. After a yes the broker
evaluates the filter on the properties. The bits of a group come from the low half of the 128-bit MurmurHash3, seed 0,
of ``group#topic``.

Upstream: ``BloomFilter``, ``BitsArray``, ``CommitLogDispatcherCalcBitMap``, and Guava's
``Hashing.murmur3_128().hashString(text, UTF_8).asLong()``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from rmqtool.formats.java import encode_text, int32

# Upstream computes both from its defaults: 32 groups, and 20 % of wrong yes answers.
HASHES = 3
BITS = 112


def bit_positions(group: str, topic: str, *, hashes: int = HASHES, bits: int = BITS) -> tuple[int, ...]:
    """Return the bits of ``group``'s filter on ``topic``, in upstream's order. A bit can occur twice."""
    hashed = murmur_low64(encode_text(f"{group}#{topic}"))
    # Guava makes all hashes from the two halves of one. A negative one becomes a position by flipping all its bits.
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
    """Return False if the bit map proves that the filter with these ``positions`` does not match.

    Then it need not be evaluated. Else return True: it may match. ``bits`` is the size of a bit map; one of another
    size proves nothing.
    """
    if len(bit_map) * 8 != bits:
        return True
    return all(bit_map[position // 8] >> position % 8 & 1 for position in positions)


# Python's numbers do not overflow, so each step is cut to 64 bits.
_MASK = (1 << 64) - 1
# The multipliers of MurmurHash3_x64_128.
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BLOCK = struct.Struct("<QQ")


def murmur_low64(data: bytes) -> int:
    """Return the low 64 bits of MurmurHash3_x64_128 of ``data`` with seed 0, unsigned."""
    low = high = 0
    whole = len(data) - len(data) % _BLOCK.size
    for first, second in _BLOCK.iter_unpack(data[:whole]):
        low ^= _stir_low(first)
        low = ((_rotate(low, 27) + high) * 5 + 0x52DCE729) & _MASK
        high ^= _stir_high(second)
        high = ((_rotate(high, 31) + low) * 5 + 0x38495AB5) & _MASK
    # The last bytes are padded with zeros to a block. The padding changes nothing: a word of zeros is stirred to 0.
    first, second = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    low = low ^ _stir_low(first) ^ len(data)
    high = high ^ _stir_high(second) ^ len(data)
    low = (low + high) & _MASK
    high = (high + low) & _MASK
    return (_finish(low) + _finish(high)) & _MASK


def _stir_low(word: int) -> int:
    return _rotate(word * _C1 & _MASK, 31) * _C2 & _MASK


def _stir_high(word: int) -> int:
    return _rotate(word * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK


def _finish(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return word ^ word >> 33
