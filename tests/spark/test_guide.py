"""What ``docs/spark.md`` shows is run: commands and programs, on a store and into a directory of these tests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.export.choice import DEFAULT
from rmqtool.spark import options

Unpacker = Callable[[str], Path]
GUIDE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, root: Path, to: Path) -> list[str]:
    """Return the blocks of a language, with a store and a directory that are there."""
    texts = [text for name, text in BLOCK.findall(GUIDE) if name == language]
    return [text.replace("/stores/broker-a", str(root)).replace("/lake", str(to)) for text in texts]


def test_commands_of_the_guide(spark: Any, store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for text in blocks("sh", store("54-broker"), tmp_path) for line in text.splitlines()]
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "rmqtool"
        assert main(words) == Exit.DONE, line
    assert len(lines) == 4
    assert "418 messages" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["days", "messages"]


def test_programs_of_the_guide(spark: Any, store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    texts = blocks("python", store("54-broker"), tmp_path)
    for text in texts:
        exec(compile(text, "docs/spark.md", "exec"), names)
    shown = capsys.readouterr().out
    assert len(texts) == 3
    assert "T_normal|  140|" in shown
    assert "|queue_id|last|" in shown
    assert spark.read.parquet(str(tmp_path / "stream")).count() == 418
    assert names["orders"].count() == names["orders"].filter("startswith(topic, 'T_')").count() > 200


def test_every_option_is_in_the_guide() -> None:
    rows = re.findall(r"^\| (`.*?) \|", GUIDE, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert set(options.NAMES) <= named
    assert named <= {*options.NAMES, "load"} | set(DEFAULT.columns)
