"""``IndexService``: which index files a start drops, and what it adds while records are dispatched."""

from __future__ import annotations

from rmqtool.formats import layouts
from rmqtool.formats.codes import TransactionType, transaction_type
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts
from rmqtool.formats.index import (
    HEADER_SIZE,
    SLOT_SIZE,
    entry_offset,
    file_size,
    key_hash,
    slot_offset,
    time_diff,
)
from rmqtool.upstream import broker_log
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.checkpoint import Checkpoint
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.java_numbers import parse_long
from rmqtool.upstream.settings import StartSettings

INDEX_DIRECTORY = "index"

_HEADER = layouts.INDEX_HEADER


class IndexFile:
    """One file: its header in memory, its slots and entries on disk."""

    def __init__(self, files: StoreFiles, path: str, settings: StartSettings) -> None:
        self._files = files
        self.path = path
        self._slots = settings.index_slots
        self._entries = settings.index_entries
        header = _HEADER.decode(files.read(path, 0, HEADER_SIZE))
        self.header = header if header.index_count > 0 else header._replace(index_count=1)

    @property
    def is_full(self) -> bool:
        """Whether no entry fits in."""
        return self.header.index_count >= self._entries

    def put_key(self, text: str, message: Message) -> None:
        """Write an entry, its slot and the header. upstream: ``IndexFile.putKey``."""
        header = self.header
        number = header.index_count
        hashed = key_hash(text)
        slot_at = slot_offset(hashed % self._slots)
        previous = layouts.INDEX_SLOT.decode(self._files.read(self.path, slot_at, SLOT_SIZE))[0]
        if previous <= 0 or previous > number:
            previous = 0
        difference = time_diff(message.store_timestamp, header.begin_timestamp)
        entry = layouts.IndexEntry(hashed, message.physical_offset, difference, previous)
        self._files.write(self.path, entry_offset(self._slots, number), layouts.INDEX_ENTRY.encode(entry))
        self._files.write(self.path, slot_at, layouts.INDEX_SLOT.packer.pack(number))
        if number <= 1:
            header = header._replace(begin_phy_offset=message.physical_offset, begin_timestamp=message.store_timestamp)
        self.header = header._replace(
            hash_slot_count=header.hash_slot_count + (previous == 0),
            index_count=number + 1,
            end_phy_offset=message.physical_offset,
            end_timestamp=message.store_timestamp,
        )
        self.write_header()

    def write_header(self) -> None:
        """Write the header."""
        self._files.write(self.path, 0, _HEADER.encode(self.header))


class IndexService:
    """The index files of a store."""

    def __init__(self, files: StoreFiles, settings: StartSettings, log: BrokerLog) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._size = file_size(settings.index_slots, settings.index_entries)
        self._list: list[IndexFile] = []
        self._created = 0

    def load(self, clean: bool, checkpoint: Checkpoint) -> bool:
        """Take in the files, after a crash without those that were not finished when the checkpoint was written."""
        for entry in self._files.entries(INDEX_DIRECTORY):
            path = f"{INDEX_DIRECTORY}/{entry.name}"
            if parse_long(entry.name) is None:
                self._log.warn(broker_log.INDEX_LOAD_ERROR)
                continue
            if entry.is_directory:
                self._log.warn(broker_log.INDEX_CREATE_FAILED)
                self._log.warn(broker_log.INDEX_LOAD_ERROR)
                return False
            if entry.size < self._size:
                self._files.resize(path, self._size)
            file = IndexFile(self._files, path, self._settings)
            if not clean and file.header.end_timestamp > checkpoint.index_msg_timestamp:
                self._files.delete(path)
            else:
                self._list.append(file)
        return True

    def _current(self, checkpoint: Checkpoint) -> IndexFile:
        """Return the file to write to; a new one when the last is full. upstream: ``getAndCreateLastIndexFile``."""
        previous = self._list[-1] if self._list else None
        if previous is not None and not previous.is_full:
            return previous
        self._created += 1
        path = f"{INDEX_DIRECTORY}/NEW-{self._created}"
        self._files.create(path, self._size)
        file = IndexFile(self._files, path, self._settings)
        if previous is not None:
            self._preset(file, previous)
            if previous.header.end_timestamp > 0:
                checkpoint.set_index(previous.header.end_timestamp)
            previous.write_header()
            if previous.header.end_timestamp > 0:
                checkpoint.flush()
        self._list.append(file)
        return file

    def _preset(self, file: IndexFile, previous: IndexFile) -> None:
        """Start a file where the last one ends; the count reaches the disk with the first entry."""
        offset, timestamp = previous.header.end_phy_offset, previous.header.end_timestamp
        header = file.header
        if offset > 0:
            header = header._replace(begin_phy_offset=offset, end_phy_offset=offset)
        if timestamp > 0:
            header = header._replace(begin_timestamp=timestamp, end_timestamp=timestamp)
        file.header = header._replace(index_count=0)
        file.write_header()
        file.header = header

    def dispatch(self, message: Message, checkpoint: Checkpoint) -> None:
        """Index a record under its keys. upstream: ``IndexService.buildIndex``."""
        file = self._current(checkpoint)
        if message.physical_offset < file.header.end_phy_offset:
            return
        if transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
            return
        for text in iter_index_texts(message, self._settings.rules):
            while file.is_full:
                self._log.warn(broker_log.INDEX_OVER_CAPACITY)
                self._log.warn(broker_log.INDEX_FULL)
                file = self._current(checkpoint)
            file.put_key(text, message)

    def shutdown(self) -> None:
        """Write every header, as 5.x does."""
        for file in self._list:
            file.write_header()
