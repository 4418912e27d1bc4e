"""How much one frame may claim. Beyond it the connection is closed, as upstream does beyond its own limits.

The first is upstream's, the others are ours: no client comes near them, and a hostile frame costs no more memory than
twice its bytes, and no more time than reading it once.
"""

from __future__ import annotations

import re
from typing import Final

from rmqtool.remoting.command import FrameError

# The whole frame, its length field included. upstream: NettyDecoder.FRAME_MAX_LENGTH
FRAME_BYTES: Final = 16 << 20
HEADER_BYTES: Final = 1 << 20
FIELDS: Final = 256
DEPTH: Final = 32

# A longer header must be ASCII: one character of another alphabet can make a text take four bytes for each character.
PLAIN_HEADER_BYTES: Final = 64 << 10

# A header has eight members of its own; whatever else is in it is ignored, if it is not too much.
_MEMBERS = 64

# A string is taken to its end, also where that is missing: no character is looked at twice.
_PIECE = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z|\\\Z)|([{\[])|([}\]])|(,)'
_OPENED, _CLOSED = 1, 2


def check_json(text: str, members: int = FIELDS + _MEMBERS) -> None:
    """Raise FrameError where JSON nests deeper than ``DEPTH`` or has more than ``members`` values.

    It is asked before a parser makes objects of it: an empty list is two characters there, and 56 bytes in memory.
    Counting is enough for nearly every text; only where strings may hold the brackets and commas they are told apart.
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
