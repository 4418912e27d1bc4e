"""The sliding window of a queue: the checks of §8.5."""

from __future__ import annotations

from random import Random

import pytest

from rmqtool.broker.consumer.consume_message import ConsumeConcurrentlyStatus, finish_batch
from rmqtool.broker.consumer.process_queue import CachedMessage, ProcessQueue

Window = ProcessQueue[str]
Cached = CachedMessage[str]
MINUTE = 60_000
SUCCESS, LATER = ConsumeConcurrentlyStatus


def cached(*queue_offsets: int) -> list[Cached]:
    return [CachedMessage(offset, 10, f"m{offset}") for offset in queue_offsets]


def window(*queue_offsets: int) -> tuple[Window, dict[int, Cached]]:
    found = Window()
    messages = cached(*queue_offsets)
    found.put(messages)
    return found, {message.queue_offset: message for message in messages}


def test_c8_7_progress_is_the_lowest_unfinished_offset() -> None:
    queue, messages = window(*range(10))
    for offset in (9, 1, 5, 2, 3, 4, 8, 7, 6):
        assert queue.remove([messages[offset]]) == 0
    assert queue.remove([messages[0]]) == 10
    assert (queue.count, queue.size, queue.span) == (0, 0, 0)


def test_c8_8_gaps_hold_nothing_back() -> None:
    queue, messages = window(0, 4, 9)
    assert queue.remove([messages[0]]) == 4
    assert queue.remove([messages[4], messages[9]]) == 10


def test_an_empty_window_has_nothing_to_commit() -> None:
    queue, messages = window(3)
    assert queue.remove([messages[3]]) == 4
    assert queue.remove([messages[3]]) == -1


def test_what_is_put_twice_counts_once() -> None:
    queue, _ = window(0, 1)
    again = CachedMessage(1, 99, "again")
    queue.put([again])
    assert (queue.count, queue.size, queue.find(1)) == (2, 20, again)


def test_what_is_finished_twice_counts_once() -> None:
    queue, messages = window(0, 1)
    queue.remove([messages[1]])
    assert queue.remove([messages[1]]) == 0
    assert (queue.count, queue.size) == (1, 10)


def test_c8_11_an_orderly_batch_commits_behind_its_last_message() -> None:
    queue, _ = window(3, 4, 5, 6)
    taken = queue.take(3)
    assert [message.queue_offset for message in taken] == [3, 4, 5]
    assert (queue.count, queue.size) == (4, 40), "what is taken is still cached"
    assert queue.commit() == 6
    assert (queue.count, queue.size) == (1, 10)
    assert queue.commit() == -1


def test_an_orderly_batch_that_is_rolled_back_comes_again_in_order() -> None:
    queue, _ = window(3, 4, 5, 6)
    queue.take(2)
    queue.rollback()
    assert queue.commit() == -1
    assert [message.queue_offset for message in queue.take(9)] == [3, 4, 5, 6]
    assert queue.is_empty


def test_some_of_a_batch_may_be_put_back() -> None:
    queue, messages = window(3, 4, 5)
    queue.take(3)
    queue.put_back([messages[5]])
    assert queue.commit() == 5
    assert [message.queue_offset for message in queue.take(9)] == [5]
    assert queue.count == 1


def test_c8_12_filtered_messages_do_not_hold_progress_back() -> None:
    queue, messages = window()
    assert queue.filtered_offset(800) == 800
    queue, messages = window(5)
    assert queue.filtered_offset(800) is None
    queue.take(1)
    assert queue.filtered_offset(800) is None, "it is being consumed"
    queue.commit()
    assert queue.filtered_offset(800) == 800
    assert messages[5].reconsume_times == 0


def test_a_message_that_takes_too_long_is_sent_back() -> None:
    queue, messages = window(*range(20))
    sent: list[tuple[int, int]] = []

    def send_back(message: Cached, level: int) -> bool:
        sent.append((message.queue_offset, level))
        return True

    messages[0].consume_start = 0
    assert queue.send_back_expired(15 * MINUTE, send_back) == 0
    assert queue.send_back_expired(15 * MINUTE + 1, send_back) == 1
    assert sent == [(0, 3)]
    assert queue.remove([messages[19]]) == 1
    for message in messages.values():
        message.consume_start = 0
    messages[3].consume_start = None
    assert queue.send_back_expired(16 * MINUTE, send_back) == 2
    messages[3].consume_start = 0
    assert queue.send_back_expired(16 * MINUTE, send_back) == 16, "no more at one look"
    assert [offset for offset, _ in sent] == [0, 1, 2, *range(3, 19)]


