"""Timers of 5.x: the checks of §2.3 and §9.2."""

from __future__ import annotations

import pytest

from rmqtool.broker.services.events import Happened
from rmqtool.broker.services.tick import Services
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage, PutStatus
from rmqtool.formats import layouts
from rmqtool.formats.java import LONG_MAX
from rmqtool.formats.timer import SLOT_SIZE, WHEEL_SIZE, wheel_slot
from rmqtool.formats.topics import TIMER_TOPIC
from tests.support.served import Served

SMALL_LOG: dict[str, int] = {"mappedFileSizeTimerLog": 52 * 5 + 30}


def served_with(version: Version = Version.V5_3, **settings: object) -> Served:
    served = Served(version, **(SMALL_LOG | settings))
    served.services.tick()
    return served


def events(happened: list[Happened]) -> list[str]:
    return [one.event for one in happened if one.service == "timer"]


def pass_seconds(served: Served, seconds: int) -> list[tuple[int, str]]:
    """Let second after second pass; return when what happened."""
    return [(second, event) for second in range(1, seconds + 1) for event in events(served.later(1000))]


def test_c2_10_a_timer_waits_in_the_topic_of_the_wheel() -> None:
    served = served_with()
    record = served.put("T", 2, TIMER_DELAY_SEC="10")
    assert (record.topic, record.queue_id) == (TIMER_TOPIC, 0)
    assert {"REAL_TOPIC": "T", "REAL_QID": "2"}.items() <= record.properties.items()
    # The clock stands at a whole second: one step less.
    assert int(record.properties["TIMER_OUT_MS"]) == served.clock.wall + 9000


def test_c2_11_what_is_due_is_stored_where_it_belongs() -> None:
    served = served_with()
    assert served.put("T", TIMER_DELIVER_MS=str(served.clock.wall - 1)).topic == "T"


def test_c9_7_a_timer_of_five_seconds() -> None:
    served = served_with()
    served.clock.advance(300)
    sent = served.clock.wall
    waiting = served.put("T", 1, TIMER_DELAY_MS="5000", KEYS="k")
    served.later(0)
    assert events(served.later(4999)) == []
    assert events(served.later(701)) == ["delivered"]
    (record,) = served.records("T")
    assert 5000 <= record.store_timestamp - sent <= 6200
    assert record.properties == waiting.properties | {
        "TIMER_ENQUEUE_MS": str(sent - 300),
        "TIMER_DEQUEUE_MS": str(served.clock.wall),
    }
    assert {"REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS"} <= record.properties.keys()
    assert record.queue_id == 1
    assert events(served.later(100_000)) == []


def test_c9_8_a_timer_beyond_three_days_is_refused() -> None:
    served = served_with()
    ticket = served.store.put(NewMessage("T", b"x", properties={"TIMER_DELAY_SEC": str(3 * 86_400 + 1)}))
    assert ticket.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL


@pytest.mark.parametrize(
    ("version", "key", "is_cancelled"),
    [
        (Version.V5_3, "T+u", True),
        (Version.V5_3, "u", False),
        (Version.V5_3, "other+u", False),
        (Version.V5_4, "u", True),
        (Version.V5_4, "T+u", True),
        (Version.V5_4, "other+u", False),
    ],
)
def test_c9_9_a_cancel_of_the_same_second(version: Version, key: str, is_cancelled: bool) -> None:
    served = served_with(version)
    due = str(served.clock.wall + 5500)
    served.put("T", TIMER_DELIVER_MS=due, UNIQ_KEY="u", body=b"victim")
    served.put("T", TIMER_DELIVER_MS=due, UNIQ_KEY="v", body=b"other")
    served.put("T", TIMER_DELIVER_MS=due, TIMER_DEL_UNIQKEY=key)
    assert served.services.waiting()["timer"]["count"] == 3
    happened = pass_seconds(served, 8)
    assert happened == [(6, "cancelled"), (6, "delivered")] if is_cancelled else [(6, "delivered")] * 2
    assert served.bodies("T") == ([b"other"] if is_cancelled else [b"victim", b"other"])


def test_c9_9_a_cancel_of_another_second_is_too_late() -> None:
    served = served_with()
    served.put("T", TIMER_DELIVER_MS=str(served.clock.wall + 5500), UNIQ_KEY="u")
    served.put("T", TIMER_DELIVER_MS=str(served.clock.wall + 6500), TIMER_DEL_UNIQKEY="T+u")
    assert pass_seconds(served, 9) == [(6, "delivered")]


