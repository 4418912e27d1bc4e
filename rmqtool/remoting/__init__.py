"""The remoting protocol between RocketMQ's clients, brokers and name servers: bytes ↔ values.

A connection carries frames, and a frame carries one command (``command``, ``frames``): a request, or the answer to one.
The header of a request is declared once, as a class in ``requests``; the table ``REQUESTS`` has each by its code. The
bodies are declared in ``bodies``. Nothing here opens a socket or knows a store.
"""

from __future__ import annotations

from rmqtool.remoting.command import FrameError, Language, RemotingCommand, SerializeType
from rmqtool.remoting.frames import FrameDecoder, decode_frame, encode_frame

__all__ = [
    "FrameDecoder",
    "FrameError",
    "Language",
    "RemotingCommand",
    "SerializeType",
    "decode_frame",
    "encode_frame",
]
