"""``produce --replay``: dead letters go back to where they came from, as their producers sent them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rmqtool
from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.conftest import Unpacker
from tests.support.schemas import validate
from tests.support.stores import left_alone

Capture = pytest.CaptureFixture[str]


def lines_of(capsys: Capture, *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main([*words, "--jsonl"]) == Exit.DONE
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_dead_letters_of_4_9_go_back_to_their_topic(writable_store: Unpacker, capsys: Capture) -> None:
    """Two messages of a real consumer that failed three times; their texts as a real client printed them."""
    root = str(writable_store("49-broker"))
    sent = lines_of(capsys, "produce", root, "--replay", "-g", "g_retry")
    for line in sent:
        validate("produced", line)
    assert [(line["status"], line["topic"], line["queueOffset"]) for line in sent] == [("PUT_OK", "RetryMe", 2)] * 2
    back = lines_of(capsys, "cat", root, "-t", "RetryMe")[-2:]
    assert [one["commitLogOffset"] for one in back] == [one["commitLogOffset"] for one in sent]
    assert [(one["body"], one["tags"], one["keys"], one["reconsumeTimes"], one["flag"]) for one in back] == [
        ("retry body dead-1", "R", "dead-1", 0, 0),
        ("retry body dead-0", "R", "dead-0", 0, 0),
    ]
    for one, line in zip(back, sent, strict=True):
        assert one["uniqKey"] == line["msgId"] != ""
        # Nothing of the three deliveries before. The broker adds its cluster, the client the unique key.
        assert set(one["properties"]) == {"KEYS", "TAGS", "UNIQ_KEY", "CLUSTER"}


def test_the_group_gets_them_again(writable_store: Unpacker, capsys: Capture) -> None:
    root = str(writable_store("49-broker"))
    assert main(["consume", root, "-g", "g_retry", "-t", "RetryMe", "--from", "last", "--commit"]) == Exit.DONE
    assert main(["produce", root, "--replay", "-g", "g_retry"]) == Exit.DONE
    got = lines_of(capsys, "consume", root, "-g", "g_retry", "-t", "RetryMe", "--commit")
    assert sorted(one["keys"] for one in got) == ["dead-0", "dead-1"]
    assert len(lines_of(capsys, "cat", root, "-t", "%DLQ%g_retry")) == 2


def test_what_an_ordered_consumer_gave_up_keeps_its_sharding_key(writable_store: Unpacker, capsys: Capture) -> None:
    root = str(writable_store("53-broker"))
    (sent,) = lines_of(capsys, "produce", root, "--replay", "-g", "G_order", "-q", "0")
    assert (sent["topic"], sent["queueId"]) == ("T_fifo", 0)
    one = lines_of(capsys, "cat", root, "-t", "T_fifo")[-1]
    assert one["body"].startswith("naïve33 hôtel98 bravo52")
    given = {"MSG_REGION": "DefaultRegion", "CLUSTER": "DefaultCluster", "TRACE_ON": "true", "WAIT": "true"}
    own = {"TAGS": "poison", "KEYS": "fifo-7", "__SHARDINGKEY": "shard3", "UNIQ_KEY": sent["msgId"]}
    assert one["properties"] == given | own


def test_edited_lines_are_sent_as_edited(writable_store: Unpacker, tmp_path: Path, capsys: Capture) -> None:
    root = str(writable_store("53-broker"))
    letters = lines_of(capsys, "cat", root, "-t", "%DLQ%G_retry")
    assert len(letters) == 4
    letters[0]["body"], letters[0]["bodyEncoding"] = "mended", "utf8"
    letters[1]["properties"]["colour"] = "red"
    edited = tmp_path / "edited.jsonl"
    edited.write_text("".join(json.dumps(one) + "\n" for one in letters[:2]), encoding="utf-8")
    sent = lines_of(capsys, "produce", root, "--replay", "-g", "G_retry", "--jsonl", str(edited), "--keep-ids")
    assert [one["msgId"] for one in sent] == [one["uniqKey"] for one in letters[:2]]
    first, second = lines_of(capsys, "cat", root, "-t", "T_retry")[-2:]
    assert (first["body"], first["keys"], first["tags"]) == ("mended", "retry-6", "dead")
    assert (second["body"], second["properties"]["colour"]) == (letters[1]["body"], "red")


_LETTER = {"topic": "%DLQ%g", "queueId": 0, "queueOffset": 0, "commitLogOffset": 0, "body": "b", "flag": 7}


@pytest.mark.parametrize(
    ("properties", "topic"),
    [
        ({"RETRY_TOPIC": "T"}, "T"),
        ({"RETRY_TOPIC": "%RETRY%g_T"}, "T"),
        ({"RETRY_TOPIC": "%RETRY%g+T"}, "T"),
        ({"DLQ_ORIGIN_TOPIC": "U"}, "U"),
        ({"RETRY_TOPIC": "T", "DLQ_ORIGIN_TOPIC": "U"}, "T"),
    ],
)
def test_the_origin_is_where_a_broker_keeps_it(
    properties: dict[str, str], topic: str, tmp_path: Path, capsys: Capture
) -> None:
    root = str(tmp_path / "store")
    assert main(["init", root, "--conf", "mappedFileSizeCommitLog=65536"]) == Exit.DONE
    letter = tmp_path / "letter.jsonl"
    letter.write_text(json.dumps({**_LETTER, "properties": {**properties, "DELAY": "4", "POP_CK": "x", "mine": "1"}}))
    sent = lines_of(capsys, "produce", root, "--replay", "-g", "g", "--create", "--jsonl", str(letter))
    assert [one["topic"] for one in sent] == [topic]
    (one,) = lines_of(capsys, "cat", root, "-t", topic)
    system = {"UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT"}
    assert (one["flag"], set(one["properties"]) - system) == (7, {"mine"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topic": "T"}, "line 1: not a dead letter of g: its topic is T"),
        ({"topic": "%DLQ%other"}, "line 1: not a dead letter of g: its topic is %DLQ%other"),
        ({"topic": None}, "line 1: not a dead letter of g: it has no topic"),
        ({"properties": {}}, "line 1: the topic that it came from is unknown: it has no property RETRY_TOPIC"),
        ({"bodyLength": None}, "line 1: the stored body cannot be inflated"),
    ],
)
def test_a_line_that_cannot_go_back_is_refused(
    change: dict[str, Any], said: str, writable_store: Unpacker, tmp_path: Path, capsys: Capture
) -> None:
    root = writable_store("53-broker")
    letter = tmp_path / "letter.jsonl"
    letter.write_text(json.dumps({**_LETTER, "properties": {"RETRY_TOPIC": "T_normal"}, **change}))
    with left_alone(root / "commitlog"), left_alone(root / "consumequeue"):
        words = ["produce", str(root), "--replay", "-g", "g", "--jsonl", str(letter)]
        assert main(words) == Exit.USAGE
        assert json.loads(capsys.readouterr().err)["error"]["message"] == said
        assert main([*words, "--on-error", "skip"]) == Exit.SKIPPED


def test_damage_stops_the_replay_unless_it_is_skipped(writable_store: Unpacker, capsys: Capture) -> None:
    root = writable_store("53-broker")
    letter = lines_of(capsys, "cat", str(root), "-t", "%DLQ%G_retry")[1]
    assert letter["commitLogOffset"] == 209407
    segment = root / "commitlog" / f"{196608:020d}"
    data = bytearray(segment.read_bytes())
    data[209407 - 196608 + 200] ^= 1
    segment.write_bytes(data)
    words = ["produce", str(root), "--replay", "-g", "G_retry", "--jsonl"]
    assert main(words) == Exit.NOT_A_STORE
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1
    error = json.loads(printed.err)["error"]
    assert (error["offset"], error["hint"]) == (12799, "--on-error skip leaves it out and continues")
    assert main([*words, "--on-error", "skip"]) == Exit.SKIPPED
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--replay"], Exit.USAGE, "--replay needs the consumer group of the dead letters"),
        (["--replay", "-g", "G_none"], Exit.NO, "G_none has no dead letters: %DLQ%G_none is empty"),
        (["--replay", "-g", "G_order", "body"], Exit.USAGE, "--replay takes dead letters as lines of JSON"),
        (["--replay", "-g", "G_order", "--csv"], Exit.USAGE, "--replay takes dead letters as lines of JSON"),
        *(
            (["--replay", "-g", "G_order", *option], Exit.USAGE, f"{option[0]} and --replay exclude each other")
            for option in (
                ["--topic", "T_normal"],
                ["--tag", "a"],
                ["--key", "k"],
                ["--shard", "s"],
                ["--tx", "commit"],
            )
        ),
        (["--replay", "-g", "G_order", "--property", "a=b"], Exit.USAGE, "--property and --replay exclude each other"),
    ],
)
def test_what_contradicts_is_refused(
    words: list[str], status: Exit, said: str, writable_store: Unpacker, capsys: Capture
) -> None:
    root = writable_store("53-broker")
    with left_alone(root / "commitlog"):
        assert main(["produce", str(root), *words]) == status
    assert said in capsys.readouterr().err


def test_it_says_that_the_dead_letters_stay(writable_store: Unpacker, capsys: Capture) -> None:
    root = str(writable_store("53-broker"))
    assert main(["produce", root, "--replay", "-g", "G_order"]) == Exit.DONE
    assert capsys.readouterr().err == "they stay in %DLQ%G_order too; a second run sends them again\n"


def test_a_store_that_is_served_gets_them_through_its_server(writable_store: Unpacker) -> None:
    root = str(writable_store("53-broker"))
    with rmqtool.serve(root):
        sent = list(rmqtool.produce(root, replay=True, group="G_retry"))
    assert [(one["status"], one["topic"]) for one in sent] == [("PUT_OK", "T_retry")] * 4
    assert [one["keys"] for one in rmqtool.scan(root, topics="T_retry")][-4:] == [
        "retry-6",
        "retry-3",
        "retry-0",
        "retry-9",
    ]
