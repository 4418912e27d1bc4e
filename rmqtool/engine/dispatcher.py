"""From the commit log to queues and index, in the order of the log.

Upstream: ``ReputMessageService`` and its dispatchers. The log is read again rather than handed over, so that live
dispatch, rebuilding and recovery are one thing. A pass takes what is there, brings it into the files together, and
then says which queues grew. What a pass did not finish, the next one does again: every step may be repeated.

Nothing is dispatched before it may be seen: with synchronous flush that is when it survives a power cut.
upstream: 4.9 dispatches what is not flushed, and consumers get messages that a power cut takes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rmqtool.engine.commit_log import CommitLog, Tail
from rmqtool.engine.consume_queues import ConsumeQueues, ExtUnit
from rmqtool.engine.encoder import is_directory_name
from rmqtool.engine.health import Health
from rmqtool.engine.index_service import IndexService
from rmqtool.engine.queue_offsets import QueueKey
from rmqtool.findings import Finding, Severity
from rmqtool.formats.commit_log import Blank, Message, Nothing
from rmqtool.formats.dispatch import DispatchRules, batch_unit, has_queue_unit, iter_index_texts, queue_entries
from rmqtool.formats.flaws import Flaw
from rmqtool.storage.segments import Segment
from rmqtool.storage.walk import Place, SegmentWalk

# So many records are dispatched before their units and entries go to the files.
_PASS = 4096

# Told (queue, next offset) of every queue that grew.
Listener: TypeAlias = Callable[[QueueKey, int], None]


@dataclass(frozen=True)
class DispatchOptions:
    """What settings and topics decide about the dispatch."""

    rules: DispatchRules
    is_batch_topic: Callable[[str], bool]
    with_index: bool
    with_ext: bool
    # The bloom bits of a message, for the extension; upstream: CommitLogDispatcherCalcBitMap
    bit_map: Callable[[Message], bytes]


class Dispatcher:
    """Follows the log and builds what is derived from it."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService,
        health: Health,
        options: DispatchOptions,
        visible: Callable[[], Tail],
    ) -> None:
        self.queues = queues
        self.index = index
        self.listeners: list[Listener] = []
        # How far log, queues and index agree.
        self.dispatched = log.tail
        self._log = log
        self._health = health
        self._options = options
        self._visible = visible
        self._lock = threading.Lock()

    @property
    def behind(self) -> int:
        """How many bytes of the log may be seen and are not dispatched."""
        return self._visible().offset - self.dispatched.offset

    def restart_at(self, physical_offset: int) -> None:
        """Begin again at a record: everything behind it is dispatched once more."""
        with self._lock:
            self.dispatched = Tail(physical_offset, 0)

    def dispatch(self) -> int:
        """Dispatch what may be seen; return how many records that were."""
        count = 0
        with self._lock:
            while self._health.is_queue_writeable and self.dispatched.offset < (end := self._visible().offset):
                segment = self._segment_at(self.dispatched.offset)
                if segment is None:
                    break
                count += self._dispatch_in(segment, min(end, segment.end_offset))
        return count

    def _segment_at(self, physical_offset: int) -> Segment | None:
        """Return the segment that holds an offset, or the first one behind a gap."""
        segments = self._log.segments
        found = segments.find(physical_offset)
        return found or next((one for one in segments if one.base_offset > physical_offset), None)

    def _dispatch_in(self, segment: Segment, end: int) -> int:
        """Dispatch the records of a segment before ``end``, record by record."""
        position = max(self.dispatched.offset, segment.base_offset)
        store_timestamp = self.dispatched.store_timestamp
        walk = SegmentWalk(self._log.segments.open(segment), segment.base_offset, end - segment.base_offset)
        count = 0
        for place in walk.places(position - segment.base_offset):
            position = segment.base_offset + place.file_offset + place.length
            message = self._message_of(place, segment)
            if message is not None:
                self._dispatch_record(message)
                store_timestamp = max(store_timestamp, message.store_timestamp)
                count += 1
                if count == _PASS:
                    break
        self._finish_pass(Tail(position, store_timestamp))
        return count

    def _message_of(self, place: Place, segment: Segment) -> Message | None:
        """Return the record of a place; what is none is stepped over, and said.

        upstream: one unreadable record hides all others behind it in its segment.
        """
        match place.what:
            case Message():
                return place.what
            case Flaw(code, text):
                finding = Finding(
                    code, Severity.ERROR, text, segment.path, place.file_offset + place.what.at, place.what.length
                )
                self._health.report(finding)
                return place.damaged if code == "CL-CRC" else None
            case Blank() | Nothing():
                return None

    def _dispatch_record(self, message: Message) -> None:
        options = self._options
        if has_queue_unit(message.sys_flag):
            if options.is_batch_topic(message.topic):
                self._put_batch_unit(message)
            else:
                self._put_units(message)
        if options.with_index:
            self.index.put(iter_index_texts(message, options.rules), message.physical_offset, message.store_timestamp)

    def _put_batch_unit(self, message: Message) -> None:
        if self._is_queue_name(message.topic, message.physical_offset):
            queue = self.queues.batch_queue((message.topic, message.queue_id))
            queue.put(batch_unit(message, self._options.rules.delays))

    def _put_units(self, message: Message) -> None:
        ext = None
        if self._options.with_ext:
            ext = ExtUnit(message.store_timestamp, self._options.bit_map(message))
        for entry in queue_entries(message, self._options.rules):
            if self._is_queue_name(entry.topic, message.physical_offset):
                queue = self.queues.simple_queue((entry.topic, entry.queue_id))
                finding = queue.put(entry.unit, entry.queue_offset, ext)
                if finding is not None:
                    self._health.report(finding)
            # Only the message's own queue has an extension.
            ext = None

    def _is_queue_name(self, topic: str, physical_offset: int) -> bool:
        if is_directory_name(topic):
            return True
        text = f"the record at {physical_offset} names a topic that can have no directory: {topic!r}"
        self._health.report(Finding("CL-TOPIC", Severity.ERROR, text, topic=topic))
        return False

    def _finish_pass(self, reached: Tail) -> None:
        grown = self.queues.write_pending()
        self.index.write_pending()
        self.dispatched = reached
        for queue in grown:
            for listener in self.listeners:
                listener(queue.key, queue.max_offset)
