"""One connection to a broker or name server: many requests at a time, each answered in its own time.

What is written while the other side does not read is held here and not in the socket, up to a small amount: so a
request that is still held when the connection breaks was surely not sent.

Upstream: ``NettyRemotingClient``, ``ResponseFuture``. Unlike there, a request that gets no answer in time does not
close the connection that others wait on.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rmqtool.client.address import Credentials, split_address
from rmqtool.errors import RemoteError
from rmqtool.formats.response_codes import ResponseCode, code_name
from rmqtool.remoting.command import ANSWER, ONEWAY, OWN_VERSION, FrameError, Language, RemotingCommand, SerializeType
from rmqtool.remoting.frames import FrameDecoder, encode_frame
from rmqtool.remoting.requests import REQUESTS
from rmqtool.remoting.signature import SECURITY_TOKEN, sign

# In seconds, upstream's: netty's connectTimeoutMillis, sendMsgTimeout, clientChannelMaxIdleTimeSeconds.
CONNECT_TIMEOUT, TIMEOUT, IDLE = 3.0, 3.0, 120.0
# How often requests without an answer are looked for.
_SWEEP: Final = 0.1
# Frames of one turn of the loop are given to the system together: at most this number of bytes.
_TOGETHER: Final = 64 << 10
# Bytes that may wait in the socket.
_BACKLOG: Final = 256 << 10
_OPAQUE_MASK: Final = 0x7FFFFFFF
# Remarks of both generations of access control.
_ABOUT_KEYS: Final = re.compile(r"(?i)acl|access ?key|signature|authenticat|secret")
_KEYS_HINT: Final = "--credentials FILE gives the keys of a user who may do this"
# Refusals that pass by themselves.
_PASSING: Final = frozenset(
    map(int, (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL, ResponseCode.SUBSCRIPTION_NOT_LATEST))
)
_GONE_HINT: Final = "is it running, and is the address right?"


class NotSent(RemoteError):
    """No byte of the request left: it can be repeated."""

    code = "not-sent"


class AnswerLost(RemoteError):
    """The request was written and no answer came: the other side may have acted on it."""

    code = "answer-lost"


class WrongAnswer(RemoteError):
    """The other side answered with something that cannot be its answer."""

    code = "wrong-answer"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="is a name server or broker of RocketMQ 4 or 5 at that address?")


class RequestRefused(RemoteError):
    """The other side answered, and said no: ``response_code`` and ``remark`` are its own."""

    code = "request-refused"

    def __init__(self, request: int, answer: RemotingCommand, peer: str) -> None:
        self.request_code, self.response_code, self.remark = request, answer.code, answer.remark or ""
        row = REQUESTS.get(request)
        said = " ".join(self.remark.split()) or "it gave no reason"
        name = row.name if row else f"request {request}"
        what = f"{peer} refused {name} with {answer.code} {code_name(answer.code)}: {said}"
        super().__init__(what, hint=_KEYS_HINT if _ABOUT_KEYS.search(self.remark) else None)

    @property
    def passes(self) -> bool:
        """Whether the same request may be granted soon."""
        return self.response_code in _PASSING


Outcome: TypeAlias = "RemotingCommand | RemoteError"
Done: TypeAlias = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Manners:
    """How a client speaks: the keys it signs with, the kind of its headers, TLS, and its patience in seconds.

    With ``vip`` messages are sent to the second port of brokers, which serves no pulls. ``broker`` is the address to
    dial for the only broker there is, instead of that in its routes.
    """

    credentials: Credentials | None = None
    serialize_type: SerializeType = SerializeType.JSON
    tls: ssl.SSLContext | None = None
    timeout: float = TIMEOUT
    connect_timeout: float = CONNECT_TIMEOUT
    idle: float = IDLE
    vip: bool = False
    broker: str | None = None


class _Pending:
    """A request without an answer."""

    __slots__ = ("code", "deadline", "done", "is_written")

    def __init__(self, code: int, deadline: float, done: Done, is_written: bool) -> None:
        self.code, self.deadline, self.done, self.is_written = code, deadline, done, is_written


class Connection(asyncio.Protocol):
    """A connection. ``on_request`` gets what the other side asks, ``on_lost`` is called once when it is over."""

    def __init__(
        self,
        peer: str,
        manners: Manners,
        on_request: Callable[[Connection, RemotingCommand], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self.peer = peer
        self.is_open = False
        self._manners = manners
        self._on_request, self._on_lost = on_request, on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._pending: dict[int, _Pending] = {}
        self._held: deque[tuple[bytes, _Pending | None]] = deque()
        # Frames that are written at the end of this turn of the loop, and the requests among them.
        self._gathered: list[bytes] = []
        self._gathered_size = 0
        self._unwritten: list[_Pending] = []
        self._is_paused = False
        self._opaque = 0
        self._timer: asyncio.TimerHandle | None = None
        self._why = "the connection was closed"
        self.used = self._loop.time()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(_BACKLOG)
        self._transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """Take what came: answers to their requests, requests to whom they concern."""
        self.used = self._loop.time()
        pending = self._pending
        try:
            for command in self._decoder.feed(data):
                if not command.flag & ANSWER:
                    self._on_request(self, command)
                elif (asked := pending.pop(command.opaque, None)) is not None:
                    asked.done(command)
        except FrameError as error:
            self._why = f"it sent bytes that are not the protocol: {error}"
            self.close()

    def pause_writing(self) -> None:
        """Hold the next writes."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Write what was held."""
        self._is_paused = False
        while self._held and not self._is_paused:
            frame, asked = self._held.popleft()
            if asked is not None:
                if asked.done is _ignore:
                    continue
                asked.is_written = True
            self._write_now(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell each request that is without an answer what is known of it."""
        self.is_open = False
        if exc is not None and str(exc):
            self._why = str(getattr(exc, "strerror", None) or exc)
        pending, self._pending = list(self._pending.values()), {}
        self._held.clear()
        self._gathered.clear()
        self._unwritten.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._on_lost(self)
        for asked in pending:
            asked.done(self._loss(asked, self._why))

    # Called by the client.

    def close(self) -> None:
        """Close it, and fail each request that has no answer."""
        self._flush()
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether nothing was read or written for too long, and no request waits."""
        return not self._pending and self._loop.time() - self.used > self._manners.idle

    @property
    def is_plain(self) -> bool:
        """Whether requests are in JSON and without a signature, so that their frames may be made beforehand."""
        return self._manners.credentials is None and self._manners.serialize_type is SerializeType.JSON

    def ask(
        self, code: int, fields: Mapping[str, str] | None, body: bytes, done: Done, *, timeout: float | None = None
    ) -> None:
        """Send a request; ``done`` is called once, with the answer of any code, or with the error."""
        opaque = self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        try:
            frame = self._encode(code, fields, body, opaque, 0)
        except ValueError as error:
            done(NotSent(f"the request does not fit into a frame: {error}", hint="send less at a time"))
            return
        self.ask_frame(code, frame, opaque, done, timeout=timeout)

    def next_opaque(self) -> int:
        """Return the number of the next request, for a caller that encodes it."""
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        return self._opaque

    def ask_frame(self, code: int, frame: bytes, opaque: int, done: Done, *, timeout: float | None = None) -> None:
        """Send a request that is encoded already."""
        if not self.is_open:
            done(NotSent(f"{self.peer} is not connected: {self._why}"))
            return
        self.used = now = self._loop.time()
        held = self._is_paused
        deadline = now + (self._manners.timeout if timeout is None else timeout)
        asked = self._pending[opaque] = _Pending(code, deadline, done, False)
        if self._timer is None:
            self._timer = self._loop.call_later(_SWEEP, self._sweep)
        if held:
            self._held.append((frame, asked))
        else:
            self._unwritten.append(asked)
            self._write(frame)

    async def call(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", *, timeout: float | None = None
    ) -> RemotingCommand:
        """Send a request and return the answer of any code. Raises NotSent and AnswerLost."""
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self.ask(code, fields, body, settle(future), timeout=timeout)
        return await future

    def tell(self, code: int, fields: Mapping[str, str] | None, body: bytes = b"") -> None:
        """Send a request that gets no answer. Raises NotSent."""
        if not self.is_open:
            raise NotSent(f"{self.peer} is not connected: {self._why}")
        frame = self._encode(code, fields, body, self.next_opaque(), ONEWAY)
        self.used = self._loop.time()
        if self._is_paused:
            self._held.append((frame, None))
        else:
            self._write(frame)

    def answer(self, answer: RemotingCommand) -> None:
        """Send the answer to a request of the other side. Its arrival is not confirmed."""
        if self.is_open:
            self._write(encode_frame(answer))

    # Inside.

    def _encode(self, code: int, fields: Mapping[str, str] | None, body: bytes, opaque: int, flag: int) -> bytes:
        return encode_frame(
            signed(self._manners, command_of(self._manners, code, fields, body).replaced(opaque=opaque, flag=flag))
        )

    def _write(self, frame: bytes) -> None:
        """Write a frame with the others of this turn of the loop: one call of the system for all."""
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(frame)
        self._gathered_size += len(frame)
        if self._gathered_size >= _TOGETHER:
            self._flush()

    def _flush(self) -> None:
        if not self._gathered or not self.is_open:
            return
        frames, self._gathered, self._gathered_size = self._gathered, [], 0
        for asked in self._unwritten:
            asked.is_written = True
        self._unwritten.clear()
        self._write_now(frames[0] if len(frames) == 1 else b"".join(frames))

    def _write_now(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def _sweep(self) -> None:
        """Give up what waited too long."""
        now = self._loop.time()
        for opaque in [opaque for opaque, asked in self._pending.items() if asked.deadline <= now]:
            # One of those before may have ended the connection.
            if (asked := self._pending.pop(opaque, None)) is not None:
                done, asked.done = asked.done, _ignore
                done(self._loss(asked, "it did not answer in time"))
        self._timer = self._loop.call_later(_SWEEP, self._sweep) if self._pending else None

    def _loss(self, asked: _Pending, why: str) -> RemoteError:
        row = REQUESTS.get(asked.code)
        name = row.name if row else str(asked.code)
        if asked.is_written:
            return AnswerLost(f"{self.peer} gave no answer to {name}: {why}")
        return NotSent(f"{name} was not sent to {self.peer}: {why}")


def _ignore(_: Outcome) -> None:
    """Be called after the end."""


def settle(future: asyncio.Future[Any]) -> Done:
    """Return a function that puts an outcome into a future, unless the future is done."""

    def done(outcome: Outcome) -> None:
        if future.done():
            return
        if isinstance(outcome, RemoteError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    return done


def command_of(manners: Manners, code: int, fields: Mapping[str, str] | None, body: bytes) -> RemotingCommand:
    """Return a request as this client writes it."""
    return RemotingCommand(
        code,
        None if fields is None else dict(fields),
        body,
        language=Language.PYTHON,
        version=OWN_VERSION,
        serialize_type=manners.serialize_type,
    )


def signed(manners: Manners, command: RemotingCommand) -> RemotingCommand:
    """Return a request with its signature, where there are keys."""
    keys = manners.credentials
    if keys is None:
        return command
    if keys.security_token:
        command = command.replaced(ext_fields={**command.ext, SECURITY_TOKEN: keys.security_token})
    return sign(command, keys.access_key, keys.secret_key)


async def connect(
    address: str,
    manners: Manners,
    on_request: Callable[[Connection, RemotingCommand], None],
    on_lost: Callable[[Connection], None],
) -> Connection:
    """Open a connection to ``host:port``. Raises NotSent."""
    loop = asyncio.get_running_loop()
    host, port = split_address(address)
    made = loop.create_connection(
        lambda: Connection(address, manners, on_request, on_lost),
        host,
        port,
        ssl=manners.tls,
        server_hostname=host if manners.tls is not None else None,
    )
    try:
        # Not wait_for: with Python 3.11 it loses a cancellation that comes together with the connection.
        async with asyncio.timeout(manners.connect_timeout):
            _, connection = await made
    except TimeoutError:
        raise NotSent(
            f"cannot connect to {address}: no answer in {manners.connect_timeout:g} s", hint=_GONE_HINT
        ) from None
    except ssl.SSLError as error:
        raise NotSent(
            f"cannot connect to {address} by TLS: {error.reason or error}",
            hint="SSL_CERT_FILE=CA.pem names the authority that signed the broker's certificate",
        ) from None
    except OSError as error:
        raise NotSent(f"cannot connect to {address}: {_reason(error)}", hint=_GONE_HINT) from None
    return connection


def _reason(error: OSError) -> str:
    """Return why a connection failed. asyncio writes texts of its own, and joins those of several addresses."""
    if isinstance(error, ConnectionRefusedError) or "Multiple exceptions" in str(error):
        return "connection refused"
    return (error.strerror or str(error)).lower()
