"""Frames: how commands follow each other on a connection, in both directions.

====== ======== ===========================================================
offset size     field
====== ======== ===========================================================
0      4        length of what follows
4      1        how the header is written: 0 JSON, 1 ROCKETMQ
5      3        length of the header
8      n        header
8 + n  the rest body
====== ======== ===========================================================

There is no magic number, no checksum and no handshake. A TLS connection begins with 0x16, which no frame of at most
16 MiB does.

Upstream: ``NettyDecoder``, ``NettyEncoder``, ``RemotingCommand.decode``.
"""

from __future__ import annotations

import struct
from io import BytesIO

from rmqtool import kernel
from rmqtool.formats.java import encode_text
from rmqtool.remoting import limits
from rmqtool.remoting.binary_header import decode_binary_header, encode_binary_header
from rmqtool.remoting.command import OWN_VERSION, FrameError, Language, RemotingCommand, SerializeType
from rmqtool.remoting.json_header import (
    decode_json_header,
    encode_json_header,
    header_in_python,
    header_text,
    quote,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final

_HOLE: Final = "\x00hole\x00"

# A plain request to store a message: where its frame begins and ends in what was fed, its number, the topic and queue,
# the time and flag of its sender, its properties, and the body.
SendRow = tuple[int, int, int, str, int, int, int, dict[str, str], bytes]
# A plain pull: the same three, group, topic and queue, the offset, the most messages, the flags, and what it commits.
PullRow = tuple[int, int, int, str, str, int, int, int, int, int]

# The length, then the type of the header in the top byte of the header's length.
HEAD: Final = struct.Struct(">iI")
TLS_HANDSHAKE: Final = 0x16

_LENGTH_BYTES: Final = 4
_HEADER_LENGTH: Final = 0xFFFFFF
_TYPE_SHIFT: Final = 24


def encode_frame(command: RemotingCommand) -> bytes:
    """Return the bytes of a command. Raises ValueError where it does not fit into a frame or its header."""
    binary = command.serialize_type is SerializeType.ROCKETMQ
    header = encode_binary_header(command) if binary else encode_json_header(command)
    return join_frame(header, command.body, command.serialize_type)


def join_frame(header: bytes, body: bytes, serialize_type: SerializeType) -> bytes:
    """Return the frame of a header that is encoded already."""
    length = _LENGTH_BYTES + len(header) + len(body)
    if length + _LENGTH_BYTES > limits.FRAME_BYTES or len(header) > limits.HEADER_BYTES:
        raise ValueError(f"a frame of {length + _LENGTH_BYTES} bytes, its header {len(header)}: beyond the limits")
    return b"".join((HEAD.pack(length, serialize_type << _TYPE_SHIFT | len(header)), header, body))


class RequestTemplate:
    """A request that is sent again and again: the fields that do not differ are encoded once, in JSON.

    ``numbers`` are fields whose values are digits, ``text`` is one of any text.
    """

    def __init__(self, code: int, fields: Mapping[str, str], numbers: tuple[str, ...], text: str) -> None:
        # The text comes last, so that its place does not depend on the request.
        named = {name: value for name, value in fields.items() if name not in (*numbers, text)}
        holes = dict.fromkeys((*numbers, text), _HOLE)
        command = RemotingCommand(code, {**named, **holes}, language=Language.PYTHON, version=OWN_VERSION)
        header, hole = encode_json_header(command).decode().replace("%", "%%"), quote(_HOLE)
        for _ in numbers:
            header = header.replace(hole, '"%s"', 1)
        self._header = header.replace(hole, "%s", 1).replace('"opaque":0', '"opaque":%d', 1)

    def encode(self, opaque: int, numbers: tuple[str, ...], text: str, body: bytes) -> bytes:
        """Return the frame of a request. Raises ValueError where it does not fit into one."""
        header = self._header % (*numbers, quote(text), opaque)
        return join_frame(header.encode() if header.isascii() else encode_text(header), body, SerializeType.JSON)


def decode_frame(data: bytes) -> RemotingCommand:
    """Return the command of exactly one frame. Raises FrameError."""
    if len(data) < HEAD.size:
        raise FrameError(f"{len(data)} bytes are not a frame")
    size = frame_size(data, 0)
    if size != len(data):
        raise FrameError(f"a frame of {size} bytes in {len(data)}")
    return _decode(data, 0, size)


def frame_size(data: bytes, at: int, most: int = limits.FRAME_BYTES) -> int:
    """Return the size of the frame whose first eight bytes are at ``at``, if it may be one."""
    length, marked = HEAD.unpack_from(data, at)
    if length >> _TYPE_SHIFT == TLS_HANDSHAKE:
        raise FrameError("a TLS handshake where a frame is due")
    if not _LENGTH_BYTES <= length <= most - _LENGTH_BYTES:
        raise FrameError(f"a frame that claims {length} bytes")
    if marked >> _TYPE_SHIFT > SerializeType.ROCKETMQ:
        raise FrameError(f"a header of the unknown type {marked >> _TYPE_SHIFT}")
    header = marked & _HEADER_LENGTH
    if header > length - _LENGTH_BYTES or header > limits.HEADER_BYTES:
        raise FrameError(f"a header that claims {header} bytes in a frame of {length}")
    return int(length) + _LENGTH_BYTES


def _decode(data: bytes, at: int, end: int) -> RemotingCommand:
    marked: int = HEAD.unpack_from(data, at)[1]
    middle = at + HEAD.size + (marked & _HEADER_LENGTH)
    if marked >> _TYPE_SHIFT:
        return decode_binary_header(data[at + HEAD.size : middle], data[middle:end])
    return decode_json_header(data, at + HEAD.size, middle, data[middle:end])


class FrameDecoder:
    """Frames out of the bytes of one connection, however the network cut them.

    A length that cannot be is refused as soon as the eight bytes that claim it are there; nothing is set aside for
    bytes that have not come. After a FrameError the connection is of no use: where the next frame begins is unknown.
    """

    def __init__(self, most: int = limits.FRAME_BYTES) -> None:
        self._most = min(most, limits.FRAME_BYTES)
        self._part = BytesIO()
        self._have = 0
        self._size = 0

    def feed(self, data: bytes) -> Iterator[RemotingCommand]:
        """Yield the commands that are complete now. Exhaust it before the next call. Raises FrameError."""
        return self._iter(data, None)  # type: ignore[return-value]  # without the kernel there are no rows

    def feed_requests(self, data: bytes) -> Iterator[RemotingCommand | SendRow | PullRow]:
        """Yield the same for a server: plain sends and pulls come as rows, if the kernel is there."""
        return self._iter(data, kernel.NATIVE)

    def _iter(self, data: bytes, native: kernel.Kernel | None) -> Iterator[RemotingCommand | SendRow | PullRow]:
        at = 0
        end = len(data)
        if self._have:
            at = self._continue(data)
            if self._have < self._size or not self._size:
                return
            yield self._take()
        while end - at >= HEAD.size:
            if native is not None:
                rows, at = native.plain_requests(data, at, self._most, limits.PLAIN_HEADER_BYTES)
                yield from rows
                if end - at < HEAD.size:
                    break
            size = frame_size(data, at, self._most)
            if end - at < size:
                self._size = size
                break
            yield _decode(data, at, at + size)
            at += size
        if at < end:
            self._part.write(data[at:] if at else data)
            self._have = end - at

    @property
    def pending(self) -> int:
        """How many bytes of a frame that is not complete are held."""
        return self._have

    def _continue(self, data: bytes) -> int:
        """Add to the frame that has begun, and return how many bytes of ``data`` it took."""
        at = 0
        if not self._size:
            at = min(HEAD.size - self._have, len(data))
            self._add(data[:at])
            if self._have < HEAD.size:
                return at
            self._size = frame_size(self._part.getvalue(), 0, self._most)
        more = min(self._size - self._have, len(data) - at)
        self._add(data[at : at + more] if at or more < len(data) else data)
        return at + more

    def _add(self, data: bytes) -> None:
        self._part.write(data)
        self._have += len(data)

    def _take(self) -> RemotingCommand:
        # getvalue shares its bytes with the buffer, and a header is read in place: there is no third copy of anything.
        frame = self._part.getvalue()
        self._part = BytesIO()
        self._have = self._size = 0
        marked: int = HEAD.unpack_from(frame)[1]
        middle = HEAD.size + (marked & _HEADER_LENGTH)
        header, body = memoryview(frame)[HEAD.size : middle], frame[middle:]
        del frame
        if marked >> _TYPE_SHIFT:
            return decode_binary_header(header, body)
        if len(header) <= limits.PLAIN_HEADER_BYTES:
            return decode_json_header(header, 0, len(header), body)
        text = header_text(header)
        del header
        return header_in_python(text, body)
