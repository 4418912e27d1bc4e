"""``stat``: count messages and bytes; report what waits or is deleted next; map the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from rmqtool.api.store import Place, opened
from rmqtool.api.wanted import (
    Json,
    Said,
    Which,
    Working,
    count_there,
    effort_of,
    require_known,
    unknown_places,
    unread_configs,
    wanted_of,
)
from rmqtool.errors import Exit, UsageError, worst

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from rmqtool.api.shapes import Counts
    from rmqtool.log.ranges import Effort
    from rmqtool.log.select import Selection
    from rmqtool.look.statistics import Statistics, Wish
    from rmqtool.store.open import Store

DIMENSIONS = ("topic", "queue", "tag", "key", "producer", "group", "hour", "day", "size", "kind")
REPORTS = ("delay", "tx", "retry", "retention")
DUPLICATES = {"uniq": ("topic", "uniqKey"), "body": ("topic", "body")}
OVER_TIME = "over time"
# Number of groups in a chart.
TOP = 20


class How(TypedDict, total=False):
    """The kind of count: by which dimensions, duplicates, one of the reports, or a map of the log.

    ``top`` is the number of groups shown, the largest first. With ``charts`` everything for a page of charts is
    counted.
    """

    by: str | Sequence[str] | None
    duplicates: str | None
    report: str | None
    as_map: bool
    top: int | None
    zone: tzinfo | None
    charts: bool


class Chart(NamedTuple):
    """The content of a page under one title."""

    title: str
    counts: Json
    is_over_time: bool


@dataclass
class Counted:
    """The counts: the object of the contract, with the ``span`` of a cell and the ``lines`` of a map.

    ``unknown`` says that a topic or queue does not exist; ``there`` is the number of messages if none of them matched.
    """

    root: str
    shown: Json
    by: tuple[str, ...]
    messages: int
    is_damaged: bool
    lines: dict[int, list[str | None]] | None = None
    unknown: Said | None = None
    is_unmatched: bool = False
    there: int | None = None
    charts: list[Chart] = field(default_factory=list)
    unread: list[Said] = field(default_factory=list)

    @property
    def status(self) -> Exit:
        """Return the exit status of the command."""
        said = [*([self.unknown] if self.unknown else []), *self.unread]
        return worst(*(one.status for one in said), Exit.SKIPPED if self.is_damaged else Exit.DONE)


def stat(store: Place, by: str | Sequence[str] = "topic", *, jobs: int = 1, **which: Unpack[Which]) -> Counts:
    """Count messages and bytes by topic, queue, tag, key, producer, group, hour, day, size, kind, or several."""
    require_known("stat", which)
    return cast("Counts", count(store, {"by": by}, {"jobs": jobs}, **which).shown)


def count(store: Place, how: How, work: Working | None = None, **which: Unpack[Which]) -> Counted:
    """Count the messages of a store, and note what could not be counted."""
    from rmqtool.log.select import Selection

    wanted, wish = wanted_of(which), _wish(how)
    effort = effort_of(**(work or {}))
    with opened(store) as found:
        selection = Selection.of(wanted, version=found.version.value)
        unknown = unknown_places([found], wanted)
        answer = _count(found, selection, effort, wish, how)
        if not answer.messages and unknown is None and how.get("report") is None:
            answer.is_unmatched, answer.there = True, count_there(found, wanted)
        if how.get("charts"):
            answer.charts = _charts(found, selection, effort, wish)
        answer.unknown = unknown
        answer.unread += unread_configs(found)
        return answer


def _wish(how: How) -> Wish:
    from rmqtool.look.statistics import Wish

    by, duplicates, top = how.get("by"), how.get("duplicates"), how.get("top")
    if duplicates is not None:
        if duplicates not in DUPLICATES or by is not None:
            raise UsageError("--duplicates takes uniq or body, without --by", hint="for example: --duplicates uniq")
        return Wish(DUPLICATES[duplicates], top=top, least=2, normal_only=True)
    listed = (by or "topic").split(",") if by is None or isinstance(by, str) else by
    names = tuple(name.strip() for name in listed)
    for name in names:
        if name not in DIMENSIONS or names.count(name) > 1:
            asked = by if isinstance(by, str) else ",".join(names)
            raise UsageError(f'cannot count by "{asked}"', hint=f"any of {', '.join(DIMENSIONS)}, each once")
    return Wish(names, how.get("zone"), top)


def _count(store: Store, selection: Selection, effort: Effort, wish: Wish, how: How) -> Counted:
    from rmqtool.look.statistics import read_log_map

    if not how.get("as_map"):
        return _counted(store, _statistics(store, selection, effort, wish, how.get("report")))
    found = read_log_map(store, selection, effort)
    counted = _counted(store, found.statistics)
    counted.shown["span"], counted.lines = found.span, found.lines
    return counted


def _counted(store: Store, found: Statistics) -> Counted:
    unread = [Said(f"the count lacks a queue: {error.message}", Exit.SKIPPED) for error in found.unread]
    return Counted(store.root, found.as_json(), found.by, found.messages, bool(found.damages), unread=unread)


def _statistics(store: Store, selection: Selection, effort: Effort, wish: Wish, report: str | None) -> Statistics:
    from functools import partial

    from rmqtool.look.stat_reports import report_delays, report_retention, report_retries, report_transactions
    from rmqtool.look.statistics import read_statistics
    from rmqtool.times import now_ms

    if report is None:
        return read_statistics(store, selection, [wish], effort)[0]
    makers: dict[str, Callable[[Store, Selection, Effort], Statistics]] = {
        "delay": partial(report_delays, now=now_ms()),
        "tx": report_transactions,
        "retry": report_retries,
        "retention": report_retention,
    }
    if report not in makers:
        raise UsageError(f'"{report}" is not a report', hint=f"one of {', '.join(REPORTS)}")
    return makers[report](store, selection, effort)


def _charts(store: Store, selection: Selection, effort: Effort, wish: Wish) -> list[Chart]:
    """Count for a page: what was asked for, then by every other dimension."""
    from rmqtool.look.statistics import Wish, read_statistics

    zone, top = wish.zone, wish.top if wish.top is not None else TOP
    wishes = {"by " + ", ".join(wish.by): Wish(wish.by, zone, top, wish.least, wish.normal_only)}
    wishes[OVER_TIME] = Wish(("hour",), zone)
    for name in ("kind", "size", "topic", "producer", "tag", "group"):
        wishes.setdefault(f"by {name}", Wish((name,), zone, None if name in ("kind", "size") else TOP))
    counted: list[Any] = read_statistics(store, selection, list(wishes.values()), effort)
    return [
        Chart(title[:1].upper() + title[1:], found.as_json(), title == OVER_TIME)
        for title, found in zip(wishes, counted, strict=True)
    ]
