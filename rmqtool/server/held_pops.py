"""The pops that wait for messages, and the questions whether there are some.

A pop takes what it gets, so of those that wait for one queue and want the same, the first is tried first, and the next
only if it got something. Upstream: ``PopLongPollingService``.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from rmqtool.broker.processors.pop_message import WaitingPop
from rmqtool.broker.services.ordered_pops import GroupQueue
from rmqtool.engine.message import QueueKey
from rmqtool.server.channel import Connection

_ANY = -1


class _Held(NamedTuple):
    """A pop that waits, and whose it is."""

    connection: Connection
    waiting: WaitingPop


class HeldPops:
    """The waiting pops of one server, by topic, group, and queue, which is -1 for any."""

    def __init__(self) -> None:
        self._places: dict[GroupQueue, list[_Held]] = {}
        # The places that a topic matters to: those of the topic, and those whose retry topic it is.
        self._of_topic: defaultdict[str, set[GroupQueue]] = defaultdict(set)
        self._watched: dict[GroupQueue, tuple[str, str]] = {}
        self._grown: set[GroupQueue] = set()

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
            left = []
            for one in self._places.pop(place, ()):
                wants = one.waiting.wants
                if not one.connection.is_open or (wants not in exhausted and _answer(one, is_over=False)):
                    continue
                exhausted.add(wants)
                left.append(one)
            self._keep(place, left)

    def answer_over(self, now: int, *, all_of_them: bool = False) -> None:
        """Answer the pops whose time is over."""
        for place in list(self._places):
            left = []
            for one in self._places.pop(place):
                if all_of_them or now >= one.waiting.until:
                    if one.connection.is_open:
                        _answer(one, is_over=True)
                else:
                    left.append(one)
            self._keep(place, left)

    def forget(self, connection: Connection) -> None:
        """Drop the pops of a client that is gone."""
        for place, held in list(self._places.items()):
            if any(one.connection is connection for one in held):
                del self._places[place]
                self._keep(place, [one for one in held if one.connection is not connection])

    def _keep(self, place: GroupQueue, held: list[_Held]) -> None:
        if held:
            self._places[place] = held + self._places.get(place, [])
            return
        if place not in self._places:
            for topic in self._watched.pop(place, ()):
                self._of_topic[topic].discard(place)
                if not self._of_topic[topic]:
                    del self._of_topic[topic]


def _answer(one: _Held, *, is_over: bool) -> bool:
    found = one.waiting.look(is_over)
    if found is None:
        return False
    one.connection.answer(one.waiting.asked.command, found)
    return True
