"""The explorer: the open store, the links between its parts, and pages for words that people type.

What a page shows at once is read from a store that is opened without its queues, of which there can be thousands: the
directory of a queue is listed when the queue is shown. Questions that need the whole store open it for themselves, in
the thread that loads their page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, Any

from rmqtool.api.query import find
from rmqtool.api.store import Store as Named
from rmqtool.browse.file_pages import FileAt, FilePage, Leaf, chain_page, field_of, file_in, newest_page
from rmqtool.browse.found_pages import filtered_page, search_page, time_page
from rmqtool.browse.message_pages import LogPage, MessagePage, further_rows, story_rows
from rmqtool.browse.page import Column, Link, ListPage, Page, Row, Scope, Sought, line
from rmqtool.browse.queue_pages import QueuePage, absent_page, other_queues, stored_queue_page
from rmqtool.errors import NotFound, UsageError
from rmqtool.files.filesystem import Kind
from rmqtool.formats import layouts, paths
from rmqtool.formats.message_json import message_json
from rmqtool.formats.paths import FileKind, StorePath
from rmqtool.log.end import read_record
from rmqtool.look.dump import iter_references
from rmqtool.render.text import count, neutral
from rmqtool.store.listing import QueueId
from rmqtool.store.open import Store, open_store
from rmqtool.store.queues import ConsumeQueueFiles
from rmqtool.store.segments import Segment, SegmentQueue

if TYPE_CHECKING:
    from datetime import tzinfo

    from rmqtool.store.config_files import Configs

# Directories that are listed when they are shown: each queue has one.
_LATER = (paths.CONSUME_QUEUE, paths.CONSUME_QUEUE_EXT)
_PLACE = re.compile(r"(.+)/(\d+)@(\d+)", re.DOTALL)
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?")


class Explorer:
    """An open store and the pages of its parts."""

    def __init__(self, named: Named, zone: tzinfo | None = None) -> None:
        self.named, self.zone = named, zone
        self.name = quote(named.path)
        self.store = self._open()
        # Pages read by the file systems of stores that were open when they were made.
        self._opened = [self.store]
        self._names = self._look()
        self.others: frozenset[QueueId] | None = None
        # Read when it is asked for the first time.
        self.configs: Configs | None = None

    def _open(self) -> Store:
        """Open the store; its queues are listed later, unless a database has them or the path is one file."""
        as_version, assignments = self.named.as_version, self.named.assignments
        store = open_store(self.named.path, version=as_version, assignments=assignments, without=_LATER)
        if store.filesystem.exists(f"{paths.CONSUME_QUEUE}/CURRENT"):
            store.close()
            return open_store(self.named.path, version=as_version, assignments=assignments)
        return store

    def refresh(self) -> None:
        """Open the store again if files came or went since."""
        names = self._look()
        if names != self._names:
            self.store, self._names, self.configs = self._open(), names, None
            self._opened.append(self.store)

    def _look(self) -> tuple[str, ...]:
        """Return the names of files whose coming or going changes the tree; the files of queues are left out."""
        directories = ("", paths.INDEX, paths.TIMER_LOG, *self.store.listing.log_directories)
        return tuple(name for directory in directories for name in (directory, *self.list_directory(directory)))

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def log(self) -> SegmentQueue:
        """Return the commit log."""
        return self.store.commit_log

    # Files.

    def file_at(self, path: str, what: StorePath | None = None) -> FileAt:
        """Return a file below the root of the store."""
        return file_in(self.store, path, what)

    def segment_file(self, segment: Segment) -> FileAt:
        """Return the file of a segment of the log."""
        kind = FileKind.COMMIT_LOG
        if self.store.is_dledger and not self.store.listing.log_segments:
            kind = FileKind.DLEDGER_DATA
        return FileAt(segment.filesystem, segment.path, StorePath(kind, base_offset=segment.base_offset))

    def to_file(self, file: FileAt, at: int = 0) -> Link:
        """Return a link to a byte of a file."""
        return lambda: FilePage(file, self.follow, at)

    def queue_files(self, topic: str, queue_id: int) -> ConsumeQueueFiles:
        """Return the files of a simple queue as they are now."""
        directory = f"{paths.CONSUME_QUEUE}/{topic}/{queue_id}"
        return ConsumeQueueFiles(QueueId(topic, queue_id), self._segments(directory))

    def _segments(self, directory: str) -> SegmentQueue:
        files = self.store.filesystem
        found = []
        for entry in self.list_directory(directory):
            base_offset = paths.parse_segment_name(entry)
            status = None if base_offset is None else files.find_stat(f"{directory}/{entry}")
            if base_offset is not None and status is not None and status.kind is Kind.FILE:
                found.append(Segment(base_offset, status.size, f"{directory}/{entry}", files))
        return SegmentQueue(found)

    def list_directory(self, directory: str) -> list[str]:
        """Return the names in a directory of the store, sorted; none if it is gone."""
        files = self.store.filesystem
        return sorted(entry.name for entry in files.listdir(directory)) if files.is_directory(directory) else []

    # Links.

    def to_message(self, physical_offset: int) -> Link:
        """Return a link to the message at a physical offset."""
        return lambda: self.message_at(physical_offset)

    def message_at(self, physical_offset: int) -> Page:
        """Return the page of the message at an offset, or the bytes there if they are not a valid record."""
        segment = self.log().find(physical_offset)
        if segment is None:
            text = f"the log has offsets {self.log().min_offset} to {self.log().end_offset}, not {physical_offset}"
            rows = [line(text, style="error", details=(text,))]
            return ListPage(f"offset {physical_offset}", (Column("not in the log"),), rows, "")
        file, at = self.segment_file(segment), physical_offset - segment.base_offset
        message = read_record(self.log(), physical_offset)
        if message is None:
            note = f"no valid record begins at {physical_offset}; these are the bytes there"
            return FilePage(file, self.follow, at, note)
        command = f"rmqtool query {self.name} @{physical_offset} --history"
        fields = message_json(message).fields
        more = partial(self._story, fields)
        return MessagePage(self, fields, more, command, self.to_file(file, at))

    def _story(self, fields: Mapping[str, Any]) -> Iterator[Row]:
        """Yield the story of a message, what points at it, and its other fields; called in a thread of its own."""
        physical_offset = fields["commitLogOffset"]
        with find(self.named, f"@{physical_offset}", {"history": True, "kind": "physicalOffset"}) as found:
            yield from story_rows(found.head, self)
        with self.named.use() as store:
            message = read_record(store.commit_log, physical_offset)
            yield line("pointed at", "by its entries in", style="title")
            for file, file_offset, words, right in iter_references(store, message) if message else ():
                style = "error" if right is False else "dim" if right is None else ""
                link = None if file_offset is None else self._to_entry(file, file_offset)
                yield line(
                    "", neutral(f"{words}  {file}"), link=link, style=style, details=(neutral(file), neutral(words))
                )
        yield from further_rows(fields, self)

    def _to_entry(self, path: str, at: int) -> Link:
        file = self.file_at(path)
        if file.what.kind is FileKind.INDEX:
            return lambda: chain_page(self, file, at)
        return self.to_file(file, at)

    def to_queue(self, fields: Mapping[str, Any]) -> Link:
        """Return a link to the place of a message in its queue."""
        return lambda: self.queue_page(fields["topic"], fields["queueId"], fields["queueOffset"])

    def queue_page(self, topic: str, queue_id: int, at: int | None = None) -> Page:
        """Return the messages of a queue of any kind."""
        if self.queue_files(topic, queue_id).segments:
            page = QueuePage(self, topic, queue_id, at)
            page.said = "" if at is None else page.told(at)
            return page
        if queue_id not in self.queue_ids(topic):
            return absent_page(self, topic, queue_id)
        return stored_queue_page(self, topic, queue_id, at)

    def topic_names(self) -> list[str]:
        """Return the topics that have queues, from the names of directories, and of a database or batch queues."""
        files, names = self.store.filesystem, set[str]()
        if files.is_directory(paths.CONSUME_QUEUE):
            names = {entry.name for entry in files.listdir(paths.CONSUME_QUEUE) if entry.kind is Kind.DIRECTORY}
        return sorted(names | {queue.topic for queue in other_queues(self)})

    def queue_ids(self, topic: str) -> list[int]:
        """Return the numbers of the queues of a topic."""
        names = self.list_directory(f"{paths.CONSUME_QUEUE}/{topic}")
        found = {int(name) for name in names if name.isdecimal() and name.isascii()}
        return sorted(found | {queue.queue_id for queue in other_queues(self) if queue.topic == topic})

    def queue_entry(self, segments: SegmentQueue, queue_offset: int) -> Page:
        """Return the bytes of a queue entry."""
        position = queue_offset * layouts.CONSUME_QUEUE_UNIT.size
        segment = segments.find(position)
        if segment is None:
            raise NotFound(f"no file has the queue entry {queue_offset}", hint="the queue has changed meanwhile")
        return FilePage(self.file_at(segment.path), self.follow, position - segment.base_offset)

    def follow(self, file: FileAt, leaf: Leaf) -> Link | None:
        """Return where Enter goes from a field of a file."""
        kind, get = file.what.kind, partial(field_of, leaf)
        top = leaf.around[0] if leaf.around else leaf.region
        if top.kind == "record" and kind is FileKind.COMMIT_LOG:
            # Of a damaged record, the bytes are all there is.
            return None if top.right is False else self.to_message((file.what.base_offset or 0) + top.offset)
        if kind is FileKind.DLEDGER_DATA:
            record = next((one for one in leaf.around if one.kind == "record"), None)
            return None if record is None else self.to_message((file.what.base_offset or 0) + record.offset)
        if kind is FileKind.INDEX and top.kind == "entry":
            return lambda: chain_page(self, file, top.offset)
        if kind is FileKind.INDEX and top.kind == "slot" and top.value:
            return partial(newest_page, self, file, top.value)
        offset = get("physicalOffset") if kind is not FileKind.TIMER_LOG else get("offsetPy")
        if kind is FileKind.TIMER_WHEEL and get("lastPos") is not None:
            return partial(self._timer_entry, get("lastPos"))
        return None if offset is None or kind is FileKind.COMPACTION_QUEUE else self.to_message(offset)

    def _timer_entry(self, position: int) -> Page:
        """Return the bytes of an entry of the timer log."""
        segments = self.store.listing.segments(self.store.listing.of_kind(FileKind.TIMER_LOG))
        segment = segments.find(position)
        if segment is None:
            raise NotFound(f"no file of the timer log has position {position}", hint="the entry is deleted")
        return FilePage(self.file_at(segment.path), self.follow, position - segment.base_offset)

    # Words that people type.

    def link_of(self, fields: Mapping[str, Any]) -> Link:
        """Return a link to a message."""
        return self.to_message(fields["commitLogOffset"])

    def search(self, text: str, scope: Scope) -> Page:
        """Return the messages with an id, a key or a place; without any, those with the text in the body."""
        return search_page(self, text, scope)

    def filtered(self, text: str, scope: Scope) -> Page:
        """Return the messages of a scope with a tag, or for which an SQL92 expression is true."""
        return filtered_page(self, text, scope)

    def at_place(self, text: str, page: Page) -> Page:
        """Return the page for a place: an offset, TOPIC/QUEUE@N, or a time.

        A number is an offset of the page it is typed on: of its queue, its file, or else of the log.
        """
        named = _PLACE.fullmatch(text)
        if named is not None:
            return self.queue_page(named[1], int(named[2]), int(named[3]))
        if text.lstrip("@").isdecimal():
            return self._at_offset(int(text.lstrip("@")), page, is_physical=text.startswith("@"))
        if _CLOCK.fullmatch(text):
            day = datetime.now(self.zone).date()
            raise UsageError(
                f"{text} is a time without a day", hint=f"with its day: {day}T{text}, or -2h for 2 hours ago"
            )
        return time_page(self, text, page.scope)

    def _at_offset(self, offset: int, page: Page, *, is_physical: bool) -> Page:
        if isinstance(page, QueuePage) and not is_physical:
            return self.queue_page(page.scope.topic or "", page.scope.queue_id or 0, offset)
        if isinstance(page, FilePage) and not is_physical and offset < page.end:
            within = FilePage(page.file, self.follow, offset)
            within.sought = Sought(offset, offset)
            return within
        segment = self.log().find(offset)
        if isinstance(page, FilePage) and not is_physical and segment is None:
            text = (
                f"{neutral(page.title)} has offsets 0 to {page.end - 1}, not {offset}; the log does not have it either"
            )
            return ListPage(f"offset {offset}", (Column("not in this file"),), [line(text, details=(text,))], "")
        if segment is None:
            return self.message_at(offset)
        file, at = self.segment_file(segment), offset - segment.base_offset
        found = LogPage(self, file, at) if isinstance(page, LogPage) else FilePage(file, self.follow, at)
        found.sought = Sought(offset, at)
        if isinstance(page, FilePage) and not is_physical:
            found.said = (
                f"{offset} is past the end of that file ({count(page.end)} bytes): this is offset {offset} of the log"
            )
        return found
