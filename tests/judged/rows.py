"""The rows of expectations, and the rule that says whether a finding is about a fault.

A row names for each operation of a mutation the code and the place of a finding, or says why there can be none: the
bytes are not in use, or what stands there after the fault is what a sound store may hold. The rule knows nothing of
the rows: a finding is about an operation when it lies where the operation wrote, or names what became of it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.checks.check import Check, CheckOptions
from rmqtool.findings import Finding
from rmqtool.store.open import open_store
from tests.support import damaged
from tests.support.mutations import Mutation, Operation, read_catalogue

ROWS = Path(__file__).parent / "expectations.jsonl"

# What a segment of the log that vanished leaves in queues, index and checkpoint.
_LOST = frozenset({"CQ-AHEAD", "CQ-BEFORE", "IX-AHEAD", "CL-GAP", "ST-MOUNT"})
_UNIT = 20


class Row(NamedTuple):
    """The expectations for one variant, fault by fault."""

    version: str
    variant: str
    faults: tuple[Mapping[str, Any], ...]

    @property
    def is_undetectable(self) -> bool:
        """Whether no fault of the variant can be found."""
        return bool(self.faults) and all("undetectable" in fault for fault in self.faults)


CONFIG_VERSIONS = ("config-4.9.7", "config-5.3.3")


@cache
def catalogue(version: str) -> dict[str, Mutation]:
    """Return the mutations that rows of a version are about; those without an operation are no damage."""
    found = read_catalogue(f"recovery-{version}") if version in CONFIG_VERSIONS else damaged.mutations(version)
    return {key: mutation for key, mutation in found.items() if mutation.operations}


class Judge:
    """Makes damaged stores and checks them; each base is unpacked and checked once."""

    def __init__(self, directory: Path) -> None:
        self._workshop = damaged.Workshop(directory)
        self._bases: dict[tuple[str, str, bool], list[Finding]] = {}

    def find(self, version: str, mutation: Mutation) -> list[Finding]:
        """Return what a check finds in a damaged store and not in its base."""
        abort = has_abort(mutation)
        key = (version, mutation.base, abort)
        if key not in self._bases:
            undamaged = Mutation(mutation.base, "none", "control", "", (), abort, False)
            with self._workshop.damaged(version, undamaged, abort=abort) as root:
                self._bases[key] = findings_of(root)
        with self._workshop.damaged(version, mutation, abort=abort) as root:
            return new_findings(findings_of(root), self._bases[key])


@cache
def rows() -> tuple[Row, ...]:
    """Return every row."""
    with ROWS.open(encoding="utf-8") as file:
        return tuple(_row(json.loads(line)) for line in file)


def _row(line: dict[str, Any]) -> Row:
    """Return a row; a fault that stands for several operations in a row says for how many."""
    faults = [fault for fault in line["faults"] for _ in range(fault.get("operations", 1))]
    return Row(line["version"], line["variant"], tuple(faults))


def findings_of(root: Path, options: CheckOptions | None = None) -> list[Finding]:
    """Return what a check finds, in this process."""
    store = open_store(str(root))
    try:
        return list(Check(store, options))
    finally:
        store.close()


def key_of(finding: Finding) -> tuple[object, ...]:
    """Return what makes two findings the same one."""
    return (finding.code, finding.file, finding.offset, finding.length, finding.message)


def new_findings(found: list[Finding], base: list[Finding]) -> list[Finding]:
    """Return what is found in a damaged store and not in the undamaged one."""
    known = {key_of(finding) for finding in base}
    return [finding for finding in found if key_of(finding) not in known]


def has_abort(mutation: Mutation) -> bool:
    """Return whether a variant is judged with the abort marker: as the catalogue says, else as its base was left."""
    return mutation.base.endswith("killed") if mutation.abort is None else mutation.abort


def rotated(version: str) -> tuple[Row, ...]:
    """Return the rows of a version that are looked at when there is no time for all.

    Brokers of several versions have the same variants: each is looked at in one of them.
    """
    mine = [row for row in rows() if row.version == version]
    if version in CONFIG_VERSIONS:
        return tuple(mine)
    return tuple(r for r in mine if damaged.VERSIONS[zlib.crc32(r.variant.encode()) % 3] == version)


def missed(row: Row, mutation: Mutation, found: list[Finding]) -> Iterator[str]:
    """Say which expectations the new findings do not meet."""
    if len(row.faults) != len(mutation.operations):
        yield f"{row.variant}: {len(row.faults)} expectations for {len(mutation.operations)} operations"
    for number, (fault, operation) in enumerate(zip(row.faults, mutation.operations, strict=False)):
        if "code" not in fault:
            continue
        place = (fault["code"], fault.get("file"), fault.get("offset"))
        met = [finding for finding in found if (finding.code, finding.file, finding.offset) == place]
        if not met:
            yield f"{row.variant}, operation {number}: no {fault['code']} at {fault.get('file')}@{fault.get('offset')}"
        elif not any(is_about(finding, operation) for finding in met):
            yield f"{row.variant}, operation {number}: the {fault['code']} found is not about {dict(operation)}"


def is_about(finding: Finding, operation: Operation) -> bool:
    """Return whether a finding is about what an operation did."""
    path, start, length = _written(operation)
    file = finding.file or ""
    beneath = file == path or file.startswith(path + "/")
    if start is not None and length is not None:
        return _covers(finding, path, start, length) or _lost_with(finding, operation)
    if operation["op"] in ("delete", "move"):
        gone = operation["path"]
        is_queue_file = gone.startswith("consumequeue/") and gone.rpartition("/")[2].isdecimal()
        named = beneath or file == gone or gone.startswith(file + "/")
        return named or _tells_of_loss(finding, gone) or (is_queue_file and _covers(finding, gone, 0, 1))
    return beneath


def _written(operation: Operation) -> tuple[str, int | None, int | None]:
    """Return the file that an operation wrote into, and the span where it is one."""
    match operation["op"]:
        case "flip":
            return operation["path"], operation["offset"], 1
        case "write":
            return operation["path"], operation["offset"], len(operation["hex"]) // 2
        case "zero":
            return operation["path"], operation["offset"], operation["len"]
        case "copyrange":
            return operation["to"], operation["to_offset"], operation["len"]
        case "copy" | "move":
            return operation["to"], None, None
    return operation["path"], None, None


def _covers(finding: Finding, path: str, start: int, length: int) -> bool:
    if finding.file == path:
        if finding.offset is None:
            return True
        return finding.offset < start + length and start < finding.offset + (finding.length or 1)
    # A run of units may go on from one file of the queue to the next.
    directory, _, name = path.rpartition("/")
    first, units = finding.data.get("queueOffset"), finding.data.get("messages", finding.data.get("units"))
    if not (finding.file or "").startswith(directory + "/") or not isinstance(first, int) or not isinstance(units, int):
        return False
    begin = int(name) + start
    return first * _UNIT < begin + length and begin < (first + units) * _UNIT


def _lost_with(finding: Finding, operation: Operation) -> bool:
    """Return whether a finding tells that a whole file of the log was zeroed."""
    whole = operation["op"] == "zero" and operation["offset"] == 0
    return whole and operation["path"].startswith("commitlog/") and finding.code in _LOST


def _tells_of_loss(finding: Finding, path: str) -> bool:
    """Return whether a finding tells that a file is gone that it cannot name."""
    if path.startswith("commitlog"):
        return finding.code in _LOST
    if path.endswith(".bak"):
        return finding.code in ("CF-JSON", "CF-EMPTY") and finding.file == path.removesuffix(".bak")
    if path.startswith("config/"):
        return finding.code == "CF-BAK" and finding.file == path + ".bak"
    return path.startswith("index") and finding.code == "IX-MISSING"
