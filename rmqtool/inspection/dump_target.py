"""What a person asked to see byte by byte: a file, a span of it, or the record at an offset of a store's log."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from rmqtool.errors import NotFound, StoreError, UsageError
from rmqtool.formats import paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.inspection.database_rows import DatabaseRow, iter_database_rows
from rmqtool.inspection.dump import Dump, dump_file
from rmqtool.inspection.log_regions import place_region
from rmqtool.inspection.regions import Region
from rmqtool.storage.filesystem import ReadableFile, ReadableFileSystem
from rmqtool.storage.index_files import Geometry
from rmqtool.storage.posix import PosixReadableFileSystem
from rmqtool.storage.segments import Segment
from rmqtool.storage.store import Store, locate, open_store
from rmqtool.storage.walk import SegmentWalk, walk_dledger

_SPAN = re.compile(r"(.+)@(\d+)(?:(-|\+)(\d+))?", re.DOTALL)


class Target(NamedTuple):
    """A path, and the part of it: ``start`` and ``end`` are None for all; without ``end`` the thing at ``start``."""

    path: str
    start: int | None = None
    end: int | None = None


def parse_target(text: str) -> Target:
    """Take ``PATH``, ``PATH@OFFSET``, ``PATH@START-END`` or ``PATH@START+LENGTH`` apart. A path may contain ``@``."""
    if os.path.exists(text):
        return Target(text)
    match = _SPAN.fullmatch(text)
    if match is None or not os.path.exists(match[1]):
        raise StoreError(f"{text} is not there", file=text, hint="dump takes FILE, FILE@START-END or STORE@OFFSET")
    start = int(match[2])
    if match[3] is None:
        return Target(match[1], start)
    end = int(match[4]) if match[3] == "-" else start + int(match[4])
    if end <= start:
        raise UsageError(f"{text}: the span is empty", hint="FILE@START-END, or FILE@START+LENGTH")
    return Target(match[1], start, end)


@dataclass
class Shown:
    """What a target came to: the dump, the bytes behind it, and the message when it is one record of a store.

    A database has ``rows`` instead: its files are RocksDB's own.
    """

    dump: Dump
    file: ReadableFile | None
    store: Store | None = None
    message: Message | None = None
    rows: Iterator[DatabaseRow] | None = None


@contextmanager
def open_target(target: Target) -> Iterator[Shown]:
    """Open what a target names."""
    if os.path.isdir(target.path):
        if target.start is None and (found := _find_database(target.path)) and found.store:
            try:
                yield found
            finally:
                found.store.close()
            return
        if target.start is None or target.end is not None:
            raise UsageError(
                f"{target.path} is a directory; dump shows a file, or one record of a store",
                hint=f"rmqtool dump {target.path}@PHYSICAL_OFFSET, or rmqtool info {target.path} files",
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
    """Return the rows of the database that a directory of a store holds, None when it holds none."""
    if not os.path.exists(os.path.join(path, "CURRENT")):
        return None
    parts = os.path.abspath(path).split("/")
    for depth in (1, 2):
        directory = "/".join(parts[-depth:])
        if directory in paths.ROCKSDB_DATABASES:
            store = open_store("/".join(parts[:-depth]) or "/")
            size = sum(file.size for file in store.listing.of_kind(FileKind.ROCKSDB) if file.what.owner == directory)
            dump = Dump(directory, size, FileKind.ROCKSDB, iter(()))
            return Shown(dump, None, store, None, iter_database_rows(store, directory))
    return None


def _neighbour_geometries(filesystem: ReadableFileSystem, what: StorePath) -> Sequence[Geometry]:
    """Return the geometry that the settings of a store give its index files."""
    if what.kind is not FileKind.INDEX or not isinstance(filesystem, PosixReadableFileSystem):
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
            f"no segment of the commit log holds offset {physical_offset}",
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
    """Find the record of a DLedger log: its place lies within an entry, not where a record is due."""
    for entry in walk_dledger(file, segment.base_offset):
        place = entry.record
        if segment.base_offset + place.file_offset == physical_offset and isinstance(place.what, Message):
            return place_region(file, place, segment.base_offset), place.what
    return None, None
