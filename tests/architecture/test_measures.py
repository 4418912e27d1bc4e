"""The measures of the house: slivers, gerunds, shared names, unreached code."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqtool
from tests.architecture import house, measures
from tests.architecture.rules import Module, modules_of_the_package, read_modules
from tests.architecture.symbols import Reach

ROOT = Path(rmqtool.__file__).parent


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return modules_of_the_package(ROOT)


@pytest.fixture(scope="module")
def unreached(modules: list[Module]) -> set[str]:
    roots = [module.name for module in modules if module.room in house.ENTRY_ROOMS]
    reach = Reach(modules, [*roots, *house.ENTRY_POINTS])
    return {f"{symbol.module.partition('.')[2]}:{symbol.name}" for symbol in reach.unreached()}


def made(tmp_path: Path, files: dict[str, str]) -> list[Module]:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_modules(tmp_path)


def test_few_modules_have_one_importer(modules: list[Module]) -> None:
    found = measures.single_importers(modules)
    assert len(found) <= house.SINGLE_IMPORTERS, "\n".join(found)


def test_a_single_importer_is_seen(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        {
            "log/a.py": "from rmqtool.log import b, c\n",
            "log/b.py": "from rmqtool.log.c import x\n",
            "log/c.py": "x = 1\n",
        },
    )
    assert measures.single_importers(found) == ["log/b.py"]


def test_what_serves_one_verb_is_no_sliver(tmp_path: Path) -> None:
    found = made(tmp_path, {"api/diff.py": "from rmqtool.look import diff\n", "look/diff.py": "x = 1\n"})
    assert measures.single_importers(found) == []


def test_what_a_room_exports_has_the_importers_of_the_room(tmp_path: Path) -> None:
    files = {
        "config/__init__.py": "from rmqtool.config.settings import Version\n",
        "config/settings.py": "class Version: ...\n",
        "config/text.py": "from rmqtool.config.settings import Version\n",
    }
    alone = measures.single_importers(made(tmp_path / "alone", files))
    used = {"log/a.py": "from rmqtool.config import Version\n"}
    assert alone == ["config/settings.py"]
    assert measures.single_importers(made(tmp_path / "used", files | used)) == []


def test_small_modules_have_two_importers_or_a_reason(modules: list[Module]) -> None:
    found = measures.small_modules(modules)
    assert len(found) <= house.SMALL_MODULES, "\n".join(found)


def test_a_small_module_is_seen(tmp_path: Path) -> None:
    assert measures.small_modules(made(tmp_path, {"log/a.py": "x = 1\n", "log/b.py": "x = 1\n" * 80})) == ["log/a.py"]


def test_modules_are_nouns(modules: list[Module]) -> None:
    found = measures.gerunds(modules)
    assert len(found) <= house.GERUNDS, "\n".join(found)


def test_a_gerund_is_seen(tmp_path: Path) -> None:
    found = made(tmp_path, {"log/reading.py": "", "store/listing.py": "", "log/group_opening.py": ""})
    assert measures.gerunds(found) == ["log/group_opening.py", "log/reading.py"]


def test_a_name_in_two_rooms_is_one_noun(modules: list[Module]) -> None:
    found = measures.shared_names(modules)
    assert len(found) <= house.SHARED_NAMES, "\n".join(found)


def test_a_shared_name_is_seen(tmp_path: Path) -> None:
    found = made(tmp_path, {"log/plan.py": "", "exports/plan.py": "", "log/walk.py": ""})
    assert measures.shared_names(found) == {"plan": ["exports", "log"]}


def test_no_module_knows_too_many_others(modules: list[Module]) -> None:
    # The package itself lists one module for each verb.
    counts = {path: count for path, count in measures.fan_out(modules).items() if path != "__init__.py"}
    wide = [path for path, count in counts.items() if count > house.FAN_OUT]
    assert len(wide) <= house.WIDE_MODULES, "\n".join(wide)


def test_fan_out_is_counted_by_module(tmp_path: Path) -> None:
    found = made(
        tmp_path, {"log/a.py": "from rmqtool.log.b import x, y\nimport rmqtool.log.c\n", "log/b.py": "", "log/c.py": ""}
    )
    assert measures.fan_out(found) == {"log/a.py": 2, "log/b.py": 0, "log/c.py": 0}


def test_no_module_changes_what_a_module_is(modules: list[Module]) -> None:
    found = measures.callable_packages(modules)
    assert len(found) <= house.ASKS_WHAT_IS_LOADED, "\n".join(found)


def test_magic_is_seen(tmp_path: Path) -> None:
    text = "import sys\nsys.modules[__name__].__class__ = object\nif 'rmqtool.log' in sys.modules:\n    x = 1\n"
    assert [place.rpartition(":")[2] for place in measures.callable_packages(made(tmp_path, {"a.py": text}))] == [
        "2",
        "3",
    ]


def test_what_is_public_is_reached(unreached: set[str]) -> None:
    found = sorted(name for name in unreached if not name.startswith(tuple(house.CALLED_LATER)))
    assert len(found) <= house.UNREACHED, "\n".join(found)


def test_what_is_called_later_is_not_called_yet(unreached: set[str]) -> None:
    stale = [start for start in house.CALLED_LATER if not any(name.startswith(start) for name in unreached)]
    assert stale == []
    assert [start for start, reason in house.CALLED_LATER.items() if len(reason.split()) < 4] == []


def test_what_nobody_reaches_is_seen(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        {
            "cli.py": "from rmqtool.log import b\n\n\ndef main():\n    b.used().asked()\n",
            "log/b.py": (
                "def used():\n    return Kept()\n\n\ndef unused():\n    return used()\n\n\n"
                "class Kept:\n    def asked(self):\n        pass\n\n    def silent(self):\n        pass\n"
            ),
        },
    )
    reach = Reach(found, ["rmqtool.cli"])
    assert {f"{symbol.module}:{symbol.name}" for symbol in reach.unreached()} == {
        "rmqtool.log.b:unused",
        "rmqtool.log.b:Kept.silent",
    }
