"""Damage that no catalogue has: what ``check`` says of it, and where."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqtool.checks import databases
from rmqtool.checks.check import Check
from rmqtool.findings import Severity
from rmqtool.formats import layouts, timer
from rmqtool.store.open import Store, open_store
from rmqtool.store.rocksdb import Database, open_database
from tests.support.stores import truth

Damage = Callable[[Path], object]
Row = tuple[bytes, bytes]


def files(root: Path, directory: str) -> list[Path]:
    return sorted(path for path in (root / directory).iterdir() if path.is_file())


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def write_at(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


CASES: dict[str, tuple[str, Damage, tuple[str, str, int | None]]] = {
    "an index file under a later name": (
        "53-broker",
        lambda root: files(root, "index")[0].rename(root / "index" / "20271118124300000"),
        ("IX-HEAD", "index/20271118124300000", 16),
    ),
    "an index file twice": (
        "53-broker",
        lambda root: shutil.copy(files(root, "index")[0], root / "index" / "20271118124300000"),
        ("IX-HEAD", "index/20271118124300000", 16),
    ),
    "the first file of the timer log is gone": (
        "53-timer",
        lambda root: files(root, "timerlog")[0].unlink(),
        ("TM-WRONG", "timerlog/00000000000000002600", 0),
    ),
    "timers are delivered up to the next century": (
        "53-timer",
        lambda root: write_at(root / "config" / "timercheck", 0, struct.pack(">q", 4_702_444_800_000)),
        ("CP-AHEAD", "config/timercheck", 0),
    ),
    "timers are delivered up to before there was time": (
        "53-timer",
        lambda root: write_at(root / "config" / "timercheck", 0, struct.pack(">q", -5)),
        ("CP-AHEAD", "config/timercheck", 0),
    ),
    "a state of DLedger without its indexes": (
        "49-dledger",
        lambda root: (root / "dledger-n0" / "checkpoint").write_bytes(b"committedIndex=265\n"),
        ("DL-STATE", "dledger-n0/checkpoint", 0),
    ),
    "a FIFO instead of a segment": (
        "53-broker",
        lambda root: replace_by_fifo(root / "commitlog" / f"{131072:020}"),
        ("ST-FOREIGN", f"commitlog/{131072:020}", None),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_found_in_its_place(name: str, writable_store: Callable[[str], Path]) -> None:
    fixture, damage, expected = CASES[name]
    root = writable_store(fixture)
    damage(root)
    with open_store(str(root)) as store:
        found = [finding for finding in Check(store) if finding.severity is not Severity.NOTICE]
    assert expected in [(finding.code, finding.file, finding.offset) for finding in found]
    assert "CL-NAME" not in [finding.code for finding in found]


def wheel_slots(root: Path) -> dict[int, layouts.TimerSlot]:
    """Return the used slots of the wheel by their place."""
    slots = enumerate(layouts.TIMER_SLOT.iter_decode((root / "timerwheel").read_bytes()))
    return {number * timer.SLOT_SIZE: slot for number, slot in slots if any(slot)}


@pytest.mark.parametrize(
    ("change", "saved", "expected"),
    [
        ({"num": 77}, None, [Severity.NOTICE]),
        ({"last_pos": 1 << 40}, None, [Severity.WARNING]),
        (dict.fromkeys(layouts.TimerSlot._fields, 0), None, [Severity.WARNING]),
        (dict.fromkeys(layouts.TimerSlot._fields, 0), 0, []),
        ({"last_pos": 1 << 40}, 0, [Severity.WARNING]),
    ],
    ids=["miscounted", "ahead of the log", "empty", "not linked yet", "ahead of what is not linked yet"],
)
def test_a_wheel_may_only_lack_what_the_next_start_adds(
    change: dict[str, int], saved: int | None, expected: list[Severity], writable_store: Callable[[str], Path]
) -> None:
    root = writable_store("53-timer")
    place, slot = next((at, slot) for at, slot in wheel_slots(root).items() if slot.first_pos == slot.last_pos)
    write_at(root / "timerwheel", place, layouts.TIMER_SLOT.encode(slot._replace(**change)))
    if saved is not None:
        write_at(root / "config/timercheck", 8, struct.pack(">q", saved))
    with open_store(str(root)) as store:
        found = [(one.severity, one.file, one.offset) for one in Check(store) if one.code == "TM-WRONG"]
    assert found == [(severity, "timerwheel", place) for severity in expected]


def test_queues_of_a_database_are_counted(store: Callable[[str], Path]) -> None:
    with open_store(str(store("53-rocksdb"))) as opened:
        check = Check(opened)
        list(check)
    queues = truth("53-rocksdb")["queues"]
    assert check.summary.queues == sum(
        queue["maxOffset"] > queue["minOffset"] for of_topic in queues.values() for queue in of_topic.values()
    )


class Rows:
    """A database whose queue rows are changed while they are read."""

    def __init__(self, database: Database, change: Callable[[list[Row]], list[Row]]) -> None:
        self.database = database
        self.change = change
        self.families = database.families

    def iter_rows(self, family: str, *bounds: bytes) -> Iterator[Row]:
        rows = list(self.database.iter_rows(family, *bounds))
        yield from self.change(rows) if family == "default" else rows


def changed_value(rows: list[Row], at: int, name: str, value: int) -> list[Row]:
    layout = layouts.ROCKSDB_QUEUE_VALUE
    key, stored = rows[at]
    return [*rows[:at], (key, layout.encode(layout.decode(stored)._replace(**{name: value}))), *rows[at + 1 :]]


def without(rows: list[Row], *numbers: int) -> list[Row]:
    return [row for number, row in enumerate(rows) if number not in numbers]


# The rows of RocksA/0, which has 30 of them, are the ones behind the four of the group's retry topic.
ROW_CASES: dict[str, tuple[Callable[[list[Row], int], list[Row]], str, int]] = {
    "the first ones are missing": (lambda rows, at: without(rows, at, at + 1), "CQ-MISSING", 0),
    "one between others is missing": (lambda rows, at: without(rows, at + 7), "CQ-MISSING", 7),
    "the last one is missing": (lambda rows, at: without(rows, at + 29), "CQ-MISSING", 29),
    "all are missing": (lambda rows, at: without(rows, *range(at, at + 30)), "CQ-MISSING", 0),
    "one leads into a record": (lambda rows, at: changed_value(rows, at + 3, "physical_offset", 11), "CQ-WRONG", 3),
    "one has another size": (lambda rows, at: changed_value(rows, at + 4, "size", 17), "CQ-WRONG", 4),
    "one has another tag": (lambda rows, at: changed_value(rows, at + 5, "tags_code", 17), "CQ-WRONG", 5),
    "one has another time": (lambda rows, at: changed_value(rows, at + 6, "store_time", 17), "CQ-WRONG", 6),
    "one leads behind the end": (
        lambda rows, at: changed_value(rows, at + 8, "physical_offset", 1 << 40),
        "CQ-WRONG",
        8,
    ),
}


@pytest.mark.parametrize("name", ROW_CASES)
def test_rows_of_queues_are_compared_with_the_log(
    name: str, store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    change, code, queue_offset = ROW_CASES[name]
    first = struct.pack(">i", 6) + b"\1RocksA\1" + struct.pack(">iBq", 0, 1, 0)

    @contextmanager
    def open_changed(opened: Store, directory: str) -> Iterator[Rows | Database]:
        with open_database(opened, directory) as database:
            if directory != "consumequeue":
                yield database
                return
            yield Rows(database, lambda rows: change(rows, [key for key, _ in rows].index(first)))

    monkeypatch.setattr(databases, "open_database", open_changed)
    with open_store(str(store("53-rocksdb"))) as opened:
        found = [finding for finding in Check(opened) if finding.severity is not Severity.NOTICE]
    assert [(finding.code, finding.topic, finding.queue_id, finding.data["queueOffset"]) for finding in found] == [
        (code, "RocksA", 0, queue_offset)
    ]
