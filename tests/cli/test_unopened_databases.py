"""RocksDB databases that do not open: every look goes on without them, and each screen says what can be had back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import Exit
from rmqtool.store.open import open_store
from rmqtool.store.rocksdb import open_database
from tests.guards.surroundings import unreadable
from tests.guards.typed import json_lines, type_words

pytest.importorskip("rocksdict", reason="needs the extra rocksdb")

MESSAGES = 134
DATABASES = ["consumequeue", "config/topics", "config/consumerOffsets", "config/subscriptionGroups", "kvStore"]


def without(root: Path, directory: str) -> Path:
    """Take from a database the file that names its manifest."""
    (root / directory / "CURRENT").unlink()
    return root


def fix_of(root: Path, directory: str) -> str:
    """Return what to type: the log has all content of the queues, and nothing else has that of the settings."""
    return f"rmqtool repair {root}" if directory == "consumequeue" else f"rmqtool copy {root} {root}.new --salvage"


@pytest.mark.parametrize("directory", DATABASES)
def test_check_names_the_database_once_and_goes_on(writable_store: Any, directory: str) -> None:
    root = without(writable_store("53-rocksdb"), directory)
    typed = type_words(["check", str(root), "--jsonl"])
    *found, last = json_lines(typed)
    assert typed.status == Exit.SKIPPED
    assert [(one["code"], one["file"]) for one in found] == [("RX-OPEN", f"{directory}/CURRENT")]
    assert found[0]["fix"] == fix_of(root, directory)
    assert ("cannot be restored without a backup" in found[0]["consequence"]) == (directory != "consumequeue")
    assert "rmqtool-rocksdb-" not in found[0]["message"], "a name of a temporary copy"
    assert (last["summary"]["messages"], last["summary"]["complete"]) == (MESSAGES, False)


@pytest.mark.parametrize("directory", [name for name in DATABASES if name != "kvStore"])
def test_info_says_the_same(writable_store: Any, directory: str) -> None:
    root = without(writable_store("53-rocksdb"), directory)
    typed = type_words(["info", str(root), "--json"])
    (found,) = json.loads(typed.out)["findings"]
    assert (typed.status, found["code"], found["file"]) == (Exit.SKIPPED, "RX-OPEN", f"{directory}/CURRENT")
    assert found["fix"] == fix_of(root, directory)


@pytest.mark.parametrize("directory", DATABASES)
def test_a_salvage_has_every_message_and_passes_but_for_what_is_gone(writable_store: Any, directory: str) -> None:
    root = without(writable_store("53-rocksdb"), directory)
    new = f"{root}.new"
    if directory != "kvStore":  # which no copy takes along
        refused = type_words(["copy", str(root), new])
        assert refused.status == Exit.NOT_A_STORE
        assert f"Next: {fix_of(root, directory)}" in refused.err
        assert not Path(new).exists()
    made = type_words(["copy", str(root), new, "--salvage", "--json"])
    assert made.status == (Exit.DONE if directory == "kvStore" else Exit.SKIPPED), made.said
    assert json.loads(made.out)["messages"] == MESSAGES
    gone = {
        "config/topics": ["config/topics.json"],
        "config/consumerOffsets": ["config/consumerOffset.json"],
        "config/subscriptionGroups": ["config/subscriptionGroup.json"],
    }
    *found, _ = json_lines(type_words(["check", new, "--jsonl"]))
    assert [(one["code"], one["file"]) for one in found] == [("CF-EMPTY", file) for file in gone.get(directory, [])]


def test_a_salvage_without_queues_keeps_what_groups_have_consumed(writable_store: Any) -> None:
    root = without(writable_store("53-rocksdb"), "consumequeue")
    assert type_words(["copy", str(root), f"{root}.new", "--salvage"]).status == Exit.SKIPPED
    groups = json.loads(type_words(["info", f"{root}.new", "--json"]).out)["groups"]
    assert groups["G_r1"]["RocksA"] == {number: {"committed": 30, "lag": 0} for number in "012"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("query {} 2026-11-18T12:19:26Z -t RocksA --kind time", ""),
        ("consume {} -g G_new -t RocksA --from first", ""),
        ("diff {} {}", "134 messages"),
        ("info {} groups", ""),
    ],
)
def test_looks_at_queues_go_on_and_end_with_what_they_lack(writable_store: Any, words: str, answer: str) -> None:
    root = without(writable_store("53-rocksdb"), "consumequeue")
    typed = type_words(words.format(root, root).split())
    assert (typed.status, answer in typed.out) == (Exit.SKIPPED, True), typed.said
    assert "RocksDB cannot open consumequeue" in typed.said


def test_a_message_is_found_in_the_log_when_its_queue_cannot_be_read(writable_store: Any) -> None:
    root = without(writable_store("53-rocksdb"), "consumequeue")
    typed = type_words(["query", str(root), "RocksA/0@3", "--json"])
    found = json.loads(typed.out)
    assert (typed.status, found["answeredBy"], found["messages"][0]["commitLogOffset"]) == (Exit.DONE, ["scan"], 8275)
    assert found["searched"]["unread"][0]["code"] == "RX-OPEN"
    absent = type_words(["query", str(root), "RocksA/0@300", "--json"])
    assert (absent.status, json.loads(absent.out)["complete"]) == (Exit.SKIPPED, False)
    story = type_words(["query", str(root), found["messages"][0]["uniqKey"], "--history", "--json"])
    assert (story.status, [event["event"] for event in json.loads(story.out)["history"]]) == (Exit.DONE, ["stored"])


def test_a_message_is_found_in_the_log_when_its_queue_file_may_not_be_read(writable_store: Any) -> None:
    root = writable_store("53-broker")
    with unreadable(root / f"consumequeue/T_normal/0/{0:020d}"):
        typed = type_words(["query", str(root), "T_normal/0@3", "--json"])
    found = json.loads(typed.out)
    assert (typed.status, found["answeredBy"]) == (Exit.DONE, ["scan"])
    assert [(one["topic"], one["queueId"], one["queueOffset"]) for one in found["messages"]] == [("T_normal", 0, 3)]
    assert found["searched"]["unread"][0]["code"] == "ST-READ"


def test_statistics_say_which_configuration_they_lack(writable_store: Any) -> None:
    root = without(writable_store("53-rocksdb"), "config/topics")
    typed = type_words(["stat", str(root), "--json"])
    assert typed.status == Exit.SKIPPED
    assert json.loads(typed.out)["total"]["messages"] == MESSAGES
    assert "config/topics/CURRENT is not in the answer" in typed.err


@pytest.mark.parametrize("name", ["53-rocksdb", "53-rocksdbv2", "54-rocksone"])
def test_topics_in_a_database_are_listed(writable_store: Any, name: str) -> None:
    typed = type_words(["topic", str(writable_store(name)), "list", "--jsonl"])
    rows = {row["topic"]: row for row in json_lines(typed)}
    assert typed.status == Exit.DONE
    assert (rows["RocksA"]["readQueueNums"], rows["RocksB"]["readQueueNums"]) == (3, 1)
    assert ("TBW102" in rows) == (name != "53-rocksdbv2"), "which has the topics alone that were made"


CHANGED = {b"New", b"RocksB", b"G", b"New@G", b"kvDataVersionKey"}
NEW_V2 = b"\x01\0\x03\x02\0\x03New"
CHANGED_V2 = {
    NEW_V2,
    b"\x01\0\x03\x02\0\x06RocksB",
    b"\x01\0\x04\x02\0\x01G",
    b"\x01\0\x01\x02\0\x01G\x01\0\x03New\x01\0\0\0\0",
    b"\x01\0\x01\x02\0\x01G\x01\0\x03New\x01\0\0\0\x01",
    b"\x01\0\x03\x01data_version",
    b"\x01\0\x04\x01data_version",
}
NEW_TOPIC = (
    b'{"attributes":{},"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG","topicName":"New",'
    b'"topicSysFlag":0,"writeQueueNums":2}'
)


def rows_of(root: Path) -> dict[tuple[str, str, bytes], bytes]:
    """Return all rows of the configuration, by database, family and key."""
    found = {}
    with open_store(str(root)) as store:
        for directory in store.listing.databases():
            if directory.startswith("config/"):
                with open_database(store, directory) as database:
                    for family in database.families:
                        for key, value in database.iter_rows(family):
                            found[directory, family, key] = value
    return found


@pytest.mark.parametrize("name", ["53-rocksdb", "53-rocksdbv2", "54-rocksone"])
def test_commands_change_the_rows_of_what_changed(writable_store: Any, name: str) -> None:
    root = writable_store(name)
    before = rows_of(root)
    for words in (
        ["topic", str(root), "create", "New", "--queues", "2"],
        ["produce", str(root), "-t", "New", "-q", "0", "hello"],
        ["consume", str(root), "-g", "G", "-t", "New", "--commit"],
        ["topic", str(root), "delete", "RocksB", "--yes"],
    ):
        typed = type_words(words)
        assert typed.status == Exit.DONE, typed.said
    after = rows_of(root)
    assert not list((root / "config").glob("topics.json*"))
    changed = {row for row in before.keys() | after.keys() if before.get(row) != after.get(row)}
    is_v2 = name == "53-rocksdbv2"
    assert {key for _, _, key in changed} == (CHANGED_V2 if is_v2 else CHANGED)
    (topic,) = (value for (_, _, key), value in after.items() if key == (NEW_V2 if is_v2 else b"New"))
    assert topic == (b"\x01" if is_v2 else b"") + NEW_TOPIC
    assert json.loads(type_words(["info", str(root), "--json"]).out)["groups"]["G"]["New"]["0"]["committed"] == 1


def test_the_way_out_of_what_cannot_be_read_is_that_of_its_cause(writable_store: Any) -> None:
    root = writable_store("53-broker")
    with unreadable(root / "config/consumerOffset.json"):
        *found, _ = json_lines(type_words(["check", str(root), "--jsonl"]))
    told = {one["file"]: one["fix"] for one in found if one["code"] == "ST-READ"}
    assert told == {"config/consumerOffset.json": "run the command as the owner of the store, or as root"}
    (root / "config/topics.json").unlink()
    (root / "config/topics.json").mkdir()
    *found, last = json_lines(type_words(["check", str(root), "--jsonl"]))
    told = {one["file"]: one["fix"] for one in found if one["code"] in ("ST-READ", "ST-FOREIGN")}
    assert told == {"config/topics.json": "move it out of the store"}
    assert last["summary"]["messages"] == 415, "the log is read although topics.json is not"


WRITER = """
import os, sys
from rocksdict import Options, Rdict
families = {name: Options(raw_mode=True) for name in Rdict.list_cf(sys.argv[1])}
database = Rdict(sys.argv[1], Options(raw_mode=True), column_families=families)
for number in range(200):
    database[b"New%d" % number] = b"{}"
