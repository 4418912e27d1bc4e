"""The requests that wait for messages: each is answered when its queue grew, or when its time is over.

A pop takes what it gets, so of those that wait for one queue and want the same, the first is tried first, and the next
only if it got something, and when its bytes have come. Upstream: ``PullRequestHoldService``, ``PopLongPollingService``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from rmqtool.broker.processors.pop_message import WaitingPop
from rmqtool.broker.processors.pull_message import Pulling, Waiting
from rmqtool.broker.processors.replies import Fetching
from rmqtool.broker.services.ordered_pops import GroupQueue
from rmqtool.engine.message import QueueKey
from rmqtool.remoting.command import RemotingCommand
from rmqtool.server.channel import Connection

# Gets who asked, and why there is no answer.
Failed: TypeAlias = Callable[[Connection, RemotingCommand, Exception], None]
# Gets who asked, and the answer, or what it waits for.
Answered: TypeAlias = Callable[[Connection, RemotingCommand, "RemotingCommand | bytes | Fetching"], None]
_ANY = -1
# After this time (ms) a pull whose filter skipped messages gets the offset to continue at.
_LOOK_PERIOD = 5_000


class HeldPull(NamedTuple):
    """A pull that waits, and whose it is."""

    connection: Connection
    waiting: Waiting
    since: int


class HeldPulls:
    """The pulls that wait for one store's queues."""

    def __init__(self, pulling: Pulling, reply: Answered, failed: Failed) -> None:
        self._pulling, self._reply, self._failed = pulling, reply, failed
        self._queues: dict[QueueKey, list[HeldPull]] = {}
        self._grown: set[QueueKey] = set()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def count_of(self, connection: Connection) -> int:
        """Return how many pulls of a client wait."""
        return sum(one.connection is connection for one in self)

    def hold(self, connection: Connection, waiting: Waiting, now: int) -> None:
        """Hold a pull."""
        self._queues.setdefault(waiting.queue, []).append(HeldPull(connection, waiting, now))

    def grew(self, queue: QueueKey, _max_offset: int) -> None:
        """Take note that messages arrived in a queue."""
        if queue in self._queues:
            self._grown.add(queue)

    def answer_grown(self) -> None:
        """Answer the pulls for which there is something now."""
        while self._grown:
            queue = self._grown.pop()
            left = []
            for one in self._queues.pop(queue, ()):
                if one.connection.is_open and not self._answer(one, is_over=False):
                    left.append(one)
            self._keep(queue, left)

    def answer_over(self, now: int, *, all_of_them: bool = False) -> None:
        """Answer the pulls whose time is over, and those whose filter has passed something over for a while."""
        for queue in list(self._queues):
            left = []
            for one in self._queues.pop(queue):
                waiting = one.waiting
                has_moved = waiting.offset != waiting.header.queue_offset and now - one.since >= _LOOK_PERIOD
                is_over = all_of_them or now >= waiting.until or has_moved
                if not one.connection.is_open or (is_over and self._answer(one, is_over=True)):
                    continue
                left.append(one)
            self._keep(queue, left)

    def forget(self, connection: Connection) -> None:
        """Drop the pulls of a client that is gone."""
        for queue, parked in list(self._queues.items()):
            if any(one.connection is connection for one in parked):
                del self._queues[queue]
                self._keep(queue, [one for one in parked if one.connection is not connection])

    def _keep(self, queue: QueueKey, parked: list[HeldPull]) -> None:
        if parked:
            self._queues.setdefault(queue, []).extend(parked)

    def _answer(self, one: HeldPull, *, is_over: bool) -> bool:
        command = one.waiting.asked.command
        try:
            found = self._pulling.look_again(one.waiting, is_over=is_over)
        except Exception as error:
            # The others wait on.
            self._failed(one.connection, command, error)
            return True
        if found is None:
            return False
        self._reply(one.connection, command, found)
        return True

    def __iter__(self) -> Iterator[HeldPull]:
        for parked in self._queues.values():
            yield from parked


class _Held(NamedTuple):
    """A pop that waits, and whose it is."""

    connection: Connection
    waiting: WaitingPop


