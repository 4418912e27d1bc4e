"""A finding: the report of one problem, as a value; and the wording of counts in its texts.

Numbers of things in the texts of findings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

# The codes of files that could not be read.
UNREAD = frozenset({"ST-READ", "RX-OPEN"})


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with what it counts: ``1 unit leads``, ``12 units lead``; without ``many`` an s makes it."""
    return f"{number} {one if number == 1 else many or one + 's'}"


class Severity(StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong or odd, and where.

    ``file`` is relative to the store, ``offset`` lies within the file. ``data`` holds the figures behind the message,
    ``broker`` what the store's own broker would do about it at its next start.
    """

    code: str
    severity: Severity
    message: str
    file: str | None = None
    offset: int | None = None
    length: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    consequence: str | None = None
    fix: str | None = None
    data: dict[str, object] = field(default_factory=dict)
    broker: str | None = None

    def as_json(self) -> dict[str, object]:
        """Return the Finding object of the contract."""
        found: dict[str, object] = {"code": self.code, "severity": self.severity.value, "file": self.file}
        for name, value in (
            ("offset", self.offset),
            ("length", self.length),
            ("topic", self.topic),
            ("queueId", self.queue_id),
        ):
            if value is not None:
                found[name] = value
        found["message"] = self.message
        for name, text in (("consequence", self.consequence), ("broker", self.broker), ("fix", self.fix)):
            if text is not None:
                found[name] = text
        found["data"] = dict(self.data)
        return found


def is_command(fix: str) -> bool:
    """Return whether a fix can be typed as it is; the others are sentences."""
    return fix.startswith(("rmqtool ", "cp ", "findmnt ")) and ";" not in fix
