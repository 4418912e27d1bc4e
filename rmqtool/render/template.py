"""``--template``: one line per row in a form that the user gives, ``{topic}/{queueId} {keys}\\n``.

The names are those of the JSON object; ``{properties.KEYS}`` is a member of one of its objects. Nothing else of
Python's format language is allowed, so a template can only show values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from string import Formatter

from rmqtool.errors import UsageError

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_ESCAPE = re.compile(r"\\([ntr0\\])")


class Template:
    """A parsed template."""

    def __init__(self, text: str) -> None:
        self.text = text
        unescaped = _ESCAPE.sub(lambda match: _ESCAPES[match[1]], text)
        try:
            parts = list(Formatter().parse(unescaped))
        except ValueError as error:
            raise UsageError(f"the template {text!r} does not parse: {error}", hint=_EXAMPLE) from error
        # (text before, name or None, key within or "", format)
        self._parts: list[tuple[str, str | None, str, str]] = []
        for literal, name, form, conversion in parts:
            if conversion or name == "" or "{" in (form or ""):
                raise UsageError(f"the template {text!r} has a field that is not a plain name", hint=_EXAMPLE)
            head, _, key = (name or "").partition(".")
            self._check_form(form or "")
            self._parts.append((literal, head if name is not None else None, key, form or ""))

    def _check_form(self, form: str) -> None:
        """Refuse a format that fits neither numbers nor texts: a command that writes must not find out afterwards."""
        try:
            format("", form)
        except ValueError:
            self._formatted(0, form)

    def check(self, fields: Collection[str]) -> None:
        """Refuse a name that no row can have."""
        from difflib import get_close_matches

        for _, name, _, _ in self._parts:
            if name is not None and name not in fields:
                near = get_close_matches(name, fields, n=1)
                hint = f"did you mean {{{near[0]}}}?" if near else "names: " + ", ".join(fields)
                raise UsageError(f"unknown template field {{{name}}}", hint=hint)

    def fill(self, row: Mapping[str, object], spell: Callable[[object], str]) -> str:
        """Return the line for ``row``; a member that the row does not have is empty."""
        out = []
        for literal, name, key, form in self._parts:
            out.append(literal)
            if name is None:
                continue
            value = row.get(name)
            if key:
                value = value.get(key) if isinstance(value, Mapping) else None
            if form and isinstance(value, int):
                out.append(self._formatted(value, form))
            elif value is None:
                out.append(_blank(form))
            else:
                out.append(self._formatted(spell(value), form))
        return "".join(out)

    def _formatted(self, value: int | str, form: str) -> str:
        try:
            return format(value, form)
        except ValueError as error:
            raise UsageError(f"the template {self.text!r}: {error}", hint=_EXAMPLE) from error


def _blank(form: str) -> str:
    """Return an absent value: as wide as ``form`` says for a text, empty for the form of a number."""
    try:
        return format("", form)
    except ValueError:
        return ""


_EXAMPLE = r"for example: --template '{topic}/{queueId} {keys}\n'"
