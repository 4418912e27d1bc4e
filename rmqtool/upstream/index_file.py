"""``IndexFile``: one index file while a broker adds entries to it.

Upstream writes through with every entry. Here entries are gathered and written together, and only when somebody wants
the bytes: how many there are decides everything else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.commit_log import Message
from rmqtool.formats.index import HEADER_SIZE, SLOT_SIZE, entry_offset, key_hash, slot_offset, time_diff
from rmqtool.upstream.files import StoreFiles
from rmqtool.upstream.settings import StartSettings

_HEADER = layouts.INDEX_HEADER
_ENTRY = layouts.INDEX_ENTRY
# So many entries are gathered before they are written.
_MOST_PENDING = 1 << 16
# Slots are written in pieces, those that are as before left out.
_PIECE = 1 << 10


class _Pending(NamedTuple):
    text: str
    physical_offset: int
    time_diff: int


class IndexFile:
    """One file. With ``contents`` its slots and entries become those that the broker writes."""

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
        """Whether no entry fits in."""
        return self.index_count >= self._settings.index_entries

    def preset(self, offset: int, timestamp: int) -> None:
        """Begin a file where the last one ends; its count reaches the disk with the first entry."""
        if offset > 0:
            self.begin_phy_offset = self.end_phy_offset = offset
        if timestamp > 0:
            self.begin_timestamp = self.end_timestamp = timestamp
        self._write_header(0)

    def add(self, message: Message, entries: int, texts: Iterable[str] = ()) -> None:
        """Add entries for a message; ``texts`` are those of their keys. upstream: ``putKey``."""
        for text in texts:
            seconds = time_diff(message.store_timestamp, self.begin_timestamp)
            self._pending.append(_Pending(text, message.physical_offset, seconds))
            if self.index_count <= 1:
                # The next entry's time counts from this message.
                self.begin_timestamp = message.store_timestamp
        if self.index_count <= 1:
            self.begin_phy_offset, self.begin_timestamp = message.physical_offset, message.store_timestamp
        self.index_count += entries
        self.end_phy_offset, self.end_timestamp = message.physical_offset, message.store_timestamp
        self._added = True
        if len(self._pending) >= _MOST_PENDING:
            self._write_pending()

    def add_many(self, entries: int, first: tuple[int, int], last: tuple[int, int]) -> None:
        """Add entries for many messages, without contents; ``first`` and ``last`` are their places and store times."""
        if self.index_count <= 1:
            self.begin_phy_offset, self.begin_timestamp = first
        self.index_count += entries
        self.end_phy_offset, self.end_timestamp = last
        self._added = True

    def settle(self, header: bool = False) -> None:
        """Write what was added, and the header if anything was, or if it is wanted."""
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
            slot = hashed % self._settings.index_slots
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
