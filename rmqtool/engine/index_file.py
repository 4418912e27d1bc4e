"""Writes index files: each key of a message gets an entry, and a lookup finds the newest first.

Entries are appended in the order of the log. Slots are scattered over their table; while many keys come at once they
stay in memory, and are written when the file is forced. Readers in this process use the memory. upstream:
IndexService.buildIndex, IndexFile.putKey.

A file can become full in the middle of a message. The other keys go to the next file, whose header begins with the end
of the full one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from rmqtool.engine.clock import Clock
from rmqtool.files.filesystem import WritableFile, WritableFileSystem, join, make_directories, new_file
from rmqtool.formats import index, layouts
from rmqtool.formats.layouts import IndexEntry, IndexHeader
from rmqtool.formats.paths import INDEX, index_name
from rmqtool.store.index_files import Geometry

if TYPE_CHECKING:
    from rmqtool.columns.index_build import Keys

# The number of the first entry. 0 in a slot means that the slot is empty, so entry 0 is not used.
_FIRST = 1
_encode_slot = layouts.INDEX_SLOT.packer.pack
_encode_entry = layouts.INDEX_ENTRY.packer.pack
_DIRECTORY = INDEX


class IndexFileWriter:
    """One index file with space for more entries."""

    def __init__(self, file: WritableFile, geometry: Geometry, header: IndexHeader, *, is_new: bool = False) -> None:
        self.path = file.path
        self.geometry = geometry
        self.header = header
        self._file = file
        self._entries: list[bytes] = []
        self._written_count = self.next_entry
        self._written_header = header
        # ``_slots`` has the slots that differ from those in the file. Once many keys have come at once, ``_table`` has
        # all slots in its place.
        self._slots: dict[int, int] = {}
        self._table: bytearray | None = None
        self._is_dirty = is_new

    @property
    def next_entry(self) -> int:
        """The number of the next entry. A new header counts 0, the next entry is then the first."""
        return max(self.header.index_count, _FIRST)

    @property
    def is_full(self) -> bool:
        """Whether the file has no space for another entry. Entry 0 is not used, so it holds one less than its size."""
        return self.next_entry >= self.geometry.entries

    def put(self, key_hash: int, physical_offset: int, store_timestamp: int) -> None:
        """Add an entry; the file must not be full."""
        old = self.header
        number = max(old.index_count, _FIRST)
        slot = index.slot_of(key_hash, self.geometry.slots)
        previous = self.slot(slot)
        seconds = index.time_diff(store_timestamp, old.begin_timestamp)
        self._entries.append(_encode_entry(key_hash, physical_offset, seconds, previous))
        self._set_slot(slot, number)
        is_first = number == _FIRST
        self.header = IndexHeader(
            store_timestamp if is_first else old.begin_timestamp,
            store_timestamp,
            physical_offset if is_first else old.begin_phy_offset,
            physical_offset,
            old.hash_slot_count + (previous == 0),
            number + 1,
        )

    def reserve_table(self) -> None:
        """Take the table of slots into memory, and the blocks for it from the disk.

        A full disk then fails before anything depends on the table, and not when the file is forced.
        """
        if self._table is None:
            self._file.pwrite(self._loaded_table(), index.slot_offset(0))

    def put_keys(self, keys: Keys) -> int:
        """Add as many of ``keys`` as fit; return how many."""
        from rmqtool.columns.index_build import hang_in, slots_of

        count = min(len(keys.key_hashes), self.geometry.entries - self.next_entry)
        if count > 0:
            hung = hang_in(slots_of(self._loaded_table()), self.header, keys.cut(0, count))
            self._entries.append(hung.entries.tobytes())
            self.header = hung.header
        return max(count, 0)

    def _loaded_table(self) -> bytearray:
        """Return the table of all slots, which is in memory from now on."""
        if self._table is None:
            self._table = bytearray(self.geometry.slots * index.SLOT_SIZE)
            self._file.pread_into(self._table, index.slot_offset(0))
            for slot, number in self._slots.items():
                self._set_slot(slot, number)
            self._slots.clear()
        return self._table

    def slot(self, slot: int) -> int:
        """Return the number of a slot's newest entry, 0 without one."""
        number = self._slots.get(slot)
        if number is None:
            table = self._table
            if table is None:
                data = self._file.pread_exactly(index.SLOT_SIZE, index.slot_offset(slot))
                number = layouts.INDEX_SLOT.unpack_from(data)[0]
            else:
                number = layouts.INDEX_SLOT.unpack_from(table, slot * index.SLOT_SIZE)[0]
        # A number that no entry has yet ends the chain. upstream: the number of the next entry does not.
        return number if 0 < number < self.next_entry else 0

    def newest_of(self, key_hash: int) -> int | None:
        """Return the number of the newest entry of a hash's slot; None if the slots are not in memory, but written."""
        return None if self._table is None else self.slot(index.slot_of(key_hash, self.geometry.slots))

    def _set_slot(self, slot: int, number: int) -> None:
        """Make an entry the newest one of a slot, in memory."""
        if self._table is None:
            self._slots[slot] = number
        else:
            layouts.INDEX_SLOT.pack_into(self._table, slot * index.SLOT_SIZE, number)

    def entry(self, number: int) -> IndexEntry:
        """Return the entry of a number, from the file or from those that wait for ``write_pending``."""
        at = number - self._written_count
        if at >= 0:
            return layouts.INDEX_ENTRY.decode(b"".join(self._entries), at * index.ENTRY_SIZE)
        data = self._file.pread_exactly(index.ENTRY_SIZE, index.entry_offset(self.geometry.slots, number))
        return layouts.INDEX_ENTRY.decode(data)

    def write_pending(self) -> None:
        """Write entries and header to the file, and the slots unless the whole table is in memory."""
        if self._entries:
            data = b"".join(self._entries)
            self._is_dirty = True
            self._file.pwrite(data, index.entry_offset(self.geometry.slots, self._written_count))
            self._written_count += len(data) // index.ENTRY_SIZE
            self._entries.clear()
        # Slots after the entries, so that no reader finds a slot whose entry is not written.
        if self._table is None:
            self._write_slots()
        self._write_header()

    def _write_header(self) -> None:
        """Write the header if it differs from that in the file."""
        if self.header != self._written_header:
            self._file.pwrite(layouts.INDEX_HEADER.encode(self.header), 0)
            self._written_header = self.header

    def _write_slots(self) -> None:
        """Write the table of slots if it is in memory, else only the slots that changed."""
        if self._table is not None:
            self._file.pwrite(self._table, index.slot_offset(0))
            return
        for first, numbers in _runs(self._slots):
            self._file.pwrite(b"".join(map(_encode_slot, numbers)), index.slot_offset(first))
        self._slots.clear()

    def flush(self) -> None:
        """Write entries, header and slots to the file and force it; nothing if nothing changed."""
        if self._is_dirty or self._entries:
            self.write_pending()
            self._write_slots()
            self._file.fdatasync()
            self._is_dirty = False

    def take_back(self) -> None:
        """Drop the entries that a failed ``write_pending`` left, in memory and in the file.

        The header is written last. So slots in the file may have numbers of entries that it does not count, and such a
        number would end their chains.
        """
        first = max(self._written_header.index_count, _FIRST)
        for number in reversed(range(first, self.next_entry)):
            entry = self.entry(number)
            slot = index.slot_of(entry.key_hash, self.geometry.slots)
            self._set_slot(slot, entry.prev_index)
        for slot, number in self._slots.items():
            # A slot that was not written may be in a hole, and needs a block that the disk does not have.
            place = index.slot_offset(slot)
            if self._file.pread_exactly(index.SLOT_SIZE, place) != _encode_slot(number):
                self._file.pwrite(_encode_slot(number), place)
        self._entries.clear()
        self._slots.clear()
        self._written_count = first
        self.header = self._written_header

    def close(self) -> None:
        """Close the file; what ``flush`` has not written is dropped."""
        self._file.close()


