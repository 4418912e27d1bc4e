"""The error tree: what stops a command. An exit status belongs to a class; of several, ``worst`` chooses one.

The status of a verb that ends without an error (found nothing, skipped something) is in its result, in ``api``.

Damage in a store is not an error but a value: see ``findings``.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The exit statuses of every command; docs/contract.md says when each is used."""

    DONE = 0
    NO = 1
    USAGE = 2
    NOT_A_STORE = 3
    IN_USE = 4
    REFUSED = 5
    SKIPPED = 6
    WRITE_FAILED = 7
    OPTIONAL_MISSING = 8
    REMOTE = 9
    BUG = 70
    INTERRUPTED = 130
    CLOSED_PIPE = 141


# When several statuses apply to one command, the first of these is its status: the most urgent one.
PRECEDENCE = (
    Exit.BUG,
    Exit.WRITE_FAILED,
    Exit.IN_USE,
    Exit.NOT_A_STORE,
    Exit.REMOTE,
    Exit.OPTIONAL_MISSING,
    Exit.SKIPPED,
    Exit.NO,
)


# The hint of every error about standard output that cannot be written.
NO_OUTPUT = "free space where standard output goes, or write to another file: > FILE"


def worst(*statuses: int) -> Exit:
    """Return the status of a command that met all of ``statuses``."""
    for candidate in PRECEDENCE:
        if candidate in statuses:
            return candidate
    return max((Exit(status) for status in statuses), default=Exit.DONE)


class RmqtoolError(Exception):
    """An error that stops a command.

    ``message`` says what happened, and why it matters if that is not plain; ``file`` and ``offset`` say where; ``hint``
    is the command to type next, or one sentence where no command helps.
    """

    exit_status = Exit.BUG
    code = "error"

    def __init__(
        self, message: str, *, file: str | None = None, offset: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.offset = offset
        self.hint = hint

    def as_json(self) -> dict[str, object]:
        """Return the ``error`` object of docs/contract.md."""
        found: dict[str, object] = {"code": self.code, "message": self.message}
        for name in ("file", "offset", "hint"):
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        return found


class NotFound(RmqtoolError):
    """The command looked everywhere it can be, and it is not there."""

    exit_status = Exit.NO
    code = "not-found"


class UnknownTopic(NotFound):
    """A topic of this name does not exist."""


class UsageError(RmqtoolError):
    """The words of the command line contradict each other or do not parse."""

    exit_status = Exit.USAGE
    code = "usage"


class StoreError(RmqtoolError):
    """Not a store, not readable, or not supported."""

    exit_status = Exit.NOT_A_STORE
    code = "not-a-store"


class ReadFailed(StoreError):
    """A file of the store could not be read: permission, I/O error, vanished, not a regular file.

    ``finding`` is the code of the finding that a look makes of it when it goes on.
    """

    code = "read-failed"
    finding = "ST-READ"


class FileMissing(ReadFailed):
    """The file is not there: it never was, or it vanished since its name was read."""


class NoMemory(StoreError):
    """The process has less memory than the command needs."""

    code = "out-of-memory"


class DatabaseUnopened(ReadFailed):
    """RocksDB cannot open a database of the store; the log and the other files can be read."""

    finding = "RX-OPEN"


class RowsUnread(ReadFailed):
    """A row of a database could not be read; the other rows, and the log, can be."""

    exit_status = Exit.SKIPPED


class StoreInUse(RmqtoolError):
    """A broker, or another rmqtool, holds the store's lock."""

    exit_status = Exit.IN_USE
    code = "in-use"


class AddressTaken(RmqtoolError):
    """The server cannot listen at an address."""

    exit_status = Exit.IN_USE
    code = "address-taken"


class Refused(RmqtoolError):
    """Needs ``--apply``, ``--yes`` or ``--allow``; or the store changed since the plan."""

    exit_status = Exit.REFUSED
    code = "refused"


class WriteFailed(RmqtoolError):
    """A write, fsync or rename failed; nothing half-written was left."""

    exit_status = Exit.WRITE_FAILED
    code = "write-failed"


class NoSpace(WriteFailed):
    """The file system is full, or the quota is used up."""


class OptionalMissing(RmqtoolError):
    """An optional part is not installed: PySpark, Java, RocksDB."""

    exit_status = Exit.OPTIONAL_MISSING
    code = "optional-missing"


class RemoteError(RmqtoolError):
    """The other side of a connection refused, or is gone."""

    exit_status = Exit.REMOTE
    code = "remote"


class Interrupted(RmqtoolError):
    """Ctrl-C; the command stopped at a point where the store is consistent."""

    exit_status = Exit.INTERRUPTED
    code = "interrupted"


class Bug(RmqtoolError):
    """An exception that no code expected: a defect of rmqtool."""

    exit_status = Exit.BUG
    code = "bug"
