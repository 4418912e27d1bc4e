"""The links of an index file against what a walk over its entries, one by one, says of them."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from rmqtool.audit import index
from rmqtool.audit.index import IndexLinks, SlotPart, WrongLink, examine_links
from rmqtool.files.posix import PosixReadableFileSystem

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
