"""``IndexService`` and ``IndexFile``: the index files that a start drops, and the entries that it adds.

Upstream writes each entry to the file at once. Here entries are gathered and written together, and only if the caller
needs the bytes, because the number of entries decides everything else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from rmqtool.files.filesystem import WritableFileSystem
from rmqtool.formats import layouts, paths
from rmqtool.formats.codes import TRANSACTION_MASK, TransactionType
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import iter_index_texts
from rmqtool.formats.index import (
    HEADER_SIZE,
    SLOT_SIZE,
    entry_offset,
    file_size,
    key_hash,
    slot_of,
    slot_offset,
    time_diff,
)
from rmqtool.formats.java import parse_long
from rmqtool.upstream import broker_log
from rmqtool.upstream.batches import Batch
from rmqtool.upstream.broker_log import BrokerLog
from rmqtool.upstream.commit_log import Checkpoint
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.settings import StartSettings

_HEADER = layouts.INDEX_HEADER
_ENTRY = layouts.INDEX_ENTRY
# Entries that are gathered before they are written.
_MOST_PENDING = 1 << 16
# Slots are compared in pieces of this many, and only changed pieces are written.
_PIECE = 1 << 10


class _Pending(NamedTuple):
    text: str
    physical_offset: int
    time_diff: int


class IndexFile:
    """One file. Its slots and entries are written only with ``contents``."""

    def __init__(self, files: StoreFiles, path: str, settings: StartSettings, contents: bool) -> None:
        self._files = files
        self._settings = settings
        self._contents = contents
        self.path = path
        header = _HEADER.decode(files.read(path, 0, HEADER_SIZE))
        self.begin_timestamp = header.begin_timestamp
        self.end_timestamp = header.end_timestamp
        self.begin_phy_offset = header.begin_phy_offset
        self.end_phy_offset = header.end_phy_offset
        self._hash_slot_count = header.hash_slot_count
        self.index_count = max(header.index_count, 1)
        self._added = False
        self._pending: list[_Pending] = []

    @property
    def is_full(self) -> bool:
        """Whether the file has no space for another entry."""
        return self.index_count >= self._settings.index_entries

    def preset(self, offset: int, timestamp: int) -> None:
        """Begin a file with the end of the last one. Its count is written with the first entry."""
        if offset > 0:
            self.begin_phy_offset = self.end_phy_offset = offset
        if timestamp > 0:
            self.begin_timestamp = self.end_timestamp = timestamp
        self._write_header(0)

    def add(self, message: Message, entries: int, texts: Iterable[str] = ()) -> None:
        """Add the entries of a message; ``texts`` are those of its keys. upstream: ``putKey``."""
        for text in texts:
            seconds = time_diff(message.store_timestamp, self.begin_timestamp)
            self._pending.append(_Pending(text, message.physical_offset, seconds))
            if self.index_count <= 1:
                # The time of the next entry is relative to this message.
                self.begin_timestamp = message.store_timestamp
        if self.index_count <= 1:
            self.begin_phy_offset, self.begin_timestamp = message.physical_offset, message.store_timestamp
        self.index_count += entries
        self.end_phy_offset, self.end_timestamp = message.physical_offset, message.store_timestamp
        self._added = True
        if len(self._pending) >= _MOST_PENDING:
            self._write_pending()

    def add_many(self, entries: int, first: tuple[int, int], last: tuple[int, int]) -> None:
        """Add the entries of many messages without contents.

        ``first`` and ``last`` are (physical offset, store time).
        """
        if self.index_count <= 1:
            self.begin_phy_offset, self.begin_timestamp = first
        self.index_count += entries
        self.end_phy_offset, self.end_timestamp = last
        self._added = True

    def settle(self, header: bool = False) -> None:
        """Write the added entries, and the header if there are any or on request."""
        if self._pending:
            self._write_pending()
        if self._added or header:
            self._write_header(self.index_count)

    def _write_header(self, index_count: int) -> None:
        header = layouts.IndexHeader(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self._hash_slot_count,
            index_count,
        )
        self._files.write(self.path, 0, _HEADER.encode(header))

    def _write_pending(self) -> None:
        number = self.index_count - len(self._pending)
        at = entry_offset(self._settings.index_slots, number)
        slots = self._read_slots()
        before = slots[:]
        entries = bytearray()
        for pending in self._pending:
            hashed = key_hash(pending.text)
            slot = slot_of(hashed, self._settings.index_slots)
            previous = slots[slot]
            if previous <= 0 or previous > number:
                previous = 0
                self._hash_slot_count += 1
            slots[slot] = number
            entries += _ENTRY.packer.pack(hashed, pending.physical_offset, pending.time_diff, previous)
            number += 1
        self._files.write(self.path, at, bytes(entries))
        self._write_slots(before, slots)
        self._pending = []

    def _read_slots(self) -> array[int]:
        data = self._files.read_exactly(self.path, slot_offset(0), self._settings.index_slots * SLOT_SIZE)
        return array("i", (value for (value,) in layouts.INDEX_SLOT.packer.iter_unpack(data)))

    def _write_slots(self, before: array[int], after: array[int]) -> None:
        for first in range(0, len(after), _PIECE):
            piece = after[first : first + _PIECE]
            if piece != before[first : first + _PIECE]:
                data = b"".join(map(layouts.INDEX_SLOT.packer.pack, piece))
                self._files.write(self.path, slot_offset(first), data)


# A broker names a new file by its clock, which the model does not know.
NEW_NAME = "NEW-"


def name_new(files: WritableFileSystem, now: datetime) -> list[str]:
    """Rename the new index files as a broker of this time and its zone names them; return their paths.

    A name must sort after all others, even if the clock ran backwards: the last file is the one that is written to.
    """
    entries = [entry.name for entry in files.listdir(paths.INDEX)] if files.is_directory(paths.INDEX) else []
    made = sorted((name for name in entries if name.startswith(NEW_NAME)), key=lambda name: int(name[len(NEW_NAME) :]))
    last = max((name for name in entries if name.isdecimal()), default="")
    found = []
    for number in made:
        name = paths.index_name(int(now.timestamp() * 1000), now.tzinfo or UTC)
        last = name if name > last else f"{int(last) + 1:0{len(name)}d}"
        found.append(f"{paths.INDEX}/{last}")
        files.rename(f"{paths.INDEX}/{number}", found[-1])
    return found


class IndexService:
    """The index files of a store. Slots and entries are written only with ``contents``."""

    def __init__(self, files: StoreFiles, settings: StartSettings, log: BrokerLog, contents: bool) -> None:
        self._files = files
        self._settings = settings
        self._log = log
        self._contents = contents
        self._size = file_size(settings.index_slots, settings.index_entries)
        self._list: list[IndexFile] = []
        self.created: list[str] = []

    def load(self, clean: bool, checkpoint: Checkpoint) -> bool:
        """Load the files. After a crash, delete those that end after the checkpoint's time: they may be unfinished."""
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
        """Return the file to write to, a new one if the last is full. upstream: ``getAndCreateLastIndexFile``."""
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
        """Add the index entries of a record. upstream: ``IndexService.buildIndex``."""
        file = self._current(checkpoint)
        if message.physical_offset < file.end_phy_offset:
            return
        if message.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
            return
        texts = list(iter_index_texts(message, self._settings.rules))
        left = len(texts)
        while left:
            while file.is_full:
                self._log.warn(broker_log.INDEX_OVER_CAPACITY)
                self._log.warn(broker_log.INDEX_FULL)
                file = self._current(checkpoint)
            entries = min(left, self._settings.index_entries - file.index_count)
            file.add(message, entries, texts[:entries] if self._contents else ())
            del texts[:entries]
            left -= entries

    def dispatch_batch(self, batch: Batch, first: int, last: int) -> int:
        """Index records of a batch until a file becomes full; return the number of the first one that is left.

        Physical offsets must ascend. Only for a service without contents.
        """
        import numpy as np

        file = self._list[-1] if self._list else None
        if file is None or file.is_full:
            return first
        offsets = batch.physical_offsets[first:last]
        begin = first + int(np.searchsorted(offsets, file.end_phy_offset))
        texts = batch.index_texts[begin:last]
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
        """Write what upstream has written with each entry."""
        for file in self._list:
            file.settle()

    def shutdown(self) -> None:
        """Write every header, as 5.x does."""
        for file in self._list:
            file.settle(header=True)
