"""``docs/client.md`` is what happens: its examples are executed, and mypy accepts them."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api

import rmqtool
from tests.docs.__main__ import MAN

GUIDE = MAN.parent / "docs" / "client.md"
ADDRESS = "127.0.0.1:9876"


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The guide, with the address of a server in memory, and a directory for what it writes."""
    monkeypatch.chdir(tmp_path)
    with rmqtool.serve(memory=True) as served:
        with rmqtool.connect(f"rocketmq://{served.names}") as cluster:
            cluster.topic("create", "Orders", queues=4)
        path = tmp_path / "client.md"
        text = GUIDE.read_text(encoding="utf-8").replace(ADDRESS, served.names)
        # On a machine with much other work.
        text = re.sub(r"timeout=(\d+)", lambda found: f"timeout={5 if found[1] == '2' else 60}", text)
        path.write_text(text, encoding="utf-8")
        yield path


def test_the_guide_is_what_happens(guide: Path) -> None:
    ran = doctest.testfile(str(guide), module_relative=False, encoding="utf-8", optionflags=doctest.REPORT_NDIFF)
    assert ran.attempted > 18
    assert ran.failed == 0


def test_the_examples_are_well_typed(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 10
    lines = [line[4:] for block in blocks for line in block.splitlines() if line.startswith((">>>", "..."))]
    script = tmp_path / "examples.py"
    script.write_text("\n".join(lines) + "\n")
    said, errors, status = api.run(["--strict", "--no-incremental", "--follow-imports=silent", str(script)])
    assert (status, errors) == (0, ""), said
