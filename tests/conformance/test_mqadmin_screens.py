"""mqadmin of three versions prints the same at ``rmqtool serve`` as at a real broker with the same history."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.mqadmin_commands import INTENDED, TABLE_SIZES, TABLES, iter_table, masked
from tests.conformance.own_network import run_alone

pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.parametrize(("tools", "broker"), [("4.9.7", "4.9.7"), ("5.3.3", "5.3.3"), ("5.5.0", "5.4.0")])
def test_screens_are_the_same(tools: str, broker: str, real_classes: Callable[[str], None], tmp_path: Path) -> None:
    real_classes(broker)
    out = tmp_path / "screens.json"
    run_alone("tests.conformance.live_mqadmin", tools, broker, tmp_path / "run", out, timeout=1400)
    seen = json.loads(out.read_text())
    different = [
        f"$ {line}\n{text}"
        for (line, real), (_, served) in zip(seen["real"], seen["served"], strict=True)
        if (text := difference(line, real, served))
    ]
    assert not different, "\n".join(different)
    assert len(seen["real"]) > 100


def difference(line: str, real: str, served: str) -> str:
    """Return in what a screen differs; nothing if it is right."""
    for start, (expected, _) in INTENDED.items():
        if line.startswith(start):
            return "" if re.search(expected, served, re.DOTALL) else served
    if (command := line.split(maxsplit=1)[0]) in TABLES:
        theirs, ours = dict(iter_table(real)), dict(iter_table(served))
        free = TABLES[command].split()
        common = [name for name in ours if name in theirs and name not in free]
        assert len(common) >= TABLE_SIZES[command], sorted(theirs.keys() - ours.keys())
        wrong = {name: (theirs[name], ours[name]) for name in common if masked(theirs[name]) != masked(ours[name])}
        return f"{wrong}" if wrong else ""
    pairs = difflib.unified_diff(masked(real), masked(served), lineterm="", n=0)
    return "\n".join(text for text in pairs if not text.startswith(("---", "+++", "@@")))


def test_a_difference_is_found() -> None:
    row = "broker-a   0   0   2   2026-11-20 08:20:02,793\n"
    assert difference("topicStatus -t Orders", row, row.replace("08:20:02,793", "09:00:00,001")) == ""
    assert "+broker-a 0 0 3 TIME" in difference("topicStatus -t Orders", row, row.replace(" 2 ", " 3 "))
    assert difference("topicStatus -t Orders", row, "") == "-broker-a 0 0 2 TIME"
    # What only one of both shows in a table of settings is not compared, a value of both is.
    shown = "".join(f"name{number} = {number}\n" for number in range(50))
    assert difference("getBrokerConfig -b B", f"{shown}further = 1\n", f"{shown}own = 2\n") == ""
    assert "name7" in difference("getBrokerConfig -b B", shown, shown.replace("name7 = 7", "name7 = 8"))
    assert difference("updateBrokerConfig -b B", "success", "CODE: 3 request type 25 not supported")
