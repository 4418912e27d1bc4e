"""TLS at the ports that take plain connections too: the first byte tells which it is.

A TLS connection begins with a handshake record, whose first byte is 0x16; the first byte of a frame is that of its
length, 0 or 1. Upstream: ``TlsSystemConfig``, ``NettyRemotingServer.HandshakeHandler``.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import Protocol as StreamProtocol
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from rmqtool.errors import ReadFailed, UsageError
from rmqtool.server.channel import Connection

if TYPE_CHECKING:
    from rmqtool.broker.processors.by_code import Processor
    from rmqtool.server.server import Server

_HANDSHAKE: Final = 0x16
_AT_ONCE: Final = 1 << 16


class Tls(NamedTuple):
    """The certificate of a server, and whether plain connections are refused."""

    context: ssl.SSLContext
    is_needed: bool


def read_certificate(text: str) -> ssl.SSLContext:
    """Return what presents the certificate of ``CERT,KEY``, two files in PEM."""
    certificate, comma, key = text.partition(",")
    if not comma or not certificate or not key:
        raise UsageError("--tls takes two files", hint="--tls certificate.pem,key.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A key with a password would ask for it on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise UsageError(
            f"{certificate} and {key} are not a certificate and its key",
            hint="both must be PEM, and the key without a password",
        ) from error
    except OSError as error:
        raise ReadFailed(
            f"cannot read {certificate} or {key}: {error.strerror}",
            hint="name the certificate, then its key: --tls certificate.pem,key.pem",
        ) from error
    return context


class Secured(asyncio.Transport):
    """The transport of a connection by TLS, over a plain one."""

    def __init__(self, plain: asyncio.Transport, context: ssl.SSLContext) -> None:
        super().__init__()
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_ready = False

    def received(self, data: bytes) -> bytes:
        """Return what the client says by some bytes of TLS. Raises ssl.SSLError."""
        self._incoming.write(data)
        parts: list[bytes] = []
        try:
            if not self._is_ready:
                self._tls.do_handshake()
                self._is_ready = True
            while part := self._tls.read(_AT_ONCE):
                parts.append(part)
            self.close()  # the client said that this was all
        except ssl.SSLWantReadError:
            pass
        finally:
            self._flush()
        return b"".join(parts)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._plain.write(self._outgoing.read())

    def write(self, data: Any) -> None:
        """Write something to the client."""
        view = memoryview(data)
        while self._is_ready and view:
            view = view[self._tls.write(view) :]
        self._flush()

    def close(self) -> None:
        """Close the connection when everything is sent."""
        if self._is_ready and not self._plain.is_closing():
            with suppress(ssl.SSLError):  # the client need not answer
                self._tls.unwrap()
            self._flush()
        self._plain.close()

    def abort(self) -> None:
        """Close the connection now."""
        self._plain.abort()

    def is_closing(self) -> bool:
        """Return whether the connection is being closed."""
        return self._plain.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more."""
        self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._plain.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait for the client."""
        return self._plain.get_write_buffer_size()


class Door(StreamProtocol):
    """A new connection, until its first byte tells whether it speaks TLS; from then on it passes bytes on."""

    def __init__(self, make: Callable[[], Connection], tls: Tls) -> None:
        self._connection = make()
        self._tls = tls
        self._plain: asyncio.Transport | None = None
        self._secured: Secured | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection; as long as it says nothing it counts as silent."""
        self._plain = cast("asyncio.Transport", transport)
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client says, decrypted if it speaks TLS."""
        assert self._plain is not None, "asyncio calls connection_made first"
        if self._secured is None:
            if data[0] != _HANDSHAKE:
                self._take_plain(self._plain, data)
                return
            self._secured = Secured(self._plain, self._tls.context)
            self._connection.speak_by(self._secured)
        try:
            said = self._secured.received(data)
        except ssl.SSLError as error:
            self._connection.refuse(f"TLS: {error.reason or error}")
            return
        if said:
            self._connection.data_received(said)

    def _take_plain(self, plain: asyncio.Transport, data: bytes) -> None:
        if self._tls.is_needed:
            self._connection.refuse("it does not speak TLS")
            return
        # From now on the bytes go there without us.
        plain.set_protocol(self._connection)
        self._connection.data_received(data)

    def pause_writing(self) -> None:
        """Pass on that the client does not take its answers."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that it does again."""
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that the client is gone."""
        self._connection.connection_lost(exc)


def connections(server: Server, processors: Mapping[int, Processor], tls: Tls | None) -> Callable[[], asyncio.Protocol]:
    """Return what makes the connections of a port: plain ones, or with ``tls`` such that may be either."""
    plain = partial(Connection, server, processors)
    return plain if tls is None else partial(Door, plain, tls)
