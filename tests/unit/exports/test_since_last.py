"""What is new since the last export, exactly once: while a writer appends, exports are killed, segments come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rmqtool.errors import NoSpace, Refused, UsageError
from rmqtool.exports import run as module
from rmqtool.exports.choice import DEFAULT, OnCorrupt
from rmqtool.exports.run import Answers, Engine, Job, Outcome
from rmqtool.exports.target import Mode, read_manifests
from tests.support.builders import queue_unit
from tests.support.exported import HERE, export, read
from tests.support.growing_store import GrowingStore

EMIT = replace(DEFAULT, on_corrupt=OnCorrupt.EMIT)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def store(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path / "broker-a" / "store")


def since_last(to: Path, *stores: GrowingStore, engine: Engine = HERE, **more: Any) -> Outcome:
    return export(to, *(one.root for one in stores), choice=EMIT, since_last=True, engine=engine, **more)


def keys(to: Path) -> list[str]:
    """Return the keys of all messages that any reader of the directory sees."""
    found: list[str] = sorted(pq.read_table(to)["msg_id"].to_pylist())
    return found


def wanted(count: int) -> list[str]:
    return [f"U{number:08}" for number in range(count)]


def appending(store: GrowingStore, count: int) -> Engine:
    """Return an engine before whose work the store grows: what is new then was not there when the work was planned."""

    def run(jobs: Sequence[Job]) -> Generator[Answers]:
        store.append(count)
        store.append_torn()
        yield from HERE(jobs)

    return run


def kill_export(to: Path, store: GrowingStore, engine: Engine, last: int) -> bool:
    """Export in a child that dies, as by SIGKILL, instead of its rename number ``last``; return whether it died."""
    child = os.fork()
    if child == 0:
        left = [last]
        real = os.rename

        def rename(*arguments: Any) -> None:
            if left[0] == 0:
                os._exit(99)
            left[0] -= 1
            real(*arguments)

        os.rename = rename
        since_last(to, store, engine=engine)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99


def test_ten_times_while_a_writer_appends_and_twice_killed(store: GrowingStore, tmp_path: Path) -> None:
    to = tmp_path / "lake"
    store.append(30)
    for turn in range(10):
        before = store.written
        if turn in (4, 7):
            # Once before the list of renames is there, once in the midst of them.
            assert kill_export(to, store, HERE, last=turn - 4)
        outcome = since_last(to, store, engine=appending(store, 25))
        assert keys(to) == wanted(before), turn
        assert outcome.damages == []
    store.complete()
    since_last(to, store)
    assert keys(to) == wanted(store.written)
    assert store.written > 250
    manifests = read_manifests(str(to))
    ends = [(one.read["broker-a"].start, one.read["broker-a"].end) for one in manifests]
    assert [start for start, _ in ends[1:]] == [end for _, end in ends[:-1]]
    assert read(to).num_rows == store.written


@pytest.mark.parametrize("last", range(8))
def test_killed_at_any_rename_every_message_is_there_once(store: GrowingStore, tmp_path: Path, last: int) -> None:
    to = tmp_path / "lake"
    store.append(20)
    since_last(to, store)
    store.append(20)
    kill_export(to, store, HERE, last)
    store.append(20)
    since_last(to, store)
    assert keys(to) == wanted(60)
    assert not (to.parent / f".{to.name}.rmqtool").exists()


def test_nothing_new_changes_nothing(store: GrowingStore, tmp_path: Path) -> None:
    to = tmp_path / "lake"
    store.append(5)
    since_last(to, store)
    names = sorted(to.rglob("*"))
    outcome = since_last(to, store)
    assert (outcome.changed, outcome.rows) == (False, 0)
    assert sorted(to.rglob("*")) == names


def test_torn_record_is_no_damage_and_comes_when_it_is_whole(store: GrowingStore, tmp_path: Path) -> None:
    to = tmp_path / "lake"
    store.append(3)
    store.append_torn()
    assert since_last(to, store).damages == []
    assert keys(to) == wanted(3)
    store.complete()
    since_last(to, store)
    assert keys(to) == wanted(4)


def test_queue_that_is_ahead_meanwhile_is_no_damage(store: GrowingStore, tmp_path: Path) -> None:
    """What a broker dispatches while an export works is the next one's; a plain export of a settled log misses it."""
    store.append(10)
    queue = store.root / "consumequeue" / "Growing" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020}").write_bytes(b"".join(queue_unit(store.end + at, 100, 0) for at in (0, 100)))
    assert since_last(tmp_path / "lake", store).damages == []
    (damage,) = [damage for _, damage in export(tmp_path / "plain", store.root, choice=EMIT).damages]
    assert (damage.code, damage.file_offset, damage.length) == ("CL-MAGIC", store.end, 200)


