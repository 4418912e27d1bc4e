"""Properties of many records, without a loop over messages.

Named ones are columns, all of them are a map column.

All property blocks are copied back to back, each closed by 0x02; then every 0x02 of the copy ends a piece, and the
first 0x01 of a piece is between name and value. The rules of ``formats.properties`` decide which pieces are properties.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from rmqtool.columns.compiled import PropertyColumns, Texts, property_columns
from rmqtool.columns.gather import Bytes, Ints, Mask, find_bytes, gather, windows
from rmqtool.columns.pieces import Coded, as_text, coded_texts, pieces, values_of
from rmqtool.columns.records import Records
from rmqtool.formats.java import encode_text
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import KEYS, TAGS, UNIQ_KEY

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    from rmqtool.columns.arrow import pa, pc

SEPARATE = (TAGS, KEYS, UNIQ_KEY)
"""The properties for which messages as tables have columns."""

_NAME_VALUE = ord(NAME_VALUE_SEPARATOR)
_PIECE_END = ord(PROPERTY_SEPARATOR)
_REPLACEMENT = "\ufffd"
# Bytes of a name that are compared at once, as a number.
_HEAD = 8
# Bytes that are searched at once: they and the mask stay in the caches.
_BLOCK = 1 << 16
# If a record has more properties, they are not compared with each other: they may repeat a name.
_MOST_COMPARED = 16
# Masks for heads of names of 0, 1, ... 8 bytes: the bytes after a shorter name are not its own.
_HEAD_MASKS = np.frombuffer(b"".join((b"\xff" * length).ljust(_HEAD, b"\0") for length in range(_HEAD + 1)), np.uint64)


class Found(NamedTuple):
    """One property of every record: the place of its value in ``Properties.text``; length 0 if it is absent."""

    offsets: Ints
    lengths: Ints

    @property
    def present(self) -> Mask:
        """Which records have the property; its value is never empty."""
        return self.lengths > 0


class Pairs(NamedTuple):
    """The properties of records: pair i belongs to record ``rows[i]``, in the order they are stored."""

    text: Bytes
    rows: Ints
    name_offsets: Ints
    name_lengths: Ints
    value_offsets: Ints
    value_lengths: Ints


class Properties:
    """The properties of ``count`` records, decoded at the first use."""

    def __init__(self, records: Records) -> None:
        self.count = len(records)
        self._records = records

    @cached_property
    def pairs(self) -> Pairs:
        """All properties of all records, in the order of the records."""
        return _decode_pairs(self._records)

    @property
    def text(self) -> Bytes:
        """All property blocks back to back; the offsets of names and values are in it."""
        return self.pairs.text

    @property
    def rows(self) -> Ints:
        """The row of each pair's record."""
        return self.pairs.rows

    @property
    def name_offsets(self) -> Ints:
        """The offset of each pair's name in ``text``."""
        return self.pairs.name_offsets

    @property
    def name_lengths(self) -> Ints:
        """The length of each pair's name in bytes."""
        return self.pairs.name_lengths

    @property
    def value_offsets(self) -> Ints:
        """The offset of each pair's value in ``text``."""
        return self.pairs.value_offsets

    @property
    def value_lengths(self) -> Ints:
        """The length of each pair's value in bytes; never 0."""
        return self.pairs.value_lengths

    def find(self, name: str) -> Found:
        """Return the property called ``name``; the last one of a record that has it twice."""
        pairs = self._pairs_called(name)
        found = Found(np.zeros(self.count, np.int64), np.zeros(self.count, np.int64))
        # numpy assigns in order, so the last pair of a row wins.
        found.offsets[self.rows[pairs]] = self.value_offsets[pairs]
        found.lengths[self.rows[pairs]] = self.value_lengths[pairs]
        return found

    def _pairs_called(self, name: str) -> Ints:
        """Return the numbers of the pairs with this name, in the order of the records."""
        # Malformed bytes decode to this character too, so the decoded names are compared.
        if _REPLACEMENT in name:
            codes = self.names()
            return np.flatnonzero(codes.each(lambda text: text == name, np.bool_)).astype(np.int64)
        raw = encode_text(name)
        head = np.frombuffer(raw[:_HEAD].ljust(_HEAD, b"\0"), np.uint64)
        alike = np.flatnonzero(self._name_heads == head)
        as_long = self.name_lengths[alike] == len(raw)
        alike = alike if as_long.all() else alike[as_long]
        if len(raw) <= _HEAD or not len(alike):
            return alike
        stored = windows(self.text, len(raw))[self.name_offsets[alike]].view(np.uint8).reshape(len(alike), -1)
        same: Ints = alike[(stored == np.frombuffer(raw, np.uint8)).all(axis=1)]
        return same

    @cached_property
    def _name_heads(self) -> npt.NDArray[np.uint64]:
        """The first bytes of each name as a number: comparing those is faster than comparing bytes."""
        heads = gather(self.text, self.name_offsets, _HEAD).view(np.uint64).reshape(-1)
        heads &= _HEAD_MASKS[np.minimum(self.name_lengths, _HEAD)]
        return heads

    def raw_values(self, name: str) -> pa.LargeBinaryArray:
        """Return the stored bytes of the property called ``name`` as a column, null where it is absent."""
        found = self.find(name)
        return pieces(self.text, found.offsets, found.lengths, found.present)

    def values(self, name: str) -> pa.LargeStringArray:
        """Return the property called ``name`` as a column of text, null where it is absent."""
        return as_text(self.raw_values(name))

    def names(self) -> Coded:
        """Return the names of all pairs, as numbers of the distinct ones."""
        return coded_texts(self.text, self.name_offsets, self.name_lengths)

    @cached_property
    def _columns(self) -> PropertyColumns | None:
        """All properties as columns of texts, and those of ``SEPARATE``; None where the kernel declines them."""
        records = self._records
        names = [name.encode("ascii") for name in SEPARATE]
        return property_columns(records.data, records.properties_offsets, records.properties_lengths, names)

    def texts(self, name: str) -> pa.StringArray:
        """Return a property of ``SEPARATE`` as a column of text, null where it is absent."""
        if self._columns is None:
            return self.values(name).cast(pa.utf8())
        found = self._columns.wanted[SEPARATE.index(name)]
        return _text_column(found, found.ends[1:] > found.ends[:-1])

    def maps(self) -> pa.MapArray:
        """Return the properties of each record as a column of maps from text to text.

        A name that occurs twice keeps its first place and takes its last value.
        """
        if self._columns is not None:
            found = self._columns
            keys, items = _text_column(found.names), _text_column(found.values)
            return pa.MapArray.from_arrays(pa.array(found.ends), keys, items)
        names, kept, values = self.distinct()
        counts = np.bincount(self.rows[kept], minlength=self.count)
        offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)))
        keys = pa.array(names.values, pa.utf8()).take(pa.array(names.codes[kept]))
        items = as_text(pieces(self.text, self.value_offsets[values], self.value_lengths[values]))
        return pa.MapArray.from_arrays(pa.array(offsets), keys, items.cast(pa.utf8()))

    def are_in_turn(self, are_special: Callable[[Bytes], Mask]) -> bool:
        """Return whether no byte is special except the two separators of each pair, and no piece was left out.

        ``are_special`` must accept both separators. So counting is enough: two special bytes for each pair.
        """
        blocks = (self.text[at : at + _BLOCK] for at in range(0, len(self.text), _BLOCK))
        return sum(int(np.count_nonzero(are_special(block))) for block in blocks) == 2 * len(self.rows)

    def may_repeat_names(self) -> bool:
        """Return False if no record has two properties of one name; True if one has, or may have."""
        if not len(self.rows):
            return False
        most = int(np.bincount(self.rows).max())
        # This number is equal for equal names, and rarely for different ones. Pairs of one record are neighbours:
        # compare those up to ``most`` places apart.
        alike = self._name_heads ^ self.name_lengths.view(np.uint64)
        return most > _MOST_COMPARED or any(
            bool(((alike[apart:] == alike[:-apart]) & (self.rows[apart:] == self.rows[:-apart])).any())
            for apart in range(1, most)
        )

    def distinct(self) -> tuple[Coded, Ints, Ints]:
        """Return the names of all pairs, the pairs that make the maps, and for each the pair that gives its value.

        The two differ where a name occurs twice in a record: it keeps its first place and takes its last value.
        """
        names = self.names()
        keys = self.rows * max(len(names.values), 1) + names.codes
        pairs = np.arange(len(keys))
        ordered = np.sort(keys)
        if not (ordered[1:] == ordered[:-1]).any():
            return names, pairs, pairs
        order = np.argsort(keys, kind="stable")
        first = np.append(True, keys[order][1:] != keys[order][:-1])
        last = np.append(first[1:], True)
        value_of = pairs.copy()
        value_of[order[first]] = order[last]
        kept = np.sort(order[first])
        return names, kept, value_of[kept]


