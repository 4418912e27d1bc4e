"""Run a command and say what it cost: wall, CPU of its processes, and what others took of the machine meanwhile."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.stores import data_extents

STEP = 1 << 20


class Cost(NamedTuple):
    """One finished run. ``answered``: seconds until the awaited text was printed."""

    output: str
    status: int
    wall: float
    cpu: float
    foreign_cores: float
    answered: float | None


def _busy_ticks() -> int:
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4]


def run(command: Sequence[str], errors: Path, environment: Mapping[str, str], awaited: str | None = None) -> Cost:
    """Run ``command``; its errors go to a file."""
    before, ticks, start = resource.getrusage(resource.RUSAGE_CHILDREN), _busy_ticks(), time.perf_counter()
    answered, lines = None, []
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            errors="replace",
            env=dict(os.environ) | dict(environment),
        ) as process,
    ):
        for line in process.stdout or ():
            lines.append(line)
            if awaited and awaited in line and answered is None:
                answered = time.perf_counter() - start
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    foreign = max(0.0, (_busy_ticks() - ticks) / os.sysconf("SC_CLK_TCK") - cpu) / wall
    return Cost("".join(lines), process.returncode, wall, cpu, foreign, answered)


def read_into_cache(store: Path) -> None:
    """Read the data of a store, not its holes, so that a run finds it in the page cache."""
    for path in store.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                for start, length in data_extents(file.fileno(), path.stat().st_size):
                    for offset in range(start, start + length, STEP):
                        os.pread(file.fileno(), min(STEP, start + length - offset), offset)


def figures(output: str) -> dict[str, float]:
    """Return every number of the JSON line that ends the output, by its dotted name."""
    lines = output.strip().splitlines()
    try:
        loaded = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return dict(_numbers(loaded, "")) if isinstance(loaded, dict) else {}


def _numbers(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, float]]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from _numbers(inner, f"{prefix}{name}.")
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            yield prefix + name, inner


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return median, extremes and all values of one figure."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": list(values)}
