"""A directory that a command fills: whole, or as it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from rmqtool.errors import RmqtoolError, WriteFailed


@contextmanager
def new_directory(path: str) -> Iterator[None]:
    """Make ``path`` where it is not there yet; when filling it fails, take away all that was put there.

    The same command can be typed again then, and nobody takes half a store for one.
    """
    was_there = os.path.isdir(path)
    try:
        os.makedirs(path, exist_ok=True)
        before = set(os.listdir(path))
    except OSError as error:
        raise WriteFailed(
            f"{path} cannot be made: {error.strerror}", file=path, hint="name a place where you may write"
        ) from error
    try:
        yield
    except (RmqtoolError, KeyboardInterrupt):
        for name in set(os.listdir(path)) - before:
            _remove(os.path.join(path, name))
        if not was_there:
            os.rmdir(path)
        raise


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
