"""The screens of ``stat``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from rmqtool.findings import Severity
from rmqtool.render import text
from rmqtool.render.findings import verdict_lines
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind

_TITLES = {"uniqKey": "unique key", "segment": "log from", "size": "up to", "queue": "queue", "delay": "delay"}
_KINDS = {"size": Kind.SIZE, "queue": Kind.OFFSET, "segment": Kind.OFFSET, "hour": Kind.TEXT, "day": Kind.TEXT}
_REPORTS: dict[str, tuple[Column, ...]] = {
    "delay": (
        Column("delivered", "delivered", Kind.COUNT),
        Column("waiting", "waiting", Kind.COUNT),
        Column("late", "late", Kind.COUNT),
        Column("rolled", "rolled", Kind.COUNT),
        Column("cancelled", "cancelled", Kind.COUNT),
        Column("nextDue", "next due"),
    ),
    "tx": (
        Column("transactions", "all", Kind.COUNT),
        Column("committed", "committed", Kind.COUNT),
        Column("rolledBack", "rolled back", Kind.COUNT),
        Column("givenUp", "given up", Kind.COUNT),
        Column("undecided", "open", Kind.COUNT),
        Column("checks", "checks", Kind.COUNT),
        Column("oldestOpen", "oldest open"),
    ),
    "retry": (
        Column("retries", "retries", Kind.COUNT),
        Column("revived", "revived", Kind.COUNT),
        Column("deadLetters", "dead letters", Kind.COUNT),
        Column("most", "most", Kind.COUNT),
        Column("bytes", "bytes", Kind.SIZE),
    ),
    "retention": (
        Column("messages", "messages", Kind.COUNT),
        Column("bytes", "bytes", Kind.SIZE),
        Column("expires", "expires", Kind.TEXT),
        Column("unreadWords", "not read yet", cut=Cut.END),
    ),
}
_FIGURES = (
    Column("messages", "messages", Kind.COUNT),
    Column("bytes", "bytes", Kind.SIZE),
    Column("share", "share", Kind.SHARE),
    Column("first", "first", spare=True),
    Column("last", "last", spare=True),
)
_MINUTES = len("2026-08-23 11:41")
_SECONDS = len("2026-08-23 11:41:07")
_DAYS = len("2026-08-23")
CELLS = {"normal": "█", "retry": "r", "dlq": "d", "system": "s", "lmq": "l", "damaged": "!", None: "·"}


def columns_of(by: Sequence[str], report: str | None = None) -> list[Column]:
    """Return the columns of a table."""
    named = [
        Column(
            name, _TITLES.get(name, name), _KINDS.get(name, Kind.TEXT), Cut.MIDDLE if name not in _KINDS else Cut.NEVER
        )
        for name in by
    ]
    return [*named, *(_REPORTS[report] if report is not None else _FIGURES)]


def fields_of(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[str]:
    """Return the field names of a table of rows for programs."""
    return list(rows[0]) if rows else [*by, "messages", "bytes", "bodyBytes"]


def stat_lines(output: Output, shown: Mapping[str, Any], report: str | None, store: str) -> Iterator[str]:
    """Yield the screen of counts; ``shown`` is the JSON object, ``store`` the store as it was typed."""
    rows = [shown_row(row, shown["total"]["bytes"], output.time) for row in shown["rows"]]
    if rows:
        yield from output.table_lines(rows, columns_of(shown["by"], report))
    else:
        yield "nothing to count"
    more = shown["total"]["groups"] - len(rows)
    if more > 0:
        yield f"… {text.count(more)} more; --limit {shown['total']['groups']} shows all"
    yield from _total_lines(output, shown)
    late = sum(row.get("late", 0) for row in shown["rows"])
    if late:
        words = f"{text.counted(late, 'message is', 'messages are')} overdue: due before now, but not delivered"
        yield from verdict_lines(output, words, Severity.WARNING, [f"rmqtool tick {quote(store)}"])


def shown_row(row: Mapping[str, Any], total: int, spell: Callable[[int], str]) -> dict[str, Any]:
    """Return a row with the texts of its columns; ``spell`` writes a time."""
    found = {**row, "share": row["bytes"] / total if total else 0.0}
    for name, source in (
        ("first", "firstStoreTimestamp"),
        ("last", "lastStoreTimestamp"),
        ("expires", "expiresTimestamp"),
        ("oldestOpen", "oldestUndecidedTimestamp"),
    ):
        time = row.get(source)
        found[name] = None if time is None else spell(time)[:_MINUTES]
    due = row.get("nextDueTimestamp")
    found["nextDue"] = None if due is None else spell(due)[:_SECONDS]
    for name, length in (("hour", _MINUTES), ("day", _DAYS)):
        if row.get(name) is not None:
            found[name] = spell(row[name])[:length]
    unread = row.get("unread", [])
    found["unreadWords"] = ", ".join(
        f"{one['group']} {text.count(one['messages'])} of {one['topic']}" for one in unread
    )
    return found


def _total_lines(output: Output, shown: Mapping[str, Any]) -> Iterator[str]:
    total, damaged = shown["total"], shown["damaged"]
    words = f"{text.counted(total['messages'], 'message')}, {text.size(total['bytes'])} in total."
    if damaged["bytes"] or damaged["places"]:
        places = "place" if damaged["places"] == 1 else "places"
        words += f" Damaged and not counted: {text.size(damaged['bytes'])} in {damaged['places']} {places}."
    yield from text.hanging(words, output.look.width, 2)


def map_lines(output: Output, lines: Mapping[int, Sequence[str | None]], span: int) -> Iterator[str]:
    """Yield the picture of a log: a line per segment, a character per ``span`` bytes."""
    digits = max((len(str(start)) for start in lines), default=1)
    for start, cells in lines.items():
        yield f"{start:>{digits}} " + "".join(_cell(output, cell) for cell in cells)
    kinds = [kind for kind in CELLS if any(kind in cells for cells in lines.values())]
    legend = ", ".join(f"{CELLS[kind]} {kind or 'no message starts here'}" for kind in kinds)
    size = text.size(span).replace(" ", "\u00a0")
    yield from text.hanging(f"{legend}; one character is {size}", output.look.width, 2)


def _cell(output: Output, kind: str | None) -> str:
    return output.paint(CELLS[kind], "error") if kind == "damaged" else CELLS[kind]