def decode_properties(records: Records) -> Properties:
    """Return the properties of ``records``, to be decoded when they are used."""
    return Properties(records)


def _text_column(texts: Texts, present: Mask | None = None) -> pa.StringArray:
    """Return a column of texts as Arrow has it, without a copy; null where it is not ``present``."""
    buffers = [None, pa.py_buffer(texts.ends), pa.py_buffer(texts.text)]
    if present is not None:
        buffers[0] = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.utf8(), len(texts.ends) - 1, buffers)


def _decode_pairs(records: Records) -> Pairs:
    """Return the pieces that have a name and a value; all others are not properties."""
    text, ends = _closed_blocks(records)
    piece_ends, parts = _pieces_and_parts(text)
    begins = np.concatenate((np.zeros(1, np.int64), piece_ends[:-1] + 1))[: len(piece_ends)]
    rows = np.repeat(np.arange(len(records)), _counts(piece_ends, ends))
    columns = [rows, begins, parts - begins, parts + 1, piece_ends - parts - 1]
    good = (parts > begins) & (piece_ends > parts + 1)
    if not good.all():
        columns = [column[good] for column in columns]
    return Pairs(text, *columns)


def _counts(piece_ends: Ints, ends: Ints) -> Ints | int:
    """Return how many pieces each block has, one number if all have the same; ``ends`` are the ends of the blocks."""
    each, rest = divmod(len(piece_ends), max(len(ends), 1))
    if each and not rest and (piece_ends[each - 1 :: each] == ends - 1).all():
        return each  # most often all records have the same number
    return np.diff(np.searchsorted(piece_ends, ends), prepend=0)


