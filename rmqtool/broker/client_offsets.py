"""The progress of one consumer before it reaches the broker, or the file of a broadcasting one.

Upstream: ``RemoteBrokerOffsetStore``, ``LocalFileOffsetStore``, ``ControllableOffset``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from rmqtool.broker.offsets import NOT_FOUND
from rmqtool.broker.saved_text import SavedText, SaveSchedule, load
from rmqtool.config import Version
from rmqtool.engine.clock import Clock
from rmqtool.formats.config_files import dialect_of
from rmqtool.formats.message_queues import MessageQueue, decode_local_offsets, encode_local_offsets, order_queues

# Where broadcasting consumers keep their progress, below the home directory.
LOCAL_OFFSETS = ".rocketmq_offsets"


class ClientOffsets:
    """What a consumer has come to in each queue. A frozen offset stays as it was set (5.x)."""

    def __init__(self) -> None:
        self.table: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Set the offset to consume next; with ``increase_only`` a smaller one is not taken."""
        if queue in self._frozen or (increase_only and offset < self.table.get(queue, offset)):
            return
        self.table[queue] = offset

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset, and take no other one for this queue until it is forgotten."""
        self.table[queue] = offset
        self._frozen.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue that this consumer no longer has."""
        self.table.pop(queue, None)
        self._frozen.discard(queue)

    def persist(self, queues: Iterable[MessageQueue], commit: Callable[[MessageQueue, int], None]) -> None:
        """Tell the broker the offsets of ``queues``; offsets of other queues are forgotten, as upstream does."""
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
    """Return where a broadcasting consumer keeps its offsets, below the directory of all of them."""
    return str(PurePosixPath(client, group, "offsets.json"))


class LocalOffsets:
    """The offsets of a broadcasting consumer: nobody else's business, so they lie in a file beside it."""

    def __init__(self, text: SavedText, version: Version, clock: Clock) -> None:
        self._text = text
        self._version = version
        self._schedule = SaveSchedule(clock)
        # What the file says; other consumers of the group, stopped since, may have put it there.
        self._stored: dict[MessageQueue, int] = load(text, decode_local_offsets) or {}
        self.offsets = ClientOffsets()

    def read_offset(self, queue: MessageQueue) -> int:
        """Return the offset to consume next, NOT_FOUND when there is none."""
        return self.offsets.table.get(queue, self._stored.get(queue, NOT_FOUND))

    def encode(self) -> bytes:
        """Return the file as a client of the version writes it: the table merged over what was there."""
        kept = self._stored | self.offsets.table
        added = [queue for queue in kept if queue not in self._stored]
        # The order of a client's map; a file that was read keeps its own as long as nothing is added.
        ordered = order_queues(kept) if added else list(kept)
        return encode_local_offsets({queue: kept[queue] for queue in ordered}, dialect_of(self._version))

    def save(self) -> bool:
        """Write the file if anything changed since; return whether it did."""
        merged = self._stored | self.offsets.table
        if merged == self._stored:
            return False
        data = self.encode()
        self._text.write(data)
        self._stored = merged
        return True

    def tick(self) -> bool:
        """Save if it is time to; return whether anything was written."""
        return self._schedule.is_due() and self.save()
