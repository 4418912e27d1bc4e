"""The limits of one frame. Beyond them the connection is closed, as upstream does beyond its own limits.

The first is upstream's, the others are ours: no client comes near them, and a hostile frame costs no more memory than
twice its bytes, and no more time than reading it once.
"""

from __future__ import annotations

import re

from rmqtool.remoting.command import FrameError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# The whole frame, its length field included. upstream: NettyDecoder.FRAME_MAX_LENGTH
FRAME_BYTES: Final = 16 << 20
HEADER_BYTES: Final = 1 << 20
FIELDS: Final = 256
DEPTH: Final = 32

# A longer header must be ASCII: one character of another alphabet can make a text take four bytes for each character.
PLAIN_HEADER_BYTES: Final = 64 << 10

# A header has eight members of its own; a limited number of others is ignored.
_MEMBERS = 64

# A string is read to its end, also if the closing quote is missing: no character is looked at twice.
_PIECE = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z|\\\Z)|([{\[])|([}\]])|(,)'
_OPENED, _CLOSED = 1, 2


def check_json(text: str, members: int = FIELDS + _MEMBERS) -> None:
    """Raise FrameError for JSON that nests deeper than ``DEPTH`` or has more than ``members`` values.

    This check comes before a parser makes objects: an empty list is two characters there, and 56 bytes in memory. For
    nearly every text counting brackets and commas is enough; they are looked at one by one only if strings may contain
    some.
    """
    if text.count("{") + text.count("[") <= DEPTH and text.count(",") <= members:
        return
    depth = found = 0
    for match in re.finditer(_PIECE, text, re.DOTALL):
        kind = match.lastindex
        if kind == _CLOSED:
            depth -= 1
        elif kind is not None:
            found += 1
            depth += kind == _OPENED
            if depth > DEPTH:
                raise FrameError(f"JSON nested deeper than {DEPTH}")
            if found > members:
                raise FrameError(f"more than {members} values in JSON of {len(text)} characters")


def plain_text(data: bytes | memoryview, header: int) -> str:
    """Return the text of a part of a header of ``header`` bytes, which is a long one. Raises FrameError."""
    # Not by an exception: that would hold one more copy.
    text = str(data, "ascii", "ignore")
    if len(text) != len(data):
        raise FrameError(f"a header of {header} bytes that is not all ASCII")
    return text
