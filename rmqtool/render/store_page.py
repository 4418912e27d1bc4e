"""A store as a page for a ticket or a post-mortem: overview, log map, topics, groups, findings, messages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import tzinfo
from typing import Any, Protocol

from rmqtool.findings import Finding, find_code
from rmqtool.render import text
from rmqtool.render.findings import place_of
from rmqtool.render.stat import CELLS
from rmqtool.render.web_page import document, figures, safe, table

# Characters of a body on the page.
_BODY = 400
_SCRIPT = """
const field = document.getElementById('find'), told = document.getElementById('told');
const rows = [...document.querySelectorAll('tr.m')], topics = [...document.querySelectorAll('details.t')];
field.addEventListener('input', () => {
  const wanted = field.value.toLowerCase();
  let shown = 0;
  for (const row of rows) { row.hidden = !row.textContent.toLowerCase().includes(wanted); shown += !row.hidden; }
  for (const topic of topics) {
    const some = topic.querySelector('tr.m:not([hidden])') !== null;
    topic.hidden = !some; topic.open = wanted !== '' && some;
  }
  told.textContent = wanted === '' ? '' : shown + ' of ' + rows.length + ' messages';
});
""".strip()
_INTRO = "An Apache RocketMQ store, shown by rmqtool"
_MOST_ROWS = 500


class Shown(Protocol):
    """The parts of a report that the page shows."""

    info: dict[str, Any]
    span: int
    lines: dict[int, list[str | None]]
    summary: dict[str, Any]
    findings: list[Finding]
    hexes: list[tuple[int, bytes] | None]
    changed: list[str | None]
    messages: dict[str, list[dict[str, Any]]]
    redacted: tuple[str, ...]


def store_page(report: Shown, version: str, zone: tzinfo | None) -> str:
    """Return the page."""
    return document(report.info["store"], _parts(report, version, zone), _SCRIPT)


def _parts(report: Shown, version: str, zone: tzinfo | None) -> Iterator[str]:
    info, now = report.info, int(time.time() * 1000)
    yield f"<h1>{safe(info['store'])}</h1><p>{_INTRO} {safe(version)}, {safe(text.timestamp(now, zone))}</p>"
    if report.redacted:
        yield f"<p>Left out: {safe(', '.join(report.redacted))}, and the bytes around findings.</p>"
    yield from figures(_figures(report, zone))
    yield from _map(report)
    yield from _topics(info)
    yield from _groups(info)
    yield from _findings(report)
    yield from _messages(report, zone)


def _figures(report: Shown, zone: tzinfo | None) -> Iterator[tuple[str, str, str]]:
    info, summary = report.info, report.summary
    log = info["commitLog"]
    problems = summary["errors"] + summary["warnings"]
    yield text.count(problems), "problem" if problems == 1 else "problems", " warn" if problems else ""
    yield text.count(summary["messages"]), "messages", ""
    yield text.size(log["maxOffset"] - log["minOffset"]), f"log, {text.counted(log['files'], 'file')}", ""
    yield text.count(len(info["topics"])), "topics", ""
    yield info["version"], info["layout"], ""
    for name, label in (("firstStoreTimestamp", "first stored"), ("lastStoreTimestamp", "last stored")):
        if name in log:
            yield text.timestamp(log[name], zone)[:16], label, ""


def _map(report: Shown) -> Iterator[str]:
    """Yield the map of the log: a line per segment, a character per span of bytes."""
    yield "<h2>Log</h2>"
    if not report.lines:
        yield "<p>The log is empty.</p>"
        return
    yield '<div class="map">'
    for start, cells in report.lines.items():
        drawn = "".join(CELLS[cell] if cell != "damaged" else '<b class="error">!</b>' for cell in cells)
        yield f"<div>{start} {drawn}</div>"
    kinds = [kind for kind in CELLS if any(kind in cells for cells in report.lines.values())]
    legend = ", ".join(f"{CELLS[kind]} {kind or 'no message starts here'}" for kind in kinds)
    yield f"</div><p>{safe(legend)}; one character is {text.size(report.span)}</p>"


def _topics(info: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Topics</h2>"
    rows = []
    for name, topic in list(info["topics"].items())[:_MOST_ROWS]:
        queues = topic["queues"].values()
        messages = sum(max(queue["maxOffset"] - max(queue["minOffset"], 0), 0) for queue in queues)
        rows.append((name, topic["kind"], text.count(len(queues)), text.count(messages)))
    yield from table(("topic", "kind", "queues", "messages"), rows, frozenset({2, 3}))
    yield from _more(len(info["topics"]))


def _more(number: int) -> Iterator[str]:
    if number > _MOST_ROWS:
        yield f"<p>and {text.count(number - _MOST_ROWS)} more</p>"


def _groups(info: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Groups</h2>"
    rows = [
        (group, f"{topic}/{queue}", text.count(place["committed"]), _lag(place["lag"]))
        for group, topics in info["groups"].items()
        for topic, queues in topics.items()
        for queue, place in queues.items()
    ]
    if not rows:
        yield "<p>No group has committed offsets.</p>"
        return
    yield from table(("group", "queue", "committed", "lag"), rows[:_MOST_ROWS], frozenset({2, 3}))
    yield from _more(len(rows))


def _lag(lag: int) -> str:
    return text.count(lag) if lag >= 0 else f"{text.count(-lag)} past the end"


def _findings(report: Shown) -> Iterator[str]:
    yield "<h2>Findings</h2>"
    if not report.findings:
        yield "<p>No problems found.</p>"
    for finding, around, changed in zip(report.findings, report.hexes, report.changed, strict=True):
        entry = find_code(finding.code)
        meaning = entry.meaning if entry is not None else ""
        # A message can name keys, so of a page without keys only the meaning of the code is left.
        words = meaning if "keys" in report.redacted else finding.message
        yield f'<h3 class="{finding.severity.value}">{safe(finding.code)} {safe(place_of(finding))}</h3>'
        yield f"<p>{safe(words)}</p>"
        for said in (finding.consequence, finding.fix):
            if said:
                yield f"<blockquote>{safe(said)}</blockquote>"
        if changed:
            yield f"<p>wrong: {safe(changed)}</p>"
        if around is not None:
            yield f"<pre>{_lines(text.hex_lines(around[1], around[0]))}</pre>"


def _lines(lines: Iterator[str]) -> str:
    """Return lines as markup for ``<pre>``."""
    return "\n".join(safe(line) for line in lines)


def _messages(report: Shown, zone: tzinfo | None) -> Iterator[str]:
    yield "<h2>Messages</h2>"
    if not report.messages:
        yield "<p>No topic has messages.</p>"
        return
    yield '<p><input id="find" placeholder="search in these messages" aria-label="search"></p><p id="told"></p>'
    for topic, messages in report.messages.items():
        yield f'<details class="t"><summary>{safe(topic)}: the newest {text.count(len(messages))}</summary>'
        yield '<div class="scroll"><table><tr><th>queue</th><th>stored</th><th>tags, keys</th><th>body</th></tr>'
        for message in messages:
            yield _message(message, zone)
        yield "</table></div></details>"


def _message(message: Mapping[str, Any], zone: tzinfo | None) -> str:
    named = " ".join(part for part in (message["tags"], message["keys"]) if part)
    cells = (f"{message['queueId']}@{message['queueOffset']}", text.timestamp(message["storeTimestamp"], zone)[:19])
    row = "".join(f'<td class="time">{safe(cell)}</td>' for cell in cells)
    return f'<tr class="m">{row}<td class="text">{safe(named)}</td><td class="text">{safe(_body(message))}</td></tr>'


def _body(message: Mapping[str, Any]) -> str:
    if message["bodyEncoding"] == "none":
        return f"({text.size(message['bodyLength'] or message['storedBodyLength'])}, left out)"
    body = str(message["body"])
    shown = body[:_BODY] + (text.ELLIPSIS if len(body) > _BODY else "")
    return shown if message["bodyEncoding"] == "utf8" else f"base64 {shown}"
