"""What expires, when it goes, and what goes with it: the checks of section 11."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rmqtool.config import Version
from rmqtool.engine.get import GetMessageStatus
from rmqtool.engine.load import count_messages
from rmqtool.engine.store import MessageStore
from rmqtool.errors import WriteFailed
from rmqtool.files.filesystem import Attributes, Space
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.engine_stores import SEGMENT, a_message, clock_of, iter_records, small_setup, small_store, units

HOUR = 3_600_000
# The clock of a test begins at 22:13 UTC; so much later it is four.
TO_FOUR = 6 * HOUR


def full_store(version: Version = Version.V5_3, *, expires: bool = False, **settings: Any):
    """Return a store of several segments, all of them young."""
    setup = replace(small_setup(version, **settings), expires=expires)
    store = MessageStore.create(setup)
    number = 0
    while len(store.commit_log.segments) < 5:
        assert store.put(a_message(number, queue_id=number % 2)).is_ok
        number += 1
    store.flush_now()
    store.dispatch_now()
    for segment in store.commit_log.segments:
        age(store, segment.path, 0)
    return store


def age(store, path: str, hours: int) -> None:
    """Let a file have been written to so many hours ago."""
    files = store.setup.files
    old = Attributes.of(files.stat(path))
    then = (clock_of(store).now() - hours * HOUR) * 1_000_000
    files.set_attributes(path, Attributes(old.mode, old.owner, old.group, then))


def age_first(store, count: int, hours: int = 73) -> None:
    for segment in store.commit_log.segments.segments[:count]:
        age(store, segment.path, hours)


def on_disk(store) -> list[str]:
    return [entry.name for entry in store.setup.files.listdir("commitlog")]


def fill_disk(store, monkeypatch: pytest.MonkeyPatch, percent: int) -> None:
    monkeypatch.setattr(type(store.setup.files), "space", lambda _: Space(100, 100 - percent, 100 - percent))


@pytest.mark.parametrize("version", Version)
def test_c11_1_and_c11_8_expired_segments_go_at_four_with_what_leads_to_them(version):
    store = full_store(version)
    clock_of(store).advance(TO_FOUR)
    age_first(store, 2)
    assert store.clean_now().segments == 2
    assert on_disk(store)[0] == f"{2 * SEGMENT:020d}"
    assert store.commit_log.min_offset == 2 * SEGMENT
    for queue_id in (0, 1):
        low, high = store.reader.bounds("T", queue_id)
        left = units(store.setup.files, "T", queue_id)
        assert any(unit.physical_offset >= 2 * SEGMENT for unit in left)
        assert len(left) < high
        got = store.reader.get("T", queue_id, low)
        assert got.status is GetMessageStatus.FOUND
        assert got.messages[0].physical_offset >= 2 * SEGMENT
        assert store.reader.get("T", queue_id, low - 1).status is GetMessageStatus.OFFSET_TOO_SMALL
    store.close()


def test_c11_2_nothing_goes_at_another_hour(monkeypatch):
    store = full_store()
    fill_disk(store, monkeypatch, 50)
    age_first(store, 2)
    assert store.clean_now().segments == 0
    assert len(on_disk(store)) >= 5


def test_c11_3_a_young_segment_keeps_the_older_ones_behind_it():
    store = full_store()
    clock_of(store).advance(TO_FOUR)
    age_first(store, 2)
    age(store, store.commit_log.segments.segments[0].path, 1)
    assert store.clean_now().segments == 0


def test_c11_4_the_last_segment_stays():
    store = small_store()
    store.put(a_message())
    store.flush_now()
    store.dispatch_now()
    clock_of(store).advance(TO_FOUR)
    age(store, store.commit_log.segments.segments[0].path, 100)
    assert store.clean_now().segments == 0
    assert store.reader.get("T", 0, 0).status is GetMessageStatus.FOUND


def test_c11_5_a_disk_that_fills_up_takes_expired_segments_at_any_hour(monkeypatch):
    store = full_store()
    age_first(store, 2)
    fill_disk(store, monkeypatch, 80)
    assert store.clean_now().segments == 2


@pytest.mark.parametrize(("forcibly", "gone"), [(True, 4), (False, 0)])
def test_c11_6_a_disk_that_is_nearly_full_takes_young_ones_too(monkeypatch, forcibly, gone):
    store = full_store(cleanFileForciblyEnable=forcibly)
    fill_disk(store, monkeypatch, 87)
    assert store.clean_now().segments == gone


def test_c11_7_a_full_disk_takes_no_messages_until_there_is_room(monkeypatch):
    store = full_store()
    fill_disk(store, monkeypatch, 92)
    store.clean_now()
    assert not store.put(a_message()).is_ok
    fill_disk(store, monkeypatch, 60)
    store.clean_now()
    assert store.put(a_message()).is_ok


def test_c11_9_an_administrators_wish_holds_for_twenty_runs():
    store = full_store()
    store.clean_at_any_hour()
    assert store.clean_now().segments == 0  # nothing is old
    for _ in range(18):
        store.clean_now()
    age_first(store, 1)
    assert store.clean_now().segments == 1
    age_first(store, 1)
    assert store.clean_now().segments == 0


def test_c11_10_index_files_that_end_before_the_log_go():
    store = full_store()
    names = [entry.name for entry in store.setup.files.listdir("index")]
    clock_of(store).advance(TO_FOUR)
    age_first(store, 1)
    assert store.clean_now().segments == 1
    left = [entry.name for entry in store.setup.files.listdir("index")]
    assert left == names[len(names) - len(left) :]
    assert 0 < len(left) < len(names)
    assert [m.physical_offset for m in store.reader.query("T", "k0", 32, 0, 2**62)] == []


def test_a_segment_that_is_being_read_goes_and_is_read_on():
    store = full_store()
    first = store.commit_log.segments.segments[0]
    clock_of(store).advance(TO_FOUR)
    age_first(store, 1)
    with first.filesystem.open_read(first.path) as reading:
        before = reading.pread(100, 0)
        assert store.clean_now().segments == 1
        assert reading.pread(100, 0) == before


def test_nothing_expires_by_itself_in_a_store_that_was_not_told_to(monkeypatch):
    store = full_store()
    fill_disk(store, monkeypatch, 87)
    clock_of(store).advance(TO_FOUR)
    clock_of(store).since_start = TO_FOUR
    age_first(store, 2)
    before = on_disk(store)
    store.tick()
    assert on_disk(store)[: len(before)] == before


def test_what_would_go_is_told_with_its_messages_and_nothing_goes(monkeypatch):
    store = full_store()
    age_first(store, 2)
    fill_disk(store, monkeypatch, 80)
    before = on_disk(store)
    in_first_two = sum(record.physical_offset < 2 * SEGMENT for record in iter_records(store.setup.files))
    told = store.find_expired()
    assert (told.segments, told.messages, told.bytes) == (2, in_first_two, 2 * SEGMENT)
    assert told.files == (f"commitlog/{0:020d}", f"commitlog/{SEGMENT:020d}")
    assert told.as_json()["reason"] == "age"
    assert on_disk(store) == before
    fill_disk(store, monkeypatch, 87)
    told = store.find_expired()
    assert (told.segments, told.used, told.as_json()["reason"]) == (4, 87, "disk")
    gone = store.clean_now()
    assert gone.messages == told.messages
    assert set(told.files) < set(gone.files)
    assert not any(store.setup.files.exists(path) for path in gone.files)


def test_messages_of_a_segment_are_counted_beside_damage():
    store = small_store(mappedFileSizeCommitLog=1 << 16)
    for number in range(50):
        store.put(a_message(number))
    store.flush_now()
    store.dispatch_now()
    (segment,) = store.commit_log.segments
    place = store.reader.get("T", 0, 20).messages[0].physical_offset
    with store.setup.files.open_write(segment.path) as file:
        file.pwrite(bytes(30), place)
        assert count_messages(file, segment.size) == 49


def test_it_begins_a_minute_after_the_start():
    store = full_store(expires=True)
    clock_of(store).advance(TO_FOUR - 59_000)
    clock_of(store).since_start = 59_000
    age_first(store, 1)
    store.tick()
    assert store.commit_log.min_offset == 0
    clock_of(store).advance(60_000)
    store.tick()
    assert store.commit_log.min_offset == SEGMENT


def test_c11_11_a_directory_that_is_gone_is_no_reason_to_remove_segments(tmp_path, monkeypatch):
    for name in ("root", "first", "second"):
        (tmp_path / name).mkdir()
    setup = small_setup(
        files=PosixWritableFileSystem(str(tmp_path / "root")),
        storePathRootDir=str(tmp_path / "root"),
        storePathCommitLog=f"{tmp_path}/first,{tmp_path}/second",
    )
    with MessageStore.create(setup) as store:
        store.put_many([a_message(body=b"x" * 3000) for _ in range(5)])
        store.flush_now()
        store.dispatch_now()
        for path in [*(tmp_path / "first").iterdir(), *(tmp_path / "second").iterdir()]:
            os.utime(path, (0, 0))
        fill_disk(store, monkeypatch, 50)
        (tmp_path / "second").rename(tmp_path / "unmounted")
        # upstream: CleanCommitLogService counts it as less than empty, and removes what is old at any hour.
        assert store.clean_now().segments == 0
        assert len([*(tmp_path / "first").iterdir(), *(tmp_path / "unmounted").iterdir()]) >= 5


def queue_files(store) -> list[str]:
    return [entry.name for entry in store.setup.files.listdir("consumequeue/T/0")]


@pytest.fixture
def old_store() -> Iterator[MessageStore]:
    """Return a store of which three segments are due, and with them several files of each queue."""
    store = full_store()
    age_first(store, 3)
    clock_of(store).advance(TO_FOUR)
    yield store
    store.close()


def test_queue_files_are_removed_one_after_the_other(old_store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sync after several removals would not keep their order: a power cut could leave a hole in the queue."""
    calls = []
    files = type(old_store.setup.files)
    unlink, sync = files.unlink, files.fsync_dir
    monkeypatch.setattr(files, "unlink", lambda self, path: (calls.append(path), unlink(self, path))[1])
    monkeypatch.setattr(files, "fsync_dir", lambda self, path="": (calls.append(path), sync(self, path))[1])
    before = queue_files(old_store)
    old_store.clean_now()
    gone = before[: -len(queue_files(old_store))]
    assert len(gone) > 1
    of_queue = [path for path in calls if path.startswith("consumequeue/T/0")]
    assert of_queue == [path for name in gone for path in (f"consumequeue/T/0/{name}", "consumequeue/T/0")]


def test_a_removal_that_fails_is_tried_again(old_store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers are told what is gone, and the files that were not reached go with the next run."""
    files = type(old_store.setup.files)
    sync = files.fsync_dir

    def fails(self: Any, path: str = "") -> None:
        if path.startswith("consumequeue"):
            raise WriteFailed("no", file=path)
        sync(self, path)

    before = queue_files(old_store)
    told: list[int] = []
    monkeypatch.setattr(old_store._retention, "_on_removed", lambda: told.append(len(queue_files(old_store))))
    with monkeypatch.context() as patch:
        patch.setattr(files, "fsync_dir", fails)
        with pytest.raises(WriteFailed):
            old_store.clean_now()
    assert len(queue_files(old_store)) == len(before) - 1
    old_store.clean_now()
    assert told == [len(before) - 1, len(queue_files(old_store))]
    assert told[1] < told[0]
