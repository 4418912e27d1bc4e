"""The screen of ``recover --apply``: what was damaged, what was written, and whether a broker may start now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from rmqtool.findings import Severity
from rmqtool.render import text
from rmqtool.render.output import Output
from rmqtool.render.verdict import verdict_lines

_SHOWN = 12
_LABEL = 10


def recovered_lines(output: Output, shown: Mapping[str, Any], store: str) -> Iterator[str]:
    """Yield the lines."""
    how = "it had not been closed" if shown["mode"] == "abnormal" else "it had been closed"
    head = f"{text.neutral(store)}: {how}; {text.counted(shown['messages'], 'valid message')}, all kept."
    yield from text.hanging(head, output.look.width, 2)
    for finding in _first(shown["findings"]):
        where = f"{finding['file']} at {finding.get('offset', 0)}: " if finding["file"] else ""
        queue = f"{finding['topic']}/{finding.get('queueId', 0)}: " if "topic" in finding and not where else ""
        yield from _labelled(output, finding["code"], finding["severity"], where + queue + finding["message"])
    yield from _more(shown["findings"], "other finding")
    for change in _first(shown["files"]):
        yield from _labelled(output, change["action"], "title", change["path"])
    yield from _more(shown["files"], "other file")
    for misfit in _first(shown["notRestored"]):
        queue = f"{misfit['topic']}/{misfit['queueId']} {misfit['queueOffset']}"
        words = f"{queue} (log {misfit['commitLogOffset']}): {misfit['reason']}"
        yield from _labelled(output, "LEFT OUT", "warning", words)
    yield from _more(shown["notRestored"], "other message left out", "other messages left out")
    yield from _verdict(output, shown, store)


def _labelled(output: Output, label: str, style: str, words: str) -> Iterator[str]:
    """Yield words behind a label; what is painted takes no room."""
    head = f"  {label.ljust(_LABEL)}  "
    first, *rest = text.hanging(head + text.neutral(words), output.look.width, len(head))
    yield f"  {output.paint(label.ljust(_LABEL), style)}{first[2 + _LABEL :]}"
    yield from rest


def _first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows[:_SHOWN]


def _more(rows: list[dict[str, Any]], one: str, many: str = "") -> Iterator[str]:
    if len(rows) > _SHOWN:
        yield f"  and {text.counted(len(rows) - _SHOWN, one, many)}; --json shows them all"


def _verdict(output: Output, shown: Mapping[str, Any], store: str) -> Iterator[str]:
    start = shown["brokerStart"]
    if start is not None and start["messagesLost"]:
        lost = text.counted(start["messagesLost"], "message")
        headline = f"do not start a {start['as']} broker yet: it would cut the log at the damage and destroy {lost}"
        yield from verdict_lines(output, headline, Severity.ERROR, [f"rmqtool repair {quote(store)}"])
    elif start is not None and not start["loads"]:
        headline = f"recovered; but a {start['as']} broker would not load this store"
        yield from verdict_lines(output, headline, Severity.WARNING, [f"rmqtool recover {quote(store)}"])
    elif shown["files"]:
        yield from verdict_lines(output, "recovered")
    else:
        yield from verdict_lines(output, "nothing had to be written")
