"""The text of an error: what happened, where, and what to type; or the one JSON object of the contract."""

from __future__ import annotations

import json

from rmqtool.errors import RmqtoolError
from rmqtool.render.text import hanging, neutral

_NAME = "rmqtool: "


def failure_text(error: RmqtoolError, width: int | None = None) -> str:
    """Return the error as lines for people. A command to type comes last and is never broken."""
    room = None if width is None else width - len(_NAME)
    lines = _broken(error.message, room)
    # For an expression that was typed, a picture of the place of the mistake.
    picture = getattr(error, "caret", None)
    if picture is not None:
        lines += picture().split("\n")
    if error.file is not None and (error.offset is not None or error.file not in error.message):
        lines.append("in " + neutral(error.file) + (f", offset {error.offset}" if error.offset is not None else ""))
    elif error.offset is not None:
        lines.append(f"at offset {error.offset}")
    if error.hint:
        is_command = error.hint.startswith("rmqtool ")
        lines += _broken(("Next: " if is_command else "") + error.hint, None if is_command else room)
    return _NAME + ("\n" + " " * len(_NAME)).join(lines) + "\n"


def _broken(text: str, room: int | None) -> list[str]:
    return [piece for line in text.split("\n") for piece in hanging(neutral(line), room, 0)]


def failure_json(error: RmqtoolError) -> str:
    """Return the error as the one JSON object on stderr with ``--json`` and ``--jsonl``."""
    # ASCII: stderr's own encoding may be anything.
    return json.dumps({"error": error.as_json()}).replace("\x7f", "\\u007f") + "\n"
