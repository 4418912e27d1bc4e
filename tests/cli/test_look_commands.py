"""``info`` and ``dump`` from the outside: screens, JSON, statuses, and that they only look."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool import kernel
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.golden_files import check_golden
from tests.support.stores import every_store, left_alone, truth, varied_stores

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class OpenWatch:
    """Remembers every path that this process opens for writing; hooks cannot be taken off again."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.watching = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if not self.watching or event not in ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.utime"):
            return
        if event != "open":
            self.opened.append(f"{event} {args[0]}")
        elif isinstance(args[2], int) and args[2] & WRITES:
            self.opened.append(str(args[0]))


@pytest.fixture(scope="module")
def watch():
    return OpenWatch()


def run(capsysbinary, *words):
    status = main([str(word) for word in words])
    out, err = capsysbinary.readouterr()
    return status, out.decode(), err.decode()


LOOKS = [
    ("info",),
    ("info", "topics"),
    ("info", "queues"),
    ("info", "groups"),
    ("info", "files"),
    ("info", "config"),
]


@varied_stores
def test_looking_changes_nothing_and_opens_nothing_for_writing(name, store, watch, capsysbinary):
    root = store(name)
    with left_alone(root):
        watch.opened.clear()
        watch.watching = True
        for command, *words in LOOKS:
            assert run(capsysbinary, command, root, *words)[0] == Exit.DONE
        for file in sorted(root.rglob("*"))[:60]:
            if file.is_file() and file.stat().st_size < 1 << 20:
                assert run(capsysbinary, "dump", file, "--json")[0] == Exit.DONE
        watch.watching = False
    beneath = [path for path in watch.opened if str(root) in path]
    assert beneath == []


@every_store
def test_info_json_has_the_shape_of_the_contract(name, store, capsysbinary):
    status, out, err = run(capsysbinary, "info", store(name), "--json")
    assert (status, err) == (Exit.DONE, "")
    shown = json.loads(out)
    assert {
        "store",
        "layout",
        "broker",
        "lock",
        "abort",
        "commitLog",
        "topics",
        "index",
        "checkpoint",
        "groups",
    } <= set(shown)
    assert {"files", "fileSize", "minOffset", "maxOffset"} <= set(shown["commitLog"])
    for topic in shown["topics"].values():
        assert topic["kind"] in ("normal", "retry", "dlq", "system", "lmq")


def test_dump_json_tiles_the_file(store, capsysbinary):
    path = store("49-basic") / "commitlog" / "00000000000000000000"
    status, out, _ = run(capsysbinary, "dump", path, "--json")
    shown = json.loads(out)
    assert status == Exit.DONE
    assert shown["size"] == 65536
    assert [region["offset"] for region in shown["regions"][:2]] == [0, shown["regions"][0]["length"]]
    assert sum(region["length"] for region in shown["regions"]) == 65536


def test_a_record_of_a_store_shows_who_points_at_it(store, capsysbinary):
    status, out, _ = run(capsysbinary, "dump", f"{store('49-basic')}@0", "--refs", "--json")
    shown = json.loads(out)
    assert status == Exit.DONE
    assert len(shown["regions"]) == 1
    queue = [ref for ref in shown["refs"] if ref["file"].startswith("consumequeue/")]
    assert [(ref["file_offset"], ref["right"]) for ref in queue] == [(0, True)]


@pytest.mark.parametrize("name", ["53-rocksdb", "53-rocksdbv2", "54-combine", "54-rocksone"])
def test_every_row_of_every_database_is_shown(name, store, capsysbinary):
    for directory, families in truth(name)["rocksdb"].items():
        status, out, _ = run(capsysbinary, "dump", store(name) / directory, "--json")
        rows = json.loads(out)["rows"]
        assert status == Exit.DONE
        told = [[family, *row] for family in families for row in families[family]]
        assert sorted([row["family"], row["keyHex"], row["valueHex"]] for row in rows) == sorted(told), directory


def test_rows_of_queues_are_taken_apart(store, capsysbinary):
    _, out, _ = run(capsysbinary, "dump", store("53-rocksdb") / "consumequeue", "--json")
    row = next(row for row in json.loads(out)["rows"] if row["family"] == "default")
    told = truth("53-rocksdb")["queues"]["RocksA"]["0"]["units"][0]
    assert row["key"] == {"topic": "RocksA", "queueId": 0, "queueOffset": 0}
    assert [row["value"][name] for name in ("physicalOffset", "size", "tagsCode")] == told


def test_without_the_extra_everything_else_is_shown(store, capsysbinary, monkeypatch):
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    status, out, err = run(capsysbinary, "info", store("53-rocksdb"), "--json")
    assert status == Exit.OPTIONAL_MISSING
    assert json.loads(out)["commitLog"]["maxOffset"] == truth("53-rocksdb")["max_phy"]
    assert json.loads(err)["error"]["hint"] == "pip install 'rmqtool[rocksdb]'"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("words", [["info", "{}"], ["dump", "{}@0", "--refs"], ["dump", "{}/consumequeue"]])
