"""What unmodified clients and real brokers said to each other: read as typed values, and written to be equal."""

from __future__ import annotations

from collections import Counter

import pytest

from rmqtool.remoting.binary_header import encode_binary_header
from rmqtool.remoting.body import Body, read_json
from rmqtool.remoting.command import ANSWER, SerializeType
from rmqtool.remoting.headers import Row
from rmqtool.remoting.json_header import encode_json_header
from tests.support import wire
from tests.support.wire import Decoded

FRAMES = 6451

# What the recording does not have whole: values were cut at 300 characters, bodies at 600 and remarks at 160, and a
# remark that was there and empty is not told from none.
CUT_VALUES = 3
CUT_REMARKS = 2
EMPTY_REMARKS = 33
CUT_BODY = 600


@pytest.fixture(scope="module")
def frames() -> list[Decoded]:
    return wire.decoded_frames()


def test_all_are_there(frames: list[Decoded]) -> None:
    assert len(frames) == FRAMES
    assert len({frame.journey for frame in frames}) == 147


def test_headers_are_as_long_as_those_of_the_real_encoders(frames: list[Decoded]) -> None:
    """Java's encoder is the canonical one; Go's members are in another order, with as many bytes where it says."""
    seen: Counter[str] = Counter()
    for frame in frames:
        command = frame.command()
        if frame.serialize_type == SerializeType.ROCKETMQ:
            assert len(encode_binary_header(command)) == frame.header_length, frame
            seen["binary"] += 1
        elif frame.language == "JAVA":
            lengths = {len(encode_json_header(command)): "json"}
            if not frame.ext:
                lengths[len(encode_json_header(command.replaced(ext_fields={})))] = "json with empty fields"
            if frame.remark is None:
                lengths[len(encode_json_header(command.replaced(remark="")))] = "empty remark"
            if any(value.endswith("...") for value in frame.ext.values()):
                seen["cut value"] += 1
            elif len(frame.remark or "") == 160 and frame.header_length not in lengths:
                seen["cut remark"] += 1
            else:
                assert frame.header_length in lengths, frame
                seen[lengths[frame.header_length]] += 1
    assert seen == {
        "json": 5778,
        "json with empty fields": 563,
        "binary": 54,
        "cut value": CUT_VALUES,
        "cut remark": CUT_REMARKS,
        "empty remark": EMPTY_REMARKS,
    }


def test_fields_become_typed_values_and_equal_fields_again(frames: list[Decoded]) -> None:
    requests, answers = Counter[str](), Counter[str]()
    for frame, row in wire.with_rows(frames):
        if row is None:
            continue
        own = {name: text for name, text in frame.ext.items() if name not in wire.HOOKS}
        if frame.flag & ANSWER:
            answer = row.request.answer.decode_answer(frame.ext)
            assert answer.encode() == own, frame
            answers[row.name] += bool(own)
        else:
            request = row.decode(frame.ext)
            assert row.encode(request) == own, frame
            requests[row.name] += 1
    assert (sum(requests.values()), len(requests)) == (3510, 75)
    assert (sum(answers.values()), len(+answers)) == (883, 17)


def test_unknown_codes_are_known_to_be_unknown(frames: list[Decoded]) -> None:
    """POP with a ROCKETMQ header: 200050 does not fit into its 16 bits, and the real broker did not know 3442."""
    unknown = {frame.code for frame, row in wire.with_rows(frames) if row is None and not frame.flag & ANSWER}
    assert unknown == {200050 & 0xFFFF}


def body_of(frame: Decoded, row: Row) -> type[Body] | None:
    kind = row.request.answer_body if frame.flag & ANSWER else row.request.body
    # What an answer says is in its body only if it says yes.
    if frame.flag & ANSWER and frame.code != 0:
        return None
    return kind if isinstance(kind, type) else None


def test_bodies_become_typed_values_and_equal_json_again(frames: list[Decoded]) -> None:
    compared = Counter[str]()
    for frame, row in wire.with_rows(frames):
        if row is None or not frame.body_length:
            continue
        kind = body_of(frame, row)
        if kind is None:
            compared["no object"] += 1
            continue
        assert frame.body is not None
        data = frame.body.encode()
        if len(data) != frame.body_length and len(frame.body) == CUT_BODY:
            compared["cut"] += 1
            continue
        value = kind.decode(data)
        assert read_json(value.encode()) == read_json(data), (row.name, frame.body)
        assert kind.decode(value.encode()) == value
        compared[kind.__name__] += 1
    assert compared.pop("cut") == 145
    # Messages, records, properties, and what stands in answers that say no.
    assert compared.pop("no object") == 361
    assert (sum(compared.values()), len(compared)) == (1764, 27)
