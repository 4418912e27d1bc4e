"""The one place where records get their numbers and places, in one order.

Upstream: the put lock of ``CommitLog`` and ``DefaultAppendMessageCallback``. Producers put their tickets into a queue;
whoever has the lock writes all that wait there, in one call to the file where they fit: a lone producer writes for
itself, of many one writes for all. Nothing is acknowledged before it stands in the file (or, with the off-heap pool,
in its buffer).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from rmqtool.engine.clock import Clock
from rmqtool.engine.commit_log import CommitLog
from rmqtool.engine.health import Health
from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.queue_offsets import QueueKey, QueueOffsets
from rmqtool.engine.record import encode_record
from rmqtool.engine.ticket import PutTicket
from rmqtool.errors import NoSpace, WriteFailed
from rmqtool.formats.commit_log import BLANK_SIZE

# So many tickets are written in one go; and so many bytes gathered before they go to the file.
_GROUP = 2048
_MOST_PENDING = 4 << 20


class Writer:
    """Numbers, places and writes tickets."""

    def __init__(
        self,
        log: CommitLog,
        offsets: QueueOffsets,
        health: Health,
        clock: Clock,
        *,
        commit_at_once: bool,
        waits_for_flush: bool,
    ) -> None:
        self.waiting: deque[PutTicket] = deque()
        self.written_count = 0
        # When the writer began with what it is doing now; None while it does nothing.
        self.busy_since: int | None = None
        self.on_written: Callable[[], None] = _do_nothing
        self._log = log
        self._offsets = offsets
        self._health = health
        self._now = clock.now
        self._commit_at_once = commit_at_once
        self._status_when_written = None if waits_for_flush else PutStatus.PUT_OK
        # Who has it writes, or wants no put to come between.
        self.lock = threading.Lock()

    def write(self, ticket: PutTicket) -> None:
        """Write a ticket, and those that wait already."""
        if self.lock.acquire(False):
            try:
                if self.waiting:
                    self.waiting.append(ticket)
                    self._write_waiting()
                elif len(ticket.records) != 1 or not self._write_one(ticket):
                    self._write_group([ticket])
            finally:
                self.lock.release()
        else:
            # Whoever writes now does not see it any more; who comes next may, and so may we.
            self.waiting.append(ticket)
            self.write_waiting()

    def write_waiting(self) -> None:
        """Write all tickets that wait."""
        with self.lock:
            self._write_waiting()

    def write_with(self, write: Callable[[int], None]) -> bool:
        """Let ``write`` append records with the store time it is given; False when the store no longer writes."""
        with self.lock:
            self._write_waiting()
            if self._health.failure is not None:
                return False
            self.busy_since = now = self._now()
            try:
                write(max(now, self._log.store_timestamp))
                if self._commit_at_once:
                    self._log.commit()
            except BaseException as error:
                self._health.poison(error)
                if not isinstance(error, WriteFailed):
                    raise
                return False
            finally:
                self.busy_since = None
        self.on_written()
        return True

    def commit(self) -> None:
        """Bring into the file what the off-heap pool holds."""
        with self.lock:
            if self._health.failure is None and self._log.pending_size:
                try:
                    self._log.commit()
                except WriteFailed as error:
                    self._health.poison(error)
                    raise
        self.on_written()

    def _write_waiting(self) -> None:
        take = self.waiting.popleft
        while self.waiting:
            self._write_group([take() for _ in range(min(len(self.waiting), _GROUP))])

    def _write_group(self, group: Sequence[PutTicket]) -> None:
        """Write tickets; what becomes of them is known when they stand in the file."""
        if self._health.failure is not None:
            for ticket in group:
                ticket.refuse(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        log = self._log
        self.busy_since = now = self._now()
        # Store times never go backwards, whatever the clock does: searches by time and recovery rely on it.
        store_timestamp = now if now >= log.store_timestamp else log.store_timestamp
        try:
            at = 0
            while at < len(group):
                at = self._place_plain(group, at, store_timestamp)
                if at < len(group):
                    self._place(group[at], store_timestamp)
                    at += 1
            if self._commit_at_once:
                log.commit()
        except BaseException as error:
            self._fail(group, error)
        else:
            done = self._status_when_written
            for ticket in group:
                if ticket.status is None:
                    ticket.is_written = True
                    # Only a flush decides what becomes of those that wait for one.
                    ticket.status = done if ticket.waits else PutStatus.PUT_OK
            self.written_count += len(group)
        finally:
            self.busy_since = None
        self.on_written()

    def _write_one(self, ticket: PutTicket) -> bool:
        """Write a ready record that fits, as a group of one; False when there is more to it.

        The lone producer's way, and the shorter for it: here the time of a put goes.
        """
        log = self._log
        record = ticket.records[0]
        size, position = record[0], log.wrote_offset
        if position + size > log.last_end or not self._commit_at_once or self._health.failure is not None:
            return False
        # It came just now.
        self.busy_since = now = ticket.store_timestamp
        store_timestamp = now if now >= log.store_timestamp else log.store_timestamp
        queue_offset = 0
        try:
            if ticket.count:
                table, queue = self._offsets.table, ticket.queue
                queue_offset = table.get(queue, 0)
                table[queue] = queue_offset + ticket.count
            log.write(encode_record(record, queue_offset, position, store_timestamp), store_timestamp)
            ticket.physical_offset = position
            ticket.queue_offset = queue_offset
            ticket.store_timestamp = store_timestamp
            ticket.size = size
            ticket.is_written = True
            ticket.status = self._status_when_written if ticket.waits else PutStatus.PUT_OK
        except BaseException as error:
            self._fail((ticket,), error)
            return True
        finally:
            self.busy_since = None
        self.written_count += 1
        self.on_written()
        return True

    def _fail(self, group: Sequence[PutTicket], error: BaseException) -> None:
        """Give up. What of the group reached the file nobody can say: no producer may believe that its message did."""
        self._health.poison(error)
        for ticket in group:
            ticket.refuse(PutStatus.UNKNOWN_ERROR)
        if not isinstance(error, WriteFailed):
            raise error

    def _place_plain(self, group: Sequence[PutTicket], at: int, store_timestamp: int) -> int:
        """Place tickets of one ready record each, as long as they fit; return where in the group that ended."""
        log, table = self._log, self._offsets.table
        begin = position = log.wrote_offset
        last = log.last_end
        parts: list[bytes] = []
        count = len(group)
        while at < count:
            ticket = group[at]
            records = ticket.records
            if len(records) != 1:
                break
            record = records[0]
            size = record[0]
            if position + size > last:
                break
            queue_offset = 0
            if ticket.count:
                queue = ticket.queue
                queue_offset = table.get(queue, 0)
                table[queue] = queue_offset + ticket.count
            parts.append(encode_record(record, queue_offset, position, store_timestamp))
            ticket.physical_offset = position
            ticket.queue_offset = queue_offset
            ticket.store_timestamp = store_timestamp
            ticket.size = size
            position += size
            at += 1
        if parts:
            data = b"".join(parts)
            if self._commit_at_once and log.committed_offset == begin:
                log.write(data, store_timestamp)
            else:
                log.append(data, store_timestamp)
                if log.pending_size >= _MOST_PENDING:
                    log.commit()
        return at

    def _place(self, ticket: PutTicket, store_timestamp: int) -> None:
        """Place any ticket, in the next segment where it does not fit into this one: a batch as a whole."""
        log, offsets = self._log, self._offsets
        targets: Sequence[QueueKey] = ()
        if ticket.late is not None:
            made = ticket.late(offsets)
            if isinstance(made, PutStatus):
                ticket.refuse(made)
                return
            record, targets = made
            ticket.records = (record,)
        size = sum(record[0] for record in ticket.records)
        if size + BLANK_SIZE > log.room:
            try:
                log.prepare_next()
            except NoSpace:
                # Nothing has been written for it: the store goes on when there is room again.
                ticket.refuse(PutStatus.CREATE_MAPPED_FILE_FAILED)
                return
            log.roll()
        ticket.physical_offset = position = log.wrote_offset
        ticket.queue_offset = queue_offset = offsets.next(ticket.queue) if ticket.count else 0
        ticket.store_timestamp, ticket.size = store_timestamp, size
        record_offsets = []
        for number, record in enumerate(ticket.records):
            record_offsets.append(position)
            log.append(encode_record(record, queue_offset + number, position, store_timestamp), store_timestamp)
            position += record[0]
        ticket.record_offsets = record_offsets
        if ticket.count:
            offsets.advance(ticket.queue, ticket.count)
            for queue in targets:
                offsets.advance(queue, 1)
        if log.pending_size >= _MOST_PENDING:
            log.commit()


def _do_nothing() -> None:
    """Nobody wants to know."""
