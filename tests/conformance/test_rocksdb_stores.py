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
from tests.conformance.oracle.runs import read_json
from tests.conformance.oracle.runs import truth as ask
from tests.support.recovered import setup_for
from tests.support.stores import truth

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
