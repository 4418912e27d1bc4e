"""Stores with seeded damage, checked one after the other in a process of their own.

python -m tests.support.mutated FIRST LAST    prints one line of JSON: every status that was no answer, and peak memory

A seed decides the store, the file and what is done to it, so each case can be done again by itself.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmqtool.cli import main
from rmqtool.errors import Exit
from tests.support.stores import unpack

STORES = (
    "49-dledger",
    "49-ext",
    "49-lmq",
    "53-epoch",
    "53-crc",
    "53-timer",
    "53-compress",
    "53-rocksdbv2",
    "53-rocksdb",
)
# A check of such a small store takes a part of a second; a loop without end would take longer than any machine is slow.
LONGEST_SECONDS = 120
ANSWERS = {Exit.DONE, Exit.NO, Exit.NOT_A_STORE, Exit.SKIPPED, Exit.OPTIONAL_MISSING}
_LARGEST = 1 << 20
_NUMBERS = (0, 1, -1, 7, 255, 1 << 15, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))


def _flip(chance: random.Random, data: bytearray) -> None:
    for _ in range(chance.choice((1, 1, 1, 8, 100))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _number(chance: random.Random, data: bytearray) -> None:
    """Put a number that hurts where one may stand."""
    form, mask = chance.choice(((">i", 32), (">q", 64), (">h", 16)))
    bits = chance.choice(_NUMBERS) & ((1 << mask) - 1)
    at = chance.randrange(max(len(data) - 8, 1)) & ~chance.choice((0, 3))
    value = struct.pack(form.upper(), bits)
    data[at : at + len(value)] = value


def _zero(chance: random.Random, data: bytearray) -> None:
    at, length = chance.randrange(len(data)), chance.choice((1, 8, 20, 512, 4096, len(data)))
    data[at : at + length] = bytes(len(data[at : at + length]))


def _noise(chance: random.Random, data: bytearray) -> None:
    at, length = chance.randrange(len(data)), chance.choice((4, 20, 512, 4096))
    data[at : at + length] = chance.randbytes(len(data[at : at + length]))


def _move(chance: random.Random, data: bytearray) -> None:
    """Write a piece of the file over another one."""
    length = min(chance.choice((20, 46, 512, 4096)), len(data))
    source, target = chance.randrange(len(data)), chance.randrange(len(data))
    piece = data[source : source + length]
    data[target : target + len(piece)] = piece


def _cut(chance: random.Random, data: bytearray) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _grow(chance: random.Random, data: bytearray) -> None:
    data += chance.randbytes(chance.choice((1, 20, 4096))) if chance.random() < 0.5 else bytes(4096)


def _drop(chance: random.Random, data: bytearray) -> None:
    """Take some bytes out, so that everything behind them moves."""
    at = chance.randrange(len(data))
    del data[at : at + chance.choice((1, 4, 20, 91))]


FAULTS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    *(_flip,) * 4,
    *(_number,) * 4,
    _zero,
    _noise,
    _move,
    _cut,
    _grow,
    _drop,
)


@contextmanager
def damaged(root: Path, seed: int) -> Iterator[str]:
    """Damage one to three files of a store for a while; give the words for what was done."""
    chance = random.Random(seed)
    files = sorted(path for path in root.rglob("*") if path.is_file() and 0 < path.stat().st_size <= _LARGEST)
    kept: dict[Path, bytes] = {}
    words = []
    try:
        for _ in range(chance.choice((1, 1, 2, 3))):
            path, fault = chance.choice(files), chance.choice(FAULTS)
            data = bytearray(path.read_bytes())
            kept.setdefault(path, bytes(data))
            if data:
                fault(chance, data)
                path.write_bytes(data)
                words.append(f"{fault.__name__.strip('_')} {path.relative_to(root)}")
        yield ", ".join(words)
    finally:
        for path, before in kept.items():
            path.write_bytes(before)


def check_seeds(first: int, last: int, directory: Path) -> list[str]:
    """Check the stores of all seeds, and say which ended in no answer."""
    wrong = []
    for seed in range(first, last):
        name = STORES[seed % len(STORES)]
        target = directory / name
        root = target / "store" if target.exists() else unpack(name, target)
        with damaged(root, seed) as words:
            faulthandler.dump_traceback_later(LONGEST_SECONDS, exit=True)
            depth = ["--deep"] if seed % 3 == 0 else []
            status = main(["check", str(root), "--jsonl", "--quiet", "-j", "1", *depth])
            faulthandler.cancel_dump_traceback_later()
        if status not in ANSWERS:
            wrong.append(f"seed {seed}, {name}: {words}: status {status}")
    return wrong


def peak_mib() -> int:
    """Return the most memory that this process ever had; what getrusage says begins with that of its parent."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    raise AssertionError("the kernel does not tell the peak of memory")


if __name__ == "__main__":
    result = os.fdopen(os.dup(1), "w")
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (until the end)
    with tempfile.TemporaryDirectory(prefix="rmqtool-mutated-") as place:
        failures = check_seeds(int(sys.argv[1]), int(sys.argv[2]), Path(place))
    print(json.dumps({"wrong": failures, "peakMiB": peak_mib()}), file=result, flush=True)
