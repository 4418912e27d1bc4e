"""``browse`` on stores of real brokers and on damaged ones: every page opens, nothing is changed, little is read."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from rmqtool.browse.file_pages import FilePage
from rmqtool.browse.message_pages import LogPage
from rmqtool.browse.page import GrowingPage
from rmqtool.browse.queue_pages import QueuePage
from rmqtool.browse.tree import store_tree
from rmqtool.formats import layouts
from rmqtool.log.end import first_record
from tests.support.browsed import Walk, explorer_at, make_shop
from tests.support.builders import properties, queue_unit, record
from tests.support.counted_files import CountedFiles
from tests.support.damaged import Workshop, mutations, sample
from tests.support.stores import STORES, left_alone

VERSIONS = ("4.9.8", "5.3.3", "5.4.0")
# A damaged store is walked without a check of the store, which other tests do.
DAMAGED = [
    (version, key) for version, count in zip(VERSIONS, (67, 67, 66), strict=True) for key in sample(version, count)
]
QUICK_STORES = ("49-dledger", "53-compaction")
QUICK_STEPS = 20
GIB = 1 << 30
ROWS = 20


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK_STORES else pytest.mark.slow) for name in STORES]
)
def test_every_node_of_a_store_opens(store, name):
    root = store(name)
    with left_alone(root):
        quick = name in QUICK_STORES
        walk = Walk(root, checks=not quick, steps=QUICK_STEPS if quick else 120)
        walk.run()
    assert len(walk.pages) > 20
    assert {"groups", "delayed", "transactions", "settings"} <= set(walk.pages)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.mark.parametrize(
    ("version", "key"),
    [pytest.param(*one, marks=() if number % 100 == 50 else pytest.mark.slow) for number, one in enumerate(DAMAGED)],
)
def test_every_node_of_a_damaged_store_opens(workshop, version, key):
    with workshop.damaged(version, mutations(version)[key], abort=True) as root, left_alone(root):
        walk = Walk(root, seed=len(key), checks=False, steps=QUICK_STEPS)
        walk.run()
    assert len(walk.pages) > 10


def large_store(root: Path, topics: int = 50, segments: int = 50) -> Path:
    """Make a store of 50 sparse GiB, with a few messages at the end of its log, and a queue of a million entries."""
    (root / "commitlog").mkdir(parents=True)
    for number in range(segments):
        with (root / "commitlog" / f"{number * GIB:020}").open("wb") as file:
            file.truncate(GIB)
    base = (segments - 1) * GIB
    at = 0
    with (root / "commitlog" / f"{base:020}").open("r+b") as file:
        for number in range(200):
            text = properties(("KEYS", f"key-{number}"))
            data = record(b"body %d" % number, b"T", text, queue_offset=number, physical_offset=base + at)
            file.seek(at)
            file.write(data)
            at += len(data)
    for number in range(topics):
        queue = root / "consumequeue" / (f"Topic{number:05}" if number else "T") / "0"
        queue.mkdir(parents=True)
        with (queue / f"{0:020}").open("wb") as file:
            file.write(b"".join(queue_unit(base, len(data), 0) for _ in range(1000 if number == 0 else 1)))
            file.truncate(6_000_000)
    return root


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return large_store(tmp_path_factory.mktemp("large") / "store")


def counted(root):
    """Return the explorer of a store, and what is read of its files from then on."""
    explorer = explorer_at(root)
    files = CountedFiles(root)
    explorer.store.filesystem = files
    explorer.store.listing.filesystem = files
    explorer.store.listing.log_segments = [
        segment._replace(filesystem=files) for segment in explorer.store.listing.log_segments
    ]
    return explorer, files


def bytes_read(files, before):
    return sum(length for _, length in files.read[before:])


def test_the_first_screen_reads_no_queue_and_no_record(large):
    explorer, files = counted(large)
    for node in store_tree(explorer).shown():
        node.below()
    assert files.read == []
    explorer.close()


def test_a_queue_reads_what_it_shows(large):
    explorer, files = counted(large)
    page = QueuePage(explorer, "T", 0)
    assert page.end == 1000
    before = len(files.read)
    rows = page.rows(500, ROWS)
    assert [row.position for row in rows] == list(range(500, 500 + ROWS))
    entries = [length for path, length in files.read[before:] if path.startswith("consumequeue/")]
    assert sum(entries) == ROWS * layouts.CONSUME_QUEUE_UNIT.size
    assert bytes_read(files, before) < ROWS * 5000
    explorer.close()


PAGED = """
import sys
from tests.cli.test_browse_walk import ROWS, counted
from rmqtool.browse.queue_pages import QueuePage

