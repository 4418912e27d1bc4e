"""The remoting protocol, which RocketMQ's clients, brokers and name servers speak: bytes ↔ values.

A connection carries frames, a frame one command (``command``, ``frames``): a request, or the answer to one. What a
request says in its header is declared once, as a class in ``requests``; its table ``REQUESTS`` finds it by its code.
What travels in bodies is declared in ``bodies``. Nothing here opens a socket or knows a store.
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
