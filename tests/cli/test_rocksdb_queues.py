"""Damaged queues in RocksDB: `check` names file or queue, `repair` makes them whole, and undo takes it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import Exit
from tests.guards.typed import json_lines, type_words
from tests.support.row_damage import DAMAGES, Found, bound_key, change_rows, entry_key
from tests.support.stores import tree_changes, tree_state

pytest.importorskip("rocksdict", reason="needs the extra rocksdb")
SHORT = ("table cut", "manifest cut", "row gone", "max gone", "min too high", "behind by 20")


def findings(root: Path, *words: str) -> list[dict[str, Any]]:
    return [one for one in json_lines(type_words(["check", str(root), "--jsonl", *words])) if "code" in one]


def restorable(root: Path) -> dict[str, Any]:
    return {path: one._replace(ctime_ns=0, mtime_ns=0) for path, one in tree_state(root).items() if path != "lock"}


# The files of both are alike: of the second one damage of each kind is enough.
@pytest.mark.parametrize(
    ("name", "damage"), [*(("53-rocksdb", one) for one in DAMAGES), *(("54-rocksone", one) for one in SHORT)]
)
def test_damage_is_named_and_repaired(name: str, damage: str, writable_store: Callable[[str], Path]) -> None:
    root = writable_store(name)
    DAMAGES[damage].apply(root)
    before = restorable(root)
    code, file, queue_offset = DAMAGES[damage].found
    found = [
        Found(one["code"], one["file"].partition("/")[2], one["data"].get("queueOffset"))
        for one in findings(root)
        if one.get("topic") in (None, "RocksA", "CHECKPOINT_TOPIC")
    ]
    assert any((one.code, one.file) == (code, file) and queue_offset in (None, one.queue_offset) for one in found), (
        found
    )
    repaired = type_words(["repair", str(root), "--apply", "--quiet"])
    assert repaired.status == Exit.DONE, repaired.said
    assert findings(root) == []
    assert json.loads(type_words(["repair", str(root), "--json"]).out)["steps"] == []
    assert type_words(["repair", str(root), "--undo", "last"]).status == Exit.DONE
    assert tree_changes(before, restorable(root)) == []


@pytest.mark.parametrize("damage", ["row gone", "max gone", "max too low", "min too high", "manifest cut"])
def test_queues_in_files_and_in_rocksdb_differ(damage: str, writable_store: Callable[[str], Path]) -> None:
    """Consumers read the files: these are warnings. Nothing was said before."""
    root = writable_store("54-combine")
    DAMAGES[damage].apply(root)
    found = [one for one in findings(root) if one.get("topic") == "RocksA"]
    assert {(one["code"], one["severity"]) for one in found} == {(DAMAGES[damage].found.code, "warning")}
    assert {one["consequence"] for one in found} == {
        "consumers read the queue in files; a broker that reads RocksDB does not serve these messages"
    }
    assert type_words(["repair", str(root), "--apply", "--quiet"]).status == Exit.DONE
    assert findings(root) == []


def test_a_queue_that_a_broker_began_in_rocksdb_is_sound(writable_store: Callable[[str], Path]) -> None:
    """upstream 5.4: a queue in files that is not in RocksDB yet gets two bounds without a row."""
    from rmqtool.store.database_copy import DatabaseCopy, Row

    def begun(copy: DatabaseCopy) -> list[Row]:
        rows = [Row("default", key, None) for key, _ in copy.rows.iter_rows("default", entry_key(0)[:-13])]
        assert len(rows) == 93
        bounds = [
            Row("offset", bound_key(name, queue_id=queue), (0).to_bytes(8) + at.to_bytes(8))
            for queue, end in enumerate((30, 30, 33))
            for name, at in (("max", end - 1), ("min", end))
        ]
        return [*rows, *bounds]

    root = writable_store("54-combine")
    change_rows(root, begun)
    assert findings(root) == []
    assert json.loads(type_words(["repair", str(root), "--json"]).out)["steps"] == []


def test_rows_of_a_deleted_topic_are_not_missing(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("54-combine")
    assert type_words(["topic", str(root), "delete", "RocksB", "--yes"]).status == Exit.DONE
    found = findings(root)
    assert [(one["code"], one["severity"], one["topic"]) for one in found] == [("CF-TOPIC", "notice", "RocksB")]


def test_how_far_the_log_is_dispatched_may_lag(writable_store: Callable[[str], Path]) -> None:
    """A broker dispatches what follows again, and changes no row: `check` and `repair` both leave it."""
    from rmqtool.store.database_copy import Row

    root = writable_store("53-rocksdb")
    change_rows(root, [Row("offset", bound_key("max", "CHECKPOINT_TOPIC"), (100).to_bytes(8))])
    assert findings(root) == []
    assert json.loads(type_words(["repair", str(root), "--json"]).out)["steps"] == []
