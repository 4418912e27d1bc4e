"""Allocation of queues to the members of a group, repeated whenever members join or leave.

First each member drops the queues that it must not keep, then each takes its new ones, so no queue is ever with two
members. upstream: RebalanceImpl, RebalanceService.

The strategies give exactly upstream's results. Upstream's members each compute the whole allocation, from the same
queues and members in the same order; here it is computed once. upstream: AllocateMessageQueueAveragely,
AveragelyByCircle, ByConfig, ByMachineRoom, ConsistentHash, AllocateMachineRoomNearby.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any, NamedTuple, Protocol, TypeAlias

from rmqtool.broker.consumer.consume_message import QueueLocks
from rmqtool.broker.consumer.process_queue import ProcessQueue
from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.codes import is_since
from rmqtool.formats.message_queue import MessageQueue

Queues: TypeAlias = Sequence[MessageQueue]
Allocation: TypeAlias = dict[str, list[MessageQueue]]

VIRTUAL_NODES = 10
_HASH_BYTES = 4


class Strategy(Protocol):
    """A way to allocate queues. Queues and members are sorted, without duplicates; there is at least one member."""

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return the queues of each member, in the order in which it takes them."""


class Average:
    """AVG: neighbours stay together, and the first members get one more."""

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return consecutive queues for each member."""
        found, start = {}, 0
        share, more = divmod(len(queues), len(members))
        for index, member in enumerate(members):
            end = start + share + (index < more)
            found[member] = list(queues[start:end])
            start = end
        return found


class AverageByCircle:
    """AVG_BY_CIRCLE: queues are dealt out in turn."""

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return every n-th queue for each of n members."""
        return {member: list(queues[index :: len(members)]) for index, member in enumerate(members)}


class ByConfig:
    """CONFIG: a fixed allocation, whether the queues exist or not."""

    def __init__(self, configured: Mapping[str, Queues]) -> None:
        self._configured = configured

    def allocate(self, _queues: Queues, members: Sequence[str]) -> Allocation:
        """Return the configured queues."""
        return {member: list(self._configured.get(member, ())) for member in members}


class ByMachineRoom:
    """MACHINE_ROOM: the queues of brokers in some rooms, whose names are ``room@broker``."""

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = rooms

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return consecutive queues for each member; the first members get the rest."""
        inside = [queue for queue in queues if _room(queue.broker_name) in self._rooms]
        share, rest = divmod(len(inside), len(members))
        found = {}
        for index, member in enumerate(members):
            found[member] = inside[share * index : share * (index + 1)]
            if rest > index:
                found[member].append(inside[index + share * len(members)])
        return found


def _room(broker_name: str) -> str | None:
    """Return the room in a broker's name, None without one."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


class ConsistentHash:
    """CONSISTENT_HASH: a member that joins or leaves moves no queue between the others."""

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        self._virtual_nodes = virtual_nodes

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return for each member the queues between its places on the ring and the places before."""
        # Of two members at one place, the later one gets the queues.
        ring = {_hash(f"{member}-{node}"): member for member in members for node in range(self._virtual_nodes)}
        places = sorted(ring)
        found: Allocation = {member: [] for member in members}
        for queue in queues:
            at = bisect_left(places, _hash(str(queue)))
            found[ring[places[at % len(places)]]].append(queue)
        return found


def _hash(text: str) -> int:
    return int(md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()[: 2 * _HASH_BYTES], 16)


class MachineRoomNearby:
    """MACHINE_ROOM_NEARBY: queues go to members in their room, or to all members where their room is empty.

    ``inner`` allocates the queues of a room. The other two return the room of a broker and of a member.
    """

    def __init__(
        self, inner: Strategy, room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str]
    ) -> None:
        self._inner = inner
        self._room_of_broker = room_of_broker
        self._room_of_member = room_of_member

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return for each member queues of its own room, and a share of the queues in rooms without members."""
        members_in: dict[str, list[str]] = {}
        for member in members:
            members_in.setdefault(_named(self._room_of_member(member), member), []).append(member)
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _named(self._room_of_broker(queue.broker_name), queue.broker_name)
            queues_in.setdefault(room, []).append(queue)
        found: Allocation = {member: [] for member in members}
        # A member's own room first, then the rooms without members, by name.
        for room in sorted(queues_in, key=lambda room: (room not in members_in, room)):
            shared = self._inner.allocate(queues_in[room], members_in.get(room, members))
            for member, allocated in shared.items():
                found[member] += allocated
        return found


def _named(room: str, of: str) -> str:
    if not room:
        raise ValueError(f"{of} is in no machine room")
    return room


# A group rebalances this often (ms); 5.x each second while a member could not get a queue of its own.
WAIT_PERIOD, UNBALANCED_PERIOD = 20_000, 1_000


@dataclass
class Member:
    """A consumer of the group, and the windows of its queues."""

    client_id: str
    windows: dict[MessageQueue, ProcessQueue[Any]] = field(default_factory=dict)


class Change(NamedTuple):
    """A queue that a member dropped or took."""

    client_id: str
    queue: MessageQueue
    is_taken: bool


