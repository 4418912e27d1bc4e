"""Keys looked up in the index files, as a broker does it, and with an eye on what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.errors import ReadFailed
from rmqtool.findings import Finding, Severity
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.paths import FileKind
from rmqtool.storage.discovery import FoundFile
from rmqtool.storage.filesystem import ReadableFile
from rmqtool.storage.index_files import (
    Chain,
    Geometry,
    IndexFile,
    ends_home,
    is_time_matched,
    iter_links,
    open_index,
    read_header,
    select_offsets,
)
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


def iter_broker_hits(indexes: Indexes, key_hash: int, begin: int, end: int) -> Iterator[int]:
    """Yield the physical offsets that a broker finds for this window, newest file first, newest entry first.

    Both ends belong to the window, which is compared with times cut to the second.
    upstream: IndexService.queryOffset
    """
    for file in reversed(indexes.files):
        if is_time_matched(file.opened, begin, end):
            for found in select_offsets(file.opened, key_hash, begin, end):
                if isinstance(found, Flaw):
                    indexes.complain(found.code, file.path, found.message, found.at)
                else:
                    yield found
        if file.opened.header.begin_timestamp < begin:
            return
