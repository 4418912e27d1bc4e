"""The screens of ``export``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from rmqtool.render import text
from rmqtool.render.output import Output
from rmqtool.render.tables import Column, Cut, Kind

COLUMNS = (
    Column("column", "column"),
    Column("type", "type"),
    Column("about", "what it is", cut=Cut.END),
)
SPLITS = (
    Column("broker", "broker", cut=Cut.MIDDLE),
    Column("file", "file", cut=Cut.MIDDLE),
    Column("start", "start", Kind.OFFSET),
    Column("stop", "stop", Kind.OFFSET),
    Column("bytes", "bytes", Kind.SIZE),
)


def outcome_lines(output: Output, shown: Mapping[str, Any], on_corrupt: str, stores: Sequence[str]) -> Iterator[str]:
    """Yield the result of an export of ``stores``; ``shown`` is the JSON object."""
    to = text.neutral(shown["to"])
    if shown["export"] is None:
        yield f"{to}: no new messages since the last export"
        return
    sizes = f"{text.size(shown['bytes'])} from {text.size(shown['sourceBytes'])} of log"
    yield f"{to}: {_counted(shown['rows'], 'message')} in {_counted(shown['files'], 'file')}, {sizes}"
    yield f"manifest (what was read): {to}_manifest"
    damaged = shown["damaged"]
    if damaged["ranges"]:
        named = f"listed in the Parquet files of {to}_damage" if on_corrupt == "emit" else "left out of it"
        known = damaged["messages"]
        messages = f", {_counted(known, 'message')} lost there" if known else ""
        ranges = _counted(damaged["ranges"], "damaged range")
        line = f"{ranges}, {text.size(damaged['bytes'])}{messages}: {named}"
        yield from text.hanging(line, output.look.width, 2)
        for store in stores:
            if "://" not in store:
                command = f"rmqtool check {quote(store)} --only CL"
                yield f"Next: {output.paint(text.neutral(command), 'command')}"


def _counted(number: int, noun: str) -> str:
    return f"{text.count(number)} {noun}{'' if number == 1 else 's'}"


def split_words(splits: int, log_bytes: int) -> str:
    """Return the number of splits and the size of the log."""
    return f"{splits} split{'' if splits == 1 else 's'}, {text.size(log_bytes)} of log"
