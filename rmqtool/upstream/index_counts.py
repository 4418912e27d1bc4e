"""How many texts records are indexed under, without making them: of one, or of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Octets = NDArray[np.uint8]
    Flags = NDArray[np.bool_]

_PROPERTY = PROPERTY_SEPARATOR.encode()
_NAMES = UNIQ_KEY, KEYS, TAGS = (b"UNIQ_KEY", b"KEYS", b"TAGS")
_SPACE = ord(" ")
_NAME_END, _PROPERTY_END = ord(NAME_VALUE_SEPARATOR), ord(PROPERTY_SEPARATOR)
# The two stand side by side, so that one comparison finds both.
_LOWEST, _BETWEEN = min(_NAME_END, _PROPERTY_END), abs(_NAME_END - _PROPERTY_END)


def count_index_texts(block: bytes, *, tags: bool) -> int:
    """Return how many texts ``iter_index_texts`` yields for a record with these properties."""
    block = _PROPERTY + block
    found = int(_last_value(block, UNIQ_KEY) != b"") + int(tags and _last_value(block, TAGS) != b"")
    keys = _last_value(block, KEYS)
    if keys:
        found += sum(map(bool, keys.split(b" ")))
    return found


def _last_value(block: bytes, name: bytes) -> bytes:
    """Return the value that a property has in the end; an empty one does not count."""
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


def count_texts(blocks: Sequence[bytes], *, tags: bool) -> Numbers:
    """Return the same for the properties of many records."""
    import numpy as np

    octets = np.frombuffer(b"".join(blocks), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, blocks), np.int64, len(blocks)))
    begins = np.append(0, ends[:-1])
    # Where names end, and where properties end.
    marks = np.flatnonzero((octets - _LOWEST) <= _BETWEEN)
    is_name_end = octets[marks] == _NAME_END
    follow = np.append(np.where(is_name_end, len(octets), marks)[1:], len(octets))
    closing = np.minimum.accumulate(follow[::-1])[::-1][is_name_end]
    before = np.append(-1, marks[:-1])[is_name_end]
    after_name_end = np.append(False, is_name_end[:-1])[is_name_end]
    separators = marks[is_name_end]
    owners = np.searchsorted(ends, separators, side="right")
    in_front = before < begins[owners]
    lengths = separators - np.where(in_front, begins[owners], before + 1)
    value_ends = np.minimum(closing, ends[owners])
    filled = (in_front | ~after_name_end) & (value_ends > separators + 1)
    counts = np.zeros(len(blocks), dtype=np.int64)
    for name in _NAMES:
        if name == TAGS and not tags:
            continue
        named = np.flatnonzero(filled & (lengths == len(name)))
        named = named[_stand_before(octets, separators[named], name)]
        named = named[_are_last(owners[named])]
        if name == KEYS:
            counts[owners[named]] += _count_words(octets, separators[named] + 1, value_ends[named])
        else:
            counts[owners[named]] += 1
    return counts


def _stand_before(octets: Octets, separators: Numbers, name: bytes) -> Flags:
    """Return which separators stand behind ``name``; there is room for it before each."""
    import numpy as np

    same = np.ones(len(separators), dtype=bool)
    for number, octet in enumerate(name, -len(name)):
        same &= octets[separators + number] == octet
    return same


def _are_last(owners: Numbers) -> Flags:
    """Return which are the last of their owner; they are in order."""
    import numpy as np

    return np.append(owners[1:] != owners[:-1], np.ones(min(len(owners), 1), dtype=bool))


def _count_words(octets: Octets, begins: Numbers, ends: Numbers) -> Numbers:
    """Return how many words each span holds, parted by any number of spaces; none is empty."""
    import numpy as np

    spaces = np.flatnonzero(octets[:-1] == _SPACE)
    breaks = spaces[octets[spaces + 1] != _SPACE]
    found: Numbers = np.searchsorted(breaks, ends - 1) - np.searchsorted(breaks, begins) + (octets[begins] != _SPACE)
    return found
