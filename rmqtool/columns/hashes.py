"""Java's ``String.hashCode`` of many pieces of a text, without a loop over them.

A hash is the sum of each unit times a power of 31, the last unit times 31**0, modulo 2**32. There 31 has an inverse. So
unit i is multiplied by the inverse to the power of i + 1, which is the same for pieces of all lengths, and the sum by
31**length at the end.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.gather import WINDOW_BYTES, Bytes, Ints, find_bytes, gather, iter_window_groups
from rmqtool.formats.java import decode_text, string_hash, string_length

Hash = npt.NDArray[np.uint32]

# Java multiplies the hash so far by 31 for each unit, and overflows at 2**32.
_FACTOR = 31
_MODULUS = 1 << 32
_ASCII = 0x7F
# Up to this width the masks of all lengths are a small table, and a lookup in it is faster than comparing.
_MOST_TABLED = 256
_INVERSE = pow(_FACTOR, -1, _MODULUS)


def _powers(base: int, count: int) -> Hash:
    """Return ``base ** 0`` up to ``base ** (count - 1)``, modulo 2**32."""
    factors = np.full(count, base, np.uint32)
    factors[:1] = 1
    found: Hash = np.cumprod(factors, dtype=np.uint32)
    return found


class Hashes(NamedTuple):
    """Java's ``hashCode`` of many texts (as unsigned), and their lengths in UTF-16 units."""

    hashes: Hash
    lengths: Ints

    def behind(self, prefix_hashes: Hash) -> Hash:
        """Return the hashes of ``prefix + text`` for each text; only the hash of each prefix is needed."""
        powers = _powers(_FACTOR, int(self.lengths.max(initial=0)) + 1)
        found: Hash = prefix_hashes * powers[self.lengths] + self.hashes
        return found


def java_hashes(text: Bytes, offsets: Ints, lengths: Ints) -> Hashes:
    """Return ``String.hashCode`` of the pieces of ``text``, which is UTF-8, at some offsets; ``lengths`` are in bytes.

    Malformed bytes count as Java decodes them.
    """
    longest = int(lengths.max(initial=0))
    if 0 < longest == int(lengths.min()):
        hashes = _of_one_length(text, offsets, longest)
    else:
        hashes = _of_any_length(text, offsets, lengths)
    if text.max(initial=0) <= _ASCII:
        return Hashes(hashes, lengths)
    # Only ASCII bytes are UTF-16 units too. The few texts with other bytes are hashed one by one.
    wide = find_bytes(text, lambda some: some > _ASCII)
    lengths = lengths.copy()
    ends = offsets + lengths
    for row in np.flatnonzero(np.searchsorted(wide, offsets) < np.searchsorted(wide, ends)).tolist():
        piece = decode_text(text[int(offsets[row]) : int(ends[row])].tobytes())
        hashes[row] = string_hash(piece) & (_MODULUS - 1)
        lengths[row] = string_length(piece)
    return Hashes(hashes, lengths)


def _of_one_length(text: Bytes, offsets: Ints, length: int) -> Hash:
    """Return the hashes of pieces of one length: powers counted from the end, as Java defines them."""
    hashes = np.empty(len(offsets), np.uint32)
    powers = _powers(_FACTOR, length)[::-1].copy()
    step = max(WINDOW_BYTES // max(length, 1), 1)
    for at in range(0, len(offsets), step):
        units = gather(text, offsets[at : at + step], length)
        np.einsum("ij,j->i", units.astype(np.uint32), powers, out=hashes[at : at + step])
    return hashes


def _of_any_length(text: Bytes, offsets: Ints, lengths: Ints) -> Hash:
    """Return the hashes of pieces of any length: powers of the inverse counted from the beginning."""
    hashes = np.zeros(len(lengths), np.uint32)
    for rows, width in iter_window_groups(lengths):
        units = gather(text, offsets[rows], width)
        units *= _inside(lengths[rows], width)
        sums = np.einsum("ij,j->i", units.astype(np.uint32), _powers(_INVERSE, width + 1)[1:])
        hashes[rows] = sums * _powers(_FACTOR, width + 1)[lengths[rows]]
    return hashes


def _inside(lengths: Ints, width: int) -> Bytes:
    """Return which of ``width`` units belong to a piece of each length, as ones and zeros."""
    if width > _MOST_TABLED:
        return (np.arange(width, dtype=np.int32) < lengths.astype(np.int32)[:, None]).view(np.uint8)
    return gather(_tabled(width), lengths * width, width)


@cache
def _tabled(width: int) -> Bytes:
    """Return the rows of ``_inside`` for the lengths from 0 to ``width``, one after the other."""
    return (np.arange(width) < np.arange(width + 1)[:, None]).view(np.uint8).reshape(-1)
