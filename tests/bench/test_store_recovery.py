"""What our recovery and an open cost beside the real store, measured in turns, and in memory."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqtool.config import StoreConfig, Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.bench.large_store import write_large_store
from tests.bench.peer.__main__ import LIKE_A_PRODUCER
from tests.bench.peer.build import build, peer, work
from tests.bench.test_engine import NOISE, real_classes, run
from tests.support.stores import FIXTURES

__all__ = ["real_classes"]

pytestmark = pytest.mark.bench

RUNS = 3
# How much of the real 4.9.8's speed is asked for, by processor time of both, less the machine's own noise.
RECOVERY_SHARE = 0.7 * NOISE
MOST_GROWTH = 1.3
VERSION = "4.9.8"
MESSAGES = 200_000
# A clean store with a hundred queues is to be open in 0.3 s on a machine where an interpreter starts in 20 ms; both by
# processor time, since what the others on the machine take counts in neither.
MOST_STARTS, QUEUES = 15, 100

_RECOVER = """
import json, sys, time
from pathlib import Path
from tests.support.recovered import setup_for
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

_OPEN = """
import json, sys, time
from pathlib import Path
from rmqtool.engine.store import MessageStore
from tests.support.recovered import setup_for
setup = setup_for(Path(sys.argv[1]))
start, wall = time.process_time(), time.monotonic()
store = MessageStore.open(setup)
spent, wall = time.process_time() - start, time.monotonic() - wall
queues = len(store.queues())
store.close()
print(json.dumps([queues, spent, wall]))
"""


class Recovery(NamedTuple):
    """What one recovery said and took: seconds, of a processor too, and MiB."""

    messages: int
    wall: float
    processor: float
    memory: float


def measured(program: str, root: Path) -> list[float]:
    """Run a program on a store in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)], cwd=FIXTURES.parent, check=True, capture_output=True
    )
    found: list[float] = json.loads(done.stdout)
    return found


def recovered(root: Path, runs: int = RUNS) -> Recovery:
    """Return the best of some recoveries."""
    found = []
    for _ in range(runs):
        messages, *costs = measured(_RECOVER, root)
        found.append(Recovery(int(messages), *costs))
    return min(found, key=lambda run: run.processor)


def processor_time_of_children() -> float:
    """Return what all processes took that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def written(real_classes: Callable[[str], None]) -> Iterator[Callable[[int], Path]]:
    """Return stores that the real 4.9.8 has written, by the length of their bodies."""
    real_classes(VERSION)
    build()
    scratch = work() / "data" / "reading"
    shutil.rmtree(scratch, ignore_errors=True)

    def write(body: int) -> Path:
        root = scratch / str(body)
        sizes = ["--messages", str(MESSAGES), "--body", str(body), "--keep"]
        run(peer(VERSION, "gen", str(root), *sizes, *LIKE_A_PRODUCER))
        return root

    yield write
    shutil.rmtree(scratch, ignore_errors=True)


def test_recovery_beside_the_real_store(written: Callable[[int], Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Both find a mark of a crash, and read the whole log: with 200,000 messages of 1 KiB, in turns."""
    root = written(1024)
    mine: list[Recovery] = []
    loads = []
    for _ in range(RUNS):
        found = run(peer(VERSION, "recover", str(root)))
        assert found["dispatched"] == MESSAGES
        loads.append((found["cpu_s"], found["load_s"]))
        mine.append(recovered(root, 1))
        assert mine[-1].messages == MESSAGES
    load, wall = min(cpu for cpu, _ in loads), min(wall for _, wall in loads)
    processor, ours = min(one.processor for one in mine), min(one.wall for one in mine)
    with capsys.disabled():
        print(
            f"\nrecovery: {processor:.2f} s of a processor, {VERSION} {load:.2f}: {load / processor:.2f} of its speed"
        )
        print(f"  by wall {ours:.2f} s and {wall:.2f} s: {wall / ours:.2f}; wanted {RECOVERY_SHARE / NOISE}")
    assert load / processor >= RECOVERY_SHARE


def test_memory_of_a_recovery_is_flat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    for root, total in ((small, 64 << 20), (large, 512 << 20)):
        root.mkdir()
        write_large_store(root, total, queues=16)
    least, most = recovered(small, 1).memory, recovered(large, 1).memory
    with capsys.disabled():
        print(f"\nmemory of a recovery: {most:.0f} MiB, {most / least:.2f} of that of a log of an eighth")
    assert most / least <= MOST_GROWTH


def test_a_clean_store_is_open_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "store"
    root.mkdir()
    config = StoreConfig.default(Version.V4_9).at_root(str(root))
    with MessageStore.create(Setup(PosixWritableFileSystem(str(root)), config)) as store:
        store.put_many(NewMessage("T", b"x" * 100, number % QUEUES) for number in range(MESSAGES))
        store.dispatch_now()
    opens, starts, walls = [], [], []
    for _ in range(RUNS):
        before = processor_time_of_children()
        subprocess.run([sys.executable, "-c", ""], check=True)
        starts.append(processor_time_of_children() - before)
        queues, spent, wall = measured(_OPEN, root)
        assert queues == QUEUES
        opens.append(spent)
        walls.append(wall)
    share = min(opens) / min(starts)
    with capsys.disabled():
        print(f"\nopen with {QUEUES} queues: {min(walls):.3f} s, {min(opens):.3f} s of a processor")
        print(f"  {share:.1f} starts of an interpreter (limit {MOST_STARTS})")
    assert share <= MOST_STARTS
