"""``check``: silent on what brokers wrote, plain about what is damaged."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from rmqtool.cli import main
from rmqtool.commands import options
from rmqtool.errors import Exit
from tests.support.damaged import Workshop, mutations
from tests.support.golden_files import check_golden
from tests.support.recovery import cases
from tests.support.schemas import validate
from tests.support.stores import STORES, left_alone, truth

# What a killed or a wrongly recovered store must show, and nothing else from warning up.
EXPECTED = {
    "49-ghost": {"CQ-WRONG"},
    "49-killed": {"ST-ABORT", "CQ-MISSING", "IX-MISSING"},
    "49-killed-broker": {"ST-ABORT"},
    "49-killed-torn": {"ST-ABORT", "CL-TORN", "CQ-AHEAD", "IX-AHEAD"},
    "53-killed": {"ST-ABORT", "IX-MISSING"},
}
KILLED = ("49-killed", "49-killed-broker", "49-killed-torn", "53-killed")
UNIT = 20


def check(capsys, root, *words):
    with left_alone(root):
        status = main(["check", str(root), "--jsonl", *words])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for finding in lines[:-1]:
        validate("finding", finding)
    validate("check-summary", lines[-1])
    return status, lines[:-1], lines[-1]["summary"]


def needing(findings, *codes):
    return [f for f in findings if f["severity"] != "notice" and (not codes or f["code"] in codes)]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


@pytest.mark.parametrize("name", STORES)
def test_what_brokers_wrote_has_no_finding_above_notice(name, store, capsys):
    status, findings, summary = check(capsys, store(name))
    codes = {finding["code"] for finding in needing(findings)}
    assert codes == EXPECTED.get(name, set())
    assert status == (Exit.NO if codes else Exit.DONE)
    assert summary["complete"] is True


@pytest.mark.parametrize("setting", ["storePathCommitLog", "readOnlyCommitLogStorePaths"])
def test_directories_of_a_store_are_no_strangers_where_its_log_lies_elsewhere(
    setting, writable_store, tmp_path, capsys
):
    root = writable_store("recovery-5.3.3/base-A")
    moved = sorted((root / "commitlog").iterdir())[: None if setting == "storePathCommitLog" else 3]
    (tmp_path / "log").mkdir()
    for path in moved:
        path.rename(tmp_path / "log" / path.name)
    status, findings, _ = check(capsys, root, "--conf", f"{setting}={tmp_path}/log")
    assert (status, needing(findings)) == (Exit.DONE, [])


def test_of_the_ghosts_exactly_the_ghosts_are_found(store, capsys):
    told = truth("49-ghost")
    records = {message["commitLogOffset"]: message["storeSize"] for message in told["messages"]}
    ghosts = {
        (topic, int(queue_id), number)
        for topic, queues in told["queues"].items()
        for queue_id, queue in queues.items()
        for number, (place, size, _) in enumerate(queue["units"], queue["maxOffset"] - len(queue["units"]))
        if records.get(place) != size and place < told["max_phy"]
    }
    _, findings, _ = check(capsys, store("49-ghost"))
    found = [(f["topic"], f["queueId"], f["data"]["queueOffset"]) for f in needing(findings)]
    assert ghosts
    assert sorted(found) == sorted(ghosts)


@pytest.mark.parametrize("name", KILLED)
def test_of_a_killed_store_exactly_what_its_recovery_mends_is_found(name, store, capsys):
    told = truth(name)
    before, after = (
        {(t, int(q)): queue["maxOffset"] for t, queues in some.items() for q, queue in queues.items()}
        for some in (told["queues"], told["after_recovery"]["queues"])
    )
    _, findings, _ = check(capsys, store(name))
    missing, ahead = {}, {}
    for finding in needing(findings, "CQ-MISSING", "CQ-AHEAD"):
        data, queue = finding["data"], (finding["topic"], finding["queueId"])
        counted = missing if finding["code"] == "CQ-MISSING" else ahead
        counted[queue] = (data["queueOffset"], data.get("messages", data.get("units")))
        assert finding["offset"] + int(finding["file"].rpartition("/")[2]) == data["queueOffset"] * UNIT
    assert missing == {q: (before[q], after[q] - before[q]) for q in after if after[q] > before.get(q, 0)}
    assert ahead == {q: (after[q], before[q] - after[q]) for q in before if before[q] > after[q]}
    for finding in needing(findings, "CL-TORN"):
        assert int(finding["file"].rpartition("/")[2]) + finding["offset"] == told["after_recovery"]["max_phy"]
    # A start after a crash mends all of it, so none of it is an error.
    assert {finding["severity"] for finding in needing(findings)} == {"warning"}


def test_a_flipped_bit_of_a_body_is_named_with_its_place(workshop, capsys):
    mutation = mutations("4.9.8")["A/body-flip@last-mid"]
    with workshop.damaged("4.9.8", mutation, abort=False) as root:
        status, findings, _ = check(capsys, root)
    found = [finding for finding in findings if finding["code"] == "CL-CRC"]
    assert status == Exit.NO
    assert [(f["severity"], f["file"], f["offset"]) for f in found] == [
        ("error", "commitlog/00000000000000393216", 12733)
    ]
    recorded = (case for case in cases("4.9.8") if case.outcome["id"] == "A/body-flip@last-mid/clean")
    deleted = next(case.outcome["valid_destroyed"] for case in recorded if case.list_name == "outcomes")
    assert found[0]["broker"] == (
        f"DO NOT START A BROKER: the next start (as 4.9) cuts the log here and deletes {deleted} valid messages"
    )
    assert found[0]["fix"] == f"rmqtool repair {root}"


@pytest.mark.parametrize("name", ["49-broker", "53-broker"])
def test_properties_that_are_no_text_are_named(name, writable_store, capsys):
    """Only keys are in the index: what is damaged of other properties shows where it is no UTF-8 any more."""
    root = writable_store(name)
    message = next(message for message in truth(name)["messages"][5:] if "CLUSTER" in message["properties"])
    value = message["properties"]["CLUSTER"].encode()
    file = root / "commitlog" / "00000000000000000000"
    begin = message["commitLogOffset"]
    at = file.read_bytes().index(b"CLUSTER\1" + value, begin) + len("CLUSTER\1")
    assert at < begin + message["storeSize"] <= file.stat().st_size
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([value[0] | 0x80]))
    _, found, _ = check(capsys, root)
    places = [(one["severity"], one["file"], one["offset"]) for one in needing(found, "CL-PROPS")]
    assert places == [("warning", "commitlog/00000000000000000000", begin)]


@pytest.mark.parametrize("name", ["49-broker", "53-broker"])
@pytest.mark.parametrize("zeros", [1, 20])
def test_properties_that_end_in_zeros_stay_named(name, zeros, writable_store, capsys):
    """A power cut leaves zeros where the end of the last record was; a repair makes the entries from what is left."""
    root = writable_store(name)
    last = max(truth(name)["messages"], key=lambda message: message["commitLogOffset"])
    segments = sorted((root / "commitlog").iterdir())
    size = segments[0].stat().st_size
    file, begin = segments[last["commitLogOffset"] // size], last["commitLogOffset"] % size
    with file.open("r+b") as opened:
        opened.seek(begin + last["storeSize"] - zeros)
        opened.write(bytes(zeros))
    (root / "abort").touch()
    expected = [("warning", f"commitlog/{file.name}", begin, f"the properties end in {zeros} zero bytes")]
    for words in ([], ["repair", "--apply"]):
        if words:
            assert main([words[0], str(root), *words[1:]]) == Exit.NO
            assert "CL-PROPS" in capsys.readouterr().out
        _, found, _ = check(capsys, root)
        named = [
            (one["severity"], one["file"], one["offset"], one["message"])
            for one in needing(found, "CL-PROPS")
            if "zero" in one["message"]
        ]
        assert named == expected


@pytest.mark.parametrize(
    ("words", "status"),
    [([], Exit.NO), (["--fail-on", "error"], Exit.DONE), (["--fail-on", "notice", "--only", "CF"], Exit.DONE)],
)
def test_the_status_follows_the_severity_asked_for(words, status, store, capsys):
    assert check(capsys, store("53-killed"), *words)[0] == status


def test_a_quick_check_reads_no_message(workshop, capsys):
    mutation = mutations("5.3.3")["A/cl-short1@middle"]
    with workshop.damaged("5.3.3", mutation, abort=False) as root:
        status, findings, summary = check(capsys, root, "--quick")
    assert (status, summary["messages"]) == (Exit.NO, 0)
    assert [finding["code"] for finding in needing(findings)] == ["CL-SIZE"]


def test_no_time_ends_early_and_says_how_to_go_on(workshop, capsys):
    mutation = mutations("5.3.3")["A/body-flip@lastrec"]
    with workshop.damaged("5.3.3", mutation, abort=False) as root:
        status, findings, summary = check(capsys, root, "--max-time", "0s")
        assert (status, needing(findings), summary["complete"]) == (Exit.SKIPPED, [], False)
        status, findings, summary = check(capsys, root, "--resume", summary["resume"])
        assert (status, summary["complete"]) == (Exit.NO, True)
        assert [finding["code"] for finding in needing(findings)] == ["CL-CRC"]


def test_reports_hold_every_finding(workshop, capsys, tmp_path):
    mutation = mutations("4.9.8")["A/fuzz-001"]
    with workshop.damaged("4.9.8", mutation, abort=False) as root:
        paths = [tmp_path / "report.md", tmp_path / "report.html"]
        for path in paths:
            _, findings, _ = check(capsys, root, "--report", str(path))
            text = path.read_text(encoding="utf-8")
            assert findings
            for finding in findings:
                assert finding["code"] in text
                assert f"{finding['file']}" in text
            assert all(line in text for line in ("Verified", "Not checked"))
        rows = re.findall(r'<tr><td class="text">(error|warning|notice)</td>', paths[1].read_text(encoding="utf-8"))
        assert rows == [finding["severity"] for finding in findings]
        with left_alone(root):
            assert main(["check", str(root), "--report", str(root / "report.md")]) == Exit.USAGE
            assert main(["check", str(root), "--report", str(tmp_path / "report.txt")]) == Exit.USAGE
            assert main(["check", str(root), "--report", str(tmp_path / "no" / "report.md")]) == Exit.WRITE_FAILED


def test_hostile_names_do_not_break_a_report(writable_store, capsys, tmp_path):
    root = writable_store("53-epoch")
    (root / "<script>alert(1)`*_\x1b[31m").write_text("x")
    for name in ("report.md", "report.html"):
        main(["check", str(root), "--report", str(tmp_path / name)])
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "alert(1)" in text
        assert "\x1b" not in text
        assert ("<script>" if name.endswith("html") else "alert(1)`*") not in text
    assert "\x1b" not in capsys.readouterr().out


def test_codes_are_explained(capsys):
    assert main(["check", "--explain", "cq-wrong", "--json"]) == Exit.DONE
    entry = json.loads(capsys.readouterr().out)
    assert (entry["code"], entry["severity"]) == ("CQ-WRONG", "error")
    assert entry["meaning"]
    assert entry["brokers"]
    assert main(["check", "--explain", "all", "--jsonl"]) == Exit.DONE
    codes = [json.loads(line)["code"] for line in capsys.readouterr().out.splitlines()]
    assert len(codes) == len(set(codes)) > 40
    assert main(["check", "--explain", "XY-NONE"]) == Exit.USAGE


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    "words",
    [["check", "{}", "--deep"], pytest.param(["check", "{}"], marks=pytest.mark.slow), ["diff", "{}", "{}"]],
)
def test_no_system_call_opens_a_file_of_the_store_for_writing(words, store, tmp_path):
    root, trace = store("54-combine"), tmp_path / "trace"
    command = [sys.executable, "-m", "rmqtool", *(word.format(root) for word in words)]
    calls = "trace=open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,utimensat,truncate,chmod"
    with left_alone(root):
        done = subprocess.run(
            ["strace", "-f", "-y", "-e", calls, "-o", trace, *command], capture_output=True, check=False, timeout=120
        )
    assert done.returncode == Exit.DONE, done.stderr
    lines = [line for line in trace.read_text().splitlines() if str(root) in line and "ENOENT" not in line]
    assert len(lines) > 50
    changing = [line for line in lines if "O_WRONLY" in line or "O_RDWR" in line or " open" not in line]
    # The database's tables are linked into a temporary directory; making the links names them, but touches nothing.
    assert [line for line in changing if "rmqtool-rocksdb-" not in line] == []


SCREENS = {
    "check-sound": ("53-broker", None, Exit.DONE, []),
    "check-killed": ("49-killed-torn", None, Exit.NO, []),
    "check-quick": ("53-broker", None, Exit.DONE, ["--quick"]),
    "check-flip": ("5.3.3", "A/body-flip@2ndlast-mid", Exit.NO, ["-v"]),
    "check-gap": ("4.9.8", "A/cl-missing@middle", Exit.NO, []),
    "check-unmounted": ("5.4.0", "A/cl-missing@all", Exit.NO, []),
    "check-config": ("4.9.8", "A/cfg-delayoffset-truncated", Exit.NO, []),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("screen", SCREENS)
def test_screens(screen, width, store, workshop, capsys, tmp_path, monkeypatch):
    name, mutation, status, words = SCREENS[screen]
    if mutation is None:
        shutil.copytree(store(name), tmp_path / "store")
    else:
        with workshop.damaged(name, mutations(name)[mutation], abort=False) as root:
            shutil.copytree(root, tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    monkeypatch.setattr("rmqtool.commands.check.time.monotonic", lambda: 0.0)
    assert main(["check", "store", *words]) == status
    check_golden(f"look/{screen}-{width}.txt", capsys.readouterr().out)


@pytest.mark.parametrize("width", [80, 120])
def test_the_explanation_of_a_code(width, capsys, monkeypatch):
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    assert main(["check", "--explain", "CL-CRC"]) == Exit.DONE
    assert main(["check", "--explain", "ix"]) == Exit.DONE
    check_golden(f"look/check-explain-{width}.txt", capsys.readouterr().out)


def test_one_file_of_a_log_is_checked_by_itself(store, capsys):
    assert main(["check", str(store("53-broker") / "commitlog" / "00000000000000065536")]) == Exit.DONE
    printed = capsys.readouterr()
    assert "CQ-MISSING" not in printed.out
    assert "only its records are checked" in printed.err


@pytest.mark.parametrize(("command", "file"), [("check", "checkpoint"), ("repair", "commitlog/00000000000000065536")])
def test_what_needs_the_whole_store_leads_from_one_file_to_it(command, file, store, capsys):
    root = store("53-broker")
    assert main([command, str(root / file)]) == Exit.USAGE
    assert f"Next: rmqtool {command} {root}" in capsys.readouterr().err
