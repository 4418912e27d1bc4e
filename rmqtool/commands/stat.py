"""``rmqtool stat``: who, what, when, how much."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmqtool.commands.opening import choose_store
from rmqtool.commands.options import AsBroker, Filters, Limit, Period, Scope, Show, Work, store_and
from rmqtool.commands.selecting import (
    note_nothing_matched,
    note_unknown_topics,
    note_unread_configs,
    refuse_idle,
    select_messages,
)
from rmqtool.errors import Exit, StoreError, UsageError, WriteFailed, worst
from rmqtool.times import now_ms, parse_zone

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqtool.log.ranges import Effort
    from rmqtool.log.select import Selection
    from rmqtool.look.statistics import Statistics, Wish
    from rmqtool.render.output import Output
    from rmqtool.store.open import Store

_DIMENSIONS = ("topic", "queue", "tag", "key", "producer", "group", "hour", "day", "size", "kind")
_REPORTS = ("delay", "tx", "retry", "retention")
_DUPLICATES = {"uniq": ("topic", "uniqKey"), "body": ("topic", "body")}
_OVER_TIME = "over time"
_TOP = 20


def stat(
    words: Annotated[
        list[str] | None, store_and("[" + "|".join(_REPORTS) + "]", "The store, and what to report on.")
    ] = None,
    *,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME,...", help=f"Count by {', '.join(_DIMENSIONS)}: any of them.")
    ] = None,
    duplicates: Annotated[
        str | None,
        typer.Option("--duplicates", metavar="uniq|body", help="Messages stored twice: of one unique key, or body."),
    ] = None,
    as_map: Annotated[bool, typer.Option("--map", help="A picture of what lies where in the log.")] = False,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Also write a page of charts.")] = None,
    scope: Scope,
    period: Period,
    filters: Filters,
    limit: Limit = None,
    work: Work,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Count messages: who stores what, when, and how much of the disk it fills.

    Sizes are those of whole records in the log; of bodies, as they are stored. delay, tx and retry count what waits, is
    undecided or tried again (late: due before now and not delivered); retention shows what is deleted next, and which
    groups have not read it. With --limit the largest groups are shown.
    """
    from rmqtool.store.open import open_store

    choice = choose_store(words or [], takes_words=_REPORTS)
    report = _report(choice.words)
    _refuse_idle(report, {"--by": by, "--duplicates": duplicates, "--limit": limit}, as_map)
    selection = select_messages(scope, period.bounds(show.tz), filters)
    wish = _wish(by, duplicates, limit, show)
    opened = open_store(choice.store, version=broker.as_version, assignments=tuple(broker.conf or ()))
    with show.output() as output, opened as store:
        effort = work.effort(output)
        known = note_unknown_topics(output, [store], selection.topics, selection.queue_id)
        if as_map:
            found = _show_map(output, store, selection, effort)
        else:
            found = _count(store, selection, effort, wish, report)
            _show(output, found, report, choice.store)
        if not found.messages and known is Exit.DONE and report is None:
            note_nothing_matched(output, store, selection)
        if html is not None:
            _write_page(html, store, selection, effort, wish)
            output.note(f"{html} shows it in a browser")
        unread = note_unread_configs(output, store)
    return worst(known, unread, Exit.SKIPPED if found.damages else Exit.DONE)


def _refuse_idle(report: str | None, counting: dict[str, object], as_map: bool) -> None:
    """Refuse what only counting by something takes."""
    if report is not None:
        hint = "without a report it counts all messages: rmqtool stat STORE"
        refuse_idle(f"stat {report}", {**counting, "--map": as_map}, hint)
    elif as_map:
        refuse_idle("stat --map", counting, "without --map it counts")


