"""Messages of some queues by way of the queues: those that reading the log through gives, and few bytes read."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from rmqtool.files.posix import PosixReadableFile
from rmqtool.filters.wanted import parse_patterns
from rmqtool.log import by_queues as covering
from rmqtool.log import ranges as plan
from rmqtool.log import stream
from rmqtool.log.queue_entries import queue_files_of
from rmqtool.log.ranges import Answered, Effort, Plan, read_plan
from rmqtool.log.read import Damage
from rmqtool.log.select import Selection
from rmqtool.log.sources import logs_of
from rmqtool.store.open import open_store
from tests.support.builders import blank, queue_unit, record
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.stores import STORES, truth
from tests.unit.log.test_stream import offsets


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Whatever the size of the log and the share of the topic, the queues lead."""
    monkeypatch.setattr(plan, "READ_THROUGH", 0)
    monkeypatch.setattr(plan, "LOOK_UP", 0)
    monkeypatch.setattr(covering, "_SHARE", 2.0)


def plan_for(root, selection: Selection) -> Plan:
    opened = open_store(str(root))
    try:
        return read_plan(logs_of(opened), selection, queue_files_of(opened))
    finally:
        opened.close()


def by_queues(root, selection: Selection) -> list[int]:
    return offsets(stream.iter_parts(plan_for(root, selection), selection, Effort()))


def read_through(root, selection: Selection) -> list[int]:
    planned = replace(plan_for(root, selection), queues=())
    return offsets(stream.iter_parts(planned, selection, Effort()))


def topic(name: str) -> Selection:
    return Selection(topics=parse_patterns([name]))


# Small ranges cut every few records: everything through many of them takes a while.
SMALL, WHOLE = 6000, 128 << 20
IN_SMALL = ("49-basic", "49-lmq", "53-rocksdb", "54-combine")
RANGES = [(name, WHOLE) for name in STORES] + [
    pytest.param(name, SMALL, marks=() if name in IN_SMALL else pytest.mark.slow) for name in STORES
]


@pytest.mark.parametrize(("name", "size"), RANGES)
def test_every_topic_of_every_store(name, size, store, monkeypatch):
    monkeypatch.setattr(plan, "COVERED_RANGE", size)
    root = store(name)
    messages = [message for message in truth(name)["messages"] if "recordCheck" not in message]
    for wanted in {message["topic"] for message in messages}:
        expected = [message["commitLogOffset"] for message in messages if message["topic"] == wanted]
        found = by_queues(root, topic(wanted.replace("[", "[[]")))
        if name == "49-ghost":  # its queues hold units of records that are no more
            assert set(found) == set(expected)
        assert found == expected


