"""What a living broker (4.9.7) answered to pulls with SQL92 filters, and the bit maps that it wrote while dispatching.

The data are taken from the truth of the store 49-ext: all messages of its topic, the rows ``sqlGetMessage``, how many
messages each consumer received, the registered filters and the bit maps of the queues' extension units.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqtool.filters.columns import match_columns
from rmqtool.filters.sql92 import parse_selector
from rmqtool.formats.bloom import bit_positions, make_bit_map, may_match

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "49-ext.sql.json").read_text(encoding="utf-8"))
MESSAGES: list[dict[str, Any]] = RECORDED["messages"]
ROWS: list[dict[str, Any]] = RECORDED["sqlGetMessage"]
FILTERS: dict[str, dict[str, Any]] = RECORDED["filters"]


class MessageColumns:
    """The recorded messages as columns."""

    rows = len(MESSAGES)

    def column(self, name: str) -> Any:
        import numpy as np

        return np.array([message["properties"].get(name) for message in MESSAGES], object)


def test_the_record_is_whole() -> None:
    assert (len(MESSAGES), len(ROWS), sorted(FILTERS)) == (176, 36, ["sql_a", "sql_b", "sql_c"])
    assert sum(len(row["phyOffsets"]) for row in ROWS) == 180


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['group']}-{row['queueId']}-{row['offset']}")
def test_get_message(row: dict[str, Any]) -> None:
    """A pull walks to ``nextBeginOffset``; of the units passed it returns those that match."""
    selector = parse_selector(row["expression"], whole=True)
    passed = [
        message
        for message in sorted(MESSAGES, key=lambda message: message["queueOffset"])
        if message["queueId"] == row["queueId"] and row["offset"] <= message["queueOffset"] < row["nextBeginOffset"]
    ]
    found = [message["commitLogOffset"] for message in passed if selector.matches(message["properties"])]
    assert found == row["phyOffsets"]
    assert row["status"] == ("FOUND" if found else "NO_MATCHED_MESSAGE")


@pytest.mark.parametrize("group", FILTERS)
def test_consumed(group: str) -> None:
    selector = parse_selector(FILTERS[group]["expression"], whole=True)
    found = [selector.matches(message["properties"]) for message in MESSAGES]
    assert sum(found) == FILTERS[group]["consumed"]
    assert match_columns(selector, MessageColumns()).tolist() == found


def test_bit_maps() -> None:
    """Each unit has exactly the bits of the groups whose filter matched."""
    positions = {group: bit_positions(group, "SqlTopic") for group in FILTERS}
    assert positions == {group: tuple(found["bitPos"]) for group, found in FILTERS.items()}
    selectors = {group: parse_selector(found["expression"]) for group, found in FILTERS.items()}
    compared = 0
    for message in MESSAGES:
        if message["filterBitMap"] is None:  # dispatched before any group had registered
            continue
        matched = [group for group, selector in selectors.items() if selector.matches(message["properties"])]
        bit_map = make_bit_map(positions[group] for group in matched)
        assert bit_map.hex() == message["filterBitMap"]
        assert all(may_match(bit_map, positions[group]) for group in matched)
        compared += 1
    assert compared == 175
