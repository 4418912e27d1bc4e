"""All pages of the manual, and the files they are written to."""

from __future__ import annotations

from typing import Any

from rmqtool import __date__, __version__
from rmqtool.commands.table import COMMANDS
from tools.manual.command_pages import NAME, Screens, command_page, root_page
from tools.manual.findings_page import findings_page
from tools.manual.json_page import json_page
from tools.manual.recipes_page import recipes_page
from tools.manual.remoting_page import remoting_page
from tools.manual.roff import Page, page_roff
from tools.manual.store_page import store_page


def manual_pages(group: Any, screens: Screens) -> list[Page]:
    """Return every page; ``group`` is the command tree, ``screens`` runs an example."""
    commands = [command_page(entry, group, screens) for entry in COMMANDS]
    others = [store_page(), json_page(), remoting_page(), findings_page(), recipes_page(screens)]
    return [root_page(group), *commands, *others]


def manual_files(group: Any, screens: Screens) -> dict[str, str]:
    """Return the files of ``man/`` by name."""
    pages = manual_pages(group, screens)
    return {page.file_name: page_roff(page, __date__, f"{NAME} {__version__}") for page in pages}
