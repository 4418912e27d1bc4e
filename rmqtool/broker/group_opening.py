"""From what a person asks of a group to its topics, queues, members and progress."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from rmqtool.broker.client_offsets import LocalOffsets, client_id
from rmqtool.broker.group_consumer import Consumption, GroupConsumer, SendBack
from rmqtool.broker.group_progress import BroadcastProgress, GroupProgress, Progress, Start
from rmqtool.broker.offset_requests import OffsetRequests
from rmqtool.broker.offsets import ConsumerOffsets
from rmqtool.broker.queue_view import StoredQueueView, StoredView
from rmqtool.broker.subscription import EVERYTHING, Subscription
from rmqtool.config import StoreConfig
from rmqtool.engine.clock import Clock
from rmqtool.errors import NotFound, UsageError
from rmqtool.filters.patterns import TopicPatterns
from rmqtool.formats.message_queues import MessageQueue
from rmqtool.formats.topics import retry_topic

_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Asked:
    """What is to be consumed, and how. An empty ``group`` is nobody's: a look from outside."""

    group: str
    topics: TopicPatterns
    wanted: Subscription
    start: Start
    queue_id: int | None = None
    members: int = 1
    orderly: bool = False
    broadcasting: bool = False
    # Whether progress is stored.
    keeps: bool = False

    @property
    def client_ids(self) -> tuple[str, ...]:
        """The members' ids. Those of broadcasting consumers stay the same, so that each finds its file again."""
        if self.broadcasting:
            names = ["DEFAULT"] if self.members == 1 else [str(number) for number in range(1, self.members + 1)]
        else:
            names = [f"{os.getpid()}#{number}" for number in range(1, self.members + 1)]
        return tuple(client_id(_HOST, name) for name in names)


@dataclass(frozen=True)
class Known:
    """What a store knows: the settings of topics, queues that ever held a message, topics that groups progressed in."""

    topics: Mapping[str, Mapping[str, Any]]
    queues: Collection[tuple[str, int]]
    progressed: Collection[tuple[str, str]]
    config: StoreConfig

    @property
    def topic_names(self) -> list[str]:
        """Every topic that has settings or messages."""
        return sorted({*self.topics, *(topic for topic, _ in self.queues)})

    def queues_of(self, topic: str, queue_id: int | None) -> list[MessageQueue]:
        """Return the queues of a topic that are read, or the one of a number."""
        count = int(self.topics.get(topic, {}).get("readQueueNums") or 0)
        ids = {*range(count), *(number for name, number in self.queues if name == topic)}
        return [MessageQueue(topic, self.config.broker_name, one) for one in sorted(ids) if queue_id in (None, one)]


def subscribe(asked: Asked, known: Known) -> dict[str, Subscription]:
    """Return the topics of a group and what it wants of each; its retry topic is always among them.

    Raises ``NotFound`` for a topic or group that is not there.
    """
    found = asked.topics.select(known.topic_names) if asked.topics.patterns else _topics_of(asked.group, known)
    for pattern in asked.topics.patterns:
        if pattern not in found and not any(char in pattern for char in "*?["):
            raise _unknown("topic", pattern, known.topic_names, "rmqtool topic STORE list")
    if not found:
        raise NotFound(f"no topic is named like {', '.join(asked.topics.patterns)}", hint="rmqtool topic STORE list")
    subscriptions = dict.fromkeys(found, asked.wanted)
    retry = retry_topic(asked.group)
    if asked.group and not asked.broadcasting and asked.queue_id is None and retry in known.topic_names:
        subscriptions[retry] = EVERYTHING
    return subscriptions


def _topics_of(group: str, known: Known) -> list[str]:
    """Return the topics that a group has progress in."""
    if not group:
        raise UsageError("what is to be consumed?", hint="name a topic with -t, or a group that has consumed with -g")
    retry = retry_topic(group)
    found = sorted({topic for topic, name in known.progressed if name == group and topic != retry})
    if not found:
        groups = sorted({name for _, name in known.progressed})
        raise _unknown("group", group, groups, "name its topic with -t; a new group begins there")
    return found


def _unknown(kind: str, name: str, names: list[str], else_hint: str) -> NotFound:
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else else_hint
    return NotFound(f'there is no {kind} "{name}" in this store', hint=hint)


def group_progress(
    asked: Asked, known: Known, stored: StoredView, offsets: ConsumerOffsets | Mapping[str, LocalOffsets]
) -> Progress:
    """Return the progress of a group that is kept in the broker's table, or in a file for each broadcasting member."""
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
) -> GroupConsumer:
    """Return the group, its queues known and its members not yet there."""
    subscriptions = subscribe(asked, known)
    how = Consumption(
        group=asked.group,
        version=known.config.version,
        subscriptions=subscriptions,
        orderly=asked.orderly,
        broadcasting=asked.broadcasting,
        drops_failed=asked.broadcasting or not asked.keeps,
        send_back=send_back,
    )
    consumer = GroupConsumer(how, stored, progress, clock)
    consumer.set_queues(queue for topic in subscriptions for queue in known.queues_of(topic, asked.queue_id))
    return consumer
