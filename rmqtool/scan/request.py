"""Everything that can be asked of a source at once, and the stream that answers it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rmqtool.filters.patterns import parse_patterns
from rmqtool.scan.bounds import bound_by_queues
from rmqtool.scan.following import Follower
from rmqtool.scan.logs import LogKind
from rmqtool.scan.ordering import Arrangement, Order, iter_arranged
from rmqtool.scan.plan import Plan, read_plan
from rmqtool.scan.ranges import Answered, Effort
from rmqtool.scan.reading import Damage, Note, Part
from rmqtool.scan.selection import Selection
from rmqtool.scan.sources import Source
from rmqtool.scan.stream import iter_counts, iter_line_answers, iter_parts
from rmqtool.scan.tail import find_last_place


@dataclass(frozen=True)
class Request:
    """Which messages, in which order, and how many.

    ``last`` takes the last ones of what lies in the wanted places: of all, or of each queue in the order of the queues.
    """

    selection: Selection
    order: Order = Order.LOG
    last: int | None = None
    sample: int | None = None
    limit: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the messages come in the order of the log, all of them."""
        return self.order is Order.LOG and self.sample is None and self.limit is None


def plan_request(source: Source, request: Request, effort: Effort) -> tuple[Plan, Selection]:
    """Return what is read of a source, and what is asked of the messages there."""
    selection = request.selection
    if source.store is not None:
        selection = replace(selection, rules=source.store.dispatch_rules)
    if source.topic is not None:
        selection = replace(selection, topics=parse_patterns([source.topic]), queue_id=source.queue_id)
    selection = bound_by_queues(source.files, source.queues, selection)
    plan = read_plan(source.files, selection, source.queues, live=source.live)
    if not source.directories:
        plan = replace(plan, witnesses=())  # one file was named: what lies behind it was not asked for
    if request.last is not None and request.order is not Order.QUEUE:
        place = find_last_place(plan, selection.scope(), request.last, effort)
        selection = replace(selection, physical_from=max(place, selection.physical_from))
        plan = replace(plan, wanted=[file for file in plan.wanted if file.end_offset > selection.physical_from])
    return plan, selection


def iter_messages(source: Source, request: Request, effort: Effort) -> Iterator[Part | Damage | Note]:
    """Yield the wanted messages in their order."""
    plan, selection = plan_request(source, request, effort)
    if request.order is Order.LOG and request.sample is None:
        found = iter_parts(plan, selection, effort)
    else:
        last = request.last if request.order is Order.QUEUE else None
        found = iter_arranged(plan, selection, Arrangement(request.order, last, request.sample), effort)
    return found if request.limit is None else iter_limited(found, request.limit)


def iter_lines(source: Source, request: Request, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield the wanted messages as lines of JSON, for a request that is plain."""
    plan, selection = plan_request(source, request, effort)
    return iter_line_answers(plan, selection, effort)


def iter_numbers(source: Source, request: Request, effort: Effort) -> Iterator[Answered | Damage | Note]:
    """Yield how many messages are wanted, range by range."""
    plan, selection = plan_request(source, request, effort)
    return iter_counts(plan, selection, effort)


def iter_limited(found: Iterator[Part | Damage | Note], limit: int) -> Iterator[Part | Damage | Note]:
    """Yield no more than ``limit`` messages; nothing is read to learn whether there are more."""
    left = limit
    for event in found if limit else ():
        if not isinstance(event, Part):
            yield event
            continue
        yield event._replace(records=event.records.select(slice(left)))
        if len(event.records) > left:
            yield Note(f"stopped after {limit} (--limit); there is more")
        left -= len(event.records)
        if left <= 0:
            return


def iter_followed(
    source: Source, request: Request, effort: Effort, pause: Callable[[], None]
) -> Iterator[Part | Damage | Note | None]:
    """Yield the wanted messages, and go on when more are written. None: there is no more for now."""
    plan, selection = plan_request(source, request, effort)
    start = min((file.base_offset for file in plan.wanted), default=0)
    for file in plan.wanted:
        if file.base_offset <= selection.physical_from < file.end_offset and file.kind is not LogKind.DLEDGER:
            start = selection.physical_from
    follower = Follower(source.list_files, selection, start)
    left = request.limit
    while True:
        for event in follower.poll():
            if left is None or not isinstance(event, Part):
                yield event
                continue
            yield event._replace(records=event.records.select(slice(left)))
            left -= len(event.records)
            if left <= 0:
                return
        yield None
        pause()
