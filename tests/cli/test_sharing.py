"""Commands on a store that ``rmqtool serve`` holds, in another process: they speak to it, or read beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.api.consume import consuming
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.cli.test_serve import FREE, started
from tests.support.schemas import validate
from tests.support.waiting import PATIENCE, wait_for

Capture = pytest.CaptureFixture[bytes]
Run = Callable[..., tuple[int, str, str]]
SMALL = {"mappedFileSizeCommitLog": str(1 << 20), "maxIndexNum": "1000", "maxHashSlotNum": "100"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a store that a server of its own process holds."""
    found = tmp_path_factory.mktemp("shared") / "store"
    rmqtool.init(found, conf=SMALL)
    with started(str(found), *FREE):
        yield found


@pytest.fixture
def run(root: Path, capsysbinary: Capture) -> Run:
    def type_words(command: str, *words: object) -> tuple[int, str, str]:
        status = main([command, str(root), *map(str, words)])
        printed = capsysbinary.readouterr()
        return status, printed.out.decode(), printed.err.decode()

    return type_words


def lines(run: Run, command: str, *words: object) -> list[dict[str, Any]]:
    status, out, err = run(command, *words, "--jsonl")
    assert status == Exit.DONE, err
    return [json.loads(line) for line in out.splitlines()]


def group_of(run: Run, name: str) -> dict[str, Any]:
    (found,) = lines(run, "group", "show", name)
    validate("groups", found)
    group: dict[str, Any] = found["groups"][name]
    return group


def test_what_is_produced_is_answered_as_by_files(run: Run, root: Path) -> None:
    run("topic", "create", "Sent", "--queues", 2)
    sent = lines(run, "produce", "-t", "Sent", "-q", 1, "--key", "k", "one", "two")
    for one in sent:
        validate("produced", one)
    found = {one["commitLogOffset"]: one for one in rmqtool.scan(root, topics="Sent")}
    assert len(found) == 2
    for one in sent:
        message = found[one["commitLogOffset"]]
        assert [one[name] for name in ("topic", "queueId", "queueOffset", "storeTimestamp", "offsetMsgId")] == [
            message[name] for name in ("topic", "queueId", "queueOffset", "storeTimestamp", "offsetMsgId")
        ]
        assert one["msgId"] == message["uniqKey"]
    stored = rmqtool.put(root, [{"topic": "Sent", "body": "three"}])
    assert stored[0]["storeTimestamp"] > 0
    assert [one["body"] for one in rmqtool.scan(root, topics="Sent")] == ["one", "two", "three"]
    assert run("produce", "-t", "Nowhere", "x")[0] == Exit.NO
    assert run("produce", "-t", "Made", "--create", "x")[0] == Exit.DONE


def test_topics_and_groups_change_in_the_server_at_once(run: Run) -> None:
    made = lines(run, "topic", "create", "Changed", "--queues", 3)
    assert made == [
        {
            "topic": "Changed",
            "readQueueNums": 3,
            "writeQueueNums": 3,
            "perm": "rw",
            "order": False,
            "attributes": {},
        }
    ]
    assert lines(run, "topic", "alter", "Changed", "--perm", "r")[0]["perm"] == "r"
    assert "Changed" in [one["topic"] for one in lines(run, "topic", "list")]
    assert run("topic", "create", "Changed")[0] == Exit.REFUSED
    (group,) = lines(run, "group", "create", "Made", "--set", "retryMaxTimes=2")
    assert group["groups"]["Made"]["retryMaxTimes"] == 2
    assert run("group", "alter", "Made", "--set", "consumeEnable=false")[0] == Exit.DONE
    assert group_of(run, "Made")["consumeEnable"] is False
    status, _, err = run("consume", "-g", "Made", "-t", "Changed", "--commit")
    assert (status, "consumeEnable is false" in err) == (Exit.REFUSED, True)
    assert run("group", "delete", "Made", "--yes")[0] == Exit.DONE
    assert run("group", "show", "Made")[0] == Exit.NO


