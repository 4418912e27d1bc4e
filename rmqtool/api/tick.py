"""``tick``: what a broker would have done by now is done."""

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
# What a broker would only log.
_PASSED_OVER = frozenset({"skipped", "stuck", "dropped"})


@dataclass
class Ticking:
    """A store that is being served: iterate over what happens, then ``finish`` it.

    ``full`` says why nothing may be written: what is due stays so.
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
        """Save how far the services are; return what happened, counted, and what waits for its time."""
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
        """Raise NoSpace where nothing could be delivered."""
        if self.full is not None:
            raise NoSpace(
                f"nothing was delivered: {self.full}", hint="make room on that disk, then run the command again"
            )

    @property
    def status(self) -> Exit:
        """What that makes of the command: messages that were passed over are skipped."""
        return Exit.SKIPPED if any(event in _PASSED_OVER for _, event, _ in self.counts) else Exit.DONE


def tick(store: Place, *, expire: bool = False) -> TickSummary:
    """Deliver what is due, check transactions, revive; with ``expire`` delete what is old. Return the summary."""
    with ticking(store, expire=expire) as found:
        found.require_room()
        for _ in found:
            pass  # each thing happens as it is asked for
        return found.finish()


@contextmanager
def ticking(store: Place, *, expire: bool = False) -> Iterator[Ticking]:
    """Open a store under its lock, with everything that a broker does by itself."""
    from rmqtool.broker.services.tick import serving

    root, config = store_of(store).located()
    with serving(root, config) as services:
        yield Ticking(services, expire, None if expire else services.store.full_disk(look=True))
