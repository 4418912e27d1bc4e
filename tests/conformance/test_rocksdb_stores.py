"""Queues in RocksDB that rmqtool built: the real classes serve from them what they serve from their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.engine.recovery.recover import recover
from tests.conformance.oracle.runs import Starter, read_json
from tests.conformance.oracle.runs import truth as ask
from tests.support.recovered import setup_for
from tests.support.row_damage import DAMAGES
from tests.support.stores import truth, unpack

pytestmark = pytest.mark.conformance
pytest.importorskip("rocksdict", reason="needs the extra rocksdb")
READERS = ("5.3.3", "5.4.0")


def asked(reader: str, root: Path, name: str, out: Path) -> dict[str, Any]:
    """Return what real classes with queues in RocksDB answer about a store."""
    told = truth(name)
    settings = out.with_suffix(".settings")
    settings.write_text(json.dumps({"config": {**told["config"], "storeType": "defaultRocksDB"}}))
    status = ask(reader, root, out, config=settings)
    answer: dict[str, Any] = read_json(out)
    assert status == 0, answer.get("error")
    return answer


def ends(answer: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {
        (topic, queue_id): queue["maxOffset"]
        for topic, queues in answer["queues"].items()
        for queue_id, queue in queues.items()
        if queue["maxOffset"]
    }


def messages_of(answer: dict[str, Any]) -> list[tuple[object, ...]]:
    names = ("topic", "queueId", "queueOffset", "storedBodySha256")
    return sorted(tuple(message[name] for name in names) for message in answer["messages"])


@pytest.mark.parametrize("reader", READERS)
def test_queues_built_again(
    reader: str, real_classes: Callable[[str], None], writable_store: Callable[[str], Path], tmp_path: Path
) -> None:
    real_classes(reader)
    root, told = writable_store("53-rocksdb"), truth("53-rocksdb")
    shutil.rmtree(root / "consumequeue")
    delays = told["config"]["messageDelayLevel"]
    recover(setup_for(root, settings=["storeType=defaultRocksDB", f"messageDelayLevel={delays}"]))
    answer = asked(reader, root, "53-rocksdb", tmp_path / "out.json")
    assert ends(answer) == ends(told)
    bodies = {message["commitLogOffset"]: message["storedBodySha256"] for message in told["messages"]}
    assert {one["commitLogOffset"]: one["storedBodySha256"] for one in answer["messages"]} == bodies


@pytest.mark.parametrize("reader", READERS)
def test_a_copy_of_queues_in_files(
    reader: str, real_classes: Callable[[str], None], store: Callable[[str], Path], tmp_path: Path
) -> None:
    real_classes(reader)
    target, told = tmp_path / "copy", truth("53-broker")
    assert main(["copy", str(store("53-broker")), str(target), "--conf", "storeType=defaultRocksDB", "--quiet"]) == 0
    assert (target / "consumequeue/CURRENT").exists()
    assert not list((target / "consumequeue").glob("T_*"))
    answer = asked(reader, target, "53-broker", tmp_path / "out.json")
    assert ends(answer) == ends(told)
    found = sorted(
        (one["topic"], one["queueId"], one["queueOffset"], one["storedBodySha256"]) for one in answer["messages"]
    )
    assert found == sorted(
        (one["topic"], one["queueId"], one["queueOffset"], one["storedBodySha256"]) for one in told["messages"]
    )


SIZES = ("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "messageDelayLevel")
IN_BOTH = {"rocksdbCQDoubleWriteEnable": "true"}


@pytest.mark.parametrize(
    ("name", "version"), [("53-rocksdb", "5.3.3"), ("54-rocksone", "5.4.0"), ("54-combine", "5.4.0")]
)
def test_repaired_queues_are_served_whole(
    name: str, version: str, real_classes: Callable[[str], None], tmp_path: Path
) -> None:
    """Each damage of the queue database, repaired: the real store loads, starts, and serves every message.

    It loads 8 of the 24 unrepaired stores not at all, and hides messages of others; that is not compared here.
    """
    real_classes(version)
    told = truth(name)
    settings = {key: str(told["config"][key]) for key in SIZES if key in told["config"]}
    in_both = name == "54-combine"
    settings |= IN_BOTH if in_both else {"storeType": "defaultRocksDB"}
    roots = []
    for number, damage in enumerate(DAMAGES):
        root = unpack(name, tmp_path / f"{number}")
        DAMAGES[damage].apply(root)
        conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        assert main(["repair", str(root), "--apply", "--quiet", *conf]) == 0, damage
        roots.append(root)
    wanted = ends(told)
    for damage, found in zip(DAMAGES, served(version, roots, settings), strict=True):
        assert found == wanted, damage


def served(version: str, roots: list[Path], settings: dict[str, str]) -> list[dict[tuple[str, str], int]]:
    """Start the real store on each store, in place; return how many messages of each queue it serves, from 0 on."""
    starter = Starter(version)
    try:
        answers = starter.start(roots, [settings] * len(roots))
    finally:
        starter.close()
    assert [answer["load"]["result"] for answer in answers] == [True] * len(roots), [one["log"] for one in answers]
    stopped = [(root.parent.name, one["log"]) for root, one in zip(roots, answers, strict=True) if "running" not in one]
    assert stopped == []
    return [
        {
            (topic, queue_id): len(queue["messages"])
            for topic, queues in answer["running"]["queues"].items()
            for queue_id, queue in queues.items()
            if queue["maxOffset"] and (queue["minOffset"], len(queue["messages"])) == (0, queue["maxOffset"])
        }
        for answer in answers
    ]


@pytest.mark.parametrize(
    ("name", "version"), [("53-rocksdb", "5.3.3"), ("54-rocksone", "5.4.0"), ("54-combine", "5.4.0")]
)
def test_the_engine_and_the_real_store_go_on_in_turns(
    name: str, version: str, real_classes: Callable[[str], None], tmp_path: Path, capsysbinary: Any
) -> None:
    """Messages of `produce` are served by the real store, and `produce` goes on after it."""
    real_classes(version)
    told, root = truth(name), unpack(name, tmp_path)
    settings = {key: str(told["config"][key]) for key in SIZES if key in told["config"]}
    settings |= IN_BOTH if name == "54-combine" else {"storeType": "defaultRocksDB"}
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    wanted = ends(told)
    for turn in range(3):
        bodies = [f"{turn}-{number}" for number in range(5)]
        assert main(["produce", str(root), *bodies, "-t", "RocksA", "-q", "0", *conf, "--quiet"]) == 0
        wanted["RocksA", "0"] += 5
        assert served(version, [root], settings) == [wanted]
        assert main(["check", str(root), *conf, "--quiet"]) == 0
    capsysbinary.readouterr()
    assert main(["consume", str(root), "-g", "G_new", "-t", "RocksA", "--from", "first", "--jsonl", *conf]) == 0
    taken = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert len([one for one in taken if one.get("topic") == "RocksA"]) == sum(
        end for (topic, _), end in wanted.items() if topic == "RocksA"
    )


def test_a_copy_to_queues_in_files(
    real_classes: Callable[[str], None], store: Callable[[str], Path], tmp_path: Path
) -> None:
    real_classes("5.3.3")
    target, told = tmp_path / "copy", truth("53-rocksdb")
    settings = {key: str(told["config"][key]) for key in SIZES if key in told["config"]} | {"storeType": "default"}
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    assert main(["copy", str(store("53-rocksdb")), str(target), *conf, "--quiet"]) == 0
    assert not (target / "consumequeue/CURRENT").exists()
    assert served("5.3.3", [target], settings) == [ends(told)]
