"""``rmqtool tick``: what is due now happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Show, Store
from rmqtool.errors import Exit

if TYPE_CHECKING:
    from rmqtool.broker.services.events import Happened
    from rmqtool.broker.services.tick import Services

FIELDS = ("service", "event", "topic", "queueId", "queueOffset", "commitLogOffset", "uniqKey", "dueTimestamp")
# What a broker would only log.
_PASSED_OVER = frozenset({"skipped", "stuck", "dropped"})


def tick(
    store: Store = None,
    *,
    expire: Annotated[
        bool, typer.Option("--expire", help="Delete segments that have expired, or that a full disk asks for.")
    ] = False,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Do what a broker would have done by now: deliver delayed messages, check transactions, revive.

    What a broker would delete now, because it is old or the disk is full, is named; --expire deletes it. With --jsonl a
    line for each thing that happened, then a summary with counts and with what still waits.
    """
    from rmqtool.commands.opening import choose_store
    from rmqtool.commands.serving import serving
    from rmqtool.render.tick import ticked_lines

    counts: Counter[tuple[str, str, str]] = Counter()
    removed: list[Mapping[str, Any]] = []
    path = choose_store([store] if store else []).store
    with show.output() as output, serving(path, broker) as services:
        happened = chain(services.iter_due(), services.iter_expired() if expire else ())
        told = (one.as_json() for one in _counted(happened, counts))

        def keep(row: Mapping[str, Any]) -> tuple[str, ...]:
            if "files" in row:
                removed.append(row)
            return ()

        output.rows(told, FIELDS, keep)
        services.save()
        summary = _summary(services, counts)
        if output.is_human:
            for line in ticked_lines(output, summary, removed):
                output.line(line)
        else:
            output.aside({"summary": summary}, f"{sum(counts.values())} happened")
    return Exit.SKIPPED if any(event in _PASSED_OVER for _, event, _ in counts) else Exit.DONE


def _counted(happened: Iterator[Happened], counts: Counter[tuple[str, str, str]]) -> Iterator[Happened]:
    for one in happened:
        counts[one.service.value, one.event, one.topic] += 1
        yield one


def _summary(services: Services, counts: Counter[tuple[str, str, str]]) -> dict[str, Any]:
    """Return what happened, counted, and what waits for its time."""
    return {
        "now": services.store.setup.clock.now(),
        "counts": [
            {"service": service, "event": event, "topic": topic, "count": count}
            for (service, event, topic), count in sorted(counts.items())
        ],
        "waiting": services.waiting(),
        "expired": services.store.find_expired().as_json(),
    }
