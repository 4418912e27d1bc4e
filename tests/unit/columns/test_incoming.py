"""Lines of JSON by columns: every message as reading line by line makes it, or none at all."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.broker.producer.lines import GIVEN_BY_BROKERS, OVER, OWN, Bad, Lines, Objects, Wanted
from rmqtool.broker.producer.result import Sent
from rmqtool.columns.incoming import Defaults, Incoming, IncomingLines
from rmqtool.columns.pieces import Coded
from rmqtool.engine.message import NewMessage, text_template
from rmqtool.engine.put_columns import PutColumns

Plain = tuple[str, bytes | None, int, int, dict[str, str]]


def reader(wanted: Wanted) -> IncomingLines:
    dropped = GIVEN_BY_BROKERS, GIVEN_BY_BROKERS | OVER
    return IncomingLines(Defaults(wanted.members, wanted.properties, OWN, *dropped, wanted.keeps_ids))


def one_by_one(data: bytes, wanted: Wanted) -> list[Plain | Bad]:
    return [one if isinstance(one, Bad) else plain(one) for one in Objects(Lines([io.BytesIO(data)]), wanted)]


def plain(message: NewMessage) -> Plain:
    return message.topic, message.body, message.queue_id, message.flag, dict(message.property_map())


def rows_of(incoming: Incoming) -> list[Plain]:
    values = {
        name: [column] * len(incoming) if isinstance(column, str) else column.to_pylist()
        for name, column in incoming.properties.items()
    }
    return [
        (
            incoming.topics.values[int(incoming.topics.codes[row])],
            incoming.bodies[row],
            int(incoming.queue_ids[row]),
            int(incoming.flags[row]),
            {name: column[row] for name, column in values.items() if column[row] is not None},
        )
        for row in range(len(incoming))
    ]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.sampled_from(["a", "b", "TAGS", "KEYS", "UNIQ_KEY", "CLUSTER", "DELAY", "__SHARDINGKEY", 'ä"\\'])
PROPERTIES = st.dictionaries(NAMES, TEXTS, max_size=5) | st.none()
STORED = {"commitLogOffset": st.integers(0, 1 << 40), "bornHost": TEXTS, "bodyCodec": st.none() | TEXTS}
OPTIONAL = {
    "queueId": st.integers(-1, 9) | st.none(),
    "flag": st.integers(-(1 << 31), (1 << 31) - 1) | st.none(),
    "tags": TEXTS | st.none(),
    "keys": TEXTS | st.none(),
    "shardingKey": TEXTS,
    "properties": PROPERTIES,
    "other": TEXTS,
}
BODIES = st.fixed_dictionaries({"body": TEXTS}, optional={"bodyEncoding": st.sampled_from(["utf8", "none"])}) | st.just(
    {"body": "AAEC", "bodyEncoding": "base64"}
)


@st.composite
def objects(draw: st.DrawFn) -> list[dict[str, Any]]:
    stored = draw(st.booleans())
    of_all = {"topic": st.sampled_from(["T", "U", "%RETRY%g"])} | (STORED if stored else {})
    heads = st.fixed_dictionaries(of_all, optional=OPTIONAL)
    return [head | draw(BODIES) for head in draw(st.lists(heads, min_size=1, max_size=6))]


@settings(max_examples=150, deadline=None)
@given(
    objects(),
    st.booleans(),
    st.sampled_from([",:", ", : "]),
    st.sampled_from(["\n", "\r\n"]),
    st.fixed_dictionaries({}, optional={"tags": TEXTS, "keys": TEXTS, "queueId": st.just(2)}),
    st.dictionaries(NAMES, TEXTS, max_size=2),
    st.booleans(),
)
def test_messages_are_those_of_the_lines_one_by_one(
    values: list[dict[str, Any]],
    is_ascii: bool,
    separators: str,
    end: str,
    members: Mapping[str, Any],
    properties: dict[str, str],
    keeps_ids: bool,
) -> None:
    wanted = Wanted(members, properties, keeps_ids)
    comma, colon = (", ", ": ") if " " in separators else (",", ":")
    lines = [json.dumps(value, ensure_ascii=is_ascii, separators=(comma, colon)) + end for value in values]
    data = "".join(lines).encode()
    found = reader(wanted).read(data)
    expected = one_by_one(data, wanted)
    if found is not None:
        assert rows_of(found) == expected
    else:
        # Only a byte that separate properties, which nothing here needs, makes it decline.
        assert any(ord(letter) in (1, 2) for text in strings_of([values, members, properties]) for letter in text)


def strings_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.items() for text in strings_of(list(item))]
    if isinstance(value, list | tuple):
        return [text for one in value for text in strings_of(one)]
    return [value] if isinstance(value, str) else []


GOOD = b'{"topic": "T", "body": "x"}\n'


@pytest.mark.parametrize(
    "line",
    [
        b"{\n",
        b"5\n",
        b"null\n",
        b"\n",
        b"   \n",
        b'{"body": "x"}\n',
        b'{"topic": "T", "body": 5}\n',
        b'{"topic": 5, "body": "x"}\n',
        b'{"topic": "T", "topic": "U", "body": "x"}\n',
        b'{"topic": "T", "body": "x", "properties": {"a": "1", "a": "2"}}\n',
        b'{"topic": "T", "body": "!", "bodyEncoding": "base64"}\n',
        b'{"topic": "T", "body": "x", "bodyEncoding": "hex"}\n',
        b'{"topic": "T", "body": null, "bodyEncoding": "utf8"}\n',
        b'{"topic": "T", "body": "x", "queueId": "1"}\n',
        b'{"topic": "T", "body": "x", "queueId": 1.0}\n',
        b'{"topic": "T", "body": "x", "queueId": true}\n',
        b'{"topic": "T", "body": "x", "queueId": 4294967296}\n',
        b'{"topic": "T", "body": "x", "flag": 99999999999999999999}\n',
        b'{"topic": "T", "body": "x", "properties": []}\n',
        b'{"topic": "T", "body": "x", "properties": {"a": 1}}\n',
        b'{"topic": "T", "body": "x", "properties": {"a": [1]}}\n',
        b'{"topic": "T", "body": "x", "properties": {"a": "b\\u0002c"}}\n',
        b'{"topic": "T", "body": "x", "properties": {"a\\u0001": "c"}}\n',
        b'{"topic": "T", "body": "x", "delayLevel": 3}\n',
        b'{"topic": "T", "body": "x", "deliverAt": 3}\n',
        b'{"topic": "T", "body": "\\ud800"}\n',
        b'{"topic": "T", "body": "\\udc80"}\n',
        b'{"topic": "T", "body": "\xff"}\n',
        b'{"topic": "T", "body": "a\tb"}\n',
        b'{"topic": "T", "body": "x"} {"topic": "T", "body": "y"}\n',
        b'{"topic": "T", "body": "x"},\n',
        b'{"topic": "T", "body": "x",}\n',
        b'{"topic": "T", "body": "x", "n": 01}\n',
        b'{"topic":\n"T", "body": "x"}\n',
        b'{"topic": "T", "body": "x", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"topic": "T", "body": "x", "n": ' + b'{"n":' * 100_000 + b"1" + b"}" * 100_000 + b"}\n",
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_not_plain_is_declined(line: bytes, is_first: bool) -> None:
    data = line + GOOD if is_first else GOOD + line
    assert reader(Wanted()).read(data) is None


def test_a_stored_message_among_new_ones_is_declined() -> None:
    stored = b'{"topic": "T", "body": "x", "commitLogOffset": 5}\n'
    assert reader(Wanted()).read(stored + GOOD) is None
    assert reader(Wanted()).read(stored + stored) is not None


def test_a_default_with_a_separator_is_declined() -> None:
    assert reader(Wanted({"tags": "a\x01"})).read(GOOD) is None
    assert reader(Wanted({}, {"p": "\x02"})).read(GOOD) is None


def test_a_line_longer_than_what_is_parsed_at_a_time() -> None:
    lines = b"".join(b'{"topic": "T", "body": "%s"}\n' % (b"x" * size) for size in (3, 3 << 20, 1, 1 << 20, 2))
    found = reader(Wanted()).read(lines)
    assert found is not None
    assert [len(body) for body in found.bodies] == [3, 3 << 20, 1, 1 << 20, 2]


def test_after_some_declined_pieces_nothing_is_tried() -> None:
    lines = reader(Wanted())
    assert lines.read(GOOD) is not None
    assert lines.read(b"{\n") is None
    assert lines.read(b"{\n") is None
    assert lines.read(GOOD) is not None
    for _ in range(3):
        assert lines.read(b"{\n") is None
    assert lines.read(GOOD) is None


def test_names_that_look_like_times_are_texts() -> None:
    lines = reader(Wanted())
    first = b'{"topic": "T", "body": "x", "properties": {"day": "2024-01-01"}}\n'
    second = b'{"topic": "T", "body": "x", "properties": {"night": "2024-01-01 00:00:00"}}\n'
    for data in (first, second, first + second):
        found = lines.read(data)
        assert found is not None
        assert rows_of(found) == one_by_one(data, Wanted())


def test_too_many_names_are_declined() -> None:
    lines = b"".join(
        json.dumps({"topic": "T", "body": "", "properties": {f"p{number}": "v"}}).encode() + b"\n"
        for number in range(51)
    )
    assert reader(Wanted()).read(lines) is None


def test_texts_of_messages_that_have_different_properties() -> None:
    wanted = Wanted({}, {"all": "same"})
    data = b"".join(
        json.dumps({"topic": "T", "body": "", "properties": properties}).encode() + b"\n"
        for properties in ({"a": "1", "b": "2"}, {"b": ""}, {}, {"a": "%s\\"}, {"a": "3", "b": "4"})
    )
    lines = reader(wanted)
    found = lines.read(data)
    assert found is not None
    texts = lines.texts(found.properties, 5, lambda names: text_template(names, 16, True))
    assert texts == [text_template(tuple(row[4]), 16, True)(row[4]) for row in rows_of(found)]
    assert texts[2] == b"all\x01same\x02"
    assert lines.texts({"all": "same"}, 2, lambda names: text_template(names, 16, False)) == [b"all\x01same"] * 2


def test_lines_of_what_was_stored_are_those_of_rows() -> None:
    import numpy as np

    put = PutColumns(np.array([0, 1 << 40, 77]), np.array([5, 6, 0]), np.array([9, 9, 9]), 1_700_000_000_000)
    keys, topics, queue_ids = (
        ["A1", 'a "key"', "ä"],
        Coded(np.array([0, 1, 0], np.int32), ["T", "U\\"]),
        np.array([0, 3, 0]),
    )
    lines = reader(Wanted())
    column = lines.keys({}, keys)
    rows = [
        (
            "PUT_OK",
            key,
            f"7F00000100002A9F{place:016X}",
            topics.values[code],
            int(queue),
            offset,
            place,
            put.store_timestamp,
        )
        for key, code, queue, offset, place in zip(
            keys,
            topics.codes.tolist(),
            queue_ids,
            put.queue_offsets.tolist(),
            put.physical_offsets.tolist(),
            strict=True,
        )
    ]
    assert lines.lines(column, topics, queue_ids, put, "7F00000100002A9F") == Sent(rows).json_lines()
    assert [json.loads(line)["msgId"] for line in Sent(rows).json_lines().splitlines()] == keys
