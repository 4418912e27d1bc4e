"""A client's decisions before and after it sends: checks, unique keys, the queue, and when to try again.

A queue is chosen in turn, by a sharding key, or by the latency of brokers. ``engine.message.compressed`` compresses
bodies. upstream: Validators, MessageClientIDSetter, MessageBatch, DefaultMQProducerImpl.sendDefaultImpl,
TopicPublishInfo, SelectMessageQueueByHash, MQFaultStrategy, LatencyFaultToleranceImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.codes import is_since
from rmqtool.formats.ids import UniqKey, encode_uniq_key, uniq_key_span
from rmqtool.formats.java import INT_MAX, int32, string_hash
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.property_names import DELAY, WAIT
from rmqtool.formats.response_codes import ResponseCode
from rmqtool.formats.topics import RETRY_PREFIX, check_topic_name, is_allowed_to_send

MAX_MESSAGE_SIZE = 4 << 20
# Tries of a synchronous send, and the time (ms) for all of them.
SEND_ATTEMPTS, SEND_TIMEOUT = 3, 3_000

_RETRIED = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
_RETRIED_SINCE_5 = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY})


def is_retried(code: ResponseCode, version: Version) -> bool:
    """Return whether a producer tries another broker after this answer."""
    return code in _RETRIED or (code in _RETRIED_SINCE_5 and is_since(version, "5.0.0"))


_COUNTER_DIGITS = 4
_MINUTE = 60_000
# Keys of one millisecond differ only in the counter, which has four hexadecimal digits.
MOST_KEYS = 1 << 4 * _COUNTER_DIGITS
_BYTES = tuple(f"{value:02X}" for value in range(256))


@dataclass
class Outgoing:
    """A message as the user gave it."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)


def check_message(message: Outgoing, version: Version, max_size: int = MAX_MESSAGE_SIZE) -> str | None:
    """Return why a client refuses to send a message, None if it does not."""
    refusal = check_topic_name(message.topic, version)
    if refusal is not None:
        return refusal
    if not is_allowed_to_send(message.topic, version):
        return f"topic {message.topic} is the broker's own, and clients cannot send to it"
    return check_body(message.body, max_size)


def check_body(body: bytes | None, max_size: int = INT_MAX) -> str | None:
    """Return why a client refuses to send a body, None if it does not."""
    if not body:
        return "a message needs a body"
    if len(body) > max_size:
        return f"body of {len(body)} bytes, at most {max_size} are allowed"
    return None


def check_batch(messages: Sequence[Outgoing]) -> str | None:
    """Return why messages cannot be sent as one batch, None if they can."""
    if not messages:
        return "a batch needs a message"
    first = messages[0]
    if first.topic.startswith(RETRY_PREFIX):
        return f"retry topic {first.topic} does not take batches"
    for message in messages:
        if _is_delayed(message):
            return "a message with a delay level cannot go in a batch"
        if message.topic != first.topic:
            return f"a batch has one topic, not {first.topic} and {message.topic}"
        if _waits(message) != _waits(first):
            return "all messages of a batch must have the same WAIT property"
    return None


def _is_delayed(message: Outgoing) -> bool:
    try:
        return int(message.properties.get(DELAY, "0")) > 0
    except ValueError:
        # A client does not send a delay level that it cannot parse.
        return True


def _waits(message: Outgoing) -> bool:
    return message.properties.get(WAIT, "true").lower() == "true"


class UniqKeys:
    """The unique keys of one producer's messages: a time, and a counter within the millisecond."""

    def __init__(self, address: bytes, pid: int, loader_hash: int, clock: Clock) -> None:
        self._maker = UniqKey(address, pid & 0xFFFF, int32(loader_hash), 0, 0)
        self._clock = clock
        self._counter = 0
        # The time of the last key, and the beginning of all keys of that time.
        self._now, self._prefix = -1, ""
        # In each time zone months begin at a full minute, so the zone is asked once a minute: (minute, month's
        # beginning).
        self._month = (-1, 0)

    def next(self) -> str:
        """Return the key of the next message. It is kept through all tries to send it."""
        return self.at(self._clock.now())

    def at(self, now: int) -> str:
        """Return the key of the next message, which is sent at ``now`` (ms)."""
        if now != self._now:
            self._go_to(now)
        number = self._counter
        self._counter = (number + 1) % MOST_KEYS
        # Half as long as formatting the number.
        return f"{self._prefix}{_BYTES[number >> 8]}{_BYTES[number & 0xFF]}"

    def take(self, count: int) -> list[str]:
        """Return the keys of the next messages, at most ``MOST_KEYS``."""
        now = self._clock.now()
        if now != self._now:
            self._go_to(now)
        first, prefix = self._counter, self._prefix
        self._counter = (first + count) % MOST_KEYS
        numbers = [number % MOST_KEYS for number in range(first, first + count)]
        return [f"{prefix}{_BYTES[number >> 8]}{_BYTES[number & 0xFF]}" for number in numbers]

    def _go_to(self, now: int) -> None:
        """Make the beginning of the keys of a time (ms)."""
        minute, month_start = self._month
        if now // _MINUTE != minute:
            month_start = now - (uniq_key_span(now, self._clock.zone) or 0)
            self._month = now // _MINUTE, month_start
        key = encode_uniq_key(self._maker._replace(month_span=(now - month_start) & 0xFFFFFFFF))
        self._now, self._prefix = now, key[:-_COUNTER_DIGITS]


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
