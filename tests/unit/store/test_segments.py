"""Segments and the files that are open at a time."""

from __future__ import annotations

import os
import struct

import pytest

from rmqtool.formats.paths import FileKind
from rmqtool.store.open import open_store
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, usual_size

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


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ([(0, 100), (100, 110)], 100),  # the last one has grown
        ([(0, 110), (100, 100)], 100),
        ([(0, 110), (100, 110)], 100),  # all have
        ([(0, 30), (100, 40), (200, 50)], 100),  # all are cut short
        ([(0, 100), (100, 100), (210, 100)], 100),  # one has a wrong name
        ([(0, 100), (100, 100), (500, 100)], 100),  # some are missing
        ([(300, 100)], 100),
        ([(0, 0), (100, 0)], 0),
        ([(0, 60), (0, 60), (0, 80)], 60),  # of several queues
        ([], 0),
    ],
)
def test_the_usual_size_is_what_most_sizes_and_names_speak_for(files, size):
    assert usual_size(Segment(base, length, f"{base:020d}", None) for base, length in files) == size
