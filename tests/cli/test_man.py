"""``man`` from the outside: pages by any of their names, on a terminal, in a pipe, without man(1)."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from rmqtool.cli import main
from rmqtool.commands.table import COMMANDS
from rmqtool.errors import Exit


@pytest.mark.parametrize("word", ["check", "rmqtool-check", "rmqtool-check.1", "Check(1)"])
def test_a_page_has_several_names(word: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["man", word]) == Exit.DONE
    out = capsysbinary.readouterr().out.decode()
    assert out.startswith("RMQTOOL-CHECK(1) ")
    assert "\x1b" not in out
    assert "\\" not in out.replace("{keys}\\n", "")


@pytest.mark.parametrize(
    "name", ["rmqtool", "store", "json", "findings", "recipes", *(entry.name for entry in COMMANDS)]
)
def test_every_page_is_shown(name: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["man", name]) == Exit.DONE
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert lines[2] == "NAME"
    assert max(map(len, lines)) <= 80


def test_without_a_word_it_is_the_page_of_the_tool(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["man"]) == Exit.DONE
    out = capsysbinary.readouterr().out.decode()
    assert out.startswith("RMQTOOL(1) ")
    assert "EXIT STATUS" in out


def test_a_page_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", "fsck"]) == Exit.USAGE
    assert (
        capsys.readouterr().err
        == 'rmqtool: the manual has no page "fsck", and no finding has this code\n         Next: rmqtool man\n'
    )
    assert main(["man", "CL-XYZ"]) == Exit.USAGE
    assert capsys.readouterr().err.endswith("\n         Next: rmqtool man findings\n")


def on_a_terminal(pager: str) -> str:
    """Return what a terminal shows of ``rmqtool man man``."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PAGER": pager, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    environment.pop("MANPAGER", None)
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqtool", "man", "man"], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(leader)
    assert process.wait(60) == Exit.DONE
    return shown.decode()


def test_on_a_terminal_a_pager_shows_it() -> None:
    shown = on_a_terminal("sed 's/^/|/'")
    assert all(line.startswith("|") for line in shown.splitlines())
    assert "|\x1b[1mNAME" in shown


def test_a_pager_that_is_not_there_is_done_without() -> None:
    shown = on_a_terminal("no-such-pager-anywhere 2>&-")
    assert "RMQTOOL-MAN(1)" in shown


@pytest.mark.parametrize("word", ["CL-CRC", "cl-crc", "ST-ABORT"])
def test_the_code_of_a_finding_is_explained(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the code means, what it means for messages, what brokers do, and what to type."""
    assert main(["man", word]) == Exit.DONE
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith(word.upper() + "  ")
    assert "brokers do" in shown
    assert "rmqtool repair STORE" in shown
    assert main(["check", "--explain", word]) == Exit.DONE
    assert capsys.readouterr().out == shown
