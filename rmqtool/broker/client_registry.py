"""The clients of a broker: who consumes and produces for which group, over which connection, with which subscriptions.

Upstream: ``ConsumerManager``, ``ConsumerGroupInfo``, ``ProducerManager``. Members are kept by their connection: a
client that dies only closes it, and two clients may have one id. This module compares connections and does nothing
else with them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.engine.clock import Clock
from rmqtool.remoting.bodies.clients import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)

# After this time (ms) without a heartbeat a client is removed.
EXPIRY = 120_000

Connection = Hashable


@dataclass(slots=True)
class Client:
    """One client in one group, and when it spoke last."""

    client_id: str
    address: str
    language: str
    version: int
    last_seen: int


@dataclass
class ConsumerGroup:
    """The members of a group and what it subscribes to, by topic."""

    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    members: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Take the subscriptions of a member: newer ones replace, what is not listed goes; return if topics changed."""
        given = {one.topic: one for one in wanted}
        changed = given.keys() != self.subscriptions.keys()
        for topic, one in given.items():
            known = self.subscriptions.get(topic)
            if known is None or (one.sub_version or 0) > (known.sub_version or 0):
                self.subscriptions[topic] = one
        for topic in self.subscriptions.keys() - given.keys():
            del self.subscriptions[topic]
        return changed


class Peer(NamedTuple):
    """The sender of a request: its connection and address, and the language and version in the header."""

    connection: Connection
    address: str
    language: str
    version: int


class Clients:
    """The tables of one broker. ``changed`` holds the groups whose members get a notification next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Connection, Client]] = {}
        self.changed: set[str] = set()
        # The groups of each connection: most clients close it without leaving them.
        self._groups: dict[Connection, set[tuple[bool, str]]] = {}

    def consume(self, peer: Peer, client_id: str, data: ConsumerData) -> None:
        """Take a heartbeat about a consumer group."""
        group = self.consumers.setdefault(data.group_name, ConsumerGroup())
        group.consume_type = data.consume_type or group.consume_type
        group.message_model = data.message_model or group.message_model
        group.consume_from_where = data.consume_from_where or group.consume_from_where
        is_new = peer.connection not in group.members
        group.members[peer.connection] = self._client(peer, client_id)
        self._groups.setdefault(peer.connection, set()).add((True, data.group_name))
        changed = group.subscribe(data.subscription_data_set or ())
        if is_new or changed:
            self.changed.add(data.group_name)

    def produce(self, peer: Peer, client_id: str, group: str) -> None:
        """Take a heartbeat about a producer group."""
        self.producers.setdefault(group, {})[peer.connection] = self._client(peer, client_id)
        self._groups.setdefault(peer.connection, set()).add((False, group))

    def renew(self, peer: Peer, data: HeartbeatData) -> None:
        """Take a heartbeat of V2 that has no subscriptions: those that are known hold."""
        for one in data.consumer_data_set or ():
            known = self.consumers.get(one.group_name)
            if known is not None and peer.connection in known.members:
                known.members[peer.connection] = self._client(peer, data.client_id)

    def _client(self, peer: Peer, client_id: str) -> Client:
        return Client(client_id, peer.address, peer.language, peer.version, self._clock.monotonic())

    def leave_consumers(self, connection: Connection, group: str) -> None:
        """Take a client out of a consumer group; the others get a notification."""
        found = self.consumers.get(group)
        if found is None or found.members.pop(connection, None) is None:
            return
        self._forget(connection, (True, group))
        if found.members:
            self.changed.add(group)
        else:
            del self.consumers[group]
            self.changed.discard(group)

    def leave_producers(self, connection: Connection, group: str) -> None:
        """Take a client out of a producer group."""
        found = self.producers.get(group)
        if found is None or found.pop(connection, None) is None:
            return
        self._forget(connection, (False, group))
        if not found:
            del self.producers[group]

    def _forget(self, connection: Connection, group: tuple[bool, str]) -> None:
        left = self._groups.get(connection, set())
        left.discard(group)
        if not left:
            self._groups.pop(connection, None)

    def gone(self, connection: Connection) -> None:
        """Take a client whose connection is closed out of all its groups."""
        for is_consumer, group in sorted(self._groups.get(connection, ())):
            if is_consumer:
                self.leave_consumers(connection, group)
            else:
                self.leave_producers(connection, group)

    def expire(self) -> list[Connection]:
        """Take those out that have not spoken for too long, and return their connections."""
        limit = self._clock.monotonic() - EXPIRY
        tables = [*(group.members for group in self.consumers.values()), *self.producers.values()]
        silent = [one for members in tables for one, client in members.items() if client.last_seen < limit]
        found = list(dict.fromkeys(silent))
        for connection in found:
            self.gone(connection)
        return found

    def client_ids(self, group: str) -> list[str]:
        """Return the ids of a consumer group's members, each once."""
        found = self.consumers.get(group)
        return [] if found is None else list(dict.fromkeys(client.client_id for client in found.members.values()))

    def find_member(self, group: str, client_id: str) -> Connection | None:
        """Return the connection of a member of a consumer group."""
        found = self.consumers.get(group)
        members = {} if found is None else found.members
        return next((one for one, client in members.items() if client.client_id == client_id), None)

    def find_producer(self, client_id: str) -> Connection | None:
        """Return the connection of a producer in any group."""
        for members in self.producers.values():
            for connection, client in members.items():
                if client.client_id == client_id:
                    return connection
        return None

    def iter_changed(self) -> Iterator[tuple[str, list[Connection]]]:
        """Yield each changed group and the members to notify; a broadcasting group shares no queues."""
        while self.changed:
            group = self.changed.pop()
            found = self.consumers.get(group)
            if found is not None and found.message_model is not MessageModel.BROADCASTING:
                yield group, list(found.members)
