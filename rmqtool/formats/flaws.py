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


def within_log(flaw: Flaw) -> Flaw:
    """Return the flaw of the bytes after the last record of a segment, if the next segment has records.

    At the end of a log a torn record and older bytes are normal; records that follow make them damage like any other.
    """
    if flaw.code not in ("CL-TORN", "CL-STALE"):
        return flaw
    text = f"{flaw.message}; no record follows in this segment, but the next segment has records"
    return flaw._replace(code="CL-MID", message=text)
