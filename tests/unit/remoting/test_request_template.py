"""A request whose header is encoded once reads as the request that is encoded whole."""

from __future__ import annotations

import pytest

from rmqtool.api.outgoing import message_of
from rmqtool.broker.producer.lines import message_of as message_from
from rmqtool.remoting.command import OWN_VERSION, Language, SerializeType
from rmqtool.remoting.frames import RequestTemplate, decode_frame

FIELDS = {"a": '50 % of "G"', "f": "0", "b": "T\u6c49", "g": "0", "h": "0", "i": "", "opaque": '"opaque":0'}


@pytest.mark.parametrize(
    "text", ["", "TAGS\x01a\x02KEYS\x01%s %d", 'quote " and \\ back', "\u6c49\U0001f600\n", "x" * 5000]
)
def test_a_frame_has_the_fields_and_the_body(text: str) -> None:
    template = RequestTemplate(310, FIELDS, ("f", "g", "h"), "i")
    for opaque, numbers, body in ((7, ("1", "1700000000000", "-3"), b"body"), (2**31 - 1, ("0", "0", "0"), b"")):
        found = decode_frame(template.encode(opaque, numbers, text, body))
        assert (found.code, found.opaque, found.body, found.flag) == (310, opaque, body, 0)
        assert found.ext == FIELDS | dict(zip(("f", "g", "h"), numbers, strict=True)) | {"i": text}
        assert (found.language, found.version) == (Language.PYTHON, OWN_VERSION)
        assert found.serialize_type is SerializeType.JSON


def test_a_frame_that_would_be_too_large_is_refused() -> None:
    template = RequestTemplate(310, FIELDS, ("f", "g", "h"), "i")
    with pytest.raises(ValueError, match="beyond the limits"):
        template.encode(1, ("0", "0", "0"), "x" * (1 << 24), b"")


@pytest.mark.parametrize("parts", [{}, {"tags": "a"}, {"keys": "k1 k2"}, {"tags": "a", "keys": "k"}, {"tags": ""}])
def test_a_plain_message_is_the_one_that_is_read_member_by_member(parts: dict[str, str]) -> None:
    found = message_of("T", "body \u6c49", **parts)  # type: ignore[arg-type]
    assert found == message_from({"topic": "T", "body": "body \u6c49".encode(), "properties": {}, **parts})
