"""Where stores and exports are: a path of this machine, also where it is spelled as Spark and pyarrow spell it.

Other filesystems are not spoken to. An export appears by one rename, under a lock: an object store has neither, so its
readers would see a part of an export, and two exports would mix.
"""

from __future__ import annotations

import re

from rmqtool.errors import UsageError

_HERE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def local_path(text: str) -> str:
    """Return the path that is meant; raise UsageError for what lies on another filesystem."""
    here = _HERE.fullmatch(text)
    if here is not None:
        return here[1]
    if _ELSEWHERE.match(text):
        raise UsageError(
            f"{text} is no path of this machine, and rmqtool speaks to no other filesystem",
            hint="mount it and name the path; or copy: the segments of a store from there, a whole export to there",
        )
    return text
