"""The registry: what a code of a finding means, what a broker says and does about it, and what to do.

A code is registered once (``codes``) and used by everybody who finds that thing. Its severity, consequence and fix are
those a finding has unless whoever found it knows better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.findings.codes import CODES, FAMILIES, CodeEntry
from rmqtool.findings.finding import Finding, Severity

__all__ = ["FAMILIES", "NOWHERE", "CodeEntry", "Place", "broker_text", "find_code", "iter_codes", "new_finding"]


class Place(NamedTuple):
    """Where a finding is: a file and a span of it, a queue."""

    file: str | None = None
    offset: int | None = None
    length: int | None = None
    topic: str | None = None
    queue_id: int | None = None


NOWHERE = Place()


def find_code(code: str) -> CodeEntry | None:
    """Return what is registered for ``code``."""
    return CODES.get(code.upper())


def iter_codes(prefix: str = "") -> Iterator[CodeEntry]:
    """Yield the registered codes that begin with ``prefix`` (a family, or one code), in the order of the registry."""
    return (entry for entry in CODES.values() if entry.code.startswith(prefix.upper()))


def broker_text(entry: CodeEntry, version: str, *, abnormal: bool) -> str | None:
    """Return what a broker of ``version`` does about it at its next start, after a crash where ``abnormal``."""
    found = []
    for line in entry.brokers:
        who, _, what = line.partition(": ")
        other = "after a clean stop" if abnormal else "after a crash"
        if other not in who and any(word in who for word in ("all", version, f"{version[0]}.x")):
            found.append(what)
    return "; ".join(found) or None


def new_finding(
    code: str,
    message: str,
    place: Place = NOWHERE,
    *,
    severity: Severity | None = None,
    consequence: str | None = None,
    **data: object,
) -> Finding:
    """Return a finding with the severity, consequence and fix that are registered for its code.

    A notice needs nobody: it has no fix, and a consequence only where whoever found it says one.
    """
    entry = CODES[code]
    severity = severity or entry.severity
    needed = severity is not Severity.NOTICE
    return Finding(
        code,
        severity,
        message,
        place.file,
        place.offset,
        place.length,
        place.topic,
        place.queue_id,
        consequence or (entry.consequence if needed else None),
        entry.fix if needed else None,
        data,
    )
