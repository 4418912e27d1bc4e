"""Queues: the messages of one by queue offset, the queues of a topic, and a queue that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from rmqtool.browse.message_pages import MESSAGES, row_of
from rmqtool.browse.page import Column, GrowingPage, Link, ListPage, Page, Row, Scope, line
from rmqtool.formats import layouts, paths
from rmqtool.formats.commit_log import Message
from rmqtool.formats.consume_queue import is_filler
from rmqtool.formats.message_json import message_json
from rmqtool.formats.paths import FileKind
from rmqtool.log.end import read_record
from rmqtool.look.stored_queues import StoredQueues
from rmqtool.render.text import counted, neutral
from rmqtool.store.config_files import Configs, read_configs
from rmqtool.store.listing import QueueId
from rmqtool.store.queues import ConsumeQueueFiles

if TYPE_CHECKING:
    from rmqtool.browse.explorer import Explorer

_QUEUES = (
    Column("queue", 7, is_number=True),
    Column("first", 10, is_number=True),
    Column("next", 10, is_number=True),
    Column(""),
)
_GONE = "no files: no message came yet, or they are lost"
_LOST = "its files are lost: it had messages"


class QueuePage(Page):
    """The messages of a simple queue by queue offset, each read by its entry."""

    columns = MESSAGES
    place = "a queue offset of this queue; @N: of the log"

    def __init__(self, explorer: Explorer, topic: str, queue_id: int, at: int | None = None) -> None:
        self.explorer, self.scope = explorer, Scope(topic, queue_id)
        self.title = f"{neutral(topic)}/{queue_id}"
        self.command = f"rmqtool cat {explorer.name} -t {quote(topic)} -q {queue_id}"
        self.refresh()
        self.first_position = self.start if at is None else at

    def refresh(self) -> None:
        scope = self.scope
        self.queue: ConsumeQueueFiles = self.explorer.queue_files(scope.topic or "", scope.queue_id or 0)
        self.start, self.end = self.queue.first_offset, max(self.queue.max_offset, self.queue.first_offset)
        self.queue.segments.close()

    def told(self, offset: int) -> str:
        """Return where the cursor is if the queue does not have an offset; nothing if it does."""
        if self.start <= offset < self.end:
            return ""
        if self.end == self.start:
            return f"the queue is empty: it has no queue offset {offset}"
        log = f"; @{offset} is one of the log"
        if offset < self.start:
            return f"queue offset {offset} is deleted: the first one left is {self.start}{log}"
        return f"queue offset {offset} is past the end: the last entry is {self.end - 1}{log}"

    def note(self) -> str:
        if self.end == self.start:
            return f"empty; the next message gets queue offset {self.end}"
        before = f"; offsets before {self.start} are deleted" if self.start else ""
        return f"{counted(self.end - self.start, 'entry', 'entries')}, the next one is {self.end}{before}"

    def rows(self, position: int, count: int) -> list[Row]:
        begin = max(position, self.start)
        try:
            units = list(self.queue.iter_units(begin, min(begin + count, self.end)))
        finally:
            self.queue.segments.close()
        return [self._row(at, unit) for at, unit in units]

    def back(self, position: int, count: int) -> int:
        return max(min(position, self.end) - count, self.start)

    def _row(self, at: int, unit: layouts.ConsumeQueueUnit) -> Row:
        if is_filler(unit):
            return Row(at, (str(at), "", "", "", "filler: its message is gone"), self._to_entry(at), "dim")
        log = self.explorer.log()
        message = read_record(log, unit.physical_offset)
        if message is None:
            where = "before the log" if unit.physical_offset < log.min_offset else "not a valid record"
            text = f"no message: the entry points to {unit.physical_offset}, {where}"
            style = "dim" if unit.physical_offset < log.min_offset else "error"
            return Row(at, (str(at), "", "", "", text), self._to_entry(at), style, (text, "Enter shows the entry"))
        fields = message_json(message).fields
        row = row_of(fields, self.explorer, self.explorer.to_message(unit.physical_offset), offset=at)
        wrong = _disagreement(unit, message, self.scope, at)
        return row if wrong is None else row._replace(style="error", details=(wrong, *row.details[:2]))

    def _to_entry(self, at: int) -> Link:
        return lambda: self.explorer.queue_entry(self.queue.segments, at)


def _disagreement(unit: layouts.ConsumeQueueUnit, message: Message, scope: Scope, at: int) -> str | None:
    """Return what an entry and its record do not agree in; light queues and copies have records of other topics."""
    if unit.size != message.total_size:
        return f"the entry says {unit.size} bytes, the record has {message.total_size}"
    if (message.topic, message.queue_id) == scope[:2] and message.queue_offset != at:
        return f"the record says queue offset {message.queue_offset}"
    return None


def topic_page(explorer: Explorer, topic: str) -> Page:
    """Return the queues of a topic with their bounds, those that have no files included."""
    there = explorer.queue_ids(topic)
    rows = []
    for queue_id in sorted({*there, *configured_ids(explorer, topic)}):
        queue = explorer.queue_files(topic, queue_id)
        bounds = (str(queue.first_offset), str(queue.max_offset)) if queue.segments else ("", "")
        queue.segments.close()
        words = "" if queue_id in there else _gone_words(explorer, topic, queue_id)
        details = (f"queue {queue_id}: {words}", *_evidence(explorer, topic, queue_id)) if words else ()
        link = partial(explorer.queue_page, topic, queue_id)
        rows.append(line(str(queue_id), *bounds, words, link=link, style="warning" * bool(words), details=details))
    absent = len(rows) - len(there)
    note = counted(len(there), "queue") + (f", {absent} more without files" if absent else "")
    page = ListPage(neutral(topic), _QUEUES, rows, f"rmqtool info {explorer.name} queues -t {quote(topic)}", note)
    page.scope = Scope(topic)
    return page


def absent_page(explorer: Explorer, topic: str, queue_id: int) -> Page:
    """Say that a queue is not there, and what is known of it."""
    there = explorer.queue_ids(topic)
    if not there and not configured_ids(explorer, topic):
        texts = [f"there is no topic {neutral(topic)}: no queue has its files, and topics.json does not name it"]
    else:
        words = _gone_words(explorer, topic, queue_id)
        texts = [f"{neutral(topic)} has no queue {queue_id}: {words}", *_evidence(explorer, topic, queue_id)]
        texts.append(f"queues with files: {', '.join(map(str, there)) or 'none'}")
    texts.append("d checks the topic: the log tells if messages of the queue are missing")
    first, *others = (line(text, details=(text,)) for text in texts)
    title = f"{neutral(topic)}/{queue_id}"
    command = f"rmqtool check {explorer.name} -t {quote(topic)}"
    page = ListPage(title, (Column("missing"),), [first._replace(style="error"), *others], command, "is not there")
    page.scope = Scope(topic)
    return page


def _evidence(explorer: Explorer, topic: str, queue_id: int) -> list[str]:
    """Return what the configuration says of a queue that has no files."""
    found = []
    configured = configured_ids(explorer, topic)
    if configured:
        inside = "this one among them" if queue_id in configured else "this one is not among them"
        found.append(f"topics.json has {counted(len(configured), 'queue')} for the topic: {inside}")
    for group, offset in _committed(explorer, topic, queue_id):
        found.append(f"group {neutral(group)} committed {offset} of it: it had messages")
    return found


def _committed(explorer: Explorer, topic: str, queue_id: int) -> list[tuple[str, int]]:
    """Return the groups that committed an offset of a queue other than its first one."""
    offsets = _configs(explorer).offsets.items()
    return [
        (group, queues[queue_id]) for (name, group), queues in offsets if name == topic and queues.get(queue_id, 0) > 0
    ]


def _gone_words(explorer: Explorer, topic: str, queue_id: int) -> str:
    """Return what it means that a queue has no files: a committed offset proves that it had messages."""
    return _LOST if _committed(explorer, topic, queue_id) else _GONE


def configured_ids(explorer: Explorer, topic: str) -> range:
    """Return the numbers of the queues that a topic has by its configuration."""
    entry = _configs(explorer).topics.get(topic, {})
    counts = [entry.get(name) for name in ("readQueueNums", "writeQueueNums")]
    return range(max((one for one in counts if isinstance(one, int)), default=0))


def _configs(explorer: Explorer) -> Configs:
    """Return the configuration, read once; a file that cannot be read counts as empty."""
    if explorer.configs is None:
        explorer.configs = read_configs(explorer.store, tolerant=True)
    return explorer.configs


def stored_queue_page(explorer: Explorer, topic: str, queue_id: int, at: int | None) -> GrowingPage:
    """Return the messages of a queue in a database, or of a batch queue."""
    command = f"rmqtool cat {explorer.name} -t {quote(topic)} -q {queue_id}"
    units = partial(_units, explorer, topic, queue_id)
    page = GrowingPage(f"{neutral(topic)}/{queue_id}", MESSAGES, units, command)
    page.scope, page.first_position = Scope(topic, queue_id), at
    return page


def _units(explorer: Explorer, topic: str, queue_id: int) -> Iterator[Row]:
    queues = StoredQueues(explorer.named.reopen)
    try:
        end = queues.max_offset(topic, queue_id)
        for at, physical_offset, _, _ in queues.units(topic, queue_id, 0, end):
            message = queues.read(physical_offset)
            if message is None:
                text = f"no message: the entry points to {physical_offset}"
                yield line(str(at), "", "", "", text, style="error", details=(text,))
            else:
                yield row_of(message_json(message).fields, explorer, explorer.to_message(physical_offset), offset=at)
    finally:
        queues.close()


def other_queues(explorer: Explorer) -> frozenset[QueueId]:
    """Return the queues that are not simple ones in files; read once, because a database takes a while."""
    if not has_other_queues(explorer):
        return frozenset()
    if explorer.others is None:
        queues = StoredQueues(explorer.named.reopen)
        explorer.others = frozenset(QueueId(*queue) for queue in queues.queues())
        queues.close()
    return explorer.others


def has_other_queues(explorer: Explorer) -> bool:
    """Return whether queues are batch queues, or in a database."""
    listing = explorer.store.listing
    has_batches = any(True for _ in listing.of_kind(FileKind.BATCH_CONSUME_QUEUE))
    return has_batches or paths.CONSUME_QUEUE in listing.databases()
