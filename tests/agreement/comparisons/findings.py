"""What ``check`` finds in damaged stores, compared with what stands in the table of expectations."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rmqtool.findings import Finding
from tests.agreement.ledger import Subject, comparison
from tests.judged.rows import CONFIG_VERSIONS, Judge, Row, catalogue, is_about, rotated
from tests.support.damaged import VERSIONS

_PREFIX = "recovery-"
# So many rows are one task: each process unpacks the bases anew.
_AT_ONCE = 96

Found = list[tuple[str, dict[str, Any], dict[str, Any]]]


@comparison(
    "Findings in damaged stores",
    rows="variants",
    subjects=tuple(_PREFIX + version for version in (*VERSIONS, *CONFIG_VERSIONS)),
)
def findings(subject: Subject) -> None:
    """Each fault is found with its code at its place, and nothing is said where nothing can be known."""
    wanted = rotated(subject.name.removeprefix(_PREFIX))
    parts = [wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE)]
    workers = min(2, len(os.sched_getaffinity(0)), len(parts))
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for part in pool.map(_judge, parts):
            for variant, ours, expected in part:
                subject.compare(variant, ours, expected)


def _judge(part: tuple[Row, ...]) -> Found:
    """Return for each row its name, what was found, and what is expected."""
    with tempfile.TemporaryDirectory(prefix="rmqtool-judge-") as directory:
        judge = Judge(Path(directory))
        found = []
        for row in part:
            mutation = catalogue(row.version)[row.variant]
            new = judge.find(row.version, mutation)
            told = {str(n): _place(fault) for n, fault in enumerate(row.faults) if "code" in fault}
            ours = {n: _met(new, place, mutation.operations[int(n)]) for n, place in told.items()}
            if row.is_undetectable:
                told, ours = {"findings": 0}, {"findings": len(list(_above_notice(new)))}
            found.append((row.variant, ours, told))
        return found


def _place(fault: Mapping[str, Any]) -> tuple[Any, ...]:
    return (fault["code"], fault.get("file"), fault.get("offset"))


def _met(found: list[Finding], place: tuple[Any, ...], operation: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the place when a finding there is about the operation."""
    there = (one for one in found if (one.code, one.file, one.offset) == place)
    return place if any(is_about(one, operation) for one in there) else None


def _above_notice(found: list[Finding]) -> Iterator[Finding]:
    return (one for one in found if one.severity != "notice")