def test_a_message_that_cannot_be_sent_back_stays() -> None:
    queue, messages = window(0, 1)
    messages[0].consume_start = 0
    assert queue.send_back_expired(16 * MINUTE, lambda _message, _level: False) == 0
    assert queue.count == 2


def test_a_queue_that_is_not_pulled_from_expires() -> None:
    queue = Window(now=1_000)
    assert not queue.is_pull_expired(121_000)
    assert queue.is_pull_expired(121_001)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_fetching_and_finishing(seed: int) -> None:
    """Beside a model: the offsets that were put and not yet removed."""
    chance = Random(seed)
    queue, waiting, last, following = Window(), dict[int, Cached](), 0, 0
    for _ in range(400):
        if chance.random() < 0.5:
            following += chance.randrange(1, 4)
            message = CachedMessage(following, chance.randrange(100), "")
            queue.put([message])
            waiting[following], last = message, following
        elif waiting:
            done = chance.sample(sorted(waiting), min(len(waiting), chance.randrange(1, 4)))
            offset = queue.remove([waiting.pop(one) for one in done])
            assert offset == (min(waiting) if waiting else last + 1)
        assert queue.count == len(waiting)
        assert queue.size == sum(message.size for message in waiting.values())
        assert queue.span == (max(waiting) - min(waiting) if waiting else 0)


def test_a_batch_that_succeeds_is_done() -> None:
    queue, messages = window(0, 1, 2)
    refused: list[int] = []

    def send_back(message: Cached) -> bool:
        refused.append(message.queue_offset)
        return True

    assert finish_batch(queue, [messages[0], messages[1]], SUCCESS, send_back=send_back) == (2, [])
    assert refused == []


@pytest.mark.parametrize(
    ("status", "ack_index", "expected"),
    [
        (SUCCESS, 0, [1, 2]),
        (SUCCESS, -1, [0, 1, 2]),
        (SUCCESS, 99, []),
        (LATER, None, [0, 1, 2]),
        (LATER, 99, [0, 1, 2]),
    ],
)
def test_what_failed_is_sent_back_and_done(
    status: ConsumeConcurrentlyStatus, ack_index: int | None, expected: list[int]
) -> None:
    queue, messages = window(0, 1, 2)
    sent: list[int] = []

    def send_back(message: Cached) -> bool:
        sent.append(message.queue_offset)
        return True

    assert finish_batch(queue, list(messages.values()), status, send_back=send_back, ack_index=ack_index) == (3, [])
    assert sent == expected


def test_what_cannot_be_sent_back_is_tried_again_here_and_holds_progress() -> None:
    queue, messages = window(0, 1, 2)
    offset, retried = finish_batch(
        queue, list(messages.values()), LATER, send_back=lambda message: message.queue_offset != 1
    )
    assert (offset, retried) == (1, [messages[1]])
    assert messages[1].reconsume_times == 1
    assert finish_batch(queue, retried, SUCCESS, send_back=lambda _message: False) == (3, [])


def test_what_a_broadcasting_consumer_fails_at_is_dropped() -> None:
    queue, messages = window(0, 1)
    assert finish_batch(queue, list(messages.values()), LATER, send_back=None) == (2, [])


def test_what_was_sent_back_for_its_time_is_not_sent_back_again() -> None:
    queue, messages = window(0, 1)
    queue.remove([messages[0]])

    def send_back(message: Cached) -> bool:
        assert message.queue_offset == 1
        return True

    assert finish_batch(queue, list(messages.values()), LATER, send_back=send_back) == (2, [])


def test_a_queue_that_is_somebody_elses_by_now_is_not_committed() -> None:
    queue, messages = window(0, 1)
    queue.is_dropped = True
    assert finish_batch(queue, list(messages.values()), SUCCESS, send_back=None) == (-1, [])
