"""The package keeps the rules of the house."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rmqtool
from tests.architecture import house
from tests.architecture.rules import Violation, check, read_modules

ROOT = Path(rmqtool.__file__).parent


def test_rules_hold() -> None:
    assert "\n".join(f"{v.place}:{v.line}: {v.rule}: {v.message}" for v in check(ROOT)) == ""


def test_rooms_form_no_cycle() -> None:
    left = {room: may - house.FOUNDATION for room, may in house.ARROWS.items() if room not in house.FOUNDATION}
    left = {room: may | house.LAZY_ARROWS.get(room, frozenset()) for room, may in left.items()}
    while left:
        lowest = {room for room, may in left.items() if not may & left.keys()}
        assert lowest, f"cycle among {sorted(left)}"
        left = {room: may for room, may in left.items() if room not in lowest}


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


def named(wanted: house.Imports, root: Path) -> list[str]:
    """Return the modules on disk that ``wanted`` names."""
    return [
        module.name
        for module in read_modules(root)
        if any(
            f"{module.name}.".startswith(name) if name[-1] == "." else module.name == name for name in wanted.modules
        )
    ]


@pytest.mark.parametrize("wanted", house.LIGHT, ids=lambda wanted: wanted.modules[0])
def test_light_modules_load_nothing_heavy(wanted: house.Imports) -> None:
    assert loaded_by(named(wanted, ROOT), ROOT.parent) & wanted.load_none_of == set()


def test_heavy_import_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "rmqtool"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "cli.py").write_text("from rmqtool import deeper\n")
    (package / "deeper.py").write_text("import numpy\n")
    modules = named(house.LIGHT[0], package)
    assert modules == ["rmqtool", "rmqtool.cli"]
    assert loaded_by(modules, tmp_path) & house.LIGHT[0].load_none_of == {"numpy"}


def broken(tmp_path: Path, files: dict[str, str]) -> list[Violation]:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return check(tmp_path, {})


BREAKING = {
    "room outside the design": ("room", "misplaced.py", "x = 1\n"),
    "arrow up": ("arrow", "formats/a.py", "from rmqtool.storage import files\n"),
    "arrow up by the whole name": ("arrow", "formats/a.py", "import rmqtool.findings\n"),
    "arrow up from the package": ("arrow", "storage/a.py", "from rmqtool import engine\n"),
    "arrow up, relative": ("arrow", "storage/a.py", "from ..engine import store\n"),
    "arrow up, relative, from a package": ("arrow", "storage/__init__.py", "from ..engine import store\n"),
    "arrow up, lazily": ("arrow", "storage/a.py", "def f():\n    from rmqtool.engine import store\n"),
    "arrow up, by name": ("arrow", "storage/a.py", "def f():\n    return import_module('rmqtool.engine')\n"),
    "arrow up, for types": ("arrow", "filters/a.py", "if TYPE_CHECKING:\n    from rmqtool.bulk import columns\n"),
    "arrow aside": ("arrow", "inspection/a.py", "from rmqtool.engine import store\n"),
    "arrow that must be lazy": ("arrow", "engine/a.py", "from rmqtool.bulk import columns\n"),
    "arrow that must be lazy, in a class": ("arrow", "engine/a.py", "class A:\n    from rmqtool.bulk import b\n"),
    "heavy room at the head of a command": ("arrow", "commands/a.py", "from rmqtool.scan import plan\n"),
    "everybody imports nobody's cli": ("arrow", "commands/a.py", "from rmqtool.cli import main\n"),
    "typer": ("third-party", "engine/a.py", "import typer\n"),
    "rich": ("third-party", "commands/a.py", "def f():\n    from rich.table import Table\n"),
    "tabulate": ("third-party", "commands/a.py", "from tabulate import tabulate\n"),
    "construct": ("third-party", "storage/a.py", "import construct as c\n"),
    "construct, lazily": ("third-party", "storage/a.py", "def f():\n    import construct\n"),
    "crcmod": ("third-party", "engine/a.py", "import crcmod.predefined\n"),
    "pyspark": ("third-party", "export/a.py", "from pyspark.sql import types\n"),
    "numpy at the head": ("third-party", "formats/a.py", "import numpy as np\n"),
    "pyarrow at the head": ("third-party", "spark/a.py", "try:\n    import pyarrow\nexcept ImportError:\n    pass\n"),
    "long module": ("module-lines", "formats/a.py", "x = 1\n" * 501),
    "long function": ("function-lines", "formats/a.py", "def f():\n" + "    x = 1\n" * 70),
    "long method": ("function-lines", "formats/a.py", "class A:\n    def f(self):\n" + "        x = 1\n" * 70),
    "long body of a command": ("command-body", "commands/a.py", "def f():\n" + "    x = 1\n" * 26),
    "many parameters": ("parameters", "formats/a.py", "def f(a, b, c, d, *, e, f, g, h):\n    pass\n"),
    "the kernel past its module": ("third-party", "bulk/a.py", "from rmqtool import _native\n"),
    "many parameters, gathered": ("parameters", "formats/a.py", "def f(a, b, c, d, e, f, *g, **h):\n    pass\n"),
    "name of a module": ("name", "formats/record_utils.py", "x = 1\n"),
    "name of a package": ("name", "storage/common/__init__.py", ""),
    "name of a class": ("name", "engine/a.py", "class FlushManager:\n    pass\n"),
    "name of a function": ("name", "engine/a.py", "def flush_helper():\n    pass\n"),
    "open": ("opens-file", "formats/a.py", "def f(p):\n    return open(p)\n"),
    "open of a path": ("opens-file", "formats/a.py", "def f(p):\n    return p.open('rb')\n"),
    "read of a path": ("opens-file", "bulk/a.py", "def f(p):\n    return p.read_bytes()\n"),
    "map": ("opens-file", "bulk/a.py", "def f(p):\n    return np.memmap(p)\n"),
    "struct": ("layout", "storage/a.py", "import struct\n"),
    "struct, lazily": ("layout", "storage/a.py", "def f():\n    from struct import pack\n"),
    "struct format": ("layout", "engine/a.py", "UNIT = '>qiq'\n"),
    "struct format with counts": ("layout", "engine/a.py", "UNIT = '>i4sq 8x'\n"),
    "dtype": ("layout", "bulk/a.py", "def f(b):\n    return np.frombuffer(b, '>i8')\n"),
    "dtype by fields": ("layout", "bulk/a.py", "UNIT = np.dtype([('offset', 'i8')])\n"),
    "number of bytes": ("layout", "storage/a.py", "def f(b):\n    return int.from_bytes(b[:4], 'big')\n"),
    "bytes of a number": ("layout", "storage/a.py", "def f(n):\n    return n.to_bytes(4, 'big')\n"),
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
    "own room": ("storage/a.py", "from rmqtool.storage import b\nfrom . import c\n"),
    "arrows down": (
        "repair/a.py",
        "from rmqtool.engine import a\nfrom rmqtool import findings\nimport rmqtool.errors\n",
    ),
    "version": ("commands/a.py", "from rmqtool import __version__\n"),
    "bulk in engine, lazily": ("engine/a.py", "def f():\n    from rmqtool.bulk import columns\n"),
    "heavy room in a command, lazily": ("commands/a.py", "def f():\n    from rmqtool.spark import job\n"),
    "numpy, lazily": ("formats/a.py", "def f():\n    import numpy\n"),
    "numpy for types": ("formats/a.py", "if TYPE_CHECKING:\n    import numpy\n"),
    "numpy in bulk": ("bulk/a.py", "import numpy\n"),
    "another library of a like name": ("storage/a.py", "import structlog\nimport richer\n"),
    "500 lines": ("formats/a.py", "x = 1\n" * 500),
    "70 lines": ("formats/a.py", "def f():\n" + "    x = 1\n" * 69),
    "25 lines of body below a long head": (
        "commands/a.py",
        "def f(\n"
        + "".join(f"    p{n}: int,\n" for n in range(60))
        + '):\n    """Doc\n\n    Doc."""\n'
        + "    x = 1\n" * 25,
    ),
    "7 parameters and self": ("formats/a.py", "class A:\n    def f(self, a, b, c, d, e, f, g):\n        pass\n"),
    "like a banned name": ("formats/a.py", "def utility_of_commonplace():\n    pass\n"),
    "open in storage": ("storage/a.py", "def f(p):\n    return open(p)\n"),
    "struct in formats": ("formats/a.py", "import struct\nUNIT = struct.Struct('>qiq')\n"),
    "text that is no format": ("render/a.py", "ARROW = '->'\nLESS = '<='\nTAG = '<b>'\nWORDS = '> not a format'\n"),
    "width of a column": ("render/a.py", "def f(x):\n    return f'{x:>8s}'\n"),
    "print in render": ("render/a.py", "def f():\n    print(1)\n"),
    "status of an error": ("cli.py", "def f(error):\n    sys.exit(error.exit_status)\n"),
}


@pytest.mark.parametrize(("file", "text"), KEEPING.values(), ids=KEEPING)
def test_rule_allows(file: str, text: str, tmp_path: Path) -> None:
    assert broken(tmp_path, {file: text}) == []


def test_exemption_covers_its_place_only(tmp_path: Path) -> None:
    long = "x = 1\n" * 501
    broken(tmp_path, {"formats/a.py": long, "formats/b.py": long})
    left = check(tmp_path, {("module-lines", "formats/a.py"): "a table"})
    assert [(violation.rule, violation.place) for violation in left] == [("module-lines", "formats/b.py")]


def test_exemption_that_nothing_needs_is_seen(tmp_path: Path) -> None:
    broken(tmp_path, {"formats/a.py": "x = 1\n"})
    left = check(tmp_path, {("module-lines", "formats/a.py"): "a table"})
    assert [(violation.rule, violation.place) for violation in left] == [("exemption", "formats/a.py")]
