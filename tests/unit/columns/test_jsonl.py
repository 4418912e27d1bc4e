"""Message lines: the same bytes as spelling one message after the other."""

from __future__ import annotations

import base64
import itertools
import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.columns.bodies import Bounds
from rmqtool.columns.jsonl import iter_json_lines
from rmqtool.columns.records import decode_records
from rmqtool.formats.commit_log import Message, decode_record
from tests.support.builders import EXAMPLE_A, EXAMPLE_D, Host, record
from tests.support.one_by_one import spell
from tests.support.seeded_stores import make_segment, seeded


def lines_of(data: bytes, starts: list[int]) -> list[str]:
    found, declined = decode_records(data, np.array(starts, np.int64))
    assert declined is None
    texts: list[str] = []
    for lines in iter_json_lines(found, Bounds(most_rows=50)):
        assert lines.first_row == len(texts)
        text = lines.text.tobytes()
        texts += [text[a:b].decode() for a, b in itertools.pairwise(lines.offsets)]
    return texts


def assert_like_one_by_one(*parts: bytes) -> list[str]:
    starts = np.cumsum([0, *map(len, parts)])[:-1].tolist()
    data = b"".join(parts)
    messages = [decode_record(data, at) for at in starts]
    found = lines_of(data, starts)
    assert found == [spell(message) for message in messages if isinstance(message, Message)]
    return found


@seeded
def test_every_kind_of_segment(seed: int) -> None:
    segment = make_segment(seed)
    starts = segment.starts[:60]
    messages = [decode_record(segment.data, at) for at in starts]
    assert lines_of(segment.data, starts) == [spell(message) for message in messages if isinstance(message, Message)]


def test_literal() -> None:
    (line,) = assert_like_one_by_one(EXAMPLE_A)
    assert line == (
        '{"commitLogOffset": 1024, "storeSize": 203, "magic": "0xdaa320a7", "topic": "TopicTest", "queueId": 1, '
        '"queueOffset": 5, "flag": 0, "sysFlag": 0, "bornTimestamp": 1700000000000, "bornHost": "192.168.1.10:54321", '
        '"storeTimestamp": 1700000000123, "storeHost": "192.168.1.20:10911", "reconsumeTimes": 0, '
        '"preparedTransactionOffset": 0, "bodyCRC": 1250039395, "offsetMsgId": "C0A8011400002A9F0000000000000400", '
        '"uniqKey": "C0A8010A10E118B4AAC247B760000007", "tags": "TagA", "keys": "order-1", "properties": '
        '{"KEYS": "order-1", "UNIQ_KEY": "C0A8010A10E118B4AAC247B760000007", "CLUSTER": "DefaultCluster", '
        '"TAGS": "TagA"}, "body": "Hello RocketMQ 2", "bodyEncoding": "utf8", "bodyCodec": null, "bodyLength": 16, '
        '"storedBodyLength": 16}\n'
    )


def test_no_records() -> None:
    assert lines_of(b"", []) == []


def test_hosts_of_both_kinds() -> None:
    assert_like_one_by_one(EXAMPLE_A, EXAMPLE_D, EXAMPLE_A)


CHARACTERS = (
    '"',
    "\\",
    "/",
    "\n",
    "\r",
    "\t",
    "\b",
    "\f",
    "\0",
    "\x1f",
    "\x7f",
    "\u2028",
    "é",
    "\U0001f600",
    "\ufffd",
    "'",
)


@pytest.mark.parametrize("character", CHARACTERS)
def test_what_json_escapes(character: str) -> None:
    text = f"a{character}b{character}".encode()
    name = text.replace(b"\x01", b"").replace(b"\x02", b"")
    assert_like_one_by_one(
        record(b"plain", b"Topic"),
        record(text, b"T" + text, b"KEYS\x01" + name + b"\x02" + name + b"\x01v\x02TAGS\x01" + name),
        record(character.encode() * 3, b"Topic", b"TAGS\x01x"),
    )


PLAIN = b"KEYS\x01k 1\x02UNIQ_KEY\x01C0A8\x02TAGS\x01\xe2\x82\xac\x02"
NOT_PLAIN = {
    "plain": PLAIN,
    "not closed": PLAIN[:-1],
    "none": b"",
    "a name twice": PLAIN + b"KEYS\x01again\x02",
    "a long name twice": b"__STARTDELIVERTIME\x011\x02" * 2,
    "long names that begin alike": b"__STARTDELIVERTIME\x011\x02__STARTDELIVERTIMF\x012\x02",
    "more than are compared": b"".join(b"n%d\x01v\x02" % number for number in range(20)),
    "a separator in a value": b"a\x01b\x01c\x02",
    "no value": b"a\x01\x02b\x01c\x02",
    "no name": b"\x01v\x02b\x01c\x02",
    "no pair": b"word\x02b\x01c\x02",
    "nothing but an end": b"\x02",
    "a quote": b'a\x01"\x02',
    "a control": b"a\x01\x03\x02",
    "a quote for a separator": b'a"b\x02c\x01\x02',
    "no UTF-8": b"a\x01\xff\x02",
    "half of a letter, at the end": b"a\x01\xe2\x82\x02",
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_properties_that_are_not_plain(name: str) -> None:
    """Beside plain ones, and alone: what is quick for plain ones gives what the slow way gives."""
    other = record(b"b", b"T", NOT_PLAIN[name])
    assert_like_one_by_one(other)
    assert_like_one_by_one(record(b"a", b"T", PLAIN), other, record(b"c", b"T", b"TAGS\x01last\x02"))


BLOCKS = st.lists(
    st.sampled_from([b"\x01", b"\x02", b"a", b"b", b'"', b"\xc3\xa9", b"\xff", b"KEYS\x01k\x02"]), max_size=8
)


@given(st.lists(BLOCKS.map(b"".join), min_size=1, max_size=4))
def test_any_properties(blocks: list[bytes]) -> None:
    assert_like_one_by_one(*(record(b"b", b"T", block) for block in blocks))


BODIES = st.one_of(
    st.text(max_size=20).filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text)).map(str.encode),
    st.binary(max_size=20),
)


