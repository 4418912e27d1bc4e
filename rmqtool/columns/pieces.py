"""Many pieces of a buffer as one Arrow column: bytes, text by Java's rules, dictionaries.

Arrow wants the values of a column back to back. So the buffer itself is presented as a column whose values are, in
turn, a wanted piece and the bytes up to the next one; taking every other value copies the wanted ones at C speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns import compiled
from rmqtool.columns.gather import Bytes, Ints, Mask
from rmqtool.formats.java import decode_text

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    from rmqtool.columns.arrow import pa, pc


def pieces(data: Bytes, file_offsets: Ints, lengths: Ints, present: Mask | None = None) -> pa.LargeBinaryArray:
    """Return the piece of ``data`` at each offset as a column; null where it is not ``present``."""
    count = len(file_offsets)
    offsets = np.empty(2 * count + 1, np.int64)
    offsets[:-1:2] = file_offsets
    offsets[1::2] = file_offsets + lengths
    # The values at even places are the pieces, those at odd places are between them and are never taken, so their
    # offsets may be in any order. Before it copies, Arrow reserves room for the taken share, one half, of the distance
    # from the first offset to the last. The last offset ends a value that is not taken: it is chosen such that half of
    # the distance is the sum of the lengths, and within the buffer, as Arrow demands.
    offsets[-1] = min(int(offsets[0]) + 2 * int(lengths.sum()), len(data)) if count else 0
    dressed = pa.Array.from_buffers(pa.large_binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    wanted = np.arange(0, 2 * count, 2)
    indices = as_numbers(wanted) if present is None else pa.array(wanted, mask=~present)
    return pc.take(dressed, indices, boundscheck=False)


def as_numbers(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Return numbers as a column, uncopied.

    Arrow's own conversion loads a part of numpy that is needed nowhere else.
    """
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def values_of(column: pa.LargeBinaryArray) -> tuple[Bytes, Ints]:
    """Return the bytes of a column back to back, and the offset of each value; one more offset is the end."""
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
    """A column of repeated values: the number of each row's value, and the value of each number."""

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
    """Return the texts at some offsets as numbers of the distinct ones; malformed UTF-8 is decoded as Java does."""
    return coded_names(*coded_bytes(data, file_offsets, lengths))


def coded_bytes(data: Bytes, file_offsets: Ints, lengths: Ints) -> Coded:
    """Return the pieces of ``data`` at some offsets as numbers of the distinct ones."""
    found = compiled.numbered(data, file_offsets, lengths)
    if found is None:
        return coded(pieces(data, file_offsets, lengths))
    codes, rows = found
    begins = file_offsets[rows].tolist()
    raw = [data[at : at + length].tobytes() for at, length in zip(begins, lengths[rows].tolist(), strict=True)]
    return Coded(codes, raw)


def coded_names(codes: npt.NDArray[np.int32], raw: list[bytes]) -> Coded:
    """Return a coded column of bytes as a coded column of text; malformed bytes that differ can become equal texts."""
    texts = [decode_text(value) for value in raw]
    distinct = list(dict.fromkeys(texts))
    if len(distinct) == len(texts):
        return Coded(codes, texts)
    number = {text: code for code, text in enumerate(distinct)}
    return Coded(Coded(codes, texts).each(lambda text: number[text], np.int32), distinct)