def _closed_blocks(records: Records) -> tuple[Bytes, Ints]:
    """Return all property blocks back to back, and where each ends; 0x02 is added where a block has another end."""
    offsets, lengths = records.properties_offsets, records.properties_lengths
    blocks = pieces(records.data, offsets, lengths)
    last = records.data[offsets + lengths - 1]
    unclosed = (lengths > 0) & (last != _PIECE_END)
    if unclosed.any():
        endings = pa.array([b"", PROPERTY_SEPARATOR.encode()], pa.large_binary())
        closing = endings.take(pa.array(unclosed.astype(np.int8)))
        blocks = pc.binary_join_element_wise(blocks, closing, pa.scalar(b"", pa.large_binary()))
    text, bounds = values_of(blocks)
    return text, bounds[1:]


def _pieces_and_parts(text: Bytes) -> tuple[Ints, Ints]:
    """Return where each piece ends, and the first 0x01 at or after its beginning: in the piece, or past its end."""
    # One comparison for both separators: for smaller bytes the subtraction wraps around to a large number.
    separators = find_bytes(text, lambda some: (some - np.uint8(_NAME_VALUE)) <= _PIECE_END - _NAME_VALUE)
    is_end = text[separators] == _PIECE_END
    if not len(separators) % 2 and is_end[1::2].all() and not is_end[::2].any():
        return separators[1::2], separators[::2]
    ends, parts = separators[is_end], separators[~is_end]
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))[: len(ends)]
    return ends, np.append(parts, len(text))[np.searchsorted(parts, begins)]