explorer, files = counted(sys.argv[1])
page = QueuePage(explorer, "T", 0)
files.read.clear()
shown = entries = 0
for at in range(page.start, page.end, 200):
    shown += len(page.rows(at, ROWS))
    entries += sum(length for path, length in files.read if path.startswith("consumequeue/T/"))
    files.read.clear()
memory = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(page.end, shown, entries, int(memory.split()[1]) // 1024)
"""


@pytest.mark.slow
def test_screens_of_a_million_rows_take_bounded_memory(tmp_path):
    root = large_store(tmp_path / "store", 1)
    directory = root / "consumequeue/T/0"
    some = (directory / f"{0:020}").read_bytes()[: 1000 * 20]
    for segment in range(4):
        data = some * min(300, 1000 - 300 * segment)
        (directory / f"{segment * 6_000_000:020}").write_bytes(data.ljust(6_000_000, b"\0"))
    done = subprocess.run([sys.executable, "-c", PAGED, str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    end, shown, entries, memory = map(int, done.stdout.split())
    assert (end, shown) == (1_000_000, 5000 * ROWS)
    assert entries == shown * layouts.CONSUME_QUEUE_UNIT.size
    assert memory <= 200


def test_the_log_reads_what_it_shows(large):
    explorer, files = counted(large)
    *_, last = explorer.log()
    page = LogPage(explorer, explorer.segment_file(last))
    first = first_record(explorer.log())
    assert first is not None
    before = len(files.read)
    rows = page.rows(0, ROWS)
    assert len(rows) == ROWS
    assert rows[0].cells[1] == "T/0@0"
    assert bytes_read(files, before) < 1 << 18
    before = len(files.read)
    top = page.back(page.end, ROWS)
    rows = page.rows(top, ROWS)
    assert "nothing written" in rows[-1].cells[-1]
    assert rows[-2].cells[1] == "T/0@199"
    assert bytes_read(files, before) < 1 << 23
    explorer.close()


def test_a_file_reads_what_it_shows(large):
    explorer, files = counted(large)
    *_, last = explorer.log()
    page = FilePage(explorer.segment_file(last), explorer.follow)
    records = [row.position for row in LogPage(explorer, explorer.segment_file(last)).rows(0, 150)]
    before = len(files.read)
    rows = page.rows(records[-1], ROWS)
    assert rows[0].position == records[-1]
    assert rows[0].cells[2] == "▸ totalSize"
    assert bytes_read(files, before) < 1 << 20
    assert page.back(rows[3].position, 3) == records[-1]
    explorer.close()


def test_a_file_page_names_each_byte_once(store):
    for name in ("49-dledger", "53-broker", "53-timer"):
        explorer = explorer_at(store(name))
        for file in explorer.store.listing.files:
            if file.size > 1 << 20 or not file.size:
                continue
            page = FilePage(explorer.file_at(file.path), explorer.follow)
            rows = page.rows(0, 1 << 20)
            assert rows[0].position == 0, file.path
            for row, later in pairwise(rows):
                shown = row.cells[1]
                long = shown.endswith("..") or later.position - row.position == len(shown.split())
                assert long, (file.path, row, later.position)
        explorer.close()


def test_a_growing_page_tells_what_failed(tmp_path):
    root = make_shop(tmp_path / "store", 5)
    explorer = explorer_at(root)
    page = explorer.search("order-4701", store_tree(explorer).page().scope)
    assert isinstance(page, GrowingPage)
    for path in sorted((root / "commitlog").iterdir()):
        path.unlink()
    os.rename(root, root.parent / "elsewhere")
    page.load()
    assert page.listed[-1].style == "error"
    assert str(root) in page.listed[-1].details[0]
    explorer.close()
