"""Where records begin, and what is cut out of their bytes: what one record after the other says."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from rmqtool.upstream import batches, index_counts
from rmqtool.upstream.batches import walk
from rmqtool.upstream.index_counts import cut_out, find_starts
from tests.support.builders import blank, record

V1, V2 = 0xDAA320A7, 0xDAA320AB
LEAST, PREFIX = 91, 88


def hops(data: bytes, at: int, end: int, magics: tuple[int, ...]) -> list[int]:
    """Go from record to record by their sizes."""
    found = []
    while at + PREFIX <= end:
        size, magic = struct.unpack_from(">iI", data, at)
        if magic not in magics or size < LEAST or at + size > end:
            break
        found.append(at)
        at += size
    return found


def a_log(dice: random.Random, embedded: float) -> bytes:
    """Records of both versions, some of whose bodies hold others, whole or cut; then what ends a log, or breaks it."""
    parts = [bytes(dice.randrange(50))]
    for number in range(dice.randrange(300)):
        body = dice.randbytes(dice.randrange(200))
        if dice.random() < embedded:
            inner = record(b"inner" * dice.randrange(9))
            body += inner[: dice.choice((len(inner), 8, 30))] * dice.randrange(1, 4)
        parts.append(record(body, magic=V2 if number % 50 == 49 else V1))
    parts.append(dice.choice((b"", blank(100), bytes(100), b"\xff" * 100, struct.pack(">iI", 9, V1) * 20)))
    data = bytearray(b"".join(parts))
    if dice.random() < 0.3:
        at = dice.randrange(len(data))
        data[at : at + 4] = dice.choice((b"\xff\xff\xff\xff", bytes(4), b"\x7f\0\0\0"))
    return bytes(data)


@pytest.mark.parametrize("magics", [(V1,), (V1, V2)], ids=["4.9", "5.x"])
@pytest.mark.parametrize("embedded", [0.0, 0.02, 0.5], ids=["plain", "few", "many"])
@pytest.mark.parametrize("seed", range(30))
def test_a_walk_goes_from_record_to_record(seed, embedded, magics, monkeypatch):
    """Also where what it jumps over looks like records, and whichever way it goes about it."""
    dice = random.Random(seed)
    monkeypatch.setattr(batches, "_SAMPLE", 2)
    monkeypatch.setattr(batches, "_FEWEST_PER_BREAK", dice.choice((1, 16)))
    data = a_log(dice, embedded)
    at = next((number for number in range(60) if data[number + 4 : number + 7] == b"\xda\xa3\x20"), 0)
    for end in (len(data), max(len(data) - dice.randrange(200), at), at + dice.randrange(len(data) - at + 1)):
        assert list(walk(data, at, end, magics)) == hops(data, at, end, magics)


@pytest.mark.parametrize("where", range(40, 60))
def test_every_place_where_a_record_could_begin_is_found(where, monkeypatch):
    """However the places lie in what is looked through at once; the last is one where a size and a magic fit."""
    monkeypatch.setattr(index_counts, "_BLOCK", 16)
    data = bytearray(b"\xda\xa3\x20" * 40)
    for at in (0, where, len(data) - 8):
        struct.pack_into(">I", data, at + 4, V2 if at == where else V1)
    found = find_starts(np.frombuffer(bytes(data), np.uint8))
    assert found.tolist() == [0, where, len(data) - 8]
    assert find_starts(np.frombuffer(bytes(data[:7]), np.uint8)).tolist() == []


@pytest.mark.parametrize(
    "spans",
    [[], [(0, 3), (3, 6), (1, 4)], [(0, 3), (3, 5)], [(2, 2), (5, 5)], [(4, 0), (1, 2)], [(0, 9)]],
    ids=["none", "of one length", "of several", "empty", "one ends before it begins", "all"],
)
def test_spans_are_cut_out_as_they_are(spans):
    data = b"ab\0\0\xffcde\0"
    columns = np.array(spans, np.int64).reshape(-1, 2)
    assert cut_out(data, columns[:, 0], columns[:, 1]) == [data[begin:end] for begin, end in spans]