def test_the_more_is_wanted_the_less_is_read_at_a_time(store, monkeypatch):
    """What is made of a range is held until its turn comes; units of it are looked at all at once."""
    monkeypatch.setattr(plan, "_MOST_UNITS", 1 << 20)
    root, counts = store("49-basic"), Counter()
    planned = plan_for(root, topic("TopicTest"))
    for queue in planned.witnesses:
        counts[queue.queue.topic] += sum(file.size // 20 for file in queue.files)
    rare = min(counts, key=counts.__getitem__)
    assert counts["TopicTest"] > 2 * counts[rare] > 0
    for name in ("TopicTest", rare):
        times = counts.total() // counts[name]
        assert plan_for(root, topic(name)).covered_range == plan.RANGE * max(times - 1, 1)
    monkeypatch.setattr(plan, "_MOST_UNITS", 5)
    size = sum(file.size for file in planned.wanted)
    assert plan_for(root, topic(rare)).covered_range == size * 5 // counts.total()


def test_a_log_with_very_many_queues_is_read_through(store, monkeypatch):
    wanted = truth("49-lmq")["messages"][3]["topic"]
    count = sum(len(of) for of in truth("49-lmq")["queues"].values())
    size = plan_for(store("49-lmq"), topic(wanted)).covered_range
    monkeypatch.setattr(plan, "LOOK_UP", size // count)
    assert plan_for(store("49-lmq"), topic(wanted)).queues
    monkeypatch.setattr(plan, "LOOK_UP", size // count + 1)
    assert not plan_for(store("49-lmq"), topic(wanted)).queues


@pytest.mark.parametrize("name", ["49-basic", "53-compress", "49-lmq"])
def test_threads_give_the_same_lines(name, store, monkeypatch):
    monkeypatch.setattr(plan, "COVERED_RANGE", 9000)
    wanted = truth(name)["messages"][3]["topic"]
    selection = topic(wanted)
    planned = plan_for(store(name), selection)
    alone, two = (
        [
            b"".join(a.data)
            for a in stream.iter_line_answers(planned, selection, Effort(jobs))
            if isinstance(a, Answered)
        ]
        for jobs in (1, 2)
    )
    assert b"".join(alone) == b"".join(two)
    assert len(b"".join(alone).splitlines()) == sum(m["topic"] == wanted for m in truth(name)["messages"])


@pytest.mark.parametrize("name", ["49-lmq", "53-lmq"])
def test_light_queues_have_the_messages_that_their_units_name(name, store):
    root = store(name)
    light = {queue: rows["0"]["units"] for queue, rows in truth(name)["queues"].items() if queue.startswith("%LMQ%")}
    assert light
    for queue, units in light.items():
        assert by_queues(root, topic(queue)) == [unit[0] for unit in units]
        assert read_through(root, topic(queue)) == [unit[0] for unit in units]


def test_an_offset_bounds_the_units_too(store):
    queue = truth("49-basic")["queues"]["TopicTest"]["0"]
    selection = replace(topic("TopicTest"), queue_id=0, least_offset=queue["maxOffset"] - 5)
    assert by_queues(store("49-basic"), selection) == [unit[0] for unit in queue["units"][-5:]]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_stores(version, workshop, monkeypatch):
    every = mutations(version)
    for key in sample(version, 5, seed=3):
        monkeypatch.setattr(plan, "COVERED_RANGE", random.Random(key).choice((30_000, 128 << 20)))
        with workshop.damaged(version, every[key], abort=True) as root:
            for name in ("TopicA", "orders.new"):
                assert (key, by_queues(root, topic(name))) == (key, read_through(root, topic(name)))


def make_store(root, count, *, undispatched=0, prepared=()):
    """Records of topics A and B in turn, ten of B for one of A, with queues."""
    data, units, at = b"", {b"A": [], b"B": []}, 0
    for number in range(count):
        name = b"A" if number % 11 == 0 else b"B"
        flag = 4 if number in prepared else 0
        one = record(b"x" * 50, name, physical_offset=at, queue_offset=len(units[name]), sys_flag=flag)
        if not flag and number < count - undispatched:
            units[name].append(queue_unit(at, len(one), 0))
        data, at = data + one, at + len(one)
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020d}").write_bytes(data + blank(100) + bytes(92))
    for name, rows in units.items():
        directory = root / "consumequeue" / name.decode() / "0"
        directory.mkdir(parents=True)
        (directory / f"{0:020d}").write_bytes(b"".join(rows).ljust(20 * count, b"\0"))
    return data


def test_prepared_and_undispatched_records_are_found(tmp_path):
    make_store(tmp_path, 500, undispatched=40, prepared={11, 22, 33})
    assert len(by_queues(tmp_path, topic("A"))) == 46
    assert by_queues(tmp_path, topic("A")) == read_through(tmp_path, topic("A"))


def test_only_the_wanted_records_are_read(tmp_path, monkeypatch):
    data = make_store(tmp_path, 2000, prepared={12})
    monkeypatch.setattr("rmqtool.log.by_queues._NEAR", 0)
    read = []
    pread = PosixReadableFile.pread

    def watched(self, length, file_offset):
        found = pread(self, length, file_offset)
        if "commitlog" in self.path:
            read.append(len(found))
        return found

    monkeypatch.setattr(PosixReadableFile, "pread", watched)
    assert len(by_queues(tmp_path, topic("A"))) == 182
    assert sum(read) < len(data) / 8


@pytest.mark.parametrize("change", ["place", "size", "zeros", "missing", "garbage"])
def test_queues_are_not_trusted(change, tmp_path):
    make_store(tmp_path, 300)
    expected = read_through(tmp_path, topic("A"))
    file = tmp_path / "consumequeue" / ("B" if change == "size" else "A") / "0" / f"{0:020d}"
    units = bytearray(file.read_bytes())
    if change == "place":
        units[20 * 5 + 7] ^= 4
    elif change == "size":
        units[20 * 5 + 11] ^= 3
    elif change == "zeros":
        units[20 * 7 :] = bytes(len(units) - 140)
    elif change == "garbage":
        units[:] = random.Random(1).randbytes(len(units))
    file.write_bytes(units)
    if change == "missing":
        file.unlink()
    assert by_queues(tmp_path, topic("A")) == expected
    assert len(expected) == 28


def test_damage_of_a_wanted_record_is_named(tmp_path):
    data = bytearray(make_store(tmp_path, 300))
    at = read_through(tmp_path, topic("A"))[3]
    data[at + 100] ^= 1
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data + blank(100) + bytes(92))
    events = list(stream.iter_parts(plan_for(tmp_path, topic("A")), topic("A"), Effort()))
    assert [(event.code, event.file_offset) for event in events if isinstance(event, Damage)] == [("CL-CRC", at)]
    assert len(offsets(events)) == 27


def test_a_large_share_is_read_through(tmp_path, monkeypatch):
    monkeypatch.setattr(covering, "_SHARE", 0.5)
    make_store(tmp_path, 300)
    seen = []
    monkeypatch.setattr(covering, "gather_records", lambda *_, **__: seen.append(1))
    assert len(by_queues(tmp_path, topic("B"))) == 272
    assert seen == []
