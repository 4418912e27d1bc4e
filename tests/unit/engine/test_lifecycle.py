"""C1.1 to C1.10: what stands in the store's directory while it lives."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.config import Version
from rmqtool.engine.flush import Checkpoint
from rmqtool.engine.health import RunningFlag
from rmqtool.engine.message import PutStatus
from rmqtool.engine.store import MessageStore
from rmqtool.errors import NoSpace, Refused, StoreError, StoreInUse
from rmqtool.files.filesystem import ReadableFileSystem, Space, WritableFile
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats import layouts
from tests.support.engine_stores import SEGMENT, a_message, clock_of, read_bytes, small_setup, small_store
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import FaultyDisk
from tests.support.waiting import PATIENCE

every_version = pytest.mark.parametrize("version", list(Version))


def names(files: ReadableFileSystem, path: str = "") -> set[str]:
    return {entry.name for entry in files.listdir(path)} if files.exists(path) else set()


@every_version
def test_a_new_store_holds_its_marks_and_no_log(version: Version) -> None:
    """C1.1."""
    store = small_store(version)
    files = store.setup.files
    marks = {"lock", "abort", "checkpoint", "commitlog", "consumequeue"}
    assert names(files) == (marks if version is Version.V4_9 else marks | {"abort.bak"})
    assert read_bytes(files, "lock") == b"lock"
    assert read_bytes(files, "checkpoint") == bytes(4096)
    assert names(files, "commitlog") == set()
    store.close()


@every_version
def test_a_clean_end_takes_the_mark_and_the_unused_segment_away(version: Version) -> None:
    """C1.2."""
    store = small_store(version)
    store.put(a_message())
    store.tick()
    files = store.setup.files
    assert len(names(files, "commitlog")) == 2
    store.close()
    assert "abort" not in names(files)
    assert names(files, "commitlog") == {"0" * 20}
    assert names(files) >= {"checkpoint", "lock"}


def test_a_second_start_in_one_process_fails(tmp_path: Path) -> None:
    """C1.3: upstream says that the locks overlap."""
    setup = small_setup(files=PosixWritableFileSystem(str(tmp_path)))
    with MessageStore.create(setup):
        before = sorted(os.listdir(tmp_path))
        with pytest.raises(StoreInUse, match="this process"):
            MessageStore.open(replace(setup, files=PosixWritableFileSystem(str(tmp_path))))
        assert sorted(os.listdir(tmp_path)) == before


def test_a_second_start_in_another_process_fails(tmp_path: Path) -> None:
    """C1.3."""
    program = (
        "import sys; from tests.support.engine_stores import small_setup\n"
        "from rmqtool.engine.store import MessageStore; from rmqtool.errors import StoreInUse\n"
        "from rmqtool.files.posix_write import PosixWritableFileSystem\n"
        "try: MessageStore.open(small_setup(files=PosixWritableFileSystem(sys.argv[1])))\n"
        "except StoreInUse as error: print(error.message)"
    )
    with MessageStore.create(small_setup(files=PosixWritableFileSystem(str(tmp_path)))) as store:
        store.put(a_message())
        root = Path(__file__).resolve().parents[3]
        command = [sys.executable, "-c", program, str(tmp_path)]
        said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=PATIENCE)
        assert f"process {os.getpid()}" in said.stdout
        assert store.put(a_message()).is_ok


@every_version
def test_the_mark_says_what_its_version_says(version: Version) -> None:
    """C1.4."""
    with small_store(version) as store:
        expected = b"" if version is Version.V4_9 else str(os.getpid()).encode()
        assert read_bytes(store.setup.files, "abort") == expected


@every_version
def test_the_first_put_makes_one_file_of_each_kind(version: Version) -> None:
    """C1.5, without any key: the index file is there all the same, and the next segment."""
    with small_store(version) as store:
        files = store.setup.files
        store.put(a_message(properties={}))
        assert names(files, "commitlog") == {"0" * 20}
        store.tick()
        assert names(files, "commitlog") == {"0" * 20, f"{SEGMENT:020d}"}
        assert {files.stat(f"commitlog/{name}").size for name in names(files, "commitlog")} == {SEGMENT}
        assert names(files, "consumequeue/T") == {"0"}
        assert names(files, "consumequeue/T/0") == {"0" * 20}
        assert len(names(files, "index")) == 1


@every_version
def test_a_flag_keeps_the_mark(version: Version) -> None:
    """C1.6, where queues or index are not what the log says."""
    store = small_store(version)
    store.put(a_message())
    store._engine.health.set(RunningFlag.INDEX_FILE_ERROR, True)
    assert store.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()
    assert "abort" in names(store.setup.files)


@every_version
def test_a_full_disk_keeps_no_mark(version: Version) -> None:
    """upstream: any flag keeps it. What was refused changes nothing: the store is as sound as it was before."""
    store = small_store(version)
    store.put(a_message())
    store._engine.health.set(RunningFlag.DISK_FULL, True)
    assert store.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()
    assert "abort" not in names(store.setup.files)
    with MessageStore.open(store.setup) as again:
        assert again.put(a_message()).queue_offset == 1


@every_version
def test_the_first_put_on_a_full_disk_is_refused_and_changes_nothing(
    version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = small_setup(version)
    with MessageStore.create(setup) as store:
        store.put(a_message())
    before = {path: read_bytes(setup.files, path) for path in paths_below(setup.files)}
    monkeypatch.setattr(FaultyFileSystem, "space", lambda _files: Space(total=100, free=5, available=5))
    with MessageStore.open(setup) as store:
        assert store.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert {ticket.status for ticket in store.put_many([a_message()] * 3)} == {PutStatus.SERVICE_NOT_AVAILABLE}
        store.tick()
    assert {path: read_bytes(setup.files, path) for path in paths_below(setup.files)} == before


def test_a_refused_put_changes_nothing_and_leaves_an_empty_segment() -> None:
    setup = small_setup()
    with MessageStore.create(setup) as store:
        store.put(a_message())
    setup.files.create(f"commitlog/{SEGMENT:020d}").close()
    setup.files.unlink("abort.bak")
    setup.files.unlink("checkpoint")
    before = {path: read_bytes(setup.files, path) for path in paths_below(setup.files)}
    with MessageStore.open(setup) as store:
        assert store.put(a_message(topic="no/name")).status is PutStatus.MESSAGE_ILLEGAL
        store.tick()
    assert {path: read_bytes(setup.files, path) for path in paths_below(setup.files)} == before


@every_version
def test_a_put_without_room_for_its_segment_leaves_the_store_as_it_was(version: Version) -> None:
    setup = small_setup(version)
    with MessageStore.create(setup) as store:
        store.put(a_message())
    before = {path: read_bytes(setup.files, path) for path in paths_below(setup.files)}
    create = FaultyFileSystem.create

    def no_room(files: FaultyFileSystem, path: str, size: int = 0) -> WritableFile:
        if size:
            raise NoSpace(f"there is no space for {path}", file=path)
        return create(files, path, size)

    with pytest.MonkeyPatch.context() as full:
        full.setattr(FaultyFileSystem, "create", no_room)
        with MessageStore.open(setup) as store:
            large = a_message(body=b"x" * (SEGMENT - 160))
            assert store.put(large).status is PutStatus.CREATE_MAPPED_FILE_FAILED
    assert {path: read_bytes(setup.files, path) for path in paths_below(setup.files)} == before


@every_version
def test_a_disk_that_has_no_room_for_the_checkpoint_stops_no_put(version: Version) -> None:
    """The old times stay, which is safe: a start then reads more than it must. With room the next ones are written."""
    store = small_store(version)
    store.put(a_message())
    store.dispatch_now()
    flush, is_full = Checkpoint.flush, True

    def no_room(checkpoint: Checkpoint) -> None:
        if is_full:
            raise NoSpace("there is no space for checkpoint", file="checkpoint")
        flush(checkpoint)

    with pytest.MonkeyPatch.context() as full:
        full.setattr(Checkpoint, "flush", no_room)
        clock_of(store).advance(61_000)
        store.tick()
        assert store.put(a_message()).is_ok
        is_full = False
        clock_of(store).advance(61_000)
        store.tick()
    assert read_bytes(store.setup.files, "checkpoint") != bytes(4096)
    store.close()
    assert "abort" not in names(store.setup.files)


@every_version
def test_a_closed_store_takes_nothing(version: Version) -> None:
    """C1.7."""
    store = small_store(version)
    store.close()
    assert store.put(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.put_async(a_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()


def test_a_missing_checkpoint_is_made_of_zeros() -> None:
    """C1.8."""
    setup = small_setup()
    with MessageStore.create(setup) as store:
        store.put(a_message())
    setup.files.unlink("checkpoint")
    with MessageStore.open(setup) as store:
        assert store.put(a_message()).queue_offset == 1
        assert read_bytes(setup.files, "checkpoint") == bytes(4096)


def test_a_queue_directory_whose_name_is_no_number_is_ignored() -> None:
    """C1.9."""
    setup = small_setup()
    with MessageStore.create(setup) as store:
        store.put(a_message())
    setup.files.mkdir("consumequeue/T/old")
    with setup.files.create("consumequeue/T/old/00000000000000000000", 10):
        pass
    with MessageStore.open(setup) as store:
        assert store.put(a_message()).queue_offset == 1


def checkpoint_of(store: MessageStore) -> layouts.StoreCheckpoint:
    return layouts.STORE_CHECKPOINT.decode(read_bytes(store.setup.files, "checkpoint"))


@every_version
def test_5_x_writes_the_checkpoint_every_second(version: Version) -> None:
    """C1.10, C4.6. A time in it is never ahead of the disk, so that of the queues waits for their flush.

    upstream: 5.x stores the time of the last dispatched message, whether its unit is durable or not.
    """
    with small_store(version) as store:
        put = store.put(a_message())
        store.flush_now()
        clock_of(store).advance(1500)
        store.tick()
        physic = 0 if version is Version.V4_9 else put.store_timestamp
        assert checkpoint_of(store) == layouts.StoreCheckpoint(physic, 0, 0, 0, 0)


def test_a_store_that_was_not_closed_is_not_taken_up() -> None:
    disk = FaultyDisk()
    store = small_store(files=FaultyFileSystem(disk))
    store.put(a_message())
    disk.locked.clear()
    before = disk.calls[:]
    with pytest.raises(Refused, match="abort is present") as caught:
        MessageStore.open(small_setup(files=FaultyFileSystem(disk)))
    assert caught.value.hint == "rmqtool repair STORE"
    assert disk.calls == before


def test_a_log_that_is_gone_is_not_begun_anew() -> None:
    setup = small_setup()
    with MessageStore.create(setup) as store:
        store.put(a_message())
    setup.files.unlink(f"commitlog/{0:020d}")
    with pytest.raises(Refused, match="but queues exist"):
        MessageStore.open(setup)
    setup.files.rmdir("commitlog")
    with pytest.raises(Refused, match="but queues exist"):
        MessageStore.open(setup)


def test_what_is_no_store_is_not_made_one_by_opening() -> None:
    setup = small_setup()
    with pytest.raises(StoreError, match="has no commit log"):
        MessageStore.open(setup)
    assert names(setup.files) == set()


def test_a_store_is_not_created_over_another() -> None:
    setup = small_setup()
    with MessageStore.create(setup) as store:
        store.put(a_message())
    with pytest.raises(Refused, match="commit log already"):
        MessageStore.create(setup)


def test_sizes_come_from_the_files_not_from_the_settings() -> None:
    setup = small_setup()
    with MessageStore.create(setup) as store:
        for number in range(12):
            store.put(a_message(number))
    larger = small_setup(files=setup.files, mappedFileSizeCommitLog=8192, mappedFileSizeConsumeQueue=2000)
    with MessageStore.open(larger) as store:
        for number in range(12, 60):
            assert store.put(a_message(number)).queue_offset == number
    sizes = {setup.files.stat(f"commitlog/{name}").size for name in names(setup.files, "commitlog")}
    assert sizes == {SEGMENT}
    assert len(names(setup.files, "commitlog")) > 1
    assert {setup.files.stat(f"consumequeue/T/0/{n}").size for n in names(setup.files, "consumequeue/T/0")} == {200}


def test_opening_and_closing_changes_nothing() -> None:
    setup = small_setup()
    with MessageStore.create(setup) as store:
        for number in range(40):
            store.put(a_message(number, queue_id=number % 3))
    before = {path: read_bytes(setup.files, path) for path in paths_below(setup.files)}
    with MessageStore.open(setup):
        pass
    assert {path: read_bytes(setup.files, path) for path in paths_below(setup.files)} == before


def paths_below(files: ReadableFileSystem, directory: str = "") -> list[str]:
    found = []
    for entry in files.listdir(directory):
        path = f"{directory}/{entry.name}" if directory else entry.name
        found += paths_below(files, path) if entry.kind == "directory" else [path]
    return found
