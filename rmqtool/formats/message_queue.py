"""One queue of a topic on one broker, as clients name it. Upstream: ``MessageQueue``."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker; queues sort as upstream sorts them."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """Return Java's text of it, which consistent hashing hashes."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"
