"""What our recovery costs, in time and memory, and what reading from the queues does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message, decode_record
from tests.bench.large_store import write_large_store
from tests.recovered import setup_for
from tests.stores import FIXTURES

pytestmark = pytest.mark.bench

RUNS = 3
# What the real 4.9.8 took to load 500,000 messages of 1 KiB after a crash, and how much of its speed is asked for.
PEER_US, SHARE = 1.3e6 / 500_000, 0.7
MOST_GROWTH = 1.3
# What the real classes took to get and decode a message on a quiet machine, and how much of their speed is asked for.
PEER_GET_US, GET_SHARE = 0.57, 0.3

_RECOVER = """
import json, sys, time
from pathlib import Path
from tests.recovered import setup_for
from rmqtool.engine.recovery.recover import recover
root = Path(sys.argv[1])
(root / "abort").touch()
setup = setup_for(root)
start, processor = time.monotonic(), time.process_time()
report = recover(setup)
# What getrusage says begins with the size of the process that made this one.
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
memory = int(peak.split()[1]) / 1024
print(json.dumps([report.messages, time.monotonic() - start, time.process_time() - processor, memory]))
"""


def recovered(root: Path) -> tuple[int, float, float, float]:
    """Return messages, seconds, seconds of a processor and MiB of the best of some recoveries, each of its own."""
    runs = []
    for _ in range(RUNS):
        words = [sys.executable, "-c", _RECOVER, str(root)]
        printed = subprocess.run(words, cwd=FIXTURES.parent, check=True, capture_output=True).stdout
        runs.append(tuple(json.loads(printed)))
    best: tuple[int, float, float, float] = min(runs, key=lambda run: run[2])
    return best


def test_recovery_after_a_crash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for root, total in ((small, 64 << 20), (large, 512 << 20)):
        root.mkdir()
        write_large_store(root, total, queues=16)
    _, _, _, least = recovered(small)
    messages, wall, processor, memory = recovered(large)
    with capsys.disabled():
        print(f"\nrecovery of {messages} messages: {wall:.2f} s, {processor:.2f} s of a processor, {memory:.0f} MiB")
        print(f"  {processor / messages * 1e6:.2f} us a message; the peer's load: {PEER_US:.2f} us")
        print(f"  memory against that of a log of an eighth: {memory / least:.2f}")
    assert processor / messages * 1e6 <= PEER_US / SHARE
    assert memory / least <= MOST_GROWTH


def test_a_get_with_decoding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every queue from its first message to its last, 32 at a time."""
    root = tmp_path / "store"
    root.mkdir()
    count = write_large_store(root, 64 << 20, segment=64 << 20, body_length=100, queues=16)
    times = []
    with MessageStore.open(setup_for(root)) as store:
        for _ in range(RUNS):
            start, seen = time.process_time(), 0
            for queue in store.queues():
                offset = 0
                while offset < queue.max_offset:
                    got = store.reader.get(*queue.key, offset)
                    seen += sum(isinstance(decode_record(one.data), Message) for one in got.messages)
                    offset = got.next_begin_offset
            times.append((time.process_time() - start) / seen * 1e6)
            assert seen == count
    with capsys.disabled():
        limit = PEER_GET_US / GET_SHARE
        print(f"\nget and decode: {min(times):.2f} us a message; the peer {PEER_GET_US:.2f} us (limit {limit:.1f})")
    assert min(times) <= limit
