"""A message on its way into the log, and what became of it.

Upstream: ``PutMessageContext``, ``AppendMessageResult``. A put is a ticket and a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rmqtool.engine.put_status import PutStatus
from rmqtool.engine.queue_offsets import QueueKey, QueueOffsets
from rmqtool.engine.record import Record
from rmqtool.formats.ids import encode_offset_msg_id

# Encodes a record whose properties hold queue offsets, when those are known; also the other queues that advance.
LateRecord: TypeAlias = Callable[[QueueOffsets], "tuple[Record, Sequence[QueueKey]] | PutStatus"]


class PutTicket:
    """What a put came to; ``status`` is None as long as nobody knows. ``is_written`` says that it stands in the log.

    ``records`` holds more than one for a client's batch. ``count`` is how many queue offsets the message takes: none
    for prepared and rolled-back transactions. The offsets are those of the first record; -1 when nothing was stored.
    Until it is written its ``store_timestamp`` says when it came.
    """

    __slots__ = (
        "count",
        "is_written",
        "late",
        "physical_offset",
        "queue",
        "queue_offset",
        "record_offsets",
        "records",
        "size",
        "status",
        "store_host",
        "store_timestamp",
        "waits",
    )

    def __init__(
        self, queue: QueueKey, records: Sequence[Record], count: int, store_host: tuple[bytes, int], now: int = 0
    ) -> None:
        self.queue = queue
        self.records = records
        self.count = count
        self.store_host = store_host
        self.late: LateRecord | None = None
        self.waits = True
        self.is_written = False
        self.status: PutStatus | None = None
        self.physical_offset = self.queue_offset = -1
        self.store_timestamp = now
        self.size = 0
        self.record_offsets: Sequence[int] = ()

    @property
    def is_ok(self) -> bool:
        """Whether the message was stored, and is as durable as was asked for."""
        return self.status is PutStatus.PUT_OK

    @property
    def topic(self) -> str:
        """The topic the message was stored under."""
        return self.queue[0]

    @property
    def queue_id(self) -> int:
        """The queue the message was stored under."""
        return self.queue[1]

    @property
    def end_offset(self) -> int:
        """The physical offset behind the message."""
        return self.physical_offset + self.size

    @property
    def offset_msg_id(self) -> str:
        """The offset message id; of a batch the ids of its records, separated by commas; empty when not stored."""
        offsets = self.record_offsets or ([self.physical_offset] if self.physical_offset >= 0 else [])
        return ",".join(encode_offset_msg_id(*self.store_host, offset) for offset in offsets)

    def is_done_at(self, flushed_offset: int) -> bool:
        """Whether it is known what came of it, with the log durable up to an offset."""
        return self.status is not None or (self.is_written and self.physical_offset + self.size <= flushed_offset)

    def refuse(self, status: PutStatus) -> None:
        """Say why the message is not stored, or that nobody knows whether it is."""
        self.status = status
        self.physical_offset = self.queue_offset = -1
        self.store_timestamp = self.size = 0
        self.record_offsets = ()


def refused(status: PutStatus, queue: QueueKey) -> PutTicket:
    """Return the ticket of a message that is not stored."""
    ticket = PutTicket(queue, (), 0, (b"", 0))
    ticket.refuse(status)
    return ticket