def test_a_group_consumes_through_the_server_and_goes_on_where_it_was(run: Run) -> None:
    run("topic", "create", "Taken", "--queues", 4)
    assert run("produce", "-t", "Taken", "--tag", "a", *range(20))[0] == Exit.DONE
    assert run("produce", "-t", "Taken", "--tag", "b", *range(20, 24))[0] == Exit.DONE
    first = lines(run, "consume", "-g", "G", "-t", "Taken", "--tag", "a", "--from", "first", "--commit", "-n", 5)
    for one in first:
        validate("message", one)
    rest = lines(run, "consume", "-g", "G", "-t", "Taken", "--tag", "a", "--commit")
    assert sorted(int(one["body"]) for one in [*first, *rest]) == list(range(20))
    places = group_of(run, "G")["topics"]["Taken"]
    assert sum(place["committed"] for place in places.values()) == 24
    assert [place["lag"] for place in places.values()] == [0] * 4
    status, out, err = run("consume", "-g", "G", "-t", "Taken", "--commit")
    assert (status, out, "no new messages for G" in err) == (Exit.DONE, "", True)
    # Without --commit it looks beside the server, from the first message where it is told so.
    assert len(lines(run, "consume", "-t", "Taken", "--from", "first")) == 24
    where = ("--where", "TAGS = 'b'")
    assert len(lines(run, "consume", "-g", "S", "-t", "Taken", "--from", "first", "--commit", *where)) == 4


def test_members_share_the_queues_and_an_ordered_group_keeps_the_order(run: Run) -> None:
    run("topic", "create", "Ordered", "--queues", 4)
    for number in range(3):
        assert run("produce", "-t", "Ordered", *(f"{number}-{turn}" for turn in range(8)))[0] == Exit.DONE
    status, out, err = run(
        "consume", "-g", "O", "-t", "Ordered", "--from", "first", "--commit", "--orderly", "--members", 2, "--jsonl"
    )
    taken = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert (status, len(taken)) == (Exit.DONE, 24), err
    by_queue: dict[int, list[int]] = {}
    owners: dict[int, set[int]] = {}
    for one in taken:
        by_queue.setdefault(one["queueId"], []).append(one["queueOffset"])
        owners.setdefault(one["queueId"], set()).add(one["member"])
    assert all(offsets == sorted(set(offsets)) for offsets in by_queue.values())
    assert len(set().union(*owners.values())) == 2


def test_a_message_that_fails_comes_again_and_is_a_dead_letter_in_the_end(run: Run, root: Path) -> None:
    run("topic", "create", "Failing", "--queues", 1)
    run("group", "create", "F", "--set", "retryMaxTimes=0")
    assert run("produce", "-t", "Failing", "bad", "good")[0] == Exit.DONE
    status, out, err = run(
        "consume", "-g", "F", "-t", "Failing", "--from", "first", "--commit", "--exec", 'test "$(cat)" = good'
    )
    assert status == Exit.NO, err
    assert "it goes to the dead-letter topic" in out + err
    wait_for(lambda: [*rmqtool.scan(root, topics="%DLQ%F")])
    assert [one["body"] for one in rmqtool.scan(root, topics="%DLQ%F")] == ["bad"]
    assert group_of(run, "F")["topics"]["Failing"]["0"] == {"committed": 2, "lag": 0}


