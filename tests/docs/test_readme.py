"""What the README shows is what happens, and what it points at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqtool.cli import command_tree
from tests.docs.tour import ROOT, TOURS, commands_of, run_tour, settled

DOCUMENTS = sorted([*TOURS, ROOT / "CONTRIBUTING.md", ROOT / "fixtures/README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("path", TOURS, ids=lambda path: path.name)
def test_every_block_of_the_tour_prints_what_stands_below_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    shown = list(commands_of(text))
    assert len(shown) > 10
    for one, ran in zip(shown, run_tour(text), strict=True):
        assert settled(one.lines) == settled(ran.lines), f"{one.command}: run `make docs`, and look at what changed"
        assert [line for line in one.lines if len(line) > 80] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options_that_a_document_names_exist(path: Path) -> None:
    group = command_tree()
    for words in re.findall(r"`rmqtool ([a-z]+[^`\n]*)`", path.read_text(encoding="utf-8")):
        name = words.split()[0]
        if name in ("queryMsgById",):  # a name of mqadmin's, and that is what is said of it
            continue
        command = group.get_command(None, name)
        assert command is not None, words
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", words)) <= options, words
