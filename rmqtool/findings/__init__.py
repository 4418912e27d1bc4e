"""Findings: damage and oddities as values, and the registry of their codes."""

from __future__ import annotations

from rmqtool.findings.finding import Finding, Severity, is_command
from rmqtool.findings.registry import FAMILIES, CodeEntry, Place, broker_text, find_code, iter_codes, new_finding

__all__ = [
    "FAMILIES",
    "CodeEntry",
    "Finding",
    "Place",
    "Severity",
    "broker_text",
    "find_code",
    "is_command",
    "iter_codes",
    "new_finding",
]
