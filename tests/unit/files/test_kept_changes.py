"""Changes of overlays in a file: the next process has the same overlay, whenever the one before was killed."""

from __future__ import annotations

import errno
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rmqtool.errors import StoreError, WriteFailed
from rmqtool.files.filesystem import iter_tree
from rmqtool.files.kept_changes import CHANGES, KeptChanges, KeptOverlay
from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.support.stores import tree_state
from tests.support.waiting import PATIENCE, wait_for_end

Places = tuple[Path, Path]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    store, state = tmp_path / "store", tmp_path / "state"
    (store / "config").mkdir(parents=True)
    state.mkdir()
    (store / "log").write_bytes(bytes(range(256)) * 64)
    (store / "config" / "offsets").write_bytes(b"{}")
    return store, state


@contextmanager
def opened(places: Places, left_out: list[str | None] | None = None) -> Iterator[KeptOverlay]:
    with ExitStack() as stack:
        base = stack.enter_context(PosixReadableFileSystem(str(places[0])))
        state = stack.enter_context(PosixWritableFileSystem(str(places[1])))
        overlay = stack.enter_context(KeptOverlay(base))
        kept = stack.enter_context(KeptChanges(state, [overlay]))
        if left_out is not None:
            left_out.append(kept.left_out)
        yield overlay


def content(overlay: KeptOverlay) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for path, kind in iter_tree(overlay):
        if kind.value == "directory":
            found[path] = None
        else:
            with overlay.open_read(path) as file:
                found[path] = file.pread(file.size(), 0)
    return found


def write(overlay: KeptOverlay, path: str, data: bytes, at: int) -> None:
    with overlay.open_write(path) if overlay.exists(path) else overlay.create(path) as file:
        file.pwrite(data, at)


def cut(overlay: KeptOverlay, path: str, size: int) -> None:
    with overlay.open_write(path) as file:
        file.truncate(size)


STEPS: list[Callable[[KeptOverlay], None]] = [
    lambda overlay: write(overlay, "log", b"changed", 5000),
    lambda overlay: overlay.mkdir("queues"),
    lambda overlay: write(overlay, "queues/0", b"entry", 60),
    lambda overlay: overlay.rename("config/offsets", "config/offsets.bak"),
    lambda overlay: write(overlay, "config/offsets", b'{"a":1}', 0),
    lambda overlay: write(overlay, "config/offsets.bak", b"!", 2),
    lambda overlay: cut(overlay, "log", 6000),
    lambda overlay: cut(overlay, "log", 9000),
    lambda overlay: overlay.unlink("queues/0"),
    lambda overlay: overlay.rmdir("queues"),
]


def test_the_next_process_has_the_same_overlay_after_each_step(places: Places) -> None:
    before = tree_state(places[0])
    for step in STEPS:
        with opened(places) as overlay:
            step(overlay)
            expected = content(overlay)
        with opened(places) as overlay:
            assert content(overlay) == expected
    log = bytes(range(256)) * 64
    assert expected["log"] == log[:5000] + b"changed" + log[5007:6000] + bytes(3000)
    assert expected["config/offsets"] == b'{"a":1}'
    assert expected["config/offsets.bak"] == b"{}!"
    assert "queues" not in expected
    assert tree_state(places[0]) == before


def test_a_file_that_is_cut_anywhere_holds_the_steps_before(places: Places) -> None:
    """The end of the file is torn if the machine crashes: what is whole before counts."""
    expected, ends = [], []
    with opened(places) as overlay:
        for step in STEPS[:8]:
            step(overlay)
            expected.append(content(overlay))
            ends.append((places[1] / CHANGES).stat().st_size)
    whole = (places[1] / CHANGES).read_bytes()
    chance = random.Random(29)
    for number, end in enumerate(ends[:-1]):
        for torn in {end, ends[number + 1] - 1, chance.randrange(end, ends[number + 1])}:
            (places[1] / CHANGES).write_bytes(whole[:torn])
            with opened(places) as overlay:
                found = content(overlay)
            # A step may be several changes, as that of a new file: its name comes before its bytes.
            assert found in expected[number : number + 1] or torn > end
            assert set(found) <= set(expected[number]) | set(expected[number + 1])


def test_damage_before_further_changes_is_an_error_and_nothing_is_thrown_away(places: Places) -> None:
    """A bit that flipped is no crash: the changes after it were there, and may not vanish without a word."""
    with opened(places) as overlay:
        for number in range(4):
            write(overlay, "log", b"%d" % number * 100, number * 200)
            overlay.fsync_dir("")
    whole = (places[1] / CHANGES).read_bytes()
    places_of = [at.start() for at in re.finditer(rb'\{"write":', whole)]
    assert len(places_of) == 4
    data_of_second = whole.index(b"1" * 100) + 50
    for bad, at in ((places_of[1] + 3, places_of[1]), (data_of_second, places_of[1]), (0, 0)):
        damaged = bytearray(whole)
        damaged[bad] ^= 0x10
        (places[1] / CHANGES).write_bytes(damaged)
        with pytest.raises(StoreError, match=f"is damaged from byte {at} on") as caught, opened(places):
            pass
        assert caught.value.offset == at
        assert (places[1] / CHANGES).read_bytes() == damaged
    # As the hint says: what is before the damage counts.
    (places[1] / CHANGES).write_bytes(whole[: places_of[1]])
    with opened(places) as overlay:
        assert content(overlay)["log"][:201] == b"0" * 100 + bytes(range(100, 201))  # type: ignore[index]


