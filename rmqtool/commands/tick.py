"""``rmqtool tick``: what is due now happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.options import AsBroker, Show, Store
from rmqtool.errors import Exit, NoSpace

if TYPE_CHECKING:
    from rmqtool.broker.services.events import Happened
    from rmqtool.broker.services.tick import Services
    from rmqtool.render.output import Output

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

    counts: Counter[tuple[str, str, str]] = Counter()
    removed: list[Mapping[str, Any]] = []
    path = choose_store([store] if store else []).store
    with show.output() as output, serving(path, broker) as services:
        full = None if expire else services.store.full_disk(look=True)
        told = () if full else (one.as_json() for one in _counted(_iter_all(services, expire), counts))

        def keep(row: Mapping[str, Any]) -> tuple[str, ...]:
            if "files" in row:
                removed.append(row)
            return ()

        output.rows(told, FIELDS, keep)
        if full is None:
            services.save()
        _tell(output, _summary(services, counts), removed)
        if full is not None:
            raise NoSpace(f"nothing was delivered: {full}", hint="make room on that disk, then run the command again")
    return Exit.SKIPPED if any(event in _PASSED_OVER for _, event, _ in counts) else Exit.DONE


def _iter_all(services: Services, expire: bool) -> Iterator[Happened]:
    """Do what is due, and delete what expired where that is asked for."""
    return chain(services.iter_due(), services.iter_expired() if expire else ())


def _counted(happened: Iterator[Happened], counts: Counter[tuple[str, str, str]]) -> Iterator[Happened]:
    for one in happened:
        counts[one.service.value, one.event, one.topic] += 1
        yield one


def _tell(output: Output, summary: dict[str, Any], removed: list[Mapping[str, Any]]) -> None:
    from rmqtool.render.tick import ticked_lines

    if output.is_human:
        for line in ticked_lines(output, summary, removed):
            output.line(line)
    else:
        happened = sum(count["count"] for count in summary["counts"])
        output.aside({"summary": summary}, f"{happened} happened")


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
