"""``diff``: a store is the same as itself and as a copy in another geometry, and differs where it was damaged."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from rmqtool.cli import main
from rmqtool.commands import options
from rmqtool.errors import Exit
from tests.golden.texts import records
from tests.support.damaged import VERSIONS, Workshop, in_turn, mutations
from tests.support.golden_files import check_golden
from tests.support.recast import recast
from tests.support.schemas import validate
from tests.support.stores import left_alone, truth, varied_stores

BY = ("log", "queue", "message")


def diff(capsys, a, b, *words):
    with left_alone(a), left_alone(b):
        status = main(["diff", str(a), str(b), "--json", *words])
    shown = json.loads(capsys.readouterr().out)
    validate("diff", shown)
    assert shown["same"] is (shown["onlyA"] + shown["onlyB"] + shown["different"] == 0)
    return status, shown


def rows(shown):
    return [(row["kind"], row["topic"], row["queueId"], row["queueOffset"]) for row in shown["rows"]]


@varied_stores
def test_a_store_is_the_same_as_itself(name, store, capsys):
    for by in BY:
        status, shown = diff(capsys, store(name), store(name), "--by", by)
        assert (status, shown["same"], shown["complete"], shown["rows"]) == (Exit.DONE, True, True, [])
        assert shown["a"]["messages"] == shown["b"]["messages"] > 0
        if by != "queue":
            # The real decoder calls the torn record at the end of one store a message.
            assert shown["a"]["messages"] == len(truth(name)["messages"]) - shown["a"]["damaged"]


@varied_stores
def test_a_copy_in_another_geometry_says_the_same(name, store, tmp_path, capsys):
    root = store(name)
    copy = recast(name, root, tmp_path / "copy", segment_size=100_000, units_per_file=37)
    for by in ("queue", "message"):
        _, shown = diff(capsys, root, copy, "--by", by)
        assert (by, shown["same"], rows(shown)) == (by, True, [])
    status, shown = diff(capsys, root, copy, "--by", "log")
    assert status == (Exit.NO if shown["complete"] else Exit.SKIPPED)
    assert (shown["onlyA"], shown["onlyB"]) == (shown["a"]["messages"], shown["b"]["messages"])


# What became of a copy, and what each way to compare says of it: kinds and how often.
DAMAGED = {
    "A/body-flip@last-mid": {"log": {"onlyA": 1}, "queue": {"onlyA": 1}, "message": {"onlyA": 1}},
    "A/magic-flip@2ndlast-mid": {"log": {"onlyA": 1}, "queue": {"onlyA": 1}, "message": {"onlyA": 1}},
    "A/storets-flip@3rdlast-mid": {"log": {"different": 1}, "queue": {"different": 1}, "message": {}},
    # It hits the unique key: by it the message is another one.
    "A/props-flip@last-mid": {"log": {"different": 1}, "queue": {"different": 1}, "message": {"onlyA": 1, "onlyB": 1}},
    "A/topic-flip@last-mid": {"log": {"different": 1}, "queue": {"different": 1}, "message": {"onlyA": 1, "onlyB": 1}},
    "A/physoffset-flip@last-mid": {"log": {"onlyA": 1}, "queue": {"onlyA": 1}, "message": {"onlyA": 1}},
    "A/cq-unit-tag@lastfile-mid": {"log": {}, "queue": {"different": 1}, "message": {}},
    "A/cq-unit-midrecord@lastfile-mid": {"log": {}, "queue": {"onlyA": 1}, "message": {}},
    "A/cq-unit-otherqueue@lastfile-mid": {"log": {}, "queue": {"different": 1}, "message": {}},
    "A/ix-missing@last": {"log": {}, "queue": {}, "message": {}},
    "A/cp-missing": {"log": {}, "queue": {}, "message": {}},
}
# Of these a part of the log could not be compared; with several statuses that is the one that counts.
HIDING = {"A/body-flip@last-mid", "A/magic-flip@2ndlast-mid", "A/physoffset-flip@last-mid"}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("damaged"))


@pytest.mark.parametrize(("version", "name"), in_turn(DAMAGED))
def test_a_damaged_copy_differs_where_it_was_damaged(version, name, workshop, capsys):
    mutation = mutations(version)[name]
    base = workshop.base(version, mutation.base)
    with workshop.damaged(version, mutation, abort=False) as copy:
        for by, expected in DAMAGED[name].items():
            status, shown = diff(capsys, base, copy, "--by", by)
            found = {kind: shown[kind] for kind in ("onlyA", "onlyB", "different") if shown[kind]}
            assert (by, found) == (by, expected)
            assert shown["complete"] == (name not in HIDING)
            assert status == (Exit.SKIPPED if name in HIDING else Exit.NO if expected else Exit.DONE)
            back = diff(capsys, copy, base, "--by", by)[1]
            assert (back["onlyB"], back["onlyA"]) == (shown["onlyA"], shown["onlyB"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lost_segment_takes_its_messages(version, workshop, capsys):
    mutation = mutations(version)["A/cl-missing@last"]
    base = workshop.base(version, mutation.base)
    (gone,) = (int(operation["path"].rpartition("/")[2]) for operation in mutation.operations)
    lost = sorted(place for place in records(base) if place >= gone)
    with workshop.damaged(version, mutation, abort=False) as copy:
        _, shown = diff(capsys, base, copy, "--by", "log")
        assert [row["a"]["commitLogOffset"] for row in shown["rows"]] == lost
        assert {row["kind"] for row in shown["rows"]} == {"onlyA"}
        assert shown["ranges"] == [{"offset": gone, "length": shown["ranges"][0]["length"]}]


@pytest.mark.parametrize("version", VERSIONS)
def test_units_that_lead_into_a_hole_are_no_messages(version, workshop, capsys):
    mutation = mutations(version)["A/cl-missing@2ndlast"]
    base = workshop.base(version, mutation.base)
    with workshop.damaged(version, mutation, abort=False) as copy:
        _, by_log = diff(capsys, base, copy, "--by", "log")
        _, by_queue = diff(capsys, base, copy, "--by", "queue")
    lost = by_log["a"]["messages"] - by_log["b"]["messages"]
    assert lost > 0
    # Not every message is in a queue: what was rolled back is in none.
    assert by_queue["a"]["messages"] - by_queue["b"]["messages"] == by_queue["onlyA"]
    assert lost - 1 <= by_queue["onlyA"] <= lost


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lost_queue_is_named_with_its_digest(version, workshop, capsys):
    mutation = mutations(version)["A/cq-dir-missing@largest"]
    (gone,) = (operation["path"] for operation in mutation.operations)
    _, topic, queue_id = gone.split("/")
    base = workshop.base(version, mutation.base)
    with workshop.damaged(version, mutation, abort=False) as copy:
        status, shown = diff(capsys, base, copy)
        assert (status, shown["onlyB"], shown["different"]) == (Exit.NO, 0, 0)
        assert {(row["topic"], row["queueId"]) for row in shown["rows"]} == {(topic, int(queue_id))}
        differing = [digest for digest in shown["digests"] if digest["a"] != digest["b"]]
        assert [(d["topic"], d["queueId"], d["messagesA"], d["messagesB"], d["b"]) for d in differing] == [
            (topic, int(queue_id), shown["onlyA"], 0, None)
        ]
        assert diff(capsys, base, copy, "-t", f"{topic[:-1]}?", "--by", "message")[1]["same"] is True


def test_a_message_that_says_something_else_is_different_by_any_way(store, writable_store, capsys):
    base, copy = store("49-basic"), writable_store("49-basic")
    place = truth("49-basic")["messages"][7]["commitLogOffset"]
    path = copy / "commitlog/00000000000000000000"
    data = bytearray(path.read_bytes())
    data[place + 16] ^= 0x40  # the flag is the producer's own, and no checksum is over it
    path.write_bytes(data)
    for by in BY:
        status, shown = diff(capsys, base, copy, "--by", by)
        assert (status, [(row["kind"], row["a"]["commitLogOffset"]) for row in shown["rows"]]) == (
            Exit.NO,
            [("different", place)],
        )
        (row,) = shown["rows"]
        assert row["b"]["flag"] == row["a"]["flag"] ^ 0x40000000
        assert {name for name in row["a"] if row["a"][name] != row["b"][name]} == {"flag"}


def test_file_queues_are_compared_with_rocksdb_queues(store, capsys):
    pytest.importorskip("rocksdict")
    root = store("54-combine")
    status, shown = diff(capsys, root, root, "--cq", "file,rocksdb")
    assert (status, shown["same"]) == (Exit.DONE, True)
    assert shown["digests"]
    assert all(digest["messagesA"] > 0 for digest in shown["digests"] if digest["a"])


def test_a_copy_of_rocksdb_queues_in_files_that_lacks_one_message_differs(store, tmp_path, capsys):
    pytest.importorskip("rocksdict")
    root = store("53-rocksdb")
    copy = recast("53-rocksdb", root, tmp_path / "copy", segment_size=100_000, units_per_file=37)
    queue = copy / "consumequeue/RocksA/1/00000000000000000000"
    data = bytearray(queue.read_bytes())
    data[20 * 7 : 20 * 8] = data[20 * 8 : 20 * 9]
    queue.write_bytes(data)
    status, shown = diff(capsys, root, copy)
    assert (status, rows(shown)) == (Exit.NO, [("different", "RocksA", 1, 7)])


def test_only_wanted_topics_are_compared(workshop, capsys):
    mutation = mutations("5.3.3")["A/body-flip@last-mid"]
    base = workshop.base("5.3.3", mutation.base)
    with workshop.damaged("5.3.3", mutation, abort=False) as copy:
        (row,) = diff(capsys, base, copy)[1]["rows"]
        assert diff(capsys, base, copy, "-t", row["topic"])[1]["onlyA"] == 1
        status, shown = diff(capsys, base, copy, "-t", "NoSuchTopic*")
        # Nothing that was asked for differs, and what is damaged might have been of any topic.
        assert (status, shown["same"], shown["complete"]) == (Exit.SKIPPED, True, False)
        counts = diff(capsys, base, copy, "--summary")[1]
        assert (counts["topics"], counts["rows"]) == (
            [{"topic": row["topic"], "onlyA": 1, "onlyB": 0, "different": 0}],
            [],
        )
        assert len(diff(capsys, base, copy, "-n", "0")[1]["rows"]) == 0


def test_lines_of_json_and_columns_show_the_rows(workshop, capsys):
    mutation = mutations("5.3.3")["A/cl-missing@last"]
    base = workshop.base("5.3.3", mutation.base)
    with workshop.damaged("5.3.3", mutation, abort=False) as copy:
        _, shown = diff(capsys, base, copy)
        assert main(["diff", str(base), str(copy), "--jsonl"]) == Exit.NO
        *lines, last = map(json.loads, capsys.readouterr().out.splitlines())
        assert (lines, last["summary"]["onlyA"]) == (shown["rows"], len(lines))
        assert main(["diff", str(base), str(copy), "--csv", "-n", "2"]) == Exit.NO
        head, *cells = capsys.readouterr().out.splitlines()
    assert head == "kind,topic,queueId,queueOffset"
    assert cells == [f"{r['kind']},{r['topic']},{r['queueId']},{r['queueOffset']}" for r in shown["rows"][:2]]


@pytest.mark.parametrize("words", [["--by", "name"], ["--cq", "file,disk"], ["--by", "log", "--cq", "file"]])
def test_what_cannot_be_compared_is_refused(words, store, capsys):
    root = str(store("53-epoch"))
    assert main(["diff", root, root, *words]) == Exit.USAGE
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("width", [80, 120])
def test_the_screens_are_as_they_were(width, workshop, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    mutation = mutations("5.3.3")["A/cl-missing@last"]
    with workshop.damaged("5.3.3", mutation, abort=False) as copy:
        shutil.copytree(workshop.base("5.3.3", mutation.base), "master")
        shutil.copytree(copy, "slave")
    for words in (["-n", "3"], ["--by", "log", "-n", "2"], ["--by", "message", "-n", "2"], ["--summary"]):
        print("$ rmqtool diff master slave", *words)
        assert main(["diff", "master", "slave", "--tz", "UTC", *words]) == Exit.NO
    print("$ rmqtool diff master master")
    assert main(["diff", "master", "master"]) == Exit.DONE
    check_golden(f"look/diff-{width}.txt", capsys.readouterr().out)


def test_the_same_damage_on_both_sides_is_said(workshop, tmp_path, capsys):
    """Equal bytes hide no difference; other bytes in the same damaged place hide what was there."""
    with workshop.damaged("5.3.3", mutations("5.3.3")["A/magic-flip@last-mid"], abort=False) as damaged:
        copy = tmp_path / "copy"
        shutil.copytree(damaged, copy, symlinks=True)
        for by in BY:
            status, shown = diff(capsys, damaged, copy, "--by", by)
            assert (by, status, shown["same"], shown["complete"]) == (by, Exit.DONE, True, True)
            assert shown["a"]["damaged"] == shown["b"]["damaged"] == 1
        assert main(["diff", str(damaged), str(copy), "--color", "never"]) == Exit.DONE
        assert "compared by queue, and both have the same 1 damaged place\n" in capsys.readouterr().out
        main(["check", str(damaged), "--only", "CL-MAGIC", "--jsonl", "--quiet"])
        place = json.loads(capsys.readouterr().out.splitlines()[0])
        with (copy / place["file"]).open("r+b") as file:
            file.seek(place["offset"] + place["length"] // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 0x55]))
        for by, expected in (("log", Exit.NO), ("queue", Exit.SKIPPED), ("message", Exit.SKIPPED)):
            assert (by, diff(capsys, damaged, copy, "--by", by)[0]) == (by, expected)
