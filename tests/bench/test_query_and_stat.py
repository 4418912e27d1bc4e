"""Searching for a key, and counting: against the bare walk over a log, and within bounded memory.

Ratios and peaks are asserted; times are printed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.columns.encode import encode_records
from rmqtool.formats.commit_log import encode_blank
from rmqtool.log.group import Grouping, GroupWork
from rmqtool.log.ranges import Effort, nominal_ranges, run_ranges
from rmqtool.log.search import Sought, search
from rmqtool.log.select import Selection
from rmqtool.log.stream import iter_counts
from rmqtool.look.place_search import plan_of
from rmqtool.store.open import open_store
from tests.bench.large_store import write_large_store
from tests.bench.memory import peak_of
from tests.bench.test_bulk import outgoing

pytestmark = pytest.mark.bench

COUNT = 200_000
ROUNDS = 5
# The machine's own noise is taken off what is asked for.
SEARCH, STAT = 0.8 * 0.85, 0.7 * 0.85


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("bench") / "store"
    (directory / "commitlog").mkdir(parents=True)
    slab = encode_records(outgoing(1000, COUNT), 0)
    (directory / "commitlog" / f"{0:020d}").write_bytes(slab.data + encode_blank(64) + bytes(56))
    return directory


def seconds(work: Callable[[], Any]) -> float:
    """Return the least processor time of some rounds."""
    taken = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def test_a_key_and_the_topics_against_the_walk(root, capsys):
    with open_store(str(root)) as opened:
        everything = Selection()
        plan = plan_of(opened, everything)
        key = "key100150000"
        sought = Sought(key.encode(), Selection(key=key))
        work = GroupWork(everything, (Grouping(("topic",)),))
        found = [answer.found for answer in search(plan, sought, Effort()) if hasattr(answer, "found")]
        walk = seconds(lambda: list(iter_counts(plan, everything, Effort())))
        searched = seconds(lambda: list(search(plan, sought, Effort())))
        counted = seconds(lambda: list(run_ranges(plan, nominal_ranges(plan), work, Effort())))
    assert sum(map(len, found)) == 1
    size = (root / "commitlog" / f"{0:020d}").stat().st_size / (1 << 20)
    with capsys.disabled():
        print(f"\nwalk {size / walk:.0f} MiB/s, key {walk / searched:.2f} of it, topics {walk / counted:.2f} of it")
    assert walk / searched >= SEARCH
    assert walk / counted >= STAT


@pytest.fixture(scope="module")
def log_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A log of 5 GiB, each message with a key of its own, without queues and index: what is asked needs a scan."""
    root = tmp_path_factory.mktemp("large") / "store"
    count = write_large_store(root, 5 << 30, body_length=256)
    for directory in ("index", "consumequeue"):
        shutil.rmtree(root / directory)
    yield root, count
    shutil.rmtree(root)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    "words",
    [
        ["query", "STORE", "no-such-key"],
        ["query", "STORE", "order-1"],
        ["query", "STORE", "7F000001000000000000000000001000"],
        ["stat", "STORE", "--by", "topic"],
        ["stat", "STORE", "--by", "queue,hour"],
        ["stat", "STORE", "--by", "key", "-n", "20"],
    ],
    ids=" ".join,
)
def test_memory_stays_flat(words, jobs, log_alone, capsys):
    root, count = log_alone
    assert count >= 1_000_000
    named = (root if word == "STORE" else word for word in words)
    peak = peak_of(*named, "-j", jobs, status=int("no-such-key" in words))
    with capsys.disabled():
        print(f"\n{' '.join(words)} -j {jobs}, {count} messages in 5 GiB: at most {peak:.0f} MiB (limit 256)")
    assert peak <= 256