def test_c9_9a_what_is_further_away_than_the_window_rolls() -> None:
    served = served_with(timerRollWindowSlot=6)
    served.put("T", TIMER_DELAY_SEC="11")
    # Less than a third of a window beyond it would be half a window; this is a whole one.
    assert pass_seconds(served, 14) == [(8, "rolled"), (11, "delivered")]
    (record,) = served.records("T")
    assert record.properties["TIMER_ROLL_TIMES"] == "1"
    rolled = served.records(TIMER_TOPIC)[-1]
    assert (rolled.properties["TIMER_ROLL_TIMES"], rolled.properties["REAL_TOPIC"]) == ("1", "T")


def test_c9_9b_what_is_overdue_when_it_is_read_is_delivered_at_once() -> None:
    served = served_with()
    out = str(served.clock.wall - 5000)
    served.put(TIMER_TOPIC, 0, TIMER_OUT_MS=out, REAL_TOPIC="T", REAL_QID="3")
    assert events(served.later(0)) == ["delivered"]
    (record,) = served.records("T")
    assert (record.properties["TIMER_ENQUEUE_MS"], record.queue_id) == (str(LONG_MAX), 3)


def test_a_restart_goes_on_where_it_was() -> None:
    served = served_with()
    for number in range(20):
        served.put("T", TIMER_DELAY_MS=str(2500 + number % 4 * 1000), body=b"%d" % number)
    served.later(3000)
    served.reopen()
    assert served.services.waiting()["timer"]["count"] == 15
    assert served.services.waiting()["timer"]["nextDue"] == served.clock.wall + 1000
    served.later(10_000)
    assert sorted(served.bodies("T"), key=int) == [b"%d" % number for number in range(20)]
    served.reopen()
    assert served.services.waiting()["timer"] == {"count": 0, "nextDue": None}


