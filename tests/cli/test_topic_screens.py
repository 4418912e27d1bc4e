"""The screens of ``topic``: at 80 and 120 columns, compared with what was looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.golden_files import check_golden

WIDTHS = (80, 120)


class Screen:
    """Takes what commands show, and compares it; a temporary directory is shown as TMP."""

    def __init__(self, root: Path, width: int, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
        self.root = root
        self.text = ""
        self._width = width
        self._captured = capsysbinary

    def show(self, *words: str, status: Exit = Exit.DONE) -> None:
        """Run a command on the store, which lies in the current directory."""
        assert main([words[0], self.root.name, *words[1:], "--color", "never"]) == status
        self.text += f"$ rmqtool {words[0]} {self.root.name} {' '.join(words[1:])}\n"
        self.text += self._captured.readouterr().out.decode() + "\n"

    def check(self, name: str) -> None:
        assert max(map(len, self.text.splitlines())) <= self._width
        check_golden(f"fix/{name}-{self._width}.txt", self.text)


@pytest.fixture(params=WIDTHS)
def screen_of(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[[Path], Screen]:
    def make(root: Path) -> Screen:
        monkeypatch.setenv("COLUMNS", str(request.param))
        monkeypatch.chdir(root.parent)
        return Screen(root, request.param, capsysbinary)

    return make


def test_the_topics_of_a_store(writable_store: Callable[[str], Path], screen_of: Callable[[Path], Screen]) -> None:
    screen = screen_of(writable_store("53-compaction"))
    screen.show("topic", "list")
    screen.show("topic", "create", "New", "--queues", "1")
    screen.show("topic", "alter", "New", "--queues", "3")
    screen.show("topic", "delete", "New", "--yes")
    screen.check("topics")
