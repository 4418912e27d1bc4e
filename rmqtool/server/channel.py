"""One connection of a client: frames in, frames out.

Requests that arrive together are answered with one write. From a client that does not read its answers nothing more is
read, and what was read is not served.
"""

from __future__ import annotations

import asyncio
from asyncio import Protocol as StreamProtocol
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from rmqtool.broker.client_registry import Peer
from rmqtool.engine.message import Host
from rmqtool.formats.hosts import format_host, parse_address
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.remoting.answers import answer
from rmqtool.remoting.command import ANSWER, ONEWAY, FrameError, Language, RemotingCommand
from rmqtool.remoting.frames import FrameDecoder, decode_frame, encode_frame

if TYPE_CHECKING:
    from rmqtool.broker.processors.by_code import Processor
    from rmqtool.server.server import Server

_NOWHERE: Host = (bytes(4), 0)
_SEND_MESSAGE = 310
# The length of the row of a message; that of a pull is longer.
_SEND_ROW = 9
# With more unsent bytes than this the server stops reading from the client.
_MOST_UNSENT = 4 << 20


def _ignore(connection: Connection, command: RemotingCommand) -> None:
    """Do nothing: the connection is being closed."""


class Connection(StreamProtocol):
    """One client's connection; ``processors`` are those of the port that it came to."""

    def __init__(self, server: Server, processors: Mapping[int, Processor]) -> None:
        self.processors = processors
        self.host = _NOWHERE
        self._server = server
        self._decoder = FrameDecoder(server.limits.frame)
        # The bytes of the last read, and their requests that are not served yet.
        self._data = b""
        self._requests: Iterator[object] = iter(())
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        # Bytes that are sent at the end of this turn.
        self._waiting = 0
        # The bytes of a request that is not complete.
        self.unfinished = 0
        # Whether anything came or went since the last look, and when that was.
        self.is_active = True
        self.idle_since = 0.0
        self._peer = Peer(self, "", "", 0)
        # Whether plain sends and pulls are served as rows: from the second read on, at the broker's ports.
        self._takes_rows = False
        self._serve: Callable[[Connection, RemotingCommand], None] = self._serve_first
        # When the client left more answers unread than the limit, and nothing more is read from it; 0: it reads them.
        self.paused_since = 0.0
        # Those of the sender; no version is below 0.
        self._language: Language | None = None
        self._version = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Know the client's address."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MOST_UNSENT)
        name = transport.get_extra_info("peername")
        self.host = ((parse_address(name[0].partition("%")[0]) or bytes(4)), name[1]) if name else _NOWHERE
        self._peer = Peer(self, format_host(*self.host), "", 0)
        self._server.connected(self)

    def data_received(self, data: bytes) -> None:
        """Serve the requests that are complete now."""
        self.is_active = True
        self._data = data
        self._requests = self._decoder.feed_requests(data) if self._takes_rows else self._decoder.feed(data)
        self._serve_received()
        self._server.end_turn()

    def _serve_received(self) -> None:
        """Serve the requests that came; those after the first with too long an answer when that is read."""
        serve, serve_row, serve_pull = self._serve, self._server.serve_row, self._server.serve_pull
        data = self._data
        try:
            for found in self._requests:
                if type(found) is not tuple:
                    serve(self, cast("RemotingCommand", found))
                elif not (serve_row if len(found) == _SEND_ROW else serve_pull)(self, cast("Any", found)):
                    serve(self, decode_frame(data[found[0] : found[1]]))
                if self.paused_since:
                    return
        except FrameError as error:
            # Where the next frame begins is not known any more. upstream closes the connection and answers nothing.
            self.refuse(str(error))
        self._data, self._requests = b"", iter(())
        if self._decoder.pending != self.unfinished:
            self._server.holds(self, self._decoder.pending)

    def _serve_first(self, connection: Connection, command: RemotingCommand) -> None:
        """Serve the first requests, if there may be one more client."""
        if self._serve == self._serve_first:
            is_taken = self._server.spoke(self)
            self._serve = self._server.serve if is_taken else _ignore
            self._takes_rows = is_taken and _SEND_MESSAGE in self.processors
        self._serve(connection, command)

    def speak_by(self, transport: asyncio.Transport) -> None:
        """Go on over another transport, which encrypts."""
        self._transport = transport

    def refuse(self, reason: str) -> None:
        """Close the connection of a client that cannot be understood."""
        self._server.refused(self, reason)
        self.close()

    def pause_writing(self) -> None:
        """Read nothing more: the client does not take its answers."""
        self.paused_since = self._server.loop.time()
        self.stop_reading()

    def resume_writing(self) -> None:
        """Go on with the next requests."""
        self.paused_since = 0.0
        self._server.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Serve the rest of the requests that came, then read again."""
        if self.paused_since or not self.is_open:
            return
        self._serve_received()
        if not self.paused_since and self.is_open and not self._server.is_ending:
            cast("asyncio.Transport", self._transport).resume_reading()
        self._server.end_turn()

    def stop_reading(self) -> None:
        """Read nothing more."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Leave all groups."""
        self._transport = None
        self._server.disconnected(self)

    def peer_of(self, command: RemotingCommand) -> Peer:
        """Return the sender of a request; its language and version rarely change."""
        if command.version != self._version or command.language is not self._language:
            self._version, self._language = command.version, command.language
            language = "OTHER" if command.language is None else command.language.name
            self._peer = Peer(self, self._peer.address, language, command.version)
        return self._peer

    @property
    def address(self) -> str:
        """The client's address."""
        return self._peer.address

    @property
    def is_open(self) -> bool:
        """Whether something may still be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, frame: RemotingCommand | bytes) -> None:
        """Send a frame at the end of this turn."""
        self.send_frame(frame if isinstance(frame, bytes) else encode_frame(frame))

    def answer(self, command: RemotingCommand, frame: RemotingCommand | bytes) -> None:
        """Answer a request, unless its sender waits for no answer."""
        if command.flag & (ANSWER | ONEWAY) == ONEWAY:
            return
        if type(frame) is bytes:
            self.send_frame(frame)
            return
        try:
            self.send(frame)
        except ValueError as error:
            # The answer does not fit into a frame.
            self.send(answer(command, ResponseCode.SYSTEM_ERROR, str(error)))

    def send_frame(self, data: bytes) -> None:
        """Send a frame that is encoded at the end of this turn; or now, if much waits already."""
        if not self._out:
            self._server.will_write(self)
        self._out.append(data)
        self._waiting += len(data)
        if self._waiting > _MOST_UNSENT:
            self._server.save_tables()
            self.write()

    def write(self) -> None:
        """Write what there is to send."""
        out, self._out, self._waiting = self._out, [], 0
        if self._transport is not None and not self._transport.is_closing():
            self.is_active = True
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            if self.paused_since:
                self._server.limit_unread(self)

    @property
    def unsent(self) -> int:
        """How many bytes wait for the client."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection now; answers that are not sent are lost."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection when everything is sent."""
        if self._transport is not None:
            self._transport.close()
