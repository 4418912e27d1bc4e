"""The low half of the 128-bit MurmurHash3 with seed 0, which the bit maps of queue extensions are made with.

Upstream: Guava's ``Hashing.murmur3_128().hashString(text, UTF_8).asLong()``.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
# The multipliers of MurmurHash3_x64_128.
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BLOCK = struct.Struct("<QQ")


def murmur_low64(data: bytes) -> int:
    """Return the low 64 bits of the hash of ``data``, unsigned."""
    low = high = 0
    whole = len(data) - len(data) % _BLOCK.size
    for first, second in _BLOCK.iter_unpack(data[:whole]):
        low ^= _stir_low(first)
        low = ((_rotate(low, 27) + high) * 5 + 0x52DCE729) & _MASK
        high ^= _stir_high(second)
        high = ((_rotate(high, 31) + low) * 5 + 0x38495AB5) & _MASK
    # A word of zeros changes nothing, so a short tail can be filled up with zeros.
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
