"""The values that dispatch takes from many property texts at once: number of index entries, and hashes of tags.

Also reads numbers at many places of a buffer as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmqtool.formats import layouts
from rmqtool.formats.codes import MAGIC_BYTES, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqtool.formats.java import decode_text, string_hash
from rmqtool.formats.layout import DTYPE_CODES, Layout
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import KEYS, TAGS, UNIQ_KEY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Octets = NDArray[np.uint8]
    Flags = NDArray[np.bool_]

_START = layouts.RECORD_START
_MAGIC = _START.field("magic")
# Places that are compared at once; their columns fit the caches of the CPU.
_BLOCK = 1 << 18


def gather(octets: Octets, at: Numbers, layout: Layout[Any]) -> Numbers:
    """Return the numbers at ``at``, for a layout with one field; all must be within the buffer."""
    return _gather(octets, at, layout.fields[0].kind)


def gather_field(octets: Octets, at: Numbers, layout: Layout[Any], name: str) -> Numbers:
    """Return one field of the records that begin at ``at``."""
    field = layout.field(name)
    return _gather(octets, at + field.offset, field.kind)


def cut_out(data: bytes, begins: Numbers, ends: Numbers) -> list[bytes]:
    """Return the bytes of each span; empty if it ends before it begins."""
    import numpy as np

    lengths = ends - begins
    length = int(lengths[0]) if len(lengths) else 0
    if length > 0 and (lengths == length).all():
        view: Any = np.ndarray((len(data) - length + 1,), f"V{length}", data, strides=(1,))
        found: list[bytes] = view[begins].tolist()
        return found
    return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def stand_at(octets: Octets, at: Numbers, wanted: bytes) -> Flags:
    """Return at which places the bytes ``wanted`` are. All places must have enough bytes after them."""
    import numpy as np

    if not wanted:
        return np.ones(len(at), dtype=bool)
    view: Any = np.ndarray((len(octets) - len(wanted) + 1,), f"V{len(wanted)}", octets, strides=(1,))
    same: Flags = view[at] == np.frombuffer(wanted, view.dtype)
    return same


def find_starts(octets: Octets) -> Numbers:
    """Return where a record could begin: the places with a message's magic number at the right distance."""
    import numpy as np

    first = MAGIC_BYTES[0][0]  # both magics have the same first byte
    found = [np.empty(0, np.int64)]
    for at in range(0, len(octets) - _START.size + 1, _BLOCK):
        end = min(at + _BLOCK, len(octets) - _START.size + 1)
        places = np.flatnonzero(octets[at + _MAGIC.offset : end + _MAGIC.offset] == first) + at
        magics = gather_field(octets, places, _START, _MAGIC.name)
        found.append(places[(magics == MESSAGE_MAGIC_V1) | (magics == MESSAGE_MAGIC_V2)])
    return np.concatenate(found)


def _gather(octets: Octets, at: Numbers, kind: str) -> Numbers:
    import numpy as np

    dtype = np.dtype(DTYPE_CODES[kind])
    view: Any = np.ndarray((len(octets) - dtype.itemsize + 1,), dtype, octets, strides=(1,))
    found: Numbers = view[at].astype(np.int64)
    return found


_PROPERTY = PROPERTY_SEPARATOR.encode()
_UNIQ_KEY, _KEYS, _TAGS = UNIQ_KEY.encode(), KEYS.encode(), TAGS.encode()
_SPACE = ord(" ")
# Bytes of a number.
_WORD = layouts.LONG.size
_NAME_END, _PROPERTY_END = ord(NAME_VALUE_SEPARATOR), ord(PROPERTY_SEPARATOR)
# The two marks are neighbours, so one comparison finds both.
_LOWEST, _BETWEEN = min(_NAME_END, _PROPERTY_END), abs(_NAME_END - _PROPERTY_END)


def count_index_texts(block: bytes, *, tags: bool) -> int:
    """Return the number of texts that ``iter_index_texts`` yields for a record with these properties."""
    block = _PROPERTY + block
    found = int(_last_value(block, _UNIQ_KEY) != b"") + int(tags and _last_value(block, _TAGS) != b"")
    keys = _last_value(block, _KEYS)
    if keys:
        found += sum(map(bool, keys.split(b" ")))
    return found


def _last_value(block: bytes, name: bytes) -> bytes:
    """Return the last value of a property that is not empty: an empty one does not replace it."""
    name = _PROPERTY + name + NAME_VALUE_SEPARATOR.encode()
    at = block.rfind(name)
    while at >= 0:
        begin = at + len(name)
        end = block.find(_PROPERTY, begin)
        value = block[begin:] if end < 0 else block[begin:end]
        if value:
            return value
        at = block.rfind(name, 0, at)
    return b""


