"""When a consumer may fetch more: §12.5."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.broker.consumer.process_queue import (
    MIB,
    CachedMessage,
    ConsumerState,
    ProcessQueue,
    Reason,
    Refusal,
    Thresholds,
    check_pull,
)

RUNNING, ORDERLY = ConsumerState(), ConsumerState(is_orderly=True)


def window(*queue_offsets: int, size: int = 1) -> ProcessQueue[Any]:
    queue = ProcessQueue[Any]()
    queue.put([CachedMessage(offset, size, None) for offset in queue_offsets])
    return queue


def test_c12_11_1001_messages_are_too_many() -> None:
    assert check_pull(window(*range(1000)), RUNNING, Thresholds()) is None
    assert check_pull(window(*range(1001)), RUNNING, Thresholds()) == Refusal(Reason.COUNT, 50)


def test_101_mebibytes_are_too_many() -> None:
    assert check_pull(window(0, size=101 * MIB - 1), RUNNING, Thresholds()) is None
    assert check_pull(window(0, size=101 * MIB), RUNNING, Thresholds()) == Refusal(Reason.SIZE, 50)


def test_a_span_above_2000_is_too_wide_unless_in_order() -> None:
    assert check_pull(window(7, 2007), RUNNING, Thresholds()) is None
    wide = window(7, 2008)
    assert check_pull(wide, RUNNING, Thresholds()) == Refusal(Reason.SPAN, 50)
    wide.is_locked = True
    assert check_pull(wide, ORDERLY, Thresholds()) is None


def test_an_ordered_queue_must_be_locked() -> None:
    assert check_pull(window(), ORDERLY, Thresholds()) == Refusal(Reason.NOT_LOCKED, 1000)


def test_the_first_reason_counts() -> None:
    queue = window(*range(1001), size=MIB)
    assert check_pull(queue, ConsumerState(is_paused=True), Thresholds()) == Refusal(Reason.PAUSED, 1000)
    stopped = ConsumerState(is_running=False, is_paused=True)
    assert check_pull(queue, stopped, Thresholds()) == Refusal(Reason.NOT_RUNNING, 1000)
    queue.is_dropped = True
    assert check_pull(queue, stopped, Thresholds()) == Refusal(Reason.DROPPED, None)


@pytest.mark.parametrize(
    ("thresholds", "queues", "expected"),
    [
        (Thresholds(), 4, Thresholds()),
        (Thresholds(topic_count=10, topic_size=7), 4, Thresholds(2, 1, topic_count=10, topic_size=7)),
        (Thresholds(topic_count=3, topic_size=3), 4, Thresholds(1, 1, topic_count=3, topic_size=3)),
        (Thresholds(topic_count=3, topic_size=3), 0, Thresholds(topic_count=3, topic_size=3)),
    ],
)
def test_thresholds_of_a_topic_are_shared_by_its_queues(
    thresholds: Thresholds, queues: int, expected: Thresholds
) -> None:
    assert thresholds.shared_by(queues) == expected
