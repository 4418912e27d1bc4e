"""Properties of many records: what ``formats.properties`` says of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.columns.properties import decode_properties
from rmqtool.columns.records import Records, decode_records
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.properties import decode_properties as decode_one
from tests.support.builders import record
from tests.support.seeded_stores import make_segment, seeded

BLOCKS = st.lists(
    st.one_of(
        st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TAGS", b"v", b"\xff", b"\xed\xa0", b"\x80", b"\0"])).map(
            b"".join
        ),
        st.binary(max_size=20),
    ),
    max_size=12,
)


def records_with(blocks: list[bytes]) -> Records:
    parts = [record(b"body", b"Topic", block) for block in blocks]
    starts = np.cumsum([0, *map(len, parts)])[:-1]
    found, declined = decode_records(b"".join(parts), starts)
    assert declined is None
    return found


def assert_like_formats(blocks: list[bytes]) -> None:
    found = decode_properties(records_with(blocks))
    expected = [decode_one(block) for block in blocks]
    maps = found.maps()
    maps.validate(full=True)
    assert maps.to_pylist() == [list(one.items()) for one in expected]
    for name in {"TAGS", "a", "\ufffd", "nobody", *(name for one in expected for name in one)}:
        assert found.values(name).to_pylist() == [one.get(name) for one in expected], name


@given(BLOCKS)
def test_any_blocks(blocks: list[bytes]) -> None:
    assert_like_formats(blocks)


@given(st.binary(max_size=60))
def test_any_block(block: bytes) -> None:
    assert_like_formats([block])


@seeded
def test_every_kind_of_segment(seed: int) -> None:
    segment = make_segment(seed)
    messages = [decode_record(segment.data, at) for at in segment.starts]
    found = decode_properties(decode_records(segment.data, np.array(segment.starts, np.int64))[0])
    expected = [message.properties for message in messages if isinstance(message, Message)]
    assert found.maps().to_pylist() == [list(one.items()) for one in expected]
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "Имя"):
        assert found.values(name).to_pylist() == [one.get(name) for one in expected]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01\x02k\x01v", {"k": "v"}),
        (b"k\x01v\x01w\x02", {"k": "v\x01w"}),
        (b"k\x01one\x02k\x01two", {"k": "two"}),
        (b"k\x01one\x02k\x01\x02", {"k": "one"}),
        (b"k\x02v\x01w\x02", {"v": "w"}),
        (b"k\x01\xed\xa0\x80x", {"k": "\ufffdx"}),
        (b"\xff\x01one\x02\xfe\x01two", {"\ufffd": "two"}),
    ],
)
def test_rules_of_tolerance(block: bytes, expected: dict[str, str]) -> None:
    around = [b"TAGS\x01x", block, b"", b"KEYS\x01y\x02"]
    found = decode_properties(records_with(around))
    assert [dict(one) for one in found.maps().to_pylist()] == [{"TAGS": "x"}, expected, {}, {"KEYS": "y"}]


def test_a_repeated_name_keeps_its_first_place() -> None:
    found = decode_properties(records_with([b"a\x011\x02b\x012\x02a\x013\x02", b"b\x011\x02"]))
    assert found.maps().to_pylist() == [[("a", "3"), ("b", "2")], [("b", "1")]]


def test_where_a_value_lies() -> None:
    found = decode_properties(records_with([b"k\x01v\x02", b"KEYS\x01one two\x02", b""])).find("KEYS")
    assert found.lengths.tolist() == [0, 7, 0]
    assert found.present.tolist() == [False, True, False]


def test_no_records() -> None:
    found = decode_properties(records_with([]))
    assert found.maps().to_pylist() == []
    assert found.values("TAGS").to_pylist() == []
    assert found.maps().type == pa.map_(pa.utf8(), pa.utf8())
