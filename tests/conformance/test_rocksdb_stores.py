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
    starter = Starter(version)
    try:
        answers = starter.start(roots, [settings] * len(roots))
    finally:
        starter.close()
    wanted = {
        (topic, queue_id): queue["maxOffset"]
        for topic, queues in told["queues"].items()
        for queue_id, queue in queues.items()
        if queue["maxOffset"]
    }
    for damage, answer in zip(DAMAGES, answers, strict=True):
        assert answer["load"]["result"] is True, (damage, answer["log"])
        served = {
            (topic, queue_id): len(queue["messages"])
            for topic, queues in answer["running"]["queues"].items()
            for queue_id, queue in queues.items()
            if (queue["minOffset"], queue["maxOffset"]) == (0, wanted.get((topic, queue_id)))
        }
        assert served == wanted, damage
