"""What a get answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple


class GetMessageStatus(Enum):
    """Upstream's names."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()


class Got(NamedTuple):
    """One record of an answer: its place in the queue and in the log, and its bytes."""

    queue_offset: int
    physical_offset: int
    data: bytes


@dataclass
class GetMessageResult:
    """An answer: the records, and where to ask next."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: list[Got] = field(default_factory=list)
    size: int = 0
    # How many messages that is: a record of an inner batch holds several.
    count: int = 0
    suggest_pulling_from_slave: bool = False

    def say(self, status: GetMessageStatus) -> None:
        """Say why nothing was found, while nothing is."""
        if not self.messages:
            self.status = status

    def add(self, got: Got, count: int) -> None:
        """Take a record."""
        self.messages.append(got)
        self.size += len(got.data)
        self.count += count
