"""The screen of ``copy``: the content of the new store, what was left out, and what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from rmqtool.render import text
from rmqtool.render.output import Output

_MOST = 5


def copied_lines(output: Output, shown: Mapping[str, Any], skipped: Sequence[tuple[str, int, str]]) -> Iterator[str]:
    """Yield the lines; ``shown`` is the JSON object, ``skipped`` has the place, length and kind of each damage."""
    to = text.neutral(shown["to"])
    messages, queues = _counted(shown["messages"], "message"), _counted(shown["queues"], "queue")
    yield f"{to}: {messages}, {text.size(shown['bytes'])}, in {queues}"
    if shown["beside"]:
        count = text.count(shown["beside"])
        words = f"{count} of these are pending messages of these topics (delayed or half messages)"
        yield from text.hanging(words, output.look.width, 2)
    if skipped:
        what = f"{_counted(len(skipped), 'damaged range')}, {text.size(shown['skipped']['bytes'])}, left out:"
        yield output.paint(what, "warning")
        for place, length, message in skipped[:_MOST]:
            line = f"  {text.neutral(place)}, {text.size(length)}: {text.neutral(message)}"
            yield from text.hanging(line, output.look.width, 4)
        if len(skipped) > _MOST:
            yield f"  and {text.count(len(skipped) - _MOST)} more"
        whose = "Its" if len(skipped) == 1 else "Their"
        where = f"{whose} bytes and a list are in {text.neutral(shown['lostAndFound'])}"
        yield from text.hanging(where, output.look.width, 2)
    if shown["moved"]:
        yield from text.hanging(
            f"{_counted(shown['moved'], 'message')} had an impossible queue offset, and got a new one",
            output.look.width,
            2,
        )
    yield f"Next: rmqtool {'info' if '://' in to else 'check'} {quote(shown['to'])}"


def _counted(number: int, noun: str) -> str:
    return f"{text.count(number)} {noun}{'' if number == 1 else 's'}"
