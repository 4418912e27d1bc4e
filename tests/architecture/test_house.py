"""The package keeps the rules of the house."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rmqtool
from tests.architecture import house
from tests.architecture.rules import Module, Violation, check, modules_of_the_package, read_modules

ROOT = Path(rmqtool.__file__).parent


def test_rules_hold() -> None:
    assert "\n".join(f"{v.place}:{v.line}: {v.rule}: {v.message}" for v in check(modules_of_the_package(ROOT))) == ""


def test_every_room_has_a_place_in_the_order() -> None:
    assert {module.room for module in modules_of_the_package(ROOT)} == set(house.ROOMS) | {"__init__"}
    assert len(set(house.ROOMS)) == len(house.ROOMS)
    assert [room for room, (_, reason) in house.FORBIDDEN.items() if len(reason.split()) < 4] == []


def test_every_exemption_has_a_reason() -> None:
    assert [place for place, reason in house.EXEMPTIONS.items() if len(reason.split()) < 4] == []


def loaded_by(modules: list[str], path: Path) -> set[str]:
    """Return the first names of everything in ``sys.modules`` after importing ``modules`` in a new process."""
    code = (
        "import importlib, json, sys\n"
        "for name in json.loads(sys.argv[1]): importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, json.dumps(modules)], cwd=path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout))


def named(wanted: house.Imports, modules: list[Module]) -> list[str]:
    """Return the modules that ``wanted`` names."""
    return [
        module.name
        for module in modules
        if any(
            f"{module.name}.".startswith(name) if name[-1] == "." else module.name == name for name in wanted.modules
        )
    ]


@pytest.mark.parametrize("wanted", house.LIGHT, ids=lambda wanted: wanted.modules[0])
def test_light_modules_load_nothing_heavy(wanted: house.Imports) -> None:
    assert loaded_by(named(wanted, modules_of_the_package(ROOT)), ROOT.parent) & wanted.load_none_of == set()


def test_heavy_import_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "rmqtool"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cli.py").write_text("from rmqtool import deeper\n")
    (package / "deeper.py").write_text("import numpy\n")
    modules = named(house.LIGHT[0], read_modules(package))
    assert modules == ["rmqtool", "rmqtool.cli"]
    assert loaded_by(modules, tmp_path) & house.LIGHT[0].load_none_of == {"numpy"}


def broken(tmp_path: Path, files: dict[str, str]) -> list[Violation]:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return check(read_modules(tmp_path), {})


BREAKING = {
    "room outside the design": ("room", "misplaced.py", "x = 1\n"),
    "arrow up": ("arrow", "formats/a.py", "from rmqtool.files import files\n"),
    "arrow up by the whole name": ("arrow", "formats/a.py", "import rmqtool.engine\n"),
    "arrow up from the package": ("arrow", "files/a.py", "from rmqtool import engine\n"),
    "arrow up, relative": ("arrow", "files/a.py", "from ..engine import store\n"),
    "arrow up, relative, from a package": ("arrow", "files/__init__.py", "from ..engine import store\n"),
    "arrow up, lazily": ("arrow", "files/a.py", "def f():\n    from rmqtool.engine import store\n"),
    "arrow up, by name": ("arrow", "files/a.py", "def f():\n    return import_module('rmqtool.engine')\n"),
    "arrow up, for types": ("arrow", "filters/a.py", "if TYPE_CHECKING:\n    from rmqtool.log import walk\n"),
    "arrow that a reason forbids": ("arrow", "upstream/a.py", "from rmqtool.engine import store\n"),
    "arrow that must be lazy": ("arrow", "engine/a.py", "from rmqtool.columns import columns\n"),
    "arrow that must be lazy, in a class": ("arrow", "engine/a.py", "class A:\n    from rmqtool.columns import b\n"),
    "heavy room at the head of api": ("arrow", "api/a.py", "from rmqtool.exports import plan\n"),
    "a command past api": ("arrow", "commands/a.py", "def f():\n    from rmqtool.log import stream\n"),
    "nobody imports's cli": ("arrow", "commands/a.py", "from rmqtool.cli import main\n"),
    "typer": ("third-party", "engine/a.py", "import typer\n"),
    "rich": ("third-party", "commands/a.py", "def f():\n    from rich.table import Table\n"),
    "tabulate": ("third-party", "commands/a.py", "from tabulate import tabulate\n"),
    "construct": ("third-party", "files/a.py", "import construct as c\n"),
    "construct, lazily": ("third-party", "files/a.py", "def f():\n    import construct\n"),
    "crcmod": ("third-party", "engine/a.py", "import crcmod.predefined\n"),
    "pyspark": ("third-party", "exports/a.py", "from pyspark.sql import types\n"),
    "numpy at the head": ("third-party", "formats/a.py", "import numpy as np\n"),
    "pyarrow at the head": ("third-party", "spark/a.py", "try:\n    import pyarrow\nexcept ImportError:\n    pass\n"),
    "long module": ("module-lines", "formats/a.py", "x = 1\n" * 701),
    "long function": ("function-lines", "formats/a.py", "def f():\n" + "    x = 1\n" * 70),
    "long method": ("function-lines", "formats/a.py", "class A:\n    def f(self):\n" + "        x = 1\n" * 70),
    "long body of a command": ("command-body", "commands/a.py", "def f():\n" + "    x = 1\n" * 26),
    "long command": ("command-lines", "commands/a.py", "x = 1\n" * 121),
    "command of two verbs": (
        "one-verb",
        "commands/a.py",
        "from rmqtool.api.topic import topic\n\n\ndef f():\n    from rmqtool.api.tick import tick\n\n"
        "    tick(topic())\n",
    ),
    "command of two verbs by other names": (
        "one-verb",
        "commands/a.py",
        "def f():\n    from rmqtool.api.tick import tick as a\n    from rmqtool.api.topic import topic as b\n\n"
        "    a(b())\n",
    ),
    "command without a verb": ("no-verb", "commands/a.py", "def a():\n    from rmqtool.api.tick import tick\n"),
    "many parameters": ("parameters", "formats/a.py", "def f(a, b, c, d, *, e, f, g, h):\n    pass\n"),
    "the kernel past its module": ("third-party", "columns/a.py", "from rmqtool import _native\n"),
    "many parameters of a constructor that does more": (
        "parameters",
        "formats/a.py",
        "class A:\n    def __init__(self, a, b, c, d, e, f, g, h):\n        self.a = a\n        self.b = b + c\n",
    ),
    "many parameters, gathered": ("parameters", "formats/a.py", "def f(a, b, c, d, e, f, *g, **h):\n    pass\n"),
    "name of a module": ("name", "formats/record_utils.py", "x = 1\n"),
    "name of a package": ("name", "files/common/__init__.py", ""),
    "name of a class": ("name", "engine/a.py", "class FlushManager:\n    pass\n"),
    "name of a function": ("name", "engine/a.py", "def flush_helper():\n    pass\n"),
    "open": ("opens-file", "formats/a.py", "def f(p):\n    return open(p)\n"),
    "open of a path": ("opens-file", "formats/a.py", "def f(p):\n    return p.open('rb')\n"),
    "read of a path": ("opens-file", "columns/a.py", "def f(p):\n    return p.read_bytes()\n"),
    "map": ("opens-file", "columns/a.py", "def f(p):\n    return np.memmap(p)\n"),
    "struct": ("layout", "files/a.py", "import struct\n"),
    "struct, lazily": ("layout", "files/a.py", "def f():\n    from struct import pack\n"),
    "struct format": ("layout", "engine/a.py", "UNIT = '>qiq'\n"),
    "struct format with counts": ("layout", "engine/a.py", "UNIT = '>i4sq 8x'\n"),
    "dtype": ("layout", "columns/a.py", "def f(b):\n    return np.frombuffer(b, '>i8')\n"),
    "dtype by fields": ("layout", "columns/a.py", "UNIT = np.dtype([('offset', 'i8')])\n"),
    "number of bytes": ("layout", "files/a.py", "def f(b):\n    return int.from_bytes(b[:4], 'big')\n"),
    "bytes of a number": ("layout", "files/a.py", "def f(n):\n    return n.to_bytes(4, 'big')\n"),
    "property name": ("property-name", "engine/a.py", "KEY = 'UNIQ_KEY'\n"),
    "property name as bytes": ("property-name", "columns/a.py", "KEY = b'__SHARDINGKEY'\n"),
    "print": ("print", "commands/a.py", "def f():\n    print(1)\n"),
    "status as a number": ("exit-status", "commands/a.py", "def f():\n    raise typer.Exit(3)\n"),
    "status as a keyword": ("exit-status", "cli.py", "def f():\n    raise typer.Exit(code=3)\n"),
    "status of the process": ("exit-status", "cli.py", "def f():\n    sys.exit(3)\n"),
}


@pytest.mark.parametrize(("rule", "file", "text"), BREAKING.values(), ids=BREAKING)
def test_rule_sees(rule: str, file: str, text: str, tmp_path: Path) -> None:
    found = broken(tmp_path, {file: text})
    assert [violation.rule for violation in found] == [rule]
    assert found[0].place.startswith(file)


KEEPING = {
    "own room": ("files/a.py", "from rmqtool.files import b\nfrom . import c\n"),
    "arrows down": (
        "repairs/a.py",
        "from rmqtool.engine import a\nfrom rmqtool import findings\nimport rmqtool.errors\n",
    ),
    "version": ("commands/a.py", "from rmqtool import __version__\n"),
    "columns in engine, lazily": ("engine/a.py", "def f():\n    from rmqtool.columns import columns\n"),
    "heavy room in api, lazily": ("api/a.py", "def f():\n    from rmqtool.spark import job\n"),
    "what a command knows": ("commands/a.py", "from rmqtool.api import info\nfrom rmqtool.render import text\n"),
    "numpy, lazily": ("formats/a.py", "def f():\n    import numpy\n"),
    "numpy for types": ("formats/a.py", "if TYPE_CHECKING:\n    import numpy\n"),
    "numpy in columns": ("columns/a.py", "import numpy\n"),
    "another library of a like name": ("files/a.py", "import structlog\nimport richer\n"),
    "700 lines": ("formats/a.py", "x = 1\n" * 700),
    "70 lines": ("formats/a.py", "def f():\n" + "    x = 1\n" * 69),
    "25 lines of body below a long head": (
        "commands/a.py",
        "def f(\n"
        + "".join(f"    p{n}: int,\n" for n in range(60))
        + '):\n    """Doc\n\n    Doc."""\n'
        + "    x = 1\n" * 25,
    ),
    "what commands share may be long": ("commands/options.py", "x = 1\n" * 121),
    "command of a verb for each way": (
        "commands/a.py",
        "from rmqtool.api.topic import Action, topic\nfrom rmqtool.api.tick import tick\n\n\n"
        "def f():\n    topic(Action())\n\n\ndef g():\n    tick()\n",
    ),
    "7 parameters and self": ("formats/a.py", "class A:\n    def f(self, a, b, c, d, e, f, g):\n        pass\n"),
    "constructor of a value": (
        "formats/a.py",
        "class A:\n    def __init__(self, a, b, c, d, e, f, g, h):\n        self.a = a\n        self.b = b\n",
    ),
    "like a banned name": ("formats/a.py", "def utility_of_commonplace():\n    pass\n"),
    "open in files": ("files/a.py", "def f(p):\n    return open(p)\n"),
    "struct in formats": ("formats/a.py", "import struct\nUNIT = struct.Struct('>qiq')\n"),
    "text that is no format": ("render/a.py", "ARROW = '->'\nLESS = '<='\nTAG = '<b>'\nWORDS = '> not a format'\n"),
    "width of a column": ("render/a.py", "def f(x):\n    return f'{x:>8s}'\n"),
    "property names at home": ("formats/property_names.py", "KEYS = 'KEYS'\n"),
    "print in render": ("render/a.py", "def f():\n    print(1)\n"),
    "status of an error": ("cli.py", "def f(error):\n    sys.exit(error.exit_status)\n"),
}


@pytest.mark.parametrize(("file", "text"), KEEPING.values(), ids=KEEPING)
def test_rule_allows(file: str, text: str, tmp_path: Path) -> None:
    assert broken(tmp_path, {file: text}) == []


def test_exemption_covers_its_place_only(tmp_path: Path) -> None:
    long = "x = 1\n" * 701
    broken(tmp_path, {"formats/a.py": long, "formats/b.py": long})
    left = check(read_modules(tmp_path), {("module-lines", "formats/a.py"): "a table"})
    assert [(violation.rule, violation.place) for violation in left] == [("module-lines", "formats/b.py")]


def test_exemption_that_nothing_needs_is_seen(tmp_path: Path) -> None:
    broken(tmp_path, {"formats/a.py": "x = 1\n"})
    left = check(read_modules(tmp_path), {("module-lines", "formats/a.py"): "a table"})
    assert [(violation.rule, violation.place) for violation in left] == [("exemption", "formats/a.py")]
