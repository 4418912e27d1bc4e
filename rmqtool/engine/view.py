"""A store that is only read: its ``reader`` answers what the store's own broker would, without its lock.

This is how stores are read that the engine cannot write: with DLedger's log, with queues in RocksDB. What is there when
the view is opened is what it shows; nothing is dispatched, recovered or written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Self

from rmqtool.engine.database_queues import DatabaseQueue, open_queues
from rmqtool.engine.queue_offsets import QueueKey
from rmqtool.engine.reader import StoreReader
from rmqtool.formats import paths
from rmqtool.formats.paths import FileKind
from rmqtool.storage.consume_queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.storage.database_queues import has_database_queues
from rmqtool.storage.index_files import Geometry
from rmqtool.storage.log_end import find_log_end
from rmqtool.storage.rocksdb import open_database
from rmqtool.storage.segments import SegmentQueue
from rmqtool.storage.store import Store


class _Log(NamedTuple):
    """The log as it was."""

    segments: SegmentQueue
    committed_offset: int

    @property
    def segment_size(self) -> int:
        return self.segments.segment_size

    @property
    def min_offset(self) -> int:
        return self.segments.min_offset

    def read(self, physical_offset: int, length: int) -> bytes:
        return self.segments.read(physical_offset, min(length, self.committed_offset - physical_offset))


class _Queues(NamedTuple):
    """The queues as they were."""

    simple: Mapping[QueueKey, ConsumeQueueFiles]
    batch: Mapping[QueueKey, BatchQueueFiles]
    database: Mapping[QueueKey, DatabaseQueue]


@dataclass
class _Index:
    """The index files as they were."""

    names: list[str]
    geometry: Geometry

    def flush(self) -> None:
        """Everything stands in the files."""


class StoreView:
    """The view of a store that is open for reading; closing it leaves the store open.

    Raises ``OptionalMissing`` where queues are in RocksDB and the extra for it is not installed.
    """

    def __init__(self, store: Store) -> None:
        self._stack = ExitStack()
        listing = store.listing
        simple: dict[QueueKey, ConsumeQueueFiles] = {
            key: ConsumeQueueFiles(key, found) for key, found in listing.queues(FileKind.CONSUME_QUEUE).items()
        }
        batch: dict[QueueKey, BatchQueueFiles] = {
            key: BatchQueueFiles(key, found) for key, found in listing.queues(FileKind.BATCH_CONSUME_QUEUE).items()
        }
        end = find_log_end(store.commit_log, simple.values(), dledger=store.is_dledger)
        log = _Log(store.commit_log, end.physical_offset)
        names = sorted(file.what.name or "" for file in listing.of_kind(FileKind.INDEX))
        geometry = Geometry(store.config.max_hash_slot_num, store.config.max_index_num)
        database: dict[QueueKey, DatabaseQueue] = {}
        if has_database_queues(store):
            opened = self._stack.enter_context(open_database(store, paths.CONSUME_QUEUE))
            # A broker that writes both reads the files.
            found = open_queues(opened, log.min_offset)
            database = {key: queue for key, queue in found.items() if key not in simple}
        queues = _Queues(simple, batch, database)
        self.reader = StoreReader(store.filesystem, store.config, log, queues, _Index(names, geometry))
        self._stack.callback(self.reader.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._stack.close()
