"""What ``docs/spark.md`` shows is run: commands and programs, on a store and into a directory of these tests."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.cli import main
from rmqtool.errors import Exit
from rmqtool.exports.choice import DEFAULT
from rmqtool.spark import options

Unpacker = Callable[[str], Path]
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
GUIDE = PAGE.read_text(encoding="utf-8")
START, END = "## Recipes", "## On a cluster"
RECIPES = GUIDE[GUIDE.index(START) : GUIDE.index(END)]
# Run by tests/unit/export/test_readers.py.
READERS = GUIDE[GUIDE.index("## Read with DuckDB") : GUIDE.index("## Read with Spark")]
# Run by test_cluster_source.py.
CLUSTER = GUIDE[GUIDE.index("## Read a live cluster") : GUIDE.index("## Write a store")]
# Run by tests/cli/test_export_delta.py.
DELTA = GUIDE[GUIDE.index("### A Delta table") : GUIDE.index("## Read with DuckDB")]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

RECIPE = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)\n```\n)?", re.MULTILINE | re.DOTALL)


def _without(*parts: str) -> str:
    text = GUIDE
    for part in parts:
        text = text.replace(part, "")
    return text


def blocks(language: str, root: Path, to: Path) -> list[str]:
    """Return the blocks of a language, with a store and a directory that are there."""
    texts = [text for name, text in BLOCK.findall(_without(RECIPES, READERS, CLUSTER, DELTA)) if name == language]
    return [text.replace("/stores/broker-a", str(root)).replace("/lake", str(to)) for text in texts]


def test_commands_of_the_guide(spark: Any, store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for text in blocks("sh", store("54-broker"), tmp_path) for line in text.splitlines()]
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "rmqtool"
        assert main(words) == Exit.DONE, line
    assert len(lines) == 4
    assert "418 messages" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("days", "days_manifest"),
        *("messages", "messages_manifest"),
    ]


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_programs_of_the_guide(
    spark: Any, store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """By default those that read: the recipes follow a store and write one, too."""
    names: dict[str, Any] = {}
    texts = blocks("python", store("54-broker"), tmp_path)
    for text in texts[:count]:
        exec(compile(text, "docs/spark.md", "exec"), names)
    shown = capsys.readouterr().out
    assert len(texts) == 5
    assert "T_normal|  140|" in shown
    assert "|queue_id|last|" in shown
    if count == len(texts):
        assert spark.read.parquet(str(tmp_path / "stream")).count() == 418
        assert spark.read.format("rocketmq").load(str(tmp_path / "orders")).count() == 6
        assert spark.read.format("rocketmq").option("topic", "Orders").load(str(tmp_path / "copied")).count() == 140
    assert names["orders"].count() == names["orders"].filter("startswith(topic, 'T_')").count() > 200


@pytest.mark.slow
def test_recipes_give_what_the_guide_shows(
    spark: Any, store: Unpacker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each block is followed by what it prints. RMQTOOL_UPDATE_GOLDEN=1 writes that anew."""
    roots = {"/stores/broker-a": store("54-broker"), "/stores/broker-b": store("53-broker"), "/lake": tmp_path}
    names: dict[str, Any] = {"spark": spark}
    written = next(text for text in blocks("python", roots["/stores/broker-a"], tmp_path) if "/orders" in text)
    exec(compile(written, "docs/spark.md", "exec"), names)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    capsys.readouterr()
    shown = []
    for language, text, answer in RECIPE.findall(RECIPES):
        placed = text
        for name, root in roots.items():
            placed = placed.replace(name, str(root))
        if language == "python":
            exec(compile(placed, "docs/spark.md", "exec"), names)
        else:
            assert [main(shlex.split(line)[1:]) for line in placed.splitlines()] == [Exit.DONE] * 2
            capsys.readouterr()  # it names the directory of this test
        found = capsys.readouterr().out
        shown.append((text, answer, "\n".join(line.rstrip() for line in found.splitlines() if line)))
    if os.environ.get("RMQTOOL_UPDATE_GOLDEN"):
        _write_answers(shown)
    else:
        assert [answer for _, answer, _ in shown] == [found for _, _, found in shown]
    assert len(shown) == 11


def _write_answers(shown: list[tuple[str, str, str]]) -> None:
    text = GUIDE
    for block, answer, found in shown:
        old = f"{block}```\n" + (f"\n```text\n{answer}\n```\n" if answer else "")
        text = text.replace(old, f"{block}```\n" + (f"\n```text\n{found}\n```\n" if found else ""))
    PAGE.write_text(text, encoding="utf-8")


OPTION = re.compile(r"""\.option\("(\w+)", """)


def test_every_program_of_the_guide_compiles_and_names_known_options() -> None:
    """All are run by the long tests; some by the others."""
    programs = [text for language, text in BLOCK.findall(GUIDE) if language == "python"]
    assert len(programs) > 15
    named = set()
    for text in programs:
        compile(text, "docs/spark.md", "exec")
        named |= set(OPTION.findall(text))
    assert len(named) > 5
    assert named <= {*options.NAMES, "checkpointLocation"}


def test_every_option_is_in_the_guide() -> None:
    options_of_reading = GUIDE[GUIDE.index("## Read with Spark") : GUIDE.index("## Follow a store")]
    rows = re.findall(r"^\| (`.*?) \|", options_of_reading, re.MULTILINE)
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert set(options.NAMES) <= named
    assert named <= {*options.NAMES, "load"} | set(DEFAULT.columns)
