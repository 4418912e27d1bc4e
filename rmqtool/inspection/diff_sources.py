"""Where the queues of a store are taken from for a comparison: its files, or its RocksDB database."""

from __future__ import annotations

from array import array
from enum import StrEnum
from typing import TYPE_CHECKING

from rmqtool.errors import UsageError
from rmqtool.filters.patterns import TopicPatterns
from rmqtool.formats import paths
from rmqtool.formats.codes import MAX_EXT_ADDRESS
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layouts import ROCKSDB_QUEUE_VALUE
from rmqtool.formats.paths import FileKind
from rmqtool.formats.rocksdb_rows import decode_queue_key
from rmqtool.storage.consume_queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.storage.database_queues import has_database_queues
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.rocksdb import open_database
from rmqtool.storage.segments import SegmentQueue
from rmqtool.storage.store import Store

if TYPE_CHECKING:
    from rmqtool.scan.batches import Units
    from rmqtool.scan.queue_items import HeldUnits, Queue, UnitStream


class QueueSource(StrEnum):
    """What holds the queues. AUTO: files where there are some, else the database."""

    AUTO = "auto"
    FILE = "file"
    ROCKSDB = "rocksdb"


def has_queues(store: Store) -> bool:
    """Return whether a store has queues of any kind."""
    return store.has_file_queues or has_database_queues(store)


def open_streams(store: Store, source: QueueSource, topics: TopicPatterns) -> dict[Queue, UnitStream]:
    """Return the units of each wanted queue."""
    if source is QueueSource.AUTO:
        source = QueueSource.ROCKSDB if has_database_queues(store) and not store.has_file_queues else QueueSource.FILE
    if source is QueueSource.ROCKSDB and not has_database_queues(store):
        raise UsageError(f"{store.root} has no RocksDB queues", hint=f"they would lie in {paths.CONSUME_QUEUE}/")
    return _of_database(store, topics) if source is QueueSource.ROCKSDB else _of_files(store, topics)


def _of_files(store: Store, topics: TopicPatterns) -> dict[Queue, UnitStream]:
    from rmqtool.scan.queue_items import UnitStream

    found: dict[Queue, UnitStream] = {}
    exts = store.listing.queues(FileKind.CONSUME_QUEUE_EXT)
    for queue, segments in store.listing.queues(FileKind.CONSUME_QUEUE).items():
        if topics.matches(queue.topic):
            found[queue.topic, queue.queue_id] = UnitStream(_FileUnits(queue, segments, exts.get(queue)))
    for queue, segments in store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).items():
        if topics.matches(queue.topic):
            held = _new_columns()
            for unit in BatchQueueFiles(queue, segments).iter_units():
                _add(held, (unit.msg_base_offset, unit.physical_offset, unit.size, unit.tags_code))
            found[queue.topic, queue.queue_id] = UnitStream(_held(held))
    return found


def _of_database(store: Store, topics: TopicPatterns) -> dict[Queue, UnitStream]:
    from rmqtool.scan.queue_items import UnitStream

    columns: dict[Queue, _Columns] = {}
    with open_database(store, paths.CONSUME_QUEUE) as database:
        for key, value in database.iter_rows("default"):
            place = decode_queue_key(key)
            if isinstance(place, Flaw) or len(value) != ROCKSDB_QUEUE_VALUE.size or not topics.matches(place.topic):
                continue
            row = ROCKSDB_QUEUE_VALUE.decode(value)
            held = columns.setdefault((place.topic, place.queue_id), _new_columns())
            _add(held, (place.queue_offset, row.physical_offset, row.size, row.tags_code))
    return {queue: UnitStream(_held(held)) for queue, held in columns.items()}


class _FileUnits:
    """The units of a simple queue up to the end that a broker gives it, with the tags codes of its extension."""

    def __init__(self, queue: QueueId, segments: SegmentQueue, ext: SegmentQueue | None) -> None:
        from rmqtool.scan.units import QueueUnits

        files = ConsumeQueueFiles(queue, segments)
        self.first, self.end = files.first_offset, files.max_offset
        self._units = QueueUnits(segments, ext)

    def read(self, queue_offset: int, count: int) -> Units:
        """Return ``count`` units from ``queue_offset`` on."""
        units = self._units.read(queue_offset, count)
        for row in (units["tags_code"] <= MAX_EXT_ADDRESS).nonzero()[0].tolist():
            units["tags_code"][row] = self._units.real_tags_code(int(units["tags_code"][row])) or 0
        return units


_Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


def _new_columns() -> _Columns:
    return array("q"), array("q"), array("q"), array("q")


def _add(columns: _Columns, row: tuple[int, int, int, int]) -> None:
    for column, value in zip(columns, row, strict=True):
        column.append(value)


def _held(columns: _Columns) -> HeldUnits:
    """Return units from their columns: queue offset, place, size, tags code."""
    import numpy as np

    from rmqtool.scan.batches import UNIT
    from rmqtool.scan.queue_items import HeldUnits

    units = np.zeros(len(columns[0]), UNIT)
    for name, column in zip(("physical_offset", "size", "tags_code"), columns[1:], strict=True):
        units[name] = column
    return HeldUnits(np.array(columns[0], np.int64), units)
