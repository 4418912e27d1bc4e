"""The first look: ``info`` and ``check --quick`` give no all-clear for what is broken, and agree with the others."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.files.failures import read_failed
from rmqtool.files.filesystem import Space
from rmqtool.files.posix import PosixReadableFile, PosixReadableFileSystem
from rmqtool.look import disk
from tests.support.stores import STORES, left_alone, truth


def run(capsys, *words) -> tuple[int, str, str]:
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err


def findings(capsys, root: Path, *words: str) -> list[dict[str, Any]]:
    """Return the findings of a command above notices."""
    command, *more = words
    out = run(capsys, command, root, *more, "--json")[1]
    parsed = json.loads(out)
    found = parsed["findings"] if isinstance(parsed, dict) else [line for line in parsed if "code" in line]
    return [one for one in found if one["severity"] != "notice"]


def codes(capsys, root: Path, *words: str) -> set[tuple[str, str]]:
    return {(one["code"], one["file"]) for one in findings(capsys, root, *words)}


def commit(root: Path, old: str, new: str) -> None:
    """Change the offsets of groups in the text of their file, blanks left out."""
    path = root / "config" / "consumerOffset.json"
    text = "".join(path.read_text().split())
    assert old in text
    path.write_text(text.replace(old, new))


# --- queues that are not there


def test_queues_that_are_all_gone_are_an_error(writable_store, capsys):
    root = writable_store("53-broker")
    shutil.rmtree(root / "consumequeue")
    for words in (("info",), ("check", "--quick")):
        (one,) = findings(capsys, root, *words)
        assert (one["code"], one["severity"], one["file"]) == ("CQ-MISSING", "error", "consumequeue")
        assert "there is no queue, and the log holds messages of 32 queues" in one["message"]
    assert run(capsys, "check", root, "--quick")[0] == Exit.NO
    assert {code for code, _ in codes(capsys, root, "check")} == {"CQ-MISSING"}


def test_the_queues_of_one_topic_that_are_gone_are_named(writable_store, capsys):
    root = writable_store("53-broker")
    shutil.rmtree(root / "consumequeue" / "T_normal")
    gone = {f"consumequeue/T_normal/{queue}" for queue in range(4)}
    for words in (("info",), ("check", "--quick")):
        assert codes(capsys, root, *words) == {("CQ-MISSING", file) for file in gone}
    assert {(code, os.path.dirname(file)) for code, file in codes(capsys, root, "check")} == {
        ("CQ-MISSING", file) for file in gone
    }
    shown = run(capsys, "info", root, "groups")[1]
    assert "2 groups are ahead of their queues: G_ok 140, G_sql 140" in shown
    assert "no group lags" not in shown


@pytest.mark.parametrize("left", [5, 2])
def test_a_queue_file_and_an_index_file_that_were_cut_are_named(left, writable_store, capsys):
    """A broker refuses to start for a queue file of another size, and finds no key in an index file that was cut."""
    root = writable_store("53-broker")
    queue = "consumequeue/%DLQ%G_order/0/" + "0" * 20
    first, *others = sorted(os.listdir(root / "index"))
    for name in others[: len(others) + 1 - left]:
        (root / "index" / name).unlink()
    os.truncate(root / queue, 500)
    os.truncate(root / "index" / first, 3000)
    for words in (("info",), ("check", "--quick")):
        assert codes(capsys, root, *words) == {("CQ-SIZE", queue), ("IX-HEAD", f"index/{first}")}, words
    assert "no problems found" not in run(capsys, "info", root)[1]


def test_a_queue_of_which_the_log_holds_no_message_is_no_damage(writable_store, capsys):
    """Offsets of queues that are gone with all their messages: consumers begin anew, nothing is lost."""
    root = writable_store("53-broker")
    commit(root, '"T_normal@G_ok":{', '"Deleted@G_ok":{0:7},"T_normal@G_ok":{9:5,')
    for words in (("info",), ("check", "--quick"), ("check",)):
        assert findings(capsys, root, *words) == []
        command, *more = words
        out = run(capsys, command, root, *more, "--json")[1]
        assert "group G_ok committed 5 of a queue that is not there" in out
        assert "group G_ok committed 7 of a queue that is not there, and topics.json does not name the topic" in out


def test_an_offset_behind_the_end_of_its_queue_is_the_same_for_all(writable_store, capsys):
    root = writable_store("53-broker")
    commit(root, '"T_normal@G_ok":{0:35,1:35', '"T_normal@G_ok":{0:35,1:999')
    for words in (("info",), ("check", "--quick"), ("check",)):
        (one,) = findings(capsys, root, *words)
        assert (one["code"], one["topic"], one["queueId"]) == ("OF-RANGE", "T_normal", 1)
        assert one["message"] == "group G_ok committed 999, but the queue ends at 35"


@pytest.mark.parametrize("name", STORES)
def test_no_store_of_a_broker_lacks_a_queue(name, store, capsys):
    for words in (("info",), ("check", "--quick")):
        assert not {code for code, _ in codes(capsys, store(name), *words)} & {"CQ-MISSING", "OF-RANGE", "ST-FOREIGN"}


# --- strangers


@pytest.mark.parametrize(
    ("name", "said"),
    [("notes.txt", "brokers ignore it"), ("lock", "none: brokers do not read it")],
)
def test_what_brokers_ignore_is_a_notice_that_says_so(name, said, writable_store, capsys):
    root = writable_store("53-broker")
    (root / name).write_text("hello\n")
    out = run(capsys, "check", root, "--json")[1]
    (one,) = [line for line in json.loads(out) if line.get("file") == name]
    assert (one["severity"], one["consequence"], one.get("fix")) == ("notice", said, None)


def as_file(path: Path) -> None:
    path.write_text("hello\n")


def as_empty(path: Path) -> None:
    path.touch()


def as_segment(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(65536)


STRANGERS: list[tuple[str, Callable[[Path], None]]] = [
    ("commitlog/README", as_file),
    ("commitlog/zz", as_empty),
    ("commitlog/aa", as_empty),
    ("commitlog/copy", as_segment),
    ("commitlog/directory", Path.mkdir),
    ("consumequeue/README", as_file),
    ("consumequeue/T_normal/README", as_file),
    ("consumequeue/T_normal/0/README", as_file),
    ("consumequeue/T_normal/0/directory", Path.mkdir),
    ("index/README", as_file),
    ("README", as_file),
]


@pytest.mark.parametrize("version", ["4.9", "5.3", "5.4"])
@pytest.mark.parametrize(("where", "make"), STRANGERS, ids=[where for where, _ in STRANGERS])
def test_a_stranger_stops_a_broker_for_all_or_for_none(where, make, version, writable_store, capsys):
    root = writable_store("53-broker")
    make(root / where)
    starts = json.loads(run(capsys, "recover", root, "--as", version, "--json")[1])["loads"]
    for words in (("info",), ("check", "--quick")):
        found = codes(capsys, root, *words, "--as", version)
        assert found == (set() if starts else {("ST-FOREIGN", where)}), words


# --- the disk


def full(percent: int) -> Callable[[str], Space]:
    return lambda _path: Space(total=1000, free=1000 - 10 * percent, available=1000 - 10 * percent)


@pytest.mark.parametrize(
    ("percent", "severity", "said"),
    [
        (75, None, ""),
        (76, "notice", "above 75 % a broker deletes files of the log older than 72 h at any hour"),
        (86, "warning", "above 85 % a broker deletes the oldest files of the log at any age"),
        (91, "warning", "above 90 % a broker refuses messages; it deletes the oldest files of the log at any age"),
    ],
)
def test_how_full_the_disk_is(percent, severity, said, store, monkeypatch, capsys):
    monkeypatch.setattr(disk, "measure", full(percent))
    root = store("49-basic")
    status, out, _ = run(capsys, "info", root, "--json")
    shown = json.loads(out)
    assert (status, shown["disk"]["usedRatio"]) == (Exit.DONE, percent / 100)
    assert shown["disk"]["path"] == os.path.realpath(root / "commitlog")
    assert shown["disk"].get("consequence", "").startswith(said)
    assert ("consequence" in shown["disk"]) == (severity is not None)
    told = [one["severity"] for one in shown["findings"] if one["code"] == "ST-DISK"]
    assert told == ([] if severity is None else [severity])
    status, out, _ = run(capsys, "check", root, "--quick", "--jsonl")
    assert status == (Exit.NO if severity == "warning" else Exit.DONE)
    assert ('"ST-DISK"' in out) == (severity is not None)
    assert run(capsys, "check", root)[0] == Exit.DONE


def test_a_level_of_the_settings_counts_within_what_a_broker_takes(store, monkeypatch, capsys):
    monkeypatch.setattr(disk, "measure", full(60))
    root = store("53-basic")
    out = run(capsys, "info", root, "--json", "--conf", "diskMaxUsedSpaceRatio=50")[1]
    assert json.loads(out)["disk"]["consequence"].startswith("above 50 %")
    out = run(capsys, "info", root, "--json", "--conf", "diskSpaceWarningLevelRatio=99")[1]
    assert "consequence" not in json.loads(out)["disk"]


# --- a log that is elsewhere


def test_a_log_behind_a_link_is_read_by_all(writable_store, tmp_path, capsys):
    root = writable_store("53-broker")
    target = tmp_path / "volume"
    (root / "commitlog").rename(target)
    (root / "commitlog").symlink_to(target)
    with left_alone(root), left_alone(target):
        status, out, _ = run(capsys, "info", root, "--json")
        shown = json.loads(out)
        assert (status, shown["commitLog"]["maxOffset"]) == (Exit.DONE, truth("53-broker")["max_phy"])
        (link,) = [one for one in shown["findings"] if one["code"] == "ST-LINK"]
        assert (link["severity"], link["message"]) == ("notice", f"commitlog is a symbolic link to {target}")
        for words in (("check", "--quick"), ("check",)):
            assert findings(capsys, root, *words) == []
        recovered = json.loads(run(capsys, "recover", root, "--json")[1])
        assert (recovered["loads"], recovered["messagesLost"]) == (True, 0)
        assert run(capsys, "repair", root)[0] == Exit.DONE
        assert run(capsys, "cat", root, "--count")[1] == f"{len(truth('53-broker')['messages'])}\n"
        assert run(capsys, "cat", root, "--count", "-j", "2")[1] == f"{len(truth('53-broker')['messages'])}\n"


def test_a_link_that_leads_nowhere_is_no_log(writable_store, tmp_path, capsys):
    root = writable_store("53-broker")
    (root / "commitlog").rename(tmp_path / "volume")
    (root / "commitlog").symlink_to(tmp_path / "unmounted")
    for words in (("info",), ("check", "--quick")):
        assert {"ST-LINK", "ST-MOUNT"} <= {code for code, _ in codes(capsys, root, *words)}


# --- what cannot be read


@pytest.mark.parametrize(
    "victim",
    [
        "config/topics.json",
        "config/consumerOffset.json",
        "config/subscriptionGroup.json",
        "config/delayOffset.json",
        "checkpoint",
        "index/20261118121924240",
        "consumequeue/T_normal/0/00000000000000000000",
    ],
)
def test_one_file_that_cannot_be_read_hides_nothing_else(victim, store, monkeypatch, capsys):
    root = store("53-broker")
    if victim.startswith("index/"):
        victim = f"index/{min(path.name for path in (root / 'index').iterdir())}"
    opened = PosixReadableFileSystem.open_read

    def refuse(self: PosixReadableFileSystem, path: str) -> PosixReadableFile:
        if path == victim:
            shown = self.shown(path)
            raise read_failed("open", shown, PermissionError(errno.EACCES, "Permission denied"))
        return opened(self, path)

    monkeypatch.setattr(PosixReadableFileSystem, "open_read", refuse)
    status, out, _ = run(capsys, "info", root, "--json")
    shown = json.loads(out)
    assert status == Exit.SKIPPED
    told = [one for one in shown["findings"] if one["code"] == "ST-READ"]
    assert [(one["file"], one["fix"]) for one in told] == [
        (victim, "run the command as the owner of the store, or as root")
    ]
    assert [one["code"] for one in shown["findings"] if one["severity"] != "notice"] == ["ST-READ"]
    assert shown["commitLog"]["maxOffset"] == truth("53-broker")["max_phy"]
    for words in (("check", root), ("check", root, "--quick")):
        status, out, _ = run(capsys, *words, "--jsonl", "-j", "1")
        assert status == Exit.SKIPPED, words
        assert any(
            line.get("code") == "ST-READ" and line["file"] == victim for line in map(json.loads, out.splitlines())
        )
    if victim.startswith("config/"):
        status, out, err = run(capsys, "stat", root, "--json")
        assert (status, json.loads(out)["total"]["messages"]) == (Exit.SKIPPED, len(truth("53-broker")["messages"]))
        assert f"{victim} is not in the answer" in err


@pytest.mark.parametrize(
    "words",
    [("info",), ("check",), ("query", "T_normal/0@1"), ("consume", "--from", "first", "-g", "new")],
    ids=lambda words: words[0],
)
def test_a_table_of_rocksdb_that_cannot_be_read_is_named(words, writable_store, capsys):
    pytest.importorskip("rocksdict")
    root = writable_store("53-rocksdb")
    for path in (root / "consumequeue").glob("*.sst"):
        with path.open("r+b") as file:
            file.seek(100)
            file.write(b"\xff\xff\xff\xff")
    names = {path.name for path in (root / "consumequeue").glob("*.sst")}
    command, *more = words
    status, out, err = run(capsys, command, root, *more)
    assert status == Exit.SKIPPED
    assert any(f"consumequeue/{name}" in out + err for name in names)
    assert "no new messages" not in out + err


# --- one number for one thing


def test_counts_are_the_same_wherever_they_stand(store, capsys):
    root = store("53-broker")
    shown = json.loads(run(capsys, "info", root, "--json")[1])
    own = {"CID_RMQ_SYS_REVIVE_GROUP", "CID_RMQ_SYS_TRANS"}
    lags = {
        group: sum(place["lag"] for queues in topics.values() for place in queues.values())
        for group, topics in shown["groups"].items()
        if group not in own
    }
    total = sum(lags.values())
    assert total > 0
    screen = run(capsys, "info", root)[1]
    assert f"; {sum(map(bool, lags.values()))} groups lag, by {total} messages in total" in screen
    groups = run(capsys, "info", root, "groups")[1]
    assert f"{sum(map(bool, lags.values()))} groups lag: " in groups
    rows = json.loads(run(capsys, "info", root, "topics", "--json")[1])
    assert sum(row["lag"] for row in rows) == total
    queues = sum(len(topic["queues"]) for topic in shown["topics"].values())
    assert sum(row["queues"] for row in rows) == queues
    assert f"{queues} of {sum(bool(row['queues']) for row in rows)} topics" in screen
    configured = {row["topic"]: row["writeQueueNums"] for row in json.loads(run(capsys, "topic", root, "--json")[1])}
    assert {row["topic"]: row["configuredQueues"] for row in rows if row["topic"] in configured} == configured


def test_config_shows_what_the_store_has(store, capsys):
    rows = {row["name"]: row for row in json.loads(run(capsys, "info", store("53-broker"), "config", "--json")[1])}
    seen = {name: (rows[name]["value"], rows[name]["origin"]) for name in ("mappedFileSizeCommitLog", "listenPort")}
    assert seen == {
        "mappedFileSizeCommitLog": ("65536", "found in the store"),
        "listenPort": ("28171", "found in the store"),
    }


def test_a_copy_by_hard_links_is_named(writable_store, capsys):
    root = writable_store("53-broker")
    assert all(code != "ST-LINK" for code, _ in codes(capsys, root, "info"))
    for name in ("commitlog/00000000000000196608", "config/topics.json"):
        os.link(root / name, root.parent / name.rpartition("/")[2])
    for words in (("info",), ("check", "--quick"), ("check",)):
        main([words[0], str(root), "--json", *words[1:]])
        shown = json.loads(capsys.readouterr().out)
        found = shown["findings"] if words == ("info",) else shown[:-1]
        assert [(one["code"], one["severity"], one["file"]) for one in found] == [
            ("ST-LINK", "notice", "commitlog/00000000000000196608")
        ]
        assert found[0]["message"].startswith("2 files have other names outside the store (hard links)")


def test_groups_whose_queues_are_gone_are_not_called_without_lag(writable_store, capsys):
    root = writable_store("53-broker")
    assert "past the end of a queue" not in run(capsys, "info", root)[1]
    shutil.rmtree(root / "consumequeue")
    (words,) = [line for line in run(capsys, "info", root)[1].splitlines() if line.startswith("groups ")]
    assert "no lag" not in words
    assert "with committed offsets past the end of a queue" in words


def test_the_only_group_that_lags_is_named() -> None:
    from rmqtool.render.overview import _group_words

    groups = {name: {"T": {"0": {"committed": 1, "lag": lag}}} for name, lag in (("g_done", 0), ("g_lag", 26))}
    assert _group_words(groups, ()) == "2; 1 group lags: g_lag, by 26 messages"
    assert _group_words({**groups, "g": groups["g_lag"]}, ("g",)).startswith(
        "2, and 1 of the broker's own; 1 group lags"
    )
    assert _group_words({**groups, "g": groups["g_lag"]}, ()) == "3; 2 groups lag, by 52 messages in total"


def test_a_rehearsal_names_the_queues_that_lost_messages_and_says_that_apply_cannot_be_undone(store, capsys) -> None:
    out = " ".join(run(capsys, "recover", store("49-killed-torn"))[1].split())
    assert "but 3 were lost already: 1 in KillT/0, 1 in KillT/1, 1 in KillT/2" in out
    assert (
        "keep all valid messages: repair (deals with damage, can be undone), or recover --apply (does neither)." in out
    )
    assert "can be started" not in out
    sound = run(capsys, "recover", store("49-basic"))[1]
    assert "\na 4.9 broker would start and delete no message" in sound
