"""Delay levels: the checks of §2.2 and §9.1."""

from __future__ import annotations

import pytest

from rmqtool.broker.services.events import Happened
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.errors import StoreError
from rmqtool.formats.topics import SCHEDULE_TOPIC
from tests.support.served import Served

BOTH = pytest.mark.parametrize("version", [Version.V4_9, Version.V5_3])


def events(happened: list[Happened]) -> list[str]:
    return [one.event for one in happened]


@BOTH
def test_c2_8_a_delayed_message_waits_in_the_queue_of_its_level(version: Version) -> None:
    record = Served(version).put("T", 2, DELAY="3")
    assert (record.topic, record.queue_id) == (SCHEDULE_TOPIC, 2)
    assert {"REAL_TOPIC": "T", "REAL_QID": "2", "DELAY": "3"}.items() <= record.properties.items()


@BOTH
def test_c2_9_a_level_above_the_highest_is_the_highest(version: Version) -> None:
    record = Served(version).put("T", DELAY="99")
    assert (record.queue_id, record.properties["DELAY"]) == (17, "18")


@BOTH
def test_c9_1_level_1_comes_after_a_second_and_not_before(version: Version) -> None:
    served = Served(version)
    served.put("T", DELAY="1")
    assert served.later(999) == []
    (told,) = served.later(1)
    assert told.event == "delivered"
    assert told.about == {"level": 1, "dueTimestamp": served.clock.wall}
    assert served.bodies("T") == [b"body"]
    assert served.later(10_000) == []


@BOTH
def test_c9_2_the_delivered_record_still_asks_for_the_delay(version: Version) -> None:
    served = Served(version)
    waiting = served.put("T", 1, DELAY="1", KEYS="k", mine="1")
    served.clock.advance(5)
    served.later(1000)
    (record,) = served.records("T")
    assert record.properties == waiting.properties
    assert record.raw_properties == waiting.raw_properties
    assert {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "1", "mine": "1"}.items() <= record.properties.items()
    assert (record.born_timestamp, record.queue_id) == (waiting.born_timestamp, 1)
    assert record.store_timestamp == waiting.store_timestamp + 1005


def test_flag_and_reconsume_times_and_hosts_stay() -> None:
    served = Served()
    host = (bytes((10, 1, 2, 3)), 7)
    served.store.put(
        NewMessage("T", b"x", 0, {"DELAY": "1"}, 9, 0x100, 5, host, (bytes((10, 9, 9, 9)), 8), reconsume_times=3)
    )
    served.later(1000)
    (record,) = served.records("T")
    assert (record.flag, record.sys_flag, record.reconsume_times, record.born_timestamp) == (9, 0x100, 3, 5)
    assert (record.born_host_ip, record.store_host_ip) == (host[0], bytes((10, 9, 9, 9)))


@BOTH
def test_c9_3_a_restart_between_store_and_deadline(version: Version) -> None:
    served = Served(version)
    served.put("T", DELAY="1", body=b"one")
    served.put("T", DELAY="2", body=b"two")
    served.later(1000)
    served.reopen()
    assert served.services.delay.offsets == ({1: 1} if version is Version.V4_9 else {1: 1, 2: 0})
    served.later(4000)
    assert served.bodies("T") == [b"one", b"two"]
    served.reopen()
    assert served.services.delay.offsets == {1: 1, 2: 1}
    assert served.later(100_000) == []


@BOTH
def test_c9_4_progress_that_was_not_saved_delivers_again(version: Version) -> None:
    served = Served(version)
    served.put("T", DELAY="1")
    served.later(1000)
    served.services = served.new_services()
    assert events(served.later(1)) == ["delivered"]
    assert served.bodies("T") == [b"body"] * 2


@BOTH
def test_progress_is_saved_ten_seconds_after_the_start_and_every_five(version: Version) -> None:
    served = Served(version)
    served.put("T", DELAY="1")
    served.later(9_999)
    assert not served.setup.files.exists("config/delayOffset.json")
    served.later(1)
    assert served.setup.files.exists("config/delayOffset.json")
    assert served.new_services().delay.offsets == {1: 1}


