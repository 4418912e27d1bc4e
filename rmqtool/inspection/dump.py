"""Dump: the regions of any file of a store, by what its place says it is, else by its first bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqtool.formats import dledger, layouts, paths
from rmqtool.formats.codes import BLANK_MAGIC, MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.inspection import text_regions, unit_regions
from rmqtool.inspection.index_regions import iter_index_regions
from rmqtool.inspection.log_regions import iter_dledger_regions, iter_log_regions
from rmqtool.inspection.regions import Region, tile
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.index_files import Geometry

_SMALL = 16 << 20
_SMALL_KINDS = frozenset(
    {
        FileKind.CONFIG,
        FileKind.COMPACTION_POSITION,
        FileKind.DLEDGER_STATE,
        FileKind.LOCK,
        FileKind.ABORT,
        FileKind.EPOCH,
        FileKind.BROKER_IDENTITY,
    }
)


class Dump(NamedTuple):
    """A file and its regions; they are made as they are asked for, a large file is never held whole."""

    file: str
    size: int
    kind: FileKind
    regions: Iterator[Region]


def dump_file(file: ReadableFile, what: StorePath, hints: Sequence[Geometry] = ()) -> Dump:
    """Return the dump of an open file; ``hints`` are geometries of index files that the settings or neighbours tell."""
    if what.kind is FileKind.UNKNOWN:
        what = guess_kind(file)
    size = file.size()
    return Dump(file.path, size, what.kind, tile(_regions(file, what, hints), size))


def guess_kind(file: ReadableFile) -> StorePath:
    """Return what the first bytes of a file say it is; only a commit log says so for certain."""
    head = file.pread(layouts.DLEDGER_ENTRY_HEAD.size, 0)
    if len(head) >= layouts.RECORD_START.size:
        start = layouts.RECORD_START.decode(head)
        if start.magic in (MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, BLANK_MAGIC):
            return StorePath(FileKind.COMMIT_LOG)
    name = file.path.rpartition("/")[2]
    bare, copy = paths.split_copy(name)
    if bare in paths.CONFIG_FILES:
        return StorePath(FileKind.CONFIG, name=bare, copy=copy)
    if isinstance(dledger.decode_entry_head(head, 0, file.size()), layouts.DLedgerEntryHead):
        return StorePath(FileKind.DLEDGER_DATA, base_offset=0)
    return StorePath(FileKind.UNKNOWN, name=name)


def _regions(file: ReadableFile, what: StorePath, hints: Sequence[Geometry]) -> Iterator[Region]:
    size = file.size()
    if size == 0:
        return iter(())
    base = what.base_offset or 0
    if what.kind is FileKind.COMMIT_LOG:
        return iter_log_regions(file, what.base_offset)
    if what.kind is FileKind.COMPACTION_LOG:
        return iter_log_regions(file, what.base_offset, compacted=True)
    if what.kind is FileKind.DLEDGER_DATA:
        return iter_dledger_regions(file, base)
    if what.kind is FileKind.INDEX:
        return iter_index_regions(file, hints)
    if what.kind in _SMALL_KINDS:
        if size > _SMALL:
            return iter([Region(0, size, "unknown", f"too large for a {what.kind}", right=False)])
        return iter([text_regions.text_region(what, file.pread(size, 0))])
    if what.kind is FileKind.CHECKPOINT:
        return text_regions.iter_checkpoint_regions(file.pread(min(size, _SMALL), 0))
    if what.kind is FileKind.TIMER_CHECK:
        return text_regions.iter_timer_check_regions(file.pread(min(size, _SMALL), 0))
    return _unit_file_regions(file, what, base)


def _unit_file_regions(file: ReadableFile, what: StorePath, base: int) -> Iterator[Region]:
    kind = what.kind
    if kind is FileKind.CONSUME_QUEUE:
        layout = layouts.CONSUME_QUEUE_UNIT
        return unit_regions.iter_unit_regions(
            file, layout, "unit", base // layout.size, unit_regions.describe_queue_unit
        )
    if kind in (FileKind.BATCH_CONSUME_QUEUE, FileKind.COMPACTION_QUEUE):
        batch = layouts.BATCH_CONSUME_QUEUE_UNIT
        return unit_regions.iter_unit_regions(file, batch, "unit", 0, unit_regions.describe_batch_unit)
    if kind is FileKind.CONSUME_QUEUE_EXT:
        return unit_regions.iter_ext_regions(file)
    if kind is FileKind.TIMER_WHEEL:
        return unit_regions.iter_unit_regions(file, layouts.TIMER_SLOT, "slot", 0, unit_regions.describe_timer_slot)
    if kind is FileKind.TIMER_LOG:
        return unit_regions.iter_timer_log_regions(file)
    if kind is FileKind.DLEDGER_INDEX:
        unit = layouts.DLEDGER_INDEX_UNIT
        return unit_regions.iter_unit_regions(file, unit, "entry", base // unit.size, unit_regions.describe_plain)
    if kind is FileKind.ROCKSDB:
        return iter([Region(0, file.size(), "opaque", "file of a RocksDB database")])
    return iter([Region(0, file.size(), "unknown", "no file of a store that is known")])
