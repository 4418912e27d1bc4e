"""What the command line stored, opened by the real classes: every message, every queue, and their own puts."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.files.posix_write import PosixWritableFileSystem
from tests.conformance.oracle.runs import read_json, truth
from tests.conformance.test_engine_stores import READERS
from tests.support.engine_stores import iter_records

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("version", list(READERS))
def test_the_real_classes_read_what_was_produced(
    version: str,
    real_classes: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real_classes(READERS[version])
    root, sizes = tmp_path / "store", {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "600"}
    settings = [word for name, value in sizes.items() for word in ("--conf", f"{name}={value}")]
    assert main(["init", str(root), "--as", version, *settings]) == 0
    lines = [
        {"topic": f"T{number % 3}", "body": "b" * (number + 1), "keys": f"k{number} all", "tags": f"t{number % 5}"}
        | ({"delayLevel": number % 18 + 1} if number % 10 == 0 else {})
        for number in range(400)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    for flush in ("sync", "async"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert main(["produce", str(root), "--jsonl", "--create", "--flush", flush]) == 0
    capsys.readouterr()
    given, out = tmp_path / "sizes.json", tmp_path / "out.json"
    given.write_text(json.dumps(sizes))
    assert truth(READERS[version], root, out, config=given, put=True) == 0
    answer = read_json(out)
    ours = list(iter_records(PosixWritableFileSystem(str(root))))
    keys = ("commitLogOffset", "topic", "queueId", "queueOffset", "properties")
    found = [tuple(one[key] for key in keys) for one in answer["messages"]]
    assert found == [(one.physical_offset, one.topic, one.queue_id, one.queue_offset, one.properties) for one in ours]
    assert len(found) == 800
    assert {put["status"] for put in answer["putProbe"]} == {"PUT_OK"}
    assert all(put["readBack"] and put["queueOffset"] == put["expectedQueueOffset"] for put in answer["putProbe"])
    assert len(answer["putProbe"]) == 12
