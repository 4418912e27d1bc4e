"""``rmqtool repair``: its screens, its statuses, the plan that must still hold, the way back, who is in the way."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.commands import options
from rmqtool.errors import Exit
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.log.ranges import Effort
from rmqtool.repairs.plan import Request
from rmqtool.repairs.run import repair
from rmqtool.store.open import open_store
from tests.support.golden_files import check_golden
from tests.support.schemas import validate
from tests.support.stores import tree_changes, tree_state


@pytest.fixture
def damaged(writable_store):
    """A store that has lost its checkpoint and a queue, and was not closed."""
    root = writable_store("recovery-5.3.3/base-A")
    (root / "checkpoint").unlink()
    (root / "abort").touch()
    for path in (root / "consumequeue/TopicA/1").iterdir():
        path.unlink()
    return root


def run(capsysbinary: pytest.CaptureFixture[bytes], *words: object) -> tuple[int, Any]:
    status = main([*map(str, words), "--json"])
    printed = capsysbinary.readouterr()
    return status, json.loads(printed.out or printed.err)


def test_a_plan_says_what_would_be_done_and_touches_nothing(damaged, capsysbinary):
    before = tree_state(damaged)
    status, shown = run(capsysbinary, "repair", damaged)
    validate("repair", shown)
    assert status == Exit.NO
    assert [(step["n"], step["class"], step["action"], step["file"]) for step in shown["steps"]] == [
        (1, "derived", "create", "consumequeue/TopicA/1/00000000000000000000"),
        (2, "derived", "create", "checkpoint"),
        (3, "derived", "delete", "abort"),
    ]
    assert (shown["applied"], shown["left"], "undo" in shown) == (False, [], False)
    assert tree_changes(before, tree_state(damaged)) == []
    assert not Path(f"{damaged}-rmqtool-undo").exists()


def test_what_is_named_alone_is_repaired(damaged, capsysbinary):
    status, shown = run(capsysbinary, "repair", damaged, "checkpoint", "--apply")
    assert (status, [step["file"] for step in shown["steps"]]) == (Exit.NO, ["checkpoint"])
    assert {finding["code"] for finding in shown["left"]} == {"CQ-MISSING", "ST-ABORT"}
    assert (damaged / "abort").exists()


def test_a_plan_that_was_seen_is_done_and_an_older_one_is_refused(damaged, capsysbinary):
    _, seen = run(capsysbinary, "repair", damaged)
    os.utime(damaged / "lock", ns=(1, 1))
    os.utime(damaged / "consumequeue/TopicA/0/00000000000000000000", ns=(1, 1))
    before = tree_state(damaged)
    status, error = run(capsysbinary, "repair", damaged, "--apply", "--plan", seen["plan"])
    assert (status, error["error"]["code"]) == (Exit.REFUSED, "refused")
    assert tree_changes(before, tree_state(damaged)) == []
    _, seen = run(capsysbinary, "repair", damaged)
    status, shown = run(capsysbinary, "repair", damaged, "--apply", "--plan", seen["plan"])
    assert (status, shown["plan"], shown["applied"], shown["left"]) == (Exit.DONE, seen["plan"], True, [])
    assert shown["undo"] == str(Path(f"{damaged}-rmqtool-undo") / seen["plan"])


def test_a_store_in_use_is_left_alone(damaged, capsysbinary):
    with PosixWritableFileSystem(str(damaged)) as files, files.lock():
        before = tree_state(damaged)
        for words in ([], ["--apply"]):
            status, error = run(capsysbinary, "repair", damaged, *words)
            assert (status, error["error"]["code"]) == (Exit.IN_USE, "in-use")
        assert tree_changes(before, tree_state(damaged)) == []


def test_what_is_made_has_the_owner_and_mode_of_its_neighbours(damaged, capsysbinary):
    for path in (damaged, *damaged.rglob("*")):
        os.chown(path, 1234, 4321)
        path.chmod(0o750 if path.is_dir() else 0o640)
    run(capsysbinary, "repair", damaged, "--apply")
    found = {(s.st_uid, s.st_gid, s.st_mode & 0o777) for s in (p.stat() for p in damaged.rglob("*") if p.is_file())}
    assert found == {(1234, 4321, 0o640)}
    beside = Path(f"{damaged}-rmqtool-undo")
    # A journal is believed by who made it, so it belongs to nobody else.
    assert {(path.stat().st_uid, path.stat().st_mode & 0o777) for path in (beside, *beside.glob("*"))} == {
        (os.geteuid(), 0o750)
    }


def test_undoing_twice_is_undoing_once_and_a_broker_in_between_forbids_it(damaged, capsysbinary):
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    assert run(capsysbinary, "repair", "--undo", shown["undo"])[0] == Exit.DONE
    status, again = run(capsysbinary, "repair", damaged, "--undo", shown["undo"])
    validate("repair-undone", again)
    assert (status, again["files"]) == (Exit.DONE, [])
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    with (damaged / "consumequeue/TopicA/1/00000000000000000000").open("ab") as file:
        file.write(b"?")
    status, error = run(capsysbinary, "repair", damaged, "--undo", shown["undo"])
    assert (status, error["error"]["code"]) == (Exit.REFUSED, "refused")


def test_a_part_alone_is_not_taken_back(damaged, capsysbinary):
    done = run(capsysbinary, "repair", damaged, "--apply")[1]
    after = tree_state(damaged)
    assert run(capsysbinary, "repair", damaged, "queues", "--undo", done["undo"])[0] == Exit.USAGE
    assert tree_changes(after, tree_state(damaged)) == []


def test_the_way_back_of_one_store_is_not_that_of_another(damaged, tmp_path, capsysbinary):
    _, shown = run(capsysbinary, "repair", damaged, "--apply")
    status, _ = run(capsysbinary, "repair", tmp_path, "--undo", shown["undo"])
    assert status == Exit.REFUSED
    assert main(["repair", str(damaged), "--undo", str(tmp_path / "none")]) == Exit.USAGE


class Watched:
    """Progress that remembers how far each piece of work came."""

    def __init__(self) -> None:
        self.pieces: list[list[int]] = []

    def start(self, what: str, total: int | None, unit: str) -> None:
        assert total is not None
        self.pieces.append([0, total])

    def advance(self, amount: int) -> None:
        self.pieces[-1][0] += amount

    def finish(self) -> None:
        pass


def test_the_bar_of_each_piece_of_work_ends_where_it_is_full(damaged):
    next((damaged / "index").iterdir()).unlink()  # for what it held the log is read once more
    watched = Watched()
    plan = repair(lambda: open_store(str(damaged)), Request(), None, Effort(progress=watched))
    assert plan.left == []
    assert len(watched.pieces) >= 2
    assert [piece for piece in watched.pieces if piece[0] != piece[1]] == []


@pytest.mark.parametrize("words", [["wheels"], ["--allow", "everything"]])
def test_words_that_mean_nothing_are_refused(words, damaged, capsys):
    assert main(["repair", str(damaged), *words]) == Exit.USAGE


def test_the_screen(damaged, capsys, monkeypatch):
    monkeypatch.chdir(damaged.parent)
    assert main(["repair", "store"]) == Exit.NO
    head, *lines = capsys.readouterr().out.splitlines()
    plan = head.split()[2]
    assert lines == [
        "  derived  create     consumequeue/TopicA/1/00000000000000000000, 2.0 KiB: CQ-MISSING: 73 entries are missing",
        "  derived  create     checkpoint, 4.0 KiB: its times are set to those of the repaired log",
        "  derived  delete     abort: the last stop was not clean; nothing is left to recover",
        "  undo     every old byte is saved first, in the undo journal store-rmqtool-undo/; "
        "repair --undo last restores them",
        "3 steps to do; then no problems remain",
        f"Next: rmqtool repair store --apply --plan {plan}",
    ]
    assert main(["repair", "store", "--apply", "--plan", plan]) == Exit.DONE
    undo = next(Path("store-rmqtool-undo").iterdir()).resolve()
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "3 steps done; no problems remain",
        f"Undo: rmqtool repair store --undo {undo}",
    ]
    assert main(["repair", "store"]) == Exit.DONE
    assert capsys.readouterr().out == "nothing to repair\n"


def test_what_needs_leave_is_named_with_the_leave_it_needs(writable_store, capsys, monkeypatch):
    root = writable_store("49-killed-torn")
    monkeypatch.chdir(root.parent)
    assert main(["repair", "store"]) == Exit.NO
    head, *_, verdict, following = capsys.readouterr().out.splitlines()
    plan = head.split()[2]
    remain = "no problems remain; 3 messages stay lost"
    assert verdict == f"8 steps to do, 2 of them only with --allow primary; then {remain}"
    assert following == f"Next: rmqtool repair store --apply --allow primary --plan {plan}"
    assert main(["repair", "store", "--apply", "--plan", plan]) == Exit.REFUSED
    assert f"plan {plan} has steps that are not allowed" in capsys.readouterr().err
    assert main(["repair", "store", "--apply"]) == Exit.NO
    *steps, done, following, undo = capsys.readouterr().out.splitlines()
    # What was not done is at the end, and named so: 8 steps in lines of one screen all look done otherwise.
    assert [line.split()[1] for line in steps if line.startswith("  derived  modify")] == ["modify"] * 4
    assert [line.split(":")[0].strip() for line in steps if "not done" in line or "  keep" in line] == [
        "primary  not done   commitlog/00000000000000196608, 8.0 KiB",
        "derived  keep       abort",
    ]
    assert (done, following) == (
        "6 steps done, 2 not done (needs --allow primary); 2 problems left; 3 messages stay lost",
        "Next: rmqtool repair store",
    )
    assert undo.startswith("Undo: rmqtool repair store --undo ")
    assert main(["repair", "store", "--apply", "--allow", "primary"]) == Exit.DONE
    assert "2 steps done; no problems remain" in capsys.readouterr().out.splitlines()


def test_what_a_repair_cannot_bring_back_is_named_before_and_after_it(writable_store, capsysbinary):
    """A placeholder over damage lets readers go on; it gives up the message that was there."""
    root = writable_store("recovery-5.3.3/base-A")
    log = root / "commitlog/00000000000000000000"
    data = bytearray(log.read_bytes())
    data[32866 + 4] ^= 1
    log.write_bytes(data)
    lost = [{"topic": "TopicA", "queueId": 0, "messages": 1}]
    then = "no problems remain; 1 message stays lost"
    better = " (better, if a backup has this file of the log whole: copy it back; rmqtool diff BACKUP STORE)"
    for words, verdict in (
        ([], f"3 steps to do, only with --allow primary; then {then}{better}"),
        (["--apply", "--allow", "primary"], "3 steps done; no problems remain; 1 message stays lost"),
    ):
        main(["repair", str(root), *words])
        screen = capsysbinary.readouterr().out.decode()
        assert "an empty placeholder overwrites the whole record, and consumers skip it" in " ".join(screen.split())
        assert (
            "\n(derived: rebuilt from the log, no message is at risk)\n(primary: writes into the commit log" in screen
        )
        assert "  lost     in all at least 1 message: 1 in TopicA/0" in screen
        assert verdict in screen
    main(["check", str(root), "--jsonl"])
    assert json.loads(capsysbinary.readouterr().out.splitlines()[-1])["summary"]["lost"] == lost
    assert run(capsysbinary, "repair", root)[1]["lost"] == lost


def test_the_plan_that_is_shown_is_the_one_that_is_done(writable_store, capsysbinary):
    """Also where leave is missing: what is derived from the log depends on what becomes of the log."""
    root = writable_store("recovery-5.3.3/base-A")
    log = root / "commitlog/00000000000000000000"
    data = bytearray(log.read_bytes())
    data[32866 + 4] ^= 1
    log.write_bytes(data)
    _, seen = run(capsysbinary, "repair", root)
    _, allowed = run(capsysbinary, "repair", root, "--allow", "primary")
    assert (seen["plan"], len(seen["steps"])) == (allowed["plan"], len(allowed["steps"]))
    words = ["--apply", "--allow", "primary", "--plan", seen["plan"]]
    status, done = run(capsysbinary, "repair", root, *words)
    assert (status, done["plan"], done["left"]) == (Exit.DONE, seen["plan"], [])
    assert [{**step, "allowed": True} for step in seen["steps"]] == done["steps"]


def test_plans_that_write_other_bytes_are_other_plans(writable_store, capsysbinary):
    root = writable_store("53-broker")
    base = ["repair", root, "offsets", "-g", GROUP, "-t", TOPIC, "--allow", "state", "--to"]
    _, seven = run(capsysbinary, *base, "7")
    _, eight = run(capsysbinary, *base, "8")
    assert seven["plan"] != eight["plan"]
    assert run(capsysbinary, *base, "7")[1]["plan"] == seven["plan"]
    before = tree_state(root)
    status, error = run(capsysbinary, *base, "8", "--apply", "--plan", seven["plan"])
    assert (status, error["error"]["code"]) == (Exit.REFUSED, "refused")
    assert tree_changes(before, tree_state(root)) == []
    assert run(capsysbinary, *base, "7", "--apply", "--plan", seven["plan"])[0] == Exit.DONE
    (step,) = [step for step in seven["steps"] if "offsets" in step]
    assert step["offsets"] == [
        {"group": GROUP, "topic": TOPIC, "queueId": queue, "before": 35, "after": 7} for queue in range(4)
    ]


def test_a_repair_that_leaves_problems_says_so_by_its_status(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    (root / "commitlog/00000000000000131072").unlink()
    for words in (["--apply", "--allow", "state,primary"], []):
        status, shown = run(capsysbinary, "repair", root, *words)
        assert (status, [one["code"] for one in shown["left"]]) == (Exit.NO, ["CL-GAP"])


@pytest.mark.parametrize("words", [["--plan", "0123456789ab"], ["--journal", "elsewhere"]])
def test_options_of_doing_it_are_refused_where_nothing_is_done(words, damaged, capsysbinary):
    assert run(capsysbinary, "repair", damaged, *words)[0] == Exit.USAGE


GROUP, TOPIC = "G_ok", "T_normal"


def offsets_in(path: Path) -> dict[str, int]:
    quoted = re.sub(r"([{,])(\d+):", r'\1"\2":', path.read_text())  # the names of queues are numbers there
    offsets: dict[str, int] = json.loads(quoted)["offsetTable"][f"{TOPIC}@{GROUP}"]
    return offsets


@pytest.mark.parametrize(("to", "expected"), [("min", [0] * 4), ("7", [7] * 4), ("1971-01-01", [0] * 4)])
def test_offsets_of_a_group_are_set(to, expected, writable_store, capsysbinary):
    root = writable_store("53-broker")
    file = root / "config/consumerOffset.json"
    before = file.read_bytes()
    words = ["repair", root, "offsets", "-g", GROUP, "-t", TOPIC, "--to", to, "--apply"]
    assert run(capsysbinary, *words)[0] == Exit.REFUSED
    assert file.read_bytes() == before
    status, shown = run(capsysbinary, *words, "--allow", "state")
    assert status == Exit.DONE
    assert {step["class"] for step in shown["steps"]} == {"state"}
    assert list(offsets_in(file).values()) == expected
    assert list(offsets_in(root / "config/consumerOffset.json.bak").values()) == [35] * 4
    run(capsysbinary, "repair", "--undo", shown["undo"])
    assert file.read_bytes() == before


def test_offsets_come_back_from_the_copy(writable_store, capsysbinary):
    root = writable_store("53-broker")
    run(capsysbinary, "repair", root, "offsets", "-g", GROUP, "--to", "min", "--apply", "--allow", "state")
    file = root / "config/consumerOffset.json"
    assert set(offsets_in(file).values()) == {0}
    run(capsysbinary, "repair", root, "offsets", "-g", GROUP, "--from-bak", "--apply", "--allow", "state")
    assert set(offsets_in(file).values()) == {35}


@pytest.mark.parametrize(
    "words",
    [
        ["offsets", "-g", GROUP],
        ["offsets", "-g", GROUP, "--to", "min", "--from-bak"],
        ["offsets", "--to", "min"],
        ["queues", "-g", GROUP, "--to", "min"],
        ["offsets", "-g", GROUP, "--to", "someday"],
        ["offsets", "-g", GROUP, "--to", "-5"],
        ["offsets", "-g", GROUP, "-t", TOPIC, "--to", "36"],
        ["--bridge", "--truncate"],
    ],
)
def test_wishes_that_cannot_be_are_usage_errors(words, store, capsys):
    assert main(["repair", str(store("53-broker")), *words]) == Exit.USAGE


def test_a_readable_copy_takes_the_place_of_a_bad_file_and_the_other_way_round(writable_store, capsysbinary):
    root = writable_store("53-broker")
    topics, groups = root / "config/topics.json", root / "config/subscriptionGroup.json"
    good, bad_copy = Path(f"{topics}.bak").read_bytes(), Path(f"{groups}.bak")
    topics.write_bytes(bytes(100))
    bad_copy.write_bytes(b"{")
    status, shown = run(capsysbinary, "repair", root, "config", "--apply", "--allow", "state")
    assert (status, shown["left"]) == (Exit.DONE, [])
    assert topics.read_bytes() == good
    assert bad_copy.read_bytes() == groups.read_bytes()


@pytest.mark.parametrize(
    ("code", "file_offset"), [("IX-HEAD", 1), ("IX-HEAD", 9), ("IX-WRONG", 40 + 4 * 50 + 20 * 7 + 12 + 2)]
)
def test_times_of_an_index_file_are_made_anew(code, file_offset, writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    path = sorted((root / "index").iterdir())[1]
    with path.open("r+b") as file:
        file.seek(file_offset)
        byte = file.read(1)
        file.seek(file_offset)
        file.write(bytes([byte[0] ^ 0x40]))
    main(["check", str(root), "--jsonl"])
    found = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()[:-1]]
    assert (code, f"index/{path.name}") in {(finding["code"], finding["file"]) for finding in found}
    status, shown = run(capsysbinary, "repair", root, "--apply")
    assert (status, shown["left"]) == (Exit.DONE, [])
    assert {step["file"].partition("/")[0] for step in shown["steps"]} <= {"index", "checkpoint"}


def test_damage_in_the_log_is_bridged_only_with_leave_or_cut_off_when_asked_for(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    log = root / "commitlog/00000000000000000000"
    data = bytearray(log.read_bytes())
    data[32866 + 4] ^= 1
    log.write_bytes(data)
    status, shown = run(capsysbinary, "repair", root)
    assert (status, [(s["class"], s["action"], s["allowed"]) for s in shown["steps"]]) == (
        Exit.NO,
        # Its units lead to the bridge then.
        [("primary", "bridge", False), ("derived", "modify", False), ("derived", "modify", False)],
    )
    assert shown["steps"][0]["reason"].endswith("(at 32866); 1 message lost here (counted by queue entries)")
    _, cut = run(capsysbinary, "repair", root, "--truncate")
    after = sum(
        at >= 32866
        for path in root.glob("consumequeue/*/*/*")
        for at, size, _ in struct.iter_unpack(">qiq", path.read_bytes())
        if size > 0
    )
    reason = next(step["reason"] for step in cut["steps"] if step["action"] == "truncate")
    assert reason.endswith(f"(at 32866); {after} messages from here on would be deleted (counted by queue entries)")
    assert run(capsysbinary, "repair", root, "--bridge", "--apply")[0] == Exit.REFUSED
    status, shown = run(capsysbinary, "repair", root, "--bridge", "--apply", "--allow", "primary")
    assert (status, shown["left"], shown["steps"][0]["bytes"]) == (Exit.DONE, [], 232)
    assert log.read_bytes()[:32866] + log.read_bytes()[33098:] == bytes(data[:32866] + data[33098:])
    assert log.read_bytes().count(b"RMQTOOL_QUARANTINE") == 1
    run(capsysbinary, "repair", "--undo", shown["undo"])
    assert log.read_bytes() == data
    _, shown = run(capsysbinary, "repair", root, "--truncate", "--apply", "--allow", "primary")
    assert {step["action"] for step in shown["steps"] if step["class"] == "primary"} == {"truncate", "delete"}
    assert shown["left"] == []
    assert log.read_bytes() == bytes(data[:32866]) + bytes(len(data) - 32866)
    assert [path.name for path in (root / "commitlog").iterdir()] == [log.name]


@pytest.mark.parametrize("repaired_before", [False, True])
def test_the_fix_of_an_unclean_stop_leads_on_where_the_log_is_damaged(repaired_before, writable_store, capsys):
    """What is printed is typed: the fix of the finding, then the Next of its screen."""
    root = writable_store("49-killed-torn")
    assert (root / "abort").exists()
    if repaired_before:
        main(["repair", str(root), "--apply"])
        capsys.readouterr()
    main(["check", str(root), "--only", "ST-ABORT", "--jsonl"])
    finding = json.loads(capsys.readouterr().out.splitlines()[0])
    assert finding["code"] == "ST-ABORT"
    main(shlex.split(finding["fix"])[1:])
    plan = capsys.readouterr().out
    (told,) = [line for line in plan.splitlines() if " abort: " in line]
    assert re.search(r"derived +delete +abort: only after the repair of the log \(needs --allow primary\)", told)
    (following,) = [line.removeprefix("Next: ") for line in plan.splitlines() if line.startswith("Next: ")]
    assert main(shlex.split(following)[1:]) == Exit.DONE
    assert not (root / "abort").exists()
    capsys.readouterr()
    assert main(["check", str(root)]) == Exit.DONE


def test_the_marker_of_an_unclean_stop_stays_while_the_log_is_not_mended(writable_store, capsysbinary):
    root = writable_store("49-killed-torn")
    log = root / "commitlog/00000000000000196608"
    torn = log.read_bytes()
    for _ in range(2):
        status, shown = run(capsysbinary, "repair", root)
        validate("repair", shown)
        assert [(s["class"], s["action"], s["file"]) for s in shown["steps"] if not s["allowed"]] == [
            ("primary", "modify", "commitlog/00000000000000196608"),
            ("derived", "delete", "abort"),
        ]
        assert shown["steps"][-1]["reason"].startswith("only after the repair of the log (needs --allow primary)")
        # The first time there is more to be done than these two.
        status, shown = run(capsysbinary, "repair", root, "--apply")
        assert (root / "abort").exists()
        assert log.read_bytes() == torn
    assert (status, shown["error"]["code"], shown["error"]["hint"]) == (
        Exit.REFUSED,
        "refused",
        f"rmqtool repair {root} --apply --allow primary",
    )
    status, shown = run(capsysbinary, "repair", root, "abort", "--apply")
    assert (status, shown["error"]["hint"]) == (Exit.REFUSED, f"rmqtool repair {root} --apply --allow primary")
    assert (root / "abort").exists()
    status, shown = run(capsysbinary, "repair", root, "--apply", "--allow", "primary")
    assert (status, shown["left"]) == (Exit.DONE, [])
    assert not (root / "abort").exists()


def test_what_lies_among_the_segments_goes_aside_and_comes_back(writable_store, capsysbinary):
    root = writable_store("recovery-5.3.3/base-A")
    (root / "commitlog/README").write_text("do not touch")
    before = tree_state(root / "commitlog")
    _status, shown = run(capsysbinary, "repair", root, "--apply", "--allow", "primary")
    assert [(s["class"], s["action"], s["file"]) for s in shown["steps"]] == [
        ("primary", "rename", "quarantine/commitlog/README")
    ]
    assert (root / "quarantine/commitlog/README").read_text() == "do not touch"
    run(capsysbinary, "repair", "--undo", shown["undo"])
    assert not (root / "quarantine").exists()
    assert tree_state(root / "commitlog")["README"].digest == before["README"].digest


_MADE_NOW = re.compile(r"(plan |undo/)[0-9a-f]{12}")


@pytest.mark.parametrize("width", [80, 120])
def test_the_screens_are_as_they_were(width, writable_store, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))

    def show(*words: str) -> None:
        print("$ rmqtool repair", *words)
        main(["repair", *words])

    shutil.move(writable_store("49-killed-torn"), "torn")
    show("torn")
    show("torn", "--apply")
    show("torn", "--apply", "--allow", "primary")
    shutil.move(writable_store("recovery-5.3.3/base-A"), "struck")
    with Path("struck/commitlog/00000000000000000000").open("r+b") as file:
        file.seek(32866 + 4)
        file.write(b"?")
    show("struck")
    show("struck", "--apply", "--allow", "primary")
    undo = str(next(Path("struck-rmqtool-undo").iterdir()))
    show("struck", "--undo", undo)
    shutil.move(writable_store("53-broker"), "broker")
    show("broker", "offsets", "-g", GROUP, "--to", "min")
    show("broker", "offsets", "-g", GROUP, "--to", "min", "--apply", "--allow", "state")
    printed = capsys.readouterr().out.replace(f"{tmp_path}/", "/data/")
    assert [line for line in printed.splitlines() if len(line) > width and not line.startswith(("$", "Next:"))] == []
    check_golden(f"look/repair-{width}.txt", _MADE_NOW.sub(r"\g<1>0123456789ab", printed))


def findings_after_repair(root: Path, capsysbinary: Any) -> tuple[list[tuple[str, str, int]], list[Any]]:
    """Return what check found before a repair, and what after it."""
    found = []
    for _ in range(2):
        main(["check", str(root), "--jsonl", "--quiet"])
        *lines, _ = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        loud = [line for line in lines if line["severity"] != "notice"]
        found.append([(line["code"], line["file"], line.get("offset", 0)) for line in loud])
        main(["repair", str(root), "--apply", "--quiet"])
        capsysbinary.readouterr()
    before, after = found
    return before, after


@pytest.mark.parametrize("size", [1, 13, 650, 701])
def test_a_file_of_an_extension_gets_its_size(size, writable_store, capsysbinary):
    """A broker that keeps extensions refuses to start on a file of another size."""
    root = writable_store("49-ext")
    file = min((root / "consumequeue_ext").glob("*/*/*"))
    assert file.stat().st_size == 700
    os.truncate(file, size)
    path = str(file.relative_to(root))
    before, after = findings_after_repair(root, capsysbinary)
    assert ("CQ-SIZE", path, 0) in before
    assert (file.stat().st_size, after) == (700, [])


@pytest.mark.parametrize("name", ["49-ext", "53-basic"])
def test_a_tags_code_that_leads_nowhere_is_made_anew(name, writable_store, capsysbinary):
    root = writable_store(name)
    file = max((root / "consumequeue").glob("*/*/*"), key=lambda path: len(path.read_bytes().rstrip(b"\0")))
    with file.open("r+b") as opened:
        opened.seek(12)
        opened.write(struct.pack(">q", -(1 << 63) + 123456789))
    before, after = findings_after_repair(root, capsysbinary)
    assert before == [("CQ-EXT", str(file.relative_to(root)), 0)]
    assert after == []


def test_a_unit_before_the_first_message_leads_nowhere_behind_it(writable_store, capsysbinary):
    """What it stood for has expired; a broker would look for the least offset among such units."""
    root = writable_store("53-cleaned")
    file = root / "consumequeue" / "TopicA" / "0"
    first = min(file.iterdir())
    least = json.loads(info(root, capsysbinary))["topics"]["TopicA"]["queues"]["0"]["minOffset"]
    gone = least - int(first.name) // 20 - 1
    assert gone > 0
    with first.open("r+b") as opened:
        opened.seek(gone * 20)
        opened.write(b"\x0b")
    before, after = findings_after_repair(root, capsysbinary)
    assert before == [("CQ-AHEAD", str(first.relative_to(root)), gone * 20)]
    assert after == []


def info(root: Path, capsysbinary: Any) -> bytes:
    main(["info", str(root), "--json"])
    printed: bytes = capsysbinary.readouterr().out
    return printed


@pytest.mark.parametrize("place", [8, 11, 5])
def test_the_only_unit_of_a_queue_is_made_anew(place, writable_store, capsysbinary):
    """A unit with a wrong size is no proof that its message belongs elsewhere."""
    root = writable_store("53-broker")
    queues = (root / "consumequeue").glob("*/*/00000000000000000000")
    file = min(path for path in queues if len(path.read_bytes().rstrip(b"\0")) <= 20 and path.read_bytes().strip(b"\0"))
    with file.open("r+b") as opened:
        opened.seek(place)
        old = opened.read(1)[0]
        opened.seek(place)
        opened.write(bytes([old ^ 1]))
    before, after = findings_after_repair(root, capsysbinary)
    assert {code for code, path, _ in before if path == str(file.relative_to(root))} == {"CQ-WRONG"}
    assert after == []
