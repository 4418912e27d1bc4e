"""``rmqtool topic``."""

from __future__ import annotations

import json

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.stores import truth


def run(capsysbinary, *words):
    status = main(["topic", *map(str, words)])
    printed = capsysbinary.readouterr()
    return status, printed.out.decode(), printed.err.decode()


def test_a_topic_is_made_changed_and_deleted(writable_store, capsysbinary):
    root = writable_store("53-broker")
    status, out, _ = run(capsysbinary, root, "create", "Made", "--queues", 4, "--json")
    assert (status, json.loads(out)) == (
        Exit.DONE,
        [
            {
                "topic": "Made",
                "readQueueNums": 4,
                "writeQueueNums": 4,
                "perm": "rw",
                "order": False,
                "attributes": {},
            }
        ],
    )
    status, out, _ = run(capsysbinary, root, "alter", "Made", "--perm", "r", "--attribute", "message.type=FIFO")
    assert (status, out) == (Exit.DONE, "Made  4 queues  r  message.type=FIFO\n")
    status, out, _ = run(capsysbinary, root, "list", "--jsonl")
    listed = [json.loads(line) for line in out.splitlines()]
    table = truth("53-broker")["configFiles"]["topics.json"]["topicConfigTable"]
    assert [row["topic"] for row in listed] == sorted([*table, "Made"])
    status, _, err = run(capsysbinary, root, "delete", "Made")
    assert (status, "--yes" in err) == (Exit.REFUSED, True)
    status, out, _ = run(capsysbinary, root, "delete", "Made", "--yes", "--json")
    gone = {"topic": "Made", "readQueueNums": 4, "writeQueueNums": 4, "perm": "r", "order": False}
    expected = [{**gone, "attributes": {"message.type": "FIFO"}, "deleted": True}]
    assert (status, json.loads(out)) == (Exit.DONE, expected)
    assert "Made" not in (root / "config/topics.json").read_text()


def test_deleting_takes_the_queues_and_leaves_the_log(writable_store, capsysbinary):
    root = writable_store("53-broker")
    topic = next(entry["topic"] for entry in truth("53-broker")["messages"] if entry["topic"].startswith("T_"))
    log = sorted((path.name, path.read_bytes()) for path in (root / "commitlog").iterdir())
    assert (root / "consumequeue" / topic).is_dir()
    assert run(capsysbinary, root, "delete", topic, "--yes")[0] == Exit.DONE
    assert not (root / "consumequeue" / topic).exists()
    assert sorted((path.name, path.read_bytes()) for path in (root / "commitlog").iterdir()) == log


def test_what_makes_no_sense_is_said(writable_store, capsysbinary):
    root = writable_store("53-epoch")
    assert run(capsysbinary, root, "rename", "A")[0] == Exit.USAGE
    assert run(capsysbinary, root, "create")[0] == Exit.USAGE
    assert run(capsysbinary, root, "list", "A")[0] == Exit.USAGE
    assert run(capsysbinary, root, "create", "A", "--attribute", "x")[0] == Exit.USAGE
    assert run(capsysbinary, root, "alter", "Nowhere", "--perm", "r")[0] == Exit.NO


def test_a_topic_is_shown_with_its_queues_and_groups(store, capsysbinary):
    root = store("53-broker")
    status, out, _ = run(capsysbinary, root, "show", "T_popfifo", "--json")
    shown = json.loads(out)
    entries = [entry for entry in truth("53-broker")["messages"] if entry["topic"] == "T_popfifo"]
    assert (status, shown["topic"], shown["perm"]) == (Exit.DONE, "T_popfifo", "rw")
    assert shown["attributes"] == {"message.type": "FIFO"} or shown["attributes"] == {}
    assert shown["queues"]["0"] == {"minOffset": 0, "maxOffset": max(entry["queueOffset"] for entry in entries) + 1}
    offsets = truth("53-broker")["configFiles"]["consumerOffset.json"]["offsetTable"]["T_popfifo@G_popfifo"]
    committed = {queue: place["committed"] for queue, place in shown["groups"]["G_popfifo"].items()}
    assert committed == {str(queue): offset for queue, offset in offsets.items()}
    status, out, _ = run(capsysbinary, root, "show", "T_popfifo")
    assert status == Exit.DONE
    assert out.splitlines()[0] == "T_popfifo"
    assert "G_popfifo" in out
    status, out, _ = run(capsysbinary, root, "show", "T_popfifo", "--csv")
    assert out.splitlines()[0] == "queueId,minOffset,maxOffset,messages"


def test_a_topic_that_is_not_there_has_a_near_one(store, capsysbinary):
    root = store("53-broker")
    status, out, err = run(capsysbinary, root, "show", "T_popfif")
    assert (status, out) == (Exit.NO, "")
    assert "did you mean T_popfifo?" in err
    assert run(capsysbinary, root, "show")[0] == Exit.USAGE
    assert run(capsysbinary, root, "show", "T_popfifo", "--perm", "r")[0] == Exit.USAGE
