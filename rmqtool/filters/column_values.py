"""One column of texts, read as the filters need it: missing, found, equal, distinct, or as numbers.

Whatever has no plain form (a number with a suffix, bytes that are no UTF-8) is handed to the functions that read one
text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rmqtool.filters.expressions import Kind
from rmqtool.formats.java import INT_MAX, INT_MIN, decode_text, parse_double, parse_int, parse_long

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Mask: TypeAlias = npt.NDArray[np.bool_]
    Keys: TypeAlias = npt.NDArray[np.int64]

_PLAIN_INTEGER = r"^-?[0-9]{1,18}$"
_PLAIN_DOUBLE = r"^-?[0-9]+(?:\.[0-9]+)?$"
_LOW_BITS = 0x7FFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Numbers:
    """Texts as numbers: ``keys`` are ordered as Java orders the numbers; where ``failed``, the conversion throws."""

    keys: Keys
    failed: Mask


class TextColumn:
    """An Arrow array of large binaries in UTF-8."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.missing = _mask(array.is_null())
        self._numbers: dict[Kind, Numbers] = {}

    def is_in(self, texts: frozenset[str]) -> Mask:
        """Return where the text is one of ``texts``."""
        import pyarrow as pa
        import pyarrow.compute as pc

        return _mask(pc.is_in(self._array, value_set=pa.array(map(_bytes, texts), pa.large_binary())))

    def has(self, how: str, text: str) -> Mask:
        """Return where the texts contain, start with or end with ``text``, as the keyword ``how`` says."""
        import pyarrow.compute as pc

        find = {"CONTAINS": pc.match_substring, "STARTSWITH": pc.starts_with, "ENDSWITH": pc.ends_with}[how]
        return _mask(find(self._array, pattern=_bytes(text)).fill_null(False))

    def equals(self, other: TextColumn) -> Mask:
        """Return where both columns have the same text."""
        import pyarrow.compute as pc

        return _mask(pc.equal(self._array, other._array).fill_null(False))

    def distinct(self) -> tuple[list[str | None], npt.NDArray[np.integer[Any]]]:
        """Return the distinct values and for each row the place of its value among them."""
        encoded = self._array.dictionary_encode()
        values: list[str | None] = [_text(value) for value in encoded.dictionary.to_pylist()]
        places = encoded.indices
        if places.null_count:
            places = places.fill_null(len(values))
            values.append(None)
        return values, places.to_numpy()

    def numbers(self, kind: Kind) -> Numbers:
        """Return the texts as numbers of ``kind``."""
        if kind not in self._numbers:
            self._numbers[kind] = self._read_doubles() if kind is Kind.DOUBLE else self._read_integers(kind)
        return self._numbers[kind]

    def _read_integers(self, kind: Kind) -> Numbers:
        values, odd = self._plain(_PLAIN_INTEGER, "int64")
        failed = (values < INT_MIN) | (values > INT_MAX) if kind is Kind.INT else odd & False
        self._read_odd(odd, parse_int if kind is Kind.INT else parse_long, values, failed)
        return Numbers(values, failed)

    def _read_doubles(self) -> Numbers:
        values, odd = self._plain(_PLAIN_DOUBLE, "float64")
        failed = odd & False
        self._read_odd(odd, parse_double, values, failed)
        return Numbers(double_keys(values), failed)

    def _plain(self, pattern: str, type_name: str) -> tuple[npt.NDArray[Any], Mask]:
        """Return the numbers of the texts that match ``pattern``, and where there is a text that does not."""
        import pyarrow as pa
        import pyarrow.compute as pc

        plain = pc.match_substring_regex(self._array, pattern=pattern).fill_null(False)
        texts = pc.if_else(plain, self._array, pa.scalar(None, pa.large_binary())).cast(pa.large_string())
        values = texts.cast(type_name).fill_null(0).to_numpy(zero_copy_only=False).copy()
        return values, ~_mask(plain) & ~self.missing

    def _read_odd(
        self, odd: Mask, parse: Callable[[str], float | None], values: npt.NDArray[Any], failed: Mask
    ) -> None:
        rows = odd.nonzero()[0]
        for row, text in zip(rows.tolist(), self._array.take(rows).to_pylist(), strict=True):
            value = parse(_text(text))
            if value is None:
                failed[row] = True
            else:
                values[row] = value


def double_keys(values: npt.NDArray[np.float64]) -> Keys:
    """Return integers that are ordered as ``Double.compareTo`` orders ``values``: −0.0 below 0.0, NaN above all."""
    import numpy as np

    bits = values.view(np.int64)  # parse_double knows one NaN only, and its bits are positive
    keys: Keys = bits ^ ((bits >> 63) & np.int64(_LOW_BITS))
    return keys


def text_column(column: Any, rows: int) -> TextColumn:
    """Return ``column`` (see :class:`~rmqtool.filters.columns.PropertyColumns`) as the text that Java makes of it."""
    import numpy as np
    import pyarrow as pa

    if column is None:
        return TextColumn(pa.nulls(rows, pa.large_binary()))
    if isinstance(column, np.ndarray):
        values = [_bytes(value) if isinstance(value, str) else _repaired(value) for value in column.tolist()]
        return TextColumn(pa.array(values, pa.large_binary()))
    array = column.cast(pa.large_binary())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        try:
            array.cast(pa.large_string())
        except pa.ArrowInvalid:
            array = pa.array(map(_repaired, array.to_pylist()), pa.large_binary())
    return TextColumn(array)


def _repaired(data: bytes | None) -> bytes | None:
    return None if data is None else _bytes(decode_text(data))


def _bytes(text: str) -> bytes:
    # A text that was typed may have lone surrogates. It equals none that came from bytes, and must not stop the search.
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _mask(found: Any) -> Mask:
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask
