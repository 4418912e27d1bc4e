"""A DLedger data file as columns."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.flaws import Flaw
from rmqtool.log import read
from rmqtool.log.read import DLedgerScan, Rows
from rmqtool.log.walk import Place, walk_dledger
from rmqtool.store.open import open_store
from tests.support.builders import dledger_entry, record
from tests.support.stores import truth
from tests.unit.log.test_columns import flat

HEAD = 48


@pytest.mark.parametrize("window", [700, 5000, 8 << 20])
def test_the_store_reads_as_the_walk_reads_it(window, store, monkeypatch):
    monkeypatch.setattr(read, "WINDOW", window)
    opened = open_store(str(store("49-dledger")))
    found = []
    for segment in opened.commit_log:
        file = opened.commit_log.open(segment)
        shown = flat(DLedgerScan(file, segment.base_offset).pieces())
        walked = [entry.record for entry in walk_dledger(file, segment.base_offset) if entry.record.length]
        assert [(at, what) for at, _, what, _ in shown if isinstance(what, Message)] == [
            (place.file_offset, place.what) for place in walked if isinstance(place.what, Message)
        ]
        assert isinstance(shown[-1][2], Blank | Nothing)
        found += [what.physical_offset for _, _, what, _ in shown if isinstance(what, Message)]
    assert found == [message["commitLogOffset"] for message in truth("49-dledger")["messages"]]


def entries(count: int, base: int, body: int = 30) -> tuple[bytes, list[int]]:
    data, starts = b"", []
    for number in range(count):
        at = len(data) + HEAD
        starts.append(at)
        inside = record(b"b" * (body + number % 7), physical_offset=base + at, queue_offset=number)
        data += dledger_entry(number, 1, base + at - HEAD, inside)
    return data, starts


def pieces_of(path: Path, data: bytes, base: int) -> list[Rows | Place]:
    path.write_bytes(data)
    return list(DLedgerScan(PosixReadableFileSystem(str(path.parent)).open_read(path.name), base).pieces())


def places_of(pieces: list[Rows | Place]) -> list[int]:
    return [at for at, _, what, _ in flat(pieces) if isinstance(what, Message)]


def test_a_wrong_body_is_named_and_stepped_over(tmp_path):
    data, starts = entries(20, 65536)
    broken = bytearray(data)
    broken[starts[7] + 90] ^= 1
    pieces = pieces_of(tmp_path / "data", bytes(broken), 65536)
    assert places_of(pieces) == starts[:7] + starts[8:]
    (flaw,) = [piece for piece in pieces if isinstance(piece, Place)]
    assert isinstance(flaw.what, Flaw)
    assert (flaw.what.code, flaw.file_offset, flaw.length) == ("CL-CRC", starts[7], starts[8] - starts[7] - HEAD)


@pytest.mark.parametrize("at", [0, 4, 44])
def test_behind_a_broken_head_the_next_entry_is_found(at, tmp_path):
    data, starts = entries(20, 0)
    broken = bytearray(data)
    struct.pack_into(">i", broken, starts[7] - HEAD + at, 77)
    pieces = pieces_of(tmp_path / "data", bytes(broken), 0)
    assert places_of(pieces) == starts[:7] + starts[8:]
    (flaw,) = [piece for piece in pieces if isinstance(piece, Place)]
    assert isinstance(flaw.what, Flaw)
    assert (flaw.what.code, flaw.file_offset) == ("DL-MAGIC" if not at else "DL-SIZE", starts[7] - HEAD)
    assert flaw.file_offset + flaw.length == starts[8] - HEAD


def test_a_torn_end_is_one_flaw(tmp_path):
    data, starts = entries(5, 0)
    pieces = pieces_of(tmp_path / "data", data[:-20], 0)
    assert places_of(pieces) == starts[:4]
    assert isinstance(pieces[-1], Place)
    assert isinstance(pieces[-1].what, Flaw)
    assert pieces[-1].file_offset + pieces[-1].length == len(data) - 20


def test_entries_without_a_record_are_stepped_over(tmp_path):
    first = dledger_entry(0, 1, 0, b"")
    change = bytearray(dledger_entry(1, 1, len(first), b"peers"))
    struct.pack_into(">i", change, 0, 3)
    at = len(first) + len(change) + HEAD
    last = dledger_entry(2, 1, at - HEAD, record(b"x", physical_offset=at))
    assert places_of(pieces_of(tmp_path / "data", first + bytes(change) + last, 0)) == [at]


def test_a_record_larger_than_a_window(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "WINDOW", 500)
    data, starts = entries(4, 0, body=1000)
    assert places_of(pieces_of(tmp_path / "data", data, 0)) == starts


@pytest.mark.parametrize("seed", range(100))
def test_any_damage_is_passed_without_a_gap_in_the_answers(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(read, "WINDOW", rng.choice((400, 3000, 8 << 20)))
    data, starts = entries(40, 4096)
    broken = bytearray(data)
    at, length = rng.randrange(len(data)), rng.choice((1, 4, 60, 400))
    broken[at : at + length] = rng.randbytes(len(broken[at : at + length]))
    changed = [n for n, (a, b) in enumerate(zip(data, broken, strict=True)) if a != b]
    hit = {
        start
        for start, end in zip(starts, [*(s - HEAD for s in starts[1:]), len(data)], strict=True)
        if changed and changed[-1] >= start - HEAD and changed[0] < end
    }
    found = places_of(pieces_of(tmp_path / "data", bytes(broken), 4096))
    assert set(starts) - hit <= set(found) <= set(starts)
