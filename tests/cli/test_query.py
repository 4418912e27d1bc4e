"""``query`` from the outside: screens, JSON, statuses, and that it only looks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.golden_files import check_golden
from tests.support.stores import every_store, left_alone, truth

DEAD = "FD0000000000000000000000000000027C1A4E0E2F2A5A310EA70016"
UNDECIDED = "FD0000000000000000000000000000027C1A4E0E2F2A5A310F110026"


def run(capsysbinary, *words):
    status = main([str(word) for word in words])
    out, err = capsysbinary.readouterr()
    return status, out.decode(), err.decode()


def answer(capsysbinary, *words):
    status, out, err = run(capsysbinary, "query", *words, "--json")
    assert err == ""
    return status, json.loads(out)


@pytest.fixture(autouse=True)
def no_default_store(monkeypatch, tmp_path):
    monkeypatch.delenv("RMQTOOL_STORE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@every_store
def test_the_message_of_an_id_is_that_of_the_truth(name, store, capsysbinary):
    root, told = store(name), truth(name)
    message = next(message for message in told["messages"][3:] if message["uniqKey"] and not message["sysFlag"] & 0xC)
    with left_alone(root):
        status, shown = answer(capsysbinary, root, message["offsetMsgId"], "--kind", "offsetMsgId")
    assert status == Exit.DONE
    assert {"query", "kind", "messages", "answeredBy", "searched", "complete"} <= set(shown)
    assert (shown["kind"], shown["answeredBy"], shown["complete"]) == ("offsetMsgId", ["log"], True)
    (found,) = shown["messages"]
    names = set(message) - {"bornHost", "storeHost", "bodySha256", "storedBodySha256", "recordSha256"}
    for key in names & set(found):
        assert found[key] == message[key], key
    with left_alone(root):
        status, shown = answer(capsysbinary, root, message["uniqKey"], "--history")
    assert status == Exit.DONE
    assert message["commitLogOffset"] in [found["commitLogOffset"] for found in shown["messages"]]
    assert message["commitLogOffset"] in [event["commitLogOffset"] for event in shown["history"]]


def test_an_id_without_a_store_is_taken_apart(capsysbinary):
    status, shown = answer(capsysbinary, "C0A8010A00002A9F000000000001659B")
    assert status == Exit.DONE
    assert shown["decoded"]["offsetMsgId"] == {"host": "192.168.1.10:10911", "commitLogOffset": 91547}
    assert shown["messages"] == []


def test_the_default_store_is_asked(store, capsysbinary, monkeypatch):
    monkeypatch.setenv("RMQTOOL_STORE", str(store("53-broker")))
    status, shown = answer(capsysbinary, "retry-0")
    assert (status, len(shown["messages"])) == (Exit.DONE, 6)


@pytest.mark.parametrize("name", ["49-basic", "53-basic"])
def test_times_are_answered_as_a_broker_does(name, store, capsysbinary):
    told = truth(name)
    for row in told["offsetByTime"][:: len(told["offsetByTime"]) // 8]:
        words = [store(name), row["timestamp"], "--kind", "time", "-t", row["topic"], "-q", row["queueId"]]
        words += ["--as", told["read_by"][:3]]
        words += ["--boundary", row["boundary"].lower()] if "boundary" in row else []
        status, shown = answer(capsysbinary, *words)
        assert (status, shown["queueOffset"]) == (Exit.DONE, row["offset"])


@pytest.mark.parametrize("name", ["49-basic", "53-basic"])
def test_windows_without_end_or_room_are_answered_as_a_broker_does(name, store, capsysbinary):
    told = truth(name)
    greatest = (1 << 63) - 1
    rows = [row for row in told["queryMessage"] if row["begin"] > row["end"]][:2]
    rows += [row for row in told["queryMessage"] if row["end"] == greatest and not row["phyOffsets"]][:2]
    assert rows
    for row in rows:
        words = [store(name), row["key"], "--kind", "key", "-t", row["topic"]]
        words += ["-b", row["begin"], "-e", row["end"] + 1, "--as", told["read_by"][:3]]
        status, shown = answer(capsysbinary, *words)
        assert (status, shown["messages"], shown["complete"]) == (Exit.NO, [], True)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["retry-0"], Exit.DONE),
        (["no-such-key"], Exit.NO),
        (["T_retry/0@999"], Exit.NO),
        (["T_retry/0@0"], Exit.DONE),
        (["@1"], Exit.NO),
        (["retry-0", "-t", "T_delay"], Exit.NO),
        (["retry-0", "--kind", "phone"], Exit.USAGE),
        (["retry-0", "again"], Exit.USAGE),
        (["retry-0", "--boundary", "lower"], Exit.USAGE),
        (["retry-0", "--boundary", "middle"], Exit.USAGE),
        (["40 1795004365785 60000 3 0 broker-dev 1 0"], Exit.USAGE),
        (["40 1795004365785 60000 3 0 broker-dev 1 0", "-t", "T_pop"], Exit.DONE),
        ([], Exit.USAGE),
    ],
)
def test_statuses(words, status, store, capsysbinary):
    assert run(capsysbinary, "query", store("53-broker"), *words)[0] == status


def test_what_is_not_an_id_needs_a_store(capsysbinary):
    status, out, err = run(capsysbinary, "query", "order-1")
    assert (status, out) == (Exit.USAGE, "")
    assert "is not an id" in err
    assert run(capsysbinary, "query")[0] == Exit.USAGE


def test_unfound_in_a_damaged_log_is_not_a_no(writable_store, capsysbinary):
    root = writable_store("53-broker")
    shutil.rmtree(root / "index")
    with (root / "commitlog" / "00000000000000000000").open("r+b") as file:
        file.seek(truth("53-broker")["messages"][4]["commitLogOffset"])
        file.write(b"\xff" * 100)
    status, out, _ = run(capsysbinary, "query", root, "no-such-key", "--json")
    shown = json.loads(out)
    assert (status, shown["complete"]) == (Exit.SKIPPED, False)
    assert [place["code"] for place in shown["searched"]["unread"]] == ["CL-MAGIC"]


def flip(root, *places):
    """Change a byte of each of these bodies, which the store has in its first segment."""
    path = root / "commitlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    for place in places:
        data[place + 100] ^= 0xFF
    path.write_bytes(data)


def test_a_damaged_body_is_said_to_be_damaged_and_not_another_message(writable_store, capsysbinary):
    """The queue's entry and the index's are right; only the record is not."""
    root = writable_store("53-broker")
    flip(root, 12167)
    fix = f"rmqtool repair {root}"
    status, found = answer(capsysbinary, root, "T_retry/0@4")
    told = [(one["code"], one["message"], one["fix"]) for one in found["findings"]]
    assert told == [("CL-CRC", "T_retry/0@4: the record at 12167 is damaged (its checksum is wrong)", fix)]
    assert status == Exit.SKIPPED
    status, found = answer(capsysbinary, root, "retry-9")
    told = [(one["code"], one["message"], one["fix"]) for one in found["findings"]]
    assert told == [("CL-CRC", "1 more record, at 12167 in the log, is damaged (its checksum is wrong)", fix)]
    assert (status, len(found["messages"]), found["complete"]) == (Exit.DONE, 5, False)


def test_a_key_of_a_damaged_record_is_not_another_key(writable_store, capsysbinary):
    """The index tells which record has the key, so no other key is suggested."""
    root = writable_store("53-broker")
    place = 9542
    flip(root, place)
    status, found = answer(capsysbinary, root, "retry-2")
    assert (status, found["messages"]) == (Exit.SKIPPED, [])
    assert found["reasons"] == [f"the index has this key for the record at {place} in the log, which is damaged"]
    assert "near" not in found
    out = run(capsysbinary, "query", root, "retry-2")[1]
    # The place of the damage is in the finding, once.
    assert out.startswith('key "retry-2": the message is damaged, so it is not shown\n')
    assert out.count("commitlog/") == 1
    assert out.endswith(f"Next: rmqtool repair {root}\n")


def test_an_offset_in_the_log_without_its_sign_is_recognized(store, capsysbinary):
    """A message begins at 12167, and none at 12168."""
    status, found = answer(capsysbinary, store("53-broker"), "12167")
    assert (status, found["messages"], found["near"]) == (Exit.NO, [], ["@12167"])
    status, found = answer(capsysbinary, store("53-broker"), "12168")
    assert (status, found["messages"], "near" in found) == (Exit.NO, [], False)


def test_records_of_one_message_are_not_counted_as_messages(store, capsysbinary):
    out = run(capsysbinary, "query", store("53-broker"), "retry-9")[1]
    assert out.startswith("6 records of 1 message, by key, from the index\n")
    out = run(capsysbinary, "query", store("53-broker"), "T_retry/0@4")[1]
    assert out.startswith("1 message, by queue offset, from its queue\n")


def test_a_message_that_became_a_dead_letter_is_not_called_consumed(store, capsysbinary):
    out = run(capsysbinary, "query", store("53-broker"), DEAD, "--history")[1]
    assert _fates(out) == ["failed, sent again", "failed, sent again", "dead letter"]
    about = [line.split("  ")[-1].strip() for line in out.splitlines() if "  to DLQ  " in line]
    assert about == ["after 3 failures"]
    assert out.endswith(f"Next: rmqtool consume {store('53-broker')} -g G_retry --dlq\n")


def _fates(out):
    rows = [line.split() for line in out.splitlines() if line.startswith("G_retry ")]
    return [" ".join(row[5:]) for row in rows]


LETTER = 208910  # the record of retry-6 in %DLQ%G_retry


def _flip(root, physical_offset):
    """Change a byte of a body."""
    with (root / "commitlog" / f"{physical_offset // 65536 * 65536:020}").open("r+b") as file:
        file.seek(physical_offset % 65536 + 100)
        byte = file.read(1)
        file.seek(physical_offset % 65536 + 100)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_a_dead_letter_whose_record_is_damaged_is_not_called_consumed(writable_store, capsysbinary):
    root = writable_store("53-broker")
    _flip(root, LETTER)
    out = run(capsysbinary, "query", root, "retry-6", "--history")[1]
    assert _fates(out) == ["failed, sent again", "failed, sent again", "dead letter"]
    assert "C: dead letter\n" in out
    assert [line.split("  ")[-1].strip() for line in out.splitlines() if "  to DLQ  " in line] == [
        "after 3 failures, damaged"
    ]
    # A repair writes a placeholder over the record: that it was a dead letter is known to nobody any more.
    assert run(capsysbinary, "repair", root, "--apply", "--allow", "primary")[0] == Exit.DONE
    out = run(capsysbinary, "query", root, "retry-6", "--history")[1]
    assert _fates(out) == ["failed, sent again", "failed, sent again", "passed"]
    assert "C: stored when last seen; what came after is not known" in " ".join(out.split())
    (story,) = answer(capsysbinary, root, "retry-6", "--history")[1]["stories"]
    assert (story["state"], story["complete"]) == ("stored", False)


def test_a_limit_that_leaves_messages_out_is_told(store, capsysbinary):
    root = store("53-broker")
    out = run(capsysbinary, "query", root, "k0", "-n", "2")[1]
    assert out.splitlines()[0] == "2 messages, by key, from the index; there are older ones (-n 2)"
    assert answer(capsysbinary, root, "k0", "-n", "2")[1]["searched"]["limit"] == 2
    assert "limit" not in answer(capsysbinary, root, "k0", "-n", "4")[1]["searched"]
    assert run(capsysbinary, "query", root, "k0", "-n", "4")[1].splitlines()[0] == "4 messages, by key, from the index"


def test_a_message_whose_queue_is_gone_is_found_with_the_finding(writable_store, capsysbinary):
    root = writable_store("53-broker")
    shutil.rmtree(root / "consumequeue" / "T_normal" / "2")
    for what, count in (("k0", 4), ("T_normal/2@10", 1)):
        found = answer(capsysbinary, root, what)[1]["findings"]
        assert [(one["code"], one["topic"], one["queueId"]) for one in found] == [("CQ-MISSING", "T_normal", 2)] * count
    # Without offsets of groups and topics.json nothing says that the queue should be there, but for the log itself.
    (root / "config" / "topics.json").unlink()
    assert len(answer(capsysbinary, root, "k0")[1]["findings"]) == 4


def test_a_damaged_record_at_a_place_is_one_finding(writable_store, capsysbinary):
    root = writable_store("53-broker")
    _flip(root, LETTER)
    for what in (f"@{LETTER}", "7F00000100006E0B000000000003300E"):
        status, found = answer(capsysbinary, root, what)
        assert status == Exit.SKIPPED
        assert [(one["code"], one["offset"]) for one in found["findings"]] == [("CL-CRC", LETTER % 65536)]
        assert "unread" not in found["searched"]
        out = run(capsysbinary, "query", root, what)[1]
        assert "the message is damaged, so it is not shown" in out


def test_rows_and_templates_take_the_messages(store, capsysbinary):
    root = store("53-broker")
    status, out, _ = run(capsysbinary, "query", root, "retry-0", "--template", "{topic} {queueOffset}\\n")
    assert status == Exit.DONE
    assert out.splitlines()[0] == "T_retry 0"
    status, out, _ = run(capsysbinary, "query", root, "retry-0", "--csv")
    assert len(out.splitlines()) == 7


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("screen", "name", "words", "status"),
    [
        ("query-dead-letter", "53-broker", [DEAD, "--history"], Exit.DONE),
        ("query-given-up", "53-broker", [UNDECIDED, "--history"], Exit.DONE),
        ("query-one", "53-broker", ["T_retry/0@0"], Exit.DONE),
        ("query-unfound", "53-broker", ["retry-00", "-t", "T_retri"], Exit.NO),
        ("query-unfound-place", "53-broker", ["@17"], Exit.NO),
        ("query-collisions", "49-basic", ["AaAa", "-t", "TopicTest"], Exit.DONE),
        ("query-unindexed", "49-killed", ["C0A8010A5DAD4E0E2F2A5A24414801B7"], Exit.DONE),
        ("query-time", "53-broker", ["2026-11-18T12:19:25Z", "-t", "T_retry"], Exit.DONE),
    ],
)
def test_screens(screen, name, words, status, width, store, capsysbinary, monkeypatch):
    from rmqtool.commands import options

    root = store(name)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    found, out, err = run(capsysbinary, "query", root, *words, "--tz", "UTC")
    assert (found, err) == (status, "")
    check_golden(f"look/{screen}-{width}.txt", out.replace(str(root), "/store"))


def test_json_lines_have_one_object_each(store, capsysbinary):
    status, out, _ = run(capsysbinary, "query", str(store("53-broker")), "retry-9", "--jsonl")
    assert status == Exit.DONE
    assert out.count("\n") == 1
    assert len(json.loads(out)["messages"]) > 1


@pytest.mark.parametrize("name", ["49-broker", "53-basic"])
def test_a_tag_search_misses_nothing_in_an_index_that_has_no_tags(name, store, capsysbinary):
    """Brokers before 5.4 write no entries for tags: their index is asked for nothing, and accused of nothing."""
    status, out, _ = run(capsysbinary, "query", store(name), "--kind", "tag", "TagA", "--json")
    answer = json.loads(out)
    tagged = [
        m["commitLogOffset"] for m in truth(name)["messages"] if m.get("tags") == "TagA" and m["sysFlag"] & 12 != 12
    ]
    assert status == Exit.DONE
    assert [message["commitLogOffset"] for message in answer["messages"]] == sorted(tagged)
    assert answer.get("findings", []) == []


def test_a_message_without_a_unique_key_is_not_called_consumed(writable_store, capsysbinary):
    """A group that failed on it sent a copy back, and nothing leads from the message to the copy."""
    root = writable_store("53-killed")
    offsets = {"offsetTable": {"TopicA@g": {"0": 1}}}
    (root / "config").mkdir(exist_ok=True)
    (root / "config/consumerOffset.json").write_text(json.dumps(offsets))
    out = " ".join(run(capsysbinary, "query", root, "@3833", "--history")[1].split())
    assert "stored when last seen; what came after is not known, because it has no unique key" in out
    assert "consumed" not in out
    assert "passed" in out
