"""The README shows what happens, and everything that it points to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rmqtool.cli import command_tree
from tests.docs.picture import BROWSE_PICTURE, PICTURE, browse_lines, draw, plain, run_lines, words_of
from tests.docs.test_manual import shown
from tests.docs.tour import (
    CHINESE_RECIPES,
    CHINESE_TOUR,
    ROOT,
    TOUR,
    commands_of,
    recipe_examples,
    run_tour,
    settled,
)
from tools.manual.recipes import RECIPES

DOCUMENTS = sorted(
    [TOUR, CHINESE_TOUR, ROOT / "CONTRIBUTING.md", ROOT / "fixtures/README.md", *(ROOT / "docs").glob("*.md")]
)


def test_every_block_of_the_tour_prints_what_stands_below_it() -> None:
    text = TOUR.read_text(encoding="utf-8")
    commands = list(commands_of(text))
    assert len(commands) > 10
    for one, ran in zip(commands, run_tour(text), strict=True):
        assert settled(one.lines) == settled(ran.lines), f"{one.command}: run `make docs`, and look at what changed"
        assert [line for line in one.lines if len(line) > 80] == []


def test_the_picture_shows_what_the_command_prints() -> None:
    lines = run_lines()
    assert len(plain(lines)) > 5
    assert words_of(PICTURE.read_text(encoding="utf-8")) == plain(lines), "run `make docs`"
    assert words_of(draw([*lines, "another line"])) != plain(lines)
    assert f"({PICTURE.relative_to(ROOT).as_posix()})" in TOUR.read_text(encoding="utf-8")


def test_the_picture_of_browse_shows_its_screen() -> None:
    lines = browse_lines()
    assert any("now stored" in line for line in plain(lines))
    assert words_of(BROWSE_PICTURE.read_text(encoding="utf-8")) == plain(lines), "run `make docs`"
    assert f"({BROWSE_PICTURE.relative_to(ROOT).as_posix()})" in TOUR.read_text(encoding="utf-8")


def test_the_chinese_tour_is_the_same_one() -> None:
    assert list(commands_of(CHINESE_TOUR.read_text("utf-8"))) == list(commands_of(TOUR.read_text("utf-8")))


def test_the_chinese_recipes_show_what_those_of_the_manual_show() -> None:
    text = CHINESE_RECIPES.read_text(encoding="utf-8")
    assert text.count("\n## ") == len(RECIPES)
    for one, example in zip(commands_of(text), recipe_examples(), strict=True):
        assert one == (example.command, shown(example).lines), "run `make docs`"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options_that_a_document_names_exist(path: Path) -> None:
    group = command_tree()
    for words in re.findall(r"`rmqtool ([a-z]+[^`\n]*)`", path.read_text(encoding="utf-8")):
        name = words.split()[0]
        if name in ("queryMsgById",):  # the README says that this is a name of mqadmin
            continue
        command = group.get_command(None, name)
        assert command is not None, words
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", words)) <= options, words
