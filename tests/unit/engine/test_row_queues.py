"""Queues in RocksDB as the engine writes them: what is in the store when a publication stops anywhere."""

from __future__ import annotations

import random
import time
from contextlib import closing
from pathlib import Path

import pytest

from rmqtool.engine.consume_queue import ConsumeQueue, DerivedFiles, DerivedQueue
from rmqtool.engine.recovery import rows as recovery_rows
from rmqtool.engine.row_queues import QueueRows, RowFiles
from rmqtool.engine.store import MessageStore
from rmqtool.errors import WriteFailed
from rmqtool.files.posix_write import PosixWritableFile, PosixWritableFileSystem
from rmqtool.formats.consume_queue import FILLER, LAST_OFFSET
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.store.listing import list_store
from rmqtool.store.rocksdb import ListedStore, open_database, read_bounds
from tests.support.engine_stores import a_message, small_setup, small_store

pytest.importorskip("rocksdict")
KEY = ("Orders", 0)


class Stopping(PosixWritableFileSystem):
    """Files of which the call with a number fails, and all after it."""

    def __init__(self, root: str, fails_at: int) -> None:
        super().__init__(root)
        self.left = fails_at

    def _count(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise WriteFailed("the process ends here")

    def create(self, path: str, size: int = 0) -> PosixWritableFile:
        self._count()
        return super().create(path, size)

    def open_write(self, path: str) -> PosixWritableFile:
        self._count()
        return super().open_write(path)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def fsync_dir(self, path: str = "") -> None:
        self._count()
        super().fsync_dir(path)


def listed(root: Path) -> ListedStore:
    files = PosixWritableFileSystem(str(root))
    return ListedStore(str(root), files, list_store(files, ()))


def bounds(root: Path) -> tuple[int, int] | None:
    with open_database(listed(root), "consumequeue") as database:
        return read_bounds(database).get(KEY)  # type: ignore[call-overload, no-any-return]


def put(rows: QueueRows, first: int, count: int) -> None:
    queue = ConsumeQueue(KEY, RowFiles(rows, KEY), first, first * 100 if first else -1)
    for number in range(first, first + count):
        rows.store_times[number * 100] = 1_700_000_000_000 + number
        queue.put(ConsumeQueueUnit(number * 100, 100, 7), number)
    queue.write_pending()
    rows.write_pending()


def made(root: Path) -> None:
    rows = QueueRows(listed(root))
    put(rows, 0, 3)
    rows.publish(PosixWritableFileSystem(str(root)))
    rows.close()


def test_rows_are_as_a_broker_writes_them(tmp_path: Path) -> None:
    made(tmp_path)
    with open_database(listed(tmp_path), "consumequeue") as database:
        assert dict(database.iter_rows("default")) == {
            bytes.fromhex(f"00000006014f7264657273010000000001{number:016x}"): bytes.fromhex(
                f"{number * 100:016x}00000064{7:016x}{1_700_000_000_000 + number:016x}"
            )
            for number in range(3)
        }
        assert dict(database.iter_rows("offset")) == {
            bytes.fromhex("00000006014f7264657273016d61780100000000"): bytes.fromhex(f"{200:016x}{2:016x}"),
            b"\0\0\0\x10\x01CHECKPOINT_TOPIC\x01max\x01\0\0\0\0": bytes.fromhex(f"{300:016x}"),
        }


def test_a_publication_that_stopped_before_it_was_seen_does_not_stop_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path)
    files = PosixWritableFileSystem(str(tmp_path))
    with monkeypatch.context() as patch, closing(QueueRows(listed(tmp_path))) as rows:
        patch.setattr(files, "rename", Stopping(str(tmp_path), 1).rename)
        put(rows, 3, 5)
        with pytest.raises(WriteFailed, match="the process ends"):
            rows.publish(files)
    assert bounds(tmp_path) == (0, 3)
    with closing(QueueRows(listed(tmp_path))) as rows:
        put(rows, 3, 5)
        rows.publish(files)
    assert bounds(tmp_path) == (0, 8)