def test_numbers_with_any_count_of_digits() -> None:
    tens = [10**digits for digits in range(19)]
    longs = [0, 2**63 - 1, -(2**63), *(sign * (ten - less) for ten in tens for less in (0, 1) for sign in (1, -1))]
    ints = [min(max(number, -(2**31)), 2**31 - 1) for number in longs]
    assert_like_one_by_one(
        *(
            record(b"", physical_offset=one, queue_offset=one, queue_id=other, flag=other, reconsume_times=other)
            for one, other in zip(longs, ints, strict=True)
        )
    )


def test_each_part_of_an_address() -> None:
    hosts = [Host(bytes([number, 255 - number, number // 2, 9]), number * 257) for number in range(256)]
    assert_like_one_by_one(*(record(b"", born_host=host, store_host=host) for host in hosts))


@pytest.mark.parametrize("character", ['"', "\\", "\n", "é"])
def test_a_character_at_each_place_of_a_text(character: str) -> None:
    texts = [("x" * before + character + "y" * after).encode() for before in range(18) for after in range(18)]
    assert_like_one_by_one(*(record(text, property_text=b"KEYS\1" + text) for text in texts))


@pytest.mark.parametrize("length", range(18))
def test_a_text_of_each_length(length: int) -> None:
    text = b"abcdefghijklmnopqr"[:length]
    assert_like_one_by_one(record(text, property_text=b"KEYS\1" + text))


@given(st.lists(BODIES, min_size=1, max_size=8))
def test_any_bodies(bodies: list[bytes]) -> None:
    assert_like_one_by_one(*(record(body) for body in bodies))


@pytest.mark.parametrize(
    "bad",
    [
        b"\xc0\xaf",
        b"\xc1\x81",
        b"\xf5\x80\x80\x80",
        b"\xed\xa0\x80",
        b"\xe2\x82",
        b"\xff",
        b"\x80",
        b"\xf4\x90\x80\x80",
    ],
)
def test_what_is_not_utf8_goes_in_base64(bad: bytes) -> None:
    good = "é€\U0001d11e".encode()
    lines = assert_like_one_by_one(*(record(body) for body in (good, bad, good + bad, b"", b"x" + bad, good)))
    assert [json.loads(line)["bodyEncoding"] for line in lines] == [
        "utf8",
        "base64",
        "base64",
        "utf8",
        "base64",
        "utf8",
    ]


def test_a_body_that_does_not_inflate() -> None:
    parts = [record(b"text", sys_flag=0x301), record(zlib.compress(b"fine"), sys_flag=0x301), record(b"plain")]
    lines = [json.loads(line) for line in assert_like_one_by_one(*parts)]
    assert [(line["bodyEncoding"], line["bodyLength"]) for line in lines] == [
        ("base64", None),
        ("utf8", 4),
        ("utf8", 5),
    ]
    assert lines[0]["body"] == base64.b64encode(b"text").decode()
    found, _ = decode_records(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1])
    (all_lines,) = iter_json_lines(found)
    assert [(row, flaw.code) for row, flaw in all_lines.flaws] == [(0, "BD-INFLATE")]
    (all_lines,) = iter_json_lines(found, Bounds(body_cap=3))
    assert [row for row, _ in all_lines.flaws] == [0, 1]


def test_bodies_that_all_fail() -> None:
    assert_like_one_by_one(*[record(b"same", sys_flag=0x001)] * 3)


def test_inflated_bodies_bound_the_lines_made_at_once() -> None:
    parts = [record(zlib.compress(b"%d" % number * 1000), sys_flag=0x301) for number in range(5)]
    found, _ = decode_records(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1])
    got = list(iter_json_lines(found, Bounds(most_bytes=2500)))
    assert [len(lines.offsets) - 1 for lines in got] == [3, 2]
    assert [lines.first_row for lines in got] == [0, 3]


def test_values_that_are_all_alike_or_all_different() -> None:
    assert_like_one_by_one(*[record(b"x", property_text=b"a\x01b\x02")] * 5)
    assert_like_one_by_one(
        *(
            record(
                b"x" * number,
                b"T%d" % number,
                queue_id=number,
                flag=-number,
                queue_offset=number << 40,
                physical_offset=number,
                sys_flag=number % 2 * 8,
                born_timestamp=-number,
                store_timestamp=number,
                reconsume_times=number,
                prepared_transaction_offset=number,
            )
            for number in range(6)
        )
    )
