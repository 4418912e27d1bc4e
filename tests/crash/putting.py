"""A producer to be killed: puts messages into a store and tells every acknowledgement at once.

python -m tests.crash.putting ROOT FIRST [--producer]

With ``--producer`` one message after the other goes through a producer, which dispatches in passes; the page cache, not
the disk, keeps what it acknowledges.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rmqtool.broker.producer.send import Producer
from rmqtool.broker.topics import TopicConfigs
from rmqtool.config import FlushDiskType, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.paths import TOPICS
from rmqtool.store.config_files import config_text
from tests.support.engine_stores import small_config


def setup_at(root: Path, flush: FlushDiskType = FlushDiskType.SYNC_FLUSH) -> Setup:
    """Return how the store is opened, before it is killed and after."""
    config = small_config(
        Version.V5_3,
        flushDiskType=flush,
        mappedFileSizeCommitLog=16_384,
        maxIndexNum=500,
        storePathRootDir=str(root),
    )
    return Setup(PosixWritableFileSystem(str(root)), config)


def body_of(number: int) -> bytes:
    """Return the body of a message."""
    return b"message %d " % number * (1 + number % 9)


def opened(root: str, flush: FlushDiskType) -> MessageStore:
    """Return the store, a new one if there is none."""
    setup = setup_at(Path(root), flush)
    return MessageStore.open(setup) if (Path(root) / "lock").exists() else MessageStore.create(setup)


def send(root: str, first: int) -> None:
    """Send until killed."""
    store = opened(root, FlushDiskType.ASYNC_FLUSH)
    setup = store.setup
    topics = TopicConfigs(config_text(setup.files, TOPICS), setup.config.version, setup.clock)
    producer, number = Producer(store, topics, creates=True), first
    while True:
        message = NewMessage("T", body_of(number), number % 3, {"KEYS": f"k{number}"})
        producer.check(message)
        status, *_, queue_id, queue_offset, _, _ = producer.send([message]).rows[0]
        assert status == "PUT_OK"
        os.write(1, b"%d %d %d\n" % (number, queue_id, queue_offset))
        number += 1


def main(root: str, first: int) -> None:
    """Put until killed, with the threads of a store that serves."""
    store = opened(root, FlushDiskType.SYNC_FLUSH)
    store.start()
    number = first
    while True:
        queue_id = number % 3
        ticket = store.put(NewMessage("T", body_of(number), queue_id, {"KEYS": f"k{number}"}))
        if ticket.is_ok:
            os.write(1, b"%d %d %d\n" % (number, queue_id, ticket.queue_offset))
        number += 1


if __name__ == "__main__":
    (send if "--producer" in sys.argv else main)(sys.argv[1], int(sys.argv[2]))
