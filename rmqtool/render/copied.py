"""The screen of ``copy``: what the new store has, what was left out, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from rmqtool.render import text
from rmqtool.render.output import Output


def copied_lines(output: Output, shown: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines; ``shown`` is the JSON object."""
    to = text.neutral(shown["to"])
    messages, queues = _counted(shown["messages"], "message"), _counted(shown["queues"], "queue")
    yield f"{to}: {messages}, {text.size(shown['bytes'])}, in {queues}"
    skipped = shown["skipped"]
    if skipped["ranges"]:
        what = f"{_counted(skipped['ranges'], 'damaged range')}, {text.size(skipped['bytes'])}, left out"
        yield from text.hanging(
            f"{output.paint(what, 'warning')}: saved in {text.neutral(shown['lostAndFound'])}", output.look.width, 2
        )
    if shown["moved"]:
        yield from text.hanging(
            f"{_counted(shown['moved'], 'message')} said a queue offset that cannot be, and got a free one",
            output.look.width,
            2,
        )
    yield f"Next: rmqtool check {quote(shown['to'])}"


def _counted(number: int, noun: str) -> str:
    return f"{text.count(number)} {noun}{'' if number == 1 else 's'}"
