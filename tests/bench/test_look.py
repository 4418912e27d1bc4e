"""What ``info`` and ``dump`` cost: against the limits that the design names, printed by ``make bench``."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests import builders

pytestmark = pytest.mark.bench

SEGMENT = 1 << 30
QUEUE_FILE = 6_000_000
INDEX_FILE = 420_000_040
QUEUES = 200


def measure(*words: object) -> tuple[float, float]:
    """Return seconds and MiB of one run of the tool in a process of its own."""
    code = "import sys; from rmqtool.cli import main; sys.exit(main(sys.argv[1:]))"
    start = time.monotonic()
    command = [sys.executable, "-c", code, *map(str, words)]
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    process = os.posix_spawn(sys.executable, command, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(process, 0)
    assert status == 0, words
    return time.monotonic() - start, usage.ru_maxrss / 1024


def write_store(root: Path, messages: int) -> None:
    """Write a store of upstream's default sizes: one segment, 200 queues, one index file."""
    (root / "commitlog").mkdir(parents=True)
    (root / "config").mkdir()
    at = 0
    units: dict[int, list[bytes]] = {}
    with (root / "commitlog" / f"{0:020d}").open("wb") as log:
        for number in range(messages):
            queue = number % QUEUES
            mine = units.setdefault(queue, [])
            record = builders.record(
                b"x" * 900,
                b"Orders",
                queue_id=queue,
                queue_offset=len(mine),
                physical_offset=at,
                store_timestamp=1_700_000_000_000 + number,
            )
            log.write(record)
            mine.append(builders.queue_unit(at, len(record), 0))
            at += len(record)
        log.truncate(SEGMENT)
    for queue, mine in units.items():
        directory = root / "consumequeue" / "Orders" / str(queue)
        directory.mkdir(parents=True)
        with (directory / f"{0:020d}").open("wb") as file:
            file.write(b"".join(mine))
            file.truncate(QUEUE_FILE)
    (root / "index").mkdir()
    with (root / "index" / "20240101000000000").open("wb") as file:
        file.truncate(INDEX_FILE)
    (root / "checkpoint").write_bytes(bytes(4096))


def test_info_does_not_depend_on_the_number_of_messages(tmp_path, capsys):
    few, many = tmp_path / "few", tmp_path / "many"
    write_store(few, 2_000)
    write_store(many, 200_000)
    seconds = {root: min(measure("info", root)[0] for _ in range(5)) for root in (few, many)}
    with capsys.disabled():
        print(f"\ninfo, default sizes, {QUEUES} queues (limit 0.5 s):")
        for root, seconds_taken in seconds.items():
            print(f"  {seconds_taken:.2f} s with {root.name} messages")
    assert seconds[many] < 1.5 * seconds[few]


def test_dump_of_a_segment_and_of_an_index_needs_little_memory(tmp_path, capsys):
    write_store(tmp_path / "s", 60_000)
    _, least = measure("dump", tmp_path / "s" / "checkpoint")
    segment = measure("dump", tmp_path / "s" / "commitlog" / f"{0:020d}")
    index = measure("dump", tmp_path / "s" / "index" / "20240101000000000")
    with capsys.disabled():
        print("\ndump (limits: 100 MiB; the index in 2 s):")
        for what, (seconds, memory) in (("segment", segment), ("index", index), ("checkpoint", (0.0, least))):
            print(f"  default {what}: {seconds:.1f} s, {memory:.0f} MiB")
    assert segment[1] < 100
    assert index[1] < 100
