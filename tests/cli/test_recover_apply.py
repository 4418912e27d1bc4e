"""The screen of ``recover --apply``: at 80 and 120 columns, compared with what was looked at."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.commands import options
from rmqtool.engine.message import NewMessage
from rmqtool.engine.store import MessageStore
from rmqtool.errors import Exit
from rmqtool.render.text import display_width
from tests.support.golden_files import check_golden
from tests.support.recovered import setup_for

LONG_TOPIC = "Payments-" * 14
# An index file is named after the moment it is made.
_INDEX_NAME = re.compile(r"create( +)index/\d{17}")


@pytest.fixture(params=[80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=request.param))
    return int(request.param)


def screen(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.chdir(root.parent)
    assert main(["recover", root.name, "--apply", "--color", "never", *words]) == Exit.DONE
    return _INDEX_NAME.sub(r"create\1index/(now)", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["49-ghost", "49-killed-torn", "49-multidir"])
def test_screens(
    name: str,
    width: int,
    writable_store: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = screen(writable_store(name), monkeypatch, capsys)
    assert max(map(display_width, shown.splitlines())) <= width
    check_golden(f"look/recover-apply-{name}-{width}.txt", shown)


def test_a_path_that_no_line_holds_goes_on_in_the_next(
    width: int,
    writable_store: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = writable_store("54-basic")
    with MessageStore.open(setup_for(root)) as store:
        assert store.put(NewMessage(LONG_TOPIC, b"paid")).is_ok
    shutil.rmtree(root / "consumequeue" / LONG_TOPIC)
    shown = screen(root, monkeypatch, capsys)
    assert max(map(display_width, shown.splitlines())) <= width
    assert f"create      consumequeue/{LONG_TOPIC}/0/{'0' * 20}" in shown.replace("\n" + " " * 14, "")


def test_the_checkpoint_is_not_ahead_of_an_index_that_lost_its_end(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("53-broker")
    with (root / "commitlog" / f"{3 * 65536:020d}").open("r+b") as file:
        file.seek(13_108)
        file.write(bytes(12_000))
    (root / "abort").touch()
    assert main(["recover", str(root), "--apply", "--quiet"]) == Exit.DONE
    assert main(["check", str(root), "--only", "CP"]) == Exit.DONE


@pytest.mark.parametrize("name", ["49-ghost", "49-killed-torn", "53-broker"])
def test_the_answer_is_that_of_a_rehearsal_afterwards(name: str, writable_store: Callable[[str], Path]) -> None:
    root = writable_store(name)
    recovered = main(["recover", str(root), "--apply", "--quiet"])
    assert recovered == main(["recover", str(root), "--quiet"]) == Exit.DONE


def test_damage_that_stays_is_no_success(
    writable_store: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    root = writable_store("53-broker")
    with (root / "commitlog" / f"{65536:020d}").open("r+b") as file:
        file.seek(8304)
        file.write(b"?")
    assert main(["recover", str(root), "--apply", "--color", "never"]) == Exit.NO
    assert re.search(r"1 damaged place\s+stays in the log|do not start a", capsys.readouterr().out)
    assert main(["recover", str(root), "--apply", "--quiet"]) == Exit.NO
