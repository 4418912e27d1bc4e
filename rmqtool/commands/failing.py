"""What is said when a command fails, and what failed where the machine did."""

from __future__ import annotations

import errno
import os
import shutil
import sys

from rmqtool.errors import NoMemory, RmqtoolError

# What the loader of a library says that has no room in the address space.
_UNMAPPED = "failed to map segment"


def tell(error: RmqtoolError, *, as_json: bool) -> None:
    """Say on stderr what stopped the command: in words, or as the one JSON object that programs wait for."""
    from rmqtool.commands.opening import typeable
    from rmqtool.render.failure import failure_json, failure_text

    if error.hint is not None:
        error.hint = typeable(error.hint)
    if sys.stderr is not None:
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        sys.stderr.write(failure_json(error) if as_json else failure_text(error, width))
        sys.stderr.flush()


def of_the_machine(error: Exception) -> RmqtoolError | None:
    """Return what failed where the machine did, and nobody nearer to it has said so; None where it is a bug."""
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _UNMAPPED in str(error)):
        hint = "give it more (ulimit -v, the container's limit), or one process: -j 1"
        return NoMemory("there is not enough memory for this command", hint=hint)
    if not isinstance(error, OSError) or error.errno is None:
        return None
    from rmqtool.files.failures import read_failed, write_failed

    file = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "a file"
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return write_failed("write to", file, error) if is_full else read_failed("work with", file, error)