def test_a_page_that_a_power_cut_lost_after_the_last_sync_ends_what_counts(places: Places) -> None:
    """Pages reach the disk in any order before a sync: nobody was told that these changes are kept."""
    path = places[1] / CHANGES
    with opened(places) as overlay:
        write(overlay, "log", b"0" * 6000, 0)
        overlay.sync()
        expected, durable = content(overlay), path.stat().st_size
        for number in range(1, 4):
            write(overlay, "log", b"%d" % number * 6000, number * 1000)
        whole = path.read_bytes()
    lost = bytearray(whole)
    lost[durable + 4096 : durable + 8192] = bytes(4096)
    path.write_bytes(lost)
    told: list[str | None] = []
    with opened(places, told) as overlay:
        # The first of the three has lost its end.
        assert content(overlay) == expected
    assert told == [
        f"{path}: the machine stopped before the last {len(whole) - durable} bytes of changes were on disk, "
        "and they are left out"
    ]
    with opened(places, told) as overlay:
        assert content(overlay) == expected
    assert told[1] is None
    # The same hole before the end of the last sync is damage.
    lost = bytearray(whole)
    lost[1000:2000] = bytes(1000)
    path.write_bytes(lost)
    with pytest.raises(StoreError, match="is damaged from byte"), opened(places):
        pass
    assert path.read_bytes() == lost


def test_a_sync_is_noted_without_another_sync(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    with opened(places) as overlay:
        monkeypatch.setattr(os, "fdatasync", syncs.append)
        write(overlay, "log", b"changed", 50)
        size = (places[1] / CHANGES).stat().st_size
        overlay.sync()
        overlay.sync()
        assert (places[1] / CHANGES).read_bytes()[size:] == b'{"synced":%d}\n' % size
    assert len(syncs) == 1


def test_a_change_that_does_not_fit_is_damage(places: Places) -> None:
    for line in (b'{"cut":7,"size":1}\n', b'{"name":"x","number":9}\n', b'{"write":1,"at":0,"length":0}\n'):
        (places[1] / CHANGES).write_bytes(line)
        with pytest.raises(StoreError, match="is damaged from byte 0 on"), opened(places):
            pass


def test_what_is_written_again_and_again_is_kept_once(places: Places) -> None:
    with opened(places) as overlay:
        for number in range(2000):
            write(overlay, "config/offsets", b"%04d" % number * 100, 0)
    grown = (places[1] / CHANGES).stat().st_size
    with opened(places) as overlay:
        assert content(overlay)["config/offsets"] == b"1999" * 100
    assert grown > 800_000
    assert (places[1] / CHANGES).stat().st_size < 10_000


def test_a_sync_that_failed_is_never_followed_by_one_that_succeeds(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fdatasync the kernel may have dropped the pages: nobody knows what is on disk."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def write_and_sync_twice() -> None:
        with opened(places) as overlay:
            write(overlay, "log", b"changed", 5000)
            with monkeypatch.context() as patch:
                patch.setattr("os.fdatasync", fail)
                with pytest.raises(WriteFailed, match="sync"):
                    overlay.sync()
            with pytest.raises(WriteFailed, match="sync"):
                overlay.sync()

    # Closing says it once more: what is kept is not known to be durable.
    with pytest.raises(WriteFailed, match="sync"):
        write_and_sync_twice()


def full_disk(*_arguments: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("path", ["log", "new"])
def test_what_could_not_be_kept_can_be_done_again(places: Places, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk ends one change. Those after it are read again by the next process."""
    with opened(places) as overlay:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full_disk)
            with pytest.raises(WriteFailed, match="No space"):
                write(overlay, path, b"changed", 50)
        write(overlay, path, b"changed", 50)
        expected = content(overlay)
    with opened(places) as overlay:
        assert content(overlay) == expected


def test_a_change_that_cannot_be_taken_out_again_is_the_last(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is after half of a change is not read again, so nothing may be acknowledged after it."""

    def half(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", full_disk)
        return real(descriptor, data[: len(data) // 2])

    def change_twice() -> None:
        with opened(places) as overlay:
            monkeypatch.setattr(os, "ftruncate", full_disk)
            monkeypatch.setattr(os, "write", half)
            with pytest.raises(WriteFailed, match="No space"):
                write(overlay, "log", b"changed", 50)
            monkeypatch.undo()
            with pytest.raises(WriteFailed, match="No space"):
                write(overlay, "log", b"changed", 50)

    real = os.write
    with pytest.raises(WriteFailed, match="No space"):
        change_twice()


def test_names_are_durable_after_their_directory_was_synced(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of offsets is replaced by a rename, which the sync of its directory makes durable."""
    real, sizes = os.fdatasync, list[int]()

    def count(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        real(descriptor)

    with opened(places) as overlay:
        monkeypatch.setattr(os, "fdatasync", count)
        overlay.rename("config/offsets", "config/offsets.bak")
        overlay.fsync_dir("config")
        assert (places[1] / CHANGES).read_bytes()[sizes[0] :] == b'{"synced":%d}\n' % sizes[0]
        assert len(sizes) == 1


def test_the_name_of_the_file_of_changes_is_durable_before_anything_is_kept(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(places) as overlay:
        write(overlay, "log", b"changed", 50)
    real, synced = os.fsync, list[int]()
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_ino), real(descriptor)))
    with opened(places):
        assert places[1].stat().st_ino in synced


def test_a_second_thread_waits_for_the_sync_of_the_first(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(descriptor: int) -> None:
        begun.set()
        assert may_end.wait(PATIENCE)
        real(descriptor)

    with opened(places) as overlay:
        write(overlay, "log", b"changed", 5000)
        monkeypatch.setattr("os.fdatasync", slow)
        first = threading.Thread(target=overlay.sync)
        second = threading.Thread(target=lambda: (overlay.sync(), ended.set()))
        first.start()
        assert begun.wait(PATIENCE)
        second.start()
        assert not ended.wait(0.2)
        may_end.set()
        wait_for_end(first, second)
        assert ended.is_set()
