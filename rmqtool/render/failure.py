"""How an error looks: what, where, and what to type next; or the one JSON object of the contract."""

from __future__ import annotations

import json

from rmqtool.errors import RmqtoolError
from rmqtool.render.text import neutral

_NAME = "rmqtool: "


def failure_text(error: RmqtoolError) -> str:
    """Return the error as lines for people, the command to type last."""
    lines = [neutral(line) for line in error.message.split("\n")]
    # What was typed and is wrong comes with a picture of where.
    picture = getattr(error, "caret", None)
    if picture is not None:
        lines += picture().split("\n")
    if error.file is not None and (error.offset is not None or error.file not in error.message):
        lines.append("in " + neutral(error.file) + (f", offset {error.offset}" if error.offset is not None else ""))
    elif error.offset is not None:
        lines.append(f"at offset {error.offset}")
    if error.hint:
        hint = [neutral(line) for line in error.hint.split("\n")]
        lines += ["Next: " + hint[0] if hint[0].startswith("rmqtool ") else hint[0], *hint[1:]]
    return _NAME + ("\n" + " " * len(_NAME)).join(lines) + "\n"


def failure_json(error: RmqtoolError) -> str:
    """Return the error as the JSON object that stands alone on stderr with ``--json`` and ``--jsonl``."""
    # ASCII: stderr's own encoding may be anything.
    return json.dumps({"error": error.as_json()}) + "\n"
