"""The choice of a queue to send to: in turn, by a sharding key, or by the latency of brokers.

upstream: TopicPublishInfo, SelectMessageQueueByHash, MQFaultStrategy, LatencyFaultToleranceImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.codes import is_since
from rmqtool.formats.java import string_hash
from rmqtool.formats.message_queue import MessageQueue

_POSITIVE = 0x7FFFFFFF

# Rows of (latency from which a broker is avoided, for how long), in ms; the first row that fits counts.
FAULTS_4_9 = (
    (15_000, 600_000),
    (3_000, 180_000),
    (2_000, 120_000),
    (1_000, 60_000),
    (550, 30_000),
    (100, 0),
    (50, 0),
)
FAULTS_5 = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000), (100, 0), (50, 0))
# The latency that a failed send counts as.
FAILED_LATENCY_4_9, FAILED_LATENCY_5 = 30_000, 10_000


class QueueSelector(Protocol):
    """A way to choose a queue. ``last_broker`` has just failed, at a second try."""

    def select(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """Return one of ``queues``, which are not empty."""


def queue_by_key(sharding_key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """Return the queue of a sharding key. Equal keys get the same queue while the number of queues is the same."""
    return queues[queue_index_by_key(sharding_key, len(queues))]


def queue_index_by_key(sharding_key: str, count: int) -> int:
    """Return the index by Java's remainder of the key's hash, without its sign."""
    return abs(string_hash(sharding_key)) % count


class RoundRobin:
    """Chooses the queues in turn."""

    def __init__(self, start: int) -> None:
        self._counter = start & _POSITIVE

    def select(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """Return the next queue; not one of ``last_broker`` if there are others."""
        if last_broker is not None:
            found = self.find(queues, lambda queue: queue.broker_name != last_broker)
            if found is not None:
                return found
        return queues[self.next_index(len(queues))]

    def find(self, queues: Sequence[MessageQueue], suits: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        """Return the next queue that suits, None without one."""
        for _ in queues:
            queue = queues[self.next_index(len(queues))]
            if suits(queue):
                return queue
        return None

    def next_index(self, count: int) -> int:
        """Return the next index below ``count``."""
        self._counter = (self._counter + 1) & _POSITIVE
        return self._counter % count


@dataclass
class _Fault:
    """Why a broker is avoided."""

    latency: int
    # The time until which it is avoided.
    until: int
    reachable: bool = True


class LeastLatency:
    """Chooses in turn, but avoids brokers that were slow or failed (``sendLatencyFaultEnable``)."""

    def __init__(self, start: int, version: Version, clock: Clock) -> None:
        self._round = RoundRobin(start)
        self._worst = RoundRobin(start)
        self._is_5 = is_since(version, "5.0.0")
        self._clock = clock
        self._faults: dict[str, _Fault] = {}

    def report(self, broker: str, latency: int, *, failed: bool = False, reachable: bool = True) -> None:
        """Report the duration of a send, or its failure. 5.x never shortens the time for which a broker is avoided."""
        now = self._clock.monotonic()
        counted = (FAILED_LATENCY_5 if self._is_5 else FAILED_LATENCY_4_9) if failed else latency
        until = now + self._avoided_for(counted)
        known = self._faults.get(broker)
        if known is not None and self._is_5 and until <= max(known.until, now):
            until = known.until
        self._faults[broker] = _Fault(latency, until, reachable)

    def _avoided_for(self, latency: int) -> int:
        table = FAULTS_5 if self._is_5 else FAULTS_4_9
        return next((avoided for least, avoided in table if latency >= least), 0)

    def is_available(self, broker: str) -> bool:
        """Return whether a broker is not avoided any more."""
        fault = self._faults.get(broker)
        return fault is None or self._clock.monotonic() >= fault.until

    def select(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """Return the next queue of a good broker or, without one, of a broker that is not the worst."""
        if not self._is_5:
            return self._select_4_9(queues, last_broker)

        def is_other(queue: MessageQueue) -> bool:
            return queue.broker_name != last_broker

        found = self._round.find(queues, lambda queue: is_other(queue) and self.is_available(queue.broker_name))
        found = found or self._round.find(queues, lambda queue: is_other(queue) and self._is_reachable(queue))
        return found or self._round.select(queues)

    def _is_reachable(self, queue: MessageQueue) -> bool:
        fault = self._faults.get(queue.broker_name)
        return fault is None or fault.reachable

    def _select_4_9(self, queues: Sequence[MessageQueue], last_broker: str | None) -> MessageQueue:
        found = self._round.find(queues, lambda queue: self.is_available(queue.broker_name))
        if found is not None:
            return found
        better = self._pick_better_half()
        of_better = [queue for queue in queues if queue.broker_name == better]
        if of_better:
            return of_better[self._round.next_index(len(of_better))]
        if better is not None:
            # The broker has no queues of this topic any more.
            del self._faults[better]
        return self._round.select(queues, last_broker)

    def _pick_better_half(self) -> str | None:
        def rank(broker: str) -> tuple[bool, int, int]:
            fault = self._faults[broker]
            return not self.is_available(broker), fault.latency, fault.until

        ranked = sorted(self._faults, key=rank)
        half = ranked[: max(1, len(ranked) // 2)]
        return half[self._worst.next_index(len(half))] if half else None
