"""What the operating system refuses while an export is written, as errors with a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.errors import NoSpace, WriteFailed

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raise NoSpace or WriteFailed, naming ``path``, for an OSError inside."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in _FULL:
            raise NoSpace(
                f"{path} could not be written: {reason}; nothing of this export was left at the target",
                file=path,
                hint="free some space, or export to another disk (--to)",
            ) from error
        raise WriteFailed(
            f"{path} could not be written: {reason}; nothing of this export was left at the target",
            file=path,
            hint="export to another place (--to)",
        ) from error
