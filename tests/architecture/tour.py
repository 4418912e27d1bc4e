"""``docs/tour.md``: the files of each journey in the order crossed, written between the words of the tour.

``python -m tests.architecture.tour`` writes the lists again, and so does ``make docs``.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rmqtool.kernel import NATIVE
from tests.architecture.journeys import JOURNEYS, ROOT, Crossed, trace_journey
from tests.support.stores import unpack

TOUR = ROOT.parent / "docs" / "tour.md"
STORE = "49-basic"
_LIST = re.compile(r"<!-- journey: (?P<name>\w+) -->\n(?P<items>.*?)<!-- end -->", re.S)
_ITEM = re.compile(r"^1\. \[`(?P<file>[^`]+)`\]\(\S+\) `(?P<function>[^`]+)`: (?P<why>.+)$", re.M)
_SENTENCE_END = re.compile(r"(?<=[.?!])\s|:\s*\n|\n\n")


def read_lists(text: str) -> dict[str, Crossed]:
    """Return the lists of a tour: of each journey the files in their order, each with the function named there."""
    return {
        block["name"]: {item["file"]: item["function"] for item in _ITEM.finditer(block["items"])}
        for block in _LIST.finditer(text)
    }


def with_lists(text: str, journeys: Mapping[str, Crossed]) -> str:
    """Return a tour with the lists of ``journeys``; a list whose journey is not among them stays."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in journeys:
            return match[0]
        items = "\n".join(_item(file, function) for file, function in journeys[name].items())
        return f"<!-- journey: {name} -->\n{len(journeys[name])} files:\n\n{items}\n<!-- end -->"

    return _LIST.sub(block, text)


def _item(file: str, function: str) -> str:
    return f"1. [`{file}`](../rmqtool/{file}) `{function}`: {_first_sentence(ROOT / file)}"


def _first_sentence(path: Path) -> str:
    """Return what a module is about."""
    about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(_SENTENCE_END.split(about, maxsplit=1)[0].split()).replace("``", "`")


def write_tour() -> None:
    """Trace the journeys with the compiled kernel, and write their lists; without the kernel write nothing."""
    if NATIVE is None:
        print(f"{TOUR.name} is not written without the kernel: run python native/compile_kernel.py")
        return
    with tempfile.TemporaryDirectory(prefix="rmqtool-journeys-") as directory:
        work = Path(directory)
        store = unpack(STORE, work / "store")
        journeys = {name: trace_journey(name, store, work) for name in JOURNEYS}
    TOUR.write_text(with_lists(TOUR.read_text(encoding="utf-8"), journeys), encoding="utf-8")


if __name__ == "__main__":
    write_tour()
