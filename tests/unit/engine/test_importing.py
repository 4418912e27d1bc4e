"""Messages put into a store as a whole: all of them or none, whatever stops it, and one job after the other."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rmqtool.cli import main
from rmqtool.columns.outgoing import Refusal, stage_messages
from rmqtool.config import StoreConfig, Version
from rmqtool.engine import bulk_load
from rmqtool.engine.bulk_load import import_staged, require_ready, staged_file
from rmqtool.engine.load import create_store
from rmqtool.errors import Refused, StoreError, StoreInUse
from rmqtool.files import publish as exchange
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.files.publish import JobDirectory
from rmqtool.formats.commit_log import Message
from rmqtool.formats.flaws import Flaw
from rmqtool.log.end import read_record
from rmqtool.log.walk import SegmentWalk
from rmqtool.store.open import open_store
from tests.support.engine_stores import iter_records
from tests.support.stores import FileState, tree_state

# What changes anything on a disk.
CHANGES = ("pwrite", "link", "mkdir", "rename", "unlink", "fsync", "fdatasync", "ftruncate", "rmdir")
SETTINGS = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 400,
    "maxIndexNum": 100,
    "maxHashSlotNum": 30,
}


def a_batch(count: int, first: int = 0, **columns: Any) -> pa.RecordBatch:
    numbers = range(first, first + count)
    given = {
        "topic": [f"T{number % 3}" for number in numbers],
        "body": [b"body %d " % number * (number % 7) for number in numbers],
        "keys": [f"k{number}" for number in numbers],
    }
    return pa.RecordBatch.from_pydict(given | columns)


def stage(root: Path, *batches: pa.RecordBatch, job: str = "j") -> tuple[JobDirectory, list[Any]]:
    """Stage a file for each batch."""
    staging, files = JobDirectory(str(root), job), []
    for number, batch in enumerate(batches):
        with staged_file(staging, str(number)) as writer:
            found = stage_messages(batch)
            assert not isinstance(found, Refusal)
            writer.write(found)
        files.append(writer.file())
    return staging, files


def put(root: Path, *batches: pa.RecordBatch) -> int:
    return import_staged(*stage(root, *batches))


def messages(root: Path) -> list[Message]:
    with PosixWritableFileSystem(str(root)) as files:
        return list(iter_records(files))


def check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Let the project's own check judge a store."""
    capsys.readouterr()
    status = main(["check", str(root), "--jsonl"])
    assert status == 0, capsys.readouterr().out


def state(root: Path) -> dict[str, FileState]:
    """Return every byte, mode and time of a store; a second name for a while changes the time of a change alone."""
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items()}


@contextmanager
def left_alone(root: Path) -> Iterator[None]:
    before = state(root)
    yield
    assert state(root) == before


