"""A log that is being written as a stream: every message once, whatever is stopped, begun anew, torn or deleted.

A query is played as Spark plays it, without a JVM: offsets become JSON between two triggers, splits and what reads them
are pickled, and a batch that was planned may be asked for again.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from rmqtool.errors import StoreError, UsageError
from rmqtool.files.filesystem import Entry
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.spark.options import parse_options
from rmqtool.spark.source import RocketMQSource
from rmqtool.spark.stream import RocketMQStreamReader
from tests.support.builders import blank, record
from tests.support.growing_store import GrowingStore

FIRST_TIME = 1_700_000_000_000


class Query:
    """A streaming query over stores: what it has given, and its checkpoint."""

    def __init__(self, *roots: Path, **options: str) -> None:
        self.options = {"paths": json.dumps(list(map(str, roots)))} | options
        self.checkpoint: str | None = None
        self.rows: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        """Begin, or begin anew from the checkpoint."""
        source = RocketMQSource(self.options)
        self.schema = source.schema()
        reader = source.streamReader(self.schema)
        assert isinstance(reader, RocketMQStreamReader)
        self.reader = reader

    def plan(self) -> tuple[Any, Any] | None:
        """Return the offsets of the next batch, None when there is nothing new."""
        start = json.loads(self.checkpoint or json.dumps(self.reader.initialOffset()))
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        return None if end == start else (start, end)

    def read(self, start: Any, end: Any) -> list[dict[str, Any]]:
        """Return the rows of a batch, each split read by a reader of its own."""
        splits = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        reader = pickle.loads(pickle.dumps(self.reader))
        return [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]

    def trigger(self) -> int | None:
        """Do one batch; return how many rows it had, None when there was none to do."""
        planned = self.plan()
        if planned is None:
            return None
        found = self.read(*planned)
        self.rows += found
        self.checkpoint = json.dumps(planned[1])
        return len(found)

    def run(self) -> list[int]:
        """Do batches until there is nothing new; return their sizes."""
        return list(iter(self.trigger, None))

    def keys(self) -> list[str]:
        return [row["msg_id"] for row in self.rows]


def wanted(count: int) -> list[str]:
    return [f"U{number:08}" for number in range(count)]


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path / "broker-a" / "store")


def test_every_message_once_while_a_writer_appends_and_tears_and_the_query_restarts(store: GrowingStore) -> None:
    query = Query(store.root, maxBytesPerTrigger="6000", splitSize="4k")
    chance = random.Random(15)
    for turn in range(60):
        store.append(chance.randrange(12))
        if turn % 3 == 0:
            store.append_torn()
        if turn % 7 == 0:
            query.start()
        query.trigger()
        assert query.keys() == wanted(len(query.rows))
    store.complete()
    query.run()
    assert query.keys() == wanted(store.written)
    assert store.end > 3 * store.segment_size
    assert all(row["broker"] == "broker-a" for row in query.rows)


def test_batch_that_is_asked_for_again_is_the_same(store: GrowingStore) -> None:
    """A driver that is killed between plan and commit plans the batch from the two offsets alone, in a longer log."""
    query = Query(store.root, maxBytesPerTrigger="3000")
    for _ in range(12):
        store.append(40)
        planned = query.plan()
        assert planned is not None
        before = query.read(*planned)
        store.append(30)
        query.start()
        assert query.read(*planned) == before
        query.checkpoint = json.dumps(planned[1])
        query.rows += before
    query.run()
    assert query.keys() == wanted(store.written)


def test_record_that_is_not_whole_is_waited_for(store: GrowingStore) -> None:
    """Whatever part of the last record is written, and zeros behind it: it is not given, and comes when it is whole."""
    store.append(5)
    place, data = store.end, store._next()
    query = Query(store.root)
    for cut in range(len(data)):
        store._write(place, data[:cut])
        query.run()
        assert query.keys() == wanted(5), cut
    store._write(place, data)
    store._advance(data)
    query.run()
    assert query.keys() == wanted(6)


def test_body_that_is_not_whole_is_waited_for(store: GrowingStore) -> None:
    """Its lengths add up, and topic and properties are there: only the checksum tells."""
    store.append(2)
    place, data = store.end, store._next()
    torn = bytearray(data)
    torn[88:92] = bytes(4)
    store._write(place, bytes(torn))
    query = Query(store.root)
    query.run()
    assert query.keys() == wanted(2)
    store._write(place, data)
    store._advance(data)
    store.append(1)
    query.run()
    assert query.keys() == wanted(4)


def test_records_are_held_back_for_the_safety_lag(store: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(10)
    monkeypatch.setattr("rmqtool.spark.stream.time.time_ns", lambda: (FIRST_TIME + 7) * 1_000_000)
    assert Query(store.root, safetyLag="7ms").run() == [1]
    assert Query(store.root, safetyLag="3 ms", maxBytesPerTrigger="1m").run() == [5]
    assert Query(store.root, safetyLag="0").run() == [8]
    assert Query(store.root, safetyLag="8").run() == []
    query = Query(store.root)
    assert query.run() == []
    monkeypatch.setattr("rmqtool.spark.stream.time.time_ns", lambda: (FIRST_TIME + 1009) * 1_000_000)
    assert query.run() == [10]


def test_what_is_there_now_ends_the_query_that_asks_for_it(store: GrowingStore) -> None:
    store.append(300)
    query = Query(store.root, maxBytesPerTrigger="9000")
    query.reader.prepareForTriggerAvailableNow()
    store.append(100)
    assert query.trigger() is not None
    sizes = query.run()
    assert query.keys() == wanted(300)
    assert len(sizes) > 3
    query.start()
    query.reader.prepareForTriggerAvailableNow()
    query.run()
    assert query.keys() == wanted(400)


def test_limit_bounds_a_batch_and_one_larger_record_still_comes(store: GrowingStore) -> None:
    store.append(100)
    query = Query(store.root, maxBytesPerTrigger="1000")
    sizes = query.run()
    assert query.keys() == wanted(100)
    assert max(row["store_size"] for row in query.rows) < 300
    assert max(sizes) <= 8
    assert Query(store.root, maxBytesPerTrigger="1").run() == [1] * 100


def test_without_a_limit_one_batch_has_everything(store: GrowingStore) -> None:
    store.append(500)
    query = Query(store.root)
    assert query.reader.getDefaultReadLimit() == ReadAllAvailable()
    assert query.run() == [500]
    assert query.run() == []


def test_old_records_behind_the_end_are_not_taken_for_new_ones(store: GrowingStore) -> None:
    """A recovery moved the end back and cleared nothing: what stands behind it is a record in its right place."""
    store.append(20)
    query = Query(store.root)
    query.run()
    old = record(b"old", b"Growing", b"", physical_offset=store.end + 70, store_timestamp=FIRST_TIME - 5)
    store._write(store.end, b"\1" * 70 + old)
    assert query.run() == []
    store.append(1)
    store._write(store.end, b"\1" * 70 + old)
    query.start()
    query.run()
    assert query.keys() == wanted(21)


def test_two_stores_and_one_that_joins(store: GrowingStore, tmp_path: Path) -> None:
    other = GrowingStore(tmp_path / "broker-b" / "store")
    store.append(30)
    query = Query(store.root)
    query.run()
    other.append(50)
    store.append(3)
    query.options["paths"] = json.dumps([str(store.root), str(other.root)])
    query.start()
    query.run()
    by_broker = [[row["msg_id"] for row in query.rows if row["broker"] == f"broker-{name}"] for name in "ab"]
    assert by_broker == [wanted(33), wanted(50)]


def test_store_under_another_name_is_not_read_again(store: GrowingStore) -> None:
    store.append(3)
    query = Query(store.root)
    query.run()
    moved = store.root.parent.rename(store.root.parent.with_name("broker-x"))
    query.options["paths"] = json.dumps([str(moved / "store")])
    query.start()
    with pytest.raises(StoreError, match="the checkpoint of this query names broker-a, and no store"):
        query.trigger()


def test_store_that_is_still_empty(tmp_path: Path) -> None:
    for name in ("commitlog", "consumequeue"):
        (tmp_path / "store" / name).mkdir(parents=True)
    query = Query(tmp_path / "store")
    assert query.run() == []
    with (tmp_path / "store" / "commitlog" / f"{0:020}").open("xb") as file:
        file.write(record(b"first", b"T", b"UNIQ_KEY\1first\2", store_timestamp=FIRST_TIME))
        file.truncate(4096)
    query.run()
    assert query.keys() == ["first"]


class TestRetention:
    """Segments are deleted before the query comes to them."""

    @pytest.fixture
    def query(self, store: GrowingStore) -> Query:
        store.append(20)
        query = Query(store.root, topic="Grow*")
        query.run()
        store.append(300)
        store.delete_first_segment()
        return query

    def test_ends_the_query(self, store: GrowingStore, query: Query) -> None:
        with pytest.raises(StoreError, match=r"the store of broker-a has lost data: its log from \d+ to 16384 was del"):
            query.trigger()
        assert len(query.rows) == 20

    def test_is_stepped_over_where_that_is_wanted(self, store: GrowingStore, query: Query) -> None:
        query.options["failOnDataLoss"] = "false"
        query.start()
        query.run()
        first = next(number for number, offset in enumerate(store._offsets) if offset >= store.segment_size)
        assert query.keys() == wanted(20) + wanted(320)[first:]

    def test_is_told_of_with_damage(self, store: GrowingStore, query: Query) -> None:
        query.options |= {"failOnDataLoss": "false", "onCorrupt": "emit"}
        query.start()
        query.run()
        (told,) = [row for row in query.rows[20:] if row["record_status"] is not None]
        assert told["record_status"].startswith("CL-GAP: ")
        assert told["commitlog_offset"] + told["store_size"] == store.segment_size
        assert told["commitlog_offset"] == store._offsets[20]

    def test_between_plan_and_reading(self, store: GrowingStore) -> None:
        """Then the query ends, however it is asked: begun anew it plans without the file."""
        store.append(300)
        query = Query(store.root, failOnDataLoss="false")
        planned = query.plan()
        assert planned is not None
        splits = query.reader.partitions(*planned)
        store.delete_first_segment()
        with pytest.raises(StoreError, match="cannot open"):
            list(query.reader.read(splits[0]))
        query.checkpoint = None
        assert 0 < len(query.read(*planned)) < 300


class TestCutBack:
    """A broker that crashed lost what was not flushed, and wrote other messages in its place."""

    @pytest.fixture
    def query(self, store: GrowingStore) -> Query:
        store.append(10)
        query = Query(store.root)
        query.run()
        store.cut_back(3)
        return query

    def test_ends_the_query(self, store: GrowingStore, query: Query) -> None:
        with pytest.raises(StoreError, match="its log was cut before"):
            query.trigger()
        store.append(50)
        with pytest.raises(StoreError, match="rewritten"):
            query.trigger()

    def test_goes_on_where_that_is_wanted(self, store: GrowingStore, query: Query) -> None:
        store.append(50)
        query.options["failOnDataLoss"] = "false"
        query.start()
        query.run()
        assert query.keys()[:10] == wanted(10)
        later = query.keys()[10:]
        assert later == wanted(store.written)[-len(later) :]
        assert len(later) >= 46


def test_damage_is_no_end(store: GrowingStore) -> None:
    """Wrong bytes in the midst of the log are damage once records follow, with a smaller limit than they are too."""
    store.append(60)
    store._write(store._offsets[10], b"\xff" * (store._offsets[20] - store._offsets[10]))
    query = Query(store.root, maxBytesPerTrigger="200", onCorrupt="emit")
    query.run()
    assert [row["msg_id"] for row in query.rows if row["record_status"] is None] == wanted(60)[:10] + wanted(60)[20:]
    assert {row["record_status"].partition(":")[0] for row in query.rows if row["record_status"]} == {"CL-MAGIC"}
    failing = Query(store.root)
    with pytest.raises(StoreError, match="CL-MAGIC"):
        failing.run()


def test_segment_without_a_blank_is_gone_over(tmp_path: Path) -> None:
    """The rest of a segment may be zeros: what follows tells that nothing will be written there."""
    store = GrowingStore(tmp_path / "broker-a" / "store")
    store.append(200)
    at = next(number for number, offset in enumerate(store._offsets) if offset >= store.segment_size)
    last = store._offsets[at - 1]
    with (store.root / "commitlog" / f"{0:020}").open("r+b") as file:
        data = file.read()
        size = int.from_bytes(data[last : last + 4], "big")
        file.seek(last + size)
        assert data[last + size :].startswith(blank(store.segment_size - last - size))
        file.write(bytes(store.segment_size - last - size))
    query = Query(store.root, maxBytesPerTrigger="2000", onCorrupt="skip")
    query.run()
    assert query.keys() == wanted(200)


def test_time_skips_files_and_topics_choose(store: GrowingStore) -> None:
    store.append(600)
    query = Query(store.root, startTime=str(FIRST_TIME + 500), queueId="1")
    initial = query.reader.initialOffset()
    assert initial["broker-a"]["commitLogOffset"] >= store.segment_size
    query.run()
    assert query.keys() == [key for number, key in enumerate(wanted(600)) if number >= 500 and number % 4 == 1]


SENTENCES: dict[str, tuple[dict[str, str], str]] = {
    "size": ({"maxBytesPerTrigger": "much"}, 'maxBytesPerTrigger: "much" is not a size'),
    "nothing": ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger: 0 would never read anything"),
    "lag": ({"safetyLag": "long"}, 'safetyLag: "long" is not a duration'),
    "boolean": ({"failOnDataLoss": "perhaps"}, 'failOnDataLoss is neither true nor false: "perhaps"'),
}


@pytest.mark.parametrize(("options", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_option_that_cannot_be_meant(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_options({"path": "/data/store"} | options)


def test_lengths_of_time() -> None:
    lags: Iterator[int] = (
        parse_options({"path": "/x", "safetyLag": text}).following.safety_lag
        for text in ("5", "5ms", "5 s", "2m", "1h")
    )
    assert list(lags) == [5, 5, 5000, 120_000, 3_600_000]


def test_trigger_looks_at_no_queue(store: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store has thousands of them, and a stream asks many times a second where its log ends."""
    for number in range(3):
        queue = store.root / "consumequeue" / "Growing" / str(number)
        queue.mkdir(parents=True)
        (queue / f"{0:020}").write_bytes(bytes(40))
    listed: list[str] = []
    real = PosixReadableFileSystem.listdir

    def listdir(self: PosixReadableFileSystem, path: str) -> list[Entry]:
        listed.append(path)
        return real(self, path)

    monkeypatch.setattr(PosixReadableFileSystem, "listdir", listdir)
    store.append(20)
    query = Query(store.root, topic="Growing")
    query.run()
    assert query.keys() == wanted(20)
    assert "commitlog" in listed
    assert [path for path in listed if path.startswith("consumequeue")] == []


def test_limit_is_shared_between_stores(store: GrowingStore, tmp_path: Path) -> None:
    other = GrowingStore(tmp_path / "broker-b" / "store")
    store.append(100)
    other.append(100)
    query = Query(store.root, other.root, maxBytesPerTrigger="2000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(2000)
    query.trigger()
    assert {row["broker"] for row in query.rows} == {"broker-a", "broker-b"}
    assert sum(row["store_size"] for row in query.rows) < 2000 + 2 * 300
