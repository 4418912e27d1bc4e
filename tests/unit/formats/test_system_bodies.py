"""Bodies of the broker's own records, as its classes write them."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.formats.fastjson import Dialect
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.ids import PopTag
from rmqtool.formats.system_bodies import (
    POP_BODIES,
    decode_op_body,
    decode_pop_body,
    encode_op_body,
    encode_pop_body,
    popped_offsets,
)

CHECK_POINT = (
    b'{"bm":0,"bn":"broker-a","c":"groupA","d":[0,1],"it":60000,"n":2,"pt":1700000000000,"q":3,'
    b'"reviveTime":1700000060000,"ro":0,"so":100,"t":"TopicA"}'
)
AGAIN = CHECK_POINT.replace(b'"so"', b'"rp":"3","so"')
ACK = b'{"ao":101,"bn":"broker-a","c":"groupA","pt":1700000000000,"q":3,"so":100,"t":"TopicA"}'
BATCH_ACK = b'{"ao":0,"aol":[100,101],"c":"groupA","pt":1700000000000,"q":3,"so":0,"t":"TopicA"}'


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize(
    ("tag", "body", "name", "value"),
    [
        (PopTag.CHECK_POINT, CHECK_POINT, "so", 100),
        (PopTag.CHECK_POINT, AGAIN, "rp", "3"),
        (PopTag.ACK, ACK, "ao", 101),
        (PopTag.BATCH_ACK, BATCH_ACK, "aol", [100, 101]),
    ],
)
def test_pop_bodies(tag: PopTag, body: bytes, name: str, value: Any, dialect: Dialect) -> None:
    decoded = decode_pop_body(tag, body)
    assert not isinstance(decoded, Flaw)
    assert decoded.value[name] == value
    assert decoded.value.keys() <= POP_BODIES[tag].fields.keys()
    assert encode_pop_body(tag, decoded.value, dialect) == body


def test_what_is_no_pop_body() -> None:
    assert decode_pop_body(PopTag.ACK, b"[1]") == Flaw("CF-JSON", "$ is a list, an object is expected", 0, 3)
    assert isinstance(decode_pop_body(PopTag.ACK, b'{"ao":"x"}'), Flaw)


def test_offsets_of_a_check_point() -> None:
    assert popped_offsets({"so": 100, "n": 3, "d": [0, 2, 5]}) == [100, 102, 105]
    assert list(popped_offsets({"so": 100, "n": 3})) == [100, 101, 102]
    assert len(popped_offsets({"so": 100, "n": (1 << 31) - 1})) == (1 << 31) - 1


@pytest.mark.parametrize(
    ("body", "offsets", "listed"),
    [(b"12", (12,), False), (b"12,13,14,", (12, 13, 14), True), (b"", (), True)],
)
def test_op_bodies(body: bytes, offsets: tuple[int, ...], listed: bool) -> None:
    assert decode_op_body(body) == offsets
    assert encode_op_body(offsets, listed=listed) == body


def test_an_op_body_may_lack_its_last_comma() -> None:
    assert decode_op_body(b"12,,13") == (12, 13)


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (b"12,x,", Flaw("TX-OP", "b'x' in an op record is not a queue offset", 3, 1)),
        (b"-1,", Flaw("TX-OP", "b'-1' in an op record is not a queue offset", 0, 2)),
        (b"9223372036854775808", Flaw("TX-OP", "b'9223372036854775808' in an op record is not a queue offset", 0, 19)),
        (b"\0", Flaw("TX-OP", "b'\\x00' in an op record is not a queue offset", 0, 1)),
    ],
)
def test_what_is_no_op_body(body: bytes, flaw: Flaw) -> None:
    assert decode_op_body(body) == flaw
