"""What each column is: for people who ask before they export."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.export.choice import Choice

# An Arrow type, and what SQL engines call it.
SQL_TYPES = {
    "string": "string",
    "int32": "int",
    "int64": "bigint",
    "timestamp[ms, tz=UTC]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamp",
    "binary": "binary",
    "map<string, string>": "map<string,string>",
}

ABOUT = {
    "topic": "the topic it was stored under",
    "queue_id": "the queue",
    "queue_offset": "its place in the queue",
    "commitlog_offset": "its place in the broker's log",
    "store_size": "bytes of its record",
    "store_timestamp": "when it was stored, or null",
    "born_timestamp": "when a client made it, or null",
    "born_host": "ip:port of the client",
    "store_host": "ip:port of the broker",
    "tags": "property TAGS, or null",
    "keys": "property KEYS, or null",
    "msg_id": "a client's unique key, or null",
    "body": "inflated; see also --body",
    "body_codec": "zlib, lz4 or zstd; null: plain",
    "properties": "all properties",
    "sys_flag": "flags of the broker",
    "flag": "flags of the client",
    "body_crc": "checksum of the stored body",
    "reconsume_times": "how often it was tried again",
    "prepared_transaction_offset": "where its half message stood",
    "offset_msg_id": "the broker's id: host and place",
    "broker": "its name, or its directory",
}


def sql_type(arrow_type: object) -> str:
    """Return what SQL engines call an Arrow type of the schema."""
    return SQL_TYPES[str(arrow_type).replace(" ('entries')", "")]


def column_rows(choice: Choice) -> Iterator[dict[str, str]]:
    """Yield the columns of an export with these choices."""
    for field in choice.projection(None, "ms").schema():
        yield {"column": field.name, "type": sql_type(field.type), "about": ABOUT[field.name]}
