"""Findings: the report of one problem as a value, made from what is registered for its code (``codes``).

Severity, consequence and fix of a finding are those of its code, unless the check that made it has better ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import NamedTuple

from rmqtool.findings.codes import CODES
from rmqtool.findings.entry import CodeEntry, Severity

# The codes of files that could not be read.
UNREAD = frozenset({"ST-READ", "RX-OPEN"})


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number and its noun: ``1 entry points``, ``12 entries point``. Without ``many``, an s is appended."""
    return f"{number} {one if number == 1 else many or one + 's'}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem, and where it is.

    ``file`` is relative to the store, ``offset`` is a file offset. ``data`` has the numbers of the message for
    programs. ``broker`` is what the store's own broker does about it at its next start.
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
        """Return the Finding object of docs/contract.md."""
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
    """Return whether a fix is a command that can be typed as it is; other fixes are sentences."""
    return fix.startswith(("rmqtool ", "cp ", "findmnt ")) and ";" not in fix


class Place(NamedTuple):
    """Where a finding is: bytes of a file, or a queue."""

    file: str | None = None
    offset: int | None = None
    length: int | None = None
    topic: str | None = None
    queue_id: int | None = None


NOWHERE = Place()

_SEVERITIES = tuple(Severity)
_AFTER_CRASH, _AFTER_CLEAN_STOP = "after a crash", "after a clean stop"


def find_code(code: str) -> CodeEntry | None:
    """Return the entry of ``code``, in any case of letters; None for an unknown code."""
    return CODES.get(code.upper())


def iter_codes(prefix: str = "") -> Iterator[CodeEntry]:
    """Yield the registered codes that begin with ``prefix`` (a family, or one code), in the order of the registry."""
    return (entry for entry in CODES.values() if entry.code.startswith(prefix.upper()))


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by severity, errors first; those of one severity stay in their order."""
    return sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))


def addressed(finding: Finding, store: str) -> Finding:
    """Return a finding whose fix names the store, so that it can be typed."""
    return finding if finding.fix is None else replace(finding, fix=finding.fix.replace("{store}", quote(store)))


def broker_text(entry: CodeEntry, version: str, *, abnormal: bool) -> str | None:
    """Return what a broker of ``version`` does about it at its next start, or None where nothing is known.

    ``abnormal``: the last broker crashed. A text that holds only after a crash, or only after a clean stop, says so:
    without the condition, what a broker did after a crash reads like what the next start does. Lines with
    a further condition ("if ...") are for the manual.
    """
    found = []
    stop = _AFTER_CRASH if abnormal else _AFTER_CLEAN_STOP
    for line in entry.brokers:
        who, _, what = line.partition(": ")
        if ", if " in who:
            continue
        condition = next((words for words in (_AFTER_CRASH, _AFTER_CLEAN_STOP) if words in who), None)
        if condition in (None, stop) and any(word in who for word in ("all", version, f"{version[0]}.x")):
            found.append(f"{condition} it {what}" if condition else what)
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
    """Return a finding with the severity, consequence and fix of its code.

    A notice has no fix, and a consequence only if one is given: there is nothing to do about it.
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
