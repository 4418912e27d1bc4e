"""Where the log ends, found from its queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.scan.stores import read_store_log
from tests.builders import blank, queue_unit, record

SEGMENT = 4096


@pytest.mark.timeout(30)
@pytest.mark.parametrize("empty", [[SEGMENT], [SEGMENT, 2 * SEGMENT]])
def test_empty_segments_behind_the_last_record_end_the_walk(empty: list[int], tmp_path: Path) -> None:
    """An empty segment ends where it begins: the walk must not take it for its own successor."""
    data = record(b"body", b"T")
    log, queue = tmp_path / "commitlog", tmp_path / "consumequeue" / "T" / "0"
    for directory in (log, queue):
        directory.mkdir(parents=True)
    full = data + blank(SEGMENT - len(data))
    (log / f"{0:020}").write_bytes(full.ljust(SEGMENT, b"\0"))
    for base in empty:
        (log / f"{base:020}").touch()
    (queue / f"{0:020}").write_bytes(queue_unit(0, len(data), 0))
    end = read_store_log(str(tmp_path)).end
    assert end.physical_offset == len(data)
    assert end.last is not None
    assert end.last.physical_offset == 0
