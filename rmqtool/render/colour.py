"""The few styles of screens, so that one meaning has one colour everywhere. Every screen also reads well without."""

from __future__ import annotations

from rich.color import ColorSystem
from rich.style import Style

_STYLES = {
    "error": Style.parse("bold red"),
    "warning": Style.parse("yellow"),
    "notice": Style.parse("cyan"),
    "good": Style.parse("green"),
    "title": Style.parse("bold"),
    "command": Style.parse("bold cyan"),
    "dim": Style.parse("dim"),
}


def paint(text: str, style: str) -> str:
    """Return ``text`` in ``style`` for a terminal of sixteen colours."""
    return _STYLES[style].render(text, color_system=ColorSystem.STANDARD)
