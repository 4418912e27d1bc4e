"""Which queues of a topic each member of a group gets: upstream's strategies, exactly.

Upstream: ``AllocateMessageQueueAveragely``, ``…AveragelyByCircle``, ``…ByConfig``, ``…ByMachineRoom``,
``…ConsistentHash``, ``AllocateMachineRoomNearby``. Members compute this each for itself; it works because all of them
see the same queues and members in the same order. Here it is computed for all of them at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import md5
from typing import Protocol, TypeAlias

from rmqtool.formats.message_queues import MessageQueue

Queues: TypeAlias = Sequence[MessageQueue]
Allocation: TypeAlias = dict[str, list[MessageQueue]]

VIRTUAL_NODES = 10
_HASH_BYTES = 4


class Strategy(Protocol):
    """A way to share queues out. Both queues and members come sorted, without doubles; there is a member."""

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return the queues of every member, in the order it takes them."""


class Average:
    """AVG: neighbours stay together, and the first members get one more."""

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return consecutive queues for every member."""
        found, start = {}, 0
        share, more = divmod(len(queues), len(members))
        for index, member in enumerate(members):
            end = start + share + (index < more)
            found[member] = list(queues[start:end])
            start = end
        return found


class AverageByCircle:
    """AVG_BY_CIRCLE: dealt out like cards."""

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return every so-manieth queue for every member."""
        return {member: list(queues[index :: len(members)]) for index, member in enumerate(members)}


class ByConfig:
    """CONFIG: what each member was told, whatever there is."""

    def __init__(self, configured: Mapping[str, Queues]) -> None:
        self._configured = configured

    def allocate(self, _queues: Queues, members: Sequence[str]) -> Allocation:
        """Return what is configured."""
        return {member: list(self._configured.get(member, ())) for member in members}


class ByMachineRoom:
    """MACHINE_ROOM: the queues of brokers in certain rooms, whose names are ``room@broker``."""

    def __init__(self, rooms: Collection[str]) -> None:
        self._rooms = rooms

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return consecutive queues for every member, and what is left to the first ones."""
        inside = [queue for queue in queues if _room(queue.broker_name) in self._rooms]
        share, rest = divmod(len(inside), len(members))
        found = {}
        for index, member in enumerate(members):
            found[member] = inside[share * index : share * (index + 1)]
            if rest > index:
                found[member].append(inside[index + share * len(members)])
        return found


def _room(broker_name: str) -> str | None:
    """Return the room in a broker's name, None when it has none."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


class ConsistentHash:
    """CONSISTENT_HASH: a member that comes or goes moves no queue between the others."""

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        self._virtual_nodes = virtual_nodes

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return for every member the queues between its places on the ring and those before."""
        # Of two members at one place the later one has it.
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
    """MACHINE_ROOM_NEARBY: queues stay in their room while a member is there, else they are everybody's.

    ``inner`` shares out what falls to a room; the others say where a broker and a member are.
    """

    def __init__(
        self, inner: Strategy, room_of_broker: Callable[[str], str], room_of_member: Callable[[str], str]
    ) -> None:
        self._inner = inner
        self._room_of_broker = room_of_broker
        self._room_of_member = room_of_member

    def allocate(self, queues: Queues, members: Sequence[str]) -> Allocation:
        """Return the queues of its own room for every member, and a share of those of rooms that nobody is in."""
        members_in: dict[str, list[str]] = {}
        for member in members:
            members_in.setdefault(_named(self._room_of_member(member), member), []).append(member)
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _named(self._room_of_broker(queue.broker_name), queue.broker_name)
            queues_in.setdefault(room, []).append(queue)
        found: Allocation = {member: [] for member in members}
        # A member's own room first, then the rooms without members by their names.
        for room in sorted(queues_in, key=lambda room: (room not in members_in, room)):
            shared = self._inner.allocate(queues_in[room], members_in.get(room, members))
            for member, allocated in shared.items():
                found[member] += allocated
        return found


def _named(room: str, of: str) -> str:
    if not room:
        raise ValueError(f"{of} is in no machine room")
    return room
