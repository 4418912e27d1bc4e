"""What a check says is lost: the messages that stood in what is damaged, told by the units that lead there."""

from __future__ import annotations

from collections import Counter

from rmqtool.checks.check import Check
from rmqtool.store.open import open_store
from tests.support.schemas import validate
from tests.support.stores import truth

_SEGMENT = 65536


def test_the_messages_that_stood_in_zeros_are_counted_by_queue(writable_store):
    root = writable_store("53-broker")
    path = root / "commitlog" / f"{_SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[20_000:24_000] = bytes(4000)
    path.write_bytes(data)

    check = Check(open_store(str(root)))
    assert [(found.code, found.offset, found.length) for found in check if found.code == "CL-MID"] == [
        ("CL-MID", 20_044, 4500)
    ]
    struck = Counter(
        (message["topic"], message["queueId"])
        for message in truth("53-broker")["messages"]
        if 20_044 <= message["commitLogOffset"] - _SEGMENT < 24_544
    )
    assert check.summary.lost == struck
    assert sum(struck.values()) == 8
    validate("check-summary", check.summary.as_json())


def test_of_a_sound_store_nothing_is_lost(store):
    check = Check(open_store(str(store("53-broker"))))
    assert list(check) == []
    assert check.summary.lost == {}


def test_the_messages_behind_the_end_of_a_log_that_lost_its_tail_are_counted_by_queue(writable_store):
    root = writable_store("53-broker")
    path = root / "commitlog" / f"{3 * _SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[13_108:] = bytes(len(data) - 13_108)
    path.write_bytes(data)
    (root / "abort").touch()

    check = Check(open_store(str(root)))
    assert {found.code for found in check if found.code.startswith("CQ-")} == {"CQ-AHEAD"}
    gone = Counter(
        (topic, int(queue_id))
        for topic, queues in truth("53-broker")["queues"].items()
        for queue_id, queue in queues.items()
        for physical_offset, _, _ in queue["units"]
        if physical_offset >= 3 * _SEGMENT + 13_296
    )
    assert check.summary.lost == gone
    assert sum(gone.values()) == 26


def test_what_an_earlier_recovery_cut_off_is_not_lost_again(store):
    check = Check(open_store(str(store("49-recovered"))))
    assert "CQ-AHEAD" in {found.code for found in check}
    assert check.summary.lost == {}
