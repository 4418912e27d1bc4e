"""A flaw: a decoder's answer to bytes that are not what their place requires. A value, never an exception."""

from __future__ import annotations

from typing import NamedTuple


class Flaw(NamedTuple):
    """What is wrong: a finding's code, a sentence, where (from the start of what was decoded) and how long."""

    code: str
    message: str
    at: int = 0
    length: int = 0
