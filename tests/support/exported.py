"""Exports by way of Python, and rows to compare them by: of truth files, of tables. Bodies are length and digest."""

from __future__ import annotations

import hashlib
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rmqtool.exports.choice import DEFAULT, Choice
from rmqtool.exports.run import Engine, Outcome, Request, local_engine, run_export
from rmqtool.log.ranges import Effort
from tests.support.stores import truth

Row = dict[str, Any]

HERE = local_engine(Effort(1))

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CODECS = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}


def expected_rows(name: str, broker: str) -> list[Row]:
    """Return the messages of a store that the real check accepts, in the order of the log."""
    return [_row(message, broker) for message in truth(name)["messages"] if "recordCheck" not in message]


def _row(message: Row, broker: str) -> Row:
    inflated = message["bodySha256"] is not None
    flags = message["sysFlag"]
    return {
        "topic": message["topic"],
        "queue_id": message["queueId"],
        "queue_offset": message["queueOffset"],
        "commitlog_offset": message["commitLogOffset"],
        "store_size": message["storeSize"],
        "store_timestamp": message["storeTimestamp"],
        "born_timestamp": message["bornTimestamp"],
        "born_host": _host(message["bornHost"]),
        "store_host": _host(message["storeHost"]),
        "tags": message["tags"],
        "keys": message["keys"],
        "msg_id": message["uniqKey"],
        "body": (
            message["bodyLength"] if inflated else message["storedBodyLength"],
            message["bodySha256"] if inflated else message["storedBodySha256"],
        ),
        "body_codec": _CODECS[flags >> 8 & 7] if flags & 1 else None,
        "properties": message["properties"],
        "sys_flag": flags,
        "flag": message["flag"],
        "body_crc": message["bodyCRC"],
        "reconsume_times": message["reconsumeTimes"],
        "prepared_transaction_offset": message["preparedTransactionOffset"],
        "offset_msg_id": message["offsetMsgId"],
        "broker": broker,
    }


def _host(text: str) -> str:
    address, _, port = text.rpartition(":")
    found = ipaddress.ip_address(address.strip("[]"))
    return f"[{found.compressed}]:{port}" if found.version == 6 else f"{found}:{port}"


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of a table that any reader gave."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return len(value), hashlib.sha256(value).hexdigest()
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    return dict(value) if isinstance(value, list) else value


def export(to: Path, *stores: Path, choice: Choice = DEFAULT, engine: Engine = HERE, **more: Any) -> Outcome:
    paths = tuple(str(store) for store in stores)
    return run_export(Request(paths=paths, directory=str(to), choice=choice, **more), engine)


def part_files(to: Path) -> list[Path]:
    """Return the data files of a target in the order of their names."""
    return sorted(to.rglob("part-*.parquet"))


def read(to: Path) -> pa.Table:
    """Return all rows, file after file, in the order in which they stand there."""
    return pa.concat_tables(pq.ParquetFile(path).read() for path in part_files(to))
