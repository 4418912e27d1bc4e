"""Mutated stores under every command: looks, judges, rehearsals, writers.

A seed chooses a store, damages one to three of its files (``tests.support.mutated``), and types some command lines.
Whatever the damage is, a command ends with a status of the table, within its limits of time and memory, without a
traceback. Looks change no byte and no time. Writers lose no whole record. A repair is done in one go, its undo restores
each byte, and what ``dump`` shows tiles the file.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tests.proof import forked, reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.workshop import copied, snapshot, unpacked
from tests.support.mutated import STORES, damaged

_ALL = (
    *STORES,
    "49-broker",
    "49-killed-torn",
    "53-broker",
    "53-compaction",
    "53-multidir",
    "54-combine",
    "54-rocksone",
)
# What may end a command: everything but a bug.
_LOOKS = (
    "info {s} --json",
    "info {s} files",
    "info {s} groups",
    "info {s} config",
    "cat {s} --jsonl -j 1",
    "cat {s} --order queue -n 50",
    "cat {s} --count",
    "query {s} k1 --json",
    "query {s} 7F00000100002A9F0000000000000000 --json",
    "query {s} yesterday --json",
    "stat {s} --json",
    "stat {s} delay",
    "stat {s} tx",
    "stat {s} retry",
    "stat {s} retention",
    "check {s} --jsonl -j 1",
    "check {s} --quick",
    "check {s} --deep -j 1",
    "diff {s} {s}",
    "recover {s} --json",
    "recover {s} --as 4.9",
    "recover {s} --as 5.4",
    "repair {s} --json",
    "topic {s} list",
    "group {s} list",
)
_WRITERS = (
    "recover {s} --to {p}/new",
    "copy {s} {p}/new",
    "copy {s} {p}/new --salvage",
    "export {s} --engine local --to {p}/lake --progress never",
    "recover {s} --apply",
    "produce {s} -t Mutants --create hello",
    "consume {s} -g Mutants -t T_normal --from first -n 5",
    "tick {s}",
    "topic {s} create Mutants",
    "group {s} create Mutants",
    "browse {s} --html {p}/page.html",
)

# How many looks each damaged store has, and how many of its files are dumped.
_LOOKS_OF_ONE, _FILES_OF_ONE = 8, 2


def run(seed: int) -> Outcome:
    """Damage a store and type command lines at it."""
    result = Outcome()
    chance = random.Random(f"mutant {seed}")
    name = _ALL[seed % len(_ALL)]
    with copied(unpacked(name)) as root, damaged(root, seed) as words:
        where = f"{name}, seed {seed} ({words})"
        _look(root, chance, result, where)
        judge, line = chance.choice(((_repair, "repair"), *((_write, line) for line in _WRITERS)))
        result.judge(judge(root, line), f"{where}, {line}")
    return result


def _typed(root: Path, line: str) -> forked.Ended:
    return forked.run(_words(root, line))


def _words(root: Path, line: str) -> list[str]:
    return [word.format(s=root, p=root.parent) for word in line.split()]


def _look(root: Path, chance: random.Random, result: Outcome, where: str) -> None:
    """Type looks in one process; only if a byte was changed, ask each again by itself which one did it."""
    lines = chance.sample(_LOOKS, _LOOKS_OF_ONE)
    words = [_words(root, line) for line in lines]
    words += [["dump", str(path), "--json"] for path in _small_files(root, chance)]
    before = snapshot(root.parent)
    for one, ended in zip(words, forked.run_all(words), strict=True):
        tiling = _tiling(json.loads(ended.out)) if one[0] == "dump" and ended.status in (0, 6) else []
        result.judge(ended.unwanted() + tiling, f"{where}, {' '.join(one)}")
    after = snapshot(root.parent)
    if after != before:
        result.failures += [f"{where}: {one}" for one in _changes(before, after)]
        for one in words:
            before = after
            forked.run(one)
            after = snapshot(root.parent)
            result.failures += [f"{where}, {' '.join(one)}: {changed}" for changed in _changes(before, after)]


def _changes(before: dict[str, tuple[int, int, int, str]], after: dict[str, tuple[int, int, int, str]]) -> list[str]:
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [f"changed: {changed[:3]}"] if changed else []


def _small_files(root: Path, chance: random.Random) -> list[Path]:
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size <= 1 << 20)
    return chance.sample(files, min(_FILES_OF_ONE, len(files)))


def _tiling(told: dict[str, object]) -> list[str]:
    """Return where the regions of a file leave bytes out or name them twice."""
    regions = [(one["offset"], one["length"]) for one in told["regions"]]  # type: ignore[attr-defined]
    ends = [(0, 0), *regions, (told["size"], 0)]
    return [f"{told['kind']}: regions do not meet at {b[0]}" for a, b in pairwise(ends) if a[0] + a[1] != b[0]]


def _write(root: Path, line: str) -> list[str]:
    whole = {record.identity for record in _records(root)}
    wrong = _typed(root, line).unwanted()
    missing = whole - {record.identity for record in _records(root)}
    return wrong + ([f"{len(missing)} whole messages are gone, the first at {min(missing)[0]}"] if missing else [])


def _records(root: Path) -> list[reader.Record]:
    """Return the whole records of the store's own log, as far as it is where it is by default."""
    return list(reader.iter_records(reader.tree_of(root, "commitlog")))


def _repair(root: Path, _line: str) -> list[str]:
    before = snapshot(root)
    whole = {record.identity for record in _records(root)}
    lines = "repair {s} --apply --allow state,primary --yes", "repair {s} --json", "repair {s} --undo last"
    done = _typed(root, "repair {s} --apply --allow state,primary")
    wrong = done.unwanted()
    missing = whole - {record.identity for record in _records(root)}
    wrong += [f"{len(missing)} whole messages are gone, the first at {min(missing)[0]}"] if missing else []
    if done.status in (0, 1) and (root.parent / "store-rmqtool-undo").exists():
        again = _typed(root, lines[1])
        steps = json.loads(again.out)["steps"] if again.status in (0, 1) else []
        wrong += [f"the second plan has {len(steps)} steps: {steps[0]['file']}"] if steps else []
        undone = _typed(root, lines[2])
        wrong += undone.unwanted()
        if undone.status == 0:
            wrong += [f"after the undo: {one}" for one in _changes(before, snapshot(root))]
        else:
            wrong.append(f"the undo: status {undone.status}: {undone.err[-200:]!r}")
    shutil.rmtree(root.parent / "store-rmqtool-undo", ignore_errors=True)
    return wrong


Judge = Callable[[Path, str], list[str]]
CAMPAIGN = Campaign("mutated stores", "command lines", 200_000, run)
