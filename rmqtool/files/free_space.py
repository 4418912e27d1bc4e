"""Free disk space, checked before a repair, a recovery or a copy writes the first byte."""

from __future__ import annotations

from rmqtool.errors import NoSpace
from rmqtool.files.filesystem import ReadableFileSystem

_FREE_SOME = "free some space there first"


def require_free_space(files: ReadableFileSystem, needed: int, what: str, hint: str = _FREE_SOME) -> None:
    """Raise NoSpace if the disk of ``files`` does not have ``needed`` bytes; ``what`` is "the repair needs"."""
    available = files.space().available
    if available < needed:
        raise NoSpace(
            f"{what} {needed} bytes, but only {available} are free; nothing was written",
            file=files.shown(""),
            hint=hint,
        )
