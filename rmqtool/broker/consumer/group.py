"""A group of consumers in one process, and how it is opened: its topics, queues, members and progress.

The group shares out its queues, fetches, hands out messages, and keeps its progress. Upstream has threads for this,
which wait for each other; here the caller runs the loop of ``rebalance``, ``fetch``, ``take``, and ``finish`` for each
message. upstream: DefaultMQPushConsumerImpl with its rebalance, pull and consume services.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from rmqtool.broker.consumer.consume_message import QueueLocks
from rmqtool.broker.consumer.process_queue import PULL_BATCH_SIZE, CachedMessage, ProcessQueue
from rmqtool.broker.consumer.progress import BroadcastProgress, GroupProgress, LocalOffsets, Progress, Start, client_id
from rmqtool.broker.consumer.queue_view import StoredQueueView, StoredView
from rmqtool.broker.consumer.rebalance import Change, ConsumerGroup, Member, Rebalancer
from rmqtool.broker.consumer.subscription import EVERYTHING, Subscription
from rmqtool.broker.consumer.windows import Consumption, Delivered, Reading, SendBack, Windows
from rmqtool.broker.offsets import ConsumerOffsets, OffsetRequests
from rmqtool.config import StoreConfig
from rmqtool.engine.clock import Clock
from rmqtool.errors import NotFound, ReadFailed, UnknownTopic, UsageError
from rmqtool.filters.wanted import TopicPatterns
from rmqtool.formats.commit_log import Message
from rmqtool.formats.message_queue import MessageQueue
from rmqtool.formats.topics import retry_topic
from rmqtool.store.listing import QueueId

# Entries that are examined in one pull, in case the filter rejects most.
_LOOKED_AT = 800


class Lost(NamedTuple):
    """A queue entry without a message."""

    queue: MessageQueue
    queue_offset: int
    physical_offset: int


class GroupConsumer:
    """The members of one group and their work."""

    def __init__(self, how: Consumption, source: StoredView, progress: Progress, clock: Clock) -> None:
        self.how = how
        # Entries without a message, until the caller clears the list.
        self.lost: list[Lost] = []
        self._source = source
        self._progress = progress
        self._clock = clock
        self._windows = Windows(how, progress, clock)
        rebalancer = Rebalancer(
            locks=QueueLocks(clock) if how.orderly else None, broadcasting=how.broadcasting, on_drop=self._drop
        )
        self._group = ConsumerGroup(how.group, how.version, clock, rebalancer)

    @property
    def members(self) -> int:
        """The number of members."""
        return len(self._group.members)

    def set_queues(self, queues: Iterable[MessageQueue]) -> None:
        """Set the queues of the group."""
        self._group.set_queues(queues)

    def join(self, client_id: str) -> list[Change]:
        """Add a member and share out the queues again; return what moved."""
        self._group.join(client_id)
        return self.rebalance()

    def leave(self, client_id: str) -> list[Change]:
        """Remove a member: its progress is kept, and its queues go to the others."""
        return self._group.leave(client_id) + self.rebalance()

    def rebalance(self) -> list[Change]:
        """Share out the queues if it is time to; return what moved."""
        changes = self._group.tick()
        for member, queue, is_taken in changes:
            if is_taken:
                window = self._group.members[member].windows[queue]
                self._windows.begin(member, queue, window, self._progress.begin(member, queue))
        return changes

    def _drop(self, member: Member, queue: MessageQueue, _window: ProcessQueue[Message]) -> bool:
        self._windows.end(member.client_id, queue)
        return True

    def fetch(self) -> int:
        """Fetch messages for each queue with space in its window; return how many came."""
        fetched = 0
        now = self._clock.monotonic()
        for reading in self._windows:
            if self._windows.wants(reading):
                reading.window.last_pull = now
                fetched += self._pull(reading)
        return fetched

    def _pull(self, reading: Reading) -> int:
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
        self._windows.put(reading, found)
        return len(found)

    def take(self, most: int) -> list[Delivered]:
        """Hand out up to ``most`` messages, from all queues in turn."""
        return self._windows.take(most)

    def finish(self, delivered: Delivered, *, is_ok: bool) -> bool:
        """Report the result of a taken message; return whether its queue can continue."""
        return self._windows.finish(delivered, is_ok=is_ok)

    def save(self) -> None:
        """Make the progress durable."""
        self._progress.save()

    @property
    def is_at_end(self) -> bool:
        """Whether only stopped queues have work left for now."""
        return all(
            one.is_stuck
            or (
                one.window.count == 0
                and one.next_offset >= self._source.max_offset(one.queue.topic, one.queue.queue_id)
            )
            for one in self._windows
        )

    @property
    def resumes_in(self) -> int | None:
        """How long (ms) until a failed message is tried again; None if none waits."""
        return self._windows.resumes_in


_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Asked:
    """What to consume, and how. An empty ``group`` reads without a group."""

    group: str
    topics: TopicPatterns
    wanted: Subscription
    start: Start
    queue_id: int | None = None
    members: int = 1
    orderly: bool = False
    broadcasting: bool = False
    # Whether progress is saved.
    keeps: bool = False

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The ids of the members. Those of broadcasting members stay the same, so that each finds its file again."""
        if self.broadcasting:
            names = ["DEFAULT"] if self.members == 1 else [str(number) for number in range(1, self.members + 1)]
        else:
            names = [f"{os.getpid()}#{number}" for number in range(1, self.members + 1)]
        return tuple(client_id(_HOST, name) for name in names)


