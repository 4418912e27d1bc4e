"""The slave of a master: the connection, bytes of the log in, reports out.

The classic protocol has no handshake: the first report says where the master begins. In controller mode a handshake
comes first. The slave closes a connection on which nothing came for 20 seconds, and reports at least every 5; a master
does the same.

In controller mode each chunk says what the in-sync set has: the *confirm offset*. A master that takes over may lack
what comes after it. So the slave keeps such bytes in memory and writes them once they are confirmed.

One thread receives and writes. While more is to be read, another one syncs, so that the network does not wait for the
disk. When nothing more is to be read, the first one syncs by itself: at once if producers of a SYNC_MASTER wait for it,
else after 0.2 seconds.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from rmqtool.errors import RemoteError
from rmqtool.formats.control_texts import EpochEntry
from rmqtool.replica import chunks
from rmqtool.replica.chunks import Chunk, FrameError, Greeting
from rmqtool.replica.masters import Master, MasterSettings
from rmqtool.replica.mirror_log import MirrorLog

# In seconds, as upstream: haSendHeartbeatInterval, haHousekeepingInterval; and to connect.
HEARTBEAT, SILENCE, CONNECT = 5.0, 20.0, 3.0
_BUFFER: Final = 1 << 20
# Any number of a broker that the controller has not given away.
_LEARNER: Final = 0x7FFF0000
# Bytes kept in memory because they are not confirmed, after which the slave reads slowly: bytes at once, and seconds.
_MUCH, _LITTLE, _SLOW = 8 << 20, 64 << 10, 0.25
# Bytes and seconds after which the log is synced; and the longest wait for bytes.
_SYNC_BYTES, _SYNC_SECONDS, _WAIT = 8 << 20, 0.2, 0.05


class ConnectionLost(RemoteError):
    """The master closed the connection, or sent nothing for too long."""

    code = "connection-lost"


class Handshake(NamedTuple):
    """The master's answer in controller mode: its end and its epochs."""

    max_offset: int
    epochs: tuple[EpochEntry, ...]


