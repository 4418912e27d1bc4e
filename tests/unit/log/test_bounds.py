"""Where in a log the first wanted message may lie."""

from __future__ import annotations

import struct

import pytest

from rmqtool.filters.wanted import parse_patterns
from rmqtool.log.by_queues import bound_by_queues
from rmqtool.log.queue_entries import queue_files_of
from rmqtool.log.select import Selection
from rmqtool.log.sources import logs_of
from rmqtool.store.open import open_store
from tests.support.stores import truth


def bound(root, selection: Selection) -> int:
    opened = open_store(str(root))
    try:
        return bound_by_queues(logs_of(opened), queue_files_of(opened), selection).physical_from
    finally:
        opened.close()


def queue_selection(offset, topic="TopicTest", queue_id=1):
    return Selection(topics=parse_patterns([topic]), queue_id=queue_id, least_offset=offset)


@pytest.mark.parametrize("name", ["49-basic", "49-cleaned"])
def test_a_dispatched_message(name, store):
    compared = 0
    for topic, queues in truth(name)["queues"].items():
        for number, told in queues.items():
            for index, unit in enumerate(told["units"]):
                if unit[0] >= truth(name)["min_phy"] and told["unitsFrom"] + index > 0 and index % 7 == 0:
                    offset = told["unitsFrom"] + index
                    assert bound(store(name), queue_selection(offset, topic, int(number))) == unit[0]
                    compared += 1
    assert compared > 5


def test_behind_the_end_the_last_message_bounds(store):
    told = truth("49-basic")["queues"]["TopicTest"]["1"]
    assert bound(store("49-basic"), queue_selection(10_000)) == told["units"][-1][0]


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        queue_selection(None),
        queue_selection(5, queue_id=None),
        queue_selection(5, topic="Topic*"),
        queue_selection(5, topic="Nobody"),
        Selection(least_offsets={("TopicTest", 1): 5}),  # of its other queues everything is wanted
    ],
)
def test_where_queues_do_not_tell_nothing_is_left_out(selection, store):
    assert bound(store("49-basic"), selection) == 0


def test_of_several_queues_the_first(store):
    queues = truth("49-basic")["queues"]["TopicTest"]
    least = {("TopicTest", int(number)): 4 for number in queues}
    expected = min(queue["units"][4][0] for queue in queues.values())
    assert bound(store("49-basic"), Selection(least_offsets=least)) == expected


def test_a_unit_that_the_log_does_not_confirm_is_not_believed(writable_store):
    root = writable_store("49-basic")
    units = truth("49-basic")["queues"]["TopicTest"]["1"]["units"]
    path = min((root / "consumequeue" / "TopicTest" / "1").iterdir())
    with path.open("r+b") as file:
        file.seek(20 * 5)
        file.write(struct.pack(">q", units[9][0]))
    assert bound(root, queue_selection(5)) == 0
    assert bound(root, queue_selection(6)) == units[6][0]
