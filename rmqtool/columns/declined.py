"""What bulk answers instead of a guess."""

from __future__ import annotations

from typing import NamedTuple


class Declined(NamedTuple):
    """Bulk goes no further at ``file_offset``: the tolerant walk has the word. Never on clean data."""

    reason: str
    file_offset: int
