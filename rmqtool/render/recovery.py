"""The screen of ``recover``: what a start would do, in the order people ask."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rmqtool.findings import Severity
from rmqtool.render import text
from rmqtool.render.output import Output
from rmqtool.render.verdict import verdict_lines

_LABEL = 9
_SHOWN = 12


def recovery_lines(
    output: Output,
    shown: Mapping[str, Any],
    lost: Collection[Mapping[str, Any]],
    rewinds: Collection[Mapping[str, Any]],
    store: str,
) -> Iterator[str]:
    """Yield the story of a start: ``shown`` is the JSON object, ``lost`` and ``rewinds`` are the rows behind it."""
    how = "normally" if shown["mode"] == "normal" else "ABNORMALLY (abort is present)"
    yield f"A {shown['as']} broker started on {text.neutral(store)} would recover {how}."
    yield from _start_lines(output, shown)
    for change in shown["files"]:
        if change["action"] in ("delete", "resize"):
            sizes = f"{text.size(change.get('sizeBefore', 0))}"
            yield _line(output, change["action"].upper(), f"{text.neutral(change['path'])}   {sizes}", "error")
    yield from _counted(output, "create", shown["files"])
    yield from _counted(output, "modify", shown["files"])
    yield from _rewind_lines(output, rewinds)
    yield from _lost_lines(output, lost)
    if shown["messagesUnreachable"]:
        count = text.count(shown["messagesUnreachable"])
        yield _line(output, "UNREACHED", f"{count} whole messages would stand in no queue", "warning")
    for config in shown["config"]:
        if config["loadedFrom"] == "bak":
            yield _line(output, "CONFIG", f"{config['file']} would be read from its .bak", "warning")
    yield from _verdict(output, shown, store)


def _line(output: Output, label: str, words: str, style: str = "title") -> str:
    return f"  {output.paint(label.ljust(_LABEL), style)}  {words}"


def _start_lines(output: Output, shown: Mapping[str, Any]) -> Iterator[str]:
    reason = f": {text.neutral(shown['reason'])}" if "reason" in shown else ""
    if not shown["loads"]:
        yield from _broken(output, "REFUSES", f"it does not load the store{reason}")
        return
    yield _line(output, "keep", f"offsets {shown['minPhyOffset']} to {shown['maxPhyOffset']}")
    if shown["starts"] == "hangs":
        yield from _broken(output, "HANGS", f"it never comes up{reason}")
    elif not shown["starts"]:
        yield from _broken(output, "FAILS", f"it does not start{reason}")


def _counted(output: Output, action: str, files: Collection[Mapping[str, Any]]) -> Iterator[str]:
    named = [text.neutral(change["path"]) for change in files if change["action"] == action]
    if named:
        more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
        yield from _broken(output, action, ", ".join(named[:_SHOWN]) + more, "title")


def _broken(output: Output, label: str, words: str, style: str = "error") -> Iterator[str]:
    """Yield a line, broken where the screen ends."""
    first, *rest = text.hanging(f"  {label.ljust(_LABEL)}  {words}", output.look.width, _LABEL + 4)
    yield _line(output, label, first[_LABEL + 4 :], style)
    yield from rest


def _rewind_lines(output: Output, rewinds: Collection[Mapping[str, Any]]) -> Iterator[str]:
    for row in list(rewinds)[:_SHOWN]:
        words = f"{text.neutral(row['topic'])}/{row['queueId']} {row['before']} → {row['after']}"
        yield _line(output, "REWIND", f"{words}   new messages would take these offsets again", "warning")
    if len(rewinds) > _SHOWN:
        yield _line(output, "REWIND", f"and {len(rewinds) - _SHOWN} other queues", "warning")


def _lost_lines(output: Output, lost: Collection[Mapping[str, Any]]) -> Iterator[str]:
    for row in list(lost)[:_SHOWN]:
        times = f"{output.time(row['firstStoreTimestamp'])} to {output.time(row['lastStoreTimestamp'])}"
        words = f"{text.count(row['messages'])} whole messages of {text.neutral(row['topic'])}"
        yield _line(output, "LOST", f"{words}, stored {times}", "error")
    if len(lost) > _SHOWN:
        yield _line(output, "LOST", f"and messages of {len(lost) - _SHOWN} other topics", "error")


def _verdict(output: Output, shown: Mapping[str, Any], store: str) -> Iterator[str]:
    if shown["messagesLost"]:
        headline = f"this start would destroy {text.count(shown['messagesLost'])} whole messages"
        yield from verdict_lines(output, headline, Severity.ERROR, [f"cp -a {store} {store}.kept"])
    elif not shown["loads"] or shown["starts"] is not True:
        yield from verdict_lines(
            output, "this broker would not come up; no message is lost by trying", Severity.WARNING
        )
    else:
        yield from verdict_lines(output, "this start would lose no message")
