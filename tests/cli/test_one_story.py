"""Where two commands said different things of one store, or a screen led back to the one before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.findings import is_command
from tests.guards.typed import type_words


def findings(capsys: pytest.CaptureFixture[str], *words: str) -> dict[tuple[str, str], str]:
    """Return the severities of what `info` or `check` finds, by code and file."""
    main([*words, "--json" if words[0] == "info" else "--jsonl"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = lines[0]["findings"] if words[0] == "info" else [line for line in lines if "code" in line]
    return {(one["code"], one.get("file", "")): one["severity"] for one in found if one["severity"] != "notice"}


@pytest.mark.parametrize("words", [["info"], ["check", "--quick"], ["check"]], ids=" ".join)
def test_a_missing_last_segment_is_a_gap_for_all(
    words: list[str], writable_store, capsys: pytest.CaptureFixture[str]
) -> None:
    root: Path = writable_store("53-broker")
    (root / "commitlog/00000000000000196608").unlink()
    found = findings(capsys, words[0], str(root), *words[1:])
    assert found["CL-GAP", "commitlog/00000000000000196608"] == "error"


def test_a_wrong_tags_code_of_the_only_message_is_repaired(writable_store) -> None:
    """check named it, and repair had no step for it: the screens led in a circle."""
    root: Path = writable_store("53-broker")
    queue = root / "consumequeue/%RETRY%G_popclient_T_pop/0/00000000000000000000"
    due = queue.read_bytes()
    queue.write_bytes(due[:12] + (77).to_bytes(8, "big") + due[20:])
    typed = type_words(["check", str(root), "--jsonl"])
    (found,) = (line for line in map(json.loads, typed.out.splitlines()) if line.get("code") == "CQ-WRONG")
    assert (found["file"], found["offset"]) == (str(queue.relative_to(root)), 0)
    assert type_words(["repair", str(root), "--apply"]).status == Exit.DONE
    assert queue.read_bytes() == due


def test_a_log_that_is_a_link_to_nothing_is_not_put_in_its_place(writable_store) -> None:
    root: Path = writable_store("53-broker")
    shutil.rmtree(root / "commitlog")
    (root / "commitlog").symlink_to(root.parent / "unmounted")
    found = [json.loads(line) for line in type_words(["check", str(root), "--jsonl"]).out.splitlines()]
    (link,) = (line for line in found if line.get("code") == "ST-LINK")
    assert link["message"] == "commitlog is a symbolic link to nothing"
    assert link["fix"] == "mount what it leads to; if it is gone, restore it from a backup"
    refused = type_words(["recover", str(root)])
    assert (refused.status, "commitlog is a symbolic link to nothing" in refused.err) == (Exit.NOT_A_STORE, True)
    assert f"findmnt --target {root}/commitlog" in refused.err


@pytest.mark.parametrize("words", [["info"], ["check", "--quick"], ["check"]], ids=" ".join)
def test_a_misnamed_segment_is_misnamed_for_all(
    words: list[str], writable_store, capsys: pytest.CaptureFixture[str]
) -> None:
    root: Path = writable_store("53-broker")
    (root / "commitlog/00000000000000065536").rename(root / "commitlog/00000000000000065537")
    found = findings(capsys, words[0], str(root), *words[1:])
    assert found == {("CL-NAME", "commitlog/00000000000000065537"): "error"}


@pytest.mark.parametrize("name", ["config/topics.json", "checkpoint", "consumequeue/T_normal/0/00000000000000000000"])
def test_a_directory_in_the_place_of_a_file_is_to_be_moved_away(
    name: str, writable_store, capsys: pytest.CaptureFixture[str]
) -> None:
    root: Path = writable_store("53-broker")
    (root / name).unlink()
    (root / name).mkdir()
    assert findings(capsys, "check", str(root))["ST-FOREIGN", name] == "error"
    shutil.move(root / name, root.parent / "moved")
    assert ("ST-FOREIGN", name) not in findings(capsys, "check", str(root))


def test_a_link_to_queues_asks_for_what_can_be_done(writable_store, capsys: pytest.CaptureFixture[str]) -> None:
    root: Path = writable_store("53-broker")
    (root / "consumequeue").rename(root.parent / "queues")
    (root / "consumequeue").symlink_to(root.parent / "queues")
    main(["check", str(root)])
    assert "fix: put what it leads to in its place, or mount it there" in capsys.readouterr().out


def test_a_repair_that_can_do_no_more_says_so_and_sends_nobody_back(
    writable_store, capsys: pytest.CaptureFixture[str]
) -> None:
    root: Path = writable_store("53-broker")
    path = root / "commitlog/00000000000000196608"
    data = bytearray(path.read_bytes())
    data[24_743:24_751] = (5).to_bytes(8, "big")  # the queue offset of the last record, the only one of its queue
    path.write_bytes(data)
    assert main(["repair", str(root)]) == Exit.NO
    shown = capsys.readouterr().out
    assert "nothing can be repaired here; 1 problem left" in shown
    assert "the original value cannot be restored" in shown
    assert "Next:" not in shown


@pytest.mark.parametrize("name", ["49-killed-torn", "53-broker"])
def test_a_finding_has_one_fix_wherever_it_is_shown(name: str, writable_store) -> None:
    """What `info` calls a fix is the fix of `check` too; without one, the screen ends with the one command to type."""
    root: Path = writable_store(name)
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    shown = json.loads(type_words(["info", str(root), "--json"]).out)["findings"]
    checked = [json.loads(line) for line in type_words(["check", str(root), "--jsonl"]).out.splitlines()[:-1]]
    fixes = {one["code"]: one.get("fix") for one in checked}
    told = {one["code"]: one.get("fix") for one in shown}
    assert told.pop("ST-ABORT") is None
    assert told == {code: fixes[code] for code in told}
    assert told["CP-BAD"] == f"rmqtool repair {root}"
    assert type_words(["info", str(root)]).out.endswith(f"\nNext: rmqtool recover {root}\n")


def test_what_is_not_a_command_is_not_the_next_command(writable_store) -> None:
    root: Path = writable_store("53-basic")
    log = root / "commitlog/00000000000000000000"
    data = bytearray(log.read_bytes())
    data[30_000:30_040] = b"\xff" * 40  # properties: they are neither text any more, nor the keys of the index
    log.write_bytes(data)
    for words in (["check", str(root)], ["repair", str(root), "--apply"]):
        screen = type_words(words).out
        assert "Fix: none; the original value cannot be restored" in screen
        assert "Next:" not in screen


@pytest.mark.parametrize(
    ("fix", "typed"),
    [
        ("rmqtool repair /s --apply", True),
        ("cp -p a b && mv b a", True),
        ("put a saved copy back; the store has these offsets nowhere else", False),
        ("rmqtool recover /s; then look again", False),
    ],
)
def test_a_fix_is_a_command_or_a_sentence(fix: str, typed: bool) -> None:
    assert is_command(fix) is typed


def test_info_finds_the_end_of_the_log_beside_a_misnamed_segment(writable_store) -> None:
    root = writable_store("recovery-4.9.8/base-A")
    before = json.loads(type_words(["info", str(root), "--json"]).out)
    (root / f"commitlog/{100:020d}").write_bytes(bytes(65536))
    shown = json.loads(type_words(["info", str(root), "--json"]).out)
    assert shown["commitLog"] == {**before["commitLog"], "files": before["commitLog"]["files"] + 1}
    assert [(one["code"], one["file"]) for one in shown["findings"]] == [("CL-NAME", f"commitlog/{100:020d}")]


def test_a_fix_that_info_shows_names_the_store(writable_store) -> None:
    root = writable_store("53-broker")
    (root / "commitlog/00000000000000065536").rename(root / "commitlog/00000000000000065537")
    said = type_words(["info", str(root), "--color", "never"]).out
    assert f"fix: rmqtool repair {root}\n" in said
    assert "{store}" not in said


def test_segments_beside_a_log_that_is_elsewhere_are_not_misnamed(writable_store) -> None:
    """Each was called "a number but not 20 digits", an error that a repair of the log should mend."""
    root = writable_store("53-broker")
    (root.parent / "elsewhere").mkdir()
    for segment in sorted((root / "commitlog").iterdir()):
        shutil.copy(segment, root.parent / "elsewhere")
    moved = ["--conf", f"storePathCommitLog={root.parent}/elsewhere", "--jsonl"]
    for words in (["check", str(root), *moved], ["check", str(root), "--quick", *moved]):
        typed = type_words(words)
        found = [line for line in map(json.loads, typed.out.splitlines()) if "code" in line]
        assert [(one["code"], one["severity"]) for one in found if one["severity"] != "notice"] == []
        assert [one["message"] for one in found if one["file"] == "commitlog/00000000000000065536"] == [
            "commitlog/00000000000000065536 is not read: storePathCommitLog names another directory"
        ]


def test_settings_of_one_file_are_refused(writable_store) -> None:
    path = writable_store("53-broker") / "commitlog/00000000000000065536"
    refused = type_words(["cat", str(path), "--conf", "mappedFileSizeCommitLog=131072"])
    assert (refused.status, "settings have no effect on one file" in refused.err) == (Exit.USAGE, True)
