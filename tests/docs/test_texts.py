"""The texts that users read when something is wrong, all of them in two files: a change of a word shows there."""

from __future__ import annotations

import re
import shlex

import pytest
from typer import _click as click

from rmqtool.cli import command_tree
from tests.docs.error_texts import GOLDEN_TEXTS, command_texts, error_texts, finding_texts


def test_every_text_of_an_error() -> None:
    texts = error_texts()
    assert len(texts) > 150
    assert "".join(texts) == (GOLDEN_TEXTS / "errors.txt").read_text("utf-8"), "run `make docs`, and read what changed"


def test_every_error_says_what_to_do_next() -> None:
    """Every error has a command or a sentence that helps, except for Ctrl-C."""
    alone = [text for text in error_texts() if "\n    next: " not in text]
    assert alone == ["cli.py: Interrupted: interrupted\n"]


def test_every_text_of_a_finding() -> None:
    told = (GOLDEN_TEXTS / "findings.txt").read_text("utf-8")
    assert "".join(finding_texts()) == told, "run `make docs`, and read what changed"


def test_no_text_sends_people_away() -> None:
    """No text asks the user to check by hand, apologises, or shouts."""
    assert re.findall(r"(?i)manually|sorry|oops|!\n|invalid argument|unexpected error", "".join(error_texts())) == []


def test_every_command_in_a_text_says_which_store() -> None:
    """A command that a text names can be typed: STORE is in its place, and is filled in from the line."""
    named = re.findall(
        r"rmqtool (?:check|info|recover|repair|topic|stat|tick)\b(?! --explain)(.*)", "".join(error_texts())
    )
    assert len(named) > 15
    assert [rest for rest in named if not re.match(r" (STORE|\{)", rest)] == []


# Commands that take a word of their own beside names: an action, a view, a report, a part, a page.
_OWN_WORD = {"group", "info", "man", "repair", "stat", "topic"}
_NO_TEXTS = {"rmqtool mirror sync": "the name of a thread"}


def why_not_typed(line: str) -> str | None:
    """Return why a text is not a command line and nothing else; None if it can be typed.

    Names are {} or begin with a capital.
    """
    name, *words = shlex.split(line.partition(" > ")[0])[1:]
    command = command_tree().get_command(None, name)  # type: ignore[arg-type]
    if command is None:
        return f"there is no command {name}"
    try:
        given, rest, order = command.make_parser(click.Context(command)).parse_args(words)
    except click.exceptions.UsageError as error:
        return error.message
    values = [given[param.name] for param in dict.fromkeys(order) if param.param_type_name == "argument"]
    plain = [word for value in values for word in (value if isinstance(value, list | tuple) else [value]) if word]
    own = [word for word in (*plain, *rest) if word[:1].islower()]
    return f"{name} does not take {own}" if len(own) > (name in _OWN_WORD) else None


def test_what_begins_as_a_command_is_one_and_nothing_else() -> None:
    """After "Next:" and "fix:" is a command that can be typed: no word of explanation follows it."""
    hints = [text.partition("\n    next: ")[2].strip() for text in (*error_texts(), *finding_texts())]
    lines = {*command_texts(), *(hint for hint in hints if hint.startswith("rmqtool "))}
    assert len(lines) > 60
    assert lines >= _NO_TEXTS.keys()
    assert {line: why for line in sorted(lines - _NO_TEXTS.keys()) if (why := why_not_typed(line)) is not None} == {}


@pytest.mark.parametrize(
    "line",
    [
        "rmqtool info STORE groups lists the groups; -t TOPIC starts a new one",
        "rmqtool init STORE creates a new store",
        "rmqtool opens a temporary copy",
        "rmqtool repair STORE --list shows the journals",
    ],
)
def test_prose_is_no_command(line: str) -> None:
    assert why_not_typed(line) is not None
