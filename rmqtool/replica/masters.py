"""A master as a slave asks it: its settings, the bounds of its log, and its tables.

Slaves take topics and the state of timers from the master's second port, two below the first, and everything else from
the first. Upstream: ``SlaveSynchronize``, ``BrokerOuterAPI``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqtool.client.address import split_address
from rmqtool.client.cluster import Cluster, read_body
from rmqtool.client.connection import AnswerLost, NotSent, RequestRefused
from rmqtool.config import Version
from rmqtool.errors import RemoteError, UsageError
from rmqtool.formats import paths
from rmqtool.formats.control_texts import decode_properties_file
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import parse_long
from rmqtool.remoting.bodies.routes import KVTable
from rmqtool.remoting.headers import Request
from rmqtool.remoting.requests.broker import (
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    GetTimerCheckPoint,
    GetTimerMetrics,
)
from rmqtool.remoting.requests.groups import GetAllSubscriptionGroup
from rmqtool.remoting.requests.offsets import GetAllConsumerOffset, GetAllDelayOffset
from rmqtool.remoting.requests.pop import GetAllMessageRequestMode
from rmqtool.remoting.requests.topics import GetAllTopicConfig

# A master takes its second port two below the first. upstream: MixAll.brokerVIPChannel
_VIP_BELOW: Final = 2
_TABLE_TIMEOUT: Final = 15.0
_SYNC_MASTER: Final = "SYNC_MASTER"


class Bounds(NamedTuple):
    """The bounds of a master's log."""

    min_offset: int
    max_offset: int


class _Table(NamedTuple):
    """A table that slaves take: the request, the file, whether it speaks of messages, and the port."""

    request: type[Request]
    file: str
    has_offsets: bool
    on_second_port: bool = False
    since_5: bool = False


TABLES: Final = (
    _Table(GetAllTopicConfig, paths.TOPICS, has_offsets=False, on_second_port=True),
    _Table(GetAllSubscriptionGroup, paths.SUBSCRIPTION_GROUP, has_offsets=False),
    _Table(GetAllMessageRequestMode, paths.MESSAGE_REQUEST_MODE, has_offsets=False, since_5=True),
    _Table(GetAllConsumerOffset, paths.CONSUMER_OFFSET, has_offsets=True),
    _Table(GetAllDelayOffset, paths.DELAY_OFFSET, has_offsets=True),
    _Table(GetTimerCheckPoint, paths.TIMER_CHECK, has_offsets=True, on_second_port=True, since_5=True),
    _Table(GetTimerMetrics, paths.TIMER_METRICS, has_offsets=True, on_second_port=True, since_5=True),
)


@dataclass(frozen=True)
class Tables:
    """The tables of a master at one moment: the texts of files, by name.

    ``offsets`` may speak of every message before ``max_offset``, and of none after it.
    """

    settings: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[str, bytes] = field(default_factory=dict)
    max_offset: int = 0


@dataclass(frozen=True)
class MasterSettings:
    """The settings of a master that a slave must know."""

    broker_name: str
    cluster_name: str
    version: Version
    segment_size: int
    ha_port: int
    is_sync: bool
    has_epochs: bool
    # The settings as the master lists them.
    listed: dict[str, str] = field(repr=False, default_factory=dict)

    @property
    def is_sync_in_name_only(self) -> bool:
        """Whether it is a SYNC_MASTER that answers its producers without a slave: by default, since 5.0."""
        if not self.is_sync or self.version is Version.V4_9 or self.listed.get("allAckInSyncStateSet") == "true":
            return False
        # The master counts itself. upstream: CommitLog.calcNeedAckNums
        return (parse_long(self.listed.get("inSyncReplicas", "")) or 1) <= 1

    @property
    def counts_connections(self) -> bool:
        """Whether it is a SYNC_MASTER that waits as soon as a slave is connected. upstream: 4.9 HAService.isSlaveOK"""
        return self.is_sync and self.version is Version.V4_9


