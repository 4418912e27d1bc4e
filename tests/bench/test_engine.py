"""What the engine costs beside the real store: both measured in turns, the best of each compared.

Put and dispatch are compared by processor time, of all threads together; what waits for the disk by wall time. The
limits are those the engine is built for; the machine's own noise is taken off.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tabulate import tabulate

from tests.bench.peer.__main__ import LIKE_A_PRODUCER, PRETOUCHED, PUTS
from tests.bench.peer.build import VERSIONS, build, peer, work
from tests.bench.peer.measuring import figures
from tests.conformance.conftest import real_classes

__all__ = ["real_classes"]

pytestmark = pytest.mark.bench

ROUNDS = 3
NOISE = 0.85
STORED = 500_000
MEMORY = 200
CPU, WALL = "process_cpu_us_msg", "us_msg"
SCENARIOS = ("warmup", "async1_100", "batch1_100", "warmup8", "sync8_100", "syncpipe_100")
ROOT = Path(__file__).resolve().parents[2]


class Compared(NamedTuple):
    """One figure of ours, the peer's beside it, and how fast ours must be: by version, times the peer's speed."""

    says: str
    ours: str
    our_key: str
    peers: str
    peer_key: str
    wanted: tuple[float | None, float | None]


TABLE = (
    Compared("sent one by one by a producer, with dispatch", "producer", "cpu_us_msg", "async1_100", CPU, (None, None)),
    Compared("sent 5,000 at a time by a producer", "producer-many", "cpu_us_msg", "async1_100", CPU, (None, None)),
    Compared("put one by one, with dispatch", "async", "cpu_us_msg", "async1_100", CPU, (0.4, 0.8)),
    Compared("put_many, with dispatch", "many", "cpu_us_msg", "async1_100", CPU, (0.8, None)),
    Compared("put_columns, with dispatch", "columns", "cpu_us_msg", "async1_100", CPU, (0.8, None)),
    Compared("put_columns beside batches of 100", "columns", "cpu_us_msg", "batch1_100", CPU, (None, None)),
    Compared("sync put, 8 producers", "sync", WALL, "sync8_100", WALL, (1, None)),
    Compared("sync put, window of 512", "pipelined", WALL, "syncpipe_100", WALL, (1, None)),
    Compared("rebuild of queues and index", "rebuild", WALL, "rebuild", WALL, (1, None)),
)
MESSAGES = {
    "producer": 50_000,
    "producer-many": 300_000,
    "async": 200_000,
    "many": 300_000,
    "columns": 500_000,
    "sync": 20_000,
    "pipelined": 100_000,
}


def run(command: Sequence[str]) -> dict[str, float]:
    """Run a program; return the numbers of the line that ends its output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return figures(done.stdout)


def ours(scenario: str, directory: Path, *options: object) -> dict[str, float]:
    """Measure the engine in a process of its own."""
    return run([sys.executable, "-m", "tests.bench.engine_puts", scenario, str(directory), *map(str, options)])


def theirs(version: str, directory: Path) -> dict[str, dict[str, float]]:
    """Measure the real store: all scenarios in one machine that has warmed up."""
    suite = [" ".join([name, f"--messages {PUTS[name][0]}", PUTS[name][1], *LIKE_A_PRODUCER]) for name in SCENARIOS]
    flat = run(peer(version, "suite", str(directory), *suite, settings=PRETOUCHED))
    found: dict[str, dict[str, float]] = {}
    for name, value in flat.items():
        if name.startswith("scenarios."):
            _, scenario, key = name.split(".", 2)
            found.setdefault(scenario, {})[key] = value
    return found


def keep_best(best: dict[str, dict[str, float]], scenario: str, found: dict[str, float]) -> None:
    """Keep the least of every figure."""
    kept = best.setdefault(scenario, {})
    for key, value in found.items():
        kept[key] = min(value, kept.get(key, value))


def measure(scratch: Path) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, dict[str, float]]]]:
    """Measure both, in turns; return the best of ours, and of the peer's by version."""
    mine: dict[str, dict[str, float]] = {}
    peers: dict[str, dict[str, dict[str, float]]] = {version: {} for version in VERSIONS}
    written = scratch / "written"
    ours("columns", written, "--messages", STORED)
    # Each rebuilds a store of its own: copying one reads its reserved room, which costs time from then on.
    for version in VERSIONS:
        sizes = ["--messages", str(STORED), "--body", "100", "--keep"]
        run(peer(version, "gen", str(scratch / version), *sizes, *LIKE_A_PRODUCER))
    for _ in range(ROUNDS):
        for scenario, messages in MESSAGES.items():
            keep_best(mine, scenario, ours(scenario, scratch / "ours", "--messages", messages))
        keep_best(mine, "rebuild", ours("rebuild", written))
        for version in VERSIONS:
            for scenario, found in theirs(version, scratch / "theirs").items():
                keep_best(peers[version], scenario, found)
            found = run(peer(version, "rebuild", str(scratch / version), settings=PRETOUCHED))
            keep_best(peers[version], "rebuild", {WALL: 1e6 / found["msg_s_ready"]})
    return mine, peers


def test_puts_and_rebuilding_beside_the_real_store(
    real_classes: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for version in VERSIONS:
        real_classes(version)
    build()
    scratch = work() / "data" / "engine"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    mine, peers = measure(scratch)
    shutil.rmtree(scratch)
    lines, slow = [], []
    for row in TABLE:
        cost = mine[row.ours][row.our_key]
        line: list[object] = [row.says, f"{cost:.2f}"]
        for version, wanted in zip(VERSIONS, row.wanted, strict=True):
            beside = peers[version][row.peers][row.peer_key]
            line += [f"{beside:.2f}", f"{beside / cost:.2f}", wanted or ""]
            if wanted is not None and beside / cost < wanted * NOISE:
                slow.append(f"{row.says}: {beside / cost:.2f} of {version}, wanted {wanted}")
        lines.append(line)
    head = ["us a message", "ours", *(word for version in VERSIONS for word in (version, "times", "wanted"))]
    with capsys.disabled():
        print("\n" + tabulate(lines, headers=head, tablefmt="github", disable_numparse=True))
        print(json.dumps({"ours": mine, "peers": peers}))
    assert not slow, slow


def test_memory_does_not_grow_with_what_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ours("columns", tmp_path, "--messages", 1_250_000, "--body", 4000)
    with capsys.disabled():
        print(f"\n{found['rss_mib']:.0f} MiB at most over 5 GiB written (limit {MEMORY})")
    assert found["rss_mib"] <= MEMORY
