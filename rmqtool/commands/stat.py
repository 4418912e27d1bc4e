"""``rmqtool stat``: count messages and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqtool.api.stat import DIMENSIONS, REPORTS, TOP
from rmqtool.commands.options import AsBroker, Filters, Limit, Period, Scope, Show, Work, refuse_idle, store_and
from rmqtool.commands.store_word import choose_store, tell
from rmqtool.errors import Exit, StoreError, UsageError
from rmqtool.times import parse_zone

if TYPE_CHECKING:
    from rmqtool.api.stat import Counted, How
    from rmqtool.render.output import Output


def stat(
    words: Annotated[
        list[str] | None, store_and("[" + "|".join(REPORTS) + "]", "The store, and what to report.")
    ] = None,
    *,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME,...", help=f"Count by {', '.join(DIMENSIONS)}: any combination.")
    ] = None,
    duplicates: Annotated[
        str | None,
        typer.Option(
            "--duplicates", metavar="uniq|body", help="Find messages stored twice: same unique key, or same body."
        ),
    ] = None,
    as_map: Annotated[bool, typer.Option("--map", help="Draw a map of the log.")] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Also write a web page with charts.")
    ] = None,
    scope: Scope,
    period: Period,
    filters: Filters,
    limit: Limit = None,
    work: Work,
    broker: AsBroker,
    show: Show,
) -> Exit:
    """Count messages and bytes: which topics, tags and times fill the disk.

    Sizes are those of whole records in the log; bodies count as stored. delay, tx and retry count pending messages
    (late: due before now and not delivered). retention shows what is deleted next, and which groups have not read it.
    With --limit the largest groups are shown.
    """
    from rmqtool.api.stat import count

    choice = choose_store(words or [], takes_words=REPORTS)
    report = _report(choice.words)
    _refuse_idle(report, {"--by": by, "--duplicates": duplicates, "--limit": limit}, as_map)
    how: How = {"by": by, "duplicates": duplicates, "report": report, "as_map": as_map, "zone": parse_zone(show.tz)}
    how["top"], how["charts"] = (
        TOP if limit is None and show.is_for_people else limit,
        html is not None and report is None,
    )
    which = {**scope.asked(), **period.asked(show.tz), **filters.asked()}
    with show.output() as output:
        found = count(broker.store(choice.store), how, work.asked(output), **which)
        _show(output, found, report, choice.store)
        if html is not None:
            _write_page(output, html, found, how, report)
        for said in found.unread:
            tell(output, said)
    return found.status


def _refuse_idle(report: str | None, counting: dict[str, object], as_map: bool) -> None:
    """Refuse options that need a count by a dimension."""
    if report is not None:
        hint = "without a report it counts all messages: rmqtool stat STORE"
        refuse_idle(f"stat {report}", {**counting, "--map": as_map}, hint)
    elif as_map:
        refuse_idle("stat --map", counting, "without --map it counts")


def _report(words: tuple[str, ...]) -> str | None:
    if not words:
        return None
    if "/" in words[0]:
        raise StoreError(f"{words[0]} does not exist", file=words[0], hint="give the storePathRootDir of a broker")
    if len(words) > 1 or words[0] not in REPORTS:
        raise UsageError(f'"{" ".join(words)}" is not a report', hint=f"one of {', '.join(REPORTS)}")
    return words[0]


def _show(output: Output, found: Counted, report: str | None, store: str) -> None:
    from rmqtool.render.messages import nothing_matched
    from rmqtool.render.stat import fields_of, map_lines, stat_lines

    if found.unknown is not None:
        tell(output, found.unknown)
    if found.lines is not None:
        output.single(found.shown, map_lines(output, found.lines, found.shown["span"]))
    elif output.is_human or output.look.mode in ("json", "jsonl"):
        output.single(found.shown, stat_lines(output, found.shown, report, store))
    else:
        output.rows(found.shown["rows"], fields_of(found.shown["rows"], found.by), lambda _: ())
    if found.is_unmatched:
        output.note(nothing_matched(found.there))


def _write_page(output: Output, path: str, found: Counted, how: How, report: str | None) -> None:
    from rmqtool import __version__
    from rmqtool.render.stat import Section, page
    from rmqtool.render.web_page import write_page

    sections = [Section(*chart) for chart in found.charts]
    if report is not None:
        sections = [Section(f"Report: {report}", found.shown, report=report)]
    write_page(path, page(found.root, __version__, sections, how.get("zone")), "--html")
    output.note(f"{path} shows it in a browser")
