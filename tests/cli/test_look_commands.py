"""``info`` and ``dump`` from the outside: screens, JSON, statuses, and that they only look."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.golden_files import check_golden
from tests.stores import every_store, left_alone

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


@every_store
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

    root = store(name)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    status, out, err = run(capsysbinary, *(word.format(root=root) for word in words))
    assert (status, err) == (Exit.DONE, "")
    check_golden(f"look/{screen}-{width}.txt", out.replace(str(root), "/store"))


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["info", "{root}/nowhere", "topics"], Exit.NOT_A_STORE, "nowhere"),
        (["info", "{root}", "topic"], Exit.USAGE, "topics"),
        (["dump", "{root}/nothing"], Exit.NOT_A_STORE, "is not there"),
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
