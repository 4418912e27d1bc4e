"""Queues that are gone, for who has a message of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.commit_log import Message
from rmqtool.log.end import read_record
from rmqtool.look import absent_queues
from rmqtool.look.place_search import check_units
from rmqtool.store.open import Store, open_store

# Messages of T_normal/2 in the log of 53-broker.
PLACES = (38361, 54496, 89074, 103983)


@pytest.fixture
def root(writable_store: Callable[[str], Path], tmp_path: Path) -> Path:
    found = writable_store("53-broker")
    shutil.move(found / "consumequeue/T_normal/2", tmp_path / "aside")
    return found


def messages_of(store: Store) -> list[Message]:
    return [message for place in PLACES if (message := read_record(store.commit_log, place)) is not None]


def test_all_queues_are_read_once_for_all_messages(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20,000 queues each look takes seconds."""
    looks: list[int] = []
    real = absent_queues.greatest_end
    monkeypatch.setattr(absent_queues, "greatest_end", lambda queues: looks.append(1) or real(queues))
    with open_store(str(root)) as store:
        assert [found.code for found in check_units(store, messages_of(store))] == ["CQ-MISSING"] * len(PLACES)
    assert looks == [1]


def test_a_queue_that_was_created_since_the_store_was_listed_is_not_missing(root: Path, tmp_path: Path) -> None:
    with open_store(str(root)) as store:
        assert [found.code for found in check_units(store, messages_of(store)[:1])] == ["CQ-MISSING"]
        shutil.move(tmp_path / "aside", root / "consumequeue/T_normal/2")
        assert not list(check_units(store, messages_of(store)))
