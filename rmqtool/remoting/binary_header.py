"""The ROCKETMQ header: numbers in fixed places, then the remark, then the fields as keys and values with lengths.

====== ====== ==========================================================================
offset size   field
====== ====== ==========================================================================
0      2      code
2      1      language
3      2      version
5      4      opaque
9      4      flag
13     4 + n  length of the remark, remark
...    4 + n  length of all fields, and for each: length (2), name, length (4), value
====== ====== ==========================================================================

An empty text is the same as none: a field without a value is absent, a remark too. A code above 32767 does not fit: the
requests of POP, 200050 and on, arrive as other numbers, and a broker answers 3.

Upstream: ``RocketMQSerializable``.
"""

from __future__ import annotations

import struct

from rmqtool import kernel
from rmqtool.formats.java import decode_text, encode_text
from rmqtool.remoting import limits
from rmqtool.remoting.command import FrameError, Language, RemotingCommand, SerializeType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# upstream: code, language, version, opaque, flag, length of the remark
_HEAD: Final = struct.Struct(">hbhiii")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")

_LANGUAGES: Final = {language.value: language for language in Language}


def decode_binary_header(data: bytes | memoryview, body: bytes = b"") -> RemotingCommand:
    """Return the command of a header and its body. Raises FrameError."""
    try:
        code, language, version, opaque, flag, length = _HEAD.unpack_from(data, 0)
        at = _HEAD.size
        remark = _remark(data, at, at + length) if length else None
        at += length
        (length,) = _INT.unpack_from(data, at)
        at += 4
        fields = _fields(data, at, at + length) if length else None
    except (struct.error, IndexError):
        raise FrameError(f"the header ends within a field, after {len(data)} bytes") from None
    return RemotingCommand(
        code, fields, body, opaque, flag, _LANGUAGES.get(language), version, remark, SerializeType.ROCKETMQ
    )


def _fields(data: bytes | memoryview, at: int, end: int) -> dict[str, str]:
    if not at <= end <= len(data):
        raise FrameError(f"fields of {end - at} bytes in a header of {len(data)}")
    if kernel.NATIVE is not None and len(data) <= limits.PLAIN_HEADER_BYTES:
        fields = kernel.NATIVE.header_fields(data, at, end, limits.FIELDS)
        if fields is not None:
            return fields
    return fields_in_python(data, at, end)


def fields_in_python(data: bytes | memoryview, at: int, end: int) -> dict[str, str]:
    """Return the fields of a header: what the kernel is the twin of. It leaves to this what it refuses."""
    long = len(data) > limits.PLAIN_HEADER_BYTES
    length_at = _INT.unpack_from
    fields: dict[str, str] = {}
    while at < end:
        middle = at + 2 + (data[at] << 8 | data[at + 1])
        (length,) = length_at(data, middle)
        last = middle + 4 + length
        if length < 0 or last > end:
            raise FrameError(f"a value of {length} bytes in fields that end {end - middle - 4} bytes later")
        name = data[at + 2 : middle]
        value = data[middle + 4 : last]
        at = last
        if not name or not length:
            continue
        if long:
            fields[limits.plain_text(name, len(data))] = limits.plain_text(value, len(data))
        else:
            try:
                fields[str(name, "utf-8")] = str(value, "utf-8")
            except UnicodeDecodeError:
                fields[decode_text(name)] = decode_text(value)
        if len(fields) > limits.FIELDS:
            raise FrameError(f"more than {limits.FIELDS} fields")
    return fields


def _remark(data: bytes | memoryview, at: int, end: int) -> str:
    if not at <= end <= len(data):
        raise FrameError(f"a remark of {end - at} bytes in a header of {len(data)}")
    if len(data) > limits.PLAIN_HEADER_BYTES:
        return limits.plain_text(data[at:end], len(data))
    return decode_text(data[at:end])


def encode_binary_header(command: RemotingCommand) -> bytes:
    """Return the header. Raises ValueError where the code does not fit into it."""
    if not -0x8000 <= command.code <= 0x7FFF:
        raise ValueError(f"code {command.code} does not fit into a ROCKETMQ header: send it with a JSON header")
    language = Language.OTHER if command.language is None else command.language
    remark = b"" if command.remark is None else encode_text(command.remark)
    fields = []
    for name, value in command.ext.items():
        name_bytes, value_bytes = encode_text(name), encode_text(value)
        fields += [_SHORT.pack(len(name_bytes)), name_bytes, _INT.pack(len(value_bytes)), value_bytes]
    block = b"".join(fields)
    head = _HEAD.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    return b"".join((head, remark, _INT.pack(len(block)), block))
