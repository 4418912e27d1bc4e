"""A declined place: columns return it where they would have to guess."""

from __future__ import annotations

from typing import NamedTuple


class Declined(NamedTuple):
    """The columns end at ``file_offset``; from there the tolerant walk (``log.walk``) decides. Never on clean data."""

    reason: str
    file_offset: int
