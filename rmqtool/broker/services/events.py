"""The events of a broker's services, as plain values."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from rmqtool.engine.put import PutTicket
from rmqtool.formats.commit_log import Message


class Service(StrEnum):
    """The service of an event."""

    DELAY = "delay"
    TIMER = "timer"
    TRANSACTION = "transaction"
    POP = "pop"
    RETENTION = "retention"


class Happened(NamedTuple):
    """One event: what was done with a message, and the record that was written.

    ``event`` uses the names of ``query --history``. ``about`` has the fields that only this event has.
    """

    service: Service
    event: str
    message: Message | None = None
    ticket: PutTicket | None = None
    about: dict[str, Any] = {}  # noqa: RUF012  (never changed)

    @property
    def topic(self) -> str:
        """The topic of the written record, else that of the message."""
        if self.ticket is not None:
            return self.ticket.topic
        return self.message.topic if self.message is not None else ""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        shown: dict[str, Any] = {"service": self.service.value, "event": self.event}
        if self.ticket is not None:
            shown |= {
                "topic": self.ticket.topic,
                "queueId": self.ticket.queue_id,
                "queueOffset": self.ticket.queue_offset,
                "commitLogOffset": self.ticket.physical_offset,
            }
        if self.message is not None:
            shown["uniqKey"] = self.message.uniq_key
            shown["from"] = {
                "topic": self.message.topic,
                "queueId": self.message.queue_id,
                "queueOffset": self.message.queue_offset,
                "commitLogOffset": self.message.physical_offset,
            }
        return shown | self.about
