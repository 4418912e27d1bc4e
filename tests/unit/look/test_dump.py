"""Dump: every byte of every file has one place in the tree of regions."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from rmqtool.files.posix import PosixReadableFileSystem
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.look.dump import dump_file
from rmqtool.look.regions import Region
from rmqtool.store.open import open_store
from tests.support.damaged import VERSIONS, Workshop, mutations, sample
from tests.support.stores import truth, varied_stores

GARBAGE = 2000
LONG_GARBAGE = 20_000


def _check_children(region: Region) -> None:
    at = region.offset
    for child in region.children:
        assert child.offset >= at, (region, child)
        assert child.end <= region.end, (region, child)
        _check_children(child)
        at = child.end


def _check_tiling(file, what) -> list[Region]:
    dump = dump_file(file, what)
    at = 0
    regions = []
    for region in dump.regions:
        assert region.offset == at
        assert region.length > 0
        _check_children(region)
        at = region.end
        regions.append(region)
    assert at == file.size()
    return regions


@varied_stores
def test_the_regions_tile_every_file_of_every_store(name, store):
    opened = open_store(str(store(name)))
    for file in opened.listing.files:
        with opened.filesystem.open_read(file.path) as data:
            regions = _check_tiling(data, file.what)
        damage = [region for region in regions if region.kind in ("damage", "unknown")]
        if name not in ("49-ghost", "49-recovered", "49-killed-torn"):
            assert damage == [], file.path


def _check_damaged(version, count, tmp_path):
    workshop = Workshop(tmp_path)
    every = mutations(version)
    for key in sample(version, count, seed=2):
        with workshop.damaged(version, every[key], abort=True) as root:
            opened = open_store(str(root))
            for file in opened.listing.files:
                with opened.filesystem.open_read(file.path) as data:
                    _check_tiling(data, file.what)
            opened.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_regions_tile_every_file_of_damaged_stores(version, tmp_path):
    _check_damaged(version, 2, tmp_path)


def test_a_record_that_claims_bytes_of_the_next_one_ends_where_that_begins(tmp_path):
    damage = mutations("4.9.8")["A/recordlen-consistent-shift@last-mid"]
    with Workshop(tmp_path).damaged("4.9.8", damage, abort=True) as root, open_store(str(root)) as opened:
        file = opened.listing.find("commitlog/00000000000000393216")
        with opened.filesystem.open_read(file.path) as data:
            regions = _check_tiling(data, file.what)
            before, after = next(pair for pair in pairwise(regions) if pair[1].offset == 12_930)
            claimed = int.from_bytes(data.pread(4, before.offset), "big")
    assert (before.kind, after.kind) == ("record", "record")
    assert claimed == before.length + 3
    assert max(child.end for child in before.children) <= before.end


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_regions_tile_every_file_of_many_damaged_stores(version, tmp_path):
    _check_damaged(version, 200, tmp_path)


KINDS = [
    StorePath(FileKind.COMMIT_LOG, base_offset=0),
    StorePath(FileKind.CONSUME_QUEUE, "T", 0, 0),
    StorePath(FileKind.CONSUME_QUEUE_EXT, "T", 0, 0),
    StorePath(FileKind.BATCH_CONSUME_QUEUE, "T", 0, 0),
    StorePath(FileKind.INDEX, name="20240101000000000"),
    StorePath(FileKind.CHECKPOINT),
    StorePath(FileKind.ABORT),
    StorePath(FileKind.LOCK),
    StorePath(FileKind.CONFIG, name=paths.TOPICS),
    StorePath(FileKind.TIMER_CHECK),
    StorePath(FileKind.TIMER_WHEEL),
    StorePath(FileKind.TIMER_LOG, base_offset=0),
    StorePath(FileKind.COMPACTION_LOG, "T", 0, 0),
    StorePath(FileKind.TIER_LOG, "T", 0, 0),
    StorePath(FileKind.TIER_QUEUE, "T", 0, 0),
    StorePath(FileKind.EPOCH),
    StorePath(FileKind.BROKER_IDENTITY, name="brokerIdentity"),
    StorePath(FileKind.DLEDGER_DATA, base_offset=0, owner="n0"),
    StorePath(FileKind.DLEDGER_INDEX, base_offset=0, owner="n0"),
    StorePath(FileKind.DLEDGER_STATE, name="checkpoint", owner="n0"),
    StorePath(FileKind.UNKNOWN, name="x"),
]


def _garbage(seed: int, pieces: list[bytes]) -> bytes:
    chance = random.Random(seed)
    data = bytearray(chance.choice(pieces))
    fault = chance.randrange(5)
    if fault == 0:
        return chance.randbytes(chance.randrange(300))
    if fault == 1:
        return bytes(chance.randrange(300))
    if fault == 2:
        return bytes(data[: chance.randrange(len(data) + 1)])
    for _ in range(chance.randrange(1, 6)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    if fault == 4 and len(data) >= 4:
        at = chance.randrange(len(data) - 3)
        data[at : at + 4] = b"\x7f\xff\xff\xff"
    return bytes(data)


def _check_garbage(tmp_path, store, count):
    pieces = []
    for name in ("49-basic", "53-timer", "49-dledger", "49-ext", "53-compress", "53-epoch"):
        opened = open_store(str(store(name)))
        for file in opened.listing.files[:40]:
            with opened.filesystem.open_read(file.path) as data:
                pieces.append(data.pread(600, 0))
    filesystem = PosixReadableFileSystem(str(tmp_path))
    for seed in range(count):
        (tmp_path / "garbage").write_bytes(_garbage(seed, pieces))
        with filesystem.open_read("garbage") as file:
            _check_tiling(file, KINDS[seed % len(KINDS)])


def test_the_regions_tile_garbage(tmp_path, store):
    _check_garbage(tmp_path, store, GARBAGE)


@pytest.mark.slow
def test_the_regions_tile_much_garbage(tmp_path, store):
    _check_garbage(tmp_path, store, LONG_GARBAGE)


def test_a_record_is_shown_field_by_field(store):
    opened = open_store(str(store("49-basic")))
    told = truth("49-basic")["messages"][0]
    file = opened.commit_log.open(opened.commit_log.segments[0])
    region = next(iter(dump_file(file, StorePath(FileKind.COMMIT_LOG, base_offset=0)).regions))
    shown = {child.label: child for child in region.children}
    for label in ("queueId", "flag", "queueOffset", "sysFlag", "bornTimestamp", "storeTimestamp", "bodyCRC", "topic"):
        assert shown[label].value == told[label], label
    assert shown["bodyCRC"].right is True
    assert shown["physicalOffset"].right is True
    assert [(shown[label].offset, shown[label].length) for label in ("totalSize", "magic", "physicalOffset")] == [
        (0, 4),
        (4, 4),
        (28, 8),
    ]
    properties = {child.label: child.value for child in shown["properties"].children}
    assert properties == told["properties"]
