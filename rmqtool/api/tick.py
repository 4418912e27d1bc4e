"""``tick``: deliver due messages and delete expired segments, as a running broker would have done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

from rmqtool.api.store import Place, store_of
from rmqtool.api.wanted import Json
from rmqtool.errors import Exit, Interrupted, NoSpace

if TYPE_CHECKING:
    from rmqtool.api.shapes import TickSummary
    from rmqtool.broker.services.check_program import CheckProgram
    from rmqtool.broker.services.tick import Services
    from rmqtool.engine.interrupts import Stop

# In seconds: the longest sleep, and the one while something is overdue.
_LONGEST, _OVERDUE = 60.0, 1.0
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
    stop: Stop
    follows: bool = False
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[Json]:
        while True:
            yield from self._iter_round()
            if not self.follows or self.stop.is_asked:
                return
            self._wait()

    def _iter_round(self) -> Iterator[Json]:
        """Run the services until nothing is due, or until a request to stop."""
        if self.full is not None:
            return
        for one in chain(self.services.iter_due(), self.services.iter_expired() if self.expires else ()):
            self.counts[one.service.value, one.event, one.topic] += 1
            yield one.as_json()
            if self.stop.is_asked:
                return

    def _wait(self) -> None:
        """Save the progress, and wait until the next message is due. This holds the lock: no other process adds one."""
        store = self.services.store
        if self.full is None:
            self.services.save()
        waiting = self.services.waiting().values()
        left = [one["nextDue"] - store.setup.clock.now() for one in waiting if one["nextDue"] is not None]
        # An overdue event that did not happen waits for something else, such as the answer of a program.
        seconds = min((one / 1000 if one > 0 else _OVERDUE for one in left), default=_LONGEST)
        try:
            self.stop.raises = True
            if not self.stop.is_asked:
                time.sleep(min(seconds, _LONGEST))
        except KeyboardInterrupt:
            return
        finally:
            self.stop.raises = False
        self.full = None if self.expires else store.full_disk(look=True)

    def end(self) -> Exit:
        """Return the exit status; after a request to stop raise Interrupted."""
        self.require_room()
        if self.stop.is_asked:
            happened = sum(self.counts.values())
            raise Interrupted(f"stopped: {happened} happened", hint="run the same command to continue")
        return self.status

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


def tick(store: Place, *, expire: bool = False, check: str | None = None) -> TickSummary:
    """Deliver due messages, check transactions, revive; with ``expire`` delete old segments. Return the summary.

    ``check`` is a shell command that gets each open half message: status 0 commits it, 1 rolls it back.
    """
    with ticking(store, expire=expire, check=check) as found:
        found.require_room()
        for _ in found:
            pass  # the loop does the work: each event happens when it is asked for
        return found.finish()


@contextmanager
def ticking(
    store: Place, *, expire: bool = False, follow: bool = False, check: str | None = None, obeys: bool = False
) -> Iterator[Ticking]:
    """Open a store under its lock, with all services of a broker. With ``obeys`` Ctrl-C ends it between two events."""
    from rmqtool.broker.services.tick import serving
    from rmqtool.engine.interrupts import Stop, stopping

    root, config = store_of(store).located()
    program = None if check is None else _program(check)
    with stopping() if obeys else nullcontext(Stop()) as stop, serving(root, config) as services:
        stop.writes = True
        if program is not None:
            services.check.producer = program(stop)
        yield Ticking(services, expire, None if expire else services.store.full_disk(look=True), stop, follow)


def _program(command: str) -> Callable[[Stop], CheckProgram]:
    """Return what asks a program about transactions; raise UsageError if there is no such program."""
    from rmqtool.broker.consumer.programs import check_program
    from rmqtool.broker.services.check_program import CheckProgram

    check_program(command, "--check")
    return partial(CheckProgram, command)
