"""Where a group continues, and where its progress is kept: by the broker, or in files of broadcasting consumers.

``ClientOffsets`` is the progress of one consumer before it is committed. ``ReachedProgress`` is for a reader that takes
all queues together, in the order of the log. upstream: OffsetStore with RemoteBrokerOffsetStore and
LocalFileOffsetStore, ControllableOffset, RebalancePushImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from rmqtool.broker.consumer.queue_view import QueueView, StoredView
from rmqtool.broker.consumer.subscription import ConsumeFromWhere, start_offset
from rmqtool.broker.offsets import NOT_FOUND, ConsumerOffsets, OffsetRequests, SaveSchedule
from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.config_files import dialect_of
from rmqtool.formats.message_queue import MessageQueue, decode_local_offsets, encode_local_offsets, order_queues
from rmqtool.formats.topics import RETRY_PREFIX
from rmqtool.store.config_files import ConfigText

# The directory of broadcasting consumers' progress, below the home directory. As upstream.
LOCAL_OFFSETS = ".rocketmq_offsets"


class ClientOffsets:
    """The offsets that a consumer has reached. A frozen offset does not change (5.x)."""

    def __init__(self) -> None:
        self.table: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the offset to consume next; with ``increase_only`` a smaller one is ignored."""
        if queue in self._frozen or (increase_only and offset < self.table.get(queue, offset)):
            return
        self.table[queue] = offset

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset, and ignore others for this queue until ``forget``."""
        self.table[queue] = offset
        self._frozen.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Remove a queue that the consumer does not have any more."""
        self.table.pop(queue, None)
        self._frozen.discard(queue)

    def persist(self, queues: Iterable[MessageQueue], commit: Callable[[MessageQueue, int], None]) -> None:
        """Commit the offsets of ``queues``; drop those of other queues, as upstream does."""
        kept = set(queues)
        for queue, offset in list(self.table.items()):
            if queue in kept:
                commit(queue, offset)
            else:
                self.forget(queue)


def client_id(ip: str, instance_name: str = "DEFAULT", unit_name: str = "") -> str:
    """Return the id of a client.

    A broadcasting consumer keeps the instance name DEFAULT, so that it finds its file again.
    """
    return "@".join((ip, instance_name, unit_name) if unit_name else (ip, instance_name))


def local_offsets_path(client: str, group: str) -> str:
    """Return the file of a broadcasting consumer's offsets, below the directory of all of them."""
    return str(PurePosixPath(client, group, "offsets.json"))


class LocalOffsets:
    """The offsets of a broadcasting consumer, which are in a file of its own."""

    def __init__(self, text: ConfigText, version: Version, clock: Clock) -> None:
        self._text = text
        self._version = version
        self._schedule = SaveSchedule(clock)
        # The content of the file, which may include queues of earlier consumers of the group.
        self._stored: dict[MessageQueue, int] = text.load(decode_local_offsets) or {}
        self.offsets = ClientOffsets()

    def read_offset(self, queue: MessageQueue) -> int:
        """Return the offset to consume next, or NOT_FOUND."""
        return self.offsets.table.get(queue, self._stored.get(queue, NOT_FOUND))

    def encode(self) -> bytes:
        """Return the file as a client of the version writes it: the table merged over the old content."""
        kept = self._stored | self.offsets.table
        added = [queue for queue in kept if queue not in self._stored]
        # The order of a client's map. A file without new queues keeps its own order.
        ordered = order_queues(kept) if added else list(kept)
        return encode_local_offsets({queue: kept[queue] for queue in ordered}, dialect_of(self._version))

    def save(self) -> bool:
        """Write the file if an offset has changed; return whether it has."""
        merged = self._stored | self.offsets.table
        if merged == self._stored:
            return False
        data = self.encode()
        self._text.write(data)
        self._stored = merged
        return True

    def tick(self) -> bool:
        """Save if it is time to; return whether the file was written."""
        return self._schedule.is_due() and self.save()


class PlacedView(StoredView, Protocol):
    """Queues that can be searched by physical offset."""

    def offset_at(self, topic: str, queue_id: int, physical_offset: int) -> int:
        """Return the offset of a queue's first message at or after a physical offset."""


