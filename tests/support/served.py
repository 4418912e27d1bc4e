"""A small store with everything a broker does by itself, on a disk in memory, with a clock that stands still."""

from __future__ import annotations

from typing import Any

from rmqtool.broker.services.events import Happened
from rmqtool.broker.services.tick import Services
from rmqtool.config import Version
from rmqtool.engine.message import NewMessage
from rmqtool.engine.store import MessageStore
from rmqtool.formats.commit_log import Message
from tests.support.engine_stores import clock_of, iter_records, small_setup


class Served:
    """The store, and what a test does to it."""

    def __init__(self, version: Version = Version.V5_3, files: Any = None, **settings: Any) -> None:
        settings.setdefault("mappedFileSizeCommitLog", 1 << 16)
        self.setup = small_setup(version, files, **settings)
        self.store = MessageStore.create(self.setup)
        self.clock = clock_of(self.store)
        self.services = self.new_services()

    def new_services(self) -> Services:
        """Return services as a process has them that has just started."""
        return Services(self.store)

    def reopen(self) -> None:
        """Stop in order, and start again."""
        self.services.save()
        self.store.close()
        self.store = MessageStore.open(self.setup)
        self.services = self.new_services()

    def put(self, topic: str = "T", queue_id: int = 0, body: bytes = b"body", **properties: str) -> Message:
        """Store a message as a client sends it; return the record."""
        ticket = self.store.put(NewMessage(topic, body, queue_id, {"WAIT": "true", **properties}))
        assert ticket.is_ok, ticket.status
        self.store.dispatch_now()
        return self.record(ticket.physical_offset)

    def record(self, physical_offset: int) -> Message:
        found = self.store.reader.message_at(physical_offset)
        assert found is not None
        return found

    def later(self, milliseconds: int) -> list[Happened]:
        """Let time pass, and run the services."""
        self.clock.advance(milliseconds)
        happened = self.services.tick()
        self.store.dispatch_now()
        return happened

    def records(self, topic: str | None = None) -> list[Message]:
        """Return the records of the log, in its order."""
        self.store.flush_now()
        return [record for record in iter_records(self.setup.files) if topic in (None, record.topic)]

    def bodies(self, topic: str) -> list[bytes]:
        """Return the bodies of a topic's records."""
        return [record.raw_body for record in self.records(topic)]
