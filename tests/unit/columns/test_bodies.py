"""Bodies as columns."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from rmqtool.columns.bodies import inflated_bodies, stored_bodies
from rmqtool.columns.records import Records, decode_records
from rmqtool.formats.commit_log import Flaw, Message, decode_record
from rmqtool.formats.compression import inflate_body
from tests.support.builders import record
from tests.support.seeded_stores import make_segment

ZLIB = 0x301


def decode(*parts: bytes) -> Records:
    found, declined = decode_records(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1])
    assert declined is None
    return found


def packed(text: bytes) -> bytes:
    return record(zlib.compress(text), sys_flag=ZLIB)


def test_inflated_beside_plain() -> None:
    found = decode(record(b"plain"), packed(b"packed" * 50), record(b""), record(b"", sys_flag=ZLIB), packed(b"end"))
    bodies = inflated_bodies(found)
    assert bodies.column.to_pylist() == [b"plain", b"packed" * 50, b"", b"", b"end"]
    assert bodies.flaws == []
    assert stored_bodies(found).to_pylist()[1] == zlib.compress(b"packed" * 50)


def test_what_does_not_inflate_stays_as_stored_and_is_named() -> None:
    found = decode(
        record(b"first"), record(b"no stream", sys_flag=ZLIB), record(b"odd", sys_flag=0x501), packed(b"x" * 1000)
    )
    bodies = inflated_bodies(found, cap=999)
    assert bodies.column.to_pylist() == [b"first", b"no stream", b"odd", zlib.compress(b"x" * 1000)]
    assert [(row, flaw.code) for row, flaw in bodies.flaws] == [(1, "BD-INFLATE"), (2, "BD-INFLATE"), (3, "BD-INFLATE")]
    assert bodies.failed_rows == [1, 2, 3]
    assert inflated_bodies(found, cap=1000).failed_rows == [1, 2]


def test_the_column_ends_where_inflated_bodies_become_too_many() -> None:
    found = decode(packed(b"a" * 500), record(b"b"), packed(b"c" * 400), packed(b"d" * 400), record(b"e"))
    assert len(inflated_bodies(found, most_bytes=900).column) == 3
    assert len(inflated_bodies(found, most_bytes=901).column) == 4
    assert len(inflated_bodies(found, most_bytes=1).column) == 1
    assert len(inflated_bodies(found, most_bytes=2000).column) == 5
    assert inflated_bodies(found.select(slice(1, None)), most_bytes=1).column.to_pylist() == [b"b", b"c" * 400]


@pytest.mark.parametrize("seed", [1, 26, 41, 77, 120, 150])
def test_like_one_by_one(seed: int) -> None:
    segment = make_segment(seed)
    found, _ = decode_records(segment.data, np.array(segment.starts, np.int64))
    bodies = inflated_bodies(found)
    flaws = dict(bodies.flaws)
    for row, at in enumerate(segment.starts):
        message = decode_record(segment.data, at)
        assert isinstance(message, Message)
        expected = inflate_body(message.sys_flag, message.raw_body)
        body = bodies.column[row].as_py()
        if isinstance(expected, Flaw):
            assert (flaws.pop(row), body) == (expected, message.raw_body)
        else:
            assert body == expected.body
    assert flaws == {}
