"""When a consumer may fetch more. Upstream: ``DefaultMQPushConsumerImpl.pullMessage``, ``messageQueueChanged``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from rmqtool.broker.process_queue import ProcessQueue

MIB = 1 << 20
UNLIMITED = -1

# How long (ms) a pull is put off: because of too much in the window, a paused consumer, an error, a busy broker.
FLOW_CONTROL_PAUSE, PAUSED_PAUSE, ERROR_PAUSE, BUSY_PAUSE = 50, 1_000, 1_000, 20
PULL_BATCH_SIZE = 32


@dataclass(frozen=True)
class Thresholds:
    """How much of one queue a consumer keeps; sizes in MiB. The ones of a topic are shared by its queues."""

    count: int = 1000
    size: int = 100
    span: int = 2000
    topic_count: int = UNLIMITED
    topic_size: int = UNLIMITED

    def shared_by(self, queues: int) -> Thresholds:
        """Return the thresholds of one queue when a consumer has so many of the topic."""
        found = self
        if queues and self.topic_count != UNLIMITED:
            found = replace(found, count=max(1, self.topic_count // queues))
        if queues and self.topic_size != UNLIMITED:
            found = replace(found, size=max(1, self.topic_size // queues))
        return found


class Reason(StrEnum):
    """Why a queue is not pulled from now."""

    DROPPED = "the queue was given to another consumer"
    NOT_RUNNING = "the consumer does not run"
    PAUSED = "the consumer is paused"
    COUNT = "too many messages wait"
    SIZE = "too many bytes wait"
    SPAN = "the first message that waits lies too far behind the last"
    NOT_LOCKED = "the queue is not locked"


@dataclass(frozen=True)
class Refusal:
    """Why there is no pull, and after how long (ms) to ask again; None: never."""

    reason: Reason
    pause: int | None


@dataclass
class ConsumerState:
    """What of a consumer decides about its pulls."""

    is_running: bool = True
    is_paused: bool = False
    is_orderly: bool = False


def check_pull(window: ProcessQueue[Any], state: ConsumerState, thresholds: Thresholds) -> Refusal | None:
    """Return why nothing may be pulled into a window, None when it may. The first reason counts."""
    if window.is_dropped:
        return Refusal(Reason.DROPPED, None)
    if not state.is_running:
        return Refusal(Reason.NOT_RUNNING, ERROR_PAUSE)
    if state.is_paused:
        return Refusal(Reason.PAUSED, PAUSED_PAUSE)
    if window.count > thresholds.count:
        return Refusal(Reason.COUNT, FLOW_CONTROL_PAUSE)
    if window.size // MIB > thresholds.size:
        return Refusal(Reason.SIZE, FLOW_CONTROL_PAUSE)
    if state.is_orderly:
        return None if window.is_locked else Refusal(Reason.NOT_LOCKED, ERROR_PAUSE)
    return Refusal(Reason.SPAN, FLOW_CONTROL_PAUSE) if window.span > thresholds.span else None
