"""The screens of ``copy``: at 80 and 120 columns, compared with what was looked at."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqtool.cli import main
from rmqtool.commands import options
from rmqtool.errors import Exit
from tests.support.damaged import Workshop, mutations
from tests.support.golden_files import check_golden
from tests.support.stores import unpack


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a directory with a sound store, one with a flipped bit and one that lacks a segment."""
    place = tmp_path_factory.mktemp("copied")
    unpack("53-broker", place / "whole").rename(place / "sound")
    workshop = Workshop(place)
    for name, key in (("flipped", "A/body-flip@4thlast-mid"), ("gap", "A/cl-missing@middle")):
        with workshop.damaged("5.3.3", mutations("5.3.3")[key], abort=True) as root:
            shutil.copytree(root, place / name)
    return place


SCREENS = {
    "whole": (["sound"], [], Exit.DONE),
    "topic": (["sound"], ["-t", "T_trans"], Exit.DONE),
    "refused": (["flipped"], [], Exit.REFUSED),
    "salvaged": (["flipped"], ["--salvage"], Exit.SKIPPED),
    "gap": (["gap"], ["--salvage"], Exit.SKIPPED),
    "merged": (["flipped", "sound"], ["--salvage"], Exit.SKIPPED),
    "nothing": (["sound"], ["-b", "2200-01-01"], Exit.DONE),
}


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("width", [80, pytest.param(120, marks=pytest.mark.slow)])
def test_screens(
    screen: str,
    width: int,
    sources: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stores, words, status = SCREENS[screen]
    monkeypatch.chdir(sources)
    look = options.Show.look
    monkeypatch.setattr(options.Show, "look", lambda self: replace(look(self), width=width))
    target = sources / "new"
    assert main(["copy", *stores, "new", *words, "--tz", "UTC"]) == status
    shown = capsys.readouterr()
    assert target.exists() == (status != Exit.REFUSED)
    for place in (target, sources / "new.lost-and-found"):
        shutil.rmtree(place, ignore_errors=True)
    text = f"$ rmqtool copy {' '.join([*stores, 'new', *words])}\n{shown.err}{shown.out}"
    check_golden(f"fix/copy-{screen}-{width}.txt", text.replace(str(sources), ""))
