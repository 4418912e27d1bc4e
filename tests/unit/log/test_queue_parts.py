"""The files of queues that a part of the log needs: those with its entries, and the nearest entries beside it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.log.queue_entries import AFTER, QueueFile, QueueFiles, read_places
from rmqtool.log.queue_parts import QueueParts, unpack_queues
from rmqtool.log.select import Selection
from rmqtool.store.listing import QueueId
from tests.support.builders import queue_unit

PER_FILE = 4


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, list[int]], QueueFiles]:
    """Write the files of a queue whose entries point to these places, four to a file."""

    def queue(topic: str, places: list[int]) -> QueueFiles:
        files = []
        for first in range(0, len(places), PER_FILE):
            data = b"".join(queue_unit(place, 10, 0) for place in places[first : first + PER_FILE])
            path = f"consumequeue/{topic}/0/{first * 20:020}"
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data.ljust(PER_FILE * 20, b"\0"))
            files.append(QueueFile(first * 20, PER_FILE * 20, path))
        return QueueFiles(QueueId(topic, 0), str(tmp_path), tuple(files), is_batch=False)

    return queue


Write = Callable[[str, list[int]], QueueFiles]


def numbers(found: list[QueueFiles]) -> list[list[int]]:
    """Return the numbers of the files of each queue."""
    return [[file.base_offset // (PER_FILE * 20) for file in queue.files] for queue in found]


def test_the_files_of_the_part_and_the_nearest_entries(write: Write) -> None:
    parts = QueueParts([write("A", list(range(0, 200, 10))), write("B", [100, 110])])
    # File 1 of A begins with 40, file 2 with 80, file 4 with 160.
    assert numbers(parts.between(50, 60)) == [[1, 2], [0]]
    assert numbers(parts.between(80, 160)) == [[1, 2, 3, 4], [0]]
    assert numbers(parts.between(0, 10)) == [[0, 1], [0]]
    assert numbers(parts.between(170, AFTER)) == [[4], [0]]


def test_a_queue_whose_files_are_out_of_order_is_needed_whole(write: Write) -> None:
    parts = QueueParts([write("A", [*range(100, 140, 10), *range(0, 40, 10), *range(200, 240, 10)])])
    assert numbers(parts.between(0, 10)) == [[0, 1, 2]]


def test_a_file_without_entries_is_the_end(write: Write) -> None:
    whole = write("A", list(range(0, 80, 10)))
    path = Path(whole.directory) / whole.files[0].path.replace(f"{0:020}", f"{160:020}")
    path.write_bytes(bytes(80))
    longer = whole._replace(files=(*whole.files, QueueFile(160, 80, whole.files[0].path[:-20] + f"{160:020}")))
    assert numbers(QueueParts([longer]).between(50, 60)) == [[1, 2]]


def test_entries_are_those_that_all_files_give(write: Write) -> None:
    drawn = random.Random(3)
    queues = [write(name, sorted(drawn.sample(range(0, 3000, 10), 60))) for name in "ABCDE"]
    parts = QueueParts(queues)
    for _ in range(60):
        begin = drawn.randrange(0, 3000)
        end = begin + drawn.randrange(1, 600)
        here, all_files = (
            read_places(found, Selection(), begin, end) for found in (unpack_queues(parts.packed(begin, end)), queues)
        )
        assert here is not None
        assert all_files is not None
        assert [list(column) for column in here[:3]] == [list(column) for column in all_files[:3]]
        assert here[3:] == all_files[3:]


def test_packed_queues_are_small(write: Write) -> None:
    """Of a thousand queues 20 KB, and the same bytes for parts that need the same files."""
    one = write("A", list(range(0, 200, 10)))
    queues = [one._replace(queue=QueueId(f"Orders{number}", number % 8)) for number in range(1000)]
    parts = QueueParts(queues)
    assert unpack_queues(parts.packed(50, 60)) == parts.between(50, 60)
    assert len(parts.packed(50, 60)) < 20_000
    assert parts.packed(50, 60) is parts.packed(55, 70)