@dataclass(frozen=True)
class Known:
    """The topics of a store with their settings, its queues with messages, and the progress of its groups.

    ``unread`` has the errors of queues that cannot be read, None for those of a database.
    """

    topics: Mapping[str, Mapping[str, Any]]
    queues: Collection[tuple[str, int]]
    progressed: Collection[tuple[str, str]]
    config: StoreConfig
    unread: Mapping[QueueId | None, ReadFailed] = field(default_factory=dict)

    @property
    def topic_names(self) -> list[str]:
        """All topics with settings or messages."""
        return sorted({*self.topics, *(topic for topic, _ in self.queues)})

    def queues_of(self, topic: str, queue_id: int | None) -> list[MessageQueue]:
        """Return the queues of a topic that can be read, or the one with a given id."""
        count = int(self.topics.get(topic, {}).get("readQueueNums") or 0)
        ids = {*range(count), *(number for name, number in self.queues if name == topic)}
        ids -= {number for number in ids if (topic, number) in self.unread}
        if None in self.unread:
            ids &= {number for name, number in self.queues if name == topic}
        return [MessageQueue(topic, self.config.broker_name, one) for one in sorted(ids) if queue_id in (None, one)]


def subscribe(asked: Asked, known: Known) -> dict[str, Subscription]:
    """Return the group's topics and what it wants of each; its retry topic is always included.

    Raises ``NotFound`` for an unknown topic or group.
    """
    found = asked.topics.select(known.topic_names) if asked.topics.patterns else _topics_of(asked.group, known)
    for pattern in asked.topics.patterns:
        if pattern not in found and not any(char in pattern for char in "*?["):
            said, hint = _unknown("topic", pattern, known.topic_names, "rmqtool topic STORE list")
            raise UnknownTopic(said, hint=hint)
    if not found:
        raise NotFound(f"no topic matches {', '.join(asked.topics.patterns)}", hint="rmqtool topic STORE list")
    subscriptions = dict.fromkeys(found, asked.wanted)
    retry = retry_topic(asked.group)
    if asked.group and not asked.broadcasting and asked.queue_id is None and retry in known.topic_names:
        subscriptions[retry] = EVERYTHING
    return subscriptions


def _topics_of(group: str, known: Known) -> list[str]:
    """Return the topics in which a group has progress."""
    if not group:
        raise UsageError(
            "give a topic (-t) or a group with offsets (-g)",
            hint="rmqtool topic STORE list",
        )
    retry = retry_topic(group)
    found = sorted({topic for topic, name in known.progressed if name == group and topic != retry})
    if not found:
        groups = sorted({name for _, name in known.progressed})
        said, hint = _unknown("group", group, groups, "rmqtool info STORE groups")
        raise NotFound(f"{said}; -t TOPIC starts a new one", hint=hint)
    return found


def _unknown(kind: str, name: str, names: list[str], listing: str) -> tuple[str, str]:
    """Return what an error says about an unknown name, and its hint: a name like it, or the command that lists them."""
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else listing
    return f'there is no {kind} "{name}"', hint


def group_progress(
    asked: Asked, known: Known, stored: StoredView, offsets: ConsumerOffsets | Mapping[str, LocalOffsets]
) -> Progress:
    """Return the progress of a group, in the broker's table or in a file for each broadcasting member."""
    view = StoredQueueView(stored)
    if not isinstance(offsets, ConsumerOffsets):
        return BroadcastProgress(offsets, view, asked.start, keeps=asked.keeps)
    requests = OffsetRequests(offsets, view, known.config.version, known.topic_names, (asked.group,))
    return GroupProgress(asked.group, offsets, requests, asked.start, keeps=asked.keeps)


def open_group(
    asked: Asked,
    known: Known,
    stored: StoredView,
    progress: Progress,
    clock: Clock,
    send_back: SendBack | None = None,
    max_reconsume_times: int = -1,
) -> GroupConsumer:
    """Return the group with its queues, without members yet."""
    subscriptions = subscribe(asked, known)
    how = Consumption(
        group=asked.group,
        version=known.config.version,
        subscriptions=subscriptions,
        orderly=asked.orderly,
        broadcasting=asked.broadcasting,
        drops_failed=asked.broadcasting or not asked.keeps,
        send_back=send_back,
        max_reconsume_times=max_reconsume_times,
    )
    consumer = GroupConsumer(how, stored, progress, clock)
    consumer.set_queues(queue for topic in subscriptions for queue in known.queues_of(topic, asked.queue_id))
    return consumer
