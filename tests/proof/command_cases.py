"""The writing commands on a store of a real broker: prepared once, copied for each case, and judged after it.

The command lines are those of the guard of writers (``tests.guards.test_untouched``), so a new command that writes is
tried here too. The judge is the independent reader: which whole records were there before, and which are there now.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.guards.test_untouched import WRITERS
from tests.proof import forked, reader
from tests.proof.workshop import copied, workshop
from tests.support.stores import unpack

STORE = "53-broker"


class Template(NamedTuple):
    """A prepared store, what is in it, and how the command ends that nothing disturbs."""

    parent: Path
    records: frozenset[tuple[int, bytes, int, int, int]]
    undisturbed: forked.Ended
    # The records of the store that the command makes beside this one, if it makes one.
    made: frozenset[tuple[int, bytes, int, int, int]]
    misplaced: int
    was_crashed: bool


@lru_cache(maxsize=64)
def template(name: str) -> Template:
    """Return the prepared store of a command. It is prepared where the cases are: an undo journal names its store."""
    parent, case = workshop() / name.replace(" ", "_"), workshop() / "case"
    unpack(STORE, case / "unpacked")
    root = case / "store"
    (case / "unpacked" / "store").rename(root)
    (case / "unpacked").rmdir()
    WRITERS[name].prepare(root)
    tree = reader.tree_of(root)
    records, was_crashed = _identities(tree), (root / "abort").exists()
    case.rename(parent)
    with copied(parent) as copy:
        ended = run(name, copy)
        made = _identities(reader.tree_of(copy.parent / "new"))
    return Template(parent, records, ended, made, len(reader.misplaced(tree)), was_crashed)


def _identities(tree: reader.Tree) -> frozenset[tuple[int, bytes, int, int, int]]:
    return frozenset(record.identity for record in reader.iter_records(tree))


def run(
    name: str,
    root: Path,
    at: int = 0,
    effect: forked.Effect | None = None,
    wrapped: tuple[str, ...] = forked.CHANGING,
) -> forked.Ended:
    """Run a command on a copy of its store."""
    writer = WRITERS[name]
    return forked.run([str(word) for word in writer.words(root)], writer.given, at, effect, wrapped)


def acknowledged(ended: forked.Ended) -> list[int]:
    """Return the places of the messages that a command said to have stored."""
    found = []
    for line in ended.out.splitlines():
        if line.startswith(b"{") and b'"PUT_OK"' in line:
            try:
                found.append(json.loads(line)["commitLogOffset"])
            except ValueError:
                continue  # a line that was cut is no acknowledgement
    return found


class Left(NamedTuple):
    """What the independent reader found in a store after a command."""

    root: Path
    tree: reader.Tree
    records: frozenset[tuple[int, bytes, int, int, int]]

    @classmethod
    def of(cls, root: Path) -> Left:
        """Read a store."""
        tree = reader.tree_of(root)
        return cls(root, tree, _identities(tree))


def lies(ended: forked.Ended, left: Left) -> list[str]:
    """Return which messages a command acknowledged that are not there."""
    there = {place for place, *_ in left.records}
    gone = [place for place in acknowledged(ended) if place not in there]
    return [f"acknowledged and not there: {gone}"] if gone else []


def lost(before: Template, left: Left) -> list[str]:
    """Return in words what a command took away that it may not: whole records, tables, half a copy."""
    tree = left.tree
    missing = before.records - left.records
    wrong = [f"{len(missing)} whole messages are gone, the first at {min(missing)[0]}"] if missing else []
    for table in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        copies = [tree.get(f"config/{table}{suffix}") for suffix in ("", ".bak")]
        if any(one is not None for one in copies) and not any(one and one.rstrip().endswith(b"}") for one in copies):
            wrong.append(f"neither {table} nor its copy is whole")
    return wrong + half_made(before, left.root.parent)


def half_made(before: Template, parent: Path) -> list[str]:
    """Return what stands beside the store under its final name and is not whole."""
    wrong = []
    new = parent / "new"
    if new.exists() and _identities(reader.tree_of(new)) != before.made:
        wrong.append("a store was made that is not whole")
    for path in (parent / "lake").rglob("*.parquet"):
        data = path.read_bytes()
        if not (data.startswith(b"PAR1") and data.endswith(b"PAR1")):
            wrong.append(f"{path.name} is not a whole table")
    return wrong