def beside(root: Path) -> list[str]:
    return sorted(path.name for path in root.parent.iterdir() if path != root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give a closed store of small files that holds a hundred messages."""
    root = tmp_path / "store"
    root.mkdir()
    config = StoreConfig.default(Version.V5_3).at_root(str(root))
    config = config.with_assignments([f"{name}={value}" for name, value in SETTINGS.items()])
    with PosixWritableFileSystem(str(root)) as files:
        create_store(files, config)
    assert put(root, a_batch(100)) == 100
    return root


def test_new_store_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "new"
    assert put(root, a_batch(10), a_batch(20, 10)) == 30
    found = messages(root)
    assert [message.keys for message in found] == [f"k{number}" for number in range(30)]
    assert [message.raw_body for message in found] == [b"body %d " % number * (number % 7) for number in range(30)]
    assert [message.queue_id for message in found if message.topic == "T1"] == [turn % 4 for turn in range(10)]
    topics = json.loads((root / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {name: topic["writeQueueNums"] for name, topic in topics.items()} == {"T0": 4, "T1": 4, "T2": 4}
    assert beside(root) == []
    check(root, capsys)


def test_existing_store_goes_on(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several segments later: numbers go on in every queue, what was there is what it was."""
    before = messages(root)
    put(root, a_batch(900, 100, queue_id=pa.array([number % 4 for number in range(900)], pa.int32())))
    after = messages(root)
    assert after[:100] == before
    assert [message.keys for message in after] == [f"k{number}" for number in range(1000)]
    assert len(list((root / "commitlog").iterdir())) > 5
    ends: dict[tuple[str, int], int] = {}
    for message in after:
        queue = message.topic, message.queue_id
        assert message.queue_offset == ends.get(queue, 0)
        ends[queue] = message.queue_offset + 1
    assert beside(root) == []
    check(root, capsys)


def test_queue_by_hash_is_the_clients(root: Path) -> None:
    put(root, a_batch(6, sharding_key=["order-1", "order-2", "order-1", "Aa", "BB", "polygenelubricants"]))
    # Java's hashes: "Aa" and "BB" have the same one, that of the last has no absolute value.
    queues = [message.queue_id for message in messages(root)[100:]]
    assert queues[0] == queues[2]
    assert queues[3:] == [2112 % 4, 2112 % 4, (1 << 31) % 4]


def test_what_stops_it_leaves_the_store_alone(root: Path) -> None:
    with left_alone(root), pytest.raises(StoreError, match="MESSAGE_ILLEGAL: message 50 of topic T, 5242880 bytes"):
        put(root, a_batch(50), pa.RecordBatch.from_pydict({"topic": ["T"], "body": [bytes(5 << 20)]}))
    assert beside(root) == []
    with left_alone(root), pytest.raises(Refused, match="topic SCHEDULE_TOPIC_XXXX is the broker's own"):
        put(root, a_batch(3, topic=["T", "SCHEDULE_TOPIC_XXXX", "T"]))
    with left_alone(root), pytest.raises(Refused, match="topic 'a b' has characters"):
        put(root, a_batch(1, topic=["a b"]))
    with left_alone(root), pytest.raises(Refused, match="topic T0 has 4 queues, and a message names queue 4"):
        put(root, a_batch(1, queue_id=pa.array([4], pa.int32())))
    assert beside(root) == []


def test_store_that_is_in_use_is_refused(root: Path) -> None:
    staged = stage(root, a_batch(3))
    with PosixWritableFileSystem(str(root)) as files, files.lock():
        with left_alone(root), pytest.raises(StoreInUse):
            import_staged(*staged)
        with pytest.raises(StoreInUse):
            require_ready(str(root))
    require_ready(str(root))
    assert beside(root) == []


def test_store_that_was_not_closed_is_refused(root: Path) -> None:
    (root / "abort").touch()
    with left_alone(root), pytest.raises(Refused, match="abort is present"):
        require_ready(str(root))
    with left_alone(root), pytest.raises(Refused, match="abort is present"):
        put(root, a_batch(3))


def test_log_elsewhere_is_refused(root: Path) -> None:
    text = (root / "broker.conf").read_text() + f"storePathCommitLog={root.parent / 'fast'}\n"
    (root / "broker.conf").write_text(text)
    with pytest.raises(Refused, match="the log of this store is outside of it"):
        require_ready(str(root))


def test_link_inside_is_refused(root: Path) -> None:
    (root / "more").symlink_to("/")
    with left_alone(root), pytest.raises(Refused, match="/more is a sym"):
        put(root, a_batch(3))
    assert beside(root) == []


def test_disk_that_cannot_exchange_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange.ctypes, "CDLL", lambda *_, **__: object())
    with left_alone(root), pytest.raises(Refused, match="cannot exchange two directories, so nothing was changed"):
        put(root, a_batch(3))
    assert put(root.parent / "other", a_batch(3)) == 3


def test_jobs_wait_for_each_other(root: Path) -> None:
    """Four at once, two of them into a store that is not there yet: everything of each is there."""
    roots = [root, root, root.parent / "new", root.parent / "new"]
    staged = [stage(one, a_batch(50, 1000 * number), job=str(number)) for number, one in enumerate(roots)]
    children = []
    for one in staged:
        child = os.fork()
        if not child:
            os._exit(0 if import_staged(*one) == 50 else 1)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0, 0]
    assert len(messages(root)) == 200
    assert sorted(message.keys or "" for message in messages(roots[2])) == sorted(
        f"k{1000 * job + number}" for job in (2, 3) for number in range(50)
    )
    assert beside(root) == ["new"]


