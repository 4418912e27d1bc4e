"""The screen of ``serve`` on a terminal: where clients connect, who does, and what they send and get."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rmqtool.render import text
from rmqtool.render.tables import Column, Cut, Kind, lay_out

TOPICS = (
    Column("topic", "topic", cut=Cut.MIDDLE),
    Column("queues", "queues", Kind.COUNT, spare=True),
    Column("messages", "messages", Kind.COUNT),
    Column("puts", "in/s", Kind.COUNT),
    Column("gets", "out/s", Kind.COUNT),
)
GROUPS = (
    Column("group", "group", cut=Cut.MIDDLE),
    Column("members", "members", Kind.COUNT),
    Column("lag", "lag", Kind.COUNT),
    Column("gets", "out/s", Kind.COUNT),
)
# Lines of events that stay on the screen, and the lines that are not of a table.
_EVENTS, _OTHERS = 5, 6
_MINUTE, _HOUR = 60, 3600


def serve_lines(ready: str, traffic: Any, events: list[str], *, width: int, height: int) -> Iterator[str]:
    """Yield the lines of the screen; the topics and groups that fit are those with the most traffic."""
    yield from text.hanging(ready, width, 2)
    seconds = int(traffic.seconds)
    up = f"{seconds // _HOUR}:{seconds % _HOUR // _MINUTE:02}:{seconds % _MINUTE:02}"
    clients = text.counted(traffic.clients, "client")
    counts = f"{text.count(traffic.puts)} messages in   {text.count(traffic.gets)} out"
    yield f"{clients}   {counts}   up {up}"
    room = max(height - _OTHERS - len(events), 4)
    groups = traffic.groups[: max(room // 2, room - len(traffic.topics))]
    topics = traffic.topics[: max(room - len(groups), 1)]
    for rows, all_rows, columns, what in (
        (topics, traffic.topics, TOPICS, "topic"),
        (groups, traffic.groups, GROUPS, "group"),
    ):
        if rows:
            yield ""
            yield from lay_out(map(_row, rows), columns, width=width)
            if len(all_rows) > len(rows):
                yield f"and {text.counted(len(all_rows) - len(rows), f'more {what}')}"
    if events:
        yield ""
        for event in events:
            yield text.neutral(event)[:width]


def _row(one: Any) -> dict[str, Any]:
    return {name: round(value) if isinstance(value, float) else value for name, value in one._asdict().items()}


def event_line(event: Mapping[str, Any]) -> str:
    """Return one line about an event of ``serve``."""
    if event.get("ready"):
        served = "a store in memory" if event["store"] is None else event["store"]
        recovered = ", recovered" if event["recovered"] else ""
        only = " read-only" if event["readOnly"] else ""
        return f"serving {served}{only}{recovered}: name server {event['names']}, broker {event['broker']}"
    kind = event["event"]
    if kind == "client":
        return f"client {event['client']} has come ({event['language']}, version {event['version']})"
    if kind == "gone":
        return f"client {event['client']} is gone"
    if kind == "refused":
        return f"client {event['client']} was disconnected: {event['reason']}"
    if kind == "damage":
        place = f"{event['file']} at {event['offset']}, {event['length']} bytes"
        return f"damage in {place}: {event['message']} ({event['code']}); consumers get what follows"
    return f"{kind}: {event['message']}"


class ServeScreen:
    """Draws the screen again with each look at the server; used as a context."""

    def __init__(self, stdout: IO[str] | None = None) -> None:
        self._console = Console(file=stdout, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._ready = ""
        self._events: deque[str] = deque(maxlen=_EVENTS)
        self._traffic: Any = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def tell(self, event: Mapping[str, Any], line: str) -> None:
        """Show an event; the first one says where clients connect."""
        if event.get("ready"):
            self._ready = line
        else:
            self._events.append(line)
        if self._traffic is not None:
            self.show(self._traffic)

    def show(self, traffic: Any) -> None:
        """Draw the screen."""
        self._traffic = traffic
        size = self._console.size
        lines = serve_lines(self._ready, traffic, list(self._events), width=size.width, height=size.height)
        self._live.update(Text("\n".join(lines), no_wrap=True), refresh=True)