class ReachedProgress:
    """The place of a member in the log as offsets of its queues."""

    def __init__(self, client_id: str, queues: Sequence[MessageQueue], stored: PlacedView, progress: Progress) -> None:
        self._client_id = client_id
        self._stored = stored
        self._progress = progress
        self.begins = {queue: progress.begin(client_id, queue) for queue in queues}
        # Messages that arrive later are not consumed.
        self._ends = {queue: stored.max_offset(queue.topic, queue.queue_id) for queue in queues}

    @property
    def is_at_end(self) -> bool:
        """Whether there is nothing to consume."""
        return all(begin >= self._ends[queue] for queue, begin in self.begins.items())

    def reach(self, physical_offset: int) -> None:
        """Store that everything before a physical offset is consumed."""
        for queue, begin in self.begins.items():
            if begin < self._ends[queue]:
                found = self._stored.offset_at(queue.topic, queue.queue_id, physical_offset)
                self._progress.commit(self._client_id, queue, max(found, begin))
        self._progress.save()

    def finish(self) -> None:
        """Store that everything is consumed that existed at the beginning."""
        for queue, end in self._ends.items():
            self._progress.commit(self._client_id, queue, max(end, self.begins[queue]))
        self._progress.save()


@dataclass(frozen=True)
class Start:
    """Where to begin in queues: by one of upstream's policies, or at an ``offset``.

    With ``is_asked`` the user chose it, so the broker's rule for new groups on young topics is not used. With
    ``goes_first`` existing progress is not used either.
    """

    where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    timestamp: int = 0
    offset: int | None = None
    is_asked: bool = False
    goes_first: bool = False

    def of(self, queues: QueueView, queue: MessageQueue, stored: int | None) -> int:
        """Return the offset to begin with, corrected as the first pull would."""
        topic, queue_id = queue.topic, queue.queue_id
        low, high = queues.min_offset(topic, queue_id), queues.max_offset(topic, queue_id)
        if self.offset is not None and stored is None and not topic.startswith(RETRY_PREFIX):
            stored = self.offset
        found = start_offset(stored, self.where, queues, topic, queue_id, self.timestamp)
        return min(max(found, low), high)


class Progress(Protocol):
    """The progress of the members of one group."""

    def begin(self, client_id: str, queue: MessageQueue) -> int:
        """Return where a member begins in a queue that it has just received."""

    def commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:
        """Set the offset to consume next."""

    def save(self) -> None:
        """Make the offsets durable."""


class GroupProgress:
    """The progress that the broker keeps for a clustering group. Without ``keeps`` nothing is written."""

    def __init__(
        self, group: str, offsets: ConsumerOffsets, requests: OffsetRequests, start: Start, *, keeps: bool
    ) -> None:
        self._group = group
        self._offsets = offsets
        self._requests = requests
        self._queues = requests.queues
        self._start = start
        self._keeps = keeps

    def begin(self, client_id: str, queue: MessageQueue) -> int:  # noqa: ARG002  (all members share the progress)
        """Return the stored offset, or the one that start and broker choose without one."""
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        start = self._start
        if start.goes_first and not is_retry:
            return start.of(self._queues, queue, None)
        if start.is_asked and not is_retry:
            found = self._offsets.query_offset(self._group, queue.topic, queue.queue_id)
            return start.of(self._queues, queue, None if found == NOT_FOUND else found)
        return start.of(self._queues, queue, self._requests.query(self._group, queue.topic, queue.queue_id))

    def commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:  # noqa: ARG002
        """Set the group's offset, if it differs."""
        if self._offsets.query_offset(self._group, queue.topic, queue.queue_id) != offset:
            self._offsets.commit_offset(self._group, queue.topic, queue.queue_id, offset)

    def save(self) -> None:
        """Write the broker's file."""
        if self._keeps:
            self._offsets.save()


class BroadcastProgress:
    """The progress of broadcasting consumers, one file for each."""

    def __init__(self, locals_of: Mapping[str, LocalOffsets], queues: QueueView, start: Start, *, keeps: bool) -> None:
        self._locals = locals_of
        self._queues = queues
        self._start = start
        self._keeps = keeps

    def begin(self, client_id: str, queue: MessageQueue) -> int:
        """Return the offset in the member's file, or the one that its start chooses without one."""
        found = NOT_FOUND if self._start.goes_first else self._locals[client_id].read_offset(queue)
        return self._start.of(self._queues, queue, None if found == NOT_FOUND else found)

    def commit(self, client_id: str, queue: MessageQueue, offset: int) -> None:
        """Set the member's offset."""
        self._locals[client_id].offsets.update(queue, offset, increase_only=False)

    def save(self) -> None:
        """Write the files that have changed."""
        if self._keeps:
            for offsets in self._locals.values():
                offsets.save()
