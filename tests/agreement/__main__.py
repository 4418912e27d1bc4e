"""Run all comparisons and print the tables: by store, by comparison, and by both where the stores are recorded starts.

python -m tests.agreement             fails when a value differs, or when less is compared than was committed
python -m tests.agreement --update    also commits what grew to counts.json
python -m tests.agreement --short     leaves out what takes minutes; a sample of that is among the tests
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from tests.agreement.ledger import (
    COUNTS,
    DIFFERENCES_SHOWN,
    Comparison,
    Entry,
    compare_all,
    compare_in_processes,
    counts_of,
    drops,
    load_comparisons,
    raised,
    read_counts,
    write_counts,
)
from tests.support.stores import STORES

COLUMNS = ("messages", "units")  # the rows that the table by store names; all others are summed up


def by_store(entries: Sequence[Entry]) -> str:
    """Lay out a line per store. Messages and units that several comparisons look at count once."""
    rows: list[list[Any]] = []
    for store in dict.fromkeys(entry.store for entry in entries):
        mine = [entry for entry in entries if entry.store == store]
        named = [max((e.compared.rows for e in mine if e.comparison.rows == column), default=0) for column in COLUMNS]
        other = sum(entry.compared.rows for entry in mine if entry.comparison.rows not in COLUMNS)
        rows.append([store, *named, other, *_totals(mine)])
    head = ["store", *COLUMNS, "other rows", "values compared", "differences"]
    total = [sum(row[column] for row in rows) for column in range(1, len(head))]
    return tabulate([*rows, ["total", *total]], headers=head, tablefmt="github")


def by_comparison(entries: Sequence[Entry]) -> str:
    """Lay out a line per comparison."""
    rows = []
    for title in dict.fromkeys(entry.comparison.title for entry in entries):
        mine = [entry for entry in entries if entry.comparison.title == title]
        compared = [entry for entry in mine if entry.compared.rows]
        count = sum(entry.compared.rows for entry in mine)
        rows.append([title, mine[0].comparison.rows, len(compared), count, *_totals(mine)])
    head = ["comparison", "a row is", "stores", "rows", "values compared", "differences"]
    return tabulate(rows, headers=head, tablefmt="github")


def by_version(entries: Sequence[Entry]) -> str:
    """Lay out, for comparisons that name their stores, how many values are equal and how many there are in each."""
    mine = [entry for entry in entries if entry.comparison.subjects]
    stores = list(dict.fromkeys(entry.store for entry in mine))
    rows: dict[str, list[str]] = {}
    for entry in mine:
        row = rows.setdefault(entry.comparison.title, [""] * len(stores))
        row[stores.index(entry.store)] = _equal(entry)
    head = ["equal/total", *stores]
    return tabulate([[title, *row] for title, row in rows.items()], headers=head, tablefmt="github")


def _equal(entry: Entry) -> str:
    total = entry.compared.fields
    unknown = f", {len(entry.undetermined)} undetermined" if entry.undetermined else ""
    return f"{total - len(entry.differences) - len(entry.undetermined)}/{total}{unknown}"


def _totals(entries: Sequence[Entry]) -> tuple[int, int]:
    return sum(entry.compared.fields for entry in entries), sum(len(entry.differences) for entry in entries)


def run(
    asked: Sequence[Comparison],
    stores: Sequence[str],
    counts: Path,
    *,
    update: bool,
    left_out: Collection[str] = (),
    compare: Callable[[Sequence[Comparison], Sequence[str], Path], list[Entry]] = compare_all,
) -> int:
    """Compare, print, and return 0 when nothing differs and nothing dropped but what is ``left_out``."""
    with tempfile.TemporaryDirectory(prefix="rmqtool-agreement-") as directory:
        entries = compare(asked, stores, Path(directory))
    print(by_store(entries), by_comparison(entries), by_version(entries), sep="\n\n")
    unknown = [line for entry in entries for line in entry.undetermined]
    if unknown:
        print(f"\n{len(unknown)} values that another run of the real classes would have made different:", end="")
        print("", *unknown, sep="\n  ")
    found = counts_of(entries)
    expected = {title: count for title, count in read_counts(counts).items() if title not in left_out}
    wrong = [line for entry in entries for line in entry.differences]
    lost = drops(expected, found)
    for title, lines in ((f"{len(wrong)} differences", wrong), (f"{len(lost)} counts dropped", lost)):
        if lines:
            print(f"\n{title}:", *lines[:DIFFERENCES_SHOWN], sep="\n  ")
    grown = raised(expected, found)
    if grown != expected and update and not wrong:
        write_counts(counts, grown)
        print(f"\nWrote {counts.name}.")
    elif grown != expected:
        print(f"\nMore is compared than {counts.name} says: run with --update and commit it.")
    print(f"\n{len(wrong)} differences, {len(lost)} counts dropped.")
    return 1 if wrong or lost else 0


def main(words: Sequence[str]) -> int:
    """Run everything on every store, or what is short."""
    if words not in ([], ["--update"], ["--short"]):
        print(__doc__, file=sys.stderr)
        return 2
    every = load_comparisons()
    left_out = {one.title for one in every if one.long and words == ["--short"]}
    asked = [one for one in every if one.title not in left_out]
    update = words == ["--update"]
    return run(asked, STORES, COUNTS, update=update, left_out=left_out, compare=compare_in_processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
