"""Heartbeats: a client tells every broker which groups it is in, so that brokers can ask it.

A broker that hears nothing for 120 seconds forgets the client. After a restart a broker gets a
heartbeat with the first connection to it.

Upstream: ``MQClientInstance.sendHeartbeatToAllBroker``, ``unregisterClient``.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rmqtool.client.cluster import Cluster
from rmqtool.client.topic_routes import MASTER
from rmqtool.errors import RemoteError
from rmqtool.remoting.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from rmqtool.remoting.requests.clients import Heartbeat, UnregisterClient

# In seconds. upstream: heartbeatBrokerInterval
INTERVAL: Final = 30.0


class Heartbeats:
    """The heartbeats of a client for its groups, until it is closed."""

    def __init__(self, cluster: Cluster) -> None:
        self.groups: set[str] = set()
        # The consumer groups, by name.
        self.consumers: dict[str, ConsumerData] = {}
        self._cluster = cluster
        self._masters: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        cluster.on_open.append(self._greet)
        self._later(self._run())

    async def join(self, group: str) -> None:
        """Tell every master that this client produces for a group. Raises RemoteError where no name server answers."""
        self.groups.add(group)
        await self._beat_all()

    async def consume(self, group: ConsumerData) -> None:
        """Tell every master that this client consumes for a group, and what. Raises RemoteError as ``join``."""
        self.consumers[group.group_name] = group
        await self._beat_all()

    async def close(self) -> None:
        """Leave every group, and stop."""
        self._is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client_id = self._cluster.client_id
        for address in self._masters:
            requests = [
                *(UnregisterClient(client_id=client_id, producer_group=group) for group in sorted(self.groups)),
                *(UnregisterClient(client_id=client_id, consumer_group=group) for group in sorted(self.consumers)),
            ]
            for request in requests:
                try:
                    await self._cluster.ask(address, request)
                except RemoteError:
                    break  # the broker is away: it forgets the client with its connection

    def _later(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self._beat_all()
            except RemoteError:
                continue  # no name server answers now; the next round tries again

    async def _beat_all(self) -> None:
        brokers = (await self._cluster.brokers()).broker_addr_table.values()
        self._masters = {data.broker_addrs[MASTER] for data in brokers if MASTER in data.broker_addrs}
        for address in sorted(self._masters):
            await self._beat(address)

    async def _beat(self, address: str) -> None:
        if self._is_closed or not (self.groups or self.consumers):
            return
        body = HeartbeatData(
            client_id=self._cluster.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self.groups)],
            consumer_data_set=[self.consumers[group] for group in sorted(self.consumers)],
        )
        try:
            await self._cluster.ask(address, Heartbeat(), body)
        except RemoteError:
            return  # the broker is away: it gets a heartbeat with the next connection, or in the next round

    def _greet(self, address: str) -> None:
        if address in self._masters:
            self._later(self._beat(address))
