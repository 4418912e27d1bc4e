"""The texts that users read when something is wrong, all of them in two files: a change of a word shows there."""

from __future__ import annotations

import re

from tests.docs.error_texts import GOLDEN_TEXTS, error_texts, finding_texts


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
