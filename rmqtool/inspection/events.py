"""One thing that happened to a message, and where the record of it lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmqtool.formats.commit_log import Message


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, by the record that shows it. ``about`` are further facts, by the names of the contract.

    A ``timestamp`` among them is when it happened, where that is not when the record was stored; None: not known.
    """

    event: str
    message: Message
    about: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the event of the contract."""
        return {
            "event": self.event,
            "timestamp": self.message.store_timestamp,
            "topic": self.message.topic,
            "queueId": self.message.queue_id,
            "queueOffset": self.message.queue_offset,
            "commitLogOffset": self.message.physical_offset,
            **self.about,
        }
