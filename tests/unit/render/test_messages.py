"""The block of a message: what is shown of a body that is almost a text."""

from __future__ import annotations

import base64

import pytest

from rmqtool.render.messages import message_lines
from rmqtool.render.output import Look, Output


def body_lines(data: bytes) -> list[str]:
    shown = {
        "topic": "T",
        "queueId": 0,
        "queueOffset": 0,
        "storeTimestamp": 0,
        "tags": None,
        "keys": None,
        "bodyLength": len(data),
        "bodyCodec": None,
        "offsetMsgId": "-",
        "uniqKey": None,
        "bornHost": "-",
        "reconsumeTimes": 0,
        "commitLogOffset": 0,
        "properties": {},
        "bodyEncoding": "base64",
        "body": base64.b64encode(data).decode(),
    }
    return list(message_lines(Output(Look()), shown, "none", "text"))[2:]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"order created: \xe4\xbd", "  order created: \\xe4\\xbd"),
        (b"order \xff created", "  order \\xff created"),
    ],
)
def test_a_text_with_one_cut_character_stays_a_text(data, said):
    assert body_lines(data) == [said]


@pytest.mark.parametrize("data", [b"\xe4\xbd", b"\x00\xff\xfe\x80" * 8, bytes(range(128, 160)) + b"a" * 400])
def test_a_binary_body_is_shown_in_hex(data):
    assert body_lines(data)[0].startswith("  00000000  ")
