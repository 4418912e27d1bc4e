"""The records of a batch are those of a walk from record to record."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from rmqtool.columns import starts
from rmqtool.columns.starts import find_starts
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import rules_of
from rmqtool.upstream.batches import read_batch
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
def test_a_batch_goes_from_record_to_record(seed, embedded, magics):
    """Also where bodies look like records."""
    dice = random.Random(seed)
    data = a_log(dice, embedded)
    at = next((number for number in range(60) if data[number + 4 : number + 7] == b"\xda\xa3\x20"), 0)
    for end in (len(data), max(len(data) - dice.randrange(200), at), at + dice.randrange(len(data) - at + 1)):
        found = list(read_batch(data, at, end, magics, rules_of("5.3.3", ())).starts)
        due = hops(data, at, end, magics)
        assert found == due[: len(found)]
        assert len(found) == len(due) or not is_whole(data, due[len(found)])


def is_whole(data: bytes, at: int) -> bool:
    """Return whether the parts of a record add up to its size."""
    return isinstance(decode_record(data, at), Message)


@pytest.mark.parametrize("where", range(40, 60))
def test_every_place_where_a_record_could_begin_is_found(where, monkeypatch):
    """However the places lie in what is looked through at once; the last is one where a size and a magic fit."""
    monkeypatch.setattr(starts, "_BLOCK", 16)
    data = bytearray(b"\xda\xa3\x20" * 40)
    for at in (0, where, len(data) - 8):
        struct.pack_into(">I", data, at + 4, V2 if at == where else V1)
    found = find_starts(np.frombuffer(bytes(data), np.uint8))
    assert found.tolist() == [0, where, len(data) - 8]
    assert find_starts(np.frombuffer(bytes(data[:7]), np.uint8)).tolist() == []
