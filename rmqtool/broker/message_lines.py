"""Messages to be sent, from the JSON objects that people and ``cat --jsonl`` write."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from rmqtool.engine.message import NewMessage
from rmqtool.errors import UsageError
from rmqtool.formats.java import INT_MAX, INT_MIN

# What a message was given on its way is given anew.
_GIVEN_BY_BROKERS = frozenset({"UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER", "WAIT", "__CRC32#"})
_OWN = {
    "tags": "TAGS",
    "keys": "KEYS",
    "shardingKey": "__SHARDINGKEY",
    "delayLevel": "DELAY",
    "deliverAt": "TIMER_DELIVER_MS",
}
_SEPARATORS = ("\x01", "\x02")


def message_of(value: object) -> NewMessage:
    """Return the message that an object describes; a queue that it does not name is -1.

    Raises ``UsageError`` with what is wrong.
    """
    if not isinstance(value, Mapping):
        raise UsageError('a message must be a JSON object, as in {"topic": "T", "body": "text"}')
    topic, queue, flag = value.get("topic"), value.get("queueId", -1), value.get("flag", 0)
    if not isinstance(topic, str) or not topic:
        raise UsageError('"topic" is missing', hint="name one with -t")
    if not _is_int(queue) or not _is_int(flag):
        raise UsageError('"queueId" and "flag" must be whole numbers')
    return NewMessage(topic, _body(value), queue, _properties(value), flag)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and INT_MIN <= value <= INT_MAX


def _body(value: Mapping[str, Any]) -> bytes:
    text, encoding = value.get("body"), value.get("bodyEncoding", "utf8")
    if encoding == "none" or (text is None and "bodyEncoding" not in value):
        return b""
    if not isinstance(text, str):
        raise UsageError('"body" must be a text')
    if encoding == "utf8":
        return text.encode("utf-8", "surrogateescape")
    if encoding != "base64":
        raise UsageError(f'"bodyEncoding" is utf8, base64 or none, not {encoding!r}')
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise UsageError('"body" is not base64, as "bodyEncoding" says') from None


def _properties(value: Mapping[str, Any]) -> dict[str, str]:
    given = value.get("properties") or {}
    if not isinstance(given, Mapping):
        raise UsageError('"properties" must be an object, as in {"name": "value"}')
    properties = {name: one for name, one in given.items() if name not in _GIVEN_BY_BROKERS}
    for key, name in _OWN.items():
        if value.get(key) is not None:
            properties[name] = value[key]
    return {name: _text(name, one) for name, one in properties.items()}


def _text(name: str, value: object) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise UsageError(f"the property {name} is no text")
    text = str(value)
    if any(separator in name or separator in text for separator in _SEPARATORS):
        raise UsageError(f"the property {name!r} holds a byte 1 or 2, which separates properties")
    return text
