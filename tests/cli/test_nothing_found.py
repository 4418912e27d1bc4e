"""What a look says when there is nothing to show: how many messages were there, and which name nobody knows."""

from __future__ import annotations

import json

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.stores import truth


def run(capsys, *words):
    status = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return status, out, err.strip()


NORMAL = sum(message["topic"] == "T_normal" for message in truth("53-broker")["messages"])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--tag", "nope", "-t", "T_normal"], Exit.DONE, f"0 of {NORMAL} messages matched"),
        (["-b", "2027-01-01", "-t", "T_normal"], Exit.DONE, f"0 of {NORMAL} messages matched"),
        (["-t", "nope"], Exit.NO, 'there is no topic "nope"'),
        (["-q", "99"], Exit.NO, "no topic here has a queue 99; there are the queues 0 to 5"),
        (["-t", "T_normal", "-q", "7"], Exit.NO, "T_normal has no queue 7; there are the queues 0 to 3"),
        (["-t", "T_normal", "-q", "3"], Exit.DONE, ""),
    ],
)
@pytest.mark.parametrize("command", [["cat"], ["cat", "--count"], ["cat", "--jsonl"], ["stat"]], ids=" ".join)
def test_nothing_matched_is_not_nothing_there(words, status, said, command, store, capsys):
    found, _, err = run(capsys, *command, store("53-broker"), *words, "--tz", "UTC")
    assert found == status
    assert err.startswith(said) if said else err == ""


@pytest.mark.parametrize(
    "words",
    [["topics", "-t", "Kil"], ["queues", "-t", "Kil"], ["queues", "-t", "Kill", "-q", "9"], ["groups", "-g", "nope"]],
    ids=" ".join,
)
def test_a_view_of_what_nobody_knows_ends_with_no(words, store, capsys):
    status, out, err = run(capsys, "info", store("49-killed"), *words)
    assert (status, out) == (Exit.NO, "nothing to list\n")
    assert err != ""


def test_a_queue_that_is_configured_and_empty_is_no_mistake(store, capsys):
    """topics.json gives BenchmarkTest 1024 queues, none of them on disk."""
    assert run(capsys, "cat", store("53-broker"), "-t", "BenchmarkTest", "-q", "99")[0] == Exit.DONE


def test_what_is_overdue_is_late(store, capsys):
    """The broker of this store stopped with messages waiting; their time has come since."""
    status, out, _ = run(capsys, "stat", store("53-broker"), "delay", "--json")
    rows = {row["delay"]: row for row in json.loads(out)["rows"]}
    assert status == Exit.DONE
    assert {name: row["late"] for name, row in rows.items()} == {name: row["waiting"] for name, row in rows.items()}
    assert rows["level 5"]["late"] == 2
    shown = run(capsys, "stat", store("53-broker"), "delay")[1]
    assert shown.endswith(
        f"47 messages are overdue: due before now, but not delivered\nNext: rmqtool tick {store('53-broker')}\n"
    )


def test_a_stat_refuses_what_cat_refuses(store, capsys):
    words = ("--where", "a = '1' garbage here")
    refused = [run(capsys, command, store("49-basic"), *words) for command in ("cat", "stat")]
    assert refused[0] == refused[1]
    assert refused[0][0] == Exit.USAGE


@pytest.mark.parametrize(
    "words",
    [
        ["copy", "{}", "{to}", "-t", "nope"],
        ["export", "{}", "--engine", "local", "--to", "{to}", "-t", "nope"],
        ["export", "{}", "--plan", "-t", "nope"],
        ["check", "{}", "-t", "nope"],
        ["diff", "{}", "{}", "-t", "nope"],
        ["diff", "{}", "{}", "-t", "nope", "--summary"],
    ],
    ids=lambda words: " ".join(words[:1] + words[4:]),
)
def test_no_command_is_done_with_a_topic_that_does_not_exist(store, tmp_path, words, capsys):
    line = [word.format(store("53-broker"), to=tmp_path / "to") for word in words]
    assert main(line) == Exit.NO
    said = "".join(capsys.readouterr())
    assert 'there is no topic "nope"' in said
    if words[0] != "diff":
        assert f"Next: rmqtool topic {store('53-broker')} list\n" in said
    known = [word.replace("nope", "T_retry").replace(str(tmp_path / "to"), str(tmp_path / "other")) for word in line]
    assert main(known) == Exit.DONE


@pytest.mark.parametrize("more", [["--plan"], ["--engine", "local", "--to", "{to}"]], ids=["plan", "export"])
def test_an_export_of_a_queue_that_does_not_exist_writes_nothing(store, tmp_path, more, capsys):
    line = ["export", str(store("53-broker")), "-t", "T_retry", "-q", "77", *more]
    assert main([word.format(to=tmp_path / "to") for word in line]) == Exit.NO
    assert "T_retry has no queue 77" in "".join(capsys.readouterr())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pattern", "said"), [("nope", 'There is no topic "nope".'), ("nope*", "No topic matches nope*.")]
)
def test_a_query_names_a_topic_that_does_not_exist(store, pattern, said, capsys):
    assert main(["query", str(store("53-broker")), "k4", "-t", pattern]) == Exit.NO
    assert said in "".join(capsys.readouterr())


@pytest.mark.parametrize("form", [[], ["--jsonl"], ["--quick"]], ids=["screen", "jsonl", "quick"])
def test_a_check_of_a_topic_that_does_not_exist_reads_like_no_all_clear(form, store, capsys):
    status, out, err = run(capsys, "check", store("53-basic"), "-t", "TopicA", "-t", "NoSuch", *form)
    assert (status, out) == (Exit.NO, "")
    assert 'there is no topic "NoSuch"; nothing was checked' in err.replace("\\", "")
    assert "no problems found" not in err


@pytest.mark.parametrize(
    "command", [["query", "{}", "k4"], ["cat", "{}"], ["consume", "{}"]], ids=lambda words: words[0]
)
def test_all_readers_name_an_unknown_topic_in_the_same_words(command, store, capsys):
    root = str(store("53-broker"))
    status, out, err = run(capsys, *(word.format(root) for word in command), "-t", "Zzz")
    said = (out + err).lower()
    assert (status, 'there is no topic "zzz"' in said) == (Exit.NO, True)
    assert f"Next: rmqtool topic {root} list" in out + err
