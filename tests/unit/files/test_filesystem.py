"""What all file systems share: names, neighbours, directories, spans."""

from __future__ import annotations

import pytest

from rmqtool.errors import Exit, FileMissing, NoSpace, ReadFailed, WriteFailed
from rmqtool.files.failures import os_error, read_failed, write_failed
from rmqtool.files.filesystem import (
    Attributes,
    Extent,
    Kind,
    iter_tree,
    join,
    make_directories,
    merged,
    neighbour_attributes,
    path_parts,
    split,
)
from tests.support.faulty import FaultyFileSystem
from tests.support.faulty_disk import Call, FaultyDisk


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "..",
        "../other",
        "commitlog/../../other",
        ".",
        "a/./b",
        "a//b",
        "a/",
        "a\0b",
        "x" * 256,
        "ü" * 128,
        "half \ud800 of a pair",
    ],
)
def test_a_path_that_could_leave_the_root_is_refused(path: str) -> None:
    for error in (ReadFailed, WriteFailed):
        with pytest.raises(error, match="is not a path in the store"):
            path_parts(path, error)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("", ()),
        ("lock", ("lock",)),
        ("consumequeue/%RETRY%a|b+c/0", ("consumequeue", "%RETRY%a|b+c", "0")),
        ("...", ("...",)),
        ("a\\..\\b", ("a\\..\\b",)),
        ("\udcff raw byte", ("\udcff raw byte",)),
        ("x" * 255, ("x" * 255,)),
    ],
)
def test_any_other_name_is_a_name(path: str, parts: tuple[str, ...]) -> None:
    assert path_parts(path) == parts


def test_join_and_split_undo_each_other() -> None:
    for path in ("lock", "config/topics.json", "consumequeue/T/0"):
        assert join(*split(path)) == path
    assert split("") == ("", "")


def test_extents_that_touch_or_overlap_become_one() -> None:
    extents = [Extent(0, 10), Extent(10, 5), Extent(12, 1), Extent(20, 5), Extent(24, 10)]
    assert list(merged(extents)) == [Extent(0, 15), Extent(20, 14)]
    assert list(merged([])) == []


@pytest.mark.parametrize(
    ("number", "kind", "hint"),
    [(2, FileMissing, None), (5, ReadFailed, "disk"), (13, ReadFailed, "owner"), (24, ReadFailed, "ulimit")],
)
def test_a_read_error_says_what_where_why_and_what_next(number: int, kind: type[ReadFailed], hint: str | None) -> None:
    error = read_failed("open", "/s/lock", os_error(number))
    assert type(error) is kind
    assert error.message == f"cannot open /s/lock: {os_error(number).strerror}"
    assert error.file == "/s/lock"
    assert error.exit_status == Exit.NOT_A_STORE
    assert (hint in error.hint) if hint else error.hint is None


@pytest.mark.parametrize(("number", "kind"), [(28, NoSpace), (122, NoSpace), (5, WriteFailed), (30, WriteFailed)])
def test_a_write_error_tells_a_full_disk_from_a_broken_one(number: int, kind: type[WriteFailed]) -> None:
    error = write_failed("write to", "/s/lock", os_error(number))
    assert type(error) is kind
    assert error.exit_status == Exit.WRITE_FAILED
    assert error.hint


def make(files: FaultyFileSystem, path: str, mode: int, owner: int, group: int) -> None:
    with files.create(path):
        files.set_attributes(path, Attributes(mode, owner, group))


def test_new_files_look_like_most_of_their_neighbours() -> None:
    files = FaultyFileSystem(FaultyDisk())
    make(files, "a-root-made-this", 0o600, 0, 0)
    make(files, "b", 0o640, 1001, 1002)
    make(files, "c", 0o640, 1001, 1002)
    assert neighbour_attributes(files, "", Kind.FILE) == Attributes(0o640, 1001, 1002)


def test_without_neighbours_the_directory_decides() -> None:
    files = FaultyFileSystem(FaultyDisk())
    files.mkdir("commitlog")
    files.set_attributes("commitlog", Attributes(0o2750, 1001, 1002))
    assert neighbour_attributes(files, "commitlog", Kind.FILE) == Attributes(0o640, 1001, 1002)
    assert neighbour_attributes(files, "commitlog", Kind.DIRECTORY) == Attributes(0o2750, 1001, 1002)
    files.mkdir("consumequeue")
    status = files.stat("consumequeue")
    assert (status.mode, status.owner, status.group) == (0o2750, 1001, 1002), "as the directory beside it"


def test_a_new_file_can_be_written_by_its_owner_whatever_its_neighbours() -> None:
    files = FaultyFileSystem(FaultyDisk())
    make(files, "read-only", 0o444, 7, 7)
    assert neighbour_attributes(files, "", Kind.FILE) == Attributes(0o644, 7, 7)


def test_directories_are_made_durable_one_in_the_other() -> None:
    disk = FaultyDisk()
    make_directories(FaultyFileSystem(disk), "consumequeue/T/0")
    assert disk.calls == [
        Call("mkdir", "consumequeue"),
        Call("fsync_dir", ""),
        Call("mkdir", "consumequeue/T"),
        Call("fsync_dir", "consumequeue"),
        Call("mkdir", "consumequeue/T/0"),
        Call("fsync_dir", "consumequeue/T"),
    ]
    make_directories(FaultyFileSystem(disk), "consumequeue/T/0")
    assert len(disk.calls) == 6, "what is there is left alone"
    for outcome in disk.iter_outcomes():
        assert FaultyFileSystem(outcome).exists("consumequeue/T/0")


def test_a_file_in_the_place_of_a_directory_is_an_error() -> None:
    files = FaultyFileSystem(FaultyDisk())
    files.create("consumequeue").close()
    with pytest.raises(WriteFailed, match="consumequeue is a file, not a directory"):
        make_directories(files, "consumequeue/T/0")


def test_a_tree_is_walked_in_order_each_directory_before_what_it_holds() -> None:
    files = FaultyFileSystem(FaultyDisk())
    make_directories(files, "b/d")
    for path in ("b/d/x", "a", "b/c"):
        files.create(path).close()
    files.plant("e", Kind.FIFO)
    assert list(iter_tree(files)) == [
        ("a", Kind.FILE),
        ("b", Kind.DIRECTORY),
        ("b/c", Kind.FILE),
        ("b/d", Kind.DIRECTORY),
        ("b/d/x", Kind.FILE),
        ("e", Kind.FIFO),
    ]


def test_bytes_that_must_be_there_and_are_not() -> None:
    files = FaultyFileSystem(FaultyDisk())
    with files.create("checkpoint", 10) as file:
        assert file.pread_exactly(4, 6) == bytes(4)
        with pytest.raises(ReadFailed, match="checkpoint is too short: 5 bytes were needed, and it has 10") as caught:
            file.pread_exactly(5, 6)
        assert caught.value.offset == 6
