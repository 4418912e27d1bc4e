"""The slaves of a served store: real brokers and mirrors that copy its log, by the classic protocol of replication.

A slave says first from where on it wants the log: 0 is the beginning of the last segment, anything else that offset.
Then it reports how far it has the log. Producers of a SYNC_MASTER are answered when enough slaves have their message.
Upstream: ``DefaultHAService``, ``DefaultHAConnection``, ``GroupTransferService``, ``CommitLog.handleHA``.
"""

from __future__ import annotations

import asyncio
from asyncio import Protocol as StreamProtocol
from collections.abc import Callable
from typing import cast

from rmqtool.config import BrokerRole, Version
from rmqtool.engine.message import PutStatus
from rmqtool.engine.put import PutTicket
from rmqtool.engine.store import MessageStore
from rmqtool.replica.chunks import Chunk, decode_last_report, encode_chunk

# The port that slaves use by default. upstream: haListenPort
PORT = 10912
# Seconds, as upstream: haSendHeartbeatInterval and haHousekeepingInterval; and between two looks at both.
_HEARTBEAT, _SILENCE, _LOOK = 5.0, 20.0, 1.0
# haTransferBatchSize; and the chunks that are sent to one slave before others get their turn.
_BATCH, _AT_ONCE = 32 << 10, 32
# haSlaveFallbehindMax: a slave that lacks more is not available. slaveTimeout, in ms.
_MOST_BEHIND, _TIMEOUT = 256 << 20, 3_000
_MOST_UNSENT = 1 << 20


class Slaves:
    """The slaves that are connected. ``on_report`` is called when one has more of the log than before."""

    def __init__(
        self, store: MessageStore, loop: asyncio.AbstractEventLoop, on_report: Callable[[], None] = lambda: None
    ) -> None:
        self.on_report = on_report
        self.links: set[SlaveLink] = set()
        self._store, self._loop = store, loop
        config = store.setup.config
        self._is_sync = config.broker_role is BrokerRole.SYNC_MASTER
        # upstream: 5.x counts itself among inSyncReplicas; 4.9 wants one slave.
        self._is_4_9 = config.version is Version.V4_9
        self._needed = 1 if self._is_4_9 else config.in_sync_replicas - 1
        self._timer = loop.call_later(_LOOK, self._look)

    def link(self) -> SlaveLink:
        """Return the protocol of a new connection."""
        return SlaveLink(self, self._store, self._loop)

    def copies(self) -> list[tuple[str, int, int]]:
        """Return the slaves that copy now: address, acknowledged offset, and what was sent."""
        return [(link.address, max(link.acknowledged, 0), max(link.sent, 0)) for link in self.links]

    def send(self) -> None:
        """Send each slave what it lacks."""
        for link in list(self.links):
            link.send()

    def decide(self, ticket: PutTicket) -> bool:
        """Decide the status of a message that is stored; return whether it is decided, and needs no slave any more."""
        if not self._is_sync or self._needed < 1 or not ticket.waits or ticket.status is not PutStatus.PUT_OK:
            return True
        end = ticket.end_offset
        if sum(link.acknowledged >= end for link in self.links) >= self._needed:
            return True
        if self._is_4_9 and not any(end - link.acknowledged < _MOST_BEHIND for link in self.links):
            ticket.status = PutStatus.SLAVE_NOT_AVAILABLE
            return True
        if self._store.setup.clock.now() - ticket.store_timestamp < _TIMEOUT:
            return False
        ticket.status = PutStatus.FLUSH_SLAVE_TIMEOUT
        return True

    def _look(self) -> None:
        """Send heartbeats, and close connections on which nothing came."""
        now = self._loop.time()
        for link in list(self.links):
            if now - link.heard > _SILENCE:
                link.close()
            else:
                link.beat(now)
        self._timer = self._loop.call_later(_LOOK, self._look)

    def close(self) -> None:
        """Let all slaves go."""
        self._timer.cancel()
        for link in list(self.links):
            link.close()


class SlaveLink(StreamProtocol):
    """The connection of one slave."""

    def __init__(self, slaves: Slaves, store: MessageStore, loop: asyncio.AbstractEventLoop) -> None:
        self.acknowledged = -1
        self.heard = self._spoke = loop.time()
        self._slaves, self._store, self._loop = slaves, store, loop
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._next = -1
        self._is_paused = self._is_due = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: a slave speaks first."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MOST_UNSENT)
        self._slaves.links.add(self)

    def data_received(self, data: bytes) -> None:
        """Take reports; only the last one counts."""
        self._received += data
        reported, used = decode_last_report(self._received)
        del self._received[:used]
        if reported is None:
            return
        self.heard = self._loop.time()
        log = self._store.commit_log
        if not 0 <= reported <= max(log.committed_offset, 1):
            # It has a log that this store does not have. upstream: 4.9 closes such a connection, too.
            self.close()
            return
        if self._next < 0:
            segment = self._store.setup.config.mapped_file_size_commit_log
            self._next = reported or log.committed_offset - log.committed_offset % segment
        self.acknowledged = reported
        self._slaves.on_report()
        self.send()

    @property
    def address(self) -> str:
        """The address of the slave."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else ""

    @property
    def sent(self) -> int:
        """The physical offset up to which the log was sent."""
        return self._next

    def pause_writing(self) -> None:
        """Send nothing more: the slave does not take it."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Forget the slave."""
        self._transport = None
        self._slaves.links.discard(self)
        self._slaves.on_report()

    def send(self) -> None:
        """Send what the log has more, some chunks at once."""
        self._is_due = False
        log = self._store.commit_log
        for _ in range(_AT_ONCE):
            if self._next < 0 or self._is_paused or self._transport is None or self._next >= log.committed_offset:
                return
            if self._next < log.min_offset:
                return  # retention has removed it. upstream sends heartbeats
            data = log.read(self._next, _BATCH)
            if not data:
                return
            self._transport.write(encode_chunk(Chunk(self._next, len(data))) + data)
            self._next += len(data)
            self._spoke = self._loop.time()
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.send)

    def beat(self, now: float) -> None:
        """Send a heartbeat if nothing was sent for a while."""
        if self._transport is not None and self._next >= 0 and now - self._spoke >= _HEARTBEAT and not self._is_paused:
            self._transport.write(encode_chunk(Chunk(self._next, 0)))
            self._spoke = now

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()
