from __future__ import annotations

import pytest

from rmqtool.cli import main
from rmqtool.commands.table import OTHER_NAMES
from tests.cli.sample_commands import TABLE
from tests.support.golden_files import check_golden


@pytest.mark.parametrize(
    ("name", "words"), [("root", ["--help"]), ("command", ["query", "-h"]), ("plain", ["info", "-h"])]
)
@pytest.mark.parametrize("columns", ["80", "200"])
def test_help_is_the_same_on_any_terminal(
    name: str, words: list[str], columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert main(words, TABLE) == 0
    check_golden(f"help/{name}.txt", capsys.readouterr().out)


def test_panels_stand_in_the_design_order_and_commands_in_the_order_of_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"], TABLE) == 0
    lines = capsys.readouterr().out.splitlines()
    at = [lines.index(title) for title in ("Look:", "Judge:", "Fix:", "Use:", "Options:")]
    assert at == sorted(at)
    assert [line.split()[0] for line in lines[at[0] + 1 : at[1]] if line] == ["info", "rows", "query"]


def test_a_panel_without_commands_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], TABLE[:1]) == 0
    out = capsys.readouterr().out
    assert "Use:" in out
    assert "Look:" not in out


def test_hints_name_commands_of_the_design_and_no_hint_is_a_command() -> None:
    design = {
        *("info", "cat", "query", "dump", "browse", "stat", "check", "diff", "recover", "repair", "copy"),
        *("init", "topic", "produce", "consume", "tick", "export", "demo", "man", "serve", "mirror", "group"),
    }
    assert {line.split()[0] for line in OTHER_NAMES.values()} <= design | {"--help", "--version"}
    assert {name.lower() for name in OTHER_NAMES} & design == set()
