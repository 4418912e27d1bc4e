"""Plain sends and pulls, and their answers: what the kernel reads and writes beside what Python does."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtool import kernel
from rmqtool.remoting.answers import AnswerTemplate
from rmqtool.remoting.command import SerializeType
from rmqtool.remoting.frames import decode_frame
from rmqtool.remoting.requests.messages import SendMessageAnswer
from tests.support import wire
from tests.support.kernel_twins import Comparison, damage

NATIVE, WHY_NOT = kernel.load(True, Path(__file__).resolve().parents[2] / "native")
pytestmark = pytest.mark.skipif(NATIVE is None, reason=f"there is no compiled kernel: {WHY_NOT}")

SENDS = [raw.data for raw in wire.raw_frames() if raw.from_client and b'"code":310,' in raw.data[:30]]
SENDS += [raw.data for raw in wire.raw_frames() if raw.from_client and b'"code":10,' in raw.data[:30]]


def test_recorded_requests_to_store_a_message() -> None:
    """One by one, back to back, cut and damaged."""
    assert NATIVE is not None
    rng, comparison = random.Random(3), Comparison(NATIVE)
    for frame in SENDS:
        comparison.plain_requests(frame)
    taken = comparison.seen["send requests"]
    assert taken == 177
    comparison.plain_requests(b"".join(SENDS))
    for frame in SENDS[::5]:
        comparison.plain_requests(frame * 3 + frame[: rng.randrange(len(frame))])
        middle = 8 + int.from_bytes(frame[5:8], "big")
        for _ in range(9):
            comparison.plain_requests(frame[:8] + damage(rng, frame[8:middle]) + frame[middle:])
            comparison.plain_requests(damage(rng, frame[:8]) + frame[8:])
    assert comparison.seen["send requests"] > taken + 100
    assert comparison.seen["declined frames"] > 500


def a_send(header: bytes, body: bytes = b"body") -> bytes:
    """Return the frame of a header."""
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


FIELDS = b'"a":"g","b":"T","c":"M","d":"4","e":"3","f":"0","g":"17","h":"7"'
LONG_FIELDS = (
    b'"producerGroup":"g","topic":"T","defaultTopic":"M","defaultTopicQueueNums":"4","queueId":"3","sysFlag":"0",'
    b'"bornTimestamp":"17","flag":"7","properties":"a\\u00011\\u0002b\\u0002\\u00012\\u0002c\\u00013\\u00014\\u0002a\\u00015"'
)


PLAIN = a_send(b'{"code":310,"extFields":{%b},"flag":0,"opaque":9}' % FIELDS)
LONG = a_send(b'{ "code" : 10, "extFields":{%b}, "remark":"x" }' % LONG_FIELDS, b"")
# What makes a request unusual: a part of the header, and what stands there instead.
UNUSUAL = [
    (b'"a":"g",', b""),
    (b'"b":"T"', b'"b":""'),
    (b'"c":"M",', b""),
    (b'"d":"4"', b'"d":""'),
    (b'"e":"3"', b'"e":"-1"'),
    (b'"e":"3"', b'"e":3'),
    (b'"e":"3"', b'"e":"1234567890"'),
    (b'"f":"0"', b'"f":"1"'),
    (b'"h":"7"', b'"h":"x"'),
    (b'"g":"17"', b'"g":"1234567890123456789"'),
    (b'"h":"7"', b'"h":"7","j":"1"'),
    (b'"h":"7"', b'"h":"7","m":"true"'),
    (b'"h":"7"', b'"h":"7","k":"False"'),
    (b'"h":"7"', b'"h":"7","l":"-1"'),
    (b'"h":"7"', b'"h":"7","i":"\\u00e9"'),
    (b'"h":"7"', b'"h":"7","x":"\\n"'),
    (b'"h":"7"', b'"h":"7","topic":"U"'),
    (b'"flag":0', b'"flag":1'),
    (b'"flag":0', b'"flag":2'),
    (b"310", b"320"),
    (b"310", b"11"),
    (b"310", b"361"),
    (b'"opaque":9', b'"opaque":9.5'),
    (b'"code":310,', b""),
    (b"}", b""),
    (b'"flag":0', b'"flag":0,"extFields":{}'),
    (b'"flag":0', b'"x":{}'),
]


def test_requests_to_store_a_message_laid_by_hand() -> None:
    assert NATIVE is not None
    plain, long = PLAIN, LONG
    row = (0, len(plain), 9, "T", 3, 17, 7, {}, b"body")
    assert NATIVE.plain_requests(plain, 0, 1 << 24, 1 << 16) == ([row], len(plain))
    second = (len(plain), 2 * len(plain), *row[2:])
    assert NATIVE.plain_requests(plain * 2 + plain[:-1], 0, 1 << 24, 1 << 16) == ([row, second], 2 * len(plain))
    assert NATIVE.plain_requests(plain * 2, len(plain), 1 << 24, 1 << 16) == ([second], 2 * len(plain))
    expected = (0, len(long), 0, "T", 3, 17, 7, {"a": "5", "c": "3\x014"}, b"")
    assert NATIVE.plain_requests(long, 0, 1 << 24, 1 << 16) == ([expected], len(long))
    header = plain[8:-4]
    declined = [
        *(a_send(header.replace(*change)) for change in UNUSUAL),
        a_send(b'{"extFields":{%b},"code":310}' % FIELDS),
        a_send(b'{"code":310}'),
        a_send(b'{"code":310,"extFields":{%b}}' % b",".join([FIELDS, *[b'"x":""'] * 60])),
        plain[:4] + b"\1" + plain[5:],
        plain[:5] + b"\0\4\0" + plain[8:],
        b"\xff" + plain[1:],
        bytes(8),
    ]
    for frame in declined:
        assert NATIVE.plain_requests(frame, 0, 1 << 24, 1 << 16) == ([], 0), frame
    assert NATIVE.plain_requests(plain, 0, len(plain) - 1, 1 << 16) == ([], 0)
    assert NATIVE.plain_requests(plain, 0, 1 << 24, len(header) - 1) == ([], 0)


PULLS = [raw.data for raw in wire.raw_frames() if raw.from_client and b'"code":11,' in raw.data[:30]]
PULLS += [raw.data for raw in wire.raw_frames() if raw.from_client and b'"code":361,' in raw.data[:30]]


def test_recorded_pulls() -> None:
    """Those of push consumers are taken; of others that bring a subscription, or are signed, none is."""
    assert NATIVE is not None
    rng, comparison = random.Random(4), Comparison(NATIVE)
    for frame in PULLS:
        comparison.plain_requests(frame)
    assert comparison.seen["pulls"] == 248
    for frame in PULLS[::5]:
        comparison.plain_requests(frame * 3 + SENDS[0] + frame[: rng.randrange(len(frame))])
        middle = 8 + int.from_bytes(frame[5:8], "big")
        for _ in range(9):
            comparison.plain_requests(frame[:8] + damage(rng, frame[8:middle]) + frame[middle:])
    assert comparison.seen["pulls"] > 400
    assert comparison.seen["declined frames"] > 500


PULL_FIELDS = (
    b'"consumerGroup":"g","topic":"T","queueId":"3","queueOffset":"1234567890123","maxMsgNums":"32","sysFlag":"3",'
    b'"commitOffset":"7","suspendTimeoutMillis":"15000","subVersion":"1795087755242"'
)
PULL = a_send(b'{"code":11,"extFields":{%b},"flag":0,"opaque":9}' % PULL_FIELDS, b"")
# Usual ones besides: what is added to the fields.
USUAL_PULLS = [b'"maxMsgBytes":"262144"', b'"expressionType":"TAG"', b'"bname":"broker-a"']
UNUSUAL_PULLS = [
    *(
        (PULL_FIELDS, PULL_FIELDS.replace(b",".join(PULL_FIELDS.split(b",")[at : at + 1]) + b",", b""))
        for at in range(8)
    ),
    (b',"subVersion":"1795087755242"', b""),
    (b'"consumerGroup":"g"', b'"consumerGroup":""'),
    (b'"topic":"T"', b'"topic":""'),
    (b'"topic":"T"', b'"topic":"\\n"'),
    (b'"queueId":"3"', b'"queueId":3'),
    (b'"queueId":"3"', b'"queueId":"-1"'),
    (b'"queueId":"3"', b'"queueId":"3","queueId":"4"'),
    (b'"maxMsgNums":"32"', b'"maxMsgNums":"1234567890"'),
    (b'"sysFlag":"3"', b'"sysFlag":"4"'),
    (b'"sysFlag":"3"', b'"sysFlag":"16"'),
    (b'"commitOffset":"7"', b'"commitOffset":"-1"'),
    (b'"commitOffset":"7"', b'"commitOffset":"7","maxMsgBytes":"x"'),
    (b'"commitOffset":"7"', b'"commitOffset":"7","expressionType":"SQL92"'),
    (b'"commitOffset":"7"', b'"commitOffset":"7","subscription":"*"'),
    (b'"commitOffset":"7"', b'"commitOffset":"7","ns":"x"'),
    (b'"flag":0', b'"flag":2'),
    (b'"code":11', b'"code":12'),
    (b'"flag":0', b'"flag":0,"code":310'),
]


def test_pulls_laid_by_hand() -> None:
    assert NATIVE is not None
    row = (9, "g", "T", 3, 1_234_567_890_123, 32, 3, 7)
    assert NATIVE.plain_requests(PULL, 0, 1 << 24, 1 << 16) == ([(0, len(PULL), *row)], len(PULL))
    for more in USUAL_PULLS:
        frame = a_send(PULL[8:].replace(PULL_FIELDS, PULL_FIELDS + b"," + more), b"")
        assert NATIVE.plain_requests(frame, 0, 1 << 24, 1 << 16) == ([(0, len(frame), *row)], len(frame))
    both = PULL + PLAIN
    assert [len(one) for one in NATIVE.plain_requests(both, 0, 1 << 24, 1 << 16)[0]] == [10, 9]
    for change in UNUSUAL_PULLS:
        frame = a_send(PULL[8:].replace(*change), b"")
        assert frame != PULL, change
        assert NATIVE.plain_requests(frame, 0, 1 << 24, 1 << 16) == ([], 0), frame


def test_frames_of_answers_laid_by_hand() -> None:
    assert NATIVE is not None
    parts = b'{"a":', b',"b":"', b'"}'
    made = NATIVE.answer_frame(parts, ("key\x7f", -(1 << 63)), b"body", 1 << 20, 1 << 24)
    header = b'{"a":"key\x7f","b":"-9223372036854775808"}'
    assert made == struct.pack(">ii", 8 + len(header), len(header)) + header + b"body"
    assert NATIVE.answer_frame((b"{}",), (), b"", 2, 10) == b"\0\0\0\6\0\0\0\2{}"
    for most in ((1, 10), (2, 9)):
        assert NATIVE.answer_frame((b"{}",), (), b"", *most) is None
    odd: list[Any] = ["a\n", 'a"', "a\\", "é", "\ud800", None, b"a", 1.5]
    for value in odd:
        assert NATIVE.answer_frame(parts, (value, 1), b"", 1 << 20, 1 << 24) is None


WRONG: list[tuple[tuple[Any, ...], type[Exception]]] = [
    (((b"",), (1,), b"", 9, 9), ValueError),
    (([b""], (), b"", 9, 9), ValueError),
    (((b"",), [], b"", 9, 9), ValueError),
    (((b"",) * 18, (1,) * 17, b"", 9, 9), ValueError),
    ((("",), (), b"", 9, 9), TypeError),
    (((b"",), (), "", 9, 9), TypeError),
    (((b"",), (), b"", -1, 9), ValueError),
    (((b"", b""), (1 << 63,), b"", 9, 9), OverflowError),
]


@pytest.mark.parametrize(("arguments", "error"), WRONG)
def test_wrong_parts_of_answers_are_refused(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    assert NATIVE is not None
    with pytest.raises(error):
        NATIVE.answer_frame(*arguments)


def test_templates_are_filled_by_both_tiers_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    header = SendMessageAnswer.decode_answer({"MSG_REGION": '100% "r"', "TRACE_ON": "true"})
    template = AnswerTemplate(header, "msg_id", "queue_id", "queue_offset", "transaction_id", code=10)
    values = [("7F00", 3, 1 << 40, "key"), ("", -1, 0, ""), ('a"\n', 0, 0, "é%s"), ("\ud800", 1, 1, "%")]
    found = []
    for native in (NATIVE, None):
        monkeypatch.setattr(kernel, "NATIVE", native)
        found.append([template.encode(SerializeType.JSON, -7, value, b"body") for value in values])
    assert found[0] == found[1]
    assert decode_frame(found[0][0]).ext["queueOffset"] == str(1 << 40)
