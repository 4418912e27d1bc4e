"""The files of one queue are lost: all commands say the same, also after a new message took queue offset 0."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main

# The record of T_normal/2@5 in 53-broker, and a byte of its body.
DAMAGED, BODY = 38361, 200
LOG = "commitlog/00000000000000000000"
QUEUE = "consumequeue/T_normal/2"


def run(capsys, *words) -> tuple[int, str]:
    status = main([str(word) for word in words])
    return status, capsys.readouterr().out


def answer(capsys, *words) -> Any:
    return json.loads(run(capsys, *words, "--json")[1])


@pytest.fixture
def lost(writable_store) -> Path:
    """Return a store in which a queue of 35 messages has no files, and the body of its message 5 is damaged."""
    root = writable_store("53-broker")
    shutil.rmtree(root / QUEUE)
    with (root / LOG).open("r+b") as log:
        log.seek(DAMAGED + BODY)
        log.write(bytes(40))
    return root


@pytest.fixture
def reused(lost, capsys) -> Path:
    """Return the store after a new message, which got queue offset 0."""
    (made,) = answer(capsys, "produce", lost, "-t", "T_normal", "-q", "2", "hello")
    assert made["queueOffset"] == 0
    return lost


def findings(capsys, root: Path, code: str) -> list[dict[str, Any]]:
    return [one for one in answer(capsys, "check", root) if one.get("code") == code]


def test_messages_whose_queue_offsets_were_given_again_are_named(reused, capsys):
    """check said nothing of them and repair had no step, while recover counted 34 messages in no queue."""
    (one,) = findings(capsys, reused, "CQ-REUSED")
    assert (one["severity"], one["file"], one["topic"], one["queueId"]) == ("error", QUEUE, "T_normal", 2)
    assert one["data"] == {"messages": 34, "physicalOffset": 22381}
    assert answer(capsys, "recover", reused)["messagesUnreachable"] == 34
    left = {found["code"]: found.get("fix") for found in answer(capsys, "repair", reused)["left"]}
    assert left["CQ-REUSED"] == f"rmqtool cat {reused} --jsonl > messages.jsonl"


def test_the_saved_messages_have_those_that_are_in_no_queue(reused, capsys):
    lines = [
        json.loads(line) for line in run(capsys, "cat", reused, "-t", "T_normal", "-q", "2", "--jsonl")[1].splitlines()
    ]
    old = [line["queueOffset"] for line in lines if "topic" in line]
    assert old == [*range(5), *range(6, 35), 0]


@pytest.mark.parametrize("word", ["T_normal/2@10", "k0", "T_normal/2@0"])
def test_a_search_says_it_with_the_same_code_and_fix(reused, capsys, word):
    """query sent people to a repair that had no step for these messages."""
    found = answer(capsys, "query", reused, word)
    codes = {one["code"] for one in found.get("findings", ()) if one.get("topic") == "T_normal"}
    assert codes & {"CQ-MISSING", "CQ-WRONG"} == set()
    assert word != "T_normal/2@10" or codes == {"CQ-REUSED"}


def test_following_the_screens_ends_at_the_command_that_saves_the_messages(reused, capsys):
    """recover sent people to a repair, whose plan said nothing of the messages."""
    assert run(capsys, "recover", reused)[1].splitlines()[-1] == f"Next: rmqtool check {reused}"
    repaired = answer(capsys, "repair", reused, "--apply", "--allow", "primary,state")
    assert repaired["applied"]
    last = run(capsys, "repair", reused)[1].splitlines()[-1]
    assert last == f"Next: rmqtool cat {reused} --jsonl > messages.jsonl"


def test_a_start_without_the_queue_gives_its_offsets_again(lost, capsys):
    """recover had no REWIND line, and the first new message then got queue offset 0 while a group was at 35."""
    shown = answer(capsys, "recover", lost)
    assert shown["rewinds"] == [{"topic": "T_normal", "queueId": 2, "before": 35, "after": 0}]
    assert shown["unreached"] == [{"topic": "T_normal", "queueId": 2, "messages": 34}]
    screen = " ".join(run(capsys, "recover", lost)[1].split())
    assert "REWIND T_normal/2 35 → 0: new messages would reuse 35 offsets" in screen
    assert "UNREACHED 34 valid messages are in no queue: 34 of T_normal/2" in screen


def test_a_queue_that_began_again_is_not_rewound_once_more(reused, capsys):
    shown = answer(capsys, "recover", reused)
    assert shown["rewinds"] == []
    assert shown["unreached"] == [{"topic": "T_normal", "queueId": 2, "messages": 34}]


def test_the_damaged_message_is_counted_without_its_queue_entry(lost, capsys):
    """check had no line about it, and repair said "0 messages lost here" above "in all at least 1 message"."""
    gone = [{"topic": "T_normal", "queueId": 2, "messages": 1}]
    assert answer(capsys, "check", lost)[-1]["summary"]["lost"] == gone
    plan = answer(capsys, "repair", lost)
    assert plan["lost"] == gone
    assert not any("0 messages" in step["reason"] for step in plan["steps"])


# --- what the next start does with damage, said by check


def test_check_says_that_the_next_start_does_not_read_the_damaged_file(lost, capsys):
    """It said "also deletes all messages after it", and recover that this file is not read."""
    (lost / "abort").touch()
    (one,) = findings(capsys, lost, "CL-CRC")
    assert (one["file"], one["offset"]) == (LOG, DAMAGED)
    assert one["broker"] == "the next start (as 5.3) does not read this file, so it deletes nothing here"
    shown = answer(capsys, "recover", lost)
    assert (shown["scan"]["file"], shown["messagesLost"]) == ("commitlog/00000000000000196608", 0)


def test_check_says_how_many_messages_the_next_start_deletes_at_damage(writable_store, capsys):
    root = writable_store("53-broker")
    with (root / "commitlog" / "00000000000000196608").open("r+b") as log:
        log.seek(12302 + 108)
        log.write(bytes(40))
    (one,) = findings(capsys, root, "CL-CRC")
    assert one["offset"] == 12302
    assert one["broker"] == (
        "DO NOT START A BROKER: the next start (as 5.3) cuts the log here and deletes 27 valid messages"
    )
    assert answer(capsys, "recover", root)["messagesLost"] == 27


def test_an_index_file_that_the_start_writes_again_is_not_called_deleted(lost, capsys):
    """recover said that 37 keys would be gone; all of them are in the new file."""
    (lost / "abort").touch()
    (one,) = answer(capsys, "recover", lost)["indexLost"]
    assert one["rebuilt"] is True
    out = run(capsys, "recover", lost)[1]
    assert "  rebuild    1 index file: " in out
    assert "DELETE" not in out


def test_all_steps_that_need_the_change_of_the_log_are_counted(writable_store, capsys):
    """Two of three were; then --apply said that every step needs --allow."""
    root = writable_store("53-broker")
    with (root / LOG).open("r+b") as log:
        log.seek(DAMAGED + BODY)
        log.write(bytes(40))
    plan = answer(capsys, "repair", root)
    assert [(step["class"], step["allowed"]) for step in plan["steps"]] == [("primary", False), ("derived", False)]
    out = " ".join(run(capsys, "repair", root)[1].split())
    assert "2 steps to do, only with --allow primary; then no problems remain; 1 message stays lost" in out
    assert "an empty placeholder overwrites the whole record" in out
    assert f"in the undo journal {root}-rmqtool-undo/" in out
