"""Messages by queue, by time and at random: all of them, in their order, whatever memory allows at once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rmqtool.filters.tags import parse_tags
from rmqtool.filters.wanted import parse_patterns
from rmqtool.log import order as ordering
from rmqtool.log import order as sorting
from rmqtool.log.order import COLUMNS, Arrangement, KeySorter, Order, iter_arranged, iter_last_of_queues
from rmqtool.log.ranges import Effort
from rmqtool.log.read import Damage
from rmqtool.log.select import Selection
from tests.support.builders import record
from tests.support.stores import every_store, truth
from tests.unit.log.test_stream import EVERYTHING, offsets, plan_of, write_log


def arranged(root, arrangement: Arrangement, selection: Selection = EVERYTHING) -> list[int]:
    return offsets(iter_arranged(plan_of(root, selection), selection, arrangement, Effort()))


def sound(name):
    return [message for message in truth(name)["messages"] if "recordCheck" not in message]


def by_queue(message):
    return message["topic"], message["queueId"], message["queueOffset"], message["commitLogOffset"]


@every_store
def test_by_queue(name, store):
    expected = [message["commitLogOffset"] for message in sorted(sound(name), key=by_queue)]
    assert arranged(store(name), Arrangement(Order.QUEUE)) == expected


@every_store
def test_by_time(name, store):
    key = lambda message: (message["storeTimestamp"], message["commitLogOffset"])  # noqa: E731
    expected = [message["commitLogOffset"] for message in sorted(sound(name), key=key)]
    assert arranged(store(name), Arrangement(Order.TIME)) == expected


CLEAN = ["49-basic", "53-broker", "49-broker", "53-rocksdb", "54-rocksone", "49-multidir", "49-lmq"]


@pytest.mark.parametrize("name", CLEAN)
def test_a_queue_in_its_order_is_what_its_units_name(name, store):
    places = {message["commitLogOffset"]: message for message in truth(name)["messages"]}
    compared = 0
    for topic, queues in truth(name)["queues"].items():
        for number, told in queues.items():
            units = [unit[0] for unit in told["units"] if unit[0] in places]
            selection = Selection(topics=parse_patterns([topic.replace("[", "[[]")]), queue_id=int(number))
            found = arranged(store(name), Arrangement(Order.QUEUE), selection)
            # Prepared and rolled-back transactions have no unit; they say queue offset 0.
            in_queue = [place for place in found if places[place]["sysFlag"] & 0xC not in (4, 0xC)]
            assert in_queue == units
            compared += len(units)
    assert compared > 100


def test_the_last_of_each_queue(store):
    queues: dict[tuple, list] = {}
    for message in sorted(sound("49-basic"), key=by_queue):
        queues.setdefault((message["topic"], message["queueId"]), []).append(message)
    expected = [message["commitLogOffset"] for queue in queues.values() for message in queue[-3:]]
    assert arranged(store("49-basic"), Arrangement(Order.QUEUE, last=3)) == expected
    tagged = [m["commitLogOffset"] for queue in queues.values() for m in queue[-3:] if m["tags"] == "TagA"]
    selection = Selection(tags=parse_tags("TagA"))
    assert arranged(store("49-basic"), Arrangement(Order.QUEUE, last=3), selection) == tagged
    assert tagged


@pytest.mark.parametrize("order", list(Order))
def test_a_sample_is_in_order_and_the_same_every_time(order, store):
    whole = arranged(store("49-basic"), Arrangement(order))
    some = arranged(store("49-basic"), Arrangement(order, sample=40))
    assert len(some) == 40
    assert some == [place for place in whole if place in set(some)]
    assert some == arranged(store("49-basic"), Arrangement(order, sample=40))
    assert some != arranged(store("49-basic"), Arrangement(order, sample=41))[:40]
    assert arranged(store("49-basic"), Arrangement(order, sample=10**6)) == whole


def test_a_sample_is_even(tmp_path):
    size = len(record(b"x"))
    log = b"".join(record(b"x", physical_offset=number * size) for number in range(3000))
    root = write_log(tmp_path, (0, log))
    taken = np.concatenate([arranged(root, Arrangement(sample=n)) for n in range(200, 240)]) // size
    thirds = np.bincount(taken // 1000)
    assert len(thirds) == 3
    assert thirds.min() > 0.9 * len(taken) / 3


@pytest.mark.parametrize("name", ["49-basic", "53-broker"])
@pytest.mark.parametrize("order", [Order.QUEUE, Order.TIME])
def test_keys_that_do_not_fit_into_memory(order, name, store, monkeypatch):
    expected = arranged(store(name), Arrangement(order))
    monkeypatch.setattr(sorting, "RUN", 50)
    monkeypatch.setattr(sorting, "_BLOCK", 7)
    assert arranged(store(name), Arrangement(order)) == expected


def test_damage_comes_last(store):
    events = list(iter_arranged(plan_of(store("49-killed-torn")), EVERYTHING, Arrangement(Order.QUEUE), Effort()))
    assert [type(event) is Damage for event in events[-2:]] == [False, True]
    assert events[-1].code == "CL-TORN"


def test_a_message_that_vanishes_meanwhile_is_damage(writable_store, monkeypatch):
    root = writable_store("49-basic")
    gathered = []
    gather = ordering.gather_records

    def cut(file, log, places):
        if not gathered:
            path = root / "commitlog" / f"{log.base_offset:020d}"
            with path.open("r+b") as opened:
                opened.seek(int(places.file_offsets[5]) + 100)
                opened.write(b"\xff\xff\xff")
        gathered.append(log)
        return gather(file, log, places)

    monkeypatch.setattr(ordering, "gather_records", cut)
    events = list(iter_arranged(plan_of(root), EVERYTHING, Arrangement(Order.TIME), Effort()))
    damages = [event for event in events if isinstance(event, Damage)]
    assert [damage.code for damage in damages] == ["ST-READ"]
    assert len(offsets(events)) == 682


@pytest.mark.parametrize("seed", range(20))
def test_the_sorter_sorts_topics_by_name_and_the_rest_by_number(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(sorting, "RUN", rng.choice((1, 10, 100, 10**6)))
    monkeypatch.setattr(sorting, "_BLOCK", rng.choice((1, 3, 4096)))
    names = ["b", "a", "ü", "c", "B", ""]
    added = []
    with KeySorter() as sorter:
        for _ in range(rng.randrange(12)):
            own = rng.sample(names, 4)
            rows = [[rng.randrange(4), *(rng.randrange(-3, 3) for _ in range(COLUMNS - 2)), 0] for _ in range(9)]
            added += [(own[row[0]], *row[1:]) for row in rows]
            sorter.add(own, np.array(rows, np.int64))
        found = [tuple(row) for block in sorter.iter_blocks() for row in block[:, 1:].tolist()]
        assert found == [row[1:] for row in sorted(added)]


def test_the_last_keys_of_queues_that_blocks_cut():
    rows = [[topic, queue, number, 0, 0] for topic in (0, 1) for queue in (0, 1) for number in range(5)]
    blocks = iter([np.array(rows[at : at + 3], np.int64) for at in range(0, len(rows), 3)])
    found = np.concatenate(list(iter_last_of_queues(blocks, 2))).tolist()
    assert found == [row for row in rows if row[2] >= 3]
