"""CRC-32 of many pieces of a buffer, with one call for each piece.

It cannot be combined from the checksums of other pieces: a record keeps only 31 of its 32 bits. A call over a hundred
bytes takes a third of the time that Python needs to cut them out. So short pieces are cut out in blocks, as objects
made at C speed, and the calls are a ``map`` over those. Long pieces are views, made one at a time: a list of thousands
of views would start the garbage collector again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqtool.columns.compiled import checksums
from rmqtool.columns.gather import Bytes, Ints, windows
from rmqtool.columns.pieces import pieces
from rmqtool.formats.java import fastest_crc32

Crc32 = Callable[[Any], int]

# Pieces that are cut out at once: few enough to stay in the caches.
_BLOCK = 1024
# From a mean length of ``_LONG`` bytes on, a view costs less than a copy. Copies of pieces of one length are cheaper:
# for these the limit is ``_LONG_ALIKE``.
_LONG, _LONG_ALIKE = 512, 1536

# Chosen once, when the module is loaded: the kernel's function or zlib's.
CRC32 = fastest_crc32()


def crc32_each(data: Bytes, offsets: Ints, lengths: Ints, crc32: Crc32 | None = None) -> npt.NDArray[np.uint32]:
    """Return the CRC-32 (32 bits) of the piece of ``data`` at each offset, in the order of ``offsets``.

    All are computed in one call of the kernel if there is one, unless ``crc32`` says which function to use.
    """
    if crc32 is None and (computed := checksums(data, offsets, lengths)) is not None:
        return computed
    found = np.empty(len(offsets), np.uint32)
    of = crc32 or CRC32
    for at in range(0, len(offsets), _BLOCK):
        block = slice(at, at + _BLOCK)
        parts = _cut_out(data, offsets[block], lengths[block])
        found[block] = np.fromiter(map(of, parts), np.uint32)
    return found


def _cut_out(data: Bytes, offsets: Ints, lengths: Ints) -> Iterable[Any]:
    """Return the bytes of each piece as the kind of object that is cheapest for these lengths."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    if 0 < shortest == longest < _LONG_ALIKE:
        whole: list[bytes] = windows(data, longest)[offsets].tolist()
        return whole
    if int(lengths.sum()) >= _LONG * len(lengths):
        view = data.data
        pairs = zip(offsets.tolist(), (offsets + lengths).tolist(), strict=True)
        return (view[begin:end] for begin, end in pairs)
    found: npt.NDArray[np.object_] = pieces(data, offsets, lengths).to_numpy(zero_copy_only=False)
    return found
