"""Commands as lines for people, secrets masked: for ``--debug`` and for recordings.

Masked are fields declared as secret, keys and signatures, and settings and properties whose names suggest a secret
(``rmqtool.secrets``). A body is shown if it is text; of messages and records only the length is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from rmqtool.formats.java import decode_text
from rmqtool.formats.response_codes import code_name
from rmqtool.remoting.body import Body, BodyError, Content, read_json
from rmqtool.remoting.command import RemotingCommand, version_name
from rmqtool.remoting.headers import Row
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.signature import SECURITY_TOKEN, SIGNATURE
from rmqtool.secrets import MASK, is_secret

_LONGEST: Final = 200
_HOOKS: Final = frozenset({SIGNATURE, SECURITY_TOKEN})
_PROPERTY = re.compile(r"(?m)^([^=\n]*)=(.+)$")


def frame_of(command: RemotingCommand, asked: Row | None = None) -> dict[str, Any]:
    """Return the content of a command, secrets masked; ``asked`` is the row of the request that it answers."""
    row = asked if command.is_answer else REQUESTS.get(command.code)
    named = code_name(command.code) if command.is_answer else (row.name if row else str(command.code))
    found: dict[str, Any] = {"code": command.code, "name": named, "opaque": command.opaque}
    found["kind"] = "answer" if command.is_answer else "oneway" if command.is_oneway else "request"
    if command.is_answer and asked is not None:
        found["to"] = asked.name
    found["language"] = None if command.language is None else command.language.name
    found["version"] = version_name(command.version) or command.version
    found["header"] = command.serialize_type.name
    if command.remark is not None:
        found["remark"] = command.remark
    found["fields"] = masked_fields(command, row)
    if command.body:
        found["bytes"] = len(command.body)
        text = _body_text(command, row)
        if text is not None:
            found["body"] = text
    return found


def line_of(command: RemotingCommand, asked: Row | None = None) -> str:
    """Return one line of the log of a connection."""
    frame = frame_of(command, asked)
    head = f"{frame['opaque']} {frame['kind']} {frame['code']} {frame['name']}"
    if "to" in frame:
        head += f" to {frame['to']}"
    words = [head, *(f"{_short(name)}={_short(value)}" for name, value in frame["fields"].items())]
    if "remark" in frame:
        words.append(f"remark={_short(frame['remark'])}")
    if "bytes" in frame:
        words.append(f"body {frame['bytes']} bytes" + (f" {_short(frame['body'])}" if "body" in frame else ""))
    return " ".join(words)


def masked_fields(command: RemotingCommand, row: Row | None) -> dict[str, str]:
    """Return the fields of a command without its secrets."""
    secret = set(_HOOKS)
    if row is not None:
        header = row.request.answer if command.is_answer else row.request
        secret |= {field.wire for field in header.fields.values() if field.secret}
    return {name: MASK if name in secret or is_secret(name) else value for name, value in command.ext.items()}


def _body_text(command: RemotingCommand, row: Row | None) -> str | None:
    kind = None if row is None else row.request.answer_body if command.is_answer else row.request.body
    if kind is Content.PROPERTIES:
        return _PROPERTY.sub(_mask_property, decode_text(command.body))
    if kind is not Content.JSON and not (isinstance(kind, type) and issubclass(kind, Body)):
        return None
    try:
        value = read_json(command.body)
    except BodyError:
        return None
    return json.dumps(_masked(value), ensure_ascii=False, separators=(",", ":"))


def _mask_property(match: re.Match[str]) -> str:
    return f"{match[1]}={MASK}" if is_secret(match[1].strip(), match[2]) else match[0]


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: MASK if isinstance(inner, str) and is_secret(name) else _masked(inner)
            for name, inner in value.items()
        }
    return [_masked(inner) for inner in value] if isinstance(value, list) else value


def _short(value: str) -> str:
    """Return a text as one word of a line: quoted where it has blanks or control characters, and not too long."""
    cut = value if len(value) <= _LONGEST else value[:_LONGEST] + "..."
    return cut if cut.isprintable() and cut and " " not in cut else json.dumps(cut, ensure_ascii=False)
