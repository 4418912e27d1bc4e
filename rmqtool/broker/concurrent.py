"""What becomes of a batch that was consumed in parallel with others.

Upstream: ``ConsumeMessageConcurrentlyService.processConsumeResult``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from rmqtool.broker.process_queue import CachedMessage, ProcessQueue

Payload = TypeVar("Payload")

# A failed message that could not be sent back is given to the consumer again after so long.
LOCAL_RETRY = 5_000


class ConsumeConcurrentlyStatus(StrEnum):
    """What the consumer says; an exception is RECONSUME_LATER."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


def finish_batch(
    window: ProcessQueue[Payload],
    messages: Sequence[CachedMessage[Payload]],
    status: ConsumeConcurrentlyStatus,
    *,
    send_back: Callable[[CachedMessage[Payload]], bool] | None,
    ack_index: int | None = None,
) -> tuple[int, list[CachedMessage[Payload]]]:
    """Take a batch out of its window; return the offset to commit, and what must be consumed again here.

    Messages behind ``ack_index`` failed. ``send_back`` has the broker retry a message and says whether it will; a
    broadcasting consumer has none, and what failed is dropped. The offset is -1 when nothing is to be committed; it
    only ever increases. What could not be sent back stays in the window, to be tried again after LOCAL_RETRY.
    """
    done = len(messages) if status is ConsumeConcurrentlyStatus.CONSUME_SUCCESS else 0
    if done and ack_index is not None:
        done = min(max(ack_index + 1, 0), done)
    retried = []
    if send_back is not None:
        for message in messages[done:]:
            # One that took too long has been sent back already.
            if window.find(message.queue_offset) is message and not send_back(message):
                message.reconsume_times += 1
                retried.append(message)
    kept = {message.queue_offset for message in retried}
    offset = window.remove([message for message in messages if message.queue_offset not in kept])
    return (-1 if window.is_dropped else offset), retried
