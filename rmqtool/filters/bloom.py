"""The bit maps of queue extension units: which groups' SQL filters matched a message when it was dispatched.

A bit map may say yes for no, never no for yes; the properties decide. Upstream: ``BloomFilter``, ``BitsArray``,
``CommitLogDispatcherCalcBitMap``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqtool.formats.java import encode_text, int32

# What upstream's defaults give: 32 groups, one false yes in five.
HASHES = 3
BITS = 112

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BLOCK = 16


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


def murmur_low64(data: bytes) -> int:
    """Return the low 64 bits of the hash of ``data``, unsigned."""
    low = high = 0
    whole = len(data) - len(data) % _BLOCK
    for at in range(0, whole, _BLOCK):
        first, second = _words(data[at : at + _BLOCK])
        low ^= _stir_low(first)
        low = ((_rotate(low, 27) + high) * 5 + 0x52DCE729) & _MASK
        high ^= _stir_high(second)
        high = ((_rotate(high, 31) + low) * 5 + 0x38495AB5) & _MASK
    # Words of zeros stir to zero: a tail that was filled up is a tail that ends early.
    first, second = _words(data[whole:].ljust(_BLOCK, b"\0"))
    low = low ^ _stir_low(first) ^ len(data)
    high = high ^ _stir_high(second) ^ len(data)
    low = (low + high) & _MASK
    high = (high + low) & _MASK
    return (_finish(low) + _finish(high)) & _MASK


def _words(block: bytes) -> tuple[int, int]:
    """Return a block as two 64-bit words, little-endian."""
    return int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")


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
