"""The end of ``check``, the explanation of a code, and the report as a file."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rmqtool.findings import FAMILIES, CodeEntry, Finding, Severity
from rmqtool.render.findings import FindingCounts, place_of, verdict_lines
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut
from rmqtool.render.text import count, counted, duration, hanging, neutral, size, timestamp
from rmqtool.render.web_page import document, figures, safe, table

CODES = (
    Column("code", "code"),
    Column("severity", "severity"),
    Column("meaning", "meaning", cut=Cut.END),
)

_INDENT = 13
_LOST_NAMED = 6
# A summary by code of so few findings, or of so few codes, would read like further findings: all are on the screen.
_ON_SCREEN, _KINDS = 10, 3


def summary_lines(
    output: Output, summary: Mapping[str, Any], counts: FindingCounts, elapsed_ms: int, next_commands: Iterable[str]
) -> Iterator[str]:
    """Yield the end of a check; ``summary`` is the object of the contract."""
    looked = [counted(summary["files"], "file", "files")]
    if summary["messages"]:
        looked.append(f"{counted(summary['messages'], 'message', 'messages')} ({size(summary['bytes'])})")
    if summary["placeholders"]:
        looked.append(counted(summary["placeholders"], "placeholder"))
    looked.append(counted(summary["queues"], "queue", "queues"))
    if summary["indexes"]:
        looked.append(counted(summary["indexes"], "index file", "index files"))
    yield from hanging(f"checked {', '.join(looked)} in {duration(elapsed_ms)}", output.look.width, 2)
    if counts.kinds.total() > _ON_SCREEN and len(counts.kinds) >= _KINDS:
        yield from _found(output, counts)
    if summary["lost"]:
        yield from _labelled(output, "lost", lost_words(summary["lost"]))
    for label, key in (("verified", "proven"), ("not checked", "notProven")):
        for number, words in enumerate(summary[key]):
            yield from _labelled(output, "" if number else label, words)
    yield from verdict_lines(output, _headline(summary, counts), _worst(counts), next_commands)


def _found(output: Output, counts: FindingCounts) -> Iterator[str]:
    """Summarise the findings by code."""
    for number, (found, code, why) in enumerate(counts.worst_kinds()):
        words = f"{count(found)} {code}" + (f": {neutral(why)}" if why else "")
        yield from _labelled(output, "" if number else "found", words)


def lost_words(queues: Iterable[Mapping[str, Any]]) -> str:
    """Name the queues whose messages are no longer in the log, those that lost most first.

    More may be lost: a message that no queue tells of is not counted.
    """
    queues = list(queues)
    most = sorted(queues, key=lambda queue: -int(queue["messages"]))
    named = [
        f"{count(queue['messages'])}\u00a0in\u00a0{neutral(queue['topic'])}/{queue['queueId']}"
        for queue in most[:_LOST_NAMED]
    ]
    unnamed = len(most) - _LOST_NAMED
    rest = [f"the rest in {counted(unnamed, 'other queue')}"] if unnamed > 0 else []
    total = counted(sum(int(queue["messages"]) for queue in queues), "message", "messages")
    return f"at least {total}: {', '.join(named + rest)} (by their queue entries; more only if entries are lost, too)"


def _labelled(output: Output, label: str, words: str) -> Iterator[str]:
    first, *rest = hanging(f"{label.ljust(_INDENT)}{words}", output.look.width, _INDENT)
    yield output.paint(label.ljust(_INDENT), "title") + first[_INDENT:]
    yield from rest


def _headline(summary: Mapping[str, Any], counts: FindingCounts) -> str:
    ended = "" if summary["complete"] else "; the check ended early"
    need = counts.errors + counts.warnings
    if not need:
        noticed = f", {counted(counts.notices, 'notice', 'notices')}" if counts.notices else ""
        return f"no problems found{noticed}{ended}"
    noticed = f", and {counted(counts.notices, 'notice')}" if counts.notices else ""
    return f"{counted(need, 'problem', 'problems')} found ({counts.problem_words()}){noticed}{ended}"


def _worst(counts: FindingCounts) -> Severity | None:
    return next((severity for severity in (Severity.ERROR, Severity.WARNING) if counts.of(severity)), None)


def explain_lines(output: Output, entry: CodeEntry) -> Iterator[str]:
    """Yield everything the registry has about a code."""
    yield f"{output.paint(entry.code, 'title')}  {entry.severity}, {FAMILIES[entry.family]}"
    yield from hanging(entry.meaning, output.look.width, 0)
    parts: list[tuple[str, Iterable[str]]] = [
        ("consequence", [entry.consequence] if entry.consequence else []),
        ("broker says", [f'"{line}"' for line in entry.broker_lines]),
        ("brokers do", entry.brokers),
        ("fix", [entry.fix.format(store="STORE")] if entry.fix else []),
    ]
    for label, words in parts:
        for number, text in enumerate(words):
            yield from _labelled(output, label if not number else "", text)


def code_row(entry: CodeEntry) -> dict[str, object]:
    """Return a code as a row."""
    return {
        "code": entry.code,
        "severity": entry.severity.value,
        "meaning": entry.meaning,
        "consequence": entry.consequence,
        "brokerLines": list(entry.broker_lines),
        "brokers": list(entry.brokers),
        "fix": entry.fix,
    }


def report_markdown(store: str, findings: Iterable[Finding], summary: Mapping[str, Any], looked: str) -> str:
    """Return a check as Markdown, the findings grouped by code."""
    lines = [f"# Check of `{store}`", "", looked, "", _totals(summary), ""]
    if summary["lost"]:
        lines += ["## Lost messages", "", _escaped(lost_words(summary["lost"])), ""]
    for entry, found in _by_code(findings):
        lines += [f"## {entry.code}: {entry.severity}, {len(found)} found", "", entry.meaning, ""]
        lines += [f"- **{f.severity}** `{_code(place_of(f))}` {_escaped(f.message)}" for f in found]
        lines += ["", *(f"> {text}" for text in (entry.consequence, *entry.brokers) if text), ""]
    for title, key in (("Verified", "proven"), ("Not checked", "notProven")):
        if summary[key]:
            lines += [f"## {title}", "", *(f"- {words}" for words in summary[key]), ""]
    return "\n".join(lines)


def report_html(store: str, findings: Iterable[Finding], summary: Mapping[str, Any], looked: str) -> str:
    """Return a check as one HTML page; ``looked`` says when and where the check was made."""
    return document(f"Check of {store}", _html_parts(store, findings, summary, looked))


def _html_parts(store: str, findings: Iterable[Finding], summary: Mapping[str, Any], looked: str) -> Iterator[str]:
    yield f"<h1>Check of <code>{safe(store)}</code></h1>"
    yield f"<p>{safe(looked)}</p>"
    yield from figures(_report_figures(summary))
    if summary["lost"]:
        yield f"<h2>Lost messages</h2><p>{safe(lost_words(summary['lost']))}</p>"
        rows = ([queue["topic"], str(queue["queueId"]), count(queue["messages"])] for queue in summary["lost"])
        yield from table(("topic", "queue", "messages"), rows, frozenset({1, 2}))
    for entry, found in _by_code(findings):
        yield f"<h2>{entry.code} <small>{len(found)} found</small></h2><p>{safe(entry.meaning)}</p>"
        cells = ((one.severity.value, place_of(one), one.message, one.fix or "") for one in found)
        yield from table(("severity", "place", "problem", "fix"), cells)
        for words in (entry.consequence, *entry.brokers):
            if words:
                yield f"<blockquote>{safe(words)}</blockquote>"
    for title, key in (("Verified", "proven"), ("Not checked", "notProven")):
        if summary[key]:
            yield f"<h2>{title}</h2><ul>" + "".join(f"<li>{safe(words)}</li>" for words in summary[key]) + "</ul>"


def _report_figures(summary: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    yield count(summary["errors"]), "errors", " warn" if summary["errors"] else ""
    yield count(summary["warnings"]), "warnings", ""
    yield count(summary["notices"]), "notices", ""
    yield count(summary["messages"]), "messages checked", ""
    yield size(summary["bytes"]), "read", ""
    yield "yes" if summary["complete"] else "no", "complete", "" if summary["complete"] else " warn"


def _totals(summary: Mapping[str, Any]) -> str:
    complete = "complete" if summary["complete"] else "ended early"
    return (
        f"{counted(summary['errors'], 'error')}, {counted(summary['warnings'], 'warning')}, "
        f"{counted(summary['notices'], 'notice')}; {counted(summary['messages'], 'message')}, "
        f"{size(summary['bytes'])}; {complete}"
    )


def _by_code(findings: Iterable[Finding]) -> Iterator[tuple[CodeEntry, list[Finding]]]:
    from rmqtool.findings import find_code

    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.code, []).append(finding)
    order = (Severity.ERROR, Severity.WARNING, Severity.NOTICE)
    for code, found in sorted(grouped.items(), key=lambda item: min(order.index(f.severity) for f in item[1])):
        entry = find_code(code)
        assert entry is not None, f"{code} is not registered"
        yield entry, found


def _escaped(text: str) -> str:
    return neutral(text).replace("*", r"\*").replace("_", r"\_").replace("<", "&lt;")


def _code(text: str) -> str:
    """Return a text that may be put between backticks."""
    return neutral(text).replace("`", "'") or "-"


def show_summary(
    output: Output, shown: Mapping[str, Any], counts: FindingCounts, elapsed_ms: int, next_commands: Iterable[str]
) -> None:
    """Show the end of a check; ``shown`` is the summary line of the contract."""
    summary = shown["summary"]
    if output.is_human:
        for line in summary_lines(output, summary, counts, elapsed_ms, next_commands):
            output.line(line)
    else:
        output.aside(shown, f"{counts.words()}; {'complete' if summary['complete'] else 'ended early'}")


def report_text(path: str, name: str, findings: list[Finding], shown: Mapping[str, Any]) -> str:
    """Return the report as HTML or Markdown, by the extension of its file."""
    looked = f"checked at {timestamp(int(time.time() * 1000))} on {platform.node()}"
    if path.endswith(".html"):
        return report_html(name, findings, shown["summary"], looked)
    return report_markdown(name, findings, shown["summary"], looked)
