"""What is dispatched in runs of records is what dispatching them one by one leaves, byte for byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqtool.files.filesystem import Kind, iter_tree
from tests.support import builders
from tests.support.recovery import rehearsed

SEGMENT = 1 << 18
QUEUE_FILE = 20 * 150
SETTINGS = (
    f"mappedFileSizeCommitLog={SEGMENT}",
    f"mappedFileSizeConsumeQueue={QUEUE_FILE}",
    "maxHashSlotNum=500",
    "maxIndexNum=2000",
)
TOPICS = (b"Orders", b"Payments", "Bestätigt".encode(), b"%RETRY%group", b"a\xffb")
TAGS = ("", "TagA", "Größe", "AaAa", "BBBB")
PREPARED = 0x4


class Record(NamedTuple):
    """What of a record the queues look at, before it has its place."""

    topic: bytes
    queue_id: int
    queue_offset: int
    tag: str
    sys_flag: int = 0
    misplaced: int = 0


def draw(dice: random.Random, count: int, *, first: int = 0) -> list[Record]:
    """Records of some queues, whose offsets begin with ``first``."""
    ends: dict[tuple[bytes, int], int] = {}
    found = []
    for _ in range(count):
        topic, queue_id = dice.choice(TOPICS), dice.randrange(3)
        if prepared := dice.random() < 0.05:
            found.append(Record(topic, queue_id, 0, dice.choice(TAGS), PREPARED))
        if not prepared:
            offset = ends.get((topic, queue_id), first)
            ends[topic, queue_id] = offset + 1
            found.append(Record(topic, queue_id, offset, dice.choice(TAGS)))
    return found


def write_log(root: Path, records: list[Record]) -> None:
    """Write a store that has a log and nothing else, as after a crash."""
    (root / "commitlog").mkdir(parents=True)
    (root / "abort").touch()
    start, data = 0, b""

    def close() -> None:
        (root / "commitlog" / f"{start:020d}").write_bytes(data.ljust(SEGMENT, b"\0"))

    for number, one in enumerate(records):
        properties = [("KEYS", f"k{number} k{number % 7}"), *([("TAGS", one.tag)] if one.tag else [])]
        raw = builders.record(
            b"b%d" % number,
            one.topic,
            builders.properties(*properties),
            queue_id=one.queue_id,
            queue_offset=one.queue_offset,
            sys_flag=one.sys_flag,
            store_timestamp=1_700_000_000_000 + number,
        )
        if len(data) + len(raw) + 8 > SEGMENT:
            data += builders.blank(SEGMENT - len(data))
            close()
            start, data = start + SEGMENT, b""
        data += raw[:28] + struct.pack(">q", start + len(data) + one.misplaced) + raw[36:]
    close()


def left_by(root: Path, version: str, *, contents: bool) -> tuple[Any, dict[str, bytes]]:
    """What a start is said to do, and the bytes of all queue files afterwards."""
    with rehearsed(root, version, SETTINGS, contents=contents) as (outcome, overlay):
        told = outcome.as_json()
        queues = {}
        for path, kind in iter_tree(overlay):
            if path.startswith("consumequeue/") and kind is Kind.FILE:
                with overlay.open_read(path) as file:
                    queues[path] = file.pread_exactly(overlay.stat(path).size, 0)
        return told, queues


def nothing(root: Path) -> None:
    """Leave the store as it is."""


def a_file_for_a_queue(root: Path) -> None:
    (root / "consumequeue" / "Orders").mkdir(parents=True)
    (root / "consumequeue" / "Orders" / "1").touch()


def a_queue_that_ends_early(root: Path) -> None:
    """Its units lead to the first records of the queue, and to nothing behind them."""
    directory = root / "consumequeue" / "Orders" / "0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes((builders.queue_unit(0, 1, 0) * 7).ljust(QUEUE_FILE, b"\0"))


def a_queue_that_is_ahead(root: Path) -> None:
    """It holds more units than its records say: each further one is taken for built."""
    directory = root / "consumequeue" / "Payments" / "1"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(builders.queue_unit(0, 1, 0) * 150)
    (directory / f"{QUEUE_FILE:020d}").write_bytes((builders.queue_unit(0, 1, 0) * 30).ljust(QUEUE_FILE, b"\0"))


def a_flipped_body(root: Path) -> None:
    """Recovery cuts the log in the middle of its only file; what is behind the cut stays there."""
    path = root / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    at = data.index(b"b700")
    path.write_bytes(data[:at] + b"c" + data[at + 1 :])


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.4.0"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize(
    "change", [nothing, a_file_for_a_queue, a_queue_that_ends_early, a_queue_that_is_ahead, a_flipped_body]
)
def test_queues_are_built_alike(version: str, clean: bool, change: Callable[[Path], None], tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_log(root, draw(random.Random(5), 3000, first=40))
    change(root)
    if clean:
        (root / "abort").unlink()
    told, queues = left_by(root, version, contents=False)
    assert (told, queues) == left_by(root, version, contents=True)
    # The dispatch of 4.9 waits for ever where a queue cannot be written, others go on.
    assert change is a_file_for_a_queue or len(queues) >= 14


def odd_queue_offsets(records: list[Record]) -> list[Record]:
    return [one._replace(queue_offset=one.queue_offset // 2) if n % 3 else one for n, one in enumerate(records)]


def gaps(records: list[Record]) -> list[Record]:
    return [one._replace(queue_offset=one.queue_offset * 3) for one in records]


def lost_places(records: list[Record]) -> list[Record]:
    return [one._replace(misplaced=-70 if n % 50 == 49 else 0) for n, one in enumerate(records)]


def negative(records: list[Record]) -> list[Record]:
    return [
        one._replace(queue_offset=-one.queue_offset if n == 700 else one.queue_offset) for n, one in enumerate(records)
    ]


def no_name(records: list[Record]) -> list[Record]:
    return [one._replace(topic=b"./Orders" if n % 40 == 1 else one.topic) for n, one in enumerate(records)]


def enormous(records: list[Record]) -> list[Record]:
    return [one._replace(queue_offset=(1 << 62) + n if n == 901 else one.queue_offset) for n, one in enumerate(records)]


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.4.0"])
@pytest.mark.parametrize("odd", [odd_queue_offsets, gaps, lost_places, negative, no_name, enormous])
def test_odd_records_leave_the_same(version: str, odd: Callable[[list[Record]], list[Record]], tmp_path: Path) -> None:
    root = tmp_path / "store"
    write_log(root, odd(draw(random.Random(6), 2500)))
    told, queues = left_by(root, version, contents=False)
    assert (told, queues) == left_by(root, version, contents=True)
    assert queues