def _report(words: tuple[str, ...]) -> str | None:
    if not words:
        return None
    if "/" in words[0]:
        raise StoreError(f"{words[0]} is not there", file=words[0], hint="give the storePathRootDir of a broker")
    if len(words) > 1 or words[0] not in _REPORTS:
        raise UsageError(f'"{" ".join(words)}" is not a report', hint=f"one of {', '.join(_REPORTS)}")
    return words[0]


def _wish(by: str | None, duplicates: str | None, top: int | None, show: Show) -> Wish:
    from rmqtool.look.statistics import Wish

    most = _TOP if top is None and show.is_for_people else top
    if duplicates is not None:
        if duplicates not in _DUPLICATES or by is not None:
            raise UsageError("--duplicates takes uniq or body, and no --by", hint="for example: --duplicates uniq")
        return Wish(_DUPLICATES[duplicates], top=most, least=2, normal_only=True)
    names = tuple(name.strip() for name in (by or "topic").split(","))
    for name in names:
        if name not in _DIMENSIONS or names.count(name) > 1:
            raise UsageError(f'"{by}" cannot be counted by', hint=f"any of {', '.join(_DIMENSIONS)}, each once")
    return Wish(names, parse_zone(show.tz), most)


def _count(store: Store, selection: Selection, effort: Effort, wish: Wish, report: str | None) -> Statistics:
    from rmqtool.look.stat_reports import report_delays, report_retention, report_retries, report_transactions
    from rmqtool.look.statistics import read_statistics

    if report is None:
        return read_statistics(store, selection, [wish], effort)[0]
    makers: dict[str, Callable[[Store, Selection, Effort], Statistics]] = {
        "delay": partial(report_delays, now=now_ms()),
        "tx": report_transactions,
        "retry": report_retries,
        "retention": report_retention,
    }
    return makers[report](store, selection, effort)


def _show(output: Output, found: Statistics, report: str | None, store: str) -> None:
    from rmqtool.render.stat import fields_of, stat_lines

    shown = found.as_json()
    if output.is_human or output.look.mode in ("json", "jsonl"):
        output.single(shown, stat_lines(output, shown, report, store))
    else:
        output.rows(found.rows, fields_of(found.rows, found.by), lambda _: ())


def _show_map(output: Output, store: Store, selection: Selection, effort: Effort) -> Statistics:
    from rmqtool.look.log_map import read_log_map
    from rmqtool.render.stat import map_lines

    found = read_log_map(store, selection, effort)
    shown: dict[str, Any] = {**found.statistics.as_json(), "span": found.span}
    output.single(shown, map_lines(output, found.lines, found.span))
    return found.statistics


def _write_page(path: str, store: Store, selection: Selection, effort: Effort, wish: Wish) -> None:
    """Write the page beside its place first, so that it is there whole or not at all."""
    from rmqtool import __version__
    from rmqtool.look.statistics import read_statistics
    from rmqtool.render.stat_page import Section, page

    wishes = _charts(wish)
    counted = read_statistics(store, selection, list(wishes.values()), effort)
    sections = [
        Section(title[:1].upper() + title[1:], found.as_json(), title == _OVER_TIME)
        for title, found in zip(wishes, counted, strict=True)
    ]
    beside = f"{path}.part"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(page(store.root, __version__, sections, wish.zone))
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(beside)
        raise WriteFailed(
            f"{path} cannot be written: {error.strerror}", file=path, hint="name another place for --html"
        ) from error


def _charts(wish: Wish) -> dict[str, Wish]:
    """Return what the page shows, by title: what was asked for, then all else that there is to count by."""
    from rmqtool.look.statistics import Wish

    zone, top = wish.zone, wish.top if wish.top is not None else _TOP
    charts = {"by " + ", ".join(wish.by): Wish(wish.by, zone, top, wish.least, wish.normal_only)}
    charts[_OVER_TIME] = Wish(("hour",), zone)
    for name in ("kind", "size", "topic", "producer", "tag", "group"):
        charts.setdefault(f"by {name}", Wish((name,), zone, None if name in ("kind", "size") else _TOP))
    return charts
