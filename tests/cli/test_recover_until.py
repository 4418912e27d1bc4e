"""``recover --until``: the store as it was at a time. What is kept is exact, and the store itself is not touched."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.schemas import validate
from tests.support.stores import left_alone

Unpacker = Callable[[str], Path]

WHOLE = ("49-broker", "49-killed-torn", "49-lmq", "49-multidir", "53-broker", "53-cleaned", "53-timer", "54-broker")


def messages(root: Path) -> list[dict[str, Any]]:
    return [one for one in rmqtool.scan(str(root)) if "topic" in one]


def log_bytes(root: Path, directories: list[str]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for name in directories for path in (root / name).iterdir()}


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["recover", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def committed(root: Path, topic: str, group: str) -> dict[int, int]:
    """Return what the table says, as upstream writes it: {0:12,1:12}."""
    text = (root / "config/consumerOffset.json").read_text()
    found = re.search(rf'"{topic}@{group}":{{([^}}]*)}}', text)
    assert found is not None
    return {int(queue): int(offset) for queue, offset in re.findall(r'"?(\d+)"?\s*:\s*(\d+)', found[1])}


def codes(root: Path) -> set[str]:
    return {finding.code for finding in rmqtool.check(str(root)) if finding.severity != "notice"}


@pytest.mark.parametrize("name", WHOLE)
def test_the_log_ends_before_the_first_message_of_the_time(
    name: str, store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, new = store(name), tmp_path / "new"
    every = messages(root)
    until = every[len(every) // 2]["storeTimestamp"]
    first = next(number for number, one in enumerate(every) if one["storeTimestamp"] >= until)
    kept, gone = every[:first], every[first:]
    with left_alone(root):
        status, out, _ = run(capsys, root, "--until", until, "--to", new, "--json")
    shown = json.loads(out)
    validate("recovered", shown)
    assert status == Exit.DONE
    assert messages(new) == kept
    assert (shown["applied"], shown["to"], shown["messages"]) == (True, str(new), len(kept))
    cut = shown["cut"]
    assert (cut["offset"], cut["messages"], sum(cut["topics"].values())) == (
        gone[0]["commitLogOffset"],
        len(gone),
        len(gone),
    )
    assert cut["topics"] == {
        topic: sum(one["topic"] == topic for one in gone) for topic in {one["topic"] for one in gone}
    }
    assert cut["storedBefore"] == sum(one["storeTimestamp"] < until for one in gone)
    assert codes(new) <= codes(root)
    assert shown["brokerStart"]["messagesLost"] == 0
    directories = sorted(path.name for path in root.iterdir() if path.name.startswith("commitlog"))
    before, after = log_bytes(root, directories), log_bytes(new, directories)
    for segment, data in after.items():
        end = min(len(data), max(cut["offset"] - int(segment), 0))
        assert data[:end] == before[segment][:end]
        assert not any(data[end:])


def test_without_a_place_nothing_is_written(
    store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store("49-broker")
    with left_alone(root):
        status, out, _ = run(capsys, root, "--until", "2026-11-18T12:23:26Z")
    assert status == Exit.DONE
    assert "LEFT OUT" in out
    assert "nothing was written; the store itself is unchanged" in out
    assert "--until 2026-11-18T12:23:26Z --to DIR" in out
    assert list(tmp_path.iterdir()) == []


def test_groups_that_had_read_further_begin_at_the_end(
    store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, new = store("53-broker"), tmp_path / "new"
    status, out, _ = run(capsys, root, "--until", "2026-11-18T12:19:25.835Z", "--to", new, "--json")
    shown = json.loads(out)
    assert status == Exit.DONE
    lowered = {(one["group"], one["topic"], one["queueId"]): (one["before"], one["after"]) for one in shown["offsets"]}
    assert lowered["G_ok", "T_delay", 1] == (7, 3)
    assert lowered["G_retry", "%RETRY%G_retry", 0] == (12, 0)
    assert committed(new, "T_delay", "G_ok")[1] == 3
    assert committed(new, "T_normal", "G_ok") == committed(root, "T_normal", "G_ok") != {}


def test_a_log_without_queues_gets_them_and_the_same_offsets(
    store: Unpacker, writable_store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mirror has no queues and no index before they are built."""
    words = ["--until", "2026-11-18T12:19:25.835Z", "--json", "--to"]
    _, whole, _ = run(capsys, store("53-broker"), *words, tmp_path / "whole")
    root = writable_store("53-broker")
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    status, out, _ = run(capsys, root, *words, tmp_path / "new")
    assert status == Exit.DONE
    assert json.loads(out)["offsets"] == json.loads(whole)["offsets"] != []
    assert messages(tmp_path / "new") == messages(tmp_path / "whole")
    assert codes(tmp_path / "new") == set()


def test_a_later_message_of_an_earlier_time_is_left_out_and_said(
    writable_store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock was set back by an hour before the last message. Its store time is at byte 56 of the record."""
    root = writable_store("49-basic")
    every = messages(root)
    last, until = every[-1], every[-2]["storeTimestamp"]
    first = next(number for number, one in enumerate(every) if one["storeTimestamp"] >= until)
    size = (root / "commitlog" / "00000000000000000000").stat().st_size
    segment, at = divmod(last["commitLogOffset"], size)
    with open(root / "commitlog" / f"{segment * size:020}", "r+b") as file:
        file.seek(at + 56)
        assert file.read(8) == last["storeTimestamp"].to_bytes(8, "big")
        file.seek(at + 56)
        file.write((last["storeTimestamp"] - 3_600_000).to_bytes(8, "big"))
    status, out, err = run(capsys, root, "--until", until, "--to", tmp_path / "new", "--json")
    assert status == Exit.DONE
    assert (json.loads(out)["cut"]["messages"], json.loads(out)["cut"]["storedBefore"]) == (len(every) - first, 1)
    assert "1 of the messages after the cut" in err
    assert messages(tmp_path / "new") == every[:first]


def test_a_time_after_all_messages_leaves_nothing_out(
    store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store("49-broker")
    status, out, _ = run(capsys, root, "--until", "2027-01-01", "--to", tmp_path / "new", "--json")
    assert (status, json.loads(out)["cut"], json.loads(out)["offsets"]) == (Exit.DONE, None, [])
    assert messages(tmp_path / "new") == messages(root)


@pytest.mark.parametrize(
    ("name", "words", "status", "said"),
    [
        ("49-broker", ["--until", "2026-11-18", "--apply"], Exit.REFUSED, "cannot be undone"),
        ("49-broker", ["--until", "2026-01-01"], Exit.REFUSED, "none would be left"),
        ("49-broker", ["--until", "soon"], Exit.USAGE, "soon"),
        ("53-rocksdb", ["--until", "2026-11-18T23:00:00Z"], Exit.NOT_A_STORE, "in RocksDB"),
        ("49-dledger", ["--until", "2026-11-18T23:00:00Z"], Exit.NOT_A_STORE, "DLedger"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(
    name: str, words: list[str], status: Exit, said: str, store: Unpacker, capsys: pytest.CaptureFixture[str]
) -> None:
    root = store(name)
    with left_alone(root):
        found, out, err = run(capsys, root, *words)
    assert (found, out) == (status, "")
    assert said in err
    if status != Exit.USAGE:
        assert "--to DIR" in err or "DIR -e TIME" in err or "--until" in err