class Master:
    """A master by the address of its broker, ``host:port``."""

    def __init__(self, cluster: Cluster, address: str) -> None:
        self._cluster = cluster
        self.address = address
        self.host, self._port = split_address(address)
        self._has_second_port = True

    async def settings(self) -> MasterSettings:
        """Return its settings. Raises RemoteError, also for a broker that has no such replication."""
        answer = await self._ask(GetBrokerConfig())
        listed = decode_properties_file(answer)
        if isinstance(listed, Flaw):
            raise RemoteError(
                f"the settings of {self.address} cannot be read: {listed.message}",
                hint="is it a broker of RocketMQ 4 or 5?",
            )
        table = await self._runtime()
        if listed.get("enableDLegerCommitLog") == "true":
            raise RemoteError(
                f"{self.address} is a node of a DLedger group: it sends its log to nodes of that group only",
                hint="copy the directory of the node instead: rmqtool copy SRC DST",
            )
        if listed.get("brokerRole") == "SLAVE":
            raise RemoteError(f"{self.address} is a slave", hint="name the address of its master")
        version = _version(table.get("brokerVersionDesc", ""))
        return MasterSettings(
            broker_name=listed.get("brokerName", ""),
            cluster_name=listed.get("brokerClusterName", ""),
            version=version,
            segment_size=self._number(listed, "mappedFileSizeCommitLog"),
            ha_port=self._number(listed, "haListenPort"),
            is_sync=listed.get("brokerRole") == _SYNC_MASTER,
            has_epochs=listed.get("enableControllerMode") == "true",
            listed=listed,
        )

    def _number(self, listed: dict[str, str], name: str) -> int:
        value = parse_long(listed.get(name, ""))
        if value is None or value <= 0:
            raise RemoteError(f"{self.address} does not say its {name}", hint="is it a broker of RocketMQ 4 or 5?")
        return value

    async def _runtime(self) -> dict[str, str]:
        answer = await self._cluster.ask(self.address, GetBrokerRuntimeInfo())
        return read_body(KVTable, answer).table

    async def bounds(self) -> Bounds:
        """Return the bounds of its log now."""
        table = await self._runtime()
        return Bounds(self._number_of(table, "commitLogMinOffset"), self._number_of(table, "commitLogMaxOffset"))

    def _number_of(self, table: dict[str, str], name: str) -> int:
        value = parse_long(table.get(name, ""))
        if value is None:
            raise RemoteError(f"{self.address} does not say its {name}", hint="is it a broker of RocketMQ 4 or 5?")
        return max(value, 0)

    async def tables(self, version: Version) -> Tables:
        """Return its tables. Those with offsets are read before the end of the log that they may speak of."""
        found: dict[bool, dict[str, bytes]] = {False: {}, True: {}}
        wanted = [one for one in TABLES if not one.since_5 or version is not Version.V4_9]
        for table, body in zip(wanted, await asyncio.gather(*map(self._table, wanted)), strict=True):
            if body:
                found[table.has_offsets][table.file] = body
        return Tables(found[False], found[True], (await self.bounds()).max_offset)

    async def _table(self, table: _Table) -> bytes:
        if table.on_second_port and self._has_second_port:
            # A firewall may leave only the first port open, or another program may be there. Both ports answer.
            try:
                return await self._ask(table.request(), self._port - _VIP_BELOW)
            except (NotSent, AnswerLost, UsageError):
                self._has_second_port = False
        try:
            return await self._ask(table.request())
        except RequestRefused:
            if table.since_5:
                return b""
            raise

    async def _ask(self, request: Request, port: int | None = None) -> bytes:
        if port is not None:
            return (await self._cluster.ask(f"{_bracketed(self.host)}:{port}", request)).body
        return (await self._cluster.ask(self.address, request, timeout=_TABLE_TIMEOUT)).body


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _version(text: str) -> Version:
    """Return the settings' version for a text such as ``V5_3_3``."""
    major, _, rest = text.removeprefix("V").partition("_")
    minor = rest.partition("_")[0]
    if major == "4" or not major.isdecimal():
        return Version.V4_9
    return Version.V5_4 if minor.isdecimal() and int(minor) >= 4 else Version.V5_3


async def find_master(cluster: Cluster, name: str | None = None) -> str:
    """Return the address of the broker of that name, else of the one master of a cluster or of the broker it names."""
    masters = await cluster.masters()
    if name is not None:
        if name not in masters:
            raise RemoteError(
                f"the cluster has no broker {name} now", hint=f"its brokers: {', '.join(sorted(masters))}"
            )
        return masters[name]
    if len(masters) > 1:
        names = ", ".join(sorted(masters))
        first = min(masters)
        raise UsageError(
            f"the cluster has several brokers: {names}",
            hint=f"mirror each into its own directory: {cluster.address}/{first}",
        )
    return next(iter(masters.values()))
