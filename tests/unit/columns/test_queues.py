"""Queue units of many records: those that ``formats.dispatch`` gives, one record after the other."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.columns.properties import decode_properties
from rmqtool.columns.queues import (
    QueueRun,
    batch_units,
    decode_batch_units,
    decode_units,
    queue_runs,
)
from rmqtool.columns.records import Records, decode_records
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.dispatch import DispatchRules, queue_entries, rules_of
from tests.support.builders import SAMPLES, properties, queue_unit, record
from tests.support.seeded_stores import make_segment

DELAYS = (1000, 5000, 60_000)
RULES = [
    DispatchRules(),
    rules_of("4.9", DELAYS),
    rules_of("5.3", DELAYS),
    rules_of("5.4", DELAYS, lmq=False),
    rules_of("4.9", (), multi_dispatch=False),
]
FIVE_THREE = RULES[2]

Unit = tuple[int, bytes]


def decode(*parts: bytes) -> Records:
    found, declined = decode_records(b"".join(parts), np.cumsum([0, *map(len, parts)])[:-1])
    assert declined is None
    return found


def units_of(runs: list[QueueRun]) -> dict[tuple[str, int], list[Unit]]:
    found: dict[tuple[str, int], list[Unit]] = {}
    for run in runs:
        units = [(int(offset), unit.tobytes()) for offset, unit in zip(run.queue_offsets, run.units, strict=True)]
        assert (run.topic, run.queue_id) not in found
        found[run.topic, run.queue_id] = units
    return found


def runs_of(records: Records, rules: DispatchRules) -> list[QueueRun]:
    return queue_runs(records, decode_properties(records), rules)


@pytest.mark.parametrize("seed", range(0, 300, 3))
def test_every_kind_of_segment(seed: int) -> None:
    rules = RULES[seed // 3 % len(RULES)]
    segment = make_segment(seed)
    expected: dict[tuple[str, int], list[Unit]] = {}
    for at in segment.starts:
        message = decode_record(segment.data, at)
        assert isinstance(message, Message)
        for entry in queue_entries(message, rules):
            unit = queue_unit(*entry.unit)
            expected.setdefault((entry.topic, entry.queue_id), []).append((entry.queue_offset, unit))
    found, _ = decode_records(segment.data, np.array(segment.starts, np.int64))
    assert units_of(runs_of(found, rules)) == expected


def test_units_by_hand() -> None:
    """One record of each kind: plain, without tag, prepared, rolled back, committed, delayed."""
    tagged = properties(("TAGS", "TagABCDEF"))
    delayed = properties(("DELAY", "2"), ("TAGS", "TagA"))
    found = decode(
        record(b"", b"T", tagged, queue_offset=7, physical_offset=100),
        record(b"", b"T", queue_offset=8, physical_offset=200),
        record(b"", b"T", tagged, physical_offset=300, sys_flag=0x4),
        record(b"", b"T", tagged, physical_offset=400, sys_flag=0xC),
        record(b"", b"T", tagged, queue_offset=9, physical_offset=500, sys_flag=0x8),
        record(b"", b"SCHEDULE_TOPIC_XXXX", delayed, queue_id=1, physical_offset=600, store_timestamp=1700000000000),
    )
    sizes = found.column("total_size").tolist()
    assert units_of(runs_of(found, FIVE_THREE)) == {
        ("T", 0): [
            (7, queue_unit(100, sizes[0], -1105932195)),
            (8, queue_unit(200, sizes[1], 0)),
            (9, queue_unit(500, sizes[4], -1105932195)),
        ],
        ("SCHEDULE_TOPIC_XXXX", 1): [(0, queue_unit(600, sizes[5], 1700000005000))],
    }


def test_further_queues_keep_the_order_of_the_log() -> None:
    """A plain queue that is another record's extra target: both units stand in the order of the log."""
    pairs = properties(("INNER_MULTI_DISPATCH", "%LMQ%x,Plain"), ("INNER_MULTI_QUEUE_OFFSET", "4,1"))
    found = decode(
        record(b"", b"Plain", queue_offset=0, physical_offset=1),
        record(b"", b"Parent", pairs, queue_offset=0, physical_offset=2),
        record(b"", b"Plain", queue_offset=2, physical_offset=3),
    )
    runs = units_of(runs_of(found, RULES[1]))
    assert [offset for offset, _ in runs["Plain", 0]] == [0, 1, 2]
    assert [offset for offset, _ in runs["%LMQ%x", 0]] == [4]
    assert ("Plain", 0) in units_of(runs_of(found, FIVE_THREE))
    assert [offset for offset, _ in units_of(runs_of(found, FIVE_THREE))["Plain", 0]] == [0, 1, 2]


def test_many_queues() -> None:
    """More queues than sixteen bits count."""
    parts = [record(b"", b"T%d" % (number % 7), queue_id=number // 7, queue_offset=0) for number in range(70_000)]
    runs = runs_of(decode(*parts), FIVE_THREE)
    assert len(runs) == 70_000
    assert {(run.topic, run.queue_id) for run in runs} == {(f"T{n % 7}", n // 7) for n in range(70_000)}


def test_decoding_units() -> None:
    sample = SAMPLES["CONSUME_QUEUE_UNIT"]
    found = decode_units(sample.data * 3 + b"rest")
    assert [tuple(unit) for unit in found.tolist()] == [sample.values] * 3
    sample = SAMPLES["BATCH_CONSUME_QUEUE_UNIT"]
    found = decode_batch_units(sample.data * 2 + bytes(45))
    assert [tuple(unit) for unit in found.tolist()] == [sample.values] * 2


def test_batch_units_by_hand() -> None:
    """The example of the specification, a record that is no batch, and one that has no place in a queue."""
    pairs = properties(("TAGS", "TagA"), ("INNER_NUM", "5"), ("INNER_BASE", "100"))
    found = decode(
        record(b"", b"T", pairs, physical_offset=1024, sys_flag=0xC0, store_timestamp=1700000000123),
        record(b"", b"T", queue_offset=105, physical_offset=2048, store_timestamp=1700000000124),
        record(b"", b"T", physical_offset=4096, sys_flag=0x4),
        record(b"", b"T", properties(("INNER_NUM", "5")), queue_offset=106, physical_offset=5000),
        record(b"", b"T", properties(("INNER_NUM", "x"), ("INNER_BASE", "9")), queue_offset=107, physical_offset=6000),
    )
    units = batch_units(found, decode_properties(found), FIVE_THREE)
    sizes = found.column("total_size").tolist()
    assert [tuple(unit) for unit in units.tolist()] == [
        (1024, sizes[0], 2598919, 1700000000123, 100, 5, -1, 0),
        (2048, sizes[1], 0, 1700000000124, 105, 1, -1, 0),
        (5000, sizes[3], 0, 1700000000123, 106, 1, -1, 0),
        (6000, sizes[4], 0, 1700000000123, 107, 1, -1, 0),
    ]