def test_goes_on_after_a_plain_export(store: GrowingStore, tmp_path: Path) -> None:
    to = tmp_path / "lake"
    store.append(40)
    export(to, store.root)
    store.append(2)
    since_last(to, store)
    assert keys(to) == wanted(42)


def test_broker_that_joins_is_exported_whole(store: GrowingStore, tmp_path: Path) -> None:
    to = tmp_path / "lake"
    other = GrowingStore(tmp_path / "broker-b" / "store")
    store.append(4)
    since_last(to, store)
    store.append(1)
    other.append(3)
    since_last(to, store, other)
    since_last(to, other)
    assert sorted(read(to)["broker"].to_pylist()) == ["broker-a"] * 5 + ["broker-b"] * 3
    assert set(read_manifests(str(to))[-1].read) == {"broker-a", "broker-b"}


def test_segments_deleted_in_between_are_named(store: GrowingStore, tmp_path: Path) -> None:
    to = tmp_path / "lake"
    store.append(10)
    since_last(to, store)
    end = store.end
    store.append(200)
    store.delete_first_segment()
    outcome = since_last(to, store)
    (damage,) = [damage for _, damage in outcome.damages]
    assert damage.code == "CL-GAP"
    assert damage.length == store.segment_size - end
    assert f"from {end} on" in damage.message
    later = since_last(to, store)
    assert later.damages == []


def test_log_that_was_written_anew_is_refused(store: GrowingStore, tmp_path: Path) -> None:
    to = tmp_path / "lake"
    store.append(10)
    since_last(to, store)
    store.cut_back(2)
    with pytest.raises(Refused, match="cut before"):
        since_last(to, store)
    store.append(5)
    with pytest.raises(Refused, match="rewritten") as refused:
        since_last(to, store)
    assert "--mode overwrite" in (refused.value.hint or "")
    assert keys(to) == wanted(10)
    export(to, store.root, mode=Mode.OVERWRITE)
    store.append(1)
    since_last(to, store)
    assert keys(to) == wanted(14)


@pytest.mark.parametrize(
    ("change", "name"),
    [({"topics": ("Other",)}, "topics"), ({"columns": ("topic",)}, "columns"), ({"queue_id": 1}, "queueId")],
)
def test_another_choice_is_refused(store: GrowingStore, tmp_path: Path, change: dict[str, Any], name: str) -> None:
    store.append(3)
    since_last(tmp_path / "lake", store)
    with pytest.raises(UsageError, match=f"was exported .*with {name} = (all|None|topic,)"):
        export(tmp_path / "lake", store.root, choice=replace(EMIT, **change), since_last=True)


def test_append_takes_other_topics_but_no_other_columns(store: GrowingStore, tmp_path: Path) -> None:
    store.append(3)
    export(tmp_path / "lake", store.root)
    export(tmp_path / "lake", store.root, choice=replace(DEFAULT, topics=("Grow*",)), mode=Mode.APPEND)
    assert keys(tmp_path / "lake") == sorted(wanted(3) * 2)
    with pytest.raises(UsageError, match="columns"):
        export(tmp_path / "lake", store.root, choice=replace(DEFAULT, columns=("topic",)), mode=Mode.APPEND)


def _two(tmp_path: Path) -> tuple[GrowingStore, GrowingStore]:
    first, second = (GrowingStore(tmp_path / name / "store") for name in ("broker-a", "broker-b"))
    first.append(6)
    second.append(4)
    return first, second


OF_NONE, OF_ALL = replace(EMIT, topics=("Other*",)), replace(EMIT, topics=("Grow*",))


def test_a_broker_of_other_topics_is_not_gone_on_with(tmp_path: Path) -> None:
    """The target has broker-a only with the topics of its own export: its messages of these topics would be missing."""
    first, second = _two(tmp_path)
    to = tmp_path / "lake"
    export(to, first.root, choice=OF_NONE)
    export(to, second.root, choice=OF_ALL, mode=Mode.APPEND)
    assert read_manifests(str(to))[-1].read["broker-a"].choices == OF_NONE.as_json() | {"partitionBy": []}
    with pytest.raises(UsageError, match=r"broker-a was exported .* with topics = Other\*, not Grow\*") as refused:
        export(to, first.root, second.root, choice=OF_ALL, since_last=True)
    assert "--mode append" in (refused.value.hint or "")
    second.append(1)
    export(to, second.root, choice=OF_ALL, since_last=True)
    first.append(1)
    assert export(to, first.root, choice=OF_NONE, since_last=True).rows == 0
    with pytest.raises(UsageError, match=r"broker-b was exported .* with topics = Grow\*, not Other\*"):
        export(to, second.root, choice=OF_NONE, since_last=True)
    export(to, first.root, choice=OF_ALL, mode=Mode.APPEND)
    first.append(2)
    second.append(2)
    export(to, first.root, second.root, choice=OF_ALL, since_last=True)
    assert sorted(read(to)["broker"].to_pylist()) == ["broker-a"] * 9 + ["broker-b"] * 7


