"""Dump: the regions of any file of a store, by its path, else by its first bytes; and what points at a record.

A target is a file, a span of it, the record at a physical offset of a store, or a RocksDB database, whose rows are
shown. The references of a record are looked up in queues, index and timer log, not searched for.

A file is named from its beginning, or from any byte on, for a reader who looks at a part of it. Then the region at that
byte is found first: entries have one size; a record is found by a search for self-consistent ones, which begins a
little before the byte and goes further back until it finds one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote
from typing import Any, NamedTuple

from rmqtool.errors import NotFound, StoreError, UsageError
from rmqtool.files.filesystem import ReadableFile, ReadableFileSystem
from rmqtool.formats import dledger, index, layouts, paths, rocksdb_rows, timer
from rmqtool.formats.codes import BLANK_MAGIC, RECORD_MAGICS
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts, queue_entries
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import Layout, upstream_name
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.formats.rocksdb_rows import ConfigRowKey, decode_row_value
from rmqtool.formats.topics import TIMER_TOPIC
from rmqtool.log.walk import Place, SegmentWalk, find_dledger_entry, walk_dledger
from rmqtool.look import regions, unit_regions
from rmqtool.look.regions import Region, iter_dledger_regions, iter_log_regions, place_region, tile, time_words
from rmqtool.look.suspects import SUSPECT
from rmqtool.look.unit_regions import iter_hash_regions, iter_index_regions
from rmqtool.store.index_files import Geometry, iter_find, open_index
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Root, Store, absolute, exists, is_directory, locate, open_store
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.rocksdb import open_database
from rmqtool.store.segments import Segment

# A small file that is larger than this is damaged, and its text is not decoded.
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
    """A file and its regions, which are made while they are iterated: a large file is never in memory."""

    file: str
    size: int
    kind: FileKind
    regions: Iterator[Region]


def dump_file(file: ReadableFile, what: StorePath, hints: Sequence[Geometry] = ()) -> Dump:
    """Return the dump of an open file; ``hints`` are geometries of index files from settings or other files."""
    if what.kind is FileKind.UNKNOWN:
        what = guess_kind(file)
    size = file.size()
    return Dump(file.path, size, what.kind, tile(_regions(file, what, hints), size))


def guess_kind(file: ReadableFile) -> StorePath:
    """Return the kind of a file by its first bytes; only a commit log is certain."""
    head = file.pread(layouts.DLEDGER_ENTRY_HEAD.size, 0)
    if len(head) >= layouts.RECORD_START.size:
        start = layouts.RECORD_START.decode(head)
        if start.magic in (*RECORD_MAGICS, BLANK_MAGIC):
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
    if what.kind in _MOVED:
        return iter_log_regions(file, what.base_offset, compacted=True)
    if what.kind is FileKind.DLEDGER_DATA:
        return iter_dledger_regions(file, base)
    if what.kind is FileKind.INDEX:
        return iter_index_regions(file, hints)
    if what.kind in _SMALL_KINDS:
        if size > _SMALL:
            return iter([Region(0, size, "unknown", f"too large for a {what.kind}", right=False)])
        return iter([regions.text_region(what, file.pread(size, 0))])
    if what.kind is FileKind.CHECKPOINT:
        return regions.iter_checkpoint_regions(file.pread(min(size, _SMALL), 0))
    if what.kind is FileKind.TIMER_CHECK:
        return regions.iter_timer_check_regions(file.pread(min(size, _SMALL), 0))
    return _unit_file_regions(file, what, base)


def _unit_file_regions(file: ReadableFile, what: StorePath, base: int) -> Iterator[Region]:
    kind = what.kind
    if kind in (FileKind.CONSUME_QUEUE, FileKind.TIER_QUEUE):
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
    return iter([Region(0, file.size(), "unknown", "not a known file of a store")])


# Logs with records that were moved there, and keep the checksum of all of the record from before.
_MOVED = (FileKind.COMPACTION_LOG, FileKind.TIER_LOG)
_SPAN = re.compile(r"(.+)@(\d+)(?:(-|\+)(\d+))?", re.DOTALL)


class Target(NamedTuple):
    """A path, and the span in it. Without ``start`` all of it; without ``end`` the record or region at ``start``."""

    path: str
    start: int | None = None
    end: int | None = None


def parse_target(text: str) -> Target:
    """Split ``PATH``, ``PATH@OFFSET``, ``PATH@START-END`` or ``PATH@START+LENGTH``. The path may contain ``@``."""
    if exists(text):
        return Target(text)
    match = _SPAN.fullmatch(text)
    if match is None or not exists(match[1]):
        raise StoreError(f"{text} does not exist", file=text, hint="dump takes FILE, FILE@START-END or STORE@OFFSET")
    start = int(match[2])
    if match[3] is None:
        return Target(match[1], start)
    end = int(match[4]) if match[3] == "-" else start + int(match[4])
    if end <= start:
        raise UsageError(f"{text}: the span is empty", hint="FILE@START-END, or FILE@START+LENGTH")
    return Target(match[1], start, end)


@dataclass
class Shown:
    """An opened target: the dump, the file, and the message if it is one record of a store.

    A database has ``rows`` instead, because its files are in RocksDB's own format.
    """

    dump: Dump
    file: ReadableFile | None
    store: Store | None = None
    message: Message | None = None
    rows: Iterator[DatabaseRow] | None = None


@contextmanager
def open_target(target: Target) -> Iterator[Shown]:
    if is_directory(target.path):
        if target.start is None and (found := _find_database(target.path)) and found.store:
            try:
                yield found
            finally:
                found.store.close()
            return
        if target.start is None or target.end is not None:
            raise UsageError(
                f"{target.path} is a directory; dump shows a file, or the record at STORE@PHYSICAL_OFFSET",
                hint=f"rmqtool info {quote(target.path)} files",
            )
        store = open_store(target.path)
        try:
            yield _record(store, target.start)
        finally:
            store.close()
        return
    filesystem, path, what = locate(target.path)
    try:
        with filesystem.open_read(path) as file:
            dump = dump_file(file, what, _neighbour_geometries(filesystem, what))
            yield Shown(dump._replace(regions=_within(dump.regions, target)), file)
    finally:
        filesystem.close()


def _find_database(path: str) -> Shown | None:
    """Return the rows of the database in a directory of a store, or None if it does not contain one."""
    if not exists(os.path.join(path, "CURRENT")):
        return None
    parts = absolute(path).split("/")
    for depth in (1, 2):
        directory = "/".join(parts[-depth:])
        if directory in paths.ROCKSDB_DATABASES:
            store = open_store("/".join(parts[:-depth]) or "/")
            size = sum(file.size for file in store.listing.of_kind(FileKind.ROCKSDB) if file.what.owner == directory)
            dump = Dump(directory, size, FileKind.ROCKSDB, iter(()))
            return Shown(dump, None, store, None, iter_database_rows(store, directory))
    return None


def _neighbour_geometries(filesystem: ReadableFileSystem, what: StorePath) -> Sequence[Geometry]:
    """Return the geometry of index files by the settings of their store."""
    if what.kind is not FileKind.INDEX or not isinstance(filesystem, Root):
        return ()
    with_settings = open_store(filesystem.root)
    config = with_settings.config
    with_settings.close()
    return [Geometry(config.max_hash_slot_num, config.max_index_num)]


def _within(regions: Iterator[Region], target: Target) -> Iterator[Region]:
    if target.start is None:
        yield from regions
        return
    end = target.start + 1 if target.end is None else target.end
    for region in regions:
        if region.offset >= end:
            return
        if region.end > target.start:
            yield region


def _record(store: Store, physical_offset: int) -> Shown:
    segment = store.commit_log.find(physical_offset)
    if segment is None:
        raise NotFound(
            f"no segment of the commit log contains offset {physical_offset}",
            hint=f"the log has {store.commit_log.min_offset} to {store.commit_log.end_offset}",
        )
    file = store.commit_log.open(segment)
    region, message = _dledger_record(file, segment, physical_offset) if store.is_dledger else (None, None)
    if region is None:
        place = SegmentWalk(file, segment.base_offset).place_at(physical_offset - segment.base_offset)
        region = place_region(file, place, segment.base_offset)
        message = place.damaged or (place.what if isinstance(place.what, Message) else None)
    kind = FileKind.DLEDGER_DATA if store.is_dledger else FileKind.COMMIT_LOG
    dump = Dump(segment.path, segment.size, kind, iter([region]))
    return Shown(dump, file, store, message)


def _dledger_record(file: ReadableFile, segment: Segment, physical_offset: int) -> tuple[Region | None, Message | None]:
    """Return the record of a DLedger log: it is inside an entry, not where records of a plain log begin."""
    for entry in walk_dledger(file, segment.base_offset):
        place = entry.record
        if segment.base_offset + place.file_offset == physical_offset and isinstance(place.what, Message):
            return place_region(file, place, segment.base_offset), place.what
    return None, None


class Reference(NamedTuple):
    """A place that points at a record or should; without anything to compare, ``right`` is not set."""

    file: str
    file_offset: int | None
    what: str
    right: bool | None


def iter_references(store: Store, message: Message) -> Iterator[Reference]:
    """Yield the places that point at ``message``, and those that should and do not."""
    yield from _queue_references(store, message)
    yield from _index_references(store, message)
    yield from _timer_references(store, message)


def _queue_references(store: Store, message: Message) -> Iterator[Reference]:
    queues = store.listing.queues(FileKind.CONSUME_QUEUE)
    for entry in queue_entries(message, store.dispatch_rules):
        segments = queues.get(QueueId(entry.topic, entry.queue_id))
        place = f"{entry.topic}/{entry.queue_id} @ {entry.queue_offset}"
        if segments is None:
            yield Reference(f"consumequeue/{entry.topic}/{entry.queue_id}", None, f"{place}: no such queue", False)
            continue
        unit = ConsumeQueueFiles(QueueId(entry.topic, entry.queue_id), segments).read_unit(entry.queue_offset)
        position = entry.queue_offset * layouts.CONSUME_QUEUE_UNIT.size
        segment = segments.find(position)
        if unit is None or segment is None:
            yield Reference(f"consumequeue/{entry.topic}/{entry.queue_id}", None, f"{place}: no queue entry", False)
            continue
        right = unit.physical_offset == message.physical_offset and unit.size == message.total_size
        words = place if right else f"{place}: the entry points to {unit.physical_offset}"
        yield Reference(segment.path, position - segment.base_offset, words, right)


def _index_references(store: Store, message: Message) -> Iterator[Reference]:
    texts = list(iter_index_texts(message, store.dispatch_rules))
    found: set[str] = set()
    for file in store.listing.of_kind(FileKind.INDEX):
        with store.filesystem.open_read(file.path) as opened:
            indexed = open_index(opened)
            if indexed is None:
                continue
            for text in texts:
                hashed = index.key_hash(text)
                for number, entry in indexed.iter_chain(hashed):
                    if entry.key_hash == hashed and entry.phy_offset == message.physical_offset:
                        found.add(text)
                        at = index.entry_offset(indexed.geometry.slots, number)
                        yield Reference(file.path, at, f"entry {number}: {text}", True)
    for text in dict.fromkeys(texts):
        if text not in found:
            yield Reference("index", None, f"no entry for {text}", None)


def _timer_references(store: Store, message: Message) -> Iterator[Reference]:
    """Search the timer log, which is small: a record does not say where its entry is."""
    if message.topic != TIMER_TOPIC:
        return
    pattern = layouts.LONG.packer.pack(message.physical_offset)
    place = layouts.TIMER_LOG_UNIT.field("offset_py").offset
    for file in store.listing.of_kind(FileKind.TIMER_LOG):
        with store.filesystem.open_read(file.path) as opened:
            for at in iter_find(opened, pattern, place):
                unit = timer.decode_timer_unit(opened.pread(timer.UNIT_SIZE, at - place))
                if isinstance(unit, layouts.TimerLogUnit) and (at - place) % timer.UNIT_SIZE == 0:
                    words = f"timer log entry, due {time_words(unit.write_time + unit.delay)}"
                    yield Reference(file.path, at - place, words, unit.size_py == message.total_size)


KeyDecoder = Callable[[bytes], Any]


class DatabaseRow(NamedTuple):
    """One row: key and value decoded, as text if unknown, and as stored."""

    family: str
    key: dict[str, Any] | str
    value: Any
    raw_key: bytes
    raw_value: bytes

    def as_json(self) -> dict[str, object]:
        return {
            "family": self.family,
            "key": self.key,
            "value": self.value,
            "keyHex": self.raw_key.hex(),
            "valueHex": self.raw_value.hex(),
        }


def iter_database_rows(store: Store, directory: str) -> Iterator[DatabaseRow]:
    """Yield the rows of the database in ``directory``, family by family, in the order of their keys."""
    with open_database(store, directory) as database:
        for family in database.families:
            decode_key, layout = _DECODERS.get((directory, family), (_text_key, None))
            for key, value in database.iter_rows(family):
                yield DatabaseRow(family, _plain_key(key, decode_key), _value(key, value, layout), key, value)


def _text_key(key: bytes) -> str:
    return decode_text(key)


def _plain_key(key: bytes, decode: KeyDecoder) -> dict[str, Any] | str:
    decoded = decode(key)
    if isinstance(decoded, Flaw):  # a bookkeeping row, which has a plain name
        return decode_text(key)
    if isinstance(decoded, str):
        return decoded
    found = _named(decoded)
    if isinstance(decoded, ConfigRowKey):
        found["names"] = list(decoded.names)
    return found


def _named(value: Any) -> dict[str, Any]:
    return {upstream_name(name): part for name, part in value._asdict().items()}


def _value(key: bytes, value: bytes, layout: Layout[Any] | None) -> Any:
    """Return a value by its layout, as a number, as JSON, or as text."""
    for known in (layout, layouts.LONG):
        if known is not None and len(value) == known.size:
            decoded = decode_row_value(known, value)
            if not isinstance(decoded, Flaw):
                return decoded.value if known is layouts.LONG else _named(decoded)
    body = value[1:] if key[:1] == b"\x01" and value[:1] == b"\x01" else value
    if len(body) == layouts.ROCKSDB_DATA_VERSION.size and key.endswith(b"data_version"):
        return _named(layouts.ROCKSDB_DATA_VERSION.decode(body))
    try:
        return json.loads(body)
    except ValueError:
        return decode_text(value)


_DECODERS: dict[tuple[str, str], tuple[KeyDecoder, Layout[Any] | None]] = {
    (paths.CONSUME_QUEUE, "default"): (rocksdb_rows.decode_queue_key, layouts.ROCKSDB_QUEUE_VALUE),
    (paths.CONSUME_QUEUE, "offset"): (rocksdb_rows.decode_bound_key, layouts.ROCKSDB_OFFSET_VALUE),
    (f"{paths.CONFIG}/rdb", "default"): (rocksdb_rows.decode_config_key, None),
    (paths.KV_STORE, "popState"): (rocksdb_rows.decode_pop_key, None),
    (paths.ROCKSDB_STORE, "default"): (rocksdb_rows.decode_index_key, None),
    (paths.ROCKSDB_STORE, "timer"): (rocksdb_rows.decode_timer_key, layouts.ROCKSDB_TIMER_VALUE),
    (paths.ROCKSDB_STORE, "trans"): (rocksdb_rows.decode_trans_key, layouts.ROCKSDB_TRANS_VALUE),
}


# The search for a record begins this far before the wanted byte, and goes back this many times further at each try.
_FIRST_REACH = 1 << 12
_GROWTH = 16
# Bytes that a walk over a part of a log reads at once.
WINDOW = 1 << 16
_LOGS = (FileKind.COMMIT_LOG, *_MOVED)
_UNITS: dict[FileKind, tuple[Layout[Any], str, unit_regions.Describe]] = {
    FileKind.CONSUME_QUEUE: (layouts.CONSUME_QUEUE_UNIT, "unit", unit_regions.describe_queue_unit),
    FileKind.BATCH_CONSUME_QUEUE: (layouts.BATCH_CONSUME_QUEUE_UNIT, "unit", unit_regions.describe_batch_unit),
    FileKind.COMPACTION_QUEUE: (layouts.BATCH_CONSUME_QUEUE_UNIT, "unit", unit_regions.describe_batch_unit),
    FileKind.TIMER_WHEEL: (layouts.TIMER_SLOT, "slot", unit_regions.describe_timer_slot),
    FileKind.DLEDGER_INDEX: (layouts.DLEDGER_INDEX_UNIT, "entry", unit_regions.describe_plain),
}
# Files of entries whose numbers go on from file to file.
_NUMBERED = (FileKind.CONSUME_QUEUE, FileKind.DLEDGER_INDEX)


def find_wrong(
    file: ReadableFile, what: StorePath, span: tuple[int, int], hints: Sequence[Geometry] = ()
) -> Region | None:
    """Return the first bytes in a span that are known to have changed; else a wrong body, else a wrong field."""
    found: dict[str, Region] = {}
    start, end = span
    for region in iter_regions_from(file, what, start, hints):
        if region.offset >= end:
            break
        for one in _wrong_regions(region):
            kind = one.label if one.label in (SUSPECT, "body") else "field"
            if start <= one.offset < end:
                found.setdefault(kind, one)
    return next((found[kind] for kind in (SUSPECT, "body", "field") if kind in found), None)


def _wrong_regions(region: Region) -> Iterator[Region]:
    """Yield the innermost regions that are wrong."""
    inside = [one for child in region.children for one in _wrong_regions(child)]
    yield from inside or ([region] if region.right is False else [])


def iter_regions_from(file: ReadableFile, what: StorePath, at: int, hints: Sequence[Geometry] = ()) -> Iterator[Region]:
    """Yield the regions of a file from the one with the byte at ``at`` on; they cover the rest without gaps."""
    found = _regions_from(file, what, at, hints)
    first = next(found, None)
    if first is not None:
        yield first
        yield from tile(found, file.size(), first.end)


def _regions_from(file: ReadableFile, what: StorePath, at: int, hints: Sequence[Geometry]) -> Iterator[Region]:
    if what.kind in _LOGS:
        compacted = what.kind in _MOVED
        places = iter_places_from(file, what, at)
        return (place_region(file, place, what.base_offset, compacted=compacted) for place in places)
    base = what.base_offset or 0
    if what.kind is FileKind.DLEDGER_DATA:
        return iter_dledger_regions(file, base, dledger_landing(file, base, at))
    if what.kind in _UNITS:
        layout, name, describe = _UNITS[what.kind]
        first = base // layout.size if what.kind in _NUMBERED else 0
        size = file.size()
        start = at - at % layout.size
        if start + layout.size > size:
            return iter([Region(start, size - start, "unknown", "shorter than an entry")] if start < size else [])
        return unit_regions.iter_unit_regions(file, layout, name, first, describe, start)
    if what.kind is FileKind.TIMER_LOG:
        # A blank can end the file anywhere, so the entry before it leads there.
        found = unit_regions.iter_timer_log_regions(file, at - at % timer.UNIT_SIZE)
        return (region for region in found if region.end > at)
    if what.kind is FileKind.INDEX:
        opened = open_index(file, hints)
        if opened is not None and at >= layouts.INDEX_HEADER.size:
            return iter_hash_regions(opened, at)
    return (region for region in dump_file(file, what, hints).regions if region.end > at)


def iter_places_from(file: ReadableFile, what: StorePath, at: int) -> Iterator[Place]:
    """Yield the places of a log's segment from the one with the byte at ``at`` on."""
    walk = SegmentWalk(file, what.base_offset, compacted=what.kind in _MOVED)
    walk.window.least = WINDOW
    return (place for place in walk.places(_landing(walk, at)) if place.file_offset + place.length > at)


