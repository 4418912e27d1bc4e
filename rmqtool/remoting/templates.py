"""Answers that are given by the thousand: a frame with holes, filled in a fraction of the time that encoding takes.

A broker's answers to sends and pulls differ in a few fields only. A template encodes the rest once, for both kinds of
header; what it gives is byte for byte what ``encode_frame`` gives for the same command.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from rmqtool.formats.java import encode_text
from rmqtool.remoting.binary_header import encode_binary_header
from rmqtool.remoting.command import ANSWER, OWN_VERSION, RemotingCommand, SerializeType
from rmqtool.remoting.frames import join_frame
from rmqtool.remoting.headers import Header
from rmqtool.remoting.json_header import encode_json_header, quote

# The placeholder of a value; upstream has no value like it.
_HOLE: Final = "\ufffc"
_INT: Final = struct.Struct(">i")
# In a ROCKETMQ header: after code, language and version.
_OPAQUE_AT: Final = 5


class AnswerTemplate:
    """An answer of one kind. ``header`` has what is always the same; ``holes`` are the attributes that differ.

    The holes must be numbers or texts that the header has not been given.
    """

    def __init__(self, header: Header, *holes: str, code: int = 0, remark: str | None = None) -> None:
        names = [header.fields[name].wire for name in holes]
        self._is_text = [header.fields[name].java == "String" for name in holes]
        fields = header.encode() | dict.fromkeys(names, _HOLE)
        command = RemotingCommand(code, fields, flag=ANSWER, version=OWN_VERSION, remark=remark)
        text = encode_json_header(command).decode().replace("%", "%%")
        for is_text in self._is_text:
            text = text.replace(f'"{_HOLE}"', "%s" if is_text else '"%d"', 1)
        # Its members come in the order of their names: opaque after the fields.
        self._json = text.replace('"opaque":0', '"opaque":%d', 1)
        self._any_text = any(self._is_text)
        self._binary = self._split(encode_binary_header(command))
        self._fields_at = len(encode_binary_header(command._replace(ext_fields=None))) - _INT.size

    @staticmethod
    def _split(header: bytes) -> list[bytes]:
        """Return the parts of a ROCKETMQ header around its holes, their lengths left out."""
        hole = encode_text(_HOLE)
        return header.split(_INT.pack(len(hole)) + hole)

    def encode(self, serialize_type: SerializeType, opaque: int, values: tuple[Any, ...], body: bytes = b"") -> bytes:
        """Return the frame that answers ``opaque``, with a header of the request's type."""
        if serialize_type is SerializeType.ROCKETMQ:
            return join_frame(self._binary_header(opaque, values), body, serialize_type)
        if self._any_text:
            values = tuple(
                quote(value) if is_text else value for value, is_text in zip(values, self._is_text, strict=True)
            )
        return join_frame(encode_text(self._json % (*values, opaque)), body, serialize_type)

    def _binary_header(self, opaque: int, values: tuple[Any, ...]) -> bytes:
        parts = [self._binary[0]]
        for value, part in zip(values, self._binary[1:], strict=True):
            text = encode_text(str(value))
            parts += [_INT.pack(len(text)), text, part]
        header = bytearray(b"".join(parts))
        _INT.pack_into(header, _OPAQUE_AT, opaque)
        _INT.pack_into(header, self._fields_at, len(header) - self._fields_at - _INT.size)
        return bytes(header)
