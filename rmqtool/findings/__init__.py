"""Findings: damage and oddities as values, and the table of their codes.

A *finding* is one problem at one place. Its *code* (``CQ-MISSING``) names the kind of problem; the letters before the
dash are its *family*. The *consequence* says what the problem means for messages, the *fix* is the command to type. An
*error* finding means damage, a *warning* needs attention, a *notice* needs nothing.
"""

from __future__ import annotations

from rmqtool.findings.entry import FAMILIES, CodeEntry, Severity
from rmqtool.findings.finding import (
    UNREAD,
    Finding,
    Place,
    addressed,
    broker_text,
    find_code,
    is_command,
    iter_codes,
    new_finding,
    worst_first,
)

__all__ = [
    "FAMILIES",
    "UNREAD",
    "CodeEntry",
    "Finding",
    "Place",
    "Severity",
    "addressed",
    "broker_text",
    "find_code",
    "is_command",
    "iter_codes",
    "new_finding",
    "worst_first",
]
