"""Arrow batches: the schema, each column against the record it is made of, projection and bounds."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rmqtool.columns import batches, bodies
from rmqtool.columns.batches import COLUMNS, SCHEMA_VERSION, VERSION_KEY, Projection, iter_batches
from rmqtool.columns.bodies import Bounds
from rmqtool.columns.records import Records, decode_records
from rmqtool.formats.commit_log import Flaw, Message, decode_record
from rmqtool.formats.compression import body_codec, inflate_body
from rmqtool.formats.hosts import format_host
from rmqtool.formats.ids import encode_offset_msg_id
from tests.support.builders import record
from tests.support.seeded_stores import make_segment

TIME = pa.timestamp("ms", "UTC")
SCHEMA = {
    "topic": pa.utf8(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "commitlog_offset": pa.int64(),
    "store_size": pa.int32(),
    "store_timestamp": TIME,
    "born_timestamp": TIME,
    "born_host": pa.utf8(),
    "store_host": pa.utf8(),
    "tags": pa.utf8(),
    "keys": pa.utf8(),
    "msg_id": pa.utf8(),
    "body": pa.binary(),
    "body_codec": pa.utf8(),
    "properties": pa.map_(pa.utf8(), pa.utf8()),
    "sys_flag": pa.int32(),
    "flag": pa.int32(),
    "body_crc": pa.int32(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "offset_msg_id": pa.utf8(),
    "broker": pa.utf8(),
}


def decode(*parts: bytes) -> Records:
    found, declined = decode_records(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1])
    assert declined is None
    return found


def rows_of(records: Records, projection: Projection) -> list[dict[str, Any]]:
    """All rows, timestamps as numbers since Python's calendar ends too early."""
    rows: list[dict[str, Any]] = []
    for batch, first_row, _ in iter_batches(records, projection):
        assert first_row == len(rows)
        batch.validate(full=True)
        numbers = pa.schema([field.with_type(pa.int64()) if field.type == TIME else field for field in batch.schema])
        rows += batch.cast(numbers).to_pylist()
    return rows


def expected_row(message: Message, broker: str | None) -> dict[str, Any]:
    inflated = inflate_body(message.sys_flag, message.raw_body)
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "commitlog_offset": message.physical_offset,
        "store_size": message.total_size,
        "store_timestamp": message.store_timestamp if message.store_timestamp > 0 else None,
        "born_timestamp": message.born_timestamp if message.born_timestamp > 0 else None,
        "born_host": format_host(message.born_host_ip, message.born_host_port),
        "store_host": format_host(message.store_host_ip, message.store_host_port),
        "tags": message.tags,
        "keys": message.keys,
        "msg_id": message.uniq_key,
        "body": message.raw_body if isinstance(inflated, Flaw) else inflated.body,
        "body_codec": body_codec(message.sys_flag),
        "properties": list(message.properties.items()),
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "body_crc": message.body_crc,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "offset_msg_id": encode_offset_msg_id(message.store_host_ip, message.store_host_port, message.physical_offset),
        "broker": broker,
    }


def test_schema() -> None:
    schema = Projection().schema()
    assert {field.name: field.type for field in schema} == SCHEMA
    assert schema.names == list(SCHEMA) == list(COLUMNS)
    assert schema.metadata == {VERSION_KEY: b"%d" % SCHEMA_VERSION}
    assert (VERSION_KEY, SCHEMA_VERSION) == (b"rmqtool.schema_version", 1)
    assert all(field.nullable for field in schema)


@pytest.mark.parametrize("seed", range(0, 300, 7))
def test_every_column(seed: int) -> None:
    segment = make_segment(seed)
    found, _ = decode_records(segment.data, np.array(segment.starts, np.int64))
    messages = [decode_record(segment.data, at) for at in segment.starts]
    broker = "broker-a" if seed % 2 else None
    rows = rows_of(found, Projection(broker=broker, bounds=Bounds(most_rows=100)))
    assert rows == [expected_row(message, broker) for message in messages if isinstance(message, Message)]


