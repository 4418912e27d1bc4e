"""Segments and the files that are open at a time."""

from __future__ import annotations

import os
import struct

from rmqtool.formats.paths import FileKind
from rmqtool.storage.consume_queues import ConsumeQueueFiles
from rmqtool.storage.store import open_store

QUEUES = 60


def test_a_store_of_many_queues_keeps_few_files_open(tmp_path):
    for queue in range(QUEUES):
        directory = tmp_path / "consumequeue" / "T" / str(queue)
        directory.mkdir(parents=True)
        (directory / "00000000000000000000").write_bytes(struct.pack(">qiq", queue * 100, 100, 0))
    (tmp_path / "commitlog").mkdir()
    opened = open_store(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    queues = [ConsumeQueueFiles(*item) for item in opened.listing.queues(FileKind.CONSUME_QUEUE).items()]
    assert [queue.max_offset for queue in queues] == [1] * QUEUES
    assert len(os.listdir("/proc/self/fd")) - before <= 16
    opened.close()
    assert len(os.listdir("/proc/self/fd")) <= before
