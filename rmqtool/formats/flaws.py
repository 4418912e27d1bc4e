"""A flaw: a decoder's answer to bytes that are not what their place requires. A value, never an exception."""

from __future__ import annotations

from typing import NamedTuple


class Flaw(NamedTuple):
    """Why bytes do not decode: a finding code, a sentence, and the bytes at fault.

    ``at`` is counted from the start of what was decoded. ``length`` is 0 where only the place is known.
    """

    code: str
    message: str
    at: int = 0
    length: int = 0
