"""``rmqtool serve --read-only``: consumers drain a store whose disk is not touched, and the next run goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import rmqtool
from rmqtool.errors import Refused, UsageError
from rmqtool.formats.commit_log import Message, decode_record
from rmqtool.formats.response_codes import ResponseCode
from tests.support.bad_sectors import spoil
from tests.support.serve_process import ServeProcess
from tests.support.stores import left_alone
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient, heartbeat, pull_fields, send_fields

Place = tuple[str, int, int]


def shown(root: Path) -> set[Place]:
    """Return what ``cat`` shows."""
    found = rmqtool.scan(str(root))
    return {(one["topic"], one["queueId"], one["queueOffset"]) for one in found if "topic" in one}


def records(data: bytes) -> list[Message]:
    found, at = [], 0
    while at < len(data):
        record = decode_record(data, at)
        assert isinstance(record, Message), record
        found.append(record)
        at += record.total_size
    return found


def pull_all(client: WireClient, places: set[Place]) -> set[Place]:
    """Return what a consumer of these queues gets, from their beginning to their end."""
    found: set[Place] = set()
    for topic, queue_id in {place[:2] for place in places}:
        low = int(client.ask(31, {"topic": topic, "queueId": queue_id}).ext["offset"])
        high = int(client.ask(30, {"topic": topic, "queueId": queue_id}).ext["offset"])
        offset = low
        while offset < high:
            answer = client.ask(11, pull_fields(topic, offset, queueId=queue_id))
            assert answer.code in (0, 20), (topic, answer.code, answer.remark)
            found |= {(one.topic, one.queue_id, one.queue_offset) for one in records(answer.body)}
            following = int(answer.ext["nextBeginOffset"])
            assert following > offset
            offset = following
    return found


# One store of each kind: killed with a torn end, 5.x, settings and queues in RocksDB, log in several directories, in
# entries of a DLedger group.
@pytest.mark.parametrize("name", ["49-killed-torn", "54-rocksone", "49-multidir", "49-dledger"])
def test_consumers_get_what_cat_shows_and_the_disk_is_not_touched(
    store: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    root = store(name)
    wanted = shown(root)
    with left_alone(root), rmqtool.serve(root, read_only=True, state=str(tmp_path / "state")) as served:
        assert served.read_only
        with WireClient(served.broker) as client:
            assert wanted <= pull_all(client, wanted)


def test_producers_are_refused(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("53-broker")
    with ExitStack() as stack:
        stack.enter_context(left_alone(root))
        served = stack.enter_context(rmqtool.serve(root, read_only=True, state=str(tmp_path / "state")))
        client = stack.enter_context(WireClient(served.broker))
        names = stack.enter_context(WireClient(served.names))
        answer = client.ask(310, send_fields("T_normal"), b"x")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "the broker[127.0.0.1] sending message is forbidden"
        route = json.loads(names.ask(105, {"topic": "T_normal"}).body)
        assert [one["perm"] for one in route["queueDatas"]] == [4]
        made = client.ask(
            17,
            {
                "topic": "New",
                "defaultTopic": "TBW102",
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": False,
            },
        )
        assert made.code == ResponseCode.NO_PERMISSION
        assert client.ask(215, {"topic": "T_normal"}).code == ResponseCode.NO_PERMISSION


def send_back(client: WireClient, record: Message, group: str) -> None:
    fields = {
        "offset": record.physical_offset,
        "group": group,
        "delayLevel": 1,
        "originMsgId": "X",
        "originTopic": record.topic,
    }
    answer = client.ask(36, fields)
    assert answer.code == 0, answer.remark


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        pytest.param("49-killed-torn", "stop", marks=pytest.mark.slow),
        ("49-killed-torn", "kill"),
        ("49-dledger", "kill"),
    ],
)
def test_a_second_run_goes_on_where_the_groups_were(
    writable_store: Callable[[str], Path], tmp_path: Path, name: str, ends: str
) -> None:
    root = writable_store(name)
    topic = max(place for place in shown(root) if place[1] == 0)[0]
    state = root.with_name(root.name + "-rmqtool-state")
    with left_alone(root):
        run = ServeProcess(root, tmp_path, "--read-only")
        assert run.ready["readOnly"] is True
        with WireClient(run.broker) as client:
            assert client.ask(34, {}, heartbeat("c", "Drain", {topic: "*"})).code == 0
            first = records(client.ask(11, pull_fields(topic, 0, group="Drain", maxMsgNums=4)).body)
            assert len(first) == 4
            commit = {"consumerGroup": "Drain", "topic": topic, "queueId": 0, "commitOffset": 4}
            assert client.ask(15, commit).code == 0
            # The last of them could not be consumed. The group gets it again, from its retry topic.
            send_back(client, first[-1], "Drain")
            # A kill after the next saving of offsets loses nothing.
            saved = re.compile(rb'@Drain":\{0:4.*"name":"config/consumerOffset.json","number"', re.DOTALL)
            wait_for(lambda: saved.search((state / "changes").read_bytes()))
        getattr(run, ends)()
        again = ServeProcess(root, tmp_path, "--read-only")
        with WireClient(again.broker) as client:
            asked = {"consumerGroup": "Drain", "topic": topic, "queueId": 0}
            assert client.ask(14, asked).ext["offset"] == "4"
            retry = client.ask(11, pull_fields("%RETRY%Drain", 0, group="Drain", wait=60_000))
            assert [one.raw_body for one in records(retry.body)] == [first[-1].raw_body]
        again.kill()
    assert state.stat().st_mode & 0o777 == 0o700


def test_damage_is_stepped_over_and_said_once(writable_store: Callable[[str], Path], tmp_path: Path) -> None:
    root = writable_store("53-broker")
    first = min((root / "commitlog").iterdir())
    victim = next(one for one in rmqtool.scan(str(root)) if one["topic"] == "T_normal")
    at = victim["commitLogOffset"]
    with first.open("r+b") as file:
        file.seek(at + 4)
        file.write(b"\1\2\3\4")
    wanted = shown(root)
    assert ("T_normal", victim["queueId"], victim["queueOffset"]) not in wanted
    for is_second in (False, True):
        if is_second:
            # A power cut lost a page of changes that were never synced: one is torn, a whole one follows.
            with (tmp_path / "state" / "changes").open("ab") as changes:
                changes.write(bytes(30) + b'\n{"directory":"new"}\n')
        with left_alone(root):
            run = ServeProcess(root, tmp_path, "--read-only", "--state", str(tmp_path / "state"))
            with WireClient(run.broker) as client:
                assert wanted <= pull_all(client, wanted)
            assert run.stop() == 0
            told = run.events("damage")
            assert [(one["code"], one["file"], one["offset"], one["length"]) for one in told] == [
                ("CL-MAGIC", f"commitlog/{first.name}", at, victim["storeSize"])
            ]
            lost = [one["message"] for one in run.events("recovered")]
            assert lost == (
                [
                    f"{tmp_path}/state/changes: the machine stopped before the last 51 bytes of changes were on disk, "
                    "and they are left out"
                ]
                if is_second
                else []
            )


def test_damage_in_entries_of_a_dledger_group_is_stepped_over(
    writable_store: Callable[[str], Path], tmp_path: Path
) -> None:
    root = writable_store("49-dledger")
    data = min((root / "dledger-n0" / "data").iterdir())
    first, second = sorted(one["commitLogOffset"] for one in rmqtool.scan(str(root)))[5:7]
    with data.open("r+b") as file:
        file.seek(first - 48)
        file.write(b"\1\2\3\4")
    wanted = shown(root)
    for _ in range(2):
        with left_alone(root):
            run = ServeProcess(root, tmp_path, "--read-only", "--state", str(tmp_path / "state"))
            with WireClient(run.broker) as client:
                assert wanted <= pull_all(client, wanted)
            assert run.stop() == 0
        told = run.events("damage")
        assert [(one["code"], one["file"], one["offset"], one["length"]) for one in told] == [
            ("DL-MAGIC", f"dledger-n0/data/{data.name}", first - 48, second - first)
        ]


def test_a_bad_sector_costs_the_records_that_touch_it(
    writable_store: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = writable_store("53-broker")
    first = min((root / "commitlog").iterdir())
    span = (8192, 12288)
    hit = {
        (one["topic"], one["queueId"], one["queueOffset"])
        for one in rmqtool.scan(str(root))
        if one["commitLogOffset"] < span[1] and one["commitLogOffset"] + one["storeSize"] > span[0]
    }
    wanted = shown(root) - hit
    spoil(monkeypatch, first, span)
    state = str(tmp_path / "state")
    with rmqtool.serve(root, read_only=True, state=state) as served, WireClient(served.broker) as client:
        got = pull_all(client, wanted)
    assert wanted <= got
    assert not got & hit


def test_a_place_where_progress_cannot_be_kept_is_refused(store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store("53-broker")
    with pytest.raises(Refused) as refused, rmqtool.serve(root, read_only=True, state=str(tmp_path / "no" / "such")):
        pass
    assert "--state" in str(refused.value.hint)
    with (
        pytest.raises(UsageError, match="inside the store"),
        rmqtool.serve(root, read_only=True, state=str(root / "s")),
    ):
        pass
    found = subprocess.run(
        [sys.executable, "-m", "rmqtool", "serve", str(root), "--state", "x", "--for", "1s"],
        capture_output=True,
        check=False,
    )
    assert found.returncode == 2


def test_a_state_of_the_store_as_it_was_is_refused(writable_store: Callable[[str], Path], tmp_path: Path) -> None:
    root, state = writable_store("53-broker"), str(tmp_path / "state")
    with rmqtool.serve(root, read_only=True, state=state):
        pass
    with (root / "commitlog" / min((root / "commitlog").iterdir()).name).open("r+b") as file:
        file.write(file.read(1))
    with pytest.raises(Refused, match="the store has changed"), rmqtool.serve(root, read_only=True, state=state):
        pass


@pytest.mark.slow
def test_nobody_else_writes_meanwhile(writable_store: Callable[[str], Path], tmp_path: Path) -> None:
    root = writable_store("53-broker")
    with rmqtool.serve(root, read_only=True, state=str(tmp_path / "state")):
        found = subprocess.run(
            [sys.executable, "-m", "rmqtool", "serve", str(root), "--listen", "127.0.0.1:0", "--names", "127.0.0.1:0"],
            capture_output=True,
            check=False,
        )
        assert found.returncode == 4
        # Another process may read as well, with a state of its own.
        other = ServeProcess(root, tmp_path, "--read-only", "--state", str(tmp_path / "other"))
        assert other.stop() == 0
