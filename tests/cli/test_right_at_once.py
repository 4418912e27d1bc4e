"""Screens that newcomers read wrongly: each says here what it means."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.commands import options
from rmqtool.errors import Exit
from tests.guards.typed import type_words
from tests.support.stores import tree_changes, tree_state

Stores = Callable[[str], Path]
# The unique key of a message of 53-broker that became a dead letter.
DEAD = "FD0000000000000000000000000000027C1A4E0E2F2A5A310EA70016"


def test_a_rehearsal_says_that_it_changes_nothing_and_a_tick_what_it_deletes_only_when_asked() -> None:
    shown = type_words(["--help"]).out
    assert "  recover  Show what a broker would do at its next start." in shown
    assert "  tick     Deliver due messages; with --expire, delete old segments." in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("topic list {}", "Next: rmqtool topic {} list"),
        ("group list {}", "Next: rmqtool group {} list"),
        ("repair queues {} index", "Next: rmqtool repair {} queues index"),
        ("info topics {}", "Next: rmqtool info {} topics"),
    ],
)
def test_store_comes_first_and_the_hint_has_it_there(words: str, hint: str, store: Stores) -> None:
    root = str(store("53-basic"))
    typed = type_words(words.format(root).split())
    assert typed.status == Exit.USAGE
    assert f'"{words.split()[1]}" is not a store: STORE comes first' in typed.err
    assert hint.format(root) in typed.err


def test_a_word_too_many_is_named_and_a_topic_has_its_option(store: Stores) -> None:
    typed = type_words(["cat", str(store("53-basic")), "TopicA"])
    assert (typed.status, typed.err) == (
        Exit.USAGE,
        "rmqtool: one word too many: TopicA\n         for a topic: -t TopicA\n",
    )


def test_the_history_fits_and_each_column_has_a_head(store: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=80))
    words = ["query", str(store("53-broker")), DEAD, "--history", "--tz", "UTC"]
    shown = type_words(words).out
    lines = shown.splitlines()
    at = lines.index(f"{DEAD}: dead letter")
    assert lines[at + 1] == "times of 2026-11-18 +00:00:"
    assert lines[at + 2].split() == ["time", "event", "queue", "@", "offset", "more"]
    assert lines[at + 3].startswith("12:19:24.456  stored   ")
    assert "due after 1.0 s, to %RETRY%G_retry" in lines[at + 4]
    assert not any("–" in line for line in lines[at:])
    # A command to type is never broken; here it has the long path of the test's store.
    assert lines[-1].startswith("Next: rmqtool consume ")
    assert max(map(len, lines[at:-1])) <= 80


def test_properties_have_a_label(store: Stores) -> None:
    shown = type_words(["cat", str(store("53-basic")), "-n", "20"]).out
    assert re.search(r"^  properties   \S+=", shown, re.M)
    binary = [line for line in shown.splitlines() if "no text" in line]
    assert binary == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-t", "T_normal"], "2 messages for no group (-g names one); nothing is committed without --commit"),
        (
            ["-t", "T_normal", "-g", "G_new", "--from", "first"],
            "2 messages for G_new, a group without offsets so far; nothing is committed without --commit",
        ),
        (
            ["-t", "T_normal", "-g", "G_new", "--from", "first", "--commit"],
            "2 messages for G_new, a group without offsets so far; committed",
        ),
    ],
)
def test_consume_says_for_whom_and_whether_anything_was_committed(
    words: list[str], told: str, writable_store: Stores
) -> None:
    typed = type_words(["consume", str(writable_store("53-broker")), "-n", "2", *words])
    assert typed.status == Exit.DONE
    assert told in typed.err.splitlines()


def test_an_unknown_group_leads_to_the_groups(store: Stores) -> None:
    root = str(store("53-broker"))
    typed = type_words(["consume", root, "-g", "zzz"])
    assert 'there is no group "zzz"; -t TOPIC starts a new one' in typed.err
    assert typed.err.splitlines()[-1].strip() == f"Next: rmqtool info {root} groups"


def test_of_several_stores_the_one_without_the_group_is_named(store: Stores, tmp_path: Path) -> None:
    first, second = str(store("53-broker")), str(store("53-basic"))
    typed = type_words(["copy", first, second, str(tmp_path / "new"), "-g", "zzz", "--unread"])
    assert typed.status == Exit.NO
    assert f'group "zzz" has no committed offset in {first}' in typed.err
    assert "STORE" not in typed.err


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_an_export_of_a_topic_that_is_not_there_writes_nothing(mode: str, store: Stores, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["export", str(store("53-basic")), "--to", str(out), "--engine", "local", "--mode", mode]
    if mode != "error":
        assert type_words([*words[:-2], "-t", "TopicA"]).status == Exit.DONE
    before = tree_state(tmp_path)
    typed = type_words([*words, "-t", "Nope"])
    assert (typed.status, typed.out) == (Exit.NO, "")
    assert 'rmqtool: there is no topic "Nope"; nothing was written' in typed.err
    assert f"Next: rmqtool topic {words[1]} list" in typed.err
    # Only the time of the directory itself may change: a staging directory came and went.
    assert [change for change in tree_changes(before, tree_state(tmp_path)) if not change.startswith(".: ")] == []


def test_an_export_names_the_record_of_what_was_read(store: Stores, tmp_path: Path) -> None:
    out = tmp_path / "out"
    typed = type_words(["export", str(store("53-basic")), "--to", str(out), "--engine", "local", "-t", "TopicA"])
    assert f"manifest (what was read): {out}_manifest" in typed.out
    assert (tmp_path / "out_manifest").is_dir()


def test_exit_statuses_are_in_order() -> None:
    page = (Path(__file__).parents[2] / "man/rmqtool.1").read_text(encoding="utf-8")
    section = page.partition('.SH "EXIT STATUS"')[2].partition("\n.SH ")[0]
    numbers = [int(number) for number in re.findall(r"^\\fB(\d+)\\fR$", section, re.M)]
    assert numbers == sorted(numbers)
    assert {8, 9} <= set(numbers)