def _landing(walk: SegmentWalk, at: int) -> int:
    """Return where a record begins, at ``at`` or before it; 0, where one is expected, if none does."""
    # Nothing begins in a hole.
    at = min(at, max((extent.end for extent in walk.file.iter_data(0, min(at + 1, walk.end))), default=0))
    low, high, reach = max(at - _FIRST_REACH, 0), at + 1, _FIRST_REACH
    found = walk.find_record(low, high) if low else 0
    while found is None:  # no record begins from low to high
        reach *= _GROWTH
        low, high = max(at - reach, 0), low + 1
        found = walk.find_record(low, high) if low else 0
    # The search went far back over bytes without a record: come closer to their beginning.
    while high - low > _GROWTH * _FIRST_REACH:
        middle = (low + high) // 2
        later = walk.find_record(middle, high)
        if later is None:
            high = middle + 1
        else:
            low, found = middle, later
    return found


def iter_dledger_places_from(file: ReadableFile, base_offset: int, at: int) -> Iterator[Place]:
    """Yield the records in a DLedger data file from the entry with the byte at ``at`` on, and what ends the file."""
    for entry in walk_dledger(file, base_offset, dledger_landing(file, base_offset, at)):
        if entry.file_offset + entry.length > at:
            yield entry.record


def dledger_landing(file: ReadableFile, base_offset: int, at: int) -> int:
    """Return where an entry begins, at ``at`` or before it; 0 if none does."""
    reach = _FIRST_REACH
    while reach < at:
        found = find_dledger_entry(file, base_offset, at - reach)
        if found <= at:
            return found
        reach *= _GROWTH
    return 0
