"""``tick``: deliver and expire what is due, as a running broker would have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, cast

from rmqtool.api.store import Place, store_of
from rmqtool.api.wanted import Json
from rmqtool.errors import Exit, NoSpace

if TYPE_CHECKING:
    from rmqtool.api.shapes import TickSummary
    from rmqtool.broker.services.tick import Services

FIELDS = ("service", "event", "topic", "queueId", "queueOffset", "commitLogOffset", "uniqKey", "dueTimestamp")
# Events that a broker only logs.
_PASSED_OVER = frozenset({"skipped", "stuck", "dropped"})


@dataclass
class Ticking:
    """A store whose services run: iterate over the events, then ``finish`` it.

    ``full`` is the reason why nothing may be written; due messages then stay.
    """

    services: Services
    expires: bool
    full: str | None
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Json]:
        if self.full is not None:
            return
        for one in chain(self.services.iter_due(), self.services.iter_expired() if self.expires else ()):
            self.counts[one.service.value, one.event, one.topic] += 1
            yield one.as_json()

    def finish(self) -> TickSummary:
        """Save the progress of the services; return the counts of events, and what still waits."""
        if self.full is None:
            self.services.save()
        found = {
            "now": self.services.store.setup.clock.now(),
            "counts": [
                {"service": service, "event": event, "topic": topic, "count": count}
                for (service, event, topic), count in sorted(self.counts.items())
            ],
            "waiting": self.services.waiting(),
            "expired": self.services.store.find_expired().as_json(),
        }
        return cast("TickSummary", {"summary": found})

    def require_room(self) -> None:
        """Raise NoSpace if nothing could be delivered."""
        if self.full is not None:
            raise NoSpace(
                f"nothing was delivered: {self.full}", hint="make room on that disk, then run the command again"
            )

    @property
    def status(self) -> Exit:
        """Return the exit status: events that a broker only logs count as skipped."""
        return Exit.SKIPPED if any(event in _PASSED_OVER for _, event, _ in self.counts) else Exit.DONE


def tick(store: Place, *, expire: bool = False) -> TickSummary:
    """Deliver due messages, check transactions, revive; with ``expire`` delete old segments. Return the summary."""
    with ticking(store, expire=expire) as found:
        found.require_room()
        for _ in found:
            pass  # the loop does the work: each event happens when it is asked for
        return found.finish()


@contextmanager
def ticking(store: Place, *, expire: bool = False) -> Iterator[Ticking]:
    """Open a store under its lock, with all services of a broker."""
    from rmqtool.broker.services.tick import serving

    root, config = store_of(store).located()
    with serving(root, config) as services:
        yield Ticking(services, expire, None if expire else services.store.full_disk(look=True))