def killed(root: Path, last: int) -> bool:
    """Import in a child that dies, as by SIGKILL, instead of its change number ``last``; return whether it died."""
    staged = stage(root, a_batch(150, 100), job=str(last))
    child = os.fork()
    if child == 0:
        left = [last]

        def dying(real: Any) -> Any:
            def change(*arguments: Any, **more: Any) -> Any:
                if left[0] == 0:
                    os._exit(99)
                left[0] -= 1
                return real(*arguments, **more)

            return change

        for name in CHANGES:
            setattr(os, name, dying(getattr(os, name)))
        exchange._exchange = dying(exchange._exchange)
        import_staged(*staged)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99


def kill_everywhere(root: Path, numbers: Iterator[int]) -> int:
    """Kill at changes, each time with the store as it was; return how many kills left it so."""
    before = state(root)
    for number in numbers:
        died = killed(root, number)
        count = len(messages(root))
        if count == 250:
            assert number > 100
            return number
        assert died
        assert state(root) == before, number
    raise AssertionError("the import never came to its end")


@pytest.mark.slow
def test_killed_at_any_change_the_store_is_as_it_was_or_complete(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill_everywhere(root, iter(range(10_000)))
    check(root, capsys)
    assert put(root, a_batch(10)) == 10
    # What killed jobs staged stays for a day, and nothing else does.
    (place,) = (root.parent / name for name in beside(root))
    for left in place.iterdir():
        assert left.name.startswith("job-")
        os.utime(left, (1, 1))
    assert put(root, a_batch(10)) == 10
    assert beside(root) == []
    assert len(messages(root)) == 270


def test_killed_at_some_changes_the_store_is_as_it_was(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kill_everywhere(root, iter(range(3, 10_000, 29)))
    check(root, capsys)
    assert put(root, a_batch(10)) == 10


def test_staging_that_nobody_ended_goes_after_a_day(root: Path) -> None:
    old, _ = stage(root, a_batch(1), job="old")
    new, files = stage(root, a_batch(1), job="new")
    os.utime(old.directory, (1, 1))
    import_staged(new, files)
    assert not os.path.exists(old.directory)
    assert beside(root) == []


def test_staging_and_removal_of_the_place_at_the_same_time(root: Path) -> None:
    """Jobs that end remove the place that others are about to stage in."""
    stop = threading.Event()

    def ending() -> None:
        while not stop.is_set():
            JobDirectory(str(root), "none").remove()

    thread = threading.Thread(target=ending)
    thread.start()
    try:
        for number in range(60):
            staging, _ = stage(root, a_batch(1), job=str(number))
            staging.remove()
    finally:
        stop.set()
        thread.join()


def test_a_record_that_a_broker_cut_off_and_left_in_the_file_does_not_count(writable_store: Any) -> None:
    """A broker that recovers leaves what it cuts off whole, after the end of the log."""
    root = writable_store("49-recovered")
    with open_store(str(root)) as store:
        log = store.commit_log
        walks = [(segment, SegmentWalk(log.open(segment), segment.base_offset)) for segment in log]
        (found,) = [
            segment.base_offset + (walk.find_record(place.file_offset) or 0)
            for segment, walk in walks
            for place in walk.places()
            if isinstance(place.what, Flaw) and place.what.code == "CL-STALE"
        ]
        stale, first = read_record(log, found), read_record(log, log.min_offset)
    for last, is_stored in ((stale, False), (first, True)):
        with PosixWritableFileSystem(str(root)) as files:
            bulk_load._note_batch(files, bulk_load.StreamBatch("query", 3), 0, last)
        assert bulk_load._has_batch_at(str(root), bulk_load.StreamBatch("query", 3)) is is_stored
