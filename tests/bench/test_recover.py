"""What ``recover`` costs: against ``check`` over the same range, and on a clean store of default sizes."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from rmqtool.errors import Exit
from tests.bench.one_run import run_tool
from tests.bench.test_look import QUEUES, write_store
from tests.support import builders

pytestmark = pytest.mark.bench

RUNS = 5
SEGMENT = 64 << 20
FIRST_TIME = 1_700_000_000_000


def a_record(number: int, body: int, queue_id: int, queue_offset: int) -> bytes:
    properties = builders.properties(
        ("UNIQ_KEY", f"7F0000010000{number:020X}"), ("KEYS", f"order{number} user{number % 999}"), ("TAGS", "TagA")
    )
    return builders.record(
        b"%08d" % number + b"x" * body,
        b"Orders",
        properties,
        queue_id=queue_id,
        queue_offset=queue_offset,
        store_timestamp=FIRST_TIME + number,
    )


def write_crashed_store(root: Path, messages: int, body: int) -> None:
    """Write a store whose broker was killed, and whose checkpoint tells no time: recovery reads all of the log."""
    (root / "commitlog").mkdir(parents=True)
    units: dict[int, list[bytes]] = {}
    start = at = 0
    file = (root / "commitlog" / f"{start:020d}").open("wb")
    for number in range(messages):
        queue = number % QUEUES
        mine = units.setdefault(queue, [])
        record = a_record(number, body, queue, len(mine))
        if at - start + len(record) + 8 > SEGMENT:
            file.write(builders.blank(start + SEGMENT - at))
            file.truncate(SEGMENT)
            file.close()
            start = at = start + SEGMENT
            file = (root / "commitlog" / f"{start:020d}").open("wb")
        file.write(record[:28] + struct.pack(">q", at) + record[36:])
        mine.append(builders.queue_unit(at, len(record), builders.java_hash("TagA")))
        at += len(record)
    file.truncate(SEGMENT)
    file.close()
    for queue, mine in units.items():
        directory = root / "consumequeue" / "Orders" / str(queue)
        directory.mkdir(parents=True)
        with (directory / f"{0:020d}").open("wb") as file:
            file.write(b"".join(mine))
            file.truncate(6_000_000)
    (root / "abort").touch()


@pytest.mark.parametrize("queues", [True, False], ids=["queues", "no queues"])
@pytest.mark.parametrize(("messages", "body"), [(300_000, 250), (60_000, 2_000)])
def test_a_rehearsal_costs_little_more_than_a_check_of_the_same_range(messages, body, queues, tmp_path, capsys):
    """Without queues, every one of them is built anew."""
    write_crashed_store(tmp_path / "store", messages, body)
    if not queues:
        shutil.rmtree(tmp_path / "store" / "consumequeue")
    checks, rehearsals = [], []
    for _ in range(RUNS):
        checks.append(run_tool(Exit.NO, "check", tmp_path / "store", "--as", "5.3", "-j", "1"))
        rehearsals.append(run_tool(Exit.DONE, "recover", tmp_path / "store", "--as", "5.3"))
    check, rehearsal = min(cost.processor for cost in checks), min(cost.processor for cost in rehearsals)
    memory = max(cost.memory for cost in rehearsals)
    with capsys.disabled():
        print(
            f"\nrecover, {messages} messages of {body} bytes, {'with' if queues else 'without'} queues: "
            f"{rehearsal:.2f} s, check {check:.2f} s, "
            f"ratio {rehearsal / check:.2f} (limit 1.2), {memory:.0f} MiB (limit 256)"
        )
    assert rehearsal <= 1.2 * check
    assert memory <= 256


def test_a_clean_store_of_default_sizes_takes_a_moment(tmp_path, capsys):
    write_store(tmp_path / "store", 20_000)
    costs = [run_tool(Exit.DONE, "recover", tmp_path / "store", "--as", "5.3") for _ in range(RUNS)]
    best, memory = min(cost.processor for cost in costs), max(cost.memory for cost in costs)
    with capsys.disabled():
        print(f"\nrecover, clean, default sizes, {QUEUES} queues: {best:.2f} s (limit 1 s), {memory:.0f} MiB")
    assert best <= 1
    assert memory <= 256
