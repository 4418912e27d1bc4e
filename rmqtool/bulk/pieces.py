"""Many pieces of a buffer as one Arrow column: bytes, text by Java's rules, dictionaries, hashes.

Arrow wants the values of a column back to back. So the buffer itself is dressed as a column whose values are, in
turn, a wanted piece and what lies up to the next; taking every other value copies the wanted ones at C speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqtool.bulk.gather import Bytes, Ints, Mask, iter_window_groups, windows
from rmqtool.formats.java import decode_text, string_hash, string_length


def pieces(data: Bytes, file_offsets: Ints, lengths: Ints, present: Mask | None = None) -> pa.LargeBinaryArray:
    """Return the piece of ``data`` at each offset as a column; null where it is not ``present``."""
    count = len(file_offsets)
    offsets = np.empty(2 * count + 1, np.int64)
    offsets[:-1:2] = file_offsets
    offsets[1::2] = file_offsets + lengths
    # Arrow only looks at the values it takes, in whatever order they lie. But it reserves room by the span of the
    # first offset and the last one, which ends a value that is never taken: so that tells what will be needed.
    offsets[-1] = min(int(offsets[0]) + 2 * int(lengths.sum()), len(data)) if count else 0
    dressed = pa.Array.from_buffers(pa.large_binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * count, 2)
    return dressed.take(pa.array(wanted, mask=None if present is None else ~present))


def values_of(column: pa.LargeBinaryArray) -> tuple[Bytes, Ints]:
    """Return the bytes of a column back to back, and where each value begins in them (one more: the end)."""
    if not len(column):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, offsets_buffer, values_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64, len(column) + 1, column.offset * np.dtype(np.int64).itemsize)
    values = np.frombuffer(values_buffer, np.uint8) if values_buffer is not None else np.empty(0, np.uint8)
    return values[: offsets[-1]], offsets


def as_text(column: pa.LargeBinaryArray) -> pa.LargeStringArray:
    """Return a column as text: malformed UTF-8 becomes U+FFFD by Java's rule."""
    try:
        return column.cast(pa.large_utf8())
    except pa.ArrowInvalid:
        texts = [None if value is None else decode_text(value) for value in column.to_pylist()]
        return pa.array(texts, pa.large_utf8())


class Coded(NamedTuple):
    """A column of repeated values: each row's number, and what the numbers stand for."""

    codes: npt.NDArray[np.int32]
    values: list[Any]

    def each(self, function: Callable[[Any], Any], dtype: Any) -> Any:
        """Return ``function`` of every row's value, called once for each distinct one."""
        return np.array([function(value) for value in self.values], dtype)[self.codes]


def coded(column: pa.Array) -> Coded:
    """Return a column without nulls as numbers of its distinct values, in the order of their first appearance."""
    encoded = column.dictionary_encode()
    return Coded(encoded.indices.to_numpy(), encoded.dictionary.to_pylist())


def coded_texts(data: Bytes, file_offsets: Ints, lengths: Ints) -> Coded:
    """Return the texts at some offsets as numbers of the distinct ones, by Java's rule for malformed UTF-8."""
    raw = coded(pieces(data, file_offsets, lengths))
    texts = [decode_text(value) for value in raw.values]
    distinct = list(dict.fromkeys(texts))
    if len(distinct) == len(texts):
        return Coded(raw.codes, texts)
    number = {text: code for code, text in enumerate(distinct)}
    return Coded(raw.each(lambda value: number[decode_text(value)], np.int32), distinct)


class Hashes(NamedTuple):
    """Java's ``hashCode`` of many texts (as unsigned), and their lengths in UTF-16 units."""

    hashes: npt.NDArray[np.uint32]
    lengths: Ints

    def behind(self, prefix_hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the hashes of the texts with another before each, of which the hash is given."""
        most = int(self.lengths.max(initial=0))
        powers = np.cumprod(np.concatenate((np.ones(1, np.uint32), np.full(most, 31, np.uint32))), dtype=np.uint32)
        return prefix_hashes * powers[self.lengths] + self.hashes


def java_hashes(column: pa.LargeBinaryArray) -> Hashes:
    """Return ``String.hashCode`` of every value of a column of UTF-8 texts."""
    values, offsets = values_of(column)
    lengths = np.diff(offsets)
    hashes = np.zeros(len(lengths), np.uint32)
    for rows, _ in iter_window_groups(lengths):
        hashes[rows] = _hash_ascii(values, offsets[rows + 1], lengths[rows])
    if (values & 0x80).any():
        other = np.flatnonzero(np.logical_or.reduceat(np.append(values, 0) > 0x7F, offsets[:-1]) & (lengths > 0))
        lengths = lengths.copy()
        for row in other.tolist():
            text = decode_text(values[offsets[row] : offsets[row + 1]].tobytes())
            hashes[row] = string_hash(text) & 0xFFFFFFFF
            lengths[row] = string_length(text)
    return Hashes(hashes, lengths)


def _hash_ascii(values: Bytes, ends: Ints, lengths: Ints) -> npt.NDArray[np.uint32]:
    """Return the hashes by Horner's rule, column by column of windows that end where the values end.

    What a window holds before its value is made zero, and leading zeros leave the hash at zero.
    """
    width = int(lengths.max(initial=0))
    if not width:
        return np.zeros(len(lengths), np.uint32)
    padded = np.concatenate((np.zeros(width, np.uint8), values))
    matrix = windows(padded, width)[ends].view(np.uint8).reshape(-1, width)
    matrix[np.arange(width) < (width - lengths)[:, None]] = 0
    hashes = np.zeros(len(lengths), np.uint32)
    for units in matrix.T:
        hashes *= np.uint32(31)
        hashes += units
    return hashes
