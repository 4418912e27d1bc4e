"""Many short pieces of one buffer, taken at once: all columns are made from them.

A view with stride 1 whose items overlap turns "w bytes at each of these offsets" into one plain indexing. Such a view
is only indexed with brackets: ``take`` would copy all of it, many times the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from rmqtool.formats.layout import Buffer

# The arrays that all columns are made of: bytes, 64-bit numbers, truth values.
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# A matrix of windows of about this many bytes stays in the caches. The cost of larger ones is mostly page faults.
WINDOW_BYTES = 2 << 20
# Shorter pieces share windows of this width: more groups would cost more time than the bytes saved.
_SMALLEST_WINDOW = 32
# Bytes that are compared at once: they and the mask stay in the caches.
_BLOCK = 1 << 16


def as_bytes(data: Buffer | Bytes) -> Bytes:
    """Return ``data`` as an array of bytes, without a copy."""
    return data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)


def gather(data: Bytes, file_offsets: Ints, width: int) -> Bytes:
    """Return the ``width`` bytes at each offset as the rows of a matrix, with zeros past the end of ``data``."""
    last = len(data) - width
    if len(file_offsets) and int(file_offsets.max()) <= last:
        return _gather_inside(data, file_offsets, width)
    rows = np.zeros((len(file_offsets), width), np.uint8)
    inside = file_offsets <= last
    if inside.any():
        rows[inside] = _gather_inside(data, file_offsets[inside], width)
    beyond = ~inside
    # Windows that reach past the end are taken from a copy of the last bytes with zeros after them.
    tail_at = max(last, 0)
    tail = np.zeros(2 * width, np.uint8)
    tail[: len(data) - tail_at] = data[tail_at:]
    rows[beyond] = _gather_inside(tail, np.minimum(file_offsets[beyond] - tail_at, width), width)
    return rows


def windows(data: Bytes, width: int) -> npt.NDArray[np.void]:
    """Return the ``width`` bytes at every offset of ``data``, overlapping and uncopied; index it with brackets only.

    ``data`` has ``width`` bytes or more.
    """
    view: npt.NDArray[np.void] = np.ndarray((len(data) - width + 1,), f"V{width}", data, 0, (1,))
    return view


def _gather_inside(data: Bytes, file_offsets: Ints, width: int) -> Bytes:
    return windows(data, width)[file_offsets].view(np.uint8).reshape(-1, width)


def find_bytes(values: Bytes, wanted: Callable[[Bytes], Mask]) -> Ints:
    """Return the offsets of the bytes that ``wanted`` accepts; it is called with one block after the other."""
    found = []
    for at in range(0, len(values), _BLOCK):
        mask = wanted(values[at : at + _BLOCK])
        if mask.any():  # faster than flatnonzero for the most frequent answer, nothing
            found.append(np.flatnonzero(mask) + at)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def rows_with(positions: Ints, bounds: Ints) -> Mask:
    """Return which rows contain one of the sorted ``positions``; row i is from ``bounds[i]`` to ``bounds[i + 1]``."""
    found: Mask = np.diff(np.searchsorted(positions, bounds)) > 0
    return found


def iter_window_groups(lengths: Ints) -> Iterator[tuple[Ints, int]]:
    """Yield (rows, window width) such that each row's piece fits its window and no matrix of windows is large.

    Pieces of similar length share a width, a power of two, so that one very long piece does not widen the windows of
    all others.
    """
    if not len(lengths):
        return
    # The exponent of the smallest power of two that a piece fits.
    classes = np.frexp(np.maximum(lengths - 1, _SMALLEST_WINDOW - 1).astype(np.float64))[1]
    for exponent in range(int(classes.min()), int(classes.max()) + 1):
        rows = np.flatnonzero(classes == exponent)
        width = 1 << exponent
        step = max(WINDOW_BYTES // width, 1)
        for at in range(0, len(rows), step):
            yield rows[at : at + step], width
