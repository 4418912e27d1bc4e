"""Configuration that was cut, or goes on after its end, or is gone: what is left of it is found, and taken."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.formats.topics import topic_kind
from tests.support.stores import FileState, tree_changes, tree_state

STATE = ("--apply", "--allow", "state")


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def table(path: Path) -> dict[str, Any]:
    """Return a table as JSON has it; the names of queues are numbers there."""
    quoted = re.sub(r"([{,])\s*(\d+):", r'\1"\2":', path.read_text())
    found: dict[str, Any] = json.loads(quoted)
    return found


def without_copy(root: Path, name: str) -> Path:
    path = root / "config" / name
    path.with_name(f"{name}.bak").unlink(missing_ok=True)
    return path


def restorable(root: Path) -> dict[str, FileState]:
    return {path: one._replace(ctime_ns=0) for path, one in tree_state(root).items()}


def findings(root: Path, capsysbinary: Any) -> list[dict[str, Any]]:
    main(["check", str(root), "--jsonl"])
    return [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()[:-1]]


def repaired(root: Path, capsysbinary: Any) -> dict[str, Any]:
    """Follow the fix that check names; undo brings every byte back, doing it again the repair."""
    found = [one for one in findings(root, capsysbinary) if one["code"] in ("CF-JSON", "CF-EMPTY", "CF-BAK")]
    assert {one["fix"] for one in found} == {f"rmqtool repair {root}"}
    before = restorable(root)
    status, shown = run(capsysbinary, "repair", root, "config", "offsets", *STATE)
    assert (status, shown["left"]) == (Exit.DONE, [])
    assert {step["class"] for step in shown["steps"]} == {"state"}
    after = restorable(root)
    assert run(capsysbinary, "repair", root, "--undo", "last")[0] == Exit.DONE
    assert tree_changes(before, restorable(root)) == []
    assert run(capsysbinary, "repair", root, "config", "offsets", *STATE)[0] == Exit.DONE
    kept = {path: one._replace(mtime_ns=0) for path, one in restorable(root).items()}
    assert {path: one._replace(mtime_ns=0) for path, one in after.items()} == kept
    return {step["file"]: step["reason"] for step in shown["steps"]}


@pytest.mark.parametrize(("rest", "has_copy"), [(b"}", True), (b"\0\0 old end}", False)])
def test_a_table_that_goes_on_after_its_end_loses_only_that(rest, has_copy, writable_store, capsysbinary):
    """The copy is older: what the file said goes first. upstream: apache/rocketmq issues 9328, 10258"""
    root = writable_store("53-broker")
    path = root / "config/consumerOffset.json"
    whole = path.read_bytes()
    if has_copy:
        path.with_name(f"{path.name}.bak").write_bytes(whole.replace(b"35", b"34"))
    else:
        without_copy(root, path.name)
    path.write_bytes(whole + rest)
    reasons = repaired(root, capsysbinary)
    assert path.read_bytes() == whole
    assert f"it is valid up to {len(whole)}" in reasons["config/consumerOffset.json"]


def test_offsets_that_were_cut_are_kept_as_far_as_they_are_whole(writable_store, capsysbinary):
    root = writable_store("53-broker")
    path = without_copy(root, "consumerOffset.json")
    whole = table(path)["offsetTable"]
    cut = path.read_bytes()
    # Within a number: the digits that are left may not be all.
    at = [found.end() for found in re.finditer(rb":3(?=5)", cut)][-1]
    path.write_bytes(cut[:at])
    repaired(root, capsysbinary)
    left = table(path)["offsetTable"]
    assert left
    for key, queues in left.items():
        assert queues.items() <= whole[key].items(), key
    assert sum(map(len, left.values())) == cut[:at].count(b":") - cut[:at].count(b'":') - 1


def test_topics_that_were_cut_are_completed_from_the_queues(writable_store, capsysbinary):
    root = writable_store("53-broker")
    path = without_copy(root, "topics.json")
    whole = table(path)["topicConfigTable"]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    repaired(root, capsysbinary)
    left = table(path)["topicConfigTable"]
    served = {one.parent.name for one in (root / "consumequeue").glob("*/*")}
    assert {topic for topic in served if topic_kind(topic) in ("normal", "retry", "dlq")} <= left.keys()
    kept = [name for name in left if left[name] == whole.get(name)]
    assert len(kept) > len(left) // 2
    # Of one that was cut nothing is taken: half of its settings would be the defaults.
    text = data[: len(data) * 2 // 3].decode()
    torn = re.findall(r'\},?\s*"([^"]+)":\{[^}]*$', text)
    assert torn == [] or torn[0] not in left or left[torn[0]]["readQueueNums"] <= whole[torn[0]]["readQueueNums"]


@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_topics_and_groups_that_are_gone_are_made_from_queues_and_offsets(how, writable_store, capsysbinary):
    root = writable_store("53-broker")
    paths = [without_copy(root, name) for name in ("topics.json", "subscriptionGroup.json")]
    for path in paths:
        if how == "gone":
            path.unlink()
        else:
            path.write_bytes(b"\xff\xfenot json")
    reasons = repaired(root, capsysbinary)
    topics = table(paths[0])["topicConfigTable"]
    queues = {int(one.name) for one in (root / "consumequeue/T_normal").iterdir()}
    assert topics["T_normal"]["readQueueNums"] == topics["T_normal"]["writeQueueNums"] == max(queues) + 1
    assert (topics["T_normal"]["perm"], topics["T_normal"]["topicName"]) == (6, "T_normal")
    groups = table(paths[1])["subscriptionGroupTable"]
    committed = {key.split("@")[1] for key in table(root / "config/consumerOffset.json")["offsetTable"]}
    assert "G_ok" in groups
    assert groups.keys() <= committed
    assert "made from the queues" in reasons["config/topics.json"]
    assert "made from the committed offsets" in reasons["config/subscriptionGroup.json"]


def test_the_same_plan_twice_is_the_same_plan(writable_store, capsysbinary):
    root = writable_store("53-broker")
    without_copy(root, "topics.json").unlink()
    _, seen = run(capsysbinary, "repair", root)
    words = ("config", *STATE, "--plan", run(capsysbinary, "repair", root, "config")[1]["plan"])
    assert run(capsysbinary, "repair", root)[1]["plan"] == seen["plan"]
    assert run(capsysbinary, "repair", root, *words)[0] == Exit.DONE


def test_offsets_of_which_nothing_is_left_are_not_invented(writable_store, capsysbinary):
    root = writable_store("53-broker")
    path = without_copy(root, "consumerOffset.json")
    path.write_bytes(b"\0" * 100)
    (one,) = [one for one in findings(root, capsysbinary) if one["code"] == "CF-JSON"]
    assert one["fix"] == "restore it from a backup; these offsets are only in this file"
    assert "--to max" not in json.dumps(one)
    status, shown = run(capsysbinary, "repair", root, *STATE)
    assert (status, [found["code"] for found in shown["left"]]) == (Exit.NO, ["CF-JSON"])
    assert path.read_bytes() == b"\0" * 100


def test_no_hint_leads_to_skipping_every_message(writable_store, capsys):
    root = writable_store("53-broker")
    without_copy(root, "consumerOffset.json")
    assert main(["repair", str(root), "offsets", "-g", "G_ok", "--from-bak"]) == Exit.NO
    assert "max" not in capsys.readouterr().err


ROCKS_GROUP, ROCKS_TOPIC = "G_r1", "RocksA"


def rocks_offsets(root: Path, capsysbinary: Any) -> dict[str, int]:
    _, shown = run(capsysbinary, "info", root)
    return {queue: one["committed"] for queue, one in shown["groups"][ROCKS_GROUP][ROCKS_TOPIC].items()}


@pytest.mark.parametrize("name", ["53-rocksdbv2", "54-rocksone"])
def test_offsets_in_a_database_are_set_and_come_back(name, writable_store, capsysbinary):
    pytest.importorskip("rocksdict")
    root = writable_store(name)
    before, bytes_before = rocks_offsets(root, capsysbinary), restorable(root)
    words = ["repair", root, "offsets", "-g", ROCKS_GROUP, "-t", ROCKS_TOPIC, "--to"]
    plans = [run(capsysbinary, *words, to, "--allow", "state")[1] for to in ("7", "8", "7")]
    ids = [plan["plan"] for plan in plans]
    assert ids[0] == ids[2] != ids[1]
    (changed,) = [step["offsets"] for step in plans[0]["steps"] if "offsets" in step]
    assert [(one["queueId"], one["before"], one["after"]) for one in changed] == [
        (int(queue), offset, 7) for queue, offset in before.items()
    ]
    status, done = run(capsysbinary, *words, "7", *STATE, "--plan", ids[0])
    assert (status, done["applied"]) == (Exit.DONE, True)
    assert rocks_offsets(root, capsysbinary) == dict.fromkeys(before, 7)
    assert run(capsysbinary, "check", root, "--only", "OF")[0] == Exit.DONE
    assert main(["repair", str(root), "--undo", "last"]) == Exit.DONE
    assert restorable(root) == bytes_before


def test_a_database_keeps_no_copy_of_offsets(writable_store, capsysbinary):
    pytest.importorskip("rocksdict")
    root = writable_store("54-rocksone")
    status, told = run(capsysbinary, "repair", root, "offsets", "-g", ROCKS_GROUP, "--from-bak")
    assert status == Exit.NOT_A_STORE
    assert told["error"]["message"] == "the offsets of this store are in RocksDB, which keeps no copy"
