"""The Message object of the contract."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest

from rmqtool.columns.jsonl import iter_json_lines
from rmqtool.columns.records import decode_records
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.message_json import FIELDS, encode_line, message_json, read_body
from tests.support.builders import BORN_V6_HOST, EXAMPLE_A, STORE_V6_HOST, record
from tests.support.seeded_stores import make_segment, seeded


def decoded(data: bytes, at: int = 0) -> Message:
    message = decode_record(data, at)
    assert isinstance(message, Message)
    return message


def test_a_whole_line() -> None:
    assert encode_line(message_json(decoded(EXAMPLE_A)).fields) == (
        '{"commitLogOffset": 1024, "storeSize": 203, "magic": "0xdaa320a7", "topic": "TopicTest", "queueId": 1, '
        '"queueOffset": 5, "flag": 0, "sysFlag": 0, "bornTimestamp": 1700000000000, "bornHost": "192.168.1.10:54321", '
        '"storeTimestamp": 1700000000123, "storeHost": "192.168.1.20:10911", "reconsumeTimes": 0, '
        '"preparedTransactionOffset": 0, "bodyCRC": 1250039395, "offsetMsgId": "C0A8011400002A9F0000000000000400", '
        '"uniqKey": "C0A8010A10E118B4AAC247B760000007", "tags": "TagA", "keys": "order-1", "properties": {'
        '"KEYS": "order-1", "UNIQ_KEY": "C0A8010A10E118B4AAC247B760000007", "CLUSTER": "DefaultCluster", '
        '"TAGS": "TagA"}, "body": "Hello RocketMQ 2", "bodyEncoding": "utf8", "bodyCodec": null, "bodyLength": 16, '
        '"storedBodyLength": 16}'
    )


def test_ipv6_hosts_are_compressed_in_brackets() -> None:
    fields = message_json(decoded(record(born_host=BORN_V6_HOST, store_host=STORE_V6_HOST))).fields
    assert (fields["bornHost"], fields["storeHost"]) == ("[fe80::1]:54321", "[2001:db8::20]:10911")


@pytest.mark.parametrize(
    ("body", "sys_flag", "text", "encoding", "codec", "length", "broken"),
    [
        (b"", 0, "", "utf8", None, 0, False),
        ("é\n".encode(), 0, "é\n", "utf8", None, 3, False),
        (b"\xff\xfe", 0, "//4=", "base64", None, 2, False),
        (zlib.compress(b"text"), 0x301, "text", "utf8", "zlib", 4, False),
        (zlib.compress(b"\x80"), 0x001, "gA==", "base64", "zlib", 1, False),
        (b"text", 0x301, "dGV4dA==", "base64", "zlib", None, True),
        (b"text", 0x701, "dGV4dA==", "base64", "unknown 7", None, True),
    ],
)
def test_bodies(body, sys_flag, text, encoding, codec, length, broken) -> None:
    fields, flaw = message_json(decoded(record(body, sys_flag=sys_flag)))
    assert (fields["body"], fields["bodyEncoding"], fields["bodyCodec"]) == (text, encoding, codec)
    assert (fields["bodyLength"], fields["storedBodyLength"]) == (length, len(body))
    assert (flaw is not None) == broken
    assert flaw is None or flaw.code == "BD-INFLATE"
    stored = body if broken or not sys_flag else zlib.decompress(body)
    assert read_body(fields) == stored


def test_a_body_beyond_the_cap_is_shown_as_stored() -> None:
    packed = zlib.compress(bytes(1000))
    fields, flaw = message_json(decoded(record(packed, sys_flag=0x301)), cap=999)
    assert flaw is not None
    assert "limit" in flaw.message
    assert read_body(fields) == packed
    assert message_json(decoded(record(packed, sys_flag=0x301)), cap=1000).flaw is None


def test_missing_names_are_null_not_empty() -> None:
    fields = message_json(decoded(record(property_text=b"KEYS\x01\x02"))).fields
    assert (fields["uniqKey"], fields["tags"], fields["keys"], fields["properties"]) == (None, None, None, {})
    assert tuple(fields) == FIELDS


@seeded
def test_bulk_spells_the_same_bytes(seed: int) -> None:
    made = make_segment(seed)
    starts = made.starts[:80]
    records, declined = decode_records(made.data, np.array(starts, np.int64))
    assert declined is None
    lines = list(iter_json_lines(records))
    one_by_one = [message_json(decoded(made.data, at)) for at in starts]
    found = b"".join(part.text.tobytes() for part in lines).decode()
    assert found == "".join(encode_line(one.fields) + "\n" for one in one_by_one)
    flawed = [part.first_row + row for part in lines for row, _ in part.flaws]
    assert flawed == [row for row, one in enumerate(one_by_one) if one.flaw]
    assert all(json.loads(encode_line(one.fields)) == one.fields for one in one_by_one)
