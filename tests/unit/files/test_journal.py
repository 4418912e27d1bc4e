"""The journal: written before the change, whole or recognised as torn, and refused where it would do harm."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.errors import ReadFailed, Refused, WriteFailed
from rmqtool.files.filesystem import Attributes, Kind, iter_tree
from rmqtool.files.journal import BLOCK, LOG, OLD_BYTES, JournalledFileSystem, Undone, read_journal, undo
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Call, FaultyDisk

Journalled = tuple[FaultyFileSystem, FaultyFileSystem, JournalledFileSystem]


def put(files: FaultyFileSystem, path: str, data: bytes) -> None:
    with files.create(path) as file:
        file.pwrite(data, 0)
        file.fsync()
    files.fsync_dir()


def get(files: FaultyFileSystem, path: str) -> bytes:
    with files.open_read(path) as file:
        return file.pread(file.size(), 0)


def state(files: FaultyFileSystem) -> dict[str, tuple[Attributes, bytes]]:
    return {
        path: (Attributes.of(files.stat(path)), get(files, path) if kind is Kind.FILE else b"")
        for path, kind in [("", Kind.DIRECTORY), *iter_tree(files)]
    }


def begin(disk: FaultyDisk) -> Journalled:
    files, beside = FaultyFileSystem(disk, "store"), FaultyFileSystem(disk, "undo")
    return files, beside, JournalledFileSystem(files, beside, {"plan": "7f3c"})


def test_old_bytes_are_durable_before_the_change() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "checkpoint", b"old")
    _, _, journalled = begin(disk)
    start = len(disk.calls)
    with journalled.open_write("checkpoint") as file:
        file.pwrite(b"new", 0)
    assert disk.calls[start:] == [
        Call("pwrite", OLD_BYTES),
        Call("fdatasync", OLD_BYTES),
        Call("pwrite", LOG),
        Call("fdatasync", LOG),
        Call("pwrite", "checkpoint"),
    ]


def test_the_same_bytes_are_saved_once() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "0", b"x" * (3 * BLOCK))
    _, beside, journalled = begin(disk)
    with journalled.open_write("0") as file:
        for _ in range(10):
            file.pwrite(b"y" * 100, BLOCK + 50)
        assert beside.stat(OLD_BYTES).size == BLOCK
        file.pwrite(b"y", BLOCK - 1)
        file.truncate(10)
        assert beside.stat(OLD_BYTES).size == 3 * BLOCK
        file.pwrite(b"z" * (5 * BLOCK), 0)
    journalled.unlink("0")
    assert beside.stat(OLD_BYTES).size == 3 * BLOCK, "all of it was saved already"


def test_what_was_not_there_costs_no_old_bytes() -> None:
    disk = FaultyDisk()
    _, beside, journalled = begin(disk)
    with journalled.create("new", 10 * BLOCK) as file:
        file.pwrite(b"x" * 1000, 0)
    journalled.rename("new", "newer")
    journalled.unlink("newer")
    assert beside.stat(OLD_BYTES).size == 0


def test_a_change_that_will_be_refused_saves_nothing() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "0", b"x" * BLOCK)
    files, beside, journalled = begin(disk)
    files.plant("pipe", Kind.FIFO)
    for attempt in (
        lambda: journalled.create("0"),
        lambda: journalled.mkdir("0"),
        lambda: journalled.unlink("pipe"),
        lambda: journalled.create("../x"),
        lambda: journalled.unlink("missing"),
    ):
        with pytest.raises(WriteFailed):
            attempt()
    assert beside.stat(OLD_BYTES).size == 0
    with journalled.open_write("0") as file:
        for wrong in (lambda: file.pwrite(b"x", -1), lambda: file.truncate(-1)):
            with pytest.raises(WriteFailed, match="0 does not have"):
                wrong()


def change_everything(journalled: JournalledFileSystem) -> None:
    with journalled.open_write("checkpoint") as file:
        file.pwrite(b"new", 100)
    with journalled.open_write("0") as file:
        file.truncate(10)
        file.truncate(BLOCK)
    with journalled.create("topics.json.tmp") as file:
        file.pwrite(b'{"new":1}', 0)
    journalled.rename("topics.json.tmp", "topics.json")
    journalled.unlink("abort")
    journalled.rmdir("empty")
    journalled.mkdir("made")
    journalled.create("made/file").close()
    own = journalled.stat("lock")
    journalled.set_attributes("lock", Attributes(0o600, own.owner + 1, own.group, 5))
    journalled.unlink("becomes-directory")
    journalled.mkdir("becomes-directory")
    journalled.create("becomes-directory/file").close()
    journalled.rmdir("becomes-file")
    journalled.create("becomes-file").close()


def store_of_everything(disk: FaultyDisk) -> FaultyFileSystem:
    files = FaultyFileSystem(disk, "store")
    for name in ("checkpoint", "abort", "topics.json", "lock", "becomes-directory"):
        put(files, name, name.encode() * 50)
    put(files, "0", b"x" * 20 + bytes(3 * BLOCK) + b"tail")
    for name in ("empty", "becomes-file"):
        files.mkdir(name)
    files.fsync_dir()
    return files


@pytest.mark.parametrize("finished", [True, False])
def test_everything_is_taken_back(finished: bool) -> None:
    disk = FaultyDisk()
    before = state(store_of_everything(disk))
    files, beside, journalled = begin(disk)
    change_everything(journalled)
    if finished:
        journalled.finish()
    journalled.close()
    assert state(files) != before
    touched = undo(files, beside)
    assert state(files) == before
    assert {"checkpoint", "0", "made", "made/file", "becomes-file"} <= {*touched.restored, *touched.deleted}
    assert undo(files, beside) == Undone(), "what is undone is not undone again"
    with files.open_write("checkpoint") as file:
        file.pwrite(b"later", 0)
    assert undo(files, beside) == Undone()
    assert get(files, "checkpoint").startswith(b"later"), "nor is what came after it"


def test_a_store_that_was_changed_since_is_left_alone() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "checkpoint", b"old")
    files, beside, journalled = begin(disk)
    with journalled.open_write("checkpoint") as file:
        file.pwrite(b"new", 0)
    journalled.finish()
    with files.open_write("checkpoint") as file:
        file.pwrite(b"broker", 0)
    with pytest.raises(Refused, match="checkpoint was changed after the repair"):
        undo(files, beside)
    assert get(files, "checkpoint") == b"broker"


def test_a_file_that_came_back_since_is_left_alone() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "abort", b"1")
    files, beside, journalled = begin(disk)
    journalled.unlink("abort")
    journalled.finish()
    put(files, "abort", b"2")
    with pytest.raises(Refused, match="abort was changed"):
        undo(files, beside)


def test_a_journal_that_cannot_be_written_ends_all_changes() -> None:
    for failing in (1, 2, 3, 4):
        disk = FaultyDisk()
        put(FaultyFileSystem(disk, "store"), "checkpoint", b"old")
        files, beside, journalled = begin(disk)
        with journalled.open_write("checkpoint") as file:
            disk.fail(failing, 28)
            with pytest.raises(WriteFailed, match="No space left"):
                file.pwrite(b"new", 0)
            with pytest.raises(WriteFailed, match="could not be written before, so no further change is made"):
                file.pwrite(b"new", 0)
        with pytest.raises(WriteFailed, match="no further change is made"):
            journalled.create("other")
        with pytest.raises(WriteFailed, match="no further change is made"):
            journalled.finish()
        assert get(files, "checkpoint") == b"old"
        undo(files, beside)
        assert get(files, "checkpoint") == b"old"


def damage(files: FaultyFileSystem, path: str, at: int) -> None:
    with files.open_write(path) as file:
        byte = file.pread_exactly(1, at)
        file.pwrite(bytes([byte[0] ^ 1]), at)


def test_a_torn_last_line_is_as_if_it_had_not_been_begun() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "checkpoint", b"old")
    files, beside, journalled = begin(disk)
    with journalled.open_write("checkpoint") as file:
        file.pwrite(b"new", 0)
    end = beside.stat(LOG).size
    name = "o" * 250
    journalled.create(name).close()
    files.unlink(name)
    whole = get(beside, LOG)
    for torn in (
        whole[: end + 1],
        whole[: end + 20],
        whole[:-1],
        whole[:end] + bytes(100),
        whole[:end] + bytes(100) + whole[end + 100 :],
    ):
        with beside.open_write(LOG) as log:
            log.truncate(0)
            log.pwrite(torn, 0)
        assert read_journal(beside).end == end
        assert name not in read_journal(beside).originals
    undo(files, beside)
    assert get(files, "checkpoint") == b"old"
    told = read_journal(beside)
    assert told.undone, "the torn line does not stand in the way of what is written after it"
    assert told.end == beside.stat(LOG).size, "nothing is left of it"


def test_damage_before_the_last_line_stops_everything() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "checkpoint", b"old")
    files, beside, journalled = begin(disk)
    for text in (b"1", b"2"):
        with journalled.open_write("checkpoint") as file:
            file.pwrite(text, 0)
        journalled.create("other" + text.decode()).close()
    damage(beside, LOG, 10)
    with pytest.raises(ReadFailed, match="journal is damaged: an earlier line") as caught:
        undo(files, beside)
    assert caught.value.offset == get(beside, LOG).index(b"\n") + 1
    assert get(files, "checkpoint") == b"2ld", "nothing was undone"


def test_damaged_old_bytes_stop_everything() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "checkpoint", b"old")
    put(FaultyFileSystem(disk, "store"), "abort", b"4711")
    files, beside, journalled = begin(disk)
    with journalled.open_write("checkpoint") as file:
        file.pwrite(b"new", 0)
    journalled.create("other").close()
    with journalled.open_write("other") as file:
        file.pwrite(b"new", 0)
    journalled.unlink("abort")
    for at in (1, 4):  # of a line in the middle, and of the last
        damage(beside, OLD_BYTES, at)
        with pytest.raises(ReadFailed, match="old-bytes is damaged") as caught:
            undo(files, beside)
        assert caught.value.offset == at // 3 * 3
        assert "by hand" in (caught.value.hint or "")
        assert get(files, "checkpoint") == b"new", "nothing was undone"
        assert not files.exists("abort")
        damage(beside, OLD_BYTES, at)
    undo(files, beside)
    assert (get(files, "checkpoint"), get(files, "abort")) == (b"old", b"4711")


def test_a_journal_of_another_version_is_not_understood() -> None:
    disk = FaultyDisk()
    files, beside, _ = begin(disk)
    from rmqtool.files.journal import append_line

    with beside.open_write(LOG) as log:
        log.truncate(0)
        append_line(log, 0, [{"begin": 2, "about": {}}])
    with pytest.raises(ReadFailed, match="journal is not a journal of version 1"):
        undo(files, beside)


def test_what_is_no_journal_is_not_undone() -> None:
    disk = FaultyDisk()
    files, beside = FaultyFileSystem(disk, "store"), FaultyFileSystem(disk, "undo")
    put(beside, "commitlog", b"")
    with pytest.raises(ReadFailed, match="is not an undo journal"):
        undo(files, beside)
    with pytest.raises(WriteFailed, match="is not empty"):
        JournalledFileSystem(files, beside, {})


def test_a_journal_that_was_not_completely_begun_undoes_nothing() -> None:
    disk = FaultyDisk()
    files, beside = FaultyFileSystem(disk, "store"), FaultyFileSystem(disk, "undo")
    assert undo(files, beside) == Undone()
    beside.create(LOG).close()
    assert undo(files, beside) == Undone()
    beside.create(OLD_BYTES).close()
    assert undo(files, beside) == Undone()


def test_a_file_in_place_that_vanished_is_not_made_up() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "0", b"x" * (2 * BLOCK))
    files, beside, journalled = begin(disk)
    with journalled.open_write("0") as file:
        file.pwrite(b"y", 0)
    files.unlink("0")
    with pytest.raises(WriteFailed, match="0 is missing"):
        undo(files, beside)


def test_what_the_caller_wants_to_remember_is_kept() -> None:
    disk = FaultyDisk()
    _, beside, journalled = begin(disk)
    assert read_journal(beside).about == {"plan": "7f3c"}
    assert read_journal(beside).done is None
    journalled.finish()
    assert read_journal(beside).done == {}
    assert (read_journal(beside).undoing, read_journal(beside).undone) == (False, False)


def test_the_log_is_text_that_a_person_can_read() -> None:
    disk = FaultyDisk()
    put(FaultyFileSystem(disk, "store"), "\udcff", b"old")
    _, beside, journalled = begin(disk)
    journalled.unlink("\udcff")
    lines = get(beside, LOG).decode("ascii").splitlines()
    assert json.loads(lines[0].split(" ", 1)[1]) == [{"begin": 1, "about": {"plan": "7f3c"}}]
    second = json.loads(lines[1].split(" ", 1)[1])
    assert [next(iter(entry)) for entry in second] == ["directory", "file", "bytes", "taken"]
    assert second[1]["file"] == "\udcff"
    assert second[1]["size"] == 3


@pytest.mark.parametrize(
    "destroy",
    [
        lambda files: files.unlink("index"),
        lambda files: files.open_write("index").truncate(0),
        lambda files: files.rename("index", "elsewhere"),
    ],
)
def test_a_sparse_file_is_saved_and_restored_sparse(
    tmp_path: Path, destroy: Callable[[JournalledFileSystem], None]
) -> None:
    store, beside = tmp_path / "store", tmp_path / "undo"
    store.mkdir()
    beside.mkdir()
    size = 420_000_040
    with (store / "index").open("wb") as file:
        file.write(b"head")
        file.truncate(size)
        file.seek(200_000_000)
        file.write(b"middle")
    os.utime(store / "index", ns=(1, 1_234_567_890_123_456_789))
    with PosixWritableFileSystem(str(store)) as files, PosixWritableFileSystem(str(beside)) as journal:
        with JournalledFileSystem(files, journal, {}) as journalled:
            destroy(journalled)
        assert (beside / OLD_BYTES).stat().st_size < 1 << 20
        undo(files, journal)
        with files.open_read("index") as file:
            assert file.size() == size
            data = b"".join(file.pread(extent.length, extent.file_offset) for extent in file.iter_data())
            assert data.replace(b"\0", b"") == b"headmiddle"
            assert file.pread(6, 200_000_000) == b"middle"
    assert (store / "index").stat().st_blocks * 512 < 1 << 20
    assert (store / "index").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert os.listdir(store) == ["index"]


def test_a_hole_that_was_written_over_is_a_hole_of_zeros_again() -> None:
    disk = FaultyDisk()
    files = FaultyFileSystem(disk, "store")
    with files.create("0", 4 * BLOCK) as file:
        file.pwrite(b"data", BLOCK + 5000)
        file.fsync()
    before = state(files)
    files, beside, journalled = begin(disk)
    with journalled.open_write("0") as file:
        file.pwrite(b"y" * (4 * BLOCK), 0)
    assert beside.stat(OLD_BYTES).size == 4096, "the one block of the disk that holds data"
    undo(files, beside)
    assert state(files) == before
