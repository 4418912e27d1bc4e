"""Errors of the operating system as rmqtool's errors: which file, which operation, and what to do."""

from __future__ import annotations

import errno
import os

from rmqtool.errors import FileMissing, NoMemory, NoSpace, ReadFailed, RmqtoolError, WriteFailed

_OWNER = "run the command as the owner of the store, or as root"
DISK_FAILS = "the disk may be failing (see the kernel log): rmqtool copy STORE NEW --salvage copies what can be read"
_SPACE = "free some space on that file system, then run the command again"
_DESCRIPTORS = "raise the limit of open files (ulimit -n), then run the command again"
_LINK = "a link inside a store is not followed: name the directory it points to instead"

_HINTS = {
    errno.EACCES: _OWNER,
    errno.EPERM: _OWNER,
    errno.EIO: DISK_FAILS,
    errno.EROFS: "the file system is mounted read-only: read the kernel log for the reason",
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EMFILE: _DESCRIPTORS,
    errno.ENFILE: _DESCRIPTORS,
    errno.ELOOP: _LINK,
}


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def read_failed(operation: str, file: str, cause: OSError) -> ReadFailed:
    """Return the error for a failed ``operation`` (a verb) that reads."""
    kind = FileMissing if cause.errno == errno.ENOENT else ReadFailed
    error = kind(_sentence(operation, file, cause), file=file, hint=_hint(cause))
    error.__cause__ = cause
    return error


def write_failed(operation: str, file: str, cause: OSError) -> WriteFailed:
    """Return the error for a failed ``operation`` (a verb) that writes."""
    kind = NoSpace if cause.errno in (errno.ENOSPC, errno.EDQUOT) else WriteFailed
    error = kind(_sentence(operation, file, cause), file=file, hint=_hint(cause))
    error.__cause__ = cause
    return error


def _sentence(operation: str, file: str, cause: OSError) -> str:
    return f"cannot {operation} {file}: {cause.strerror or cause}"


def _hint(cause: OSError) -> str | None:
    return None if cause.errno is None else _HINTS.get(cause.errno)


# The message of the loader when a library does not fit into the address space.
_UNMAPPED = "failed to map segment"


def of_the_machine(error: Exception) -> RmqtoolError | None:
    """Return the error for an exception that the machine caused and no other code explained; None for a bug."""
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _UNMAPPED in str(error)):
        hint = "raise the limit (ulimit -v, the container's limit), or use one thread: -j 1"
        return NoMemory("there is not enough memory for this command", hint=hint)
    if not isinstance(error, OSError) or error.errno is None:
        return None
    file = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "a file"
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return write_failed("write to", file, error) if is_full else read_failed("work with", file, error)
