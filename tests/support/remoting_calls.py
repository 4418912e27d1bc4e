"""One request over a connection of its own, and its answer: what a test asks a broker or a name server."""

from __future__ import annotations

import socket

from rmqtool.remoting.command import RemotingCommand
from rmqtool.remoting.frames import decode_frame, encode_frame
from tests.support.waiting import PATIENCE


def ask(address: str, request: RemotingCommand) -> RemotingCommand:
    """Return the answer of the server that listens at ``address``."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as connection, connection.makefile("rb") as answers:
        connection.sendall(encode_frame(request))
        length = answers.read(4)
        return decode_frame(length + answers.read(int.from_bytes(length, "big")))
