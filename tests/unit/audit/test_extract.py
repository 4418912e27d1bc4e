"""How often a repair reads the log: once for a plan, and for what is done at most once more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqtool.audit.due import Batch, Wanted
from rmqtool.audit.log_pass import LogExtract
from rmqtool.config import Version
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats.dispatch import DispatchRules
from rmqtool.log.walk import Place
from rmqtool.repairs.plan import Plan, Request
from rmqtool.repairs.run import plan_only, repair
from rmqtool.repairs.steps import Part, Risk
from rmqtool.store.listing import list_store
from rmqtool.store.open import Store
from rmqtool.store.segments import Segment
from tests.support.counted_files import CountedFiles, Read
from tests.support.engine_stores import a_message, small_setup

SEGMENT = 16 << 20
# The last segment is nearly full: what is behind its end is zeros, which are read too.
MESSAGES = 2450
SETTINGS = {"mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 20_000, "maxIndexNum": 1200}
FIRST = "commitlog/00000000000000000000"
EVERY = Request(risks=frozenset(Risk))
# Heads of segments, the records where queues end: what is read beside the one reading is no more than this part.
BESIDE = 0.6


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of three segments, two of them full, with two queues and an index."""
    root = tmp_path_factory.mktemp("counted") / "store"
    root.mkdir()
    with PosixWritableFileSystem(str(root)) as files:
        setup = small_setup(Version.V5_3, files, **SETTINGS)
        with MessageStore.create(setup) as store:
            for number in range(MESSAGES):
                assert store.put(a_message(number, queue_id=number % 2, body=bytes(20_000))).is_ok
    return root


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


class Counted:
    """Opens a store, and counts what is read of its log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.read: list[Read] = []

    def open(self) -> Store:
        config = small_setup(Version.V5_3, **SETTINGS).config
        files = CountedFiles(self.root, self.read)
        listing = list_store(files, [("commitlog", files)])
        return Store(str(self.root), files, config, listing, config.version, "as the test says")

    def readings(self) -> float:
        """Return how often the bytes of the log were read, on the average."""
        size = sum(path.stat().st_size for path in (self.root / "commitlog").iterdir())
        return sum(count for path, count in self.read if path.startswith("commitlog/")) / size


def lose_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/T/1")


def lose_the_index(root: Path) -> None:
    shutil.rmtree(root / "index")


def turn_a_unit(root: Path) -> None:
    path = sorted((root / "consumequeue/T/0").iterdir())[0]
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)


def turn_an_index_entry(root: Path) -> None:
    """Only comparing the entry with its record shows it: the file is consistent in itself."""
    path = min((root / "index").iterdir())
    data = bytearray(path.read_bytes())
    data[-20 * 5 - 9] ^= 1  # the low byte of a place, of an entry before the last
    path.write_bytes(data)


def let_units_be_ahead(root: Path) -> None:
    path = max((root / "consumequeue/T/0").iterdir())
    data = bytearray(path.read_bytes())
    end = -(-len(data.rstrip(b"\0")) // 20) * 20
    data[end : end + 20] = (1 << 40).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [lose_a_queue, lose_the_index, turn_a_unit, turn_an_index_entry, let_units_be_ahead])
def test_a_plan_reads_the_log_once_and_a_repair_once_more_at_most(damage: Callable[[Path], None], store):
    damage(store)
    counted = Counted(store)
    planned = plan_only(counted.open, EVERY)
    assert planned.steps
    assert planned.left == []
    assert counted.readings() <= 1 + BESIDE
    counted.read.clear()
    done = repair(counted.open, EVERY, planned.id)
    assert (done.applied, done.left) == (True, [])
    assert counted.readings() <= 2 + BESIDE


def test_a_segment_that_a_plan_bridges_is_read_again_and_no_other(store):
    with (store / FIRST).open("r+b") as file:
        file.seek(200_000)
        file.write(b"????")
    counted = Counted(store)
    planned = plan_only(counted.open, EVERY)
    assert planned.steps[0].part is Part.LOG
    by_path = {path: 0 for path, _ in counted.read if path.startswith("commitlog/")}
    for path, count in counted.read:
        if path in by_path:
            by_path[path] += count
    others = [count / SEGMENT for path, count in by_path.items() if path != FIRST]
    assert len(others) >= 2
    assert max(others) <= 1 + BESIDE


def test_the_look_afterwards_reads_what_was_repaired(store):
    """Queues and index are compared with the log as they are on the disk then, not as the plan had them."""
    lose_a_queue(store)
    counted = Counted(store)
    plans: list[Plan] = []

    def opened() -> Store:
        if (store / "consumequeue/T/1").exists():  # the repair is done: it is looked at
            turn_a_unit(store)
        return counted.open()

    plans.append(repair(opened, EVERY))
    assert [(found.code, found.file) for found in plans[0].left] == [
        ("CQ-WRONG", "consumequeue/T/0/00000000000000000000")
    ]


def pieces_of(root: Path, extract: LogExtract) -> list[Batch | Place]:
    with PosixReadableFileSystem(str(root)) as files:
        return list(extract.pieces(Segment(0, SEGMENT, FIRST, files)))


def test_what_is_kept_is_what_was_read(store):
    with LogExtract(Wanted(DispatchRules())) as extract:
        read, kept = pieces_of(store, extract), pieces_of(store, extract)
    assert len(read) == len(kept) == 2
    (one, blank), (other, same) = read, kept
    assert isinstance(one, Batch)
    assert isinstance(other, Batch)
    assert isinstance(blank, Place)
    assert blank == same
    for name in ("physical_offsets", "sizes", "store_timestamps"):
        assert getattr(one, name).dtype == getattr(other, name).dtype == np.int64
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    for (topics, *columns), (others, *more) in zip(one.entries, other.entries, strict=True):
        assert topics == others
        assert [column.tolist() for column in columns] == [column.tolist() for column in more]
    assert [column.tolist() for column in one.keys] == [column.tolist() for column in other.keys]
    assert (one.hosts, one.heads) == (other.hosts, other.heads)


def test_a_segment_that_changed_is_read_again(store):
    with LogExtract(Wanted(DispatchRules())) as extract:
        before = pieces_of(store, extract)
        with (store / FIRST).open("r+b") as file:
            file.seek(100)
            file.write(b"?")
        after = pieces_of(store, extract)
    assert isinstance(before[0], Batch)
    assert isinstance(after[0], Place)
