"""The books of the agreement: what is compared, how much of it, what differs, and what must at least be compared.

A comparison that silently compares less is as bad as one that differs. So the counts are committed in ``counts.json``,
a drop fails the run, and ``--update`` only ever raises them.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.agreement import comparisons
from tests.support.stores import truth, unpack

COUNTS = Path(__file__).resolve().parent / "counts.json"
DIFFERENCES_SHOWN = 20


class Count(NamedTuple):
    """How much was compared: rows (messages, units, headers, ...) and single values."""

    rows: int = 0
    fields: int = 0


class Subject:
    """One store before one comparison: gives the truth and the unpacked store, takes rows of values."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self.count = Count()
        self.differences: list[str] = []
        self.undetermined: list[str] = []

    @property
    def truth(self) -> dict[str, Any]:
        """What the real classes said. Shared: never change it."""
        return truth(self.name)

    @cached_property
    def root(self) -> Path:
        """The unpacked store, shared by all comparisons. Only for reading."""
        target = self._directory / self.name
        return target / "store" if target.exists() else unpack(self.name, target)

    def compare(
        self,
        where: str,
        ours: Mapping[str, object],
        theirs: Mapping[str, object],
        undetermined: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Compare one row, value by value; a name that only one side has is a difference.

        ``undetermined`` gives a reason for each value that another run of the real classes would have made different:
        it is counted and shown as such, never as equal.
        """
        names = ours.keys() | theirs.keys()
        self.count = Count(self.count.rows + 1, self.count.fields + len(names))
        missing = object()
        for name in sorted(names):
            mine, real = ours.get(name, missing), theirs.get(name, missing)
            if mine != real and name in undetermined:
                self.undetermined.append(f"{self.name}, {where}, {name}: {undetermined[name]}")
            elif mine != real:
                shown = ("nothing" if value is missing else repr(value)[:80] for value in (mine, real))
                self.differences.append(f"{self.name}, {where}, {name}: {' instead of '.join(shown)}")


class Comparison(NamedTuple):
    """A registered comparison. ``rows`` is what a row of it is: messages, units, headers, ...

    ``subjects`` are given where it is not the stores with a truth file that are compared. A ``long`` one takes minutes
    and has a sample of it among the tests.
    """

    title: str
    rows: str
    run: Callable[[Subject], None]
    subjects: tuple[str, ...] = ()
    long: bool = False


REGISTRY: dict[str, Comparison] = {}


def comparison(
    title: str, *, rows: str, subjects: tuple[str, ...] = (), long: bool = False
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register the decorated function: it is called once for every store and calls ``Subject.compare`` for each row."""

    def register(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        assert title not in REGISTRY, f"two comparisons are called {title!r}"
        REGISTRY[title] = Comparison(title, rows, run, subjects, long)
        return run

    return register


def load_comparisons() -> list[Comparison]:
    """Import every module of ``comparisons/`` and return what they registered."""
    for module in pkgutil.iter_modules(comparisons.__path__, comparisons.__name__ + "."):
        importlib.import_module(module.name)
    return list(REGISTRY.values())


class Entry(NamedTuple):
    """What one comparison found in one store."""

    comparison: Comparison
    store: str
    compared: Count
    differences: list[str]
    undetermined: list[str]


def compare_all(asked: Iterable[Comparison], stores: Iterable[str], directory: Path) -> list[Entry]:
    """Run every comparison on every store; stores are unpacked below ``directory``."""
    return [_compare(one, name, directory) for one in asked for name in one.subjects or stores]


def compare_in_processes(asked: Sequence[Comparison], stores: Sequence[str], directory: Path) -> list[Entry]:
    """Do as ``compare_all`` does, several stores at a time; the comparisons must be registered ones."""
    by_name: dict[str, list[str]] = {}
    for one in asked:
        for name in one.subjects or stores:
            by_name.setdefault(name, []).append(one.title)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(_compare_store, name, titles, directory) for name, titles in by_name.items()]
        found = {(title, name): results for task in tasks for title, name, *results in task.result()}
    return [Entry(one, name, *found[one.title, name]) for one in asked for name in one.subjects or stores]


def _compare(one: Comparison, name: str, directory: Path) -> Entry:
    subject = Subject(name, directory)
    one.run(subject)
    return Entry(one, name, subject.count, subject.differences, subject.undetermined)


Sent = tuple[str, str, Count, list[str], list[str]]


def _compare_store(name: str, titles: Sequence[str], directory: Path) -> list[Sent]:
    """Compare one store, in a process of its own that has to load the comparisons first.

    Comparisons stay where they are and are named by their titles: some are functions that cannot be sent.
    """
    load_comparisons()
    entries = [_compare(REGISTRY[title], name, directory) for title in titles]
    return [(entry.comparison.title, *entry[1:]) for entry in entries]


Counts = dict[str, dict[str, Count]]  # title → store → count


def counts_of(entries: Iterable[Entry]) -> Counts:
    """Return what was compared; a store in which a comparison found nothing to compare is left out."""
    counts: Counts = {}
    for entry in entries:
        found = counts.setdefault(entry.comparison.title, {})
        if entry.compared.rows:
            found[entry.store] = entry.compared
    return counts


def read_counts(path: Path) -> Counts:
    """Read the committed counts."""
    if not path.exists():
        return {}
    loaded = json.loads(path.read_text(encoding="utf-8"))
    return {title: {store: Count(*count) for store, count in stores.items()} for title, stores in loaded.items()}


def write_counts(path: Path, counts: Counts) -> None:
    """Write counts, a line per store: a change is then easy to read."""
    parts = []
    for title, stores in sorted(counts.items()):
        lines = [f"    {json.dumps(store)}: [{count.rows}, {count.fields}]" for store, count in sorted(stores.items())]
        parts.append(f"  {json.dumps(title, ensure_ascii=False)}: {{\n" + ",\n".join(lines) + "\n  }")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def drops(expected: Counts, found: Counts) -> list[str]:
    """Say which counts are lower than they were."""
    lines = []
    for title, stores in sorted(expected.items()):
        for store, count in sorted(stores.items()):
            now = found.get(title, {}).get(store, Count())
            if now.rows < count.rows or now.fields < count.fields:
                shown = " instead of ".join(f"{one.rows} rows and {one.fields} values" for one in (now, count))
                lines.append(f"{title}, {store}: {shown}")
    return lines


def raised(expected: Counts, found: Counts) -> Counts:
    """Return ``expected`` with every count that grew."""
    return {
        title: {
            store: Count(
                *map(max, expected.get(title, {}).get(store, Count()), found.get(title, {}).get(store, Count()))
            )
            for store in expected.get(title, {}).keys() | found.get(title, {}).keys()
        }
        for title in expected.keys() | found.keys()
    }
