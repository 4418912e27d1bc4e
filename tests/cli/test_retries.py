"""A program that fails: again later, and in the end a dead letter; and pop, where what is not acked comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.engine.clock import SystemClock
from rmqtool.errors import Exit
from tests.support.schemas import validate

Capture = pytest.CaptureFixture[str]
SETTINGS = ["mappedFileSizeCommitLog=65536", "maxHashSlotNum=100", "maxIndexNum=100", "popFromRetryProbability=0"]


class Lab:
    """A store, a clock that is pushed on, and the commands."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        self.root = root
        self._capsys = capsys
        self._ahead = 0
        now = SystemClock().now
        monkeypatch.setattr(SystemClock, "now", lambda _self: now() + self._ahead)
        assert self.run("init", *(word for setting in SETTINGS for word in ("--conf", setting)))[0] == 0
        (root / "config").mkdir(exist_ok=True)
        group = '{"groupName":"g","retryMaxTimes":2,"retryQueueNums":1}'
        (root / "config/subscriptionGroup.json").write_text(f'{{"subscriptionGroupTable":{{"g":{group}}}}}')

    def later(self, seconds: int) -> None:
        self._ahead += seconds * 1000

    def run(self, command: str, *words: str) -> tuple[int, str, str]:
        status = main([command, str(self.root), *words])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err

    def lines(self, command: str, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(command, *words, "--jsonl")[1].splitlines()]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Lab:
    return Lab(tmp_path / "lab", monkeypatch, capsys)


def test_a_failing_program_ends_in_the_dead_letters_and_history_tells_it(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--key", "order-1", "--create", "poison")
    tries, told = [], ""
    words = ("-t", "T", "-g", "g", "--commit", "--from", "first", "--exec", "exit 3", "--jsonl")
    for _ in range(5):
        _, out, err = lab.run("consume", *words)
        shown, told = map(json.loads, out.splitlines()), told + err
        tries += [(line["topic"], line["reconsumeTimes"], line["exitStatus"]) for line in shown]
        lab.later(3600)
        lab.run("tick")
    assert tries == [("T", 0, 3), ("%RETRY%g", 1, 3), ("%RETRY%g", 2, 3)]
    assert told.count("ended with status 3; it will be delivered again") == 2
    assert told.count("ended with status 3; too many retries: moved to the dead-letter topic: %DLQ%g/0@0") == 1
    (dead,) = lab.lines("cat", "-t", "%DLQ%g")
    assert (dead["body"], dead["properties"]["RETRY_TOPIC"], dead["reconsumeTimes"]) == ("poison", "T", 3)
    (answer,) = lab.lines("query", "order-1", "-t", "T", "--history")
    events = [event["event"] for event in answer["history"]]
    assert events == ["stored", "delayed", "retry", "delayed", "retry", "dlq"]
    topics = json.loads(lab.run("topic", "list", "--json")[1])
    assert {"%RETRY%g", "%DLQ%g"} <= {row["topic"] for row in topics}


def test_what_fails_once_is_consumed_when_it_comes_again(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "a", "b")
    command = 'test "$(cat)" != a || test "$RMQ_RECONSUME_TIMES" -gt 0'
    words = ("-t", "T", "-g", "g", "--commit", "--from", "first", "--exec", command)
    status, _, err = lab.run("consume", *words)
    assert status == Exit.NO
    assert "it will be delivered again" in err
    lab.later(60)
    lab.run("tick")
    status, _, err = lab.run("consume", *words)
    assert (status, "1 message consumed" in err) == (Exit.DONE, True)
    lab.later(3600)
    assert "Nothing was due." in lab.run("tick")[1]
    assert lab.run("consume", *words)[0] == Exit.DONE


def test_an_ordered_consumer_gives_up_after_the_tries_of_its_group(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "-q", "0", "--create", "poison", "good")
    command = 'test "$(cat)" = good'
    words = ("-t", "T", "-g", "g", "--commit", "--orderly", "--from", "first", "--exec", command)
    shown = [(line["body"], line["isConsumed"]) for line in lab.lines("consume", *words)]
    assert shown == [("poison", False)] * 3 + [("good", True)]
    (dead,) = lab.lines("cat", "-t", "%DLQ%g")
    assert (dead["body"], dead["reconsumeTimes"], dead["properties"]["MAX_RECONSUME_TIMES"]) == ("poison", 2, "2")


def test_popped_messages_are_gone_and_failed_ones_come_back(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "-q", "0", "--create", "a", "b", "c")
    words = ("-t", "T", "-g", "g", "--pop", "--invisible", "10s")
    shown = lab.lines("consume", *words, "--exec", 'test "$(cat)" != b')
    # Programs run side by side, and each is told of when it ended.
    assert sorted((line["body"], line["isConsumed"]) for line in shown) == [("a", True), ("b", False), ("c", True)]
    for line in shown:
        validate("message", line)
        assert len(line["popReceipt"].split(" ")) == 8
    assert lab.lines("consume", *words) == []
    lab.later(12)
    lab.run("tick")
    lab.later(5)
    lab.run("tick")
    (again,) = lab.lines("consume", *words)
    assert (again["body"], again["topic"], again["reconsumeTimes"]) == ("b", "%RETRY%g_T", 1)
    lab.later(60)
    assert {row["event"] for row in lab.lines("tick") if "event" in row} <= {"delivered"}
    assert lab.lines("consume", *words) == []


def test_a_tag_with_the_same_hash_is_acked_and_not_shown(lab: Lab) -> None:
    """Brokers compare hashes: "Aa" and "BB" have one. No member wants the other message: it does not come back."""
    for tag in ("Aa", "BB"):
        lab.run("produce", "-t", "T", "-q", "0", "--create", "--tag", tag, f"body of {tag}")
    words = ("-t", "T", "-g", "g", "--pop", "--invisible", "10s")
    assert [line["body"] for line in lab.lines("consume", *words, "--tag", "Aa")] == ["body of Aa"]
    for _ in range(3):
        lab.later(30)
        lab.run("tick")
    assert lab.lines("consume", *words) == []


def test_a_popped_message_that_always_fails_is_a_dead_letter(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "-q", "0", "--create", "poison")
    tries = 0
    for _ in range(6):
        tries += len(lab.lines("consume", "-t", "T", "-g", "g", "--pop", "--invisible", "5s", "--exec", "exit 1"))
        for _ in range(3):
            lab.later(10)
            lab.run("tick")
    assert tries == 3
    assert [line["body"] for line in lab.lines("cat", "-t", "%DLQ%g")] == ["poison"]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("-t", "T", "--pop"), Exit.USAGE, "-g"),
        (("-t", "T", "-g", "g", "--pop", "--orderly"), Exit.USAGE, "--orderly"),
        (("-t", "T", "-g", "g", "--invisible", "5s"), Exit.USAGE, "--pop"),
        (("-g", "g", "--pop"), Exit.NO, "-t"),
        (("-t", "T", "-g", "g", "--pop", "--invisible", "soon"), Exit.USAGE, "duration"),
    ],
)
def test_what_makes_no_sense_is_said(lab: Lab, words: tuple[str, ...], status: Exit, says: str) -> None:
    lab.run("produce", "-t", "T", "--create", "a")
    found, _, err = lab.run("consume", *words)
    assert (found, says in err) == (status, True), err
