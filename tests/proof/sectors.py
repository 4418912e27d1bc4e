"""Sectors that the disk cannot read: each costs the records that touch it, and no other, in every command.

Which records those are says the independent reader, which reads the same files from a sound disk.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tests.proof import forked, reader
from tests.proof.campaign import Campaign, Outcome
from tests.proof.workshop import unpacked, workshop
from tests.support.bad_sectors import failing_reads

SECTOR = 4096
STORES = (
    "49-broker",
    "49-basic",
    "49-killed-torn",
    "49-compressed-batch",
    "49-ipv6",
    "49-multidir",
    "53-basic",
    "53-broker",
    "53-crc",
    "53-epoch",
    "54-basic",
    "54-broker",
)


@lru_cache(maxsize=len(STORES))
def _sectors(name: str) -> list[tuple[Path, int]]:
    """Return each sector of a store's log that has data: its file and its place."""
    root = unpacked(name) / "store"
    found = []
    for path in sorted(root.glob("commitlog*/*")) + sorted(root.glob("*/commitlog*/*")):
        if path.is_file() and len(path.name) == 20:
            data = path.read_bytes()
            places = range(0, len(data), SECTOR)
            found += [(path, at) for at in places if data[at : at + SECTOR].strip(b"\0")]
    return found


def _spoil(path: Path, begin: int) -> Callable[[], None]:
    """Return what lets reading of one sector fail in the process that calls it."""
    reading = failing_reads(path, (begin, begin + SECTOR))

    def spoil() -> None:
        os.pread, os.preadv = reading  # type: ignore[assignment]

    return spoil


def _told(ended: forked.Ended) -> set[int]:
    """Return the places of the messages among the lines that a command printed."""
    lines = [json.loads(line) for line in ended.out.splitlines()]
    return {line["commitLogOffset"] for line in lines if "commitLogOffset" in line}


def _cat(root: Path, kept: set[int], spoil: Callable[[], None]) -> list[str]:
    ended = forked.run(["cat", str(root), "--jsonl", "-j", "1"], prepare=spoil)
    wrong = ended.unwanted() + ([] if ended.status == 6 else [f"cat: status {ended.status}"])
    return wrong + _compared("cat", _told(ended), kept)


def _salvage(root: Path, kept: set[int], spoil: Callable[[], None]) -> list[str]:
    target = workshop() / "salvaged"
    try:
        ended = forked.run(["copy", str(root), str(target), "--salvage"], prepare=spoil)
        wrong = ended.unwanted() + (
            [] if ended.status == 6 else [f"copy --salvage: status {ended.status}: {ended.err[-400:]!r}"]
        )
        left = list(reader.iter_records(reader.tree_of(target)))
        # A copy gives messages new places: they are counted.
        return wrong + ([] if len(left) == len(kept) else [f"copy --salvage kept {len(left)} of {len(kept)}"])
    finally:
        for path in workshop().glob("salvaged*"):
            shutil.rmtree(path)


def _check(root: Path, kept: set[int], spoil: Callable[[], None]) -> list[str]:
    ended = forked.run(["check", str(root), "--jsonl", "-j", "1"], prepare=spoil)
    *findings, summary = [json.loads(line) for line in ended.out.splitlines()]
    wrong = ended.unwanted() + ([] if ended.status == 6 else [f"check: status {ended.status}"])
    if "ST-READ" not in {one["code"] for one in findings}:
        wrong.append("check does not name the sector")
    if summary["summary"]["messages"] != len(kept):
        wrong.append(f"check counts {summary['summary']['messages']} messages of {len(kept)}")
    return wrong


def _compared(command: str, told: set[int], kept: set[int]) -> list[str]:
    wrong = [f"{command} lost {sorted(kept - told)[:3]}"] if kept - told else []
    return wrong + ([f"{command} shows {sorted(told - kept)[:3]}, which cannot be read"] if told - kept else [])


_COMMANDS = (_cat, _check, _cat, _salvage)


def run(seed: int) -> Outcome:
    """Spoil one sector of one store, and ask one command."""
    result = Outcome()
    name, turn = STORES[seed % len(STORES)], seed // len(STORES)
    path, begin = _sectors(name)[turn % len(_sectors(name))]
    command = _COMMANDS[turn // len(_sectors(name)) % len(_COMMANDS)]
    root = unpacked(name) / "store"
    base = int(path.name)
    kept = set()
    for one in _records(name):
        in_file = one.physical_offset - base
        if not (begin - one.size < in_file < begin + SECTOR):
            kept.add(one.physical_offset)
    found = command(root, kept, _spoil(path, begin))
    result.judge(found, f"{name}, seed {seed}, sector {path.name}@{begin}, {command.__name__.strip('_')}")
    return result


@lru_cache(maxsize=len(STORES))
def _records(name: str) -> list[reader.Record]:
    root = unpacked(name) / "store"
    found = []
    for directory in sorted({path.parent for path, _ in _sectors(name)}):
        part = str(directory.relative_to(root))
        found += list(reader.iter_records(reader.tree_of(root, part), part))
    return found


CAMPAIGN = Campaign("bad sectors", "sectors", 16_384, run)
