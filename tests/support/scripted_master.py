"""A master played by a script: its requests, and its replication port, classic or of controller mode.

Its log is laid by hand (``grow``), in segments of one size, each ended by a blank record. What a slave reports is kept.
It sends as upstream's masters do: the first report says from where on, nothing crosses a segment, and there is a
heartbeat when there is nothing to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.builders import blank, page, properties, record
from tests.support.scripted_peer import HOST, ScriptedPeer, reply

SEGMENT = 1 << 16
BATCH = 1 << 12
PAUSE = 0.002
# The store time of the first message; each later one is stored a millisecond later.
FIRST_TIME = 1700000000123
KEYS = properties(("KEYS", "k"))
TOPICS = {
    "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1700000000000},
    "topicConfigTable": {
        "T": {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": 4,
            "topicFilterType": "SINGLE_TAG",
            "topicName": "T",
            "topicSysFlag": 0,
            "writeQueueNums": 4,
        }
    },
    "mappingDataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1700000000000},
}


class ScriptedMaster(ScriptedPeer):
    """A master. ``reports`` are those of all slaves, in their order; ``starts`` the first of each connection."""

    def __init__(self, epochs: list[tuple[int, int]] | None = None) -> None:
        super().__init__()
        self.log = bytearray()
        # Where each record ends.
        self.ends: list[int] = []
        self.min_offset = 0
        self.name, self.role, self.version = "broker-a", "ASYNC_MASTER", "V5_3_3"
        # Further lines of its settings.
        self.more = ""
        self.epochs = epochs
        # What the in-sync set has; None: everything.
        self.confirmed: int | None = None
        self.reports: list[int] = []
        self.starts: list[int] = []
        self.greetings: list[bytes] = []
        # The connection is cut after so many bytes of the log, once for each number.
        self.cuts: list[int] = []
        # No byte of the log is sent before this is true.
        self.waits_for: Callable[[], bool] = lambda: True
        # Names of further brokers of the cluster, at this address too.
        self.others: list[str] = []
        # Whether the name server has this one.
        self.is_registered = True
        self.delay_offsets = b'{"offsetTable":{}}'
        self.offsets: Mapping[str, dict[str, int]] = {"T@G": {"0": 3}}
        self.ha_port = 0
        self.messages = 0
        self._ha: asyncio.Server | None = None
        # The second port, two below the first.
        self._second: asyncio.Server | None = None
        self._slaves: set[asyncio.StreamWriter] = set()
        self.plays |= {
            106: lambda one: reply(one, body=self._cluster()),
            26: lambda one: reply(one, body=self._settings().encode()),
            28: lambda one: reply(one, body=json.dumps({"table": self._state()}).encode()),
            21: lambda one: reply(one, body=json.dumps(TOPICS).encode()),
            43: lambda one: reply(one, body=json.dumps({"offsetTable": self.offsets}).encode()),
            45: lambda one: reply(one, body=self.delay_offsets),
            201: lambda one: reply(one, body=b'{"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":16}}}'),
            402: lambda one: reply(one, body=b'{"messageRequestModeMap":{}}'),
            60: lambda one: reply(one, body=page(1700000001000, 52, 9, 8, 0, 0, 0)),
            61: lambda one: reply(one, body=b'{"timingCount":{}}'),
        }

    def _cluster(self) -> bytes:
        names = [self.name] * self.is_registered + self.others
        brokers = {
            name: {"brokerAddrs": {"0": self.address}, "brokerName": name, "cluster": "DefaultCluster"}
            for name in names
        }
        return json.dumps({"brokerAddrTable": brokers, "clusterAddrTable": {"DefaultCluster": names}}).encode()

    def _settings(self) -> str:
        return (
            f"brokerName={self.name}\nbrokerClusterName=DefaultCluster\nbrokerRole={self.role}\n"
            f"mappedFileSizeCommitLog={SEGMENT}\nmappedFileSizeConsumeQueue=6000\nhaListenPort={self.ha_port}\n"
            f"enableControllerMode={str(self.epochs is not None).lower()}\nenableDLegerCommitLog=false\n{self.more}"
        )

    def _state(self) -> dict[str, str]:
        bounds = {"commitLogMinOffset": str(self.min_offset), "commitLogMaxOffset": str(len(self.log))}
        return {"brokerVersionDesc": self.version, **bounds}

    def grow(self, count: int, size: int = 900, *, text: str = "body") -> None:
        """Append messages, each a record at its place; a blank record ends a full segment."""
        for _ in range(count):
            body = f"{text}-{self.messages}-".encode().ljust(size, b"x")
            for _ in range(2):
                place = len(self.log)
                made = record(
                    body,
                    b"T",
                    KEYS,
                    physical_offset=place,
                    queue_offset=self.messages,
                    store_timestamp=FIRST_TIME + self.messages,
                )
                room = SEGMENT - place % SEGMENT
                if len(made) + 8 <= room:
                    break
                self.log += blank(room).ljust(room, b"\0")
            self.log += made
            self.ends.append(len(self.log))
            self.messages += 1

    def whole_end(self, reported: int) -> int:
        """Return where the last record ends of which a slave has reported every byte: these a master counts on."""
        return max((end for end in self.ends if end <= reported), default=0)

    def files(self) -> dict[str, bytes]:
        """Return the segments of the log as the master has them on disk."""
        found = {}
        for base in range(self.min_offset, len(self.log), SEGMENT):
            found[f"{base:020d}"] = bytes(self.log[base : base + SEGMENT]).ljust(SEGMENT, b"\0")
        return found

    async def start(self, port: int = 0) -> None:
        for _ in range(20):
            await super().start(port)
            try:
                second = int(self.address.rpartition(":")[2]) - 2
                self._second = await asyncio.start_server(self._serve, HOST, second)
                break
            except OSError:
                await super().stop()
        self._ha = await asyncio.start_server(self._feed, HOST, 0)
        self.ha_port = self._ha.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for server in (self._ha, self._second):
            assert server is not None
            server.close()
        for writer in list(self._slaves):
            writer.transport.abort()
        await super().stop()

    def replaced(self, log: bytes, epochs: list[tuple[int, int]]) -> None:
        """Go on as the next master, all of whose log is confirmed; from any thread.

        No slave hears of the new log on a connection to the old one.
        """

        def change() -> None:
            self.log[:], self.epochs, self.confirmed = log, epochs, None
            self._end_connections()

        self.changed(change)

    def hang_up(self) -> None:
        """End the connections of all slaves; from any thread."""
        self.changed(self._end_connections)

    def changed(self, change: Callable[[], object]) -> None:
        """Change something between two frames; from any thread."""
        assert self._server is not None
        self._server.get_loop().call_soon_threadsafe(change)

    def _end_connections(self) -> None:
        for writer in list(self._slaves):
            writer.transport.abort()

    async def _feed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._slaves.add(writer)
        taking: asyncio.Task[None] | None = None
        try:
            if self.epochs is not None:
                await self._greet(reader, writer)
            at = await self._report(reader)
            self.starts.append(at)
            taking = asyncio.create_task(self._take(reader))
            await self._send_from(at, writer, self.cuts.pop(0) if self.cuts else None)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if taking is not None:
                taking.cancel()
            self._slaves.discard(writer)
            writer.transport.abort()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.epochs is not None
        self.greetings.append(await reader.readexactly(16))
        table = b"".join(struct.pack(">iq", *entry) for entry in self.epochs)
        writer.write(struct.pack(">iiqi", 1, len(table), len(self.log), self.epochs[-1][0]) + table)

    async def _report(self, reader: asyncio.StreamReader) -> int:
        if self.epochs is None:
            found: int = struct.unpack(">q", await reader.readexactly(8))[0]
        else:
            state, found = struct.unpack(">iq", await reader.readexactly(12))
            assert state == 2
        self.reports.append(found)
        return found

    async def _take(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await self._report(reader)

    async def _send_from(self, at: int, writer: asyncio.StreamWriter, left: int | None) -> None:
        while not writer.is_closing():
            if not (self.min_offset <= at < len(self.log) and self.waits_for()):
                writer.write(self._head(at, 0))
                await asyncio.sleep(PAUSE)
                continue
            end = min(len(self.log), at + BATCH, at - at % SEGMENT + SEGMENT)
            epoch_ends = [start for _, start in self.epochs or () if start > at]
            end = min([end, *epoch_ends])
            data = self._head(at, end - at) + self.log[at:end]
            if left is not None and len(data) >= left:
                writer.write(data[:left])
                await writer.drain()
                return
            left = None if left is None else left - len(data)
            writer.write(data)
            await writer.drain()
            at = end

    def _head(self, at: int, size: int) -> bytes:
        if self.epochs is None:
            return struct.pack(">qi", at, size)
        epoch, start = [entry for entry in self.epochs if entry[1] <= at][-1]
        confirmed = len(self.log) if self.confirmed is None else self.confirmed
        return struct.pack(">iiqiqq", 2, size, at, epoch, start, confirmed)


def log_files(mirror: Path) -> dict[str, bytes]:
    """Return the files of a mirror's log."""
    return {path.name: path.read_bytes() for path in sorted((mirror / "commitlog").iterdir())}
