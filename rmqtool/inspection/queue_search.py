"""Messages by their place in a queue: from the queue, and from the log where the queue does not lead there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rmqtool.errors import OptionalMissing
from rmqtool.findings import Finding, Severity
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import Message
from rmqtool.formats.dispatch import DispatchRules, batch_unit, has_queue_unit, queue_entries
from rmqtool.formats.layouts import ConsumeQueueUnit
from rmqtool.formats.paths import CONSUME_QUEUE, FileKind
from rmqtool.inspection.log_search import Hint, LogSearch
from rmqtool.storage.consume_queues import BatchQueueFiles, ConsumeQueueFiles
from rmqtool.storage.database_queues import has_database_queues, read_queue_row
from rmqtool.storage.discovery import QueueId
from rmqtool.storage.log_end import read_record
from rmqtool.storage.rocksdb import open_database
from rmqtool.storage.store import Store


def is_at(message: Message, queue: QueueId, queue_offset: int, rules: DispatchRules) -> bool:
    """Return whether a message has this place in a queue: its own, or an extra target's."""
    if message.sys_flag & SysFlag.INNER_BATCH and has_queue_unit(message.sys_flag):
        unit = batch_unit(message, rules.delays)
        own = (message.topic, message.queue_id) == queue
        return own and unit.msg_base_offset <= queue_offset < unit.msg_base_offset + unit.batch_size
    return any(
        (entry.topic, entry.queue_id, entry.queue_offset) == (*queue, queue_offset)
        for entry in queue_entries(message, rules)
    )


@dataclass
class QueueSearch:
    """One search for the message at a place in a queue."""

    store: Store
    queue: QueueId
    queue_offset: int
    log: LogSearch
    found: Message | None = None
    answered_by: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    expired: bool = False

    def run(self) -> None:
        """Search."""
        unit = find_in_queue(self.store, self.queue, self.queue_offset)
        if unit is not None:
            physical_offset = unit.physical_offset
            message = read_record(self.store.commit_log, physical_offset)
            if message is not None and is_at(message, self.queue, self.queue_offset, self.store.dispatch_rules):
                self.found = message
                self.answered_by.append("queue")
                return
            self.expired = physical_offset < self.store.commit_log.min_offset
            if not self.expired:
                self._complain("CQ-WRONG", f"its unit leads to {physical_offset}, where that message does not lie")
        if self.expired:
            return
        self._ask_log(unit is None)

    def _ask_log(self, has_no_unit: bool) -> None:
        log = self.store.commit_log
        hint = Hint(b"", queue_offset=self.queue_offset)
        for message in self.log.iter_messages(log.min_offset, log.end_offset, hint):
            if is_at(message, self.queue, self.queue_offset, self.store.dispatch_rules):
                self.found = message
                self.answered_by.append("scan")
                if has_no_unit:
                    self._complain("CQ-MISSING", f"the message lies at {message.physical_offset}, no unit leads to it")
                return

    def _complain(self, code: str, text: str) -> None:
        self.findings.append(_unit_finding(code, self.queue, self.queue_offset, text))


def _unit_finding(code: str, queue: QueueId, queue_offset: int, text: str) -> Finding:
    topic, queue_id = queue
    message = f"{topic}/{queue_id}@{queue_offset}: {text}"
    file = f"{CONSUME_QUEUE}/{topic}/{queue_id}"
    fix = "rmqtool repair --apply rebuilds queues from the log"
    return Finding(code, Severity.WARNING, message, file=file, topic=topic, queue_id=queue_id, fix=fix)


def check_units(store: Store, messages: Iterable[Message]) -> Iterator[Finding]:
    """Yield where a queue in files does not lead to one of ``messages`` that should stand in it."""
    queues = store.listing.queues(FileKind.CONSUME_QUEUE)
    for message in messages:
        for entry in queue_entries(message, store.dispatch_rules):
            queue = QueueId(entry.topic, entry.queue_id)
            if queue not in queues:
                continue
            unit = ConsumeQueueFiles(queue, queues[queue]).read_unit(entry.queue_offset)
            if unit is None or not unit.size:
                text = f"the message lies at {message.physical_offset}, no unit leads to it"
                yield _unit_finding("CQ-MISSING", queue, entry.queue_offset, text)
            elif (unit.physical_offset, unit.size) != (message.physical_offset, message.total_size):
                text = f"the message lies at {message.physical_offset}, its unit leads to {unit.physical_offset}"
                yield _unit_finding("CQ-WRONG", queue, entry.queue_offset, text)


def find_in_queue(store: Store, queue: QueueId, queue_offset: int) -> ConsumeQueueUnit | None:
    """Return the unit that a queue has for an offset; of a batch queue the one of the batch that holds it.

    None where there is no such unit, and where the queue lies in a database that cannot be opened.
    """
    segments = store.listing.queues(FileKind.CONSUME_QUEUE).get(queue)
    if segments is not None:
        files = ConsumeQueueFiles(queue, segments)
        return files.read_unit(queue_offset) if queue_offset < files.max_offset else None
    segments = store.listing.queues(FileKind.BATCH_CONSUME_QUEUE).get(queue)
    if segments is not None:
        for batch in BatchQueueFiles(queue, segments).iter_units():
            if batch.msg_base_offset <= queue_offset < batch.msg_base_offset + batch.batch_size:
                return ConsumeQueueUnit(batch.physical_offset, batch.size, batch.tags_code)
        return None
    return _find_in_database(store, queue, queue_offset) if has_database_queues(store) else None


def _find_in_database(store: Store, queue: QueueId, queue_offset: int) -> ConsumeQueueUnit | None:
    try:
        with open_database(store, CONSUME_QUEUE) as database:
            row = read_queue_row(database, queue, queue_offset)
    except OptionalMissing:
        return None
    return ConsumeQueueUnit(row.physical_offset, row.size, row.tags_code) if row is not None else None