REFUSED: dict[str, tuple[list[str], Exit, str]] = {
    "flush": (["produce", "-t", "T", "--flush", "sync", "x"], Exit.USAGE, "--flush has no effect: rmqtool serve (proc"),
    "settings": (
        ["produce", "-t", "T", "--conf", "autoCreateTopicEnable=false", "x"],
        Exit.USAGE,
        "--conf has no effect: rmqtool serve",
    ),
    "version": (["topic", "list", "--as", "5.3"], Exit.USAGE, "--as has no effect"),
    "queue": (["consume", "-g", "G", "-t", "TBW102", "--commit", "-q", "1"], Exit.USAGE, "cannot choose one"),
    "tick": (["tick"], Exit.IN_USE, "serve"),
    "repair": (["repair", "--apply"], Exit.IN_USE, ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_through_a_server_is_said(name: str, run: Run) -> None:
    words, expected, part = REFUSED[name]
    status, _, err = run(words[0], *words[1:])
    assert (status, part in err) == (expected, True), err


@pytest.mark.slow
def test_two_processes_share_a_group_and_one_takes_over_when_the_other_is_killed(run: Run, root: Path) -> None:
    run("topic", "create", "Both", "--queues", 4)
    words = ["consume", str(root), "-g", "B", "-t", "Both", "--from", "first", "--commit", "-f", "--jsonl"]
    seen: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
    programs, readers = [], []
    try:
        for number in range(2):
            program = subprocess.Popen([sys.executable, "-m", "rmqtool", *words], stdout=subprocess.PIPE, text=True)
            programs.append(program)
            readers.append(threading.Thread(target=_read, args=(program, seen[number])))
            readers[-1].start()
        wait_for(lambda: _members(root) == 2)
        # Messages are sent until both have got some: then the queues are shared.
        sent = 0
        while not (seen[0] and seen[1]):
            assert run("produce", "-t", "Both", *range(sent, sent + 4))[0] == Exit.DONE
            sent += 4
        programs[0].send_signal(signal.SIGKILL)
        programs[0].wait(PATIENCE)
        assert run("produce", "-t", "Both", *range(sent, sent + 4))[0] == Exit.DONE
        sent += 4
        everything = {str(number) for number in range(sent)}
        wait_for(lambda: {one["body"] for one in [*seen[0], *seen[1]]} == everything)
        assert everything - {one["body"] for one in seen[0]} <= {one["body"] for one in seen[1]}
        programs[1].send_signal(signal.SIGINT)
        assert programs[1].wait(PATIENCE) == Exit.INTERRUPTED
    finally:
        for program, reader in zip(programs, readers, strict=True):
            program.kill()
            program.wait()
            reader.join()
    places = group_of(run, "B")["topics"]["Both"]
    assert [place["lag"] for place in places.values()] == [0] * 4


def _read(program: subprocess.Popen[str], seen: list[dict[str, Any]]) -> None:
    assert program.stdout is not None
    with program.stdout:
        for line in program.stdout:
            if line.startswith("{"):
                seen.append(json.loads(line))


def _members(root: Path) -> int:
    from rmqtool.api.cluster import Cluster
    from rmqtool.api.shared import place_of
    from rmqtool.client.cluster import read_body
    from rmqtool.errors import RemoteError
    from rmqtool.remoting.bodies.clients import GetConsumerListByGroupResponseBody
    from rmqtool.remoting.requests.clients import GetConsumerListByGroup

    cluster = place_of(str(root), "consume")
    assert isinstance(cluster, Cluster)

    async def ask() -> int:
        address = next(iter((await cluster.connections.masters()).values()))
        try:
            got = await cluster.connections.ask(address, GetConsumerListByGroup(consumer_group="B"))
        except RemoteError:
            return 0
        return len(read_body(GetConsumerListByGroupResponseBody, got).consumer_id_list)

    try:
        assert cluster.connections
        return cluster.run(ask())
    finally:
        cluster.close()


def test_a_server_in_this_process_is_found_too_and_what_it_held_is_on_disk_afterwards(tmp_path: Path) -> None:
    root = tmp_path / "store"
    rmqtool.init(root, conf=SMALL)
    rmqtool.topic(root, "create", "T", queues=1)
    with rmqtool.serve(root):
        rmqtool.put(root, {"topic": "T", "body": "x"})
        rmqtool.group(root, "create", "G")
        with consuming(str(root), "G", {"commit": True, "start": "first"}, topics="T") as found:
            assert [event["body"] for event in found if isinstance(event, dict)] == ["x"]
    assert rmqtool.groups(root)["G"]["topics"]["T"] == {"0": {"committed": 1, "lag": 0}}
    check = rmqtool.check(root)
    assert [finding.code for finding in check] == []
