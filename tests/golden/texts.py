"""The records of a store as raw bytes, found by a walk of its own: nothing here comes from the package."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

MAGICS = (0xDAA320A7, 0xDAA320AB)


class RawRecord(NamedTuple):
    """The parts of one record that are text, or become it."""

    born_host: bytes
    store_host: bytes
    body: bytes
    topic: bytes
    properties: bytes


@cache
def records(root: Path) -> dict[int, RawRecord]:
    """Return every whole record of the commit logs, also of DLedger's, by its physical offset. Shared."""
    found: dict[int, RawRecord] = {}
    for path in sorted(root.rglob("*")):
        if len(path.name) != 20 or not path.name.isdecimal():
            continue
        with path.open("rb") as file:
            if path.parent.name.startswith("commitlog"):
                found.update(_walk(file.fileno(), 0, os.fstat(file.fileno()).st_size, int(path.name)))
            elif path.parent.name == "data" and path.parent.parent.name.startswith("dledger-"):
                for at, size in _entries(file.fileno()):
                    found.update(_walk(file.fileno(), at + 48, at + size, int(path.name)))
    return found


def _entries(descriptor: int) -> Iterator[tuple[int, int]]:
    at = 0
    while len(head := os.pread(descriptor, 48, at)) == 48:
        magic, size = struct.unpack_from(">ii", head)
        if magic != 1:
            return
        yield at, size
        at += size


def _walk(descriptor: int, at: int, end: int, base: int) -> Iterator[tuple[int, RawRecord]]:
    while at + 8 <= end:
        size, magic = struct.unpack(">iI", os.pread(descriptor, 8, at))
        if magic not in MAGICS or not 91 <= size <= end - at:
            return
        record = os.pread(descriptor, size, at)
        parts = _parts(record, magic)
        if parts is None:
            return
        yield base + at, parts
        at += size


def _parts(record: bytes, magic: int) -> RawRecord | None:
    flag = struct.unpack_from(">i", record, 36)[0]
    born, store = 20 if flag & 0x10 else 8, 20 if flag & 0x20 else 8
    body_at = 72 + born + store
    body_end = body_at + struct.unpack_from(">i", record, body_at - 4)[0]
    topic_at = body_end + (1 if magic == MAGICS[0] else 2)
    topic_end = topic_at + int.from_bytes(record[body_end:topic_at], "big")
    length = struct.unpack_from(">h", record, topic_end)[0]
    if topic_end + 2 + length != len(record):
        return None
    return RawRecord(
        record[48 : 48 + born],
        record[56 + born : 56 + born + store],
        record[body_at:body_end],
        record[topic_at:topic_end],
        record[topic_end + 2 :],
    )
