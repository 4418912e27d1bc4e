"""Texts are plain: no banned construction in what users read and in comments, short sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqtool
from rmqtool.cli import command_tree
from rmqtool.commands.table import COMMANDS
from rmqtool.findings import iter_codes
from tests.architecture import house
from tests.architecture.old_texts import OLD_TEXTS
from tests.architecture.words import (
    BANNED,
    Readability,
    comments_of,
    document_texts,
    find_banned,
    measure,
    strings_of,
)

PACKAGE = Path(rmqtool.__file__).parent
ROOT = PACKAGE.parent
# Generated from other texts, or a broker's own lines.
NOT_OURS = frozenset({"commands/completion_table.py", "formats/layouts.py", "upstream/broker_log.py"})


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield what ``--help`` says of each command and option."""
    group = command_tree()
    for entry in COMMANDS:
        command = group.get_command(None, entry.name)
        yield entry.name, entry.help
        yield entry.name, command.help
        yield from ((f"{entry.name} {p.name}", p.help) for p in command.params if p.help)


def finding_texts() -> Iterator[tuple[str, str]]:
    """Yield what is printed of each code, apart from the lines of the broker's own log."""
    for entry in iter_codes():
        yield from ((entry.code, text) for text in (entry.meaning, entry.consequence, *entry.brokers) if text)


def shown_strings() -> Iterator[tuple[str, str]]:
    """Yield the strings of the package that can be messages, and those of the manual."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).as_posix() not in NOT_OURS:
            yield from strings_of(path, PACKAGE)
    for path in sorted((ROOT / "tools" / "manual").glob("*.py")):
        yield from strings_of(path, ROOT)


SHOWN = {"help": help_texts, "findings": finding_texts, "messages": shown_strings}


@pytest.mark.parametrize("kind", SHOWN)
def test_what_users_read_has_no_banned_construction(kind: str) -> None:
    found = [str(one) for one in find_banned(SHOWN[kind]())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", SHOWN)
def test_what_users_read_is_in_short_sentences(kind: str) -> None:
    found, ceiling = measure(SHOWN[kind]()), house.READABILITY[kind]
    assert found.sentences > 100
    assert (found.words, found.clauses, found.long) <= ceiling, found
    assert found.words <= ceiling[0], found
    assert found.clauses <= ceiling[1], found
    assert found.long <= ceiling[2], found


@pytest.mark.parametrize("name", house.DOCUMENTS)
def test_documents_are_plain(name: str) -> None:
    texts = list(document_texts(ROOT / name))
    most, words = house.DOCUMENTS[name]
    found = [str(one) for one in find_banned(texts)]
    assert len(found) <= most, "\n".join(found)
    assert measure(texts).words <= words, measure(texts)


@pytest.mark.parametrize("directory", ["rmqtool", "tools", "tests/architecture", "tests/docs"])
def test_comments_are_plain(directory: str) -> None:
    texts = [text for path in sorted((ROOT / directory).rglob("*.py")) for text in comments_of(path, ROOT)]
    assert len(texts) > 20
    assert not (found := [str(one) for one in find_banned(texts)]), "\n".join(found)


@pytest.mark.parametrize("text", OLD_TEXTS)
def test_the_gate_finds_every_old_text(text: str) -> None:
    assert list(find_banned([("old", text)])), text


def test_there_are_twenty_old_texts_and_every_construction_has_advice() -> None:
    assert len(set(OLD_TEXTS)) >= 20
    assert all(instead for _, instead in BANNED.values())


def test_plain_texts_pass() -> None:
    texts = [
        "the record header says 1069 bytes, its fields add up to 999",
        "a queue entry points past the end of the log (416434 > 415365)",
        "Repair a store: plan, apply, undo.",
        "no problems found",
    ]
    assert list(find_banned(("new", text) for text in texts)) == []


def test_sentences_and_clauses_are_counted() -> None:
    text = "Read the log. It ends where the last record, which is torn, was cut. `code that is long`"
    assert measure([("", text)]) == Readability(2, 7.0, 1.0, 0.0)
    long = "word " * 40
    assert measure([("", long)]).long == 1.0
