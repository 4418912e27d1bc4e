"""``import rmqtool``: its names are documented, its guide is executed, and importing it loads nothing."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import rmqtool
from tests.docs.__main__ import MAN

GUIDE = MAN.parent / "docs" / "library.md"


def test_the_guide_is_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = doctest.testfile(str(GUIDE), module_relative=False, encoding="utf-8", optionflags=doctest.REPORT_NDIFF)
    assert ran.attempted > 15
    assert ran.failed == 0


def test_every_name_is_in_the_guide_and_has_words_of_its_own() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    for name in rmqtool.__all__:
        assert re.search(rf"`{name}\b", guide), name
        assert getattr(rmqtool, name).__doc__, name


def test_no_package_has_the_name_of_a_function() -> None:
    packages = {path.parent.name for path in Path(rmqtool.__file__).parent.glob("*/__init__.py")}
    assert packages & set(rmqtool.__all__) == set()


def test_a_name_that_is_not_there_is_said_to_be_missing() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'repiar'"):
        rmqtool.repiar  # noqa: B018
    assert set(rmqtool.__all__) <= set(dir(rmqtool))
