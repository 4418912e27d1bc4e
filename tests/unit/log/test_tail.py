"""The last messages of a log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqtool.filters.wanted import parse_patterns
from rmqtool.log.order import find_last_place
from rmqtool.log.ranges import Effort
from rmqtool.log.select import Selection
from rmqtool.log.stream import iter_parts
from tests.support.stores import truth
from tests.unit.log.test_stream import EVERYTHING, offsets, plan_of, truth_offsets


def last(root, selection: Selection, count: int) -> list[int]:
    plan = plan_of(root)
    bounded = replace(selection, physical_from=find_last_place(plan, selection, count, Effort()))
    return offsets(iter_parts(plan, bounded, Effort()))


@pytest.mark.parametrize("name", ["49-basic", "53-broker", "49-dledger", "49-ghost", "49-cleaned", "49-multidir"])
@pytest.mark.parametrize("count", [1, 7, 100, 200])
def test_the_last_messages(name, count, store):
    assert last(store(name), EVERYTHING, count) == truth_offsets(name)[-count:]


def test_more_than_there_are(store):
    assert last(store("49-basic"), EVERYTHING, 10_000) == truth_offsets("49-basic")


def test_of_one_queue(store):
    messages = [m for m in truth("49-basic")["messages"] if m["topic"] == "TopicTest" and m["queueId"] == 1]
    selection = Selection(topics=parse_patterns(["TopicTest"]), queue_id=1)
    assert last(store("49-basic"), selection, 30) == [m["commitLogOffset"] for m in messages[-30:]]
    assert len(messages) > 30


def test_of_a_topic_that_is_not_there(store):
    assert last(store("49-basic"), Selection(topics=parse_patterns(["Nobody"])), 5) == []


def test_an_empty_log(tmp_path):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    assert last(tmp_path, EVERYTHING, 5) == []