class NamedValues:
    """The property values that decide the dispatch, found in the texts of many records at once."""

    def __init__(self, blocks: Sequence[bytes]) -> None:
        import numpy as np

        self._blocks = len(blocks)
        self._text = b"".join([*blocks, bytes(_WORD)])
        self._octets: Octets = np.frombuffer(self._text, np.uint8)
        octets = self._octets
        ends = np.cumsum(np.fromiter(map(len, blocks), np.int64, len(blocks)))
        begins = np.append(0, ends[:-1])
        # The ends of names, and the ends of properties.
        marks = np.flatnonzero((octets - _LOWEST) <= _BETWEEN)
        is_name_end = octets[marks] == _NAME_END
        follow = np.append(np.where(is_name_end, len(octets), marks)[1:], len(octets))
        closing = np.minimum.accumulate(follow[::-1])[::-1][is_name_end]
        before = np.append(-1, marks[:-1])[is_name_end]
        after_name_end = np.append(False, is_name_end[:-1])[is_name_end]
        self._separators: Numbers = marks[is_name_end]
        self._owners: Numbers = np.searchsorted(ends, self._separators, side="right")
        in_front = before < begins[self._owners]
        self._lengths: Numbers = self._separators - np.where(in_front, begins[self._owners], before + 1)
        self._value_ends: Numbers = np.minimum(closing, ends[self._owners])
        self._filled: Flags = (in_front | ~after_name_end) & (self._value_ends > self._separators + 1)

    def _spans(self, name: bytes) -> tuple[Numbers, Numbers, Numbers]:
        """Return the records with a property, and where its last value begins and ends."""
        import numpy as np

        named = np.flatnonzero(self._filled & (self._lengths == len(name)))
        named = named[stand_at(self._octets, self._separators[named] - len(name), name)]
        named = named[_are_last(self._owners[named])]
        return self._owners[named], self._separators[named] + 1, self._value_ends[named]

    def count_texts(self, *, tags: bool) -> Numbers:
        """Return the number of texts that ``iter_index_texts`` yields for each record."""
        import numpy as np

        counts = np.zeros(self._blocks, dtype=np.int64)
        for name in (_UNIQ_KEY, _TAGS) if tags else (_UNIQ_KEY,):
            counts[self._spans(name)[0]] += 1
        owners, begins, ends = self._spans(_KEYS)
        counts[owners] += _count_words(self._octets, begins, ends)
        return counts

    def tags_hashes(self) -> Numbers:
        """Return the hash of each record's tag, 0 without one."""
        import numpy as np

        owners, begins, ends = self._spans(_TAGS)
        names = self._names_of(begins, ends)
        firsts, numbers = np.unique(names, return_index=True, return_inverse=True)[1:]
        spans = zip(begins[firsts].tolist(), ends[firsts].tolist(), strict=True)
        known = [string_hash(decode_text(self._text[begin:end])) for begin, end in spans]
        hashes = np.zeros(self._blocks, dtype=np.int64)
        hashes[owners] = np.array(known, dtype=np.int64)[numbers]
        return hashes

    def _names_of(self, begins: Numbers, ends: Numbers) -> NDArray[Any]:
        """Return one value for each span, equal for equal bytes. Short spans become numbers, which sort faster."""
        import numpy as np

        lengths = ends - begins
        if not len(lengths) or lengths.max() > _WORD or self._text.find(b"\0") < len(self._octets) - _WORD:
            spans = zip(begins.tolist(), ends.tolist(), strict=True)
            return np.array([self._text[begin:end] for begin, end in spans], dtype=object)
        words = gather(self._octets, begins, layouts.LONG).view(np.uint64)
        return words >> (8 * (_WORD - lengths)).astype(np.uint64)


def _are_last(owners: Numbers) -> Flags:
    """Return which are the last of their owner; owners must be sorted."""
    import numpy as np

    return np.append(owners[1:] != owners[:-1], np.ones(min(len(owners), 1), dtype=bool))


def _count_words(octets: Octets, begins: Numbers, ends: Numbers) -> Numbers:
    """Return the number of words in each span, separated by spaces. Spans must not be empty."""
    import numpy as np

    spaces = np.flatnonzero(octets[:-1] == _SPACE)
    breaks = spaces[octets[spaces + 1] != _SPACE]
    found: Numbers = np.searchsorted(breaks, ends - 1) - np.searchsorted(breaks, begins) + (octets[begins] != _SPACE)
    return found
