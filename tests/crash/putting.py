"""A producer to be killed: puts messages into a store and tells every acknowledgement at once.

python -m tests.crash.putting ROOT FIRST
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.engine_stores import small_config


def setup_at(root: Path) -> Setup:
    """Return how the store is opened, before it is killed and after."""
    config = small_config(
        Version.V5_3,
        flushDiskType=FlushDiskType.SYNC_FLUSH,
        mappedFileSizeCommitLog=16_384,
        maxIndexNum=500,
        storePathRootDir=str(root),
    )
    return Setup(PosixWritableFileSystem(str(root)), config)


def body_of(number: int) -> bytes:
    """Return the body of a message."""
    return b"message %d " % number * (1 + number % 9)


def main(root: str, first: int) -> None:
    """Put until killed, with the threads of a store that serves."""
    setup = setup_at(Path(root))
    store = MessageStore.open(setup) if (Path(root) / "lock").exists() else MessageStore.create(setup)
    store.start()
    number = first
    while True:
        queue_id = number % 3
        ticket = store.put(NewMessage("T", body_of(number), queue_id, {"KEYS": f"k{number}"}))
        if ticket.is_ok:
            os.write(1, b"%d %d %d\n" % (number, queue_id, ticket.queue_offset))
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
