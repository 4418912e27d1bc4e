"""The windows of a consumer: the messages of each queue that are fetched, those that are out, and what is finished.

A window is filled from a store's files, or by pulls from a broker; what happens to its messages is the same.
upstream: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.broker.consumer.consume_message import (
    LOCAL_RETRY,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    OrderlyPolicy,
    finish_batch,
    finish_ordered,
)
from rmqtool.broker.consumer.process_queue import (
    PULL_BATCH_SIZE,
    CachedMessage,
    ConsumerState,
    ProcessQueue,
    Refusal,
    Thresholds,
    check_pull,
)
from rmqtool.broker.consumer.progress import Progress
from rmqtool.broker.consumer.subscription import Subscription
from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.commit_log import Message
from rmqtool.formats.message_queue import MessageQueue


class Delivered(NamedTuple):
    """A message for a member to consume."""

    client_id: str
    queue: MessageQueue
    cached: CachedMessage[Message]

    @property
    def message(self) -> Message:
        """The message."""
        return self.cached.payload


# Asks the broker to deliver a message again later, or to give it up; returns whether the broker has it now.
SendBack = Callable[[Delivered], bool]


@dataclass(frozen=True)
class Consumption:
    """How a group consumes. Without ``send_back`` a queue stops at a message that fails.

    With ``drops_failed`` failed messages are not tried again, as with broadcasting consumers.
    """

    group: str
    version: Version
    subscriptions: dict[str, Subscription]
    orderly: bool = False
    broadcasting: bool = False
    drops_failed: bool = False
    send_back: SendBack | None = None
    # Tries of an orderly consumer before a message is sent back; -1: no limit.
    max_reconsume_times: int = -1
    thresholds: Thresholds = field(default_factory=Thresholds)


@dataclass
class Reading:
    """The place of a member in one queue."""

    client_id: str
    queue: MessageQueue
    window: ProcessQueue[Message]
    next_offset: int
    # Fetched messages that were not taken. For an orderly consumer they are in the window only.
    ready: deque[CachedMessage[Message]] = field(default_factory=deque)
    # Failed messages that could not be sent back, with the time of the next try.
    again: list[tuple[int, CachedMessage[Message]]] = field(default_factory=list)
    # For an orderly consumer: whether its one message is out, and when the queue resumes.
    is_busy: bool = False
    resumes_at: int = 0
    # Whether a failed message holds up the queue for good.
    is_stuck: bool = False


class Windows:
    """The windows of the members of one process. ``is_open`` says whether an orderly consumer may take from one."""

    def __init__(
        self,
        how: Consumption,
        progress: Progress,
        clock: Clock,
        is_open: Callable[[ProcessQueue[Message], int], bool] = lambda _window, _now: True,
    ) -> None:
        self.how = how
        self.state = ConsumerState(is_orderly=how.orderly)
        self._progress = progress
        self._clock = clock
        self._is_open = is_open
        self._readings: dict[tuple[str, MessageQueue], Reading] = {}
        self._first = 0

    def __iter__(self) -> Iterator[Reading]:
        return iter(self._readings.values())

    def begin(self, client_id: str, queue: MessageQueue, window: ProcessQueue[Message], offset: int) -> Reading:
        """Begin to read a queue that a member has taken."""
        reading = self._readings[client_id, queue] = Reading(client_id, queue, window, offset)
        return reading

    def find(self, client_id: str, queue: MessageQueue) -> Reading | None:
        """Return the place of a member in a queue."""
        return self._readings.get((client_id, queue))

    def end(self, client_id: str, queue: MessageQueue) -> None:
        """Forget a queue that a member drops."""
        reading = self._readings.pop((client_id, queue), None)
        if reading is not None and reading.window.count == 0:
            self._progress.commit(client_id, queue, reading.next_offset)

    def refusal(self, reading: Reading) -> Refusal | None:
        """Return why a window may not be filled now."""
        return check_pull(reading.window, self.state, self.how.thresholds)

    def wants(self, reading: Reading) -> bool:
        """Return whether a queue needs more messages now."""
        waiting = reading.window.count if self.how.orderly else len(reading.ready)
        return waiting < PULL_BATCH_SIZE and self.refusal(reading) is None

    def put(self, reading: Reading, found: Iterable[CachedMessage[Message]]) -> None:
        """Add fetched messages; ``reading.next_offset`` is where the next pull begins."""
        fetched = list(found)
        reading.window.put(fetched)
        if not self.how.orderly:
            reading.ready.extend(fetched)
        passed = reading.window.filtered_offset(reading.next_offset)
        if passed is not None:
            self._progress.commit(reading.client_id, reading.queue, passed)

    def take(self, most: int) -> list[Delivered]:
        """Hand out up to ``most`` messages, from all queues in turn."""
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

    def _take_of(self, reading: Reading, most: int, now: int, taken: list[Delivered]) -> bool:
        """Hand out messages of one queue; return whether there may be more."""
        if reading.is_stuck:
            return False
        if self.how.orderly:
            if reading.is_busy or now < reading.resumes_at or not self._is_open(reading.window, now):
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
        """Report the result of a taken message; return whether its queue can continue."""
        reading = self._readings.get((delivered.client_id, delivered.queue))
        if reading is None:
            return True
        return (
            self._finish_ordered(reading, delivered, is_ok)
            if self.how.orderly
            else self._finish(reading, delivered, is_ok)
        )

    def _finish(self, reading: Reading, delivered: Delivered, is_ok: bool) -> bool:
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

    def _finish_ordered(self, reading: Reading, delivered: Delivered, is_ok: bool) -> bool:
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

    def _commit(self, reading: Reading, offset: int) -> None:
        if offset >= 0:
            # After the last message, the offsets that the filter left out are done too.
            passed = reading.window.filtered_offset(reading.next_offset)
            self._progress.commit(reading.client_id, reading.queue, offset if passed is None else passed)

    def goes_back(self, delivered: Delivered) -> bool:
        """Return whether a message that failed now is one for ``send_back``."""
        reading = self._readings.get((delivered.client_id, delivered.queue))
        if reading is None or self.how.drops_failed:
            return False
        if self.how.orderly:
            return 0 <= self.how.max_reconsume_times <= delivered.cached.reconsume_times
        return reading.window.find(delivered.cached.queue_offset) is delivered.cached

    @property
    def resumes_in(self) -> int | None:
        """How long (ms) until a failed message is tried again; None if none waits."""
        now = self._clock.monotonic()
        times = [one.resumes_at for one in self._readings.values() if one.resumes_at > now and not one.is_stuck]
        times += [time for one in self._readings.values() for time, _ in one.again]
        return max(min(times) - now, 0) if times else None