def test_times_in_microseconds() -> None:
    late = (1 << 63) - 1
    found = decode(
        *(record(born_timestamp=time) for time in (1700000000123, 0, -5, late, late // 1000, late // 1000 + 1))
    )
    (batch,) = [batch for batch, _, _ in iter_batches(found, Projection(("born_timestamp",), time_unit="us"))]
    assert batch.schema.field("born_timestamp").type == pa.timestamp("us", "UTC")
    times = batch.column(0).cast(pa.int64()).to_pylist()
    assert times == [1700000000123000, None, None, None, late // 1000 * 1000, None]
    moment = batch.column(0)[0].as_py()
    assert moment - datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) == timedelta(milliseconds=123)


def test_bodies_raw_or_left_out() -> None:
    found = decode(record(b"plain"), record(zlib.compress(b"packed"), sys_flag=0x301), record(b"bad", sys_flag=0x001))
    for how, expected in (
        ("inflated", [b"plain", b"packed", b"bad"]),
        ("raw", [b"plain", zlib.compress(b"packed"), b"bad"]),
        ("none", [None, None, None]),
    ):
        (batch,) = iter_batches(found, Projection(("body", "body_codec"), body=how))  # type: ignore[arg-type]
        assert batch.batch.column("body").to_pylist() == expected
        assert batch.batch.column("body_codec").to_pylist() == [None, "zlib", "zlib"]
        assert [row for row, _ in batch.flaws] == ([2] if how == "inflated" else [])


def test_the_cap_holds_for_bodies_of_a_batch() -> None:
    found = decode(record(zlib.compress(b"x" * 1000), sys_flag=0x001))
    (batch,) = iter_batches(found, Projection(("body",), bounds=Bounds(body_cap=999)))
    assert batch.flaws[0].flaw.code == "BD-INFLATE"
    assert batch.batch.column("body")[0].as_py() == zlib.compress(b"x" * 1000)


def test_only_what_is_asked_for_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for where, name in (
        (batches, "decode_properties"),
        (bodies, "inflated_bodies"),
        (batches, "stored_bodies"),
        (batches, "coded_hosts"),
        (batches, "offset_msg_ids"),
    ):
        monkeypatch.setattr(where, name, lambda *_args, name=name: pytest.fail(f"{name} was called"))
    (batch,) = iter_batches(decode(record(b"a"), record(b"b")), Projection(("queue_offset", "topic")))
    assert batch.batch.to_pylist() == [{"queue_offset": 0, "topic": "TopicTest"}] * 2


@pytest.mark.parametrize(
    ("most_rows", "most_bytes", "sizes"),
    [(1000, 1 << 20, [10]), (4, 1 << 20, [4, 4, 2]), (1000, 402, [2, 2, 2, 2, 2]), (1000, 1, [1] * 10)],
)
def test_batches_are_bounded(most_rows: int, most_bytes: int, sizes: list[int]) -> None:
    found = decode(*(record(bytes(101), queue_offset=number) for number in range(10)))
    assert found.column("total_size").tolist() == [201] * 10
    got = list(iter_batches(found, Projection(("queue_offset",), bounds=Bounds(most_rows, most_bytes))))
    assert [batch.batch.num_rows for batch in got] == sizes
    assert [batch.first_row for batch in got] == np.cumsum([0, *sizes])[:-1].tolist()
    assert [row["queue_offset"] for batch in got for row in batch.batch.to_pylist()] == list(range(10))


def test_inflated_bodies_bound_a_batch_too() -> None:
    parts = [record(zlib.compress(b"%d" % number * 1000), sys_flag=0x301, queue_offset=number) for number in range(6)]
    got = list(iter_batches(decode(*parts), Projection(("queue_offset", "body"), bounds=Bounds(most_bytes=2500))))
    assert [batch.batch.num_rows for batch in got] == [3, 3]
    assert [row["body"][:1] for batch in got for row in batch.batch.to_pylist()] == [
        b"%d" % number for number in range(6)
    ]


def test_no_records() -> None:
    assert list(iter_batches(decode(), Projection())) == []
