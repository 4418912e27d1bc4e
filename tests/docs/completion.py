"""The table of completion: derived from the command tree, written by ``make docs``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rmqtool
from rmqtool.api.stat import DIMENSIONS
from rmqtool.columns.batches import COLUMNS as TABLE_COLUMNS
from rmqtool.commands.table import COMMANDS
from rmqtool.findings import FAMILIES, iter_codes

TABLE = Path(rmqtool.__file__).parent / "commands" / "completion_table.py"
MAN = Path(rmqtool.__file__).parent.parent / "man"
_HEAD = '''"""The commands and options for completion, written by ``make docs`` from the command tree; do not edit."""

# fmt: off
# ruff: noqa: E501

# Names, help, what the values are: nothing for a flag, a source of names, or the values themselves.
Option = tuple[tuple[str, ...], str, str]

'''
_CHOICES = re.compile(r"[\w.]+(?:\|[\w.]+)+")
_BY_METAVAR = {"TOPIC": "topics", "GROUP": "groups", "TIME": "times", "FILE": "file", "DIR": "file", "STORE": "store"}


def completion_table(group: Any) -> str:
    """Return the module."""
    root = "".join(f"    {option!r},\n" for option in _options(group, None))
    commands = "".join(_command(entry.name, entry.help, group.get_command(None, entry.name)) for entry in COMMANDS)
    return (
        f"{_HEAD}ROOT_OPTIONS: tuple[Option, ...] = (\n{root})\n\n"
        "# Name, help, the kind of word at each place, options.\n"
        f"COMMANDS: tuple[tuple[str, str, tuple[str, ...], tuple[Option, ...]], ...] = (\n{commands})\n"
    )


def _command(name: str, says: str, command: Any) -> str:
    places = tuple(place for p in command.params if p.param_type_name == "argument" for place in _places(p.metavar))
    options = "".join(f"        {option!r},\n" for option in _options(command, name))
    return f"    ({name!r}, {says!r}, {places!r}, (\n{options}    )),\n"


def _places(metavar: str) -> Iterator[str]:
    """Yield the kind of word at each place of ``[STORE] list|create [TOPIC]``."""
    for word in metavar.split():
        bare = word.strip("[].")
        if bare == "PAGE|CODE":
            yield "|".join([*(entry.name for entry in COMMANDS), *_pages(), *(entry.code for entry in iter_codes())])
        else:
            yield _values(bare)


def _pages() -> list[str]:
    """Return the pages of the manual that are not about a command."""
    commands = {entry.name for entry in COMMANDS}
    names = (path.name.removeprefix("rmqtool-").partition(".")[0] for path in sorted(MAN.glob("rmqtool-*")))
    return [name for name in names if name not in commands]


def _options(command: Any, name: str | None) -> Iterator[tuple[tuple[str, ...], str, str]]:
    for p in command.params:
        if p.param_type_name == "argument" or getattr(p, "hidden", False):
            continue
        yield tuple(p.opts), p.help, "" if p.is_flag or p.count else _option_values(p, name)
    yield ("-h", "--help"), "Show the options.", ""


def _option_values(option: Any, command: str | None) -> str:
    if (command, option.name) == ("stat", "by"):
        return "|".join(DIMENSIONS)
    if option.name == "columns":
        return "|".join(TABLE_COLUMNS)
    if option.name == "explain":
        return "|".join(entry.code for entry in iter_codes())
    if option.name == "only":
        return "|".join([*FAMILIES, *(entry.code for entry in iter_codes())])
    if option.name == "queue":
        return "queues"
    return _values(option.metavar or "")


def _values(metavar: str) -> str:
    """Return the kind of a value: words to choose from, a source of names, or "any". LEVEL|SPAN is not a choice."""
    words = metavar.split("|")
    if all(word.isupper() and word.isalpha() for word in words):
        return _BY_METAVAR.get(metavar, "any")
    return metavar if _CHOICES.fullmatch(metavar) else "any"
