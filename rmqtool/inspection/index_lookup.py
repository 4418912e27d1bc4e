"""Keys looked up in the index files, as a broker does it, and with an eye on what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.errors import ReadFailed
from rmqtool.findings import Finding, Severity
from rmqtool.formats import index, layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import FileKind
from rmqtool.storage.discovery import FoundFile
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.index_files import Chain, Geometry, IndexFile, ends_home, open_index, read_header
from rmqtool.storage.store import Store


class OpenIndex(NamedTuple):
    """An index file that can be looked into."""

    path: str
    opened: IndexFile


@dataclass
class Indexes:
    """The index files of a store, oldest first; ``findings`` say why one could not be used or trusted.

    ``sound`` is False as soon as anything was seen that a broker's own index does not have: then an answer may lack
    messages, and only the log can tell.
    """

    store: Store
    files: list[OpenIndex] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    sound: bool = True
    _opened: list[ReadableFile] = field(default_factory=list)

    def open_all(self) -> None:
        """Open every file; one whose neighbours have the same size has their geometry."""
        config = self.store.config
        hints = [Geometry(config.max_hash_slot_num, config.max_index_num)]
        for file in self.store.listing.of_kind(FileKind.INDEX):
            opened = self._open(file, hints)
            if opened is not None:
                self.files.append(OpenIndex(file.path, opened))
                hints.insert(0, opened.geometry)

    def _open(self, file: FoundFile, hints: list[Geometry]) -> IndexFile | None:
        try:
            readable = self.store.filesystem.open_read(file.path)
        except ReadFailed as error:
            self.complain("IX-HEAD", file.path, f"{file.path} cannot be read: {error.message}", 0)
            return None
        self._opened.append(readable)
        header = read_header(readable)
        if header is None:
            self.complain("IX-HEAD", file.path, f"{file.path} is shorter than a header", 0)
            return None
        opened = open_index(readable, hints)
        if header.index_count in (0, 1) and header.begin_phy_offset != header.end_phy_offset:
            self.complain("IX-HEAD", file.path, f"{file.path} has no entry, but messages in its header", 0)
        if opened is None:
            if header.index_count not in (0, 1):
                self.complain("IX-HEAD", file.path, f"no geometry fits {file.path}", 0)
            return None
        if opened.next_index_no > 1 and not ends_home(opened):
            text = f"the last entry of {file.path} is not that of the last message its header names"
            self.complain("IX-HEAD", file.path, text, 0)
        return opened

    def complain(self, code: str, path: str, text: str, file_offset: int) -> None:
        """Remember that an index file is not as a broker leaves it."""
        self.sound = False
        consequence = "a broker answers queries by key wrongly; the log is searched instead"
        finding = Finding(code, Severity.WARNING, text, file=path, offset=file_offset, consequence=consequence)
        if finding not in self.findings:
            self.findings.append(finding)

    def iter_hits(self, file: OpenIndex, key_hash: int) -> Iterator[Chain]:
        """Yield the entries of this hash in a file, newest first; what is wrong on the way becomes a finding."""
        for link in iter_links(file.opened, key_hash):
            if isinstance(link, Flaw):
                self.complain(link.code, file.path, link.message, link.at)
            elif link.entry.key_hash == key_hash:
                yield link

    def close(self) -> None:
        """Close the files."""
        while self._opened:
            with suppress(ReadFailed):
                self._opened.pop().close()


def iter_links(opened: IndexFile, key_hash: int) -> Iterator[Chain | Flaw]:
    """Yield the entries of the slot of ``key_hash``, newest first; a flaw is the last.

    A chain leads to ever older entries of one slot. Whatever else it does is a flaw, so no loop can hold it.
    """
    slots, next_index_no = opened.geometry.slots, opened.next_index_no
    slot = key_hash % slots
    place = index.slot_offset(slot)
    data = opened.file.pread(index.SLOT_SIZE, place)
    index_no: int = layouts.INDEX_SLOT.unpack_from(data)[0] if len(data) == index.SLOT_SIZE else 0
    newer = next_index_no
    while index_no:
        if not 0 < index_no < next_index_no:
            text = f"a link leads to entry {index_no}, the last one is {next_index_no - 1}"
            yield Flaw("IX-WRONG", text, place)
            return
        if index_no >= newer:
            yield Flaw("IX-LOOP", f"entry {newer} leads back to entry {index_no}", place)
            return
        place = index.entry_offset(slots, index_no)
        entry = opened.entry(index_no)
        if entry is None or entry.key_hash < 0 or entry.key_hash % slots != slot:
            yield Flaw("IX-WRONG", f"entry {index_no} stands in the chain of slot {slot}, its hash does not", place)
            return
        yield Chain(index_no, entry)
        newer, index_no = index_no, entry.prev_index


def is_time_matched(opened: IndexFile, begin: int, end: int) -> bool:
    """Return whether a broker looks into a file for this window.

    upstream: IndexFile.isTimeMatched
    """
    first, last = opened.header.begin_timestamp, opened.header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def iter_broker_hits(indexes: Indexes, key_hash: int, begin: int, end: int) -> Iterator[int]:
    """Yield the physical offsets that a broker finds for this window, newest file first, newest entry first.

    Both ends belong to the window, which is compared with times cut to the second.
    upstream: IndexService.queryOffset, IndexFile.selectPhyOffset
    """
    for file in reversed(indexes.files):
        if is_time_matched(file.opened, begin, end):
            for link in iter_links(file.opened, key_hash):
                if isinstance(link, Flaw):
                    indexes.complain(link.code, file.path, link.message, link.at)
                    break
                if link.entry.time_diff < 0:
                    break
                time = file.opened.entry_time(link.entry)
                if link.entry.key_hash == key_hash and begin <= time <= end:
                    yield link.entry.phy_offset
                if time < begin:
                    break
        if file.opened.header.begin_timestamp < begin:
            return
