"""Registered codes of findings: their severity, their family, and the texts that all findings of one code share."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Severity(StrEnum):
    """How bad a finding is: messages are lost or unreadable, may be, or nothing is wrong but worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


class CodeEntry(NamedTuple):
    """The registered texts of one code.

    People read ``meaning``, ``consequence`` and ``fix``; ``fix`` may contain ``{store}``. ``broker_lines`` are lines of
    a broker's own log about the problem. ``brokers`` says for each version what a broker does about it: versions, after
    a comma the condition if there is one, then what it does in the third person.
    """

    code: str
    severity: Severity
    meaning: str
    consequence: str | None = None
    fix: str | None = None
    broker_lines: tuple[str, ...] = ()
    brokers: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The two letters before the dash, a key of ``FAMILIES``."""
        return self.code.partition("-")[0]


FAMILIES: dict[str, str] = {
    "CL": "commit log",
    "CQ": "consume queues",
    "IX": "index files",
    "CP": "checkpoint",
    "ST": "the store as a whole",
    "CF": "configuration",
    "OF": "consumer offsets",
    "TM": "timers",
    "TX": "transactions",
    "PO": "pop consumption",
    "DL": "DLedger",
    "CM": "compaction",
    "RX": "RocksDB",
    "TI": "tiered storage",
    "BD": "bodies",
}
