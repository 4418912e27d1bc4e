"""What ``info`` and ``dump`` cost: against the limits that the design names, printed by ``make bench``."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.errors import Exit
from tests.bench.one_run import run_tool
from tests.support import builders

pytestmark = pytest.mark.bench

SEGMENT = 1 << 30
QUEUE_FILE = 6_000_000
INDEX_FILE = 420_000_040
QUEUES = 200


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
    seconds = {root: min(run_tool(Exit.DONE, "info", root).wall for _ in range(5)) for root in (few, many)}
    with capsys.disabled():
        print(f"\ninfo, default sizes, {QUEUES} queues (limit 0.5 s):")
        for root, seconds_taken in seconds.items():
            print(f"  {seconds_taken:.2f} s with {root.name} messages")
    assert seconds[many] < 1.5 * seconds[few]


def test_dump_of_a_segment_and_of_an_index_needs_little_memory(tmp_path, capsys):
    write_store(tmp_path / "s", 60_000)
    least = run_tool(Exit.DONE, "dump", tmp_path / "s" / "checkpoint")
    segment = run_tool(Exit.DONE, "dump", tmp_path / "s" / "commitlog" / f"{0:020d}")
    index = run_tool(Exit.DONE, "dump", tmp_path / "s" / "index" / "20240101000000000")
    with capsys.disabled():
        print("\ndump (limits: 100 MiB; the index in 2 s):")
        for what, cost in (("segment", segment), ("index", index), ("checkpoint", least)):
            print(f"  default {what}: {cost.wall:.1f} s, {cost.memory:.0f} MiB")
    assert segment.memory < 100
    assert index.memory < 100
