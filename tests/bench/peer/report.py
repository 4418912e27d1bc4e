"""The tables of one measurement: ``python -m tests.bench.peer.report [FILE]``.

A cell is the median over the rounds and, in brackets, the best; ratios are of medians, of CPU time where there is any.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tabulate import tabulate

from tests.bench.peer.__main__ import PUTS
from tests.bench.peer.build import VERSIONS, work

UNITS = ("_MB_s", "_us", "_us_page")  # the limits that are shown


class Row(NamedTuple):
    """One figure: of which task and which key, what naive Python's is called, and the factor between their units."""

    says: str
    task: str
    key: str
    naive_task: str = ""
    naive_key: str = ""
    naive_scale: float = 1.0


SCAN = [
    Row(
        f"{store} {mode}, CPU ns",
        f"scan.{store}",
        f"modes.{mode}.cpu_ns_msg",
        f"naive.{store}",
        f"modes.{mode}.cpu_ns_msg",
    )
    for store in ("S1", "S2", "S3")
    for mode in ("walk", "check", "dispatch", "decode")
]
_NAIVE_PUTS = {"async1_100": ("S1", "put"), "async1_1k": ("S2", "put"), "sync1_100": ("S1", "syncput")}
PUT = [
    Row(
        f"{name}, {says}",
        "put",
        f"scenarios.{name}.{key}",
        *((f"naive.{naive[0]}", f"modes.{naive[1]}.{naive_key}", 1e-3) if naive else ()),
    )
    for name in PUTS
    if not name.startswith("warmup")
    for naive in [_NAIVE_PUTS.get(name)]
    for says, key, naive_key in (
        ("wall us", "us_msg", "ns_msg"),
        ("CPU us of the putter", "putter_cpu_us_msg", "cpu_ns_msg"),
    )
]
REST = [
    Row("rebuild S1, s to the last dispatch", "rebuild.S1", "ready_s"),
    Row("rebuild S1, us a message", "rebuild.S1", "us_msg_dispatch", "naive.S1", "modes.rebuild.cpu_ns_msg", 1e-3),
    Row("recover S1 with abort, s", "recover.S1", "load_s"),
    Row("recover S2 with abort, s", "recover.S2", "load_s"),
    Row("load S1 after a clean stop, s", "load_clean.S1", "load_s"),
    Row("query, warm, CPU us", "query.S1", "cpu_us", "naive.S1", "modes.query.cpu_ns_msg", 1e-3),
    Row("get, CPU ns", "get.S1", "modes.raw.cpu_ns_msg", "naive.S1", "modes.get.cpu_ns_msg"),
    Row("get and decode, CPU ns", "get.S1", "modes.decode.cpu_ns_msg", "naive.S1", "modes.getdecode.cpu_ns_msg"),
    Row("one key in a new process, s", "queryone.S1", "process_wall_s"),
    Row("one key in a new process without recovery, s", "queryone_light.S1", "process_wall_s"),
    Row("mqadmin, help, s", "mqadmin_help", "process_wall_s"),
    Row("mqadmin queryMsgById, s to the answer", "mqadmin_queryMsgById", "answer_s"),
]


def number(value: float) -> str:
    """Return three significant digits."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def cell(figure: dict[str, Any] | None, scale: float = 1.0) -> str:
    """Return median and best of a figure."""
    return "-" if figure is None else f"{number(figure['median'] * scale)} ({number(figure['min'] * scale)})"


def ratio(one: dict[str, Any] | None, other: dict[str, Any] | None, scale: float = 1.0) -> str:
    """Return how many times ``other`` the figure ``one`` is."""
    return number(one["median"] * scale / other["median"]) if one and other and other["median"] else "-"


def table(title: str, rows: list[Row], figures: dict[str, Any]) -> str:
    """Lay out the rows that were measured."""
    lines = []
    for row in rows:
        java = [figures.get(f"{row.task}.{version}", {}).get(row.key) for version in VERSIONS]
        naive = figures.get(row.naive_task, {}).get(row.naive_key)
        if any(java) or naive:
            ratios = [ratio(naive, one, row.naive_scale) for one in java]
            lines.append([row.says, *map(cell, java), ratio(java[1], java[0]), cell(naive, row.naive_scale), *ratios])
    head = [title, *VERSIONS, "5.3.3 : 4.9.8", "naive Python", "naive : 4.9.8", "naive : 5.3.3"]
    return tabulate(lines, headers=head, tablefmt="github", disable_numparse=True)


def main() -> None:
    """Print all tables."""
    measured = json.loads(Path(sys.argv[1] if sys.argv[1:] else work() / "results.json").read_text())
    figures = measured["figures"]
    foreign = [found["foreign_cores"]["median"] for found in figures.values()]
    print(
        f"{measured['when']}: {measured['rounds']} rounds, scale {measured['scale']:g}, {measured['cpus']} CPUs; "
        f"others took up to {max(foreign, default=0):.2f} cores.\n"
    )
    limits = {name: one for task in ("limits", "checksums") for name, one in figures.get(task, {}).items()}
    lines = [[name, cell(one), number(one["max"])] for name, one in limits.items() if name.endswith(UNITS)]
    print(tabulate(lines, headers=["limit", "median (least)", "most"], tablefmt="github", disable_numparse=True), "\n")
    for title, rows in (("scan, a message", SCAN), ("put, a message", PUT), ("the rest", REST)):
        print(table(title, rows, figures), "\n")


if __name__ == "__main__":
    main()
