"""File names and store paths."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from rmqtool.formats import paths
from rmqtool.formats.paths import Copy, FileKind, StorePath

SEGMENT = "00000000001073741824"
BASE = 1073741824

KNOWN = {
    f"commitlog/{SEGMENT}": StorePath(FileKind.COMMIT_LOG, base_offset=BASE, owner="commitlog"),
    f"consumequeue/T/3/{SEGMENT}": StorePath(FileKind.CONSUME_QUEUE, "T", 3, BASE),
    f"consumequeue/%RETRY%g+T|x/0/{SEGMENT}": StorePath(FileKind.CONSUME_QUEUE, "%RETRY%g+T|x", 0, BASE),
    f"consumequeue_ext/T/3/{SEGMENT}": StorePath(FileKind.CONSUME_QUEUE_EXT, "T", 3, BASE),
    f"batchconsumequeue/T/3/{SEGMENT}": StorePath(FileKind.BATCH_CONSUME_QUEUE, "T", 3, BASE),
    "consumequeue/CURRENT": StorePath(FileKind.ROCKSDB, owner="consumequeue", name="CURRENT"),
    "consumequeue/000011.sst": StorePath(FileKind.ROCKSDB, owner="consumequeue", name="000011.sst"),
    "index/20231114221320123": StorePath(FileKind.INDEX, name="20231114221320123"),
    "checkpoint": StorePath(FileKind.CHECKPOINT),
    "abort": StorePath(FileKind.ABORT),
    "abort.bak": StorePath(FileKind.ABORT, copy=Copy.BAK),
    "abort.tmp": StorePath(FileKind.ABORT, copy=Copy.TMP),
    "lock": StorePath(FileKind.LOCK),
    "config/topics.json": StorePath(FileKind.CONFIG, name="topics.json"),
    "config/topics.json.bak": StorePath(FileKind.CONFIG, name="topics.json", copy=Copy.BAK),
    "config/timermetrics.tmp": StorePath(FileKind.CONFIG, name="timermetrics", copy=Copy.TMP),
    "config/timercheck": StorePath(FileKind.TIMER_CHECK),
    "config/topics/OPTIONS-000009": StorePath(FileKind.ROCKSDB, owner="config/topics", name="OPTIONS-000009"),
    "config/rdb/LOCK": StorePath(FileKind.ROCKSDB, owner="config/rdb", name="LOCK"),
    "config/metadata/MANIFEST-000005": StorePath(FileKind.ROCKSDB, owner="config/metadata", name="MANIFEST-000005"),
    "kvStore/000010.log": StorePath(FileKind.ROCKSDB, owner="kvStore", name="000010.log"),
    "rocksdbstore/IDENTITY": StorePath(FileKind.ROCKSDB, owner="rocksdbstore", name="IDENTITY"),
    "timerwheel": StorePath(FileKind.TIMER_WHEEL),
    "timerwheel.5200": StorePath(FileKind.TIMER_WHEEL, base_offset=5200),
    "timerwheel.5200.tmp": StorePath(FileKind.TIMER_WHEEL, base_offset=5200, copy=Copy.TMP),
    f"timerlog/{SEGMENT}": StorePath(FileKind.TIMER_LOG, base_offset=BASE),
    f"compaction/compactionLog/T/0/{SEGMENT}": StorePath(FileKind.COMPACTION_LOG, "T", 0, BASE),
    f"compaction/compactionCq/T/0/{SEGMENT}": StorePath(FileKind.COMPACTION_QUEUE, "T", 0, BASE),
    f"compaction/compactionLog/T/0/compacting/{SEGMENT}": StorePath(
        FileKind.COMPACTION_LOG, "T", 0, BASE, stage="compacting"
    ),
    f"compaction/compactionCq/T/0/replicating/{SEGMENT}": StorePath(
        FileKind.COMPACTION_QUEUE, "T", 0, BASE, stage="replicating"
    ),
    "compaction/position-checkpoint": StorePath(FileKind.COMPACTION_POSITION),
    "compaction/position-checkpoint.bak": StorePath(FileKind.COMPACTION_POSITION, copy=Copy.BAK),
    "epochFileCheckpoint": StorePath(FileKind.EPOCH),
    "epochFileCheckpoint.bak": StorePath(FileKind.EPOCH, copy=Copy.BAK),
    "brokerIdentity": StorePath(FileKind.BROKER_IDENTITY, name="brokerIdentity"),
    "brokerIdentity-temp": StorePath(FileKind.BROKER_IDENTITY, name="brokerIdentity-temp"),
    f"dledger-n0/data/{SEGMENT}": StorePath(FileKind.DLEDGER_DATA, base_offset=BASE, owner="n0"),
    f"dledger-n0/index/{SEGMENT}": StorePath(FileKind.DLEDGER_INDEX, base_offset=BASE, owner="n0"),
    "dledger-n0/checkpoint": StorePath(FileKind.DLEDGER_STATE, owner="n0", name="checkpoint"),
    "dledger-n0/currterm.bak": StorePath(FileKind.DLEDGER_STATE, owner="n0", name="currterm", copy=Copy.BAK),
    "tiered_index_file/1700000000000": StorePath(FileKind.TIERED_INDEX, name="1700000000000"),
    # The hash is the beginning of the MD5 of 0, of 29990, of DefaultCluster.
    "T/0/COMMIT_LOG/cfcd208400000000000000000000": StorePath(FileKind.TIER_LOG, "T", 0, 0, owner=""),
    "212d6b50_DefaultCluster/b/T/3/CONSUME_QUEUE/880245e800000000000000029990": StorePath(
        FileKind.TIER_QUEUE, "T", 3, 29990, owner="212d6b50_DefaultCluster/b"
    ),
    "b/rmq_sys_INDEX/0/INDEX/cfcd208400000000000000000000": StorePath(
        FileKind.TIER_INDEX, "rmq_sys_INDEX", 0, 0, owner="b"
    ),
}


@pytest.mark.parametrize("path", KNOWN)
def test_known_paths(path: str) -> None:
    assert paths.classify(path) == KNOWN[path]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "commitlog",
        "commitlog/",
        "commitlog/0000000000107374182",
        "commitlog/000000000010737418240",
        "commitlog/99999999999999999999",
        f"commitlog/{SEGMENT}.bak",
        f"commitlog/x/{SEGMENT}",
        f"commitlog_a/{SEGMENT}",
        f"consumequeue/T/{SEGMENT}",
        f"consumequeue/T/x/{SEGMENT}",
        f"consumequeue/T/-1/{SEGMENT}",
        f"consumequeue/T/2147483648/{SEGMENT}",
        f"consumequeue//0/{SEGMENT}",
        f"consumequeue/T/0/1/{SEGMENT}",
        f"consumequeue/T/0/compacting/{SEGMENT}",
        "consumequeue/CURRENT.x",
        "index/2023111422132012",
        "index/20231114221320123.bak",
        "checkpoint.bak",
        "lock.bak",
        "config/other.json",
        "config/topics.json.old",
        "config/timercheck.bak",
        "timerwheel.",
        "timerwheel.x",
        "timerwheel.05",
        "timerwheel.5.bak",
        "timerwheel.9999999999999999999",
        "brokerIdentity.bak",
        "dledger-n0/other",
        "dledger-n0/x/checkpoint",
        "core.1234",
        "COMMIT_LOG/cfcd208400000000000000000000",
        "T/0/COMMIT_LOG/00000000000000000000",
        "T/0/COMMIT_LOG/cfcd208400000000000000000001",
        "T/x/COMMIT_LOG/cfcd208400000000000000000000",
        "T/0/OTHER/cfcd208400000000000000000000",
        "commitlog/٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠",
    ],
)
def test_strangers(path: str) -> None:
    found = paths.classify(path)
    assert found == StorePath(FileKind.UNKNOWN, name=path)


def test_commit_logs_in_several_places() -> None:
    for directory in ("commitlog_a", "data/log"):
        found = paths.classify(f"{directory}/{SEGMENT}", ("commitlog_a", "data/log"))
        assert found == StorePath(FileKind.COMMIT_LOG, base_offset=BASE, owner=directory)


@pytest.mark.parametrize(
    ("name", "segment", "number"),
    [
        (SEGMENT, BASE, BASE),
        ("0", None, 0),
        ("-5", None, -5),
        ("+5", None, 5),
        ("9223372036854775807", None, (1 << 63) - 1),
        ("9223372036854775808", None, None),
        ("x", None, None),
        ("", None, None),
        ("1" * 5000, None, None),
    ],
)
def test_names_of_segments(name: str, segment: int | None, number: int | None) -> None:
    assert paths.parse_segment_name(name) == segment
    assert paths.parse_numeric_name(name) == number


def test_names_of_index_files() -> None:
    assert paths.index_name(1700000000123, UTC) == "20231114221320123"
    assert paths.index_name(1700000000123, timezone(timedelta(hours=8))) == "20231115061320123"


def test_directories() -> None:
    assert paths.segment_directory(FileKind.CONSUME_QUEUE, "T", 3) == "consumequeue/T/3"
    assert paths.segment_directory(FileKind.TIMER_LOG) == "timerlog"
    assert paths.config_path(paths.TOPICS, Copy.BAK) == "config/topics.json.bak"


def test_names_in_a_tier_have_the_hash_of_what_follows() -> None:
    # Names that a real 5.3.3 broker gave, in fixtures/tiers.
    assert paths.tier_segment_name(29990) == "880245e800000000000000029990"
    assert paths.tier_cluster_name("DefaultCluster") == "212d6b50_DefaultCluster"
    assert paths.parse_tier_cluster("212d6b50_DefaultCluster") == "DefaultCluster"
    assert [paths.parse_tier_cluster(name) for name in ("212d6b50_Other", "212d6b50", "", "_x")] == [None] * 4
