"""The owner file of a store that is served: where other processes of the same user find its server.

``$XDG_RUNTIME_DIR/rmqtool/PID.json``, or the same in a directory of the user below the temporary directory: the
process, its store, its addresses, and a token that only the user can read. It is believed only if the process in its
name holds the lock of the store.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PRIVATE_DIRECTORY, _PRIVATE_FILE = 0o700, 0o600
_LARGEST = 1 << 16


class Owner(NamedTuple):
    """The server of a store: process, start (ms), root of the store, addresses of name server and broker, token."""

    pid: int
    started: int
    store: str
    names: str
    broker: str
    token: str


_TYPES = (int, int, str, str, str, str)


def owner_directory() -> Path:
    """Return the directory of owner files; only the user may write or read in it."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "rmqtool"
    return Path(tempfile.gettempdir()) / f"rmqtool-{os.getuid()}"


def write_owner(owner: Owner) -> Path | None:
    """Write the file of a server; return its path, None if the directory is not the user's alone."""
    directory = owner_directory()
    with suppress(OSError):
        directory.mkdir(_PRIVATE_DIRECTORY)
    if not _is_private(directory):
        return None
    path = directory / f"{owner.pid}.json"
    aside = path.with_suffix(".tmp")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, _PRIVATE_FILE)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump(owner._asdict(), file)
        aside.replace(path)
    except OSError:
        return None
    return path


def remove_owner(path: Path | None) -> None:
    """Remove the file of a server that ends."""
    if path is not None:
        path.unlink(missing_ok=True)


def any_owner() -> bool:
    """Return whether there may be a server of this user: only then a store is worth looking at."""
    try:
        return any(path.suffix == ".json" for path in owner_directory().iterdir())
    except OSError:
        return False


def find_owner(root: str, pid: int | None) -> Owner | None:
    """Return the server of a store whose lock the process ``pid`` holds; None if it is another program."""
    if pid is None or not _is_private(owner_directory()):
        return None
    path = owner_directory() / f"{pid}.json"
    try:
        status = path.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & ~_PRIVATE_FILE & 0o777:
            return None
        with path.open(encoding="utf-8") as file:
            found = Owner(**json.loads(file.read(_LARGEST)))
        is_whole = all(map(isinstance, found, _TYPES))
        is_right = is_whole and found.pid == pid and os.path.realpath(found.store) == os.path.realpath(root)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return found if is_right else None


def _is_private(directory: Path) -> bool:
    try:
        status = directory.stat(follow_symlinks=False)
    except OSError:
        return False
    is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_ours and not status.st_mode & 0o077
