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
    "commitlog_offset": "its place in the commit log; with the broker, unique",
    "store_size": "bytes of its record",
    "store_timestamp": "when the broker stored it; null when there is no such time",
    "born_timestamp": "when the client made it; null when there is no such time",
    "born_host": "ip:port of the client",
    "store_host": "ip:port of the broker",
    "tags": "property TAGS; null when there is none",
    "keys": "property KEYS as it stands, separated by blanks; null when there is none",
    "msg_id": "the unique key that the client gave; null when there is none",
    "body": "the body, inflated unless --body says otherwise; as stored when it does not inflate",
    "body_codec": "how the body is stored: null, zlib, lz4 or zstd",
    "properties": "all properties",
    "sys_flag": "flags of the broker",
    "flag": "flags of the client",
    "body_crc": "checksum of the stored body",
    "reconsume_times": "how often it was consumed again",
    "prepared_transaction_offset": "where the half message of its transaction stood",
    "offset_msg_id": "the id that the broker gives: host and place in the log",
    "broker": "the broker: its name in broker.conf, else its directory",
}


def sql_type(arrow_type: object) -> str:
    """Return what SQL engines call an Arrow type of the schema."""
    return SQL_TYPES[str(arrow_type).replace(" ('entries')", "")]


def column_rows(choice: Choice) -> Iterator[dict[str, str]]:
    """Yield the columns of an export with these choices."""
    for field in choice.projection(None, "ms").schema():
        yield {"column": field.name, "type": sql_type(field.type), "about": ABOUT[field.name]}
