"""The lines of ``mirror``: what happens as lines, and on a terminal how far it is as one line that changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from shlex import quote
from typing import Any

from rmqtool.render import text
from rmqtool.render.output import Output

# Seconds between two lines about how far it is, where they are not drawn over each other.
_RARELY = 60.0


class MirrorLines:
    """Shows the events of one mirror; used as a context."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._shown_at = time.monotonic()
        self._live: Any = None
        if output.is_human and not output.look.quiet and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True)

    def __enter__(self) -> MirrorLines:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, event: Mapping[str, Any]) -> None:
        """Show an event, or how far the mirror is."""
        if "durable" in event and self._output.is_human:
            self._show(progress_line(event))
            return
        self._output.aside(event, event_line(event))
        self._output.flush()

    def _show(self, line: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(line, no_wrap=True), refresh=True)
        elif time.monotonic() - self._shown_at >= _RARELY:
            self._shown_at = time.monotonic()
            self._output.note(line)

    def end(self, line: Mapping[str, Any], directory: str, *, live: bool) -> None:
        """Show the last line."""
        following = f"rmqtool check {quote(directory)}" if live else f"rmqtool recover {quote(directory)} --apply"
        held = text.size(line["durable"] - line["from"])
        verdict = (
            f"{directory} has the log of {line['master']} from {line['from']} to {line['durable']} ({held}), durable"
        )
        self._output.aside(line, f"{verdict}\nNext: {following}")


def progress_line(event: Mapping[str, Any]) -> str:
    """Return how far a mirror is, in one line."""
    speed = f"{text.size(event['bytesPerSecond'])}/s"
    if event["masterMax"] is None:
        return f"{event['master']}: durable to {event['durable']}, {speed}"
    behind = f"{text.size(event['lagBytes'])} behind" if event["lagBytes"] else "up to date"
    return f"{event['master']}: durable to {event['durable']} of {event['masterMax']}, {speed}, {behind}"


def event_line(event: Mapping[str, Any]) -> str:
    """Return one line about an event of ``mirror``."""
    if "gap" in event:
        gap = event["gap"]
        size = text.size(gap["to"] - gap["from"])
        return f"gap: the master has deleted {size} that the mirror lacks, from {gap['from']} to {gap['to']}"
    if "durable" in event:
        return progress_line(event)
    kind = event["event"]
    if kind == "connected":
        return f"connected to {event['master']}"
    if kind == "removed":
        return f"{text.counted(event['segments'], 'old segment')} deleted; the mirror begins at {event['from']}"
    if kind == "lost":
        return f"not connected: {text.neutral(event['reason'])}; trying again"
    return text.neutral(event["reason"])
