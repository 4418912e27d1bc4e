"""The page of recipes, by incident."""

from __future__ import annotations

from rmqtool.commands.table import COMMANDS
from tools.manual.command_pages import NAME, Screens, screen_of, see_also
from tools.manual.examples import Example
from tools.manual.recipes import RECIPES
from tools.manual.roff import Block, Page, Section, Text


def recipes_page(screens: Screens) -> Page:
    """Return the page of what to type after an incident."""
    introduction = (
        "Instructions for incidents. No command here changes a store unless the text says so. In the examples the "
        "store is the directory store; use the storePathRootDir of your broker instead, or its broker.conf."
    )
    sections = [Section("Description", (Text(introduction),))]
    for title, steps in RECIPES:
        blocks: list[Block] = []
        for step in steps:
            blocks += [Text(step.says), screen_of(step, screens)] if isinstance(step, Example) else [Text(step)]
        sections.append(Section(title, tuple(blocks)))
    others = (f"{NAME}-{entry.name}.1" for entry in COMMANDS)
    sections.append(Section("See also", (see_also(f"{NAME}.1", *others, f"{NAME}-findings.7"),)))
    return Page(f"{NAME}-recipes", 7, "what to type when something has happened to a store", tuple(sections))
