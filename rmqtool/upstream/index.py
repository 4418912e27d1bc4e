"""``IndexService``: which index files a start drops, and what it adds while records are dispatched."""

from __future__ import annotations

from rmqtool.formats import paths
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts
from rmqtool.formats.index import file_size
from rmqtool.formats.java import parse_long
from rmqtool.upstream import broker_log
from rmqtool.upstream.batches import Batch
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.checkpoint import Checkpoint
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.index_counts import count_index_texts
from rmqtool.upstream.index_file import IndexFile
from rmqtool.upstream.settings import StartSettings

# A broker names a new file by the clock; here it gets a name that says so.
NEW_NAME = "NEW-"


class IndexService:
    """The index files of a store. Slots and entries are only written with ``contents``."""

    def __init__(self, files: StoreFiles, settings: StartSettings, log: BrokerLog, contents: bool) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._contents = contents
        self._size = file_size(settings.index_slots, settings.index_entries)
        self._list: list[IndexFile] = []
        self.created: list[str] = []

    def load(self, clean: bool, checkpoint: Checkpoint) -> bool:
        """Take in the files, after a crash without those that were not finished when the checkpoint was written."""
        for entry in self._files.entries(paths.INDEX):
            path = f"{paths.INDEX}/{entry.name}"
            if parse_long(entry.name) is None:
                self._log.warn(broker_log.INDEX_LOAD_ERROR)
                continue
            if entry.is_directory:
                self._log.warn(broker_log.create_failed(path))
                self._log.warn(broker_log.INDEX_LOAD_ERROR)
                return False
            if entry.size < self._size:
                self._files.resize(path, self._size)
            file = self._open(path)
            if not clean and file.end_timestamp > checkpoint.index_msg_timestamp:
                self._files.delete(path)
            else:
                self._list.append(file)
        return True

    def _open(self, path: str) -> IndexFile:
        return IndexFile(self._files, path, self._settings, self._contents)

    def _current(self, checkpoint: Checkpoint) -> IndexFile:
        """Return the file to write to; a new one when the last is full. upstream: ``getAndCreateLastIndexFile``."""
        previous = self._list[-1] if self._list else None
        if previous is not None and not previous.is_full:
            return previous
        path = f"{paths.INDEX}/{NEW_NAME}{len(self.created) + 1}"
        self._files.create(path, self._size)
        self.created.append(path)
        file = self._open(path)
        if previous is not None:
            file.preset(previous.end_phy_offset, previous.end_timestamp)
            previous.settle(header=True)
            if previous.end_timestamp > 0:
                checkpoint.index_msg_timestamp = previous.end_timestamp
                checkpoint.flush()
        self._list.append(file)
        return file

    def dispatch(self, message: Message, checkpoint: Checkpoint) -> None:
        """Index a record under its keys. upstream: ``IndexService.buildIndex``."""
        file = self._current(checkpoint)
        if message.physical_offset < file.end_phy_offset:
            return
        if message.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
            return
        texts: list[str] = []
        if self._contents:
            texts = list(iter_index_texts(message, self._settings.rules))
            left = len(texts)
        else:
            left = count_index_texts(message.raw_properties, tags=self._settings.rules.tag_entries)
        while left:
            while file.is_full:
                self._log.warn(broker_log.INDEX_OVER_CAPACITY)
                self._log.warn(broker_log.INDEX_FULL)
                file = self._current(checkpoint)
            entries = min(left, self._settings.index_entries - file.index_count)
            file.add(message, entries, texts[:entries])
            del texts[:entries]
            left -= entries

    def dispatch_batch(self, batch: Batch, first: int, last: int) -> int:
        """Index records of a batch as long as no file gets full by it; return the number of the first that is not.

        Their places ascend. Only for a service without contents.
        """
        import numpy as np

        file = self._list[-1] if self._list else None
        if file is None or file.is_full:
            return first
        offsets = batch.physical_offsets[first:last]
        begin = first + int(np.searchsorted(offsets, file.end_phy_offset))
        texts = batch.index_texts(self._settings.rules.tag_entries)[begin:last]
        sums = np.cumsum(texts)
        end = begin + int(np.searchsorted(sums, self._settings.index_entries - file.index_count))
        indexed = np.flatnonzero(texts[: end - begin])
        if len(indexed):
            one, other = (
                (int(batch.physical_offsets[begin + number]), int(batch.store_timestamps[begin + number]))
                for number in (indexed[0], indexed[-1])
            )
            file.add_many(int(sums[end - begin - 1]), one, other)
        return end

    def settle(self) -> None:
        """Bring on disk what upstream wrote there with every entry."""
        for file in self._list:
            file.settle()

    def shutdown(self) -> None:
        """Write every header, as 5.x does."""
        for file in self._list:
            file.settle(header=True)
