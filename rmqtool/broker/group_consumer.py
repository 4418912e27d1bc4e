"""A group of consumers in one process: it shares out its queues, fetches, hands out messages and keeps its progress.

Upstream: ``DefaultMQPushConsumerImpl`` with its rebalance, pull and consume services. Those are threads that wait for
each other; here the caller goes round: ``rebalance``, ``fetch``, ``take``, and ``finish`` for what was taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.broker.concurrent import LOCAL_RETRY, ConsumeConcurrentlyStatus, finish_batch
from rmqtool.broker.flow_control import PULL_BATCH_SIZE, ConsumerState, Thresholds, check_pull
from rmqtool.broker.group_progress import Progress
from rmqtool.broker.ordered import ConsumeOrderlyStatus, OrderlyPolicy, QueueLocks, finish_ordered
from rmqtool.broker.process_queue import CachedMessage, ProcessQueue
from rmqtool.broker.queue_view import StoredView
from rmqtool.broker.rebalance import Change, ConsumerGroup, Member, Rebalancer
from rmqtool.broker.subscription import Subscription
from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.commit_log import Message
from rmqtool.formats.message_queues import MessageQueue

# So many units are looked at in one pull, when the filter wants few of their messages.
_LOOKED_AT = 800


class Delivered(NamedTuple):
    """A message that a member is to consume."""

    client_id: str
    queue: MessageQueue
    cached: CachedMessage[Message]

    @property
    def message(self) -> Message:
        """The message."""
        return self.cached.payload


class Lost(NamedTuple):
    """A unit that leads to no message."""

    queue: MessageQueue
    queue_offset: int
    physical_offset: int


# Has the broker deliver a message again later, or gives it up; says whether the message is in good hands now.
SendBack = Callable[[Delivered], bool]


@dataclass(frozen=True)
class Consumption:
    """How a group consumes. Without ``send_back`` a queue stands still at a message that fails.

    ``drops_failed``: what fails is not tried again, as broadcasting consumers do.
    """

    group: str
    version: Version
    subscriptions: Mapping[str, Subscription]
    orderly: bool = False
    broadcasting: bool = False
    drops_failed: bool = False
    send_back: SendBack | None = None
    # Of an orderly consumer: after so many tries a message is sent back; -1: never.
    max_reconsume_times: int = -1
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass
class _Reading:
    """How far a member is in a queue."""

    client_id: str
    queue: MessageQueue
    window: ProcessQueue[Message]
    next_offset: int
    # What was fetched and nobody has taken; of an orderly consumer the window knows.
    ready: deque[CachedMessage[Message]] = field(default_factory=deque)
    # What failed and could not be sent back, and when it is tried again.
    again: list[tuple[int, CachedMessage[Message]]] = field(default_factory=list)
    # Of an orderly consumer: one message at a time, and none before a moment.
    is_busy: bool = False
    resumes_at: int = 0
    # A message failed and nobody takes care of it.
    is_stuck: bool = False


class GroupConsumer:
    """The members of one group, and what they are at."""

    def __init__(self, how: Consumption, source: StoredView, progress: Progress, clock: Clock) -> None:
        self.how = how
        # Units that led to nothing, until somebody looks.
        self.lost: list[Lost] = []
        self._source = source
        self._progress = progress
        self._clock = clock
        self._state = ConsumerState(is_orderly=how.orderly)
        self._readings: dict[tuple[str, MessageQueue], _Reading] = {}
        self._first = 0
        rebalancer = Rebalancer(
            locks=QueueLocks(clock) if how.orderly else None, broadcasting=how.broadcasting, on_drop=self._drop
        )
        self._group = ConsumerGroup(how.group, how.version, clock, rebalancer)

    @property
    def members(self) -> int:
        """How many members there are."""
        return len(self._group.members)

    def set_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Say which queues there are."""
        self._group.set_queues(queues)

    def join(self, client_id: str) -> list[Change]:
        """Take a member in and share the queues out again; return what moved."""
        self._group.join(client_id)
        return self.rebalance()

    def leave(self, client_id: str) -> list[Change]:
        """Let a member go: its progress is noted, and its queues go to the others."""
        return self._group.leave(client_id) + self.rebalance()

    def rebalance(self) -> list[Change]:
        """Share the queues out if it is time to; return what moved."""
        changes = self._group.tick()
        for client_id, queue, is_taken in changes:
            if is_taken:
                window = self._group.members[client_id].windows[queue]
                begin = self._progress.begin(client_id, queue)
                self._readings[client_id, queue] = _Reading(client_id, queue, window, begin)
        return changes

    def _drop(self, member: Member, queue: MessageQueue, _window: ProcessQueue[Message]) -> bool:
        reading = self._readings.pop((member.client_id, queue), None)
        if reading is not None and reading.window.count == 0:
            self._progress.commit(member.client_id, queue, reading.next_offset)
        return True

    def fetch(self) -> int:
        """Fetch messages for all queues that want some; return how many came."""
        fetched = 0
        now = self._clock.monotonic()
        for reading in self._readings.values():
            waiting = reading.window.count if self.how.orderly else len(reading.ready)
            if waiting < PULL_BATCH_SIZE and check_pull(reading.window, self._state, self.how.thresholds) is None:
                reading.window.last_pull = now
                fetched += self._pull(reading)
        return fetched

    def _pull(self, reading: _Reading) -> int:
        topic, _, queue_id = reading.queue
        begin = max(reading.next_offset, self._source.min_offset(topic, queue_id))
        end = min(self._source.max_offset(topic, queue_id), begin + _LOOKED_AT)
        found: list[CachedMessage[Message]] = []
        subscription = self.how.subscriptions[topic]
        reading.next_offset = max(begin, end)
        for offset, place, tags_code, count in self._source.units(topic, queue_id, begin, end):
            if not subscription.wants_unit(tags_code):
                continue
            message = self._source.read(place)
            if message is None:
                self.lost.append(Lost(reading.queue, offset, place))
            elif subscription.wants(message):
                found.append(CachedMessage(offset, message.body_length, message, message.reconsume_times))
                if len(found) == PULL_BATCH_SIZE:
                    reading.next_offset = offset + count
                    break
        reading.window.put(found)
        if not self.how.orderly:
            reading.ready.extend(found)
        passed = reading.window.filtered_offset(reading.next_offset)
        if passed is not None:
            self._progress.commit(reading.client_id, reading.queue, passed)
        return len(found)

    def take(self, most: int) -> list[Delivered]:
        """Hand out up to ``most`` messages, of all queues in turn."""
        taken: list[Delivered] = []
        now = self._clock.monotonic()
        readings = list(self._readings.values())
        first = self._first % max(len(readings), 1)
        self._first = first + 1
        turn = readings[first:] + readings[:first]
        share = max(1, most // max(len(turn), 1))
        while turn and len(taken) < most:
            turn = [
                one
                for one in turn
                if len(taken) < most and self._take_of(one, min(share, most - len(taken)), now, taken)
            ]
        return taken

    def _take_of(self, reading: _Reading, most: int, now: int, taken: list[Delivered]) -> bool:
        """Hand out messages of one queue; tell whether there may be more."""
        if reading.is_stuck:
            return False
        if self.how.orderly:
            if reading.is_busy or now < reading.resumes_at:
                return False
            messages = reading.window.take(1)
            reading.is_busy = bool(messages)
        else:
            due = [message for time, message in reading.again if time <= now]
            if due:
                reading.again = [waiting for waiting in reading.again if waiting[0] > now]
                reading.ready.extendleft(reversed(due))
            messages = [reading.ready.popleft() for _ in range(min(most, len(reading.ready)))]
        for message in messages:
            message.consume_start = now
            taken.append(Delivered(reading.client_id, reading.queue, message))
        return bool(messages)

    def finish(self, delivered: Delivered, *, is_ok: bool) -> bool:
        """Say what came of a message that was taken; tell whether it is in good hands: its queue can go on."""
        reading = self._readings.get((delivered.client_id, delivered.queue))
        if reading is None:
            return True
        return (
            self._finish_ordered(reading, delivered, is_ok)
            if self.how.orderly
            else self._finish(reading, delivered, is_ok)
        )

    def _finish(self, reading: _Reading, delivered: Delivered, is_ok: bool) -> bool:
        status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS if is_ok else ConsumeConcurrentlyStatus.RECONSUME_LATER
        give, message = self.how.send_back, delivered.cached

        def send_back(_message: CachedMessage[Message]) -> bool:
            return give is not None and give(delivered)

        offset, again = finish_batch(
            reading.window, [message], status, send_back=None if self.how.drops_failed else send_back
        )
        if again and give is not None:
            reading.again.append((self._clock.monotonic() + LOCAL_RETRY, message))
        elif again:
            reading.is_stuck = True
        self._commit(reading, offset)
        return not again

    def _finish_ordered(self, reading: _Reading, delivered: Delivered, is_ok: bool) -> bool:
        status = ConsumeOrderlyStatus.SUCCESS
        if not is_ok and not self.how.drops_failed:
            status = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        give = self.how.send_back
        policy = OrderlyPolicy(
            max_reconsume_times=self.how.max_reconsume_times,
            send_back=None if give is None else lambda _message: give(delivered),
        )
        step = finish_ordered(reading.window, [delivered.cached], status, policy)
        reading.is_busy = False
        if step.suspend is not None:
            reading.resumes_at = self._clock.monotonic() + step.suspend
            reading.is_stuck = self.how.send_back is None
        self._commit(reading, step.commit_offset)
        return step.suspend is None

    def _commit(self, reading: _Reading, offset: int) -> None:
        if offset >= 0:
            # Behind the last message, what the filter left out is done with too.
            passed = reading.window.filtered_offset(reading.next_offset)
            self._progress.commit(reading.client_id, reading.queue, offset if passed is None else passed)

    def save(self) -> None:
        """Make the progress durable."""
        self._progress.save()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing is left to do for now but in queues that stand still."""
        return all(
            one.is_stuck
            or (
                one.window.count == 0
                and one.next_offset >= self._source.max_offset(one.queue.topic, one.queue.queue_id)
            )
            for one in self._readings.values()
        )

    @property
    def resumes_in(self) -> int | None:
        """After how long (ms) something that failed is tried again; None: nothing waits for that."""
        now = self._clock.monotonic()
        times = [one.resumes_at for one in self._readings.values() if one.resumes_at > now and not one.is_stuck]
        times += [time for one in self._readings.values() for time, _ in one.again]
        return max(min(times) - now, 0) if times else None