def test_no_system_call_opens_a_file_of_the_store_for_writing(words, store, tmp_path):
    root = store("53-rocksdb")
    trace = tmp_path / "trace"
    command = [sys.executable, "-m", "rmqtool", *(word.format(root) for word in words)]
    calls = "trace=open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,utimensat,truncate"
    done = subprocess.run(
        ["strace", "-f", "-y", "-e", calls, "-o", trace, *command], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == Exit.DONE, done.stderr
    lines = [line for line in trace.read_text().splitlines() if str(root) in line and "ENOENT" not in line]
    assert lines != []
    changing = [line for line in lines if "O_WRONLY" in line or "O_RDWR" in line or " open" not in line]
    # The database's tables are linked into a temporary directory; making the links names them, but touches nothing.
    assert [line for line in changing if "rmqtool-rocksdb-" not in line] == []


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("screen", "name", "words"),
    [
        ("info-53-broker", "53-broker", ["info", "{root}", "--tz", "UTC"]),
        ("info-49-killed", "49-killed", ["info", "{root}", "--tz", "UTC"]),
        ("info-topics", "53-broker", ["info", "{root}", "topics"]),
        ("info-groups", "53-broker", ["info", "{root}", "groups", "-g", "G_pop*"]),
        ("dump-record", "53-broker", ["dump", "{root}@0"]),
        ("dump-checkpoint", "53-broker", ["dump", "{root}/checkpoint"]),
    ],
)
def test_screens(screen, name, words, width, store, capsysbinary, monkeypatch):
    from rmqtool.commands import options

    # From beside the store: its path must not have a length of its own on the screen.
    monkeypatch.chdir(store(name).parent)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    status, out, err = run(capsysbinary, *(word.format(root="store") for word in words))
    assert (status, err) == (Exit.DONE, "")
    check_golden(f"look/{screen}-{width}.txt", out)


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["info", "{root}/nowhere", "topics"], Exit.NOT_A_STORE, "nowhere"),
        (["info", "{root}", "topic"], Exit.USAGE, "topics"),
        (["dump", "{root}/nothing"], Exit.NOT_A_STORE, "does not exist"),
        (["dump", "{root}"], Exit.USAGE, "PHYSICAL_OFFSET"),
        (["dump", "{root}@999999999"], Exit.NO, "no segment"),
    ],
)
def test_errors_say_what_and_what_next(words, status, says, store, capsysbinary):
    found, out, err = run(capsysbinary, *(word.format(root=store("49-basic")) for word in words))
    assert (found, out) == (status, "")
    assert says in err


@pytest.mark.parametrize("stranger", ["fifo", "link", "directory", "unreadable"])
def test_strangers_in_a_store_are_told_and_not_followed(stranger, writable_store, capsysbinary):
    root: Path = writable_store("49-basic")
    place = root / "commitlog" / "00000000000000000000"
    place.rename(root / "commitlog" / "aside")
    if stranger == "fifo":
        os.mkfifo(place)
    elif stranger == "link":
        place.symlink_to("aside")
    elif stranger == "directory":
        place.mkdir()
    else:
        place.write_bytes(b"")
    status, out, _ = run(capsysbinary, "info", root, "--json")
    assert status == Exit.DONE
    codes = {finding["code"] for finding in json.loads(out)["findings"]}
    expected = {"fifo": "ST-FOREIGN", "link": "ST-LINK", "directory": "ST-FOREIGN", "unreadable": "CL-SIZE"}
    assert expected[stranger] in codes


def test_a_lock_that_is_a_directory_is_a_finding(writable_store, capsysbinary):
    root = writable_store("53-broker")
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").mkdir()
    status, out, _ = run(capsysbinary, "info", str(root), "--json")
    found = json.loads(out)
    assert (status, found["lock"]) == (Exit.DONE, "free")
    assert [
        (finding["file"], finding["severity"]) for finding in found["findings"] if finding["code"] == "ST-LOCK"
    ] == [("lock", "error")]


@pytest.mark.parametrize("command", ["info", "check", "cat", "stat", "repair"])
def test_a_file_of_no_store_is_none_whatever_lies_beside_it(command, tmp_path, capsysbinary):
    (tmp_path / "notes.txt").write_text("no record")
    status, out, err = run(capsysbinary, command, tmp_path / "notes.txt")
    assert (status, out) == (Exit.NOT_A_STORE, "")
    assert "notes.txt is not a file of a store" in err


@pytest.mark.parametrize("command", ["info", "check", "cat", "stat", "recover", "repair"])
def test_a_path_that_is_not_there_is_said_to_be_missing(command, tmp_path, capsysbinary, monkeypatch):
    monkeypatch.delenv("RMQTOOL_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    status, _, err = run(capsysbinary, command, tmp_path / "nowhere")
    assert (status, "nowhere does not exist" in err) == (Exit.NOT_A_STORE, True)


def test_info_says_with_v_which_tier_reads(store, capsysbinary):
    status, _, err = run(capsysbinary, "info", store("49-basic"), "-v", "--json")
    assert (status, err) == (Exit.DONE, f"{kernel.tier()}\n")
    _, _, err = run(capsysbinary, "info", store("49-basic"), "--json")
    assert "kernel" not in err


def test_columns_is_honoured_in_a_pipe(store, monkeypatch, capsys):
    """`watch` sets it. Without it the lines of a pipe are not broken."""
    monkeypatch.chdir(store("53-broker").parent)
    main(["info", "store"])
    whole = capsys.readouterr().out.splitlines()
    monkeypatch.setenv("COLUMNS", "60")
    main(["info", "store"])
    broken = capsys.readouterr().out.splitlines()
    assert max(map(len, whole)) > 80
    assert max(map(len, broken)) <= 60
    assert "".join("".join(whole).split()) == "".join("".join(broken).split())
    for odd in ("0", "-5", "wide", ""):
        monkeypatch.setenv("COLUMNS", odd)
        main(["info", "store"])
        assert capsys.readouterr().out.splitlines() == whole
