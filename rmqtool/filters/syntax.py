"""The error of an expression that does not parse, and the picture that shows where."""

from __future__ import annotations

import unicodedata

from rmqtool.errors import UsageError


class FilterSyntaxError(UsageError):
    """An expression was refused. ``position`` counts the characters of ``text`` before the place that is wrong."""

    code = "filter-syntax"

    def __init__(self, message: str, *, text: str, position: int, hint: str | None = None) -> None:
        super().__init__(f"{message} (character {position + 1} of the expression)", hint=hint)
        self.text = text
        self.position = position

    def as_json(self) -> dict[str, object]:
        """Return the ``error`` object of the contract, with the place."""
        return {**super().as_json(), "expression": self.text, "position": self.position}

    def caret(self, width: int = 72) -> str:
        """Return two lines: the expression, or the ``width`` columns of it around the place, and a caret under it.

        Line ends and control characters become pictures of one column: the text of an error moves no cursor.
        """
        cells = [_cell(character) for character in self.text]
        first, last = self.position, self.position
        used = 1
        while used < width and (first > 0 or last < len(cells)):
            if first > 0:
                first -= 1
                used += _columns(cells[first])
            if last < len(cells):
                used += _columns(cells[last])
                last += 1
        before = ("…" if first > 0 else "") + "".join(cells[first : self.position])
        after = "".join(cells[self.position : last]) + ("…" if last < len(cells) else "")
        return f"{before}{after}\n{' ' * sum(map(_columns, before))}^"


def shown(text: str, width: int = 40) -> str:
    """Return ``text`` for a sentence: printable, and cut where it is longer than ``width`` characters."""
    cells = "".join(_cell(character) for character in text[: width + 1])
    return cells if len(cells) <= width else cells[: width - 1] + "…"


def _cell(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return character if character.isprintable() else "\ufffd"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
