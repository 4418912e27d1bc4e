"""Compare two truth files: what the real classes read must be the same for a store of any writer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tests.conformance.oracle.runs import read_json

# Of the run and not of the store, or known to one of the two files only.
NOT_COMPARED = frozenset(
    {
        "name",
        "purpose",
        "notes",
        "broker_version",
        "read_by",
        "config",
        "configFiles",
        "clean_shutdown",
        "after_recovery",
        "before",
        "history",
        "admin",
        "extra",
        "brokerConfig",
        "sqlGetMessage",
        "bloom",
        "minMaxInTheLivingProcess",
        "dispatchStoppedAt",
        "tornAt",
        "cutAt",
        "fileMtimes",
        "decodedInTimeZone",
    }
)
SHOWN = 20


def differences(one: Path, other: Path) -> list[str]:
    """Return the first differences between two truth files, a line each; none when they are equal."""
    first, second = (
        {key: value for key, value in read_json(path).items() if key not in NOT_COMPARED} for path in (one, other)
    )
    return list(islice(_differences(first, second, ""), SHOWN))


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differences(one.get(key), other.get(key), f"{path}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differences(left, right, f"{path}/{index}")
    else:
        left, right = (json.dumps(value, ensure_ascii=False)[:90] for value in (one, other))
        yield f"{path}: {left} != {right}"
