"""The same input at the same times gives the same bytes: real stores put again, message by message.

Every file of log, queues and index is compared as a whole. Those that differ are named below, each with its reason.
"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.conftest import Unpacker
from tests.support.replay import Likeness, differences, replay
from tests.support.stores import STORES, truth

ONLY_REAL, ONLY_OURS, AS_WRITTEN, DIFFERENT = Likeness

# The log of 49-dledger is its group's, and killed stores are not what their messages alone would give.
REPLAYED = tuple(name for name in STORES if truth(name)["clean_shutdown"] and name != "49-dledger")

_GONE = "the replay begins where the log does; units of the messages deleted before stand in front of ours"
_ALL_GONE = "every message of this queue was deleted from the log"
_INDEXED_BEFORE = "the real index begins with messages that the log has lost, so every later entry has another number"
_STALE = "behind the end lie bytes of records that a recovery cut off"
_STALE_UNITS = "behind the end lie units of records that a recovery cut off"
_REBUILT = "the recovery rebuilt this file from a later record on"
_POOL = "behind the head of a blank lie bytes that stood in the buffer before"
_ROCKSDB = "the real queues are in RocksDB"

_ONLY_ROCKSDB: dict[str, tuple[Likeness, str]] = {
    "consumequeue/*/[012]/00000000000000000000": (ONLY_OURS, _ROCKSDB),
    "consumequeue/[!/]*": (ONLY_REAL, _ROCKSDB),
}

DIFFER: dict[str, dict[str, tuple[Likeness, str]]] = {
    "49-cleaned": {
        "consumequeue/Ancient/0/00000000000000000800": (ONLY_REAL, _ALL_GONE),
        "consumequeue/Tail/0/00000000000000000000": (ONLY_REAL, _ALL_GONE),
        "consumequeue/Live/[12]/00000000000000000800": (AS_WRITTEN, _GONE),
        "consumequeue/Mixed/0/00000000000000000000": (AS_WRITTEN, _GONE),
        "consumequeue/Mixed/1/00000000000000000400": (AS_WRITTEN, _GONE),
        "index/*": (DIFFERENT, _INDEXED_BEFORE),
    },
    "49-ghost": {
        "commitlog/00000000000000196608": (AS_WRITTEN, _STALE),
        "consumequeue/KillT/[12]/00000000000000001800": (AS_WRITTEN, _STALE_UNITS),
        "consumequeue/KillT2/[012]/00000000000000000600": (AS_WRITTEN, _STALE_UNITS),
        "index/1": (DIFFERENT, _REBUILT),
    },
    "49-offpool": {
        "commitlog/00000000000000262144": (AS_WRITTEN, _POOL),
        "commitlog/00000000000000327680": (AS_WRITTEN, _POOL),
    },
    "49-recovered": {
        "commitlog/00000000000000196608": (AS_WRITTEN, _STALE),
        "consumequeue/KillT/[012]/00000000000000001800": (AS_WRITTEN, _STALE_UNITS),
        "consumequeue/KillT2/[012]/00000000000000000600": (AS_WRITTEN, _STALE_UNITS),
        "index/1": (DIFFERENT, _REBUILT),
    },
    "53-cleaned": {
        "consumequeue/%RETRY%*/[012]/00000000000000000000": (AS_WRITTEN, _GONE),
        "consumequeue/Solo/0/00000000000000000000": (AS_WRITTEN, _GONE),
        "consumequeue/TopicA/[023]/00000000000000000000": (AS_WRITTEN, _GONE),
        "consumequeue/TopicB/[01]/00000000000000000000": (AS_WRITTEN, _GONE),
        "index/[012]": (DIFFERENT, _INDEXED_BEFORE),
        "index/3": (ONLY_REAL, _INDEXED_BEFORE),
    },
    "53-rocksdb": _ONLY_ROCKSDB,
    "54-rocksone": _ONLY_ROCKSDB,
    "54-combine": {"consumequeue/[!/]*": (ONLY_REAL, "these are the files of RocksDB, which holds the queues too")},
}

# How many property texts were handed over as they are, since no hash map gives them: laid by hand, or client batches.
TEXTS = {
    "49-broker": 25,
    "49-compressed-batch": 61,
    "53-basic": 20,
    "53-cleaned": 12,
    "53-compress": 6,
    "53-crc": 6,
    "53-epoch": 2,
    "53-multidir": 10,
    "54-basic": 20,
}


@pytest.mark.parametrize("name", REPLAYED)
def test_the_same_messages_give_the_same_files(name: str, store: Unpacker, tmp_path: Path) -> None:
    replayed = replay(name, store(name), tmp_path)
    assert replayed.sources["text"] == TEXTS.get(name, 0)
    _assert_as_expected(name, differences(store(name), replayed))


@pytest.mark.parametrize("name", [name for name in REPLAYED if not name.endswith("cleaned")])
def test_a_store_that_is_opened_again_goes_on_where_it_was(
    name: str, store: Unpacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And records that are dispatched by columns get the same units and entries."""
    monkeypatch.setattr("rmqtool.engine.dispatch.LEAST_FOR_BULK", 1)
    monkeypatch.setattr("rmqtool.engine.dispatch.LEAST_TO_LOAD_BULK", 1)
    replayed = replay(name, store(name), tmp_path, reopen_every=37)
    _assert_as_expected(name, differences(store(name), replayed))


def _assert_as_expected(name: str, found: dict[str, Likeness]) -> None:
    expected = DIFFER.get(name, {})
    unexplained = {path: likeness.value for path, likeness in found.items() if not _explain(path, likeness, expected)}
    assert not unexplained
    used = {pattern for path, likeness in found.items() for pattern in _explain(path, likeness, expected)}
    assert used == expected.keys(), "what is named does not differ any more"


def _explain(path: str, likeness: Likeness, expected: dict[str, tuple[Likeness, str]]) -> list[str]:
    return [pattern for pattern, (wanted, _) in expected.items() if wanted is likeness and fnmatch(path, pattern)]


def test_both_hash_maps_of_5_x_are_met(store: Unpacker, tmp_path: Path) -> None:
    """Of the records of a broker's life, so many fit only the map of a decoded text, so many only a new one."""
    bins: Counter[str] = Counter()
    for source, count in replay("53-broker", store("53-broker"), tmp_path).sources.items():
        bins[source.split(",")[0]] += count
    assert bins == {"128 bins": 342, "16 bins": 73}
