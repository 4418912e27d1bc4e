"""The Message object of docs/contract.md: a message as JSON.

Names and their order are fixed for scripts. ``columns.jsonl`` makes the same lines for many records at once.
"""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

from rmqtool.formats.commit_log import Message
from rmqtool.formats.compression import DEFAULT_BODY_CAP, body_codec, inflate_body
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.hosts import format_host
from rmqtool.formats.ids import encode_offset_msg_id

FIELDS = (
    "commitLogOffset",
    "storeSize",
    "magic",
    "topic",
    "queueId",
    "queueOffset",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "bornHost",
    "storeTimestamp",
    "storeHost",
    "reconsumeTimes",
    "preparedTransactionOffset",
    "bodyCRC",
    "offsetMsgId",
    "uniqKey",
    "tags",
    "keys",
    "properties",
    "body",
    "bodyEncoding",
    "bodyCodec",
    "bodyLength",
    "storedBodyLength",
)
"""The names of a Message object, in the order in which they are written."""

# The values of ``bodyEncoding``; none is for a body that was left out.
UTF8, BASE64, NONE = "utf8", "base64", "none"

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class MessageJson(NamedTuple):
    """A Message object, and a flaw if the body does not decompress; its ``body`` is then the stored body."""

    fields: dict[str, Any]
    flaw: Flaw | None


def message_json(
    message: Message, cap: int = DEFAULT_BODY_CAP, kind: type[dict[str, Any]] = dict[str, Any]
) -> MessageJson:
    """Return a message as JSON, in a dictionary of a ``kind``.

    A body that is damaged, or would decompress to more than ``cap`` bytes, stays as it is stored: in base64, and
    ``bodyLength`` is null.
    """
    inflated = inflate_body(message.sys_flag, message.raw_body, cap)
    flaw = inflated if isinstance(inflated, Flaw) else None
    body = message.raw_body if isinstance(inflated, Flaw) else inflated.body
    text, encoding = spell_body(body, as_text=flaw is None)
    values = (
        message.physical_offset,
        message.total_size,
        f"{message.magic:#010x}",
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        format_host(message.born_host_ip, message.born_host_port),
        message.store_timestamp,
        format_host(message.store_host_ip, message.store_host_port),
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body_crc,
        encode_offset_msg_id(message.store_host_ip, message.store_host_port, message.physical_offset),
        message.uniq_key,
        message.tags,
        message.keys,
        message.properties,
        text,
        encoding,
        body_codec(message.sys_flag),
        len(body) if flaw is None else None,
        message.body_length,
    )
    return MessageJson(kind(zip(FIELDS, values, strict=True)), flaw)


def spell_body(body: bytes, *, as_text: bool) -> tuple[str, str]:
    """Return a body as a JSON text, and its encoding: UTF-8 if ``as_text`` and the bytes allow it, else base64."""
    if as_text:
        try:
            return body.decode("utf-8"), UTF8
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode("ascii"), BASE64


def read_body(fields: dict[str, Any]) -> bytes:
    """Return the bytes of the body in a Message object, the reverse of ``spell_body``; empty where it was left out."""
    text = fields["body"]
    if fields["bodyEncoding"] == UTF8:
        return bytes(text, "utf-8")
    return base64.b64decode(text) if fields["bodyEncoding"] == BASE64 else b""


def encode_line(fields: dict[str, Any]) -> str:
    """Return the object as one line of JSON, without its newline."""
    return _encode(fields)
