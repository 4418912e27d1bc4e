"""What bulk answers for many records, found one record after the other."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
from typing import Any

import numpy as np

from rmqtool.columns.records import Records, decode_records
from rmqtool.columns.starts import record_starts
from rmqtool.formats.commit_log import Flaw, Message, decode_record
from rmqtool.formats.compression import body_codec, inflate_body
from rmqtool.formats.hosts import format_host
from rmqtool.formats.ids import encode_offset_msg_id
from tests.support.builders import MAGIC_V1, MAGIC_V2

NUMBERS = tuple(name for name in Message._fields if not name.startswith("raw_") and not name.endswith("_ip"))


def walk(data: bytes, at: int = 0, end: int | None = None) -> tuple[list[int], int]:
    """The walk one by one: starts, and where it ends."""
    end = len(data) if end is None else end
    found = []
    while at + 8 <= end:
        size, magic = struct.unpack_from(">iI", data, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or not 91 <= size <= end - at:
            break
        found.append(at)
        at += size
    return found, at


def assert_like_walk(data: bytes, at: int = 0, end: int | None = None) -> None:
    expected, stop = walk(data, at, end)
    found = record_starts(data, at, end)
    assert found.file_offsets.tolist() == expected
    assert found.stopped_at == stop
    assert found.stopped_by == decode_record(data, stop, end)


def piece(records: Records, row: int, begin: np.ndarray, length: np.ndarray) -> bytes:
    return records.data[begin[row] : begin[row] + length[row]].tobytes()


def assert_like_formats(data: bytes, offsets: list[int], end: int | None = None) -> Records:
    """Every column equals the field of the decoded record, up to the first that is none."""
    found, declined = decode_records(data, np.array(offsets, np.int64), end)
    whole = 0
    for row, at in enumerate(offsets):
        message = decode_record(data, at, end)
        if not isinstance(message, Message):
            assert declined is not None
            assert declined.file_offset == at
            if isinstance(message, Flaw):
                assert declined.reason == message.message
            break
        whole += 1
        assert row < len(found), f"declined {declined} though the record at {at} is whole"
        for name in NUMBERS:
            assert found.column(name)[row] == getattr(message, name), name
        for name in ("born_host_ip", "store_host_ip"):
            stored = found.prefixes[name][row].tobytes()
            assert stored.rstrip(b"\0") == getattr(message, name).rstrip(b"\0"), name
        assert piece(found, row, found.body_offsets, found.body_lengths) == message.raw_body
        assert piece(found, row, found.topic_offsets, found.topic_lengths) == message.raw_topic
        assert piece(found, row, found.properties_offsets, found.properties_lengths) == message.raw_properties
    else:
        assert declined is None
    assert len(found) == whole
    return found


def spell_body(message: Message) -> dict[str, Any]:
    inflated = inflate_body(message.sys_flag, message.raw_body)
    body, failed = (message.raw_body, True) if isinstance(inflated, Flaw) else (inflated.body, False)
    text, encoding = base64.b64encode(body).decode(), "base64"
    if not failed:
        with contextlib.suppress(UnicodeDecodeError):
            text, encoding = body.decode(), "utf8"
    return {
        "body": text,
        "bodyEncoding": encoding,
        "bodyCodec": body_codec(message.sys_flag),
        "bodyLength": None if failed else len(body),
        "storedBodyLength": message.body_length,
    }


def spell(message: Message) -> str:
    """The line of one message."""
    values = {
        "commitLogOffset": message.physical_offset,
        "storeSize": message.total_size,
        "magic": f"{message.magic:#010x}",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": format_host(message.born_host_ip, message.born_host_port),
        "storeTimestamp": message.store_timestamp,
        "storeHost": format_host(message.store_host_ip, message.store_host_port),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "offsetMsgId": encode_offset_msg_id(message.store_host_ip, message.store_host_port, message.physical_offset),
        "uniqKey": message.uniq_key,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        **spell_body(message),
    }
    return json.dumps(values, ensure_ascii=False) + "\n"