@BOTH
def test_c9_5_an_offset_beyond_the_queue_is_its_end(version: Version) -> None:
    served = Served(version)
    served.put("T", DELAY="1")
    served.services.delay._set(1, 99)
    served.services.delay._set(2, 5)
    served.services.delay.save()
    assert served.new_services().delay.offsets == {1: 1, 2: 0}


def test_c9_6_what_names_no_queue_stops_4_9_and_is_skipped_by_5() -> None:
    for version in (Version.V4_9, Version.V5_3):
        served = Served(version)
        bad = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "x"}
        served.store.put(NewMessage(SCHEDULE_TOPIC, b"bad", 0, bad | {"DELAY": "0"}))
        served.put("T", DELAY="1", body=b"good")
        # The first one is due by its tags code, which is 0.
        happened = served.later(1000)
        if version is Version.V4_9:
            assert events(happened) == ["stuck"]
            assert events(served.later(1000)) == ["stuck"]
            assert served.bodies("T") == []
        else:
            assert events(happened) == ["skipped", "delivered"]
            assert served.bodies("T") == [b"good"]


@BOTH
def test_levels_are_configurable_and_the_order_of_a_level_stays(version: Version) -> None:
    served = Served(version, messageDelayLevel="2s 1m")
    for number in range(50):
        served.put("T", number % 3, DELAY="1", body=b"%d" % number)
    served.put("T", DELAY="2", body=b"late")
    assert served.services.waiting()["delay"] == {"count": 51, "nextDue": served.clock.wall + 2000}
    assert len(served.later(2000)) == 50
    assert served.bodies("T") == [b"%d" % number for number in range(50)]
    assert served.services.waiting()["delay"] == {"count": 1, "nextDue": served.clock.wall + 58_000}
    served.later(58_000)
    assert served.bodies("T")[-1] == b"late"
    assert served.services.waiting()["delay"] == {"count": 0, "nextDue": None}


@BOTH
def test_a_due_time_beyond_the_delay_is_now(version: Version) -> None:
    served = Served(version)
    served.put("T", DELAY="1")
    served.clock.wall -= 3_600_000
    assert events(served.later(0)) == ["delivered"]


@BOTH
def test_one_at_a_time_stores_the_same(version: Version) -> None:
    logs = []
    for at_once in (1, 4096):
        served = Served(version)
        for number in range(9):
            served.put("T", number % 2, DELAY=str(number % 2 + 1), body=b"%d" % number)
        served.clock.advance(6000)
        assert len(list(served.services.iter_due(at_once))) == 9
        logs.append([(one.physical_offset, one.topic, one.raw_body, one.queue_offset) for one in served.records()])
    assert logs[0] == logs[1]


def test_half_messages_are_not_delivered() -> None:
    served = Served()
    served.put("RMQ_SYS_TRANS_HALF_TOPIC", DELAY="1")
    (told,) = served.later(1000)
    assert (told.event, told.about["reason"]) == ("skipped", "half message")
    assert served.records("RMQ_SYS_TRANS_HALF_TOPIC") == []


def test_a_store_that_takes_nothing_more_keeps_what_is_due() -> None:
    served = Served()
    served.put("T", DELAY="1")
    served.put("T", DELAY="1")
    from rmqtool.engine.health import RunningFlag

    served.store._engine.health.set(RunningFlag.NOT_WRITEABLE, True)
    assert events(served.later(1000)) == ["stuck"]
    served.store._engine.health.set(RunningFlag.NOT_WRITEABLE, False)
    assert events(served.later(0)) == ["delivered"] * 2


def test_progress_that_cannot_be_read_stops() -> None:
    served = Served()
    served.services.delay._set(1, 0)
    served.services.delay.save()
    with served.setup.files.open_write("config/delayOffset.json") as file:
        file.pwrite(b"{{{{", 0)
    with pytest.raises(StoreError, match="delayOffset"):
        served.new_services()
