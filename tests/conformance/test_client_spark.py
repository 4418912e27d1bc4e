"""Spark on a standalone cluster with two executors, at a real broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource")

from tests.conformance.own_network import run_alone

pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(2400)]

VERSION = "5.3.3"
_MANY, _ROUNDS = 1_000_000, 3


def _seen(what: str, directory: Path, number: int) -> dict[str, Any]:
    out = directory / "seen.json"
    run_alone("tests.conformance.live_spark", what, VERSION, directory / "run", out, number, timeout=2300)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_a_table_is_what_cat_prints(real_classes: Callable[[str], None], tmp_path: Path) -> None:
    """Each column of each row; both executors read."""
    real_classes(VERSION)
    seen = _seen("read", tmp_path, _MANY)
    assert seen["errors"] == ""
    assert seen["cat"] == 0
    assert seen["different"] == []
    assert seen["same"] == seen["rows"] == seen["sent"] == int(seen["count"]) >= _MANY
    assert seen["left"] == 0
    assert len(seen["tasks"]) == 2
    assert min(seen["tasks"]) > 0


def test_a_stream_has_each_message_once(real_classes: Callable[[str], None], tmp_path: Path) -> None:
    """Drivers, executors and brokers are killed, brokers are stopped, and files that were read are deleted."""
    real_classes(VERSION)
    seen = _seen("stream", tmp_path, _ROUNDS)
    assert seen["last"][0] == 0, seen["last"][1]
    assert all(count >= 1 for count in seen["executors"])
    assert 0 < seen["deleted"][0] < seen["deleted"][-1]
    keys = Counter(key for key, _, _ in seen["rows"])
    assert max(keys.values()) == 1
    stored, unknown = set(seen["stored"]), set(seen["unknown"])
    assert len(stored) > 1_000
    assert stored <= keys.keys() <= stored | unknown, "none of those that were refused"
    for _, rows in groupby(sorted((queue, offset) for _, queue, offset in seen["rows"]), lambda row: row[0]):
        offsets = [offset for _, offset in rows]
        assert offsets == list(range(len(offsets))), "no message of a queue was left out"
    # Messages that were deleted before they were read: a sentence, and then all that are left, once.
    status, said = seen["refused"]
    assert status == 3
    assert "were deleted before they were read" in said
    assert 'option("failOnDataLoss", "false")' in said
    assert seen["went on"][0] == 0
    everything = Counter((queue, offset) for _, queue, offset in seen["all"])
    assert max(everything.values()) == 1
    before = {(queue, offset) for _, queue, offset in seen["rows"]}
    assert everything.keys() - before == {tuple(place) for place in seen["left"]} - before
    assert len(everything) > len(before)
