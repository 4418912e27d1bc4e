"""The screens of ``stat``, and its page for a browser: charts, or the table of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from html import escape
from shlex import quote
from typing import Any

from rmqtool.findings import Severity
from rmqtool.render import text
from rmqtool.render.findings import verdict_lines
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind, cell_text
from rmqtool.render.web_page import document, figures, safe, table

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


_WIDTH, _HEIGHT = 1000, 160
# With more columns each would be thinner than a pixel of a phone, so a column is then several hours or days.
_MOST_COLUMNS = 180
_HOURS = (1, 2, 3, 6, 12, 24, 48, 168, 720, 8760)
_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Section:
    """One chart: its title, the JSON object of its counts, and whether it is over time; or the table of a report."""

    title: str
    shown: Mapping[str, Any]
    over_time: bool = False
    report: str | None = None


def page(title: str, version: str, sections: Sequence[Section], zone: tzinfo | None) -> str:
    """Return the page; its first section has the totals."""
    return document(title, _page(title, version, sections, zone))


def _page(title: str, version: str, sections: Sequence[Section], zone: tzinfo | None) -> Iterator[str]:
    yield f"<h1>{safe(title)}</h1><p>Messages of an Apache RocketMQ store, counted by rmqtool {safe(version)}</p>"
    yield from figures(_figures(sections[0].shown, zone))
    for section in sections:
        yield f"<h2>{safe(section.title)}</h2>"
        if not section.shown["rows"]:
            yield "<p>None.</p>"
        elif section.report is not None:
            yield from _report(section.shown, section.report, zone)
        elif section.over_time:
            yield from _columns(section.shown, zone)
        else:
            yield from _bars(section.shown, zone)


def _report(shown: Mapping[str, Any], report: str, zone: tzinfo | None) -> Iterator[str]:
    """Yield the table of a report, with the columns of its screen."""
    columns = columns_of(shown["by"], report)
    rows = [shown_row(row, shown["total"]["bytes"], partial(text.timestamp, zone=zone)) for row in shown["rows"]]
    numbers = frozenset(place for place, column in enumerate(columns) if column.kind in (Kind.COUNT, Kind.SIZE))
    cells = ([cell_text(column, row.get(column.key), zone) for column in columns] for row in rows)
    yield from table((column.title for column in columns), cells, numbers)


def _figures(shown: Mapping[str, Any], zone: tzinfo | None) -> Iterator[tuple[str, str, str]]:
    total, damaged = shown["total"], shown["damaged"]
    yield text.count(total["messages"]), "messages", ""
    yield text.size(total["bytes"]), "in the log", ""
    for name, label in (("firstStoreTimestamp", "first stored"), ("lastStoreTimestamp", "last stored")):
        if total[name] is not None:
            yield text.timestamp(total[name], zone)[:16], label, ""
    if damaged["bytes"]:
        yield text.size(damaged["bytes"]), "damaged, not counted", " warn"


def _bars(shown: Mapping[str, Any], zone: tzinfo | None) -> Iterator[str]:
    """Yield a table with a bar in each row, as long as its bytes."""
    named = columns_of(shown["by"])[: len(shown["by"])]
    largest = max(row["bytes"] for row in shown["rows"]) or 1
    heads = "".join(f"<th>{safe(column.title)}</th>" for column in named)
    yield f'<div class="scroll"><table><tr>{heads}<th></th>'
    yield '<th class="number">messages</th><th class="number">bytes</th><th class="number">share</th></tr>'
    for row in shown["rows"]:
        names = "".join(f'<td class="{_class(c)}">{_page_cell(c, row[c.key], zone)}</td>' for c in named)
        share = row["bytes"] / shown["total"]["bytes"] if shown["total"]["bytes"] else 0.0
        yield f'<tr>{names}<td class="bar"><div style="width:{row["bytes"] / largest:.1%}"></div></td>'
        yield f'<td class="number">{text.count(row["messages"])}</td>'
        yield f'<td class="number">{text.size(row["bytes"])}</td><td class="number">{share:.1%}</td></tr>'
    yield "</table></div>"
    more = shown["total"]["groups"] - len(shown["rows"])
    if more > 0:
        yield f"<p>and {text.count(more)} more</p>"


def _class(column: Column) -> str:
    return "time" if column.key in ("hour", "day") else "name"


def _page_cell(column: Column, value: object, zone: tzinfo | None) -> str:
    if _class(column) == "time" and isinstance(value, int):
        return escape(text.timestamp(value, zone)[:16])
    return escape(cell_text(column, value, zone))


def _columns(shown: Mapping[str, Any], zone: tzinfo | None) -> Iterator[str]:
    """Yield a picture of messages over time: a column for each span of hours that has messages."""
    rows = sorted((row for row in shown["rows"] if row["hour"] is not None), key=lambda row: row["hour"])
    start, end = rows[0]["hour"], rows[-1]["hour"]
    hours, messages, sizes = _spans(rows)
    width = _WIDTH / max((end - start) // (hours * _HOUR) + 1, 12)
    most = max(messages.values())
    span = "hour" if hours == 1 else f"{hours} hours"
    yield f'<p class="axis">At most {text.counted(most, "message")} in {"one " * (hours == 1)}{span}.</p>'
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img"'
    yield f' aria-label="messages by {span}">'
    for place, count in messages.items():
        height = max(count / most * _HEIGHT, 1)
        when = text.timestamp(start + place * hours * _HOUR, zone)[:16]
        words = f"{when}, {span}: {text.counted(count, 'message')}, {text.size(sizes[place])}"
        x, y = place * width, _HEIGHT - height
        yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.85:.1f}" height="{height:.1f}">'
        yield f"<title>{safe(words)}</title></rect>"
    yield "</svg>"
    ends = [text.timestamp(when, zone)[:16] for when in dict.fromkeys((start, end))]
    yield f'<p class="axis">{"".join(f"<span>{safe(words)}</span>" for words in ends)}</p>'


def _spans(rows: Sequence[Mapping[str, Any]]) -> tuple[int, Counter[int], Counter[int]]:
    """Return the hours of a column, and the messages and bytes of each column; ``rows`` are by hour."""
    start, end = rows[0]["hour"], rows[-1]["hour"]
    hours = next((some for some in _HOURS if (end - start) // (some * _HOUR) < _MOST_COLUMNS), _HOURS[-1])
    messages, sizes = Counter[int](), Counter[int]()
    for row in rows:
        place = (row["hour"] - start) // (hours * _HOUR)
        messages[place] += row["messages"]
        sizes[place] += row["bytes"]
    return hours, messages, sizes
