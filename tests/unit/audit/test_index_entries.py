"""One rule says whether an index file is right: its links, its header, and the keys that it should hold."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from rmqtool.audit import index
from rmqtool.audit.index import IndexLinks, SlotPart, WrongLink, examine_links
from rmqtool.config import Version
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.files.posix import PosixReadableFileSystem
from tests.support.engine_stores import ENTRIES, SLOTS, a_message, read_bytes, small_setup

HEADER, ENTRY = 40, 20
LOWEST = -(1 << 31)


def make_index(rng: random.Random, slots: int, entries: int, faults: int) -> tuple[bytes, IndexLinks]:
    """Return the bytes of a file, and what is to be said of its links."""
    newest = [0] * slots
    due = IndexLinks()
    rows = []
    for number in range(1, entries + 1):
        key_hash = rng.choice((rng.randrange(1 << 31), rng.randrange(20), -rng.randrange(1, 1 << 31), LOWEST))
        slot = abs(key_hash) % slots
        prev = newest[slot]
        if faults and rng.randrange(entries) < faults:
            prev = rng.choice([other for other in (0, -1, entries, (1 << 31) - 1) if other != newest[slot]])
            due.wrong_entries.append(WrongLink(number, prev, newest[slot]))
        if key_hash < 0:
            due.negative.append(number)
        newest[slot] = number
        rows.append(struct.pack(">iqii", key_hash, number * 100, number, prev))
    due.slots_used = sum(number > 0 for number in newest)
    held = list(newest)
    for slot in rng.sample(range(slots), faults):
        held[slot] = 1 if newest[slot] != 1 else 0
        due.wrong_slots.append(WrongLink(slot, held[slot], newest[slot]))
    due.wrong_slots.sort()
    nobody = bytes(ENTRY)  # entries are numbered from 1 on
    return bytes(HEADER) + struct.pack(f">{slots}i", *held) + nobody + b"".join(rows), due


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_links_are_what_a_walk_says(seed: int, parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are looked at so many at once, and a chain leads from one lot into the one before."""
    monkeypatch.setattr(index, "_ROW_BITS", 4)
    monkeypatch.setattr(index, "_AT_ONCE", 1 << 4)
    rng = random.Random(seed)
    slots, entries = rng.choice(((7, 100), (50, 33), (301, 200), (20, 16)))
    data, due = make_index(rng, slots, entries, faults=(0, 1, 5)[seed % 3])
    (tmp_path / "index").write_bytes(data)
    found = IndexLinks()
    with PosixReadableFileSystem(str(tmp_path)).open_read("index") as file:
        for number in range(parts):
            found.join(examine_links(file, slots, entries, SlotPart(number, parts)))
    assert found == due


@pytest.fixture
def setup() -> Setup:
    """Return what a store is opened with whose first index file is full, and the second is not."""
    setup = small_setup(Version.V5_3)
    with MessageStore.create(setup) as store:
        for number in range(ENTRIES + 3):
            assert store.put(a_message(number)).is_ok
    return setup


def index_paths(setup: Setup) -> list[str]:
    return [f"index/{entry.name}" for entry in setup.files.listdir("index")]


def write(setup: Setup, path: str, data: bytes, offset: int) -> None:
    with setup.files.open_write(path) as file:
        file.pwrite(data, offset)


def test_a_header_that_counts_entries_where_others_count_slots_is_left_alone(setup):
    """Old brokers do (check allows for it), and a recovery made the file again."""
    path = index_paths(setup)[0]
    entries = int.from_bytes(read_bytes(setup.files, path)[36:40], "big") - 1
    write(setup, path, struct.pack(">i", entries), 32)
    assert recover(setup).changes == {}
    write(setup, path, struct.pack(">i", entries - 3), 32)
    assert path in recover(setup).changes


def test_a_slot_that_names_an_entry_to_come_is_not_written_on(setup):
    """The entry that gets the number would be found under keys that it does not have."""
    path = index_paths(setup)[-1]
    before = read_bytes(setup.files, path)
    empty = next(slot for slot in range(SLOTS) if not any(before[40 + 4 * slot : 44 + 4 * slot]))
    write(setup, path, struct.pack(">i", 9), 40 + 4 * empty)
    assert path in recover(setup).changes
    assert index_slots(setup) == index_slots_due(setup)


def index_slots(setup: Setup) -> list[int]:
    data = read_bytes(setup.files, index_paths(setup)[-1])
    return list(struct.unpack_from(f">{SLOTS}i", data, 40))


def index_slots_due(setup: Setup) -> list[int]:
    """Return the newest entry of each slot, one entry after the other."""
    data = read_bytes(setup.files, index_paths(setup)[-1])
    newest = [0] * SLOTS
    for number in range(1, int.from_bytes(data[36:40], "big")):
        (key_hash,) = struct.unpack_from(">i", data, 40 + 4 * SLOTS + 20 * number)
        newest[key_hash % SLOTS] = number
    return newest