class Rebalancer(NamedTuple):
    """How a group shares its queues.

    ``on_drop`` is called before a queue is dropped. Its progress must be saved when it returns. It returns False if the
    queue is in use and cannot be dropped yet. With ``locks`` consumption is ordered, and a queue is taken only with its
    lock.
    """

    strategy: Strategy = Average()
    locks: QueueLocks | None = None
    broadcasting: bool = False
    on_drop: Callable[[Member, MessageQueue, ProcessQueue[Any]], bool] = lambda _member, _queue, _window: True


class ConsumerGroup:
    """The members of a group in this process."""

    def __init__(self, name: str, version: Version, clock: Clock, rebalancer: Rebalancer | None = None) -> None:
        self.name = name
        self.members: dict[str, Member] = {}
        self._clock = clock
        self._rebalancer = Rebalancer() if rebalancer is None else rebalancer
        self._unbalanced_period = UNBALANCED_PERIOD if is_since(version, "5.0.0") else WAIT_PERIOD
        self._queues: list[MessageQueue] = []
        # A change is handled at the next tick.
        self._due = clock.monotonic()

    def join(self, client_id: str) -> Member:
        """Add a member; the next tick gives it its queues."""
        self._due = self._clock.monotonic()
        return self.members.setdefault(client_id, Member(client_id))

    def leave(self, client_id: str) -> list[Change]:
        """Remove a member; return what it dropped. The next tick gives these queues to the others."""
        member = self.members.pop(client_id)
        self._due = self._clock.monotonic()
        changes = []
        for queue in sorted(member.windows):
            # A leaving member is asked, but cannot keep a queue.
            self._rebalancer.on_drop(member, queue, member.windows[queue])
            self._let_go(member, queue)
            changes.append(Change(client_id, queue, is_taken=False))
        return changes

    def set_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Set the queues to consume, of all topics."""
        listed = sorted(set(queues))
        if listed != self._queues:
            self._queues = listed
            self._due = self._clock.monotonic()

    def tick(self) -> list[Change]:
        """Allocate the queues again if it is time to or something has changed; return what moved."""
        now = self._clock.monotonic()
        if now < self._due:
            return []
        wanted = self._allocate()
        changes, is_balanced = self._drop(wanted, now)
        taken, all_taken = self._take(wanted, now)
        self._due = now + (WAIT_PERIOD if is_balanced and all_taken else self._unbalanced_period)
        return changes + taken

    def renew_locks(self) -> list[MessageQueue]:
        """Renew the locks of an ordered group, due each RENEW_PERIOD; return the queues that it lost."""
        locks = self._rebalancer.locks
        lost: list[MessageQueue] = []
        if locks is None:
            return lost
        for member in self.members.values():
            kept = locks.lock(self.name, member.client_id, member.windows)
            for queue, window in member.windows.items():
                window.is_locked = queue in kept
                if window.is_locked:
                    window.last_lock = self._clock.monotonic()
                else:
                    lost.append(queue)
        return lost

    def _allocate(self) -> dict[str, list[MessageQueue]]:
        """Return the queues that each member should have."""
        members = sorted(self.members)
        if self._rebalancer.broadcasting or not members:
            return {member: list(self._queues) for member in members}
        by_topic: dict[str, list[MessageQueue]] = {}
        for queue in self._queues:
            by_topic.setdefault(queue.topic, []).append(queue)
        wanted: dict[str, list[MessageQueue]] = {member: [] for member in members}
        for queues in by_topic.values():
            for member, allocated in self._rebalancer.strategy.allocate(queues, members).items():
                wanted[member] += allocated
        return wanted

    def _drop(self, wanted: dict[str, list[MessageQueue]], now: int) -> tuple[list[Change], bool]:
        """Drop queues that their member should not have, or has not pulled from for too long."""
        changes, is_balanced = [], True
        for client_id, member in sorted(self.members.items()):
            keep = set(wanted[client_id])
            for queue, window in sorted(member.windows.items(), key=lambda item: item[0]):
                if queue in keep and not window.is_pull_expired(now):
                    continue
                if self._rebalancer.on_drop(member, queue, window):
                    self._let_go(member, queue)
                    changes.append(Change(client_id, queue, is_taken=False))
                else:
                    is_balanced = False
        return changes, is_balanced

    def _let_go(self, member: Member, queue: MessageQueue) -> None:
        member.windows.pop(queue).is_dropped = True
        if self._rebalancer.locks is not None:
            self._rebalancer.locks.unlock(self.name, member.client_id, [queue])

    def _take(self, wanted: dict[str, list[MessageQueue]], now: int) -> tuple[list[Change], bool]:
        """Give the members their queues, except for those that another member still has."""
        changes, is_balanced = [], True
        held = set() if self._rebalancer.broadcasting else self._held()
        for client_id, queues in wanted.items():
            member = self.members[client_id]
            for queue in queues:
                if queue in member.windows:
                    continue
                if queue in held or not self._lock(client_id, queue):
                    is_balanced = False
                    continue
                window = member.windows[queue] = ProcessQueue[Any](now)
                window.is_locked = self._rebalancer.locks is not None
                changes.append(Change(client_id, queue, is_taken=True))
        return changes, is_balanced

    def _held(self) -> set[MessageQueue]:
        return {queue for member in self.members.values() for queue in member.windows}

    def _lock(self, client_id: str, queue: MessageQueue) -> bool:
        locks = self._rebalancer.locks
        return locks is None or bool(locks.lock(self.name, client_id, [queue]))
