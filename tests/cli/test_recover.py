"""``recover`` from the outside: its JSON, the store that ``--to`` writes, statuses, and that it only looks."""

from __future__ import annotations

import hashlib
import json
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rmqtool.cli import main
from rmqtool.commands import options
from rmqtool.errors import Exit
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.upstream.index_file import name_new
from tests.support.golden_files import check_golden
from tests.support.mutations import apply_mutation, read_catalogue, set_abort
from tests.support.recovery import LEFT_OUT, VERSIONS, base_sizes, cases, sizes_as_words, undetermined
from tests.support.schemas import validate
from tests.support.stores import STORES, left_alone, truth, unpack

WRITTEN_PER_VERSION = 8
SEED = 12


def run(capsys, *words):
    status = main(["recover", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def as_and_settings(case):
    return ["--as", VERSIONS[case.version], *(word for setting in case.settings for word in ("--conf", setting))]


def find_case(version, name):
    return next(case for case in cases(version) if case.outcome["id"] == name and case.list_name == "outcomes")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_is_what_the_broker_left(version, tmp_path, capsys):
    """Every file of the recorded outcome, byte for byte; new index files have names of their own here."""
    started = [case for case in cases(version) if case.outcome["result"] == "started"]
    compared = changed = 0
    for number, case in enumerate(random.Random(SEED).sample(started, WRITTEN_PER_VERSION)):
        root = case.prepare(tmp_path / "bases", tmp_path / "store")
        target = tmp_path / f"left-{number}"
        with left_alone(root):
            status, out, _ = run(capsys, root, "--to", target, "--json", *as_and_settings(case))
        shown = json.loads(out)
        assert status == (Exit.NO if shown["messagesLost"] else Exit.DONE)
        unknown = undetermined(case.predict(root), case.recorded(root), case.outcome, case.sizes["maxIndexNum"] - 1)
        names_by_number(target, shown)
        left = {path for path in files_below(target) if not path.startswith(LEFT_OUT)}
        recorded = {path: state for path, state in case.outcome["files_after"].items() if not path.startswith(LEFT_OUT)}
        if "bytes of the index" in unknown:
            left, recorded = without_index(left), {path: recorded[path] for path in without_index(recorded)}
        assert left == set(recorded), case.name
        for path, state in recorded.items():
            if path == "checkpoint" and "bytes of the checkpoint" in unknown:
                continue
            written = (target / path).read_bytes()
            if state == "=":
                assert written == (root / path).read_bytes(), (case.name, path)
            else:
                assert [len(written), hashlib.sha256(written).hexdigest()] == state, (case.name, path)
                changed += 1
            compared += 1
    assert compared > 20 * WRITTEN_PER_VERSION
    assert changed > WRITTEN_PER_VERSION


def files_below(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def names_by_number(target, shown):
    """Give new index files, whose name is the time, the names that they have in a recorded outcome."""
    new = [change["path"] for change in shown["files"] if change["path"].startswith("index/NEW-")]
    made = sorted(path.name for path in target.glob("index/*"))[-len(new) :] if new else []
    for path, name in zip(sorted(new, key=lambda path: int(path[len("index/NEW-") :])), made, strict=True):
        (target / "index" / name).rename(target / path)


def test_a_new_index_file_is_named_by_the_time(store, tmp_path, capsysbinary):
    target = tmp_path / "left"
    before = datetime.now(UTC).astimezone()
    assert run(capsysbinary, store("53-killed"), "--to", target)[0] == Exit.DONE
    *_, name = sorted(path.name for path in (target / "index").iterdir())
    made = datetime.strptime(f"{name}000", "%Y%m%d%H%M%S%f").astimezone()
    assert len(name) == 17
    assert timedelta(seconds=-1) < made - before < timedelta(minutes=5)
    main(["check", str(target), "--jsonl"])
    *findings, _ = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert [one["code"] for one in findings if one["code"].startswith(("IX", "ST"))] == []


def test_new_index_files_sort_after_those_of_a_clock_that_was_ahead(tmp_path):
    (tmp_path / "index").mkdir()
    for name in ("20991231235959998", "NEW-1", "NEW-10", "NEW-2"):
        (tmp_path / "index" / name).write_text(name)
    with PosixWritableFileSystem(str(tmp_path)) as files:
        made = name_new(files, datetime(2023, 11, 14, tzinfo=UTC))
    assert made == ["index/20991231235959999", "index/20991231235960000", "index/20991231235960001"]
    assert [(tmp_path / path).read_text() for path in made] == ["NEW-1", "NEW-2", "NEW-10"]


def without_index(paths):
    return {path for path in paths if not path.startswith("index/")}


@pytest.mark.parametrize("name", ["49-killed", "49-killed-torn", "49-killed-broker", "53-killed"])
def test_the_recovery_of_a_killed_store_is_predicted(name, store, capsys):
    root = store(name)
    after = truth(name)["after_recovery"]
    with left_alone(root):
        status, out, _ = run(capsys, root, "--json")
    shown = json.loads(out)
    assert (status, shown["mode"], shown["loads"], shown["starts"]) == (Exit.DONE, "abnormal", True, True)
    assert (shown["minPhyOffset"], shown["maxPhyOffset"]) == (after["min_phy"], after["max_phy"])
    queues = {
        topic: {queue: {key: bounds[key] for key in ("minOffset", "maxOffset")} for queue, bounds in queues.items()}
        for topic, queues in after["queues"].items()
    }
    assert {topic: shown["queues"][topic] for topic in queues} == queues


def test_what_is_lost_is_told_and_the_status_says_so(tmp_path, capsys):
    case = find_case("4.9.8", "A/body-flip@2ndlast-mid/abort")
    root = case.prepare(tmp_path / "bases", tmp_path / "store")
    status, out, _ = run(capsys, root, "--as", "4.9")
    assert status == Exit.NO
    assert "CRASH" in out
    assert "DELETE" in out
    assert f"would delete {case.outcome['valid_destroyed']} valid messages" in out
    # The stop is an offset of a file, the end of what is kept one of the log: the screen says that they are one place.
    (end,) = re.findall(r"^  keep +the log from \d+ to (\d+) \(the place of the stop\)$", out, re.M)
    (file, offset) = re.search(r"^  stop +at commitlog/(\d{20})@(\d+): ", out, re.M).groups()
    assert int(file) + int(offset) == int(end)
    assert f"  CUT        commitlog/{file}@{offset}: " in out


SCREENS = {
    "crash": ("5.3.3", "A/body-flip@3rdlast-mid/abort"),
    "clean": ("5.3.3", "A/none/clean"),
    "file-limit": ("5.4.0", "L/cq-all-missing/clean"),
    "endless-start": ("4.9.8", "A-killed/cl-missing@last/abort"),
    "heap": ("4.9.8", "A/totalsize-bit30@last-mid/clean"),
    "dispatch-off": ("4.9.8", "A/cq-unit-sizehuge@last/clean"),
    "no-log": ("5.3.3", "A/cl-missing@all/clean"),
    "refused": ("5.3.3", "A/cl-half@last/abort"),
}


def as_seen(monkeypatch, width):
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("screen", SCREENS)
def test_screens(screen, width, tmp_path, monkeypatch, capsys):
    case = find_case(*SCREENS[screen])
    case.prepare(tmp_path / "bases", tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    as_seen(monkeypatch, width)
    _, out, err = run(capsys, "store", "--tz", "UTC", *as_and_settings(case))
    assert (err == "") == (screen != "endless-start")
    check_golden(f"look/recover-{screen}-{width}.txt", err + out)


@pytest.mark.parametrize("width", [80, 120])
def test_screen_of_offsets_that_a_start_wipes(width, tmp_path, monkeypatch, capsys):
    damaged_config("4.9.7", "cfg-topics-both-truncated", tmp_path)
    monkeypatch.chdir(tmp_path)
    as_seen(monkeypatch, width)
    status, out, _ = run(capsys, "store", "--as", "4.9")
    assert status == Exit.NO
    check_golden(f"look/recover-offsets-wiped-{width}.txt", out)


def damaged_config(version, name, directory):
    root = unpack(f"recovery-config-{version}/base-CFG", directory)
    apply_mutation(root, read_catalogue(f"recovery-config-{version}")[f"CFG/{name}"], abort=False)
    return root


@pytest.mark.parametrize(
    ("version", "name", "traps"),
    [
        ("4.9.7", "cfg-none", []),
        ("4.9.7", "cfg-topics-both-truncated", ["offsets wiped"]),
        ("5.3.3", "cfg-topics-both-truncated", []),
        ("4.9.7", "cfg-offset-truncated", ["only copy"]),
        ("5.3.3", "cfg-topics-empty-nobak", ["empty table"]),
        ("5.3.3", "cfg-offset-missing-nobak", []),
    ],
)
def test_traps_of_the_config_files(version, name, traps, tmp_path, capsys):
    root = damaged_config(version, name, tmp_path)
    with left_alone(root):
        _, out, _ = run(capsys, root, "--as", version[:3], "--json")
    shown = json.loads(out)
    validate("recover", shown)
    assert [trap["name"] for trap in shown["traps"]] == traps


def test_5_4_deletes_the_config_file_that_it_cannot_read(tmp_path, capsys):
    """As a real 5.4.0 did with these stores: it takes the copy, and with neither readable it stops before the store."""
    root = damaged_config("5.3.3", "cfg-topics-both-truncated", tmp_path / "both")
    with left_alone(root):
        shown = json.loads(run(capsys, root, "--as", "5.4", "--json")[1])
    assert (shown["loads"], shown["starts"]) == (False, False)
    assert [(change["path"], change["action"]) for change in shown["files"]] == [("config/topics.json", "delete")]
    root = damaged_config("5.3.3", "cfg-topics-truncated", tmp_path / "main")
    shown = json.loads(run(capsys, root, "--as", "5.4", "--json")[1])
    (trap,) = shown["traps"]
    assert (shown["starts"], trap["name"]) == (True, "only copy")
    assert "deletes it and loads its .bak" in trap["message"]
    assert not [change for change in shown["files"] if change["path"].startswith("config/")]


@pytest.mark.parametrize(
    ("version", "name", "traps"),
    [
        ("4.9.8", "A/none/abort", []),
        ("4.9.8", "A/cq-preblank-only/clean", ["dispatch off", "abort stays"]),
        ("5.3.3", "A/cq-unit-sizehuge@last/clean", ["blind queues"]),
        ("4.9.8", "A/totalsize-huge@last-mid/clean", ["heap"]),
        ("4.9.8", "A-killed/cl-missing@last/clean", ["endless start"]),
        ("5.4.0", "L/none/clean", []),
        ("5.4.0", "L/rebuild-all/abort", ["file limit"]),
        ("5.4.0", "A/cl-dir-missing/abort", ["no log"]),
    ],
)
def test_traps_of_the_log_and_the_queues(version, name, traps, tmp_path, capsys):
    case = find_case(version, name)
    root = case.prepare(tmp_path / "bases", tmp_path / "store")
    _, out, _ = run(capsys, root, "--json", *as_and_settings(case))
    shown = json.loads(out)
    validate("recover", shown)
    assert [trap["name"] for trap in shown["traps"]] == traps


def test_what_stands_behind_the_numbers(tmp_path, capsys):
    """The messages lost by file and topic are those of the log behind the damage, found by a walk of the test's own."""
    case = find_case("4.9.8", "A/body-flip@2ndlast-mid/abort")
    root = case.prepare(tmp_path / "bases", tmp_path / "store")
    shown = json.loads(run(capsys, root, "--json", *as_and_settings(case))[1])
    assert sum(part["messages"] for part in shown["lost"]) == shown["messagesLost"] == case.outcome["valid_destroyed"]
    assert {part["file"] for part in shown["lost"]} == {
        "commitlog/00000000000000327680",
        "commitlog/00000000000000393216",
    }
    assert shown["cut"]["code"] == "CL-CRC"
    (flip,) = case.mutation.operations
    assert shown["cut"]["file"] == flip["path"]
    assert shown["cut"]["offset"] < flip["offset"]
    assert shown["scan"]["file"] == "commitlog/00000000000000131072"
    after = {row["topic"] + "/" + str(row["queueId"]): row["after"] for row in shown["rewinds"]}
    assert after["TopicA/0"] == shown["queues"]["TopicA"]["0"]["maxOffset"] == 596
    assert {row["before"] for row in shown["rewinds"] if row["topic"] == "TopicA" and row["queueId"] == 0} == {674}


def test_the_broker_is_guessed_and_said_and_so_are_sizes_that_nothing_shows(tmp_path, capsys):
    case = find_case("5.3.3", "A/cq-all-missing/clean")
    root = case.prepare(tmp_path / "bases", tmp_path / "store")
    _, _, err = run(capsys, root)
    assert "version 5.3 (" in err
    assert "mappedFileSizeConsumeQueue: using 6000000" in err


@pytest.mark.parametrize("name", ["49-dledger", "53-rocksdb", "53-compress"])
def test_what_is_not_modelled_is_refused(name, store, capsys):
    status, _, err = run(capsys, store(name))
    assert status == Exit.NOT_A_STORE
    assert "not modelled" in err


NOT_MODELLED = {"49-dledger", "53-compress", "53-rocksdb", "54-combine", "54-rocksone"}


@pytest.mark.parametrize("name", sorted(set(STORES) - NOT_MODELLED))
def test_a_start_after_a_clean_stop_changes_nothing_that_counts(name, store, capsys):
    """Every store that a real broker left: what is said of it is what the broker said before it stopped."""
    root = store(name)
    status, out, _ = run(capsys, root, "--json")
    shown = json.loads(out)
    validate("recover", shown)
    known = truth(name).get("after_recovery", truth(name))
    assert (shown["loads"], shown["starts"], shown["maxPhyOffset"]) == (True, True, known["max_phy"])
    assert [part for part in shown["lost"] if not part["leftover"]] == []
    assert status == (Exit.NO if name == "49-ghost" else Exit.DONE)
    if name not in ("49-ghost", "49-killed-torn"):
        assert shown["rewinds"] == []
    if "after_recovery" not in truth(name):
        assert {change["path"] for change in shown["files"]} <= {"checkpoint"}


def test_what_an_earlier_start_cut_is_told_apart(store, capsys):
    """Stale messages stand behind the log's end; they count as not served, but this start does not destroy them."""
    status, out, _ = run(capsys, store("49-recovered"), "--json")
    shown = json.loads(out)
    assert status == Exit.DONE
    assert shown["messagesLost"] == sum(part["messages"] for part in shown["lost"] if part["leftover"]) == 28


def test_queues_with_leftovers_that_turn_dispatch_off(store, capsys):
    """The real start of this store was 100 bytes behind the log for ever: it takes a ghost for its last message."""
    status, out, _ = run(capsys, store("49-ghost"), "--json")
    shown = json.loads(out)
    assert status == Exit.NO
    assert [trap["name"] for trap in shown["traps"]] == ["dispatch off", "abort stays"]
    assert f"ends at {shown['maxPhyOffset'] + 100}" in shown["traps"][0]["message"]


def test_a_database_of_settings_is_not_taken_for_empty_tables(store, capsys):
    shown = json.loads(run(capsys, store("53-rocksdbv2"), "--json")[1])
    assert {config["loadedFrom"] for config in shown["config"]} == {None}


def test_a_broker_conf_names_the_store(store, tmp_path, capsys):
    root = store("49-killed")
    (tmp_path / "broker.conf").write_text(f"storePathRootDir={root}\nbrokerName=a\n")
    status, out, _ = run(capsys, tmp_path / "broker.conf")
    assert status == Exit.DONE
    assert f"started on {root} would recover as after a CRASH" in out.replace("\n  ", " ")


def test_one_file_is_no_store(store, capsys):
    root = store("49-killed")
    status, _, err = run(capsys, root / "commitlog" / ("0" * 20))
    assert status == Exit.USAGE
    assert f"rmqtool recover {root}" in err


def test_settings_change_the_answer(tmp_path, capsys):
    case = find_case("5.3.3", "A/body-flip@last-mid/clean")
    root = case.prepare(tmp_path / "bases", tmp_path / "store")
    words = as_and_settings(case)
    lost = [
        json.loads(run(capsys, root, "--json", *words, *more)[1])["messagesLost"]
        for more in ([], ["--conf", "checkCRCOnRecover=false"])
    ]
    assert lost == [case.outcome["valid_destroyed"], 0]


def test_the_target_must_be_new(store, tmp_path, capsys):
    (tmp_path / "left").mkdir()
    (tmp_path / "left/mine").touch()
    status, _, err = run(capsys, store("49-killed"), "--to", tmp_path / "left")
    assert status == Exit.REFUSED
    assert "not empty" in err
    assert [path.name for path in (tmp_path / "left").iterdir()] == ["mine"]


def test_a_segment_that_vanishes_ends_the_run(tmp_path, capsys, monkeypatch):
    """The store is read through handles that are opened when they are needed: what is gone by then is an error."""
    from rmqtool.upstream.startup import MessageStore

    root = unpack("recovery-5.3.3/base-A", tmp_path / "A")
    set_abort(root, True)
    segments = sorted((root / "commitlog").iterdir())
    started = MessageStore.start

    def start(self):
        segments[1].unlink()
        return started(self)

    monkeypatch.setattr(MessageStore, "start", start)
    words = [word for setting in sizes_as_words(base_sizes("5.3.3", "A")) for word in ("--conf", setting)]
    status, out, err = run(capsys, root, "--as", "5.3", *words)
    assert (status, out) == (Exit.NOT_A_STORE, "")
    assert segments[1].name in err


def test_what_was_lost_before_a_start_that_deletes_is_said_too(writable_store, capsys):
    """Zeros over a page: the start deletes what follows it, and what was in the page is gone already."""
    root = writable_store("53-killed")
    with open(root / "commitlog/00000000000000196608", "r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))
    status, out, _ = run(capsys, root)
    said = "this start would delete 10 valid messages; at least 8 were lost already: 4 in TopicA/0, 4 in TopicB/1"
    assert (status, said in " ".join(out.split())) == (Exit.NO, True)
    main(["check", str(root)])
    assert "at least 8 messages: 4 in TopicA/0, 4 in TopicB/1" in " ".join(capsys.readouterr().out.split())
