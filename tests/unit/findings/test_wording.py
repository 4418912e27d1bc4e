from __future__ import annotations

from rmqtool.findings.finding import counted


def test_one_is_one_and_many_are_many():
    assert counted(1, "unit") == "1 unit"
    assert counted(0, "unit") == "0 units"
    assert counted(12_345, "entry leads", "entries lead") == "12345 entries lead"
