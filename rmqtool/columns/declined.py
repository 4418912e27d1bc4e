"""A declined place: columns return it where they would have to guess."""

from __future__ import annotations

from typing import NamedTuple


class Declined(NamedTuple):
    """Where and why columns end before the last record that was asked for; never on clean data.

    Everything before ``file_offset`` is decoded. The caller reads on from there with the tolerant walk (``log.walk``).
    """

    reason: str
    file_offset: int
