"""The JSON header of a command, as Java, Go, Node and C++ write it, and as rmqtool writes it.

It is an object with the members ``code``, ``language``, ``version``, ``opaque``, ``flag``, ``remark`` and
``extFields``, in any order; others are ignored.

Java writes the members by name, leaves out what is null and adds ``serializeTypeCurrentRPC``; this is what is written
here. Java and Go write every field as a text. Node and C++ write numbers and booleans: they are made the texts that
Java makes of them, before anything else looks at them, signatures included.

Upstream: ``RemotingSerializable``, by fastjson.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring

from rmqtool import kernel
from rmqtool.formats.java import INT_MAX, INT_MIN, decode_text, encode_text
from rmqtool.remoting import limits
from rmqtool.remoting.command import FrameError, Language, RemotingCommand, SerializeType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

# Numbers with a point keep their text: only Java knows how Java would write them.
_read: Final = json.JSONDecoder(parse_float=str).raw_decode
_LANGUAGES: Final = {language.name: language for language in Language}
_BLANK: Final = " \t\r\n"
_JSON: Final = SerializeType.JSON

quote: Final = encode_basestring


def header_text(data: bytes | memoryview) -> str:
    """Return the text of a header. Raises FrameError."""
    if len(data) > limits.PLAIN_HEADER_BYTES:
        return limits.plain_text(data, len(data))
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return decode_text(data)


def decode_json_header(data: bytes | memoryview, begin: int, end: int, body: bytes = b"") -> RemotingCommand:
    """Return the command of the header between two places, and of its body. Raises FrameError."""
    if kernel.NATIVE is not None and end - begin <= limits.PLAIN_HEADER_BYTES:
        plain = kernel.NATIVE.json_header(data, begin, end, limits.FIELDS)
        if plain is not None:
            code, fields, opaque, flag, language, version, remark = plain
            known = None if language is None else _LANGUAGES.get(language)
            return RemotingCommand(code, fields, body, opaque, flag, known, version, remark, _JSON)
    return header_in_python(header_text(data[begin:end]), body)


def header_in_python(text: str, body: bytes = b"") -> RemotingCommand:
    """Return the command of a header: what the kernel is the twin of. It leaves to this what it declines."""
    members = _members(text)
    fields = members.get("extFields")
    if fields is not None:
        fields = _texts(fields)
    language = members.get("language")
    remark = members.get("remark")
    return RemotingCommand(
        _number(members, "code"),
        fields,
        body,
        _number(members, "opaque"),
        _number(members, "flag"),
        _LANGUAGES.get(language) if type(language) is str else None,
        _number(members, "version"),
        remark if remark is None or type(remark) is str else _text(remark),
        SerializeType.JSON,
    )


def _members(text: str) -> dict[str, Any]:
    limits.check_json(text)
    text = text.strip(_BLANK)
    try:
        members, end = _read(text)
    # ValueError: also a number of more digits than Python reads.
    except (ValueError, RecursionError):
        raise FrameError("the header is not JSON") from None
    if type(members) is not dict:
        raise FrameError("the header is not a JSON object")
    if end != len(text):
        raise FrameError("bytes after the end of the header's JSON")
    return members


def _number(members: dict[str, Any], name: str) -> int:
    value = members.get(name)
    if type(value) is int and INT_MIN <= value <= INT_MAX:
        return value
    if value is None:
        return 0
    raise FrameError(f"{name} of the header is not an int")


def _texts(fields: Any) -> dict[str, str]:
    """Return the fields as texts; those that are null are as good as absent."""
    if type(fields) is not dict:
        raise FrameError("extFields of the header is not an object")
    if len(fields) > limits.FIELDS:
        raise FrameError(f"{len(fields)} fields, {limits.FIELDS} are allowed")
    for value in fields.values():
        if type(value) is not str:
            return {name: _text(value) for name, value in fields.items() if value is not None}
    return fields


def _text(value: Any) -> str:
    """Return the text that Java makes of a value."""
    if type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode_json_header(command: RemotingCommand) -> bytes:
    """Return the header as a Java client writes it: one line, members in the order of their names."""
    fields = ""
    if command.ext_fields is not None:
        pairs = [f"{quote(name)}:{quote(value)}" for name, value in command.ext_fields.items()]
        fields = '"extFields":{' + ",".join(pairs) + "},"
    language = "" if command.language is None else f'"language":"{command.language.name}",'
    remark = "" if command.remark is None else f'"remark":{quote(command.remark)},'
    return encode_text(
        f'{{"code":{command.code},{fields}"flag":{command.flag},{language}"opaque":{command.opaque},{remark}'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    )