def test_tables_have_durable_names_before_a_manifest_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second publication of a process adds to the manifest that CURRENT names already."""
    made(tmp_path)
    rows, files = QueueRows(listed(tmp_path)), PosixWritableFileSystem(str(tmp_path))
    put(rows, 3, 5)
    rows.publish(files)
    put(rows, 8, 2)
    calls: list[str] = []
    create, open_write, fsync_dir = files.create, files.open_write, files.fsync_dir
    monkeypatch.setattr(files, "create", lambda path, size=0: (calls.append(path), create(path, size))[1])
    monkeypatch.setattr(files, "open_write", lambda path: (calls.append(path), open_write(path))[1])
    monkeypatch.setattr(files, "fsync_dir", lambda path="": (calls.append("sync"), fsync_dir(path))[1])
    rows.publish(files)
    rows.close()
    manifest = next(at for at, call in enumerate(calls) if "MANIFEST-" in call)
    last_table = max(at for at, call in enumerate(calls) if call.endswith(".sst"))
    assert "sync" in calls[last_table:manifest]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_publication_that_stops_anywhere_leaves_the_old_rows_or_the_new_ones(tmp_path: Path, fresh: bool) -> None:
    """A database that is built again has no rows until it is whole; a broker then builds it from the log."""
    seen = set()
    for fails_at in range(1, 60, 2):
        root = tmp_path / str(fails_at)
        root.mkdir()
        made(root)
        rows = QueueRows(listed(root), fresh=fresh)
        put(rows, 0 if fresh else 3, 5)
        files = Stopping(str(root), fails_at)
        try:
            rows.publish(files)
        except WriteFailed:
            is_there = (root / "consumequeue/CURRENT").exists()
            seen.add(bounds(root) if is_there else None)
        else:
            assert bounds(root) == (0, 5 if fresh else 8)
            break
        finally:
            rows.close()
    else:
        pytest.fail("a publication takes more calls than that")
    assert fails_at > 8
    assert seen <= ({(0, 3), None, (0, 5)} if fresh else {(0, 3), (0, 8)})


def test_entries_are_taken_back(tmp_path: Path) -> None:
    rows = QueueRows(listed(tmp_path))
    put(rows, 0, 6)
    queue = ConsumeQueue(KEY, RowFiles(rows, KEY), 6, 600)
    queue.take_back(400)
    rows.cut(400)
    assert (queue.next_offset, queue.max_physic_offset, rows.read_checkpoint()) == (4, 400, 400)
    assert [row.queue_offset for row in rows.read(KEY, 0, 10)] == [0, 1, 2, 3]
    assert dict(rows.iter_ends())[KEY].max_offset == 4  # type: ignore[index]
    rows.close()


def test_a_queue_goes_on_after_a_row_that_only_fills_a_gap(tmp_path: Path) -> None:
    """A recovery leaves such a row at the end if the message after the gap is lost."""
    files = PosixWritableFileSystem(str(tmp_path))
    with small_store(files=files, storeType="defaultRocksDB") as store:
        assert store.put(a_message(topic=KEY[0])).is_ok
    with closing(QueueRows(listed(tmp_path))) as rows:
        rows.put_entry(KEY, 1, FILLER, 0)
        rows.put_end(KEY, 2, 0)
        rows.publish(files)
    with MessageStore.open(small_setup(files=files, storeType="defaultRocksDB")) as store:
        sent = store.put(a_message(1, topic=KEY[0]))
        assert sent.queue_offset == 2
    with closing(QueueRows(listed(tmp_path))) as rows:
        assert [row.value.physical_offset for row in rows.read(KEY, 2, 9)] == [sent.physical_offset]


def test_a_queue_goes_on_after_a_gap_that_was_taken_back_to(tmp_path: Path) -> None:
    files = DerivedFiles(PosixWritableFileSystem(str(tmp_path)))
    queue = ConsumeQueue(KEY, DerivedQueue(files, "consumequeue/Orders/0", 200))
    queue.put(ConsumeQueueUnit(5000, 100, 7), 3)
    queue.write_pending()
    queue.take_back(5000)
    queue.put(ConsumeQueueUnit(5000, 100, 7), 3)
    queue.write_pending()
    assert queue.read_unit(3) == ConsumeQueueUnit(5000, 100, 7)
    files.close()


def test_a_queue_far_from_0_is_taken_back_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DerivedFiles(PosixWritableFileSystem(str(tmp_path)))
    queue = ConsumeQueue(KEY, DerivedQueue(files, "consumequeue/Orders/0", 200))
    queue.put(ConsumeQueueUnit(5000, 100, 7), LAST_OFFSET)
    asked: list[str] = []
    monkeypatch.setattr(files, "exists", lambda path: asked.append(path) or len(asked) > 9)
    queue.take_back(5000)
    assert len(asked) < 5
    assert queue.next_offset == 0
    files.close()


def test_which_queue_offsets_records_claim() -> None:
    chance = random.Random(7)
    offsets = [chance.randrange(60) for _ in range(40)]
    queue = recovery_rows._Queue()
    for offset in offsets:
        queue.claim(offset, offset * 100)
    assert [offset for offset in range(-1, 62) if queue.claims(offset)] == sorted(set(offsets))
    assert (queue.rows.last, queue.rows.last_place) == (max(offsets), max(offsets) * 100)


def test_a_queue_with_many_gaps_takes_no_longer() -> None:
    queue = recovery_rows._Queue()
    begun = time.process_time()
    for offset in range(0, 60_000, 2):
        queue.claim(offset, offset)
        assert queue.claims(offset)
        assert not queue.claims(offset + 1)
    # Each look at all ranges took minutes.
    assert time.process_time() - begun < 5


def test_a_broker_finds_few_tables_to_merge(tmp_path: Path) -> None:
    """It stops its writes while a family has ten tables that are not merged."""
    for first in range(0, 20, 2):
        rows = QueueRows(listed(tmp_path))
        put(rows, first, 2)
        rows.publish(PosixWritableFileSystem(str(tmp_path)))
        rows.close()
    assert bounds(tmp_path) == (0, 20)
    rows = QueueRows(listed(tmp_path))
    unmerged = [rows.copy.count_unmerged(family) for family in ("default", "offset")]
    assert all(0 < count <= 7 for count in unmerged), unmerged
    rows.close()
