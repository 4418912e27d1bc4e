"""Retries and dead letters: the checks of §9.4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.formats.commit_log import Message
from rmqtool.formats.topics import SCHEDULE_TOPIC
from tests.support.served import Served

BOTH = pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])


def failed(served: Served, reconsume_times: int = 0, **properties: str) -> Message:
    """Store a message that a consumer could not consume."""
    ticket = served.store.put(NewMessage("T", b"x", 2, {"WAIT": "true", **properties}, reconsume_times=reconsume_times))
    return served.record(ticket.physical_offset)


def last(served: Served) -> Message:
    return served.records()[-1]


@BOTH
def test_c9_16_a_first_failure_waits_on_level_3(version: Version) -> None:
    served = Served(version)
    first = failed(served, UNIQ_KEY="u", mine="1")
    served.services.retry.send_back("g", first)
    back = last(served)
    assert (back.topic, back.queue_id, back.reconsume_times) == (SCHEDULE_TOPIC, 2, 1)
    assert back.properties == {
        "REAL_TOPIC": "%RETRY%g",
        "REAL_QID": "0",
        "RETRY_TOPIC": "T",
        "DELAY": "3",
        "WAIT": "false",
        "UNIQ_KEY": "u",
        "mine": "1",
        "ORIGIN_MESSAGE_ID": f"7F00000100002A9F{first.physical_offset:016X}",
    }
    served.later(10_000)
    again = last(served)
    assert (again.topic, again.reconsume_times, again.properties) == ("%RETRY%g", 1, back.properties)
    assert served.services.topics.table["%RETRY%g"]["readQueueNums"] == 1
    served.services.retry.send_back("g", again)
    assert (last(served).queue_id, last(served).reconsume_times) == (3, 2)
    assert last(served).properties["ORIGIN_MESSAGE_ID"] == back.properties["ORIGIN_MESSAGE_ID"]


@BOTH
def test_c9_17_after_16_retries_it_is_a_dead_letter(version: Version) -> None:
    served = Served(version)
    served.services.retry.send_back("g", failed(served, 16))
    dead = last(served)
    assert (dead.topic, dead.queue_id, dead.properties["DELAY"], dead.reconsume_times) == ("%DLQ%g", 0, "0", 17)
    assert "REAL_TOPIC" not in dead.properties
    assert served.services.topics.table["%DLQ%g"]["writeQueueNums"] == 1


@pytest.mark.parametrize(
    ("times", "most", "level", "topic"),
    [(0, 1, 0, SCHEDULE_TOPIC), (1, 1, 0, "%DLQ%g"), (0, 16, -1, "%DLQ%g"), (0, 0, 5, "%DLQ%g")],
)
def test_the_consumer_may_say_how_often_and_how_late(times: int, most: int, level: int, topic: str) -> None:
    served = Served()
    served.services.retry.send_back("g", failed(served, times), level, most)
    assert last(served).topic == topic


def test_a_level_that_is_asked_for_is_taken() -> None:
    served = Served()
    served.services.retry.send_back("g", failed(served, 4), 1)
    assert (last(served).topic, last(served).queue_id) == (SCHEDULE_TOPIC, 0)


def test_the_group_says_how_often_when_the_consumer_does_not(tmp_path: object) -> None:
    served = Served()
    served.setup.files.mkdir("config")
    with served.setup.files.create("config/subscriptionGroup.json") as file:
        file.pwrite(
            b'{"subscriptionGroupTable":{"g":{"retryMaxTimes":2,"retryQueueNums":1},"none":{"retryQueueNums":0}}}', 0
        )
    served.services = served.new_services()
    served.services.retry.send_back("g", failed(served, 1))
    assert last(served).topic == SCHEDULE_TOPIC
    served.services.retry.send_back("g", failed(served, 2))
    assert last(served).topic == "%DLQ%g"
    before = len(served.records())
    assert served.services.retry.send_back("none", failed(served, 2)) is None
    assert len(served.records()) == before + 1


def test_store_host_is_the_brokers_own_since_5() -> None:
    for version, host in ((Version.V4_9, bytes((10, 0, 0, 9))), (Version.V5_3, bytes((127, 0, 0, 1)))):
        served = Served(version)
        first = failed(served)
        moved = replace_host(first)
        served.services.retry.send_back("g", moved)
        assert last(served).store_host_ip == host
        assert last(served).born_host_ip == first.born_host_ip


def replace_host(record: Message) -> Message:
    return record._replace(store_host_ip=bytes((10, 0, 0, 9)))


def test_what_an_ordered_consumer_gives_up_on() -> None:
    served = Served()
    first = failed(served, UNIQ_KEY="u", TRAN_MSG="true")
    served.clock.advance(77)
    served.services.retry.give_up("g", first, 3, 2)
    dead = last(served)
    assert (dead.topic, dead.queue_id, dead.reconsume_times) == ("%DLQ%g", 0, 3)
    assert dead.properties == {
        "WAIT": "true",
        "UNIQ_KEY": "u",
        "ORIGIN_MESSAGE_ID": "u",
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "2",
        "MIN_OFFSET": "0",
        "MAX_OFFSET": "0",
        "DELAY": "-1",
    }
    assert dead.born_timestamp == served.clock.wall


def test_all_retries_of_the_schedule_then_the_dead_letter() -> None:
    served = Served()
    record = failed(served)
    levels = []
    while record.topic != "%DLQ%g":
        served.services.retry.send_back("g", record)
        if last(served).topic == SCHEDULE_TOPIC:
            levels.append(last(served).queue_id + 1)
            served.later(2 * 3_600_000)
        record = last(served)
    assert levels == list(range(3, 19))
    assert record.reconsume_times == 17


def test_a_message_without_properties_can_be_sent_back() -> None:
    served = Served()
    ticket = served.store.put(replace(NewMessage("T", b"x")))
    served.services.retry.send_back("g", served.record(ticket.physical_offset))
    assert last(served).properties["RETRY_TOPIC"] == "T"
