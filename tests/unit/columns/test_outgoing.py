"""Rows of a table as messages: property texts, queues, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from rmqtool.columns.outgoing import NO_QUEUE, Refusal, stage_messages
from rmqtool.formats.java import string_hash

MAP = pa.map_(pa.utf8(), pa.utf8())


def rows(**columns: Any) -> pa.RecordBatch:
    """Return a batch; two rows with topic and body unless said otherwise."""
    given = {"topic": ["T", "U"], "body": [b"a", b"b"]} | columns
    types = {"properties": MAP, "queue_id": pa.int32(), "flag": pa.int32(), "born_timestamp": pa.timestamp("us", "UTC")}
    return pa.RecordBatch.from_pydict({name: pa.array(value, types.get(name)) for name, value in given.items()})


def staged(**columns: Any) -> dict[str, list[Any]]:
    found = stage_messages(rows(**columns))
    assert not isinstance(found, Refusal), found
    return found.to_pydict()


def test_the_least_a_message_needs() -> None:
    assert staged() == {
        "topic": ["T", "U"],
        "body": [b"a", b"b"],
        "text": [b"", b""],
        "queue_id": [NO_QUEUE, NO_QUEUE],
        "hash": [None, None],
        "flag": [0, 0],
        "born": [None, None],
    }


def test_columns_and_map_are_one_text() -> None:
    """The map keeps its order; a column goes before the entry of its name; what is over, or empty, is left out."""
    found = staged(
        properties=[[("a", "1"), ("KEYS", "old"), ("__CRC32#", "0123456789"), ("DELAY", "3"), ("n", None)], None],
        keys=["k1", "k2"],
        tags=["t1", None],
        msg_id=[None, "U2"],
    )
    assert found["text"] == [b"a\x011\x02KEYS\x01k1\x02TAGS\x01t1\x02", b"KEYS\x01k2\x02UNIQ_KEY\x01U2\x02"]


def test_column_without_a_value_leaves_the_entry() -> None:
    assert staged(properties=[[("TAGS", "x")], [("TAGS", "y")]], tags=[None, "z"])["text"] == [
        b"TAGS\x01x\x02",
        b"TAGS\x01z\x02",
    ]


def test_slices_of_a_batch_are_their_rows() -> None:
    whole = rows(properties=[[("a", "1")], [("b", "2"), ("c", "3")]], keys=["k", None], sharding_key=["s", None])
    found = stage_messages(whole.slice(1))
    assert not isinstance(found, Refusal)
    assert found.to_pydict()["text"] == [b"b\x012\x02c\x013\x02"]


def test_texts_beyond_ascii() -> None:
    found = staged(topic=["T", "T"], body=["é", "日本"], properties=[[("ключ", "値")], []], sharding_key=["値", "値"])
    assert found["body"] == ["é".encode(), "日本".encode()]
    assert found["text"][0] == "ключ\x01値\x02__SHARDINGKEY\x01値\x02".encode()
    assert found["hash"] == [string_hash("値")] * 2 == [0x5024] * 2


def test_numbers_and_times() -> None:
    at = datetime(2026, 8, 23, 15, 0, 0, 123_456, UTC)
    found = staged(queue_id=[3, None], flag=[-1, 7], born_timestamp=[at, None])
    assert (found["queue_id"], found["flag"], found["born"]) == ([3, NO_QUEUE], [-1, 7], [1_787_497_200_123, None])


@pytest.mark.parametrize(
    ("columns", "row", "reason"),
    [
        ({"topic": ["T", None]}, 1, "it has no topic"),
        ({"topic": ["", "T"]}, 0, "it has no topic"),
        ({"body": [b"", None]}, 1, "it has no body"),
        ({"queue_id": [0, -2]}, 1, "its queue_id is out of range"),
        ({"keys": ["a", "b\x01c"]}, 1, "a property contains a byte 1 or 2"),
        ({"properties": [[("a", "b")], [("c", "d\x02")]]}, 1, "a property contains a byte 1 or 2"),
        ({"properties": [[("a\x02", "b")], []]}, 0, "a property contains a byte 1 or 2"),
        ({"tags": ["x", "y" * 32_767]}, 1, "its properties take more than 32767 bytes"),
    ],
)
def test_what_is_no_message(columns: dict[str, Any], row: int, reason: str) -> None:
    found = stage_messages(rows(**columns))
    assert isinstance(found, Refusal)
    assert (found.row, found.reason.startswith(reason)) == (row, True)


def test_no_rows() -> None:
    assert staged(topic=pa.array([], pa.utf8()), body=pa.array([], pa.binary()))["text"] == []
