"""One rule says whether a queue entry is right, for what is named and for what is written."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from rmqtool.audit.due import UNIT, Units
from rmqtool.audit.queues import judge_units
from rmqtool.config import Version
from rmqtool.engine.parts import Setup
from rmqtool.engine.recovery.recover import recover
from rmqtool.engine.store import MessageStore
from rmqtool.files.filesystem import iter_tree
from rmqtool.formats.topics import SCHEDULE_TOPIC
from rmqtool.store.segments import SegmentQueue
from tests.support.engine_stores import a_message, read_bytes, small_setup

QUEUE = "consumequeue/T/0/00000000000000000000"
DUE = [(1000 + 100 * number, 100, 5_000_000) for number in range(4)]


def units(rows: list[tuple[int, int, int]]) -> Units:
    return np.array(rows, UNIT)


def judged(found: list[tuple[int, int, int]], topic: str = "T", ext: SegmentQueue | None = None) -> list[str]:
    """Return how each unit differs, "right" where it does not."""
    _, right, apart = judge_units(topic, units(DUE), units(found), ext)
    return ["right" if is_right else str(kind) for is_right, kind in zip(right.tolist(), apart, strict=True)]


def test_units_are_right_missing_or_lead_elsewhere():
    assert judged([DUE[0], (0, 0, 0), (7, 100, 5_000_000), (1300, 99, 5_000_000)]) == [
        "right",
        "missing",
        "wrong",
        "wrong",
    ]


def test_another_tags_code_is_wrong():
    assert judged([*DUE[:3], (1300, 100, 4)]) == ["right", "right", "right", "tags"]


def test_an_address_without_an_extension_is_told_from_a_wrong_tags_code():
    assert judged([*DUE[:3], (1300, 100, -(1 << 40))]) == ["right", "right", "right", "ext"]


def test_delivery_times_may_be_those_of_other_levels():
    """All are later by a minute: the levels were others. One that is not like the others is wrong."""
    later = [(place, size, code + 60_000) for place, size, code in DUE]
    assert judged(later, SCHEDULE_TOPIC) == ["right"] * 4
    later[2] = (1200, 100, 77)
    assert judged(later, SCHEDULE_TOPIC) == ["right", "right", "tags", "right"]


@pytest.fixture
def setup() -> Setup:
    setup = small_setup(Version.V5_3)
    with MessageStore.create(setup) as store:
        for number in range(5):
            assert store.put(a_message(number)).is_ok
    return setup


def test_what_is_called_a_wrong_tags_code_is_written(setup):
    before = read_bytes(setup.files, QUEUE)
    with setup.files.open_write(QUEUE) as file:
        file.pwrite(struct.pack(">q", 4), 2 * 20 + 12)
    assert [finding.code for finding in recover(setup).findings] == ["CQ-WRONG"]
    assert read_bytes(setup.files, QUEUE) == before


def test_what_not_every_version_writes_into_a_batch_queue_is_left_alone():
    """A unit whose compacted offset is another one is right for check, and a recovery left nothing of it."""
    setup = replace(small_setup(), batch_topics=frozenset({"B"}))
    with MessageStore.create(setup) as store:
        for number in range(3):
            assert store.put(a_message(number, topic="B")).is_ok
    files = setup.files
    (path,) = [path for path, kind in iter_tree(files) if path.startswith("batchconsumequeue/B/0/")]
    with files.open_write(path) as file:
        unit = file.pread(46, 46)
        assert unit[38:42] == b"\xff" * 4
        file.pwrite(bytes(4), 46 + 38)
    assert recover(setup).changes == {}
    with files.open_write(path) as file:
        file.pwrite(b"\1", 46)  # leads elsewhere
    assert [change.path for change in recover(setup).changes.values()] == [path]
    assert read_bytes(files, path)[46 : 46 + 38] == unit[:38]