@pytest.mark.parametrize("lost", ["timerwheel", "config/timercheck", "both"])
def test_the_wheel_is_made_again_from_the_log(lost: str) -> None:
    served = served_with()
    for number in range(12):
        served.put("T", TIMER_DELAY_MS=str(2500 + number % 3 * 1000), body=b"%d" % number)
    served.later(0)
    served.services.save()
    served.services.close()
    for path in ("timerwheel", "config/timercheck"):
        if lost in (path, "both"):
            served.setup.files.unlink(path)
    served.services = served.new_services()
    assert served.services.waiting()["timer"]["count"] == 12
    served.later(20_000)
    assert sorted(served.bodies("T"), key=int) == [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("last_pos", [LONG_MAX, 52 * 30])
def test_a_slot_that_points_past_the_end_of_the_log_is_made_again(last_pos: int) -> None:
    """A broker's wheel reaches the disk by itself: after a power cut it may be ahead of the log."""
    served = served_with()
    due = served.clock.wall + 5500
    for number in range(3):
        served.put("T", TIMER_DELIVER_MS=str(due), body=b"%d" % number)
    served.later(0)
    served.services.save()
    served.services.close()
    place = wheel_slot(due) * SLOT_SIZE
    with served.setup.files.open_write("timerwheel") as file:
        slot = layouts.TIMER_SLOT.decode(file.pread(SLOT_SIZE, place))
        assert (slot.last_pos, slot.num) == (104, 3)
        file.pwrite(layouts.TIMER_SLOT.encode(slot._replace(last_pos=last_pos)), place)
    served.services = served.new_services()
    served.put("T", TIMER_DELIVER_MS=str(due), body=b"3")
    served.later(8000)
    assert served.bodies("T") == [b"0", b"1", b"2", b"3"]


def test_a_wheel_without_a_size_is_a_new_one() -> None:
    """A kill between the name of the file and its size leaves this."""
    served = served_with()
    served.put("T", TIMER_DELAY_MS="2500", body=b"one")
    served.later(0)
    served.services.save()
    served.services.close()
    served.setup.files.unlink("timerwheel")
    served.setup.files.create("timerwheel").close()
    served.services = served.new_services()
    assert served.services.waiting()["timer"]["count"] == 1
    served.later(20_000)
    assert served.bodies("T") == [b"one"]
    served.services.save()
    assert served.setup.files.stat("timerwheel").size == WHEEL_SIZE


def test_what_was_not_saved_is_taken_from_the_topic_again() -> None:
    served = served_with()
    served.put("T", TIMER_DELAY_MS="2500", body=b"one")
    served.later(0)
    served.services.save()
    served.put("T", TIMER_DELAY_MS="3500", body=b"two")
    served.later(0)
    served.services.close()
    served.services = served.new_services()
    assert served.services.waiting()["timer"]["count"] == 2
    served.later(20_000)
    assert served.bodies("T") == [b"one", b"two"]


def test_overdue_ones_come_after_a_long_stop_too() -> None:
    served = served_with()
    served.put("T", TIMER_DELAY_SEC="100000")
    served.later(0)
    served.reopen()
    # upstream: after seven days the slot is passed by.
    assert events(served.later(8 * 86_400_000)) == ["delivered"]


def test_a_store_without_timers_gets_no_file() -> None:
    served = served_with()
    served.put("T")
    served.later(5000)
    served.services.save()
    names = {entry.name for entry in served.setup.files.listdir("")}
    assert not {"timerwheel", "timerlog"} & names


def test_a_full_slot_keeps_its_order() -> None:
    served = served_with()
    for number in range(100):
        served.put("T", TIMER_DELAY_MS="2500", body=b"%d" % number)
    assert len(pass_seconds(served, 5)) == 100
    assert served.bodies("T") == [b"%d" % number for number in range(100)]


def test_a_store_that_takes_nothing_keeps_what_is_due() -> None:
    from rmqtool.engine.health import RunningFlag

    served = served_with()
    served.put("T", TIMER_DELAY_MS="2500")
    served.later(0)
    served.store._engine.health.set(RunningFlag.NOT_WRITEABLE, True)
    assert events(served.later(5000)) == ["stuck"] * 2
    served.store._engine.health.set(RunningFlag.NOT_WRITEABLE, False)
    assert events(served.later(0)) == ["delivered"]


def test_4_9_has_no_wheel() -> None:
    served = Served(Version.V4_9)
    assert isinstance(served.services, Services)
    assert not served.services.timers.is_enabled


def last_messages(served: Served) -> dict[str, int]:
    """Return of each file of the timer log where the message of its last unit lies; read as the layout says."""
    files, found = served.setup.files, {}
    for entry in files.listdir("timerlog"):
        with files.open_read(f"timerlog/{entry.name}") as file:
            found[entry.name] = int.from_bytes(file.pread(8, 4 * 52 + 28), "big")
    return found


def test_files_of_the_timer_log_go_with_the_messages_of_their_last_units() -> None:
    served = served_with(mappedFileSizeCommitLog=1 << 12)
    for _ in range(40):
        served.put("T", 0, b"x" * 100, TIMER_DELAY_SEC="5")
    served.later(0)
    assert events(served.later(10_000)).count("delivered") == 40
    served.services.save()
    before = last_messages(served)
    assert len(before) == 8
    served.clock.advance(80 * 3_600_000)
    served.put("T", 0, b"new", TIMER_DELAY_SEC="5")
    served.store.clean_at_any_hour()
    served.clock.advance(1000)
    assert "expired" in events([*served.services.iter_due(), *served.services.iter_expired()])
    left = served.store.condition().min_offset
    kept = last_messages(served)
    # The last file has room for more, and is never judged by what stands where its last unit will be.
    gone = [name for name in sorted(before) if before[name] < left][: len(before) - 1]
    assert gone
    assert sorted(kept) == [name for name in sorted(before) if name not in gone] + sorted(kept.keys() - before.keys())
    served.reopen()
    assert events(served.later(10_000)).count("delivered") == 1
    assert [record.raw_body for record in served.records("T")][-1] == b"new"


def test_no_file_of_the_timer_log_goes_that_the_checkpoint_has_not_passed() -> None:
    served = served_with(mappedFileSizeCommitLog=1 << 12)
    saved = served.services.timers._saved
    for _ in range(40):
        served.put("T", 0, b"x" * 100, TIMER_DELAY_SEC="5")
    served.later(0)
    served.later(10_000)
    served.clock.advance(80 * 3_600_000)
    served.store.clean_at_any_hour()
    assert served.store.clean_now().segments
    assert len(last_messages(served)) == 8
    served.services.timers._saved = saved
    assert list(served.services.timers.iter_clean()) == []