class Stream:
    """One connection. ``poll`` waits for bytes, ``pieces`` gives those that came."""

    def __init__(self, host: str, port: int, *, has_epochs: bool = False) -> None:
        self.peer = f"{host}:{port}"
        self.has_epochs = has_epochs
        self.handshake: Handshake | None = None
        try:
            self._socket = socket.create_connection((host, port), CONNECT)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConnectionLost(f"cannot connect to the replication port {self.peer}: {reason}") from None
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._head = chunks.TRANSFER_SIZE if has_epochs else chunks.CHUNK_SIZE
        self._decode: Callable[[memoryview, int], Chunk] = chunks.decode_transfer if has_epochs else chunks.decode_chunk
        self._buffer = memoryview(bytearray(_BUFFER))
        self._filled = 0
        # The bytes of the chunk that is being received, and how many of them are still to come.
        self._chunk: Chunk | None = None
        self._left = 0
        self._ended: str | None = None
        self.heard = self._reported = time.monotonic()
        try:
            if has_epochs:
                self.handshake = self._shake_hands()
        except BaseException:
            self.close()
            raise

    def _shake_hands(self) -> Handshake:
        """Say what we are, and return the master's epochs. Raises ConnectionLost."""
        self._send(chunks.encode_greeting(Greeting(_LEARNER, is_learner=True, from_last_file=False)))
        self._socket.settimeout(SILENCE)
        try:
            size, max_offset, _ = chunks.decode_answer(self._receive(chunks.ANSWER_SIZE))
            return Handshake(max_offset, chunks.decode_epochs(self._receive(size)))
        except FrameError as error:
            raise ConnectionLost(f"{self.peer} is not a master of a controller's group: {error}") from None
        except TimeoutError:
            raise ConnectionLost(f"{self.peer} did not answer the handshake in {SILENCE:g} s") from None

    def _receive(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            data = self._socket.recv(size - len(found))
            if not data:
                raise ConnectionLost(f"{self.peer} closed the connection")
            found += data
        return bytes(found)

    def report(self, physical_offset: int) -> None:
        """Say up to where everything is here; the first time, from where the master is to send."""
        encode = chunks.encode_state if self.has_epochs else chunks.encode_report
        self._send(encode(physical_offset))
        self._reported = time.monotonic()

    def _send(self, data: bytes) -> None:
        # Reports are small, and a master reads them: the socket has room unless the connection is dead.
        self._socket.settimeout(CONNECT)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(f"{self.peer} is gone: {error.strerror or error}") from None

    @property
    def is_report_due(self) -> bool:
        """Whether the master must hear something, so that it does not close the connection."""
        return time.monotonic() - self._reported >= HEARTBEAT

    def poll(self, seconds: float) -> bool:
        """Wait for bytes, at most ``seconds``; return whether any came. Raises ConnectionLost after 20 s of silence."""
        is_there = bool(self._poll.poll(seconds * 1000))
        if not is_there and time.monotonic() - self.heard > SILENCE:
            raise ConnectionLost(f"{self.peer} sent nothing for {SILENCE:g} s")
        return is_there

    def pieces(self, most: int = _BUFFER) -> Iterator[tuple[Chunk, int, memoryview]]:
        """Yield the bytes that came: their chunk, their physical offset, and a view that is valid until the next.

        At most ``most`` bytes are read. A heartbeat has no bytes. Neighbouring chunks are joined, so that they are
        written at once. Raises ConnectionLost at the end, after everything that came before it.
        """
        self._socket.setblocking(False)
        try:
            count = self._socket.recv_into(self._buffer[self._filled : self._filled + most])
        except BlockingIOError:
            return
        except OSError as error:
            raise ConnectionLost(f"{self.peer} is gone: {error.strerror or error}") from None
        if not count:
            raise ConnectionLost(f"{self.peer} closed the connection")
        self.heard = time.monotonic()
        yield from self._joined(self._filled + count)

    def _joined(self, filled: int) -> Iterator[tuple[Chunk, int, memoryview]]:
        """Yield the bytes of the log in the buffer. Those of chunks that follow each other are moved together."""
        buffer, at = self._buffer, 0
        run: tuple[Chunk, int, int, int] | None = None  # chunk, physical offset, begin and end in the buffer
        while True:
            if not self._left:
                if filled - at < self._head:
                    break
                chunk = self._read_head(at)
                at += self._head
                self._chunk, self._left = chunk, chunk.size
                if not chunk.size:
                    if run is not None:
                        yield run[0], run[1], buffer[run[2] : run[3]]
                        run = None
                    yield chunk, chunk.physical_offset, buffer[:0]
                    continue
            size = min(self._left, filled - at)
            if not size:
                break
            chunk = self._chunk  # type: ignore[assignment]
            physical_offset = chunk.physical_offset + chunk.size - self._left
            if run is not None and run[1] + run[3] - run[2] == physical_offset and run[0].epoch == chunk.epoch:
                buffer[run[3] : run[3] + size] = buffer[at : at + size]
                run = chunk, run[1], run[2], run[3] + size
            else:
                if run is not None:
                    yield run[0], run[1], buffer[run[2] : run[3]]
                run = chunk, physical_offset, at, at + size
            at += size
            self._left -= size
        if run is not None:
            yield run[0], run[1], buffer[run[2] : run[3]]
        self._filled = filled - at
        buffer[: self._filled] = bytes(buffer[at:filled])

    def _read_head(self, at: int) -> Chunk:
        try:
            return self._decode(self._buffer, at)
        except FrameError as error:
            raise ConnectionLost(f"{self.peer} sent bytes that are not the protocol: {error}") from None

    def close(self) -> None:
        """Close it."""
        self._socket.close()


@dataclass(frozen=True)
class Manner:
    """How a mirror works. ``begin`` is where a new one begins: start, end, or an offset; ``keep_ms`` its retention.

    With ``live`` queues and index are built while the log grows.
    """

    begin: str | int | None = None
    acknowledges: bool = True
    once: bool = False
    config_every: float = 10.0
    keep_ms: int | None = None
    live: bool = False


class Syncer:
    """Syncs a log in a thread of its own, when it is asked to."""

    def __init__(self, log: MirrorLog) -> None:
        self._log = log
        self._asked = threading.Event()
        self._is_ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rmqtool mirror sync", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._is_ended:
                return
            try:
                self._log.sync()
            except BaseException as error:
                self._error = error
                return

    def ask(self) -> None:
        """Begin to sync, or sync again after the one that is under way."""
        self._asked.set()

    def raise_error(self) -> None:
        """Raise the error of a sync that failed: what is durable is unknown then, and nothing more is acknowledged."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread."""
        self._is_ended = True
        self._asked.set()
        self._thread.join()


class Following:
    """One connection, from its first report on."""

    def __init__(
        self,
        master: Master,
        settings: MasterSettings,
        log: MirrorLog,
        syncer: Syncer,
        take_epoch: Callable[[EpochEntry], None],
        *,
        acknowledges: bool,
    ) -> None:
        self._master, self._settings = master, settings
        self._log, self._syncer, self._acknowledges = log, syncer, acknowledges
        self._take_epoch, self._epoch = take_epoch, EpochEntry(-1, -1)
        self._stream: Stream | None = None
        self._first = self._reported = 0
        self._dirty_since: float | None = None
        # The confirm offset, None without a controller; the bytes that came after it; and where the next ones belong.
        self._confirmed: int | None = None
        self._held: deque[tuple[Chunk, int, bytes]] = deque()
        # Heartbeats since the last bytes.
        self.heartbeats = 0
        self._held_size = self._arrived = 0

    def connect(self) -> Handshake | None:
        """Connect; return what the master says about its epochs, None outside of controller mode."""
        self._stream = Stream(self._master.host, self._settings.ha_port, has_epochs=self._settings.has_epochs)
        return self._stream.handshake

    def begin(self) -> None:
        """Say where the mirror goes on."""
        assert self._stream is not None, "it is connected"
        self._first = self._reported = self._arrived = self._log.next_offset
        self._confirmed = -1 if self._stream.has_epochs else None
        self._stream.report(self._first)

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()

    def step(self) -> None:
        """Take what has come, or wait a moment for it."""
        stream = self._stream
        assert stream is not None, "it is connected"
        self._syncer.raise_error()
        if stream.poll(0):
            self._receive(stream)
        else:
            self._sync_in_pause()
            self.acknowledge()
            if stream.poll(_WAIT):
                self._receive(stream)
        self._sync_beside()
        self.acknowledge()

    def _receive(self, stream: Stream) -> None:
        most = _BUFFER
        if self._held_size > _MUCH:
            # Reading cannot stop: the confirm offset comes with the bytes.
            time.sleep(_SLOW)
            most = _LITTLE
        for chunk, physical_offset, data in stream.pieces(most):
            if chunk.confirm_offset is not None:
                self._confirmed = max(self._confirmed or 0, chunk.confirm_offset)
                self._take_confirmed()
            if not len(data):
                self.heartbeats += 1
                continue
            self.heartbeats = 0
            if physical_offset != self._arrived:
                raise ConnectionLost(
                    f"{stream.peer} sent bytes from {physical_offset} on; those from {self._arrived} on are missing"
                )
            self._arrived += len(data)
            left = b"" if self._held else self._take(chunk, physical_offset, data)
            if self._held or left:
                rest = bytes(left or data)
                self._held.append((chunk, self._arrived - len(rest), rest))
                self._held_size += len(rest)
        if self._dirty_since is None and self._log.unsynced:
            self._dirty_since = time.monotonic()

    def _take_confirmed(self) -> None:
        """Take what was kept in memory, as far as it is confirmed now."""
        while self._held:
            chunk, physical_offset, data = self._held[0]
            left = self._take(chunk, physical_offset, memoryview(data))
            self._held_size -= len(data) - len(left)
            if left:
                self._held[0] = chunk, physical_offset + len(data) - len(left), bytes(left)
                return
            self._held.popleft()

    def _take(self, chunk: Chunk, physical_offset: int, data: memoryview) -> memoryview:
        """Take bytes as far as they are confirmed, and return the others."""
        size = len(data) if self._confirmed is None else min(max(self._confirmed - physical_offset, 0), len(data))
        if size:
            if chunk.epoch is not None and chunk.epoch != self._epoch:
                self._take_epoch(chunk.epoch)
                self._epoch = chunk.epoch
            self._log.take(physical_offset, data[:size])
        return data[size:]

    def _sync_in_pause(self) -> None:
        """Sync, while nothing is to be read."""
        if not self._log.unsynced:
            self._dirty_since = None
        elif (self._settings.is_sync and self._acknowledges) or self._is_sync_due:
            self._log.sync()
            self._dirty_since = None

    def _sync_beside(self) -> None:
        """Sync in the other thread, while there is more to be read."""
        if self._log.unsynced >= _SYNC_BYTES or self._is_sync_due:
            self._dirty_since = time.monotonic()
            self._syncer.ask()

    @property
    def _is_sync_due(self) -> bool:
        return self._dirty_since is not None and time.monotonic() - self._dirty_since >= _SYNC_SECONDS

    def acknowledge(self) -> None:
        """Report what is durable and compared. Without acknowledgements the first report is repeated."""
        stream, reached = self._stream, self._first
        assert stream is not None, "it is connected"
        if self._acknowledges:
            reached = max(min(self._log.durable_offset, self._log.next_offset), self._reported)
        if reached > self._reported or stream.is_report_due:
            stream.report(reached)
            self._reported = reached
