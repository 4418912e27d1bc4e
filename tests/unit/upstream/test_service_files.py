"""The files of a store's services at a start, as starts of the real classes on random damage showed it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.files.overlay import Action
from tests.support.recovery import rehearsed

POSITIONS = "compaction/position-checkpoint"
EMPTY = b'{\n\t"empty":true,\n\t"queueOffsetMap":{\n\t\t\n\t}\n}'
SOME = b'{"empty":false,"queueOffsetMap":{"T_0":5}}'


@pytest.mark.parametrize("damage", [b"", b'{"of'], ids=["empty", "cut"])
def test_what_5_4_cannot_read_of_the_compaction_it_deletes(
    damage: bytes, writable_store: Callable[[str], Path]
) -> None:
    root = writable_store("54-basic")
    (root / POSITIONS).write_bytes(damage)
    with rehearsed(root, "5.4.0", ()) as (outcome, overlay):
        assert [change.path for change in outcome.changes if change.action is Action.DELETE] == [POSITIONS]
        with overlay.open_read(POSITIONS) as file:
            assert file.pread(file.size(), 0) == EMPTY
        assert not overlay.exists(POSITIONS + ".bak")


def test_5_3_keeps_it_as_the_copy(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("53-basic")
    (root / POSITIONS).write_bytes(b'{"of')
    (root / f"{POSITIONS}.bak").write_bytes(SOME)
    with rehearsed(root, "5.3.3", ()) as (outcome, overlay):
        assert [change.path for change in outcome.changes if change.action is Action.DELETE] == []
        with overlay.open_read(f"{POSITIONS}.bak") as file:
            assert file.pread(file.size(), 0) == b'{"of'
        with overlay.open_read(POSITIONS) as file:
            assert b'"T_0":5' in file.pread(file.size(), 0)
