"""The tour of the code is true: each journey crosses the files that ``docs/tour.md`` lists, and no more than before."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from rmqtool.kernel import NATIVE
from tests.architecture import house
from tests.architecture.journeys import JOURNEYS, ROOT, Crossed, crossed, trace_journey
from tests.architecture.tour import STORE, TOUR, read_lists, with_lists
from tests.conftest import Unpacker

AGAIN = "write the lists again: .venv/bin/python -m tests.docs"


@pytest.mark.skipif(NATIVE is None, reason="the tour is that of the compiled kernel")
@pytest.mark.parametrize("name", JOURNEYS)
def test_a_journey_crosses_the_files_of_the_tour(name: str, store: Unpacker, tmp_path: Path) -> None:
    if name == "spark":
        pytest.importorskip("pyspark")
    files = list(trace_journey(name, store(STORE), tmp_path))
    assert files == list(read_lists(TOUR.read_text(encoding="utf-8"))[name]), AGAIN


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_journey_gets_shorter(name: str) -> None:
    """The ceilings of the journeys may only fall."""
    assert len(read_lists(TOUR.read_text(encoding="utf-8"))[name]) <= house.JOURNEYS[name]


def test_the_tour_names_functions_that_there_are() -> None:
    missing = [
        f"{file}: {function}"
        for files in read_lists(TOUR.read_text(encoding="utf-8")).values()
        for file, function in files.items()
        if function.rpartition(".")[2] not in _functions(ROOT / file)
    ]
    assert missing == [], AGAIN


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_a_trace_has_files_in_the_order_of_entry() -> None:
    from rmqtool.formats import ids, java

    def task() -> None:
        java.crc31(b"x")
        ids.encode_uniq_key(ids.UniqKey(b"\x7f\x00\x00\x01", 1, 2, 3, 4))
        java.crc31(b"x")

    assert crossed(task) == {"formats/java.py": "crc31", "formats/ids.py": "encode_uniq_key"}


def test_lists_are_written_and_read_again() -> None:
    journey: Crossed = {"cli.py": "main", "formats/java.py": "crc31"}
    text = with_lists(
        "# Tour\n\n<!-- journey: put -->\n<!-- end -->\n<!-- journey: cat -->\n<!-- end -->\n", {"put": journey}
    )
    assert read_lists(text) == {"put": journey, "cat": {}}
    assert "2 files:" in text
    assert with_lists(text, {"put": journey}) == text
