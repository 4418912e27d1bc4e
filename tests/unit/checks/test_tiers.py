"""Damage in a tier: each finding by its code and place, of the tier alone and with its store."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool import check
from rmqtool.findings import Finding
from tests.support.stores import left_alone

BROKER = "tier/212d6b50_DefaultCluster/broker-a"
LOG = "Orders/0/COMMIT_LOG"
QUEUE = "Orders/0/CONSUME_QUEUE"
SECOND = f"{LOG}/880245e800000000000000029990"
INDEX = "rmq_sys_INDEX/0/INDEX/cfcd208400000000000000000000"


def findings_of(path: Path) -> list[Finding]:
    checked = check(str(path))
    found = list(checked)
    assert checked.summary.complete
    return [finding for finding in found if finding.severity != "notice"]


def codes_of(path: Path) -> list[tuple[str, str | None, int | None]]:
    return [(finding.code, finding.file, finding.offset) for finding in findings_of(path)]


@pytest.mark.parametrize("name", ["tiers/53-tier", "tiers/53-tier-killed"])
def test_a_sound_tier_has_no_finding(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    with left_alone(root):
        assert findings_of(root / "tier") == []
        found = findings_of(root)
    assert [finding for finding in found if finding.code.startswith(("TI", "CL"))] == []


def test_what_was_verified_is_said(store: Callable[[str], Path]) -> None:
    checked = check(str(store("tiers/53-tier")))
    list(checked)
    assert any("tier: 538 messages, queue entries, index files, metadata" in words for words in checked.summary.proven)
    alone = check(str(store("tiers/53-tier") / "tier"))
    list(alone)
    assert (alone.summary.messages, alone.summary.queues, alone.summary.indexes) == (538, 9, 3)
    assert alone.summary.not_proven == ["the metadata, index entries of each topic (check the store of the tier)"]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_wrong_byte_in_a_body(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    flip(root / BROKER / SECOND, 90)
    # The queue has its entry, and the log no right message for it.
    assert codes_of(root / "tier") == [("CL-CRC", SECOND, 0), ("TI-QUEUE", QUEUE, None)]
    assert codes_of(root) == [("CL-CRC", f"{BROKER}/{SECOND}", 0), ("TI-QUEUE", f"{BROKER}/{QUEUE}", None)]


def test_a_missing_segment_of_a_log(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    (root / BROKER / SECOND).unlink()
    before = f"{LOG}/cfcd208400000000000000000000"
    assert codes_of(root / "tier") == [("CL-GAP", before, 29990), ("TI-QUEUE", QUEUE, None)]
    codes = [finding.code for finding in findings_of(root)]
    assert codes[:3] == ["TI-META", "CL-GAP", "TI-QUEUE"]


def test_a_missing_segment_of_a_queue(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    missing = f"{QUEUE}/a9b7ba7000000000000000001000"
    (root / BROKER / missing).unlink()
    found = findings_of(root / "tier")
    assert [(one.code, one.file) for one in found] == [("TI-GAP", missing), ("TI-MISSING", QUEUE)]
    assert found[1].message == "50 messages have no entry, from queue offset 50 on"


def test_an_entry_that_points_elsewhere(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    path = root / BROKER / QUEUE / "cfcd208400000000000000000000"
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 3 * 20, 7)
    path.write_bytes(data)
    (found,) = findings_of(root / "tier")
    assert (found.code, found.topic, found.queue_id) == ("TI-QUEUE", "Orders", 0)
    assert found.message == "1 queue entry points to other bytes; the entry of 3 to 7, its message is at 1056"


def test_a_log_that_was_cut(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    path = root / BROKER / "Orders/1/COMMIT_LOG/3b92d6c100000000000000059918"
    path.write_bytes(path.read_bytes()[:-100])
    codes = [finding.code for finding in findings_of(root)]
    assert codes[:3] == ["TI-META", "CL-TORN", "TI-QUEUE"]


def test_a_name_that_no_broker_gives(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    path = root / BROKER / SECOND
    shutil.copy(path, path.with_name("00000000000000029990"))
    assert codes_of(root / "tier") == [("TI-NAME", f"{LOG}/00000000000000029990", None)]


def test_an_index_file_with_a_wrong_item(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    path = root / BROKER / INDEX
    data = bytearray(path.read_bytes())
    first = 28 + 97 * 8
    struct.pack_into(">q", data, first + 12, 5)  # the offset in its first item
    path.write_bytes(data)
    assert codes_of(root) == [("TI-INDEX", f"{BROKER}/{INDEX}", first)]
    flip(path, 0)
    assert codes_of(root / "tier") == [("TI-INDEX", INDEX, 0)]


def test_metadata_that_says_less(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    path = root / "config/tieredStoreMetadata.json"
    text = path.read_text(encoding="utf-8")
    assert '"size":29758' in text
    path.write_text(text.replace('"size":29758', '"size":29000'), encoding="utf-8")
    assert codes_of(root) == [("TI-ALONE", f"{BROKER}/{SECOND}", 29000)]


def test_messages_that_neither_has(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    # The last messages of a queue in the tier are gone, with their entries, as if retention had been faster.
    for name in (
        "COMMIT_LOG/8a69c60e00000000000000089628",
        "CONSUME_QUEUE/a35fe7f700000000000000005000",
        "CONSUME_QUEUE/1bd69c7d00000000000000004000",
    ):
        (root / BROKER / "Orders/0" / name).unlink()
    found = [finding for finding in findings_of(root) if finding.code == "TI-HOLE"]
    assert [(one.topic, one.queue_id, one.message) for one in found] == [
        ("Orders", 0, "46 messages are in neither, from queue offset 200 on")
    ]


def test_a_tier_that_is_not_there(writable_store: Callable[[str], Path]) -> None:
    root = writable_store("tiers/53-tier")
    shutil.rmtree(root / "tier")
    assert codes_of(root) == [("TI-MOUNT", str(root / "tier"), None)]
