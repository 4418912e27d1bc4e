"""Every command ends as the table of statuses says, whatever it meets; and with no status that its manual lacks.

The commands and what each may end with come from their declarations; a *meeting* is something around the command that
the table has a status for. Full and read-only disks and locks that are held: ``test_untouched``.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from rmqtool.commands.table import COMMANDS
from rmqtool.errors import PRECEDENCE, Exit, Interrupted, NoMemory, OptionalMissing, worst
from tests.guards.incidents import segment, spoil
from tests.guards.options import BASES
from tests.guards.typed import at, type_words
from tests.support.stores import unpack
from tools.manual.command_pages import statuses_of

# A line of each command, with ``{s}`` for the store: the first of the bases of options, where there is one.
LINES = {name: bases[0].words.replace("{o}/other", "{s}") for name, bases in BASES.items()} | {
    "dump": "dump {s}/checkpoint",
    "browse": "browse {s} --html {p}/page.html",
    "serve": "serve {s} --for 1ms --names 127.0.0.1:0 --listen 127.0.0.1:0",
    "mirror": "mirror 127.0.0.1:1 {p}/mirrored",
    "demo": "demo {p}/demo",
}
GIVEN = {name: bases[0].given for name, bases in BASES.items()}
# Commands that open no store of their own.
WITHOUT_STORE = {"man", "demo", "mirror"}


class Meeting(NamedTuple):
    """Something that a command meets: the line with its store, and the status that is due."""

    status: Exit
    # By command, where it is another one, with the reason.
    other: dict[str, tuple[Exit, str]] = {}  # noqa: RUF012  (never changed)
    skipped: frozenset[str] = frozenset()


MEETINGS = {
    "an unknown option": Meeting(Exit.USAGE),
    "a directory without a store": Meeting(
        Exit.NOT_A_STORE,
        {"init": (Exit.DONE, "makes one there"), "dump": (Exit.NOT_A_STORE, "no such file")},
        frozenset(WITHOUT_STORE),
    ),
    "no directory": Meeting(Exit.NOT_A_STORE, {"init": (Exit.DONE, "makes it")}, frozenset(WITHOUT_STORE)),
    "no memory": Meeting(Exit.NOT_A_STORE),
    "a part that is not installed": Meeting(Exit.OPTIONAL_MISSING, skipped=frozenset({"man"})),
    "Ctrl-C": Meeting(Exit.INTERRUPTED),
    "a reader that is gone": Meeting(Exit.CLOSED_PIPE),
    "a bug": Meeting(Exit.BUG),
}
RAISED: dict[str, BaseException] = {
    "no memory": NoMemory("not enough memory"),
    "a part that is not installed": OptionalMissing("not installed"),
    "Ctrl-C": Interrupted("stopped"),
    "a reader that is gone": BrokenPipeError(),
    "a bug": ZeroDivisionError(),
}
ENTRIES = {entry.name: entry for entry in COMMANDS}


@contextmanager
def _raising(name: str, error: BaseException) -> Iterator[None]:
    """Let a command fail where its work begins."""

    module, _, function = ENTRIES[name].target.partition(":")
    command = getattr(importlib.import_module(module), function)

    @functools.wraps(command)
    def fail(*_: object, **__: object) -> None:
        raise error

    with patch.object(sys.modules[module], function, fail):
        yield


def _placed(line: str, store: Path, place: Path) -> list[str]:
    return [word.replace("{s}", str(store)).replace("{p}", str(place)) for word in line.split()]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("53-broker", tmp_path_factory.mktemp("clean"))


@pytest.fixture
def damaged(clean: Path, tmp_path: Path) -> Path:
    """Give a store in which a record is damaged."""
    root = tmp_path / "damaged"
    subprocess.run(["cp", "-a", "--sparse=always", clean, root], check=True)
    spoil(segment(root, 1), 8300, 1)
    return root


def test_every_command_has_a_line() -> None:
    assert ENTRIES.keys() == LINES.keys()


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("meeting", MEETINGS)
def test_a_command_ends_as_the_table_says(meeting: str, name: str, clean: Path, tmp_path: Path) -> None:
    met = MEETINGS[meeting]
    if name in met.skipped:
        assert met.status not in statuses_of(ENTRIES[name]) or "{s}" not in LINES[name]
        return
    (tmp_path / "empty").mkdir()
    store = {"a directory without a store": tmp_path / "empty", "no directory": tmp_path / "none"}.get(meeting, clean)
    line = _placed(LINES[name].replace("{p}/new", "{s}") if name == "init" else LINES[name], store, tmp_path)
    line += ["--no-such-option"] if meeting == "an unknown option" else []
    with at(tmp_path):
        if meeting in RAISED:
            with _raising(name, RAISED[meeting]):
                typed = type_words(line, GIVEN.get(name, b""))
        else:
            typed = type_words(line, GIVEN.get(name, b""))
    status, _ = met.other.get(name, (met.status, ""))
    assert typed.status == status, typed.said
    assert status in statuses_of(ENTRIES[name]), f"the manual of {name} has no {status}"
    assert status is Exit.DONE or typed.err or meeting == "a reader that is gone"


# What each command that reads the log does about a damaged record.
DAMAGED = {
    "info": Exit.DONE,
    "cat": Exit.SKIPPED,
    "query": Exit.DONE,
    "stat": Exit.DONE,
    "check": Exit.NO,
    "repair": Exit.NO,
    "copy": Exit.REFUSED,
    "export": Exit.SKIPPED,
    "diff": Exit.DONE,
    "browse": Exit.DONE,
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_told_by_the_status(name: str, damaged: Path, tmp_path: Path) -> None:
    with at(tmp_path):
        typed = type_words(_placed(LINES[name], damaged, tmp_path))
    assert typed.status == DAMAGED[name], typed.said
    assert typed.status in statuses_of(ENTRIES[name])


# Commands that take a live cluster; the others say that they need files.
ON_CLUSTERS = {"info", "cat", "query", "topic", "group", "produce", "consume", "copy", "export"}


@pytest.mark.parametrize("name", [name for name, line in LINES.items() if "{s}" in line and name != "init"])
def test_a_cluster_that_is_away_is_told_by_the_status(name: str, tmp_path: Path) -> None:
    line = LINES[name].replace("{s}/checkpoint", "{s}")
    with at(tmp_path):
        typed = type_words(
            [word.replace("{s}", "rocketmq://127.0.0.1:1") for word in line.split()], GIVEN.get(name, b"")
        )
    assert typed.status == (Exit.REMOTE if name in ON_CLUSTERS else Exit.USAGE), typed.said
    assert typed.status in statuses_of(ENTRIES[name])


# -- several statuses at once

ORDER = (70, 7, 4, 3, 9, 8, 6, 1)


def test_of_several_statuses_the_first_of_the_table_counts() -> None:
    assert tuple(PRECEDENCE) == ORDER
    for count in (1, 2, 3):
        for met in itertools.permutations((0, *ORDER), count):
            due = next((status for status in ORDER if status in met), 0)
            assert worst(*met) == due
    assert worst() == Exit.DONE
    assert worst(Exit.DONE, Exit.REFUSED) == Exit.REFUSED


def test_every_status_is_met_by_a_test_here_or_beside() -> None:
    beside = {Exit.IN_USE, Exit.WRITE_FAILED}
    met = {met.status for met in MEETINGS.values()} | {*DAMAGED.values()} | {Exit.REMOTE, Exit.USAGE, Exit.DONE}
    assert met | beside == set(Exit)
