"""Counts as one page for a browser: no script, no external files, readable on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from html import escape
from typing import Any

from rmqtool.render import text
from rmqtool.render.stat import columns_of
from rmqtool.render.tables import Column, cell_text

_STYLE = """
:root { --ink: #1c2430; --soft: #5d6b7e; --line: #d9dfe7; --bar: #3b76c4; --back: #ffffff; --warn: #b3372b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6eaf0; --soft: #9aa7b8; --line: #39424f; --bar: #6ea3e6; --back: #171c23; --warn: #f08a7d; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 70rem; padding: 2rem 1.5rem 4rem; color: var(--ink); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.5rem 0 .75rem; }
p { color: var(--soft); margin: .25rem 0; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.5rem 0; }
.figure { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem 1rem; min-width: 9rem; }
.figure b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.figure span { color: var(--soft); font-size: .85rem; }
.warn b { color: var(--warn); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 6rem; }
td.time { white-space: nowrap; }
td.bar { width: 28%; min-width: 8rem; }
td.bar div { background: var(--bar); height: .8rem; border-radius: .15rem; min-width: 1px; margin-top: .35rem; }
svg { width: 100%; height: 10rem; display: block; border-bottom: 1px solid var(--line); }
svg rect { fill: var(--bar); }
.axis { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 1rem; font-size: .85rem; }
@media (max-width: 40rem) {
  body { padding: 1.25rem 1rem 3rem; }
  th, td { padding: .3rem; }
  td.bar { width: 16%; min-width: 2.5rem; }
}
""".strip()
_WIDTH, _HEIGHT = 1000, 160
# With more columns each would be thinner than a pixel of a phone, so a column is then several hours or days.
_MOST_COLUMNS = 180
_HOURS = (1, 2, 3, 6, 12, 24, 48, 168, 720, 8760)
_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Section:
    """One chart: its title, the JSON object of its counts, and whether it is over time."""

    title: str
    shown: Mapping[str, Any]
    over_time: bool = False


def page(title: str, version: str, sections: Sequence[Section], zone: tzinfo | None) -> str:
    """Return the page; its first section has the totals."""
    return "\n".join(_page(title, version, sections, zone)) + "\n"


def _page(title: str, version: str, sections: Sequence[Section], zone: tzinfo | None) -> Iterator[str]:
    name = _safe(title)
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{name}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{name}</h1><p>Messages of an Apache RocketMQ store, counted by rmqtool {_safe(version)}</p>"
    yield from _figures(sections[0].shown, zone)
    for section in sections:
        yield f"<h2>{_safe(section.title)}</h2>"
        if not section.shown["rows"]:
            yield "<p>None.</p>"
        elif section.over_time:
            yield from _columns(section.shown, zone)
        else:
            yield from _bars(section.shown, zone)
    yield "</body></html>"


def _safe(words: str) -> str:
    return escape(text.neutral(words))


def _figures(shown: Mapping[str, Any], zone: tzinfo | None) -> Iterator[str]:
    total, damaged = shown["total"], shown["damaged"]
    figures = [(text.count(total["messages"]), "messages", ""), (text.size(total["bytes"]), "in the log", "")]
    for name, label in (("firstStoreTimestamp", "first stored"), ("lastStoreTimestamp", "last stored")):
        if total[name] is not None:
            figures.append((text.timestamp(total[name], zone)[:16], label, ""))
    if damaged["bytes"]:
        figures.append((text.size(damaged["bytes"]), "damaged, not counted", " warn"))
    yield '<div class="figures">'
    for figure, label, style in figures:
        yield f'<div class="figure{style}"><b>{_safe(figure)}</b><span>{label}</span></div>'
    yield "</div>"


def _bars(shown: Mapping[str, Any], zone: tzinfo | None) -> Iterator[str]:
    """Yield a table with a bar in each row, as long as its bytes."""
    named = columns_of(shown["by"])[: len(shown["by"])]
    largest = max(row["bytes"] for row in shown["rows"]) or 1
    heads = "".join(f"<th>{_safe(column.title)}</th>" for column in named)
    yield f'<div class="scroll"><table><tr>{heads}<th></th>'
    yield '<th class="number">messages</th><th class="number">bytes</th><th class="number">share</th></tr>'
    for row in shown["rows"]:
        names = "".join(f'<td class="{_class(c)}">{_cell(c, row[c.key], zone)}</td>' for c in named)
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


def _cell(column: Column, value: object, zone: tzinfo | None) -> str:
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
        yield f"<title>{_safe(words)}</title></rect>"
    yield "</svg>"
    ends = [text.timestamp(when, zone)[:16] for when in dict.fromkeys((start, end))]
    yield f'<p class="axis">{"".join(f"<span>{_safe(words)}</span>" for words in ends)}</p>'


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
