"""The store that a copy is written to, through the engine: log, queues, index, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from rmqtool.config import StoreConfig
from rmqtool.engine.consume_queue import MeantGap
from rmqtool.engine.parts import Setup
from rmqtool.engine.store import MessageStore
from rmqtool.files.filesystem import join
from rmqtool.files.posix_write import PosixWritableFileSystem
from rmqtool.formats import paths
from rmqtool.formats.checkpoints import PAGE_SIZE, decode_checkpoint, encode_checkpoint
from rmqtool.formats.commit_log import encode_blank
from rmqtool.formats.config_files import dialect_of, encode_config
from rmqtool.store.config_files import config_text
from rmqtool.upstream.settings import as_new_store, with_found_settings

if TYPE_CHECKING:
    from rmqtool.log.transfer import Moved, SourceMove
    from rmqtool.store.listing import StoreListing

# Fillers of queues claim to point to the first 2 GiB of the log. If the log begins after that, they mean removed
# messages, as intended. In a log that begins at 0 a broker takes them for messages, and skips real ones.
_FILLED = 1 << 31
# One for entries to point to, and one before it.
_EMPTY_SEGMENTS = 2
# Bytes that are written between two syncs.
_SYNC_BYTES = 256 << 20


class Target:
    """A new store that grows by whole records."""

    def __init__(
        self,
        root: str,
        like: StoreConfig,
        batch_topics: frozenset[str],
        widest_gap: int,
        listing: StoreListing | None = None,
    ) -> None:
        """Create the store, with the settings ``like`` and what the files in a ``listing`` show beside them."""
        self.files = PosixWritableFileSystem(root)
        config = as_new_store(like if listing is None else with_found_settings(like, listing), root)
        self.version = config.version
        self._is_in_rocksdb = config.store_type != "default"
        self._segment_size = config.mapped_file_size_commit_log
        begin = max(-(-_FILLED // self._segment_size), 1 + _EMPTY_SEGMENTS) * self._segment_size
        self._gap = MeantGap(widest_gap, begin - self._segment_size)
        self._store = MessageStore.create(Setup(self.files, config, batch_topics=batch_topics, meant_gap=self._gap))
        self._adoption = self._store.adopt(begin)
        self._unsynced = 0
        self._last_store_timestamp = 0
        self.bytes = 0
        self.messages = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._store.close()
                self._hold_back_checkpoint()
                if self._gap.filled:
                    self._lay_empty_segments()
            else:
                self._store.abandon()
        finally:
            self.files.close()

    def _hold_back_checkpoint(self) -> None:
        """Limit the times of the checkpoint to that of the last record. A damaged record may claim a later time."""
        last = self._last_store_timestamp
        with self.files.open_write(paths.CHECKPOINT) as file:
            found = decode_checkpoint(file.pread(PAGE_SIZE, 0))
            held = found._replace(
                physic_msg_timestamp=min(found.physic_msg_timestamp, last),
                logics_msg_timestamp=min(found.logics_msg_timestamp, last),
                index_msg_timestamp=min(found.index_msg_timestamp, last),
            )
            if held != found:
                file.pwrite(encode_checkpoint(held), 0)

    def _lay_empty_segments(self) -> None:
        """Begin the log with blank segments.

        Entries of messages that were left out within a queue point to the last of them.

        upstream: ConsumeQueue.correctMinOffset bisects the first file of a queue for entries in the log, and accepts an
        entry that points to the log's very beginning at once; CleanConsumeQueueService deletes a file whose last entry
        is not in the log. So entries that point before the log, or to its beginning, would mislead them, and consumers
        would lose messages.
        """
        for number in range(_EMPTY_SEGMENTS):
            path = join(paths.COMMIT_LOG, paths.segment_name(self._gap.place - number * self._segment_size))
            with self.files.create(path) as file:
                file.pwrite(encode_blank(self._segment_size), 0)
                file.truncate(self._segment_size)
                file.fsync()
        self.files.fsync_dir(paths.COMMIT_LOG)

    def keep(self, moved: Moved, move: SourceMove) -> None:
        """Append records, and tell ``move`` where they are."""
        packed = moved.packed
        self._last_store_timestamp = packed.last_store_timestamp
        move.placed(moved, self._adoption.keep(packed))
        size = int(packed.sizes.sum())
        self.messages += len(packed)
        self.bytes += size
        self._unsynced += size
        if self._unsynced >= _SYNC_BYTES:
            self._store.flush_now()
            self._unsynced = 0

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next offset of each queue with messages."""
        return {queue.key: queue.next_offset for queue in self._store.queues()}

    def number_on(self, maxima: Mapping[tuple[str, int], int]) -> None:
        """Continue the queue offsets of queues without a copied message."""
        held = self.ends()
        for (topic, queue_id), end in maxima.items():
            if end > 0 and (topic, queue_id) not in held:
                self._adoption.pass_queue_to(topic, queue_id, end)

    def write_configs(self, texts: Mapping[str, object]) -> None:
        """Write configuration files."""
        for name, value in texts.items():
            if self._is_in_rocksdb:
                _count_as_changed(value)
            config_text(self.files, name).write(encode_config(name, value, dialect_of(self.version.value)))


def _count_as_changed(value: object) -> None:
    """Give a table that was never counted the first version.

    upstream: RocksDBConsumerOffsetManager.merge takes a table from its file into a new database, whose version is 0,
    only if the file has a later one.
    """
    version = value.get("dataVersion") if isinstance(value, dict) else None
    if isinstance(version, dict) and not version.get("counter"):
        version["counter"] = 1
