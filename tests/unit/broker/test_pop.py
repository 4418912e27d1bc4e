"""Pop consumption: what is popped is out of sight, comes back unless it is acked, and never twice at once."""

from __future__ import annotations

from random import Random
from typing import Any

from rmqtool.broker.services.pop import Popped
from rmqtool.config import Version
from rmqtool.engine.get import TagFilter
from rmqtool.filters.tags import parse_tags
from rmqtool.formats.ids import decode_pop_receipt, encode_pop_receipt
from rmqtool.formats.topics import REVIVE_GROUP
from tests.support.served import Served

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def a_broker(messages: int = 4, **settings: Any) -> Served:
    served = Served(Version.V5_3, reviveQueueNum=2, popFromRetryProbability=0, **settings)
    served.services.tick()
    for number in range(messages):
        served.put("T", 0, b"%d" % number, TAGS="a" if number % 2 else "b")
    return served


def pop(served: Served, most: int = 32, invisible: int = 10_000, **more: Any) -> list[Popped]:
    found = served.services.pops.pop("g", "T", [0], most, invisible, **more)
    served.store.dispatch_now()
    return found


def ack(served: Served, popped: Popped) -> None:
    assert served.services.pops.ack("g", "T", popped.receipt).is_ok


def revived_in(served: Served, seconds: int) -> list[tuple[int, bytes]]:
    """Let second after second pass; return which messages came back when."""
    return [
        (second, one.message.raw_body)
        for second in range(1, seconds + 1)
        for one in served.later(1000)
        if one.event == "revived" and one.message is not None
    ]


def bodies(popped: list[Popped]) -> list[bytes]:
    return [one.record.raw_body for one in popped]


def test_what_is_popped_is_out_of_sight_and_acked_messages_stay_away() -> None:
    served = a_broker()
    found = pop(served)
    assert bodies(found) == [b"0", b"1", b"2", b"3"]
    assert pop(served) == []
    for one in found:
        ack(served, one)
    assert revived_in(served, 30) == []
    assert served.services.waiting()["pop"]["count"] == 0
    assert served.services.offsets.query_offset("g", "T", 0) == 4


def test_what_is_not_acked_comes_back_to_the_retry_topic() -> None:
    served = a_broker()
    found = pop(served)
    ack(served, found[0])
    ack(served, found[2])
    came_back = revived_in(served, 30)
    assert [body for _, body in came_back] == [b"1", b"3"]
    # Invisible for ten seconds, then as long as acks may take to arrive, and the clock to speak for itself.
    assert {second for second, _ in came_back} <= set(range(12, 17))
    again = pop(served)
    assert bodies(again) == [b"1", b"3"]
    record = again[0].record
    assert (record.topic, record.reconsume_times, record.queue_id) == ("%RETRY%g_T", 1, 0)
    assert record.properties["1ST_POP_TIME"] == str(found[0].receipt.pop_time)
    assert record.born_timestamp == found[1].record.born_timestamp
    assert [one.receipt.retry_flag for one in again] == ["1", "1"]
    for one in again:
        ack(served, one)
    assert revived_in(served, 30) == []


def test_a_message_comes_back_as_often_as_nobody_acks_it() -> None:
    served = a_broker(1)
    times = []
    for _ in range(3):
        (one,) = pop(served)
        times.append((one.record.reconsume_times, one.record.properties.get("1ST_POP_TIME")))
        assert len(revived_in(served, 30)) == 1
    first = times[1][1]
    assert times == [(0, None), (1, first), (2, first)]


def test_more_time_is_a_check_point_of_its_own() -> None:
    served = a_broker(2)
    first, second = pop(served)
    ack(served, second)
    changed = served.services.pops.change_invisible("g", "T", first.receipt, 60_000)
    assert changed is not None
    assert (changed.check_point_offset, changed.invisible_time, changed.queue_offset) == (0, 60_000, 0)
    assert revived_in(served, 50) == []
    assert [body for _, body in revived_in(served, 30)] == [b"0"]


def test_the_changed_receipt_acks() -> None:
    served = a_broker(1)
    (one,) = pop(served)
    changed = served.services.pops.change_invisible("g", "T", one.receipt, 30_000)
    assert changed is not None
    assert served.services.pops.ack("g", "T", changed).is_ok
    assert revived_in(served, 60) == []


def test_receipts_survive_as_text() -> None:
    served = a_broker(1)
    (one,) = pop(served)
    assert decode_pop_receipt(encode_pop_receipt(one.receipt)) == one.receipt


def test_check_points_go_round_the_revive_queues() -> None:
    served = a_broker(4)
    assert [pop(served, 1)[0].receipt.revive_queue_id for _ in range(4)] == [0, 1, 0, 1]


def test_a_filter_leaves_gaps_in_the_check_point() -> None:
    served = a_broker(6)
    found = pop(served, message_filter=TagFilter(parse_tags("a")))
    assert bodies(found) == [b"1", b"3", b"5"]
    ack(served, found[1])
    assert [body for _, body in revived_in(served, 30)] == [b"1", b"5"]


def test_a_restart_forgets_nothing() -> None:
    served = a_broker(3)
    found = pop(served)
    ack(served, found[1])
    served.reopen()
    assert pop(served) == []
    assert [body for _, body in revived_in(served, 30)] == [b"0", b"2"]
    served.reopen()
    assert revived_in(served, 30) == []
    assert bodies(pop(served)) == [b"0", b"2"]


def test_revived_but_not_saved_is_revived_again() -> None:
    served = a_broker(1)
    pop(served)
    served.services.save()
    came_back = revived_in(served, 12)
    served.services.close()
    served.services = served.new_services()
    came_back += revived_in(served, 30)
    assert {body for _, body in came_back} == {b"0"}
    assert served.services.offsets.query_offset(REVIVE_GROUP, REVIVE, 0) == 0


def test_the_retry_topic_goes_first_now_and_then() -> None:
    served = a_broker(
        1,
    )
    served.services.pops._chance = Random(1)
    pop(served)
    revived_in(served, 30)
    served.put("T", 0, b"new")
    assert bodies(pop(served, 2)) == [b"new", b"0"]