class HeldPops:
    """The waiting pops of one server, by topic, group, and queue, which is -1 for any."""

    def __init__(self, reply: Answered, failed: Failed) -> None:
        self._reply, self._failed = reply, failed
        self._places: dict[GroupQueue, list[_Held]] = {}
        # The places that a topic matters to: those of the topic, and those whose retry topic it is.
        self._of_topic: defaultdict[str, set[GroupQueue]] = defaultdict(set)
        self._watched: dict[GroupQueue, tuple[str, str]] = {}
        self._grown: set[GroupQueue] = set()
        # Where a pop of a client waits for bytes, and the others for it.
        self._fetching: defaultdict[Connection, set[GroupQueue]] = defaultdict(set)

    def __len__(self) -> int:
        return sum(map(len, self._places.values()))

    def count_of(self, connection: Connection) -> int:
        """Return how many pops of a client wait."""
        return sum(one.connection is connection for held in self._places.values() for one in held)

    def count_at(self, place: GroupQueue) -> int:
        """Return how many pops wait for a queue."""
        return len(self._places.get(place, ()))

    def hold(self, connection: Connection, waiting: WaitingPop) -> None:
        """Hold a pop."""
        place = GroupQueue(waiting.topic, waiting.group, waiting.queue_id)
        self._places.setdefault(place, []).append(_Held(connection, waiting))
        self._watched[place] = waiting.topic, waiting.also
        for topic in self._watched[place]:
            self._of_topic[topic].add(place)

    def grew(self, queue: QueueKey, _max_offset: int) -> None:
        """Take note that messages arrived in a queue."""
        topic, queue_id = queue
        for place in self._of_topic.get(topic, ()):
            if place.queue_id in (_ANY, queue_id) or place.topic != topic:
                self._grown.add(place)

    @property
    def has_grown(self) -> bool:
        """Whether there may be something for pops that wait."""
        return bool(self._grown)

    def freed(self, place: GroupQueue) -> None:
        """Take note that a queue is free for the next pop in order."""
        self._grown |= {place, place._replace(queue_id=_ANY)} & self._places.keys()

    def answer_grown(self) -> None:
        """Answer the pops for which there is something now."""
        while self._grown:
            place = self._grown.pop()
            # Subscriptions for which nothing is left.
            exhausted: set[str] = set()
            is_cold = False
            left = []
            for one in self._places.pop(place, ()):
                wants = one.waiting.wants
                if not one.connection.is_open:
                    continue
                if is_cold or wants in exhausted:
                    left.append(one)
                    continue
                found = self._look(one, is_over=False)
                if found is None:
                    exhausted.add(wants)
                    left.append(one)
                    continue
                is_cold = isinstance(found, Fetching)
                self._answer(one, self._before_others(one, place, found) if isinstance(found, Fetching) else found)
            self._keep(place, left)

    def answer_over(self, now: int, *, all_of_them: bool = False) -> None:
        """Answer the pops whose time is over."""
        for place in list(self._places):
            left = []
            for one in self._places.pop(place):
                if all_of_them or now >= one.waiting.until:
                    found = self._look(one, is_over=True) if one.connection.is_open else None
                    if found is not None:
                        self._answer(one, found)
                else:
                    left.append(one)
            self._keep(place, left)

    def forget(self, connection: Connection) -> None:
        """Drop the pops of a client that is gone."""
        self.look_again(connection)
        for place, held in list(self._places.items()):
            if any(one.connection is connection for one in held):
                del self._places[place]
                self._keep(place, [one for one in held if one.connection is not connection])

    def look_again(self, connection: Connection) -> None:
        """Have the others looked at where a pop of a client got no bytes: it is not answered, or by an error."""
        self._grown |= self._fetching.pop(connection, set()) & self._places.keys()

    def _keep(self, place: GroupQueue, held: list[_Held]) -> None:
        if held:
            self._places[place] = held + self._places.get(place, [])
            return
        if place not in self._places:
            for topic in self._watched.pop(place, ()):
                self._of_topic[topic].discard(place)
                if not self._of_topic[topic]:
                    del self._of_topic[topic]

    def _look(self, one: _Held, *, is_over: bool) -> RemotingCommand | Fetching | Exception | None:
        try:
            return one.waiting.look(is_over)
        except Exception as error:
            # The others wait on.
            return error

    def _answer(self, one: _Held, found: RemotingCommand | Fetching | Exception) -> None:
        command = one.waiting.asked.command
        if isinstance(found, Exception):
            self._failed(one.connection, command, found)
        else:
            self._reply(one.connection, command, found)

    def _before_others(self, one: _Held, place: GroupQueue, found: Fetching) -> Fetching:
        """Have the others of a place looked at when a pop that waits for bytes is answered."""
        self._fetching[one.connection].add(place)

        def again() -> Any:
            answered = None
            try:
                answered = found.again()
            finally:
                if not isinstance(answered, Fetching):
                    self._fetching[one.connection].discard(place)
                    self._grown |= {place} & self._places.keys()
            return self._before_others(one, place, answered) if isinstance(answered, Fetching) else answered

        return Fetching(found.cold, again)