os._exit(0)
"""


@pytest.mark.parametrize(("damage", "found"), [("none", 0), ("torn", 0), ("changed", 1), ("zeros", 1)])
def test_check_names_a_write_ahead_log_that_ends_early(writable_store: Any, damage: str, found: int) -> None:
    """A process that was killed leaves rows in the log alone. RocksDB opens a damaged one, without the rows after."""
    root = writable_store("53-rocksdb")
    directory = root / "config/topics"
    subprocess.run([sys.executable, "-c", WRITER, str(directory)], check=True)
    (directory / "rocksdict-config.json").unlink(missing_ok=True)
    (log,) = [path for path in directory.glob("*.log") if path.stat().st_size]
    data = log.read_bytes()
    half = len(data) // 2
    log.write_bytes(
        {
            "none": data,
            "torn": data[:-20],
            "changed": data[:half] + bytes([data[half] ^ 0xFF]) + data[half + 1 :],
            "zeros": data[:half] + bytes(len(data) - half),
        }[damage]
    )
    typed = type_words(["check", str(root), "--jsonl"])
    told = [one for one in json_lines(typed) if one.get("code") == "ST-READ"]
    assert [one["file"] for one in told] == [f"config/topics/{log.name}"] * found
    assert typed.status == (Exit.SKIPPED if found else Exit.DONE), typed.said