def _runs(slots: dict[int, int]) -> Iterable[tuple[int, list[int]]]:
    """Yield neighbouring slots together, in ascending order: (first slot, the number of each slot's newest entry)."""
    first, numbers = 0, list[int]()
    for slot in sorted(slots):
        if numbers and slot != first + len(numbers):
            yield first, numbers
            numbers = []
        if not numbers:
            first = slot
        numbers.append(slots[slot])
    if numbers:
        yield first, numbers


class IndexService:
    """The index of a store: the growing file, and the names of all files."""

    def __init__(self, files: WritableFileSystem, geometry: Geometry, clock: Clock) -> None:
        self.geometry = geometry
        self.names: list[str] = []
        self.current: IndexFileWriter | None = None
        # The physical offset of the last record that has all its index entries; -1 before the first.
        self.indexed_offset = -1
        # The end time of the newest file that is full and durable.
        self.durable_timestamp = 0
        self._files = files
        self._clock = clock
        # Held while many keys are inserted: the writer's lock, if a thread dispatches. It is never held while a file is
        # created or forced.
        self.without_puts: AbstractContextManager[object] = nullcontext()
        self._lock = threading.Lock()

    def restore(self, names: Sequence[str], current: IndexFileWriter | None) -> None:
        """Continue with the existing files, oldest first; ``current`` is the last one, opened for more entries."""
        self.names = list(names)
        self.current = current
        if current is not None:
            self.indexed_offset = current.header.end_phy_offset if current.next_entry > _FIRST else -1

    def put(self, hashes: Iterable[int], physical_offset: int, store_timestamp: int) -> None:
        """Index a record under key hashes, unless it is indexed already.

        Even without key hashes this creates a new file if the current one is full.

        upstream: the record of the last entry is indexed twice when it is dispatched again.
        """
        with self._lock:
            writer = self._writer()
            if physical_offset > self.indexed_offset:
                for key_hash in hashes:
                    if writer.is_full:
                        writer = self._writer()
                    writer.put(key_hash, physical_offset, store_timestamp)
                self.indexed_offset = physical_offset

    def put_keys(self, keys: Keys, physical_offset: int) -> None:
        """Index many records, the last of them at ``physical_offset``; the result is that of ``put`` for each."""
        with self._lock:
            new = keys.physical_offsets > self.indexed_offset
            if not new.all():
                keys = type(keys)(keys.key_hashes[new], keys.physical_offsets[new], keys.store_timestamps[new])
            writer = self._writer()
            at = 0
            while at < len(keys.key_hashes):
                writer = self._writer()
                writer.reserve_table()
                with self.without_puts:
                    at += writer.put_keys(keys.cut(at))
            if physical_offset > self.indexed_offset:
                self.indexed_offset = physical_offset
            if physical_offset > writer.header.end_phy_offset:
                # Like ``put``, a message without keys after a full file creates the next one.
                self._writer()

    def write_pending(self) -> None:
        """Write the entries of a pass to the growing file; its slots may stay in memory."""
        with self._lock:
            if self.current is not None:
                self.current.write_pending()

    def newest_of(self, key_hash: int) -> tuple[str, int] | None:
        """Write pending entries to the growing file; return its name, and the newest entry of the hash's slot there.

        None if the slots in all files are right. Nothing is forced: who queries does not wait for the disk.
        """
        with self._lock:
            if self.current is None:
                return None
            self.current.write_pending()
            newest = self.current.newest_of(key_hash)
            return None if newest is None else (self.names[-1], newest)

    def take_back(self) -> None:
        """Drop the entries of a pass that could not be written; they are due again."""
        with self._lock:
            if self.current is not None:
                self.current.take_back()
                # If the file has no entry now, the last record of the full file before it may have lost keys: it is due
                # again.
                header = self.current.header
                self.indexed_offset = header.end_phy_offset - (self.current.next_entry == _FIRST)

    def flush(self) -> None:
        """Write and force the growing file; the full ones are durable already."""
        with self._lock:
            if self.current is not None:
                self.current.flush()

    def close(self) -> None:
        """Close the growing file without writing."""
        if self.current is not None:
            self.current.close()

    def _writer(self) -> IndexFileWriter:
        """Return a file that is not full. A full one before it is forced first."""
        if self.current is not None and not self.current.is_full:
            return self.current
        before = None
        if self.current is not None:
            before = self.current.header
            self.current.flush()
            self.durable_timestamp = before.end_timestamp
        created = self._create(before)
        if self.current is not None:
            self.current.close()
        self.current = created
        return created

    def _create(self, before: IndexHeader | None) -> IndexFileWriter:
        """Create the next file.

        Its name is the time. It must sort after all others, even if the clock ran backwards.
        """
        make_directories(self._files, _DIRECTORY)
        now = self._clock.now()
        name = index_name(now, self._clock.zone)
        while self.names and name <= self.names[-1]:
            name = f"{int(self.names[-1]) + 1:0{len(name)}d}"
        header = IndexHeader(0, 0, 0, 0, 0, 0)
        if before is not None:
            time, place = max(before.end_timestamp, 0), max(before.end_phy_offset, 0)
            header = IndexHeader(time, time, place, place, 0, 0)
        path = join(_DIRECTORY, name)
        with new_file(self._files, path) as file:
            file.truncate(index.file_size(*self.geometry))
            file.pwrite(layouts.INDEX_HEADER.encode(header), 0)
            self._files.fsync_dir(_DIRECTORY)
        self.names.append(name)
        return IndexFileWriter(file, self.geometry, header, is_new=True)
