"""Queues and index files that cannot be read cost a look only themselves: the log is read to its end all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import Exit
from tests.guards.incidents import spoil
from tests.guards.surroundings import bad_sector, unreadable
from tests.guards.typed import json_lines, type_words

MESSAGES = 415
QUEUE = f"consumequeue/T_normal/0/{0:020d}"
FAULTS: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
    "permission": unreadable,
    "bad sector": partial(bad_sector, begin=0, end=4096),
}


@pytest.fixture
def root(writable_store: Any) -> Path:
    """Give a store without findings."""
    found: Path = writable_store("53-broker")
    return found


def victim(root: Path, kind: str) -> str:
    """Return the path of a queue file or of an index file."""
    return QUEUE if kind == "queue" else f"index/{min(path.name for path in (root / 'index').iterdir())}"


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", ["queue", "index"])
def test_check_names_the_file_and_reads_the_log_to_its_end(root: Path, kind: str, fault: str, jobs: str) -> None:
    file = victim(root, kind)
    with FAULTS[fault](root / file):
        typed = type_words(["check", str(root), "--jsonl", "-j", jobs])
    *found, last = json_lines(typed)
    assert [(one["code"], one["file"]) for one in found] == [("ST-READ", file)]
    assert typed.status == Exit.SKIPPED
    assert (last["summary"]["messages"], last["summary"]["complete"]) == (MESSAGES, False)


def test_check_still_finds_what_is_wrong_elsewhere(root: Path) -> None:
    spoil(root / f"consumequeue/T_normal/1/{0:020d}", 27, 1)
    with unreadable(root / QUEUE):
        *found, _ = json_lines(type_words(["check", str(root), "--jsonl"]))
    assert [(one["code"], one["file"]) for one in found] == [
        ("ST-READ", QUEUE),
        ("CQ-WRONG", f"consumequeue/T_normal/1/{0:020d}"),
    ]


@pytest.mark.parametrize("fault", FAULTS)
def test_readers_of_the_log_do_not_need_the_queue(root: Path, fault: str, tmp_path: Path) -> None:
    with FAULTS[fault](root / QUEUE):
        exported = type_words(["export", str(root), "--engine", "local", "--to", str(tmp_path / "lake"), "--json"])
        salvaged = type_words(["copy", str(root), str(tmp_path / "new"), "--salvage", "--json"])
    assert exported.status == Exit.DONE
    assert json.loads(exported.out)["rows"] == MESSAGES
    assert json.loads(salvaged.out)["messages"] == MESSAGES
    assert type_words(["check", str(tmp_path / "new")]).status == Exit.DONE