def test_a_broker_that_was_read_up_to_a_time_is_not_gone_on_with(tmp_path: Path) -> None:
    first, second = _two(tmp_path)
    to = tmp_path / "lake"
    export(to, first.root, choice=replace(EMIT, end=1))
    export(to, second.root, choice=EMIT, mode=Mode.APPEND)
    with pytest.raises(UsageError, match=r"broker-a was exported .* with end = 1, not None"):
        since_last(to, first, second)
    since_last(to, second)
    assert keys(to) == wanted(4)


def test_a_broker_that_was_never_exported_is_added_with_other_choices(tmp_path: Path) -> None:
    first, second = _two(tmp_path)
    export(tmp_path / "lake", first.root, choice=OF_NONE)
    assert export(tmp_path / "lake", second.root, choice=OF_ALL, since_last=True).rows == 4
    assert export(tmp_path / "lake", first.root, choice=OF_NONE, since_last=True).rows == 0


def test_a_store_that_had_another_name_is_not_exported_again(tmp_path: Path) -> None:
    """Two stores in directories of one name are named by their paths, but the first one alone was not."""
    one, twin = (GrowingStore(tmp_path / where / "broker-a" / "store") for where in ("one", "two"))
    one.append(3)
    twin.append(3)
    since_last(tmp_path / "lake", one)
    with pytest.raises(Refused, match=r"one/broker-a/store was exported .* as broker-a") as refused:
        since_last(tmp_path / "lake", one, twin)
    assert "if its brokerName has changed, --mode overwrite" in (refused.value.hint or "")
    assert keys(tmp_path / "lake") == wanted(3)


def test_full_disk_is_seen_before_the_work(
    store: GrowingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(300)

    class Full:
        f_bavail, f_frsize = 1, 4096

    def engine(jobs: Sequence[Job]) -> Generator[Answers]:
        raise AssertionError("the work began")
        yield

    monkeypatch.setattr(module.os, "statvfs", lambda path: Full)
    with pytest.raises(NoSpace, match="only 4096 are free there"):
        since_last(tmp_path / "lake", store, engine=engine)
    assert not (tmp_path / "lake").exists()


@contextmanager
def writer(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Let another process append to a store that it makes."""
    words = [sys.executable, "-m", "tests.support.growing_store", str(root)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def exporting(root: Path, to: Path, engine: str) -> subprocess.Popen[bytes]:
    """Start the command in a process group of its own."""
    words = ("export", str(root), "--to", str(to), "--since-last", "--engine", engine, "--split-size", "64k")
    said = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "rmqtool", *words], stdout=said, process_group=0)


def kill_at_work(process: subprocess.Popen[bytes], staging: Path) -> None:
    """Kill an export and all that it started as soon as a task of it has begun a file."""
    while process.poll() is None and not any(staging.rglob("part-*")):
        pass
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_command_ten_times_beside_a_writer_and_twice_killed(engine: str, tmp_path: Path) -> None:
    """No process waits for another: what a kill or a torn record meets is left to chance."""
    root, to = tmp_path / "broker-a" / "store", tmp_path / "lake"
    counts = []
    with writer(root) as appending:
        while not any((root / "commitlog").glob("*")):
            pass
        for turn in range(10):
            if turn in (3, 7):
                kill_at_work(exporting(root, to, engine), to.parent / f".{to.name}.rmqtool")
            assert exporting(root, to, engine).wait() == 0
            found = keys(to)
            assert found == wanted(len(found)), turn
            counts.append(len(found))
        written = int(appending.communicate()[0])
    assert exporting(root, to, engine).wait() == 0
    assert keys(to) == wanted(written)
    assert counts == sorted(set(counts)), "every export found something new"
    assert len(read_manifests(str(to))) == 11
    assert not (to.parent / f".{to.name}.rmqtool").exists()
