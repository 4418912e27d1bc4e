"""``produce`` for later: delays, times, transactions; and due messages are delivered while it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.cli.test_retries import Capture, Lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Lab:
    return Lab(tmp_path / "lab", monkeypatch, capsys)


def bodies(lab: Lab, topic: str = "T") -> list[str]:
    return [line["body"] for line in lab.lines("cat", "-t", topic)]


def test_a_level_a_span_and_a_time(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "--delay", "3", "level")
    lab.run("produce", "-t", "T", "--delay", "90s", "span")
    lab.run("produce", "-t", "T", "--delay", "5m", "late")
    assert bodies(lab) == []
    assert [line["body"] for line in lab.lines("cat", "-t", "SCHEDULE_TOPIC_XXXX")] == ["level"]
    assert [line["body"] for line in lab.lines("cat", "-t", "rmq_sys_wheel_timer")] == ["span", "late"]
    lab.later(11)
    lab.run("tick")
    assert bodies(lab) == ["level"]
    lab.later(81)
    # Producing delivers nothing: that is what `tick` is for.
    lab.run("produce", "-t", "T", "now")
    assert sorted(bodies(lab)) == ["level", "now"]
    lab.run("tick")
    assert sorted(bodies(lab)) == ["level", "now", "span"]
    lab.later(300)
    lab.run("tick")
    assert sorted(bodies(lab)) == ["late", "level", "now", "span"]


def test_a_time_of_the_calendar(lab: Lab) -> None:
    from rmqtool.engine.clock import SystemClock

    at = SystemClock().now() + 60_000
    lab.run("produce", "-t", "T", "--create", "--at", str(at), "x")
    (waiting,) = lab.lines("cat", "-t", "rmq_sys_wheel_timer")
    assert waiting["properties"]["TIMER_DELIVER_MS"] == str(at)
    lab.later(62)
    lab.run("tick")
    assert bodies(lab) == ["x"]


def test_transactions_are_decided_or_left_to_the_check(lab: Lab) -> None:
    for outcome in ("commit", "rollback", "pending"):
        (line,) = lab.lines("produce", "-t", "T", "--create", "--tx", outcome, outcome)
        assert line["topic"] == ("T" if outcome == "commit" else "RMQ_SYS_TRANS_HALF_TOPIC")
        assert line["status"] == "PUT_OK"
    assert bodies(lab) == ["commit"]
    assert "1 half message" in lab.run("tick")[1]
    # Nobody of the group is there: it is asked in vain.
    lab.later(31)
    (told, _) = lab.lines("tick")
    assert (told["event"], told["times"]) == ("checked", 1)
    # A later transaction decides itself, and nothing else.
    lab.later(31)
    assert lab.run("produce", "-t", "T", "--tx", "commit", "again")[0] == 0
    assert sorted(bodies(lab)) == ["again", "commit"]


def test_fifteen_unanswered_checks_end_in_the_topic_for_them(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "--tx", "pending", "--key", "k", "x")
    events = []
    for _ in range(17):
        lab.later(31)
        events += [(row["event"], row["times"]) for row in lab.lines("tick") if "event" in row]
    assert events == [("checked", times) for times in range(1, 16)] + [("given up", 15)]
    assert bodies(lab, "TRANS_CHECK_MAX_TIME_TOPIC") == ["x"]
    (answer,) = lab.lines("query", "k", "--history", "-t", "TRANS_CHECK_MAX_TIME_TOPIC")
    told = [event["event"] for event in answer["history"]]
    assert told == ["half", *["checked"] * 15, "given up"]


def test_another_group_does_not_answer(lab: Lab) -> None:
    lab.run("produce", "-t", "T", "--create", "--tx", "pending", "-g", "one", "x")
    lab.later(31)
    lab.run("produce", "-t", "T", "--tx", "commit", "-g", "two", "y")
    assert bodies(lab) == ["y"]


def test_4_9_delays_by_levels_only(tmp_path: Path, capsys: Capture) -> None:
    root = str(tmp_path / "old")
    assert main(["init", root, "--as", "4.9", "--conf", "mappedFileSizeCommitLog=65536"]) == 0
    assert main(["produce", root, "-t", "T", "--create", "--delay", "10s", "x"]) == 0
    assert main(["produce", root, "-t", "T", "--delay", "11s", "x"]) == Exit.USAGE
    assert main(["produce", root, "-t", "T", "--at", "2030-01-01", "x"]) == Exit.USAGE
    said = capsys.readouterr()
    assert "SCHEDULE_TOPIC_XXXX/2@0" in said.out
    assert said.err.count("a 4.9 broker delays only by levels") == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--delay", "1", "--at", "2030-01-01"), "exclude each other"),
        (("--tx", "maybe"), "one of commit, rollback, pending"),
        (("--tx", "commit", "--delay", "1"), "cannot be delayed"),
        (("--delay", "soon"), "duration"),
        (("--at", "soon"), "time"),
    ],
)
def test_what_makes_no_sense_is_said(lab: Lab, words: tuple[str, ...], says: str) -> None:
    status, _, err = lab.run("produce", "-t", "T", "--create", *words, "x")
    assert (status, re.search(says, err) is not None) == (Exit.USAGE, True), err
