"""The end of a screen: the verdict in one line, then the commands to type next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmqtool.findings import Severity
from rmqtool.render.output import Output
from rmqtool.render.text import hanging, neutral


def verdict_lines(
    output: Output, headline: str, severity: Severity | None = None, next_commands: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the headline, green or in the colour of the worst ``severity``, and a ``Next:`` line for each command.

    The command is never broken: it is there to be copied.
    """
    for line in hanging(neutral(headline), output.look.width, 2):
        yield output.paint(line, severity or "good")
    for command in next_commands:
        yield f"Next: {output.paint(neutral(command), 'command')}"
