"""Further queues that a message names: all who read a topic agree on them, by the rules of the broker's version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.spark.source import RocketMQSource

NAMED = {"INNER_MULTI_DISPATCH": "b", "INNER_MULTI_QUEUE_OFFSET": "0"}


@pytest.mark.parametrize(("version", "messages"), [("4.9", 1), ("5.3", 0), ("5.4", 0)])
def test_a_retried_message_that_names_a_queue(
    version: str, messages: int, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Brokers from 5.1.1 on put messages of retry topics into no further queues."""
    root = tmp_path / "store"
    rmqtool.init(root, version=version, conf={"mappedFileSizeCommitLog": 65536})
    rmqtool.put(root, [{"topic": "%RETRY%g", "body": "x", "properties": NAMED}], create=True)
    rmqtool.topic(root, "create", "b")
    capsysbinary.readouterr()
    assert len(list(rmqtool.scan(root, topics="b"))) == messages
    assert rmqtool.stat(root, topics="b")["total"]["messages"] == messages
    assert main(["export", str(root), "-t", "b", "--to", str(tmp_path / "out"), "--engine", "local", "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["rows"] == messages
    source = RocketMQSource({"path": str(root), "topic": "b"})
    reader = source.reader(source.schema())
    assert sum(batch.num_rows for split in reader.partitions() for batch in reader.read(split)) == messages
