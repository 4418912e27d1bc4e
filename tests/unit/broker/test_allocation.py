"""Allocation of queues: the checks of §12.4, the vectors of §15.5, and answers of the real strategies.

The golden answers are those of the classes of 4.9.8, 5.3.3 and 5.4.0, which agree.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from pathlib import Path

import pytest

from rmqtool.broker.consumer.rebalance import (
    Average,
    AverageByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
)
from rmqtool.formats.message_queue import MessageQueue

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "groups" / "allocations.jsonl.xz"
MEMBERS = ["c0", "c1", "c2"]


def room_of_broker(name: str) -> str:
    room, at, _ = name.partition("@")
    return room if at else "r0"


def room_of_member(name: str) -> str:
    room, dash, _ = name.partition("-")
    return room if dash else "r0"


STRATEGIES: dict[str, Strategy] = {
    "AVG": Average(),
    "AVG_BY_CIRCLE": AverageByCircle(),
    "CONSISTENT_HASH": ConsistentHash(),
    "MACHINE_ROOM": ByMachineRoom({"r1", "r2"}),
    "MACHINE_ROOM_NEARBY": MachineRoomNearby(Average(), room_of_broker, room_of_member),
}


def queues(count: int, broker: str = "b0") -> list[MessageQueue]:
    return [MessageQueue("T", broker, queue_id) for queue_id in range(count)]


def shares(strategy: Strategy, count: int, broker: str = "b0") -> list[list[int]]:
    allocated = strategy.allocate(queues(count, broker), MEMBERS)
    return [[queue.queue_id for queue in allocated[member]] for member in MEMBERS]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (8, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (7, [[0, 1, 2], [3, 4], [5, 6]]),
        (4, [[0, 1], [2], [3]]),
        (2, [[0], [1], []]),
        (0, [[], [], []]),
    ],
)
def test_c12_1_c12_2_average(count: int, expected: list[list[int]]) -> None:
    assert shares(Average(), count) == expected


def test_c12_3_circle() -> None:
    assert shares(AverageByCircle(), 8) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_c12_4_machine_room() -> None:
    assert shares(ByMachineRoom({"r1"}), 7, "r1@b") == [[0, 1, 6], [2, 3], [4, 5]]
    assert shares(ByMachineRoom({"r1"}), 7, "r2@b") == [[], [], []]
    assert shares(ByMachineRoom({"r1"}), 7, "r1@b@c") == [[], [], []], "more than one room"


def test_vector_consistent_hash() -> None:
    assert shares(ConsistentHash(), 8) == [[3, 4, 6, 7], [0, 1, 2], [5]]


def test_c12_5_who_leaves_moves_no_queue_between_the_others() -> None:
    members = [f"10.0.0.{number}@4711" for number in range(20)]
    of = queues(200)
    before = ConsistentHash().allocate(of, members)
    assert sorted(queue for share in before.values() for queue in share) == of, "all of them, each once"
    for gone in members:
        after = ConsistentHash().allocate(of, [member for member in members if member != gone])
        for member, share in after.items():
            assert set(before[member]) <= set(share)


def test_by_config_everybody_has_what_it_was_told() -> None:
    told = ByConfig({"c0": queues(2)[1:], "c2": queues(9)[8:]})
    assert shares(told, 4) == [[1], [], [8]]


def test_a_place_without_a_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="b0 is in no machine room"):
        MachineRoomNearby(Average(), lambda _name: "", room_of_member).allocate(queues(1), MEMBERS)
    with pytest.raises(ValueError, match="c0 is in no machine room"):
        MachineRoomNearby(Average(), room_of_broker, lambda _name: "").allocate(queues(1), MEMBERS)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_answer_of_the_real_strategy(name: str) -> None:
    asked: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    with lzma.open(GOLDEN, "rt", encoding="utf-8") as file:
        for line in file:
            answer = json.loads(line)
            if answer["strategy"] == name:
                asked[answer["queues"], answer["members"]][answer["member"]] = answer["allocated"]
    assert len(asked) == 42
    moved = 0
    for (topology, members), expected in asked.items():
        of = []
        for part in topology.split():
            broker, _, count = part.rpartition(":")
            of += queues(int(count), broker)
        allocated = STRATEGIES[name].allocate(sorted(of), sorted(members.split()))
        shown = {
            member: [f"{queue.broker_name}:{queue.queue_id}" for queue in share] for member, share in allocated.items()
        }
        assert shown == expected, (topology, members)
        moved += sum(len(share) for share in expected.values())
    assert moved >= 108
