"""zlib's and our fastest CRC-32 over the first BYTES of FILE, in the page cache: ``checksums.py FILE BYTES``.

Prints one JSON line: megabytes per second of wall and of CPU time, the best of five.
"""

from __future__ import annotations

import json
import mmap
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from rmqtool.formats.java import fastest_crc32

REPETITIONS = 5


def speeds(name: str, checksum: Callable[[memoryview], int], data: memoryview) -> dict[str, float]:
    """Return the best wall and CPU speed of one checksum."""
    walls, cpus = [], []
    for _ in range(REPETITIONS):
        wall, cpu = time.perf_counter(), time.thread_time()
        checksum(data)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.thread_time() - cpu)
    mega = len(data) / 1e6
    return {f"crc_{name}_MB_s": round(mega / min(walls), 1), f"crc_{name}_cpu_MB_s": round(mega / min(cpus), 1)}


def main(path: str, size: str) -> None:
    """Measure both, on the map and on a copy."""
    found: dict[str, float] = {}
    with (
        Path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
        memoryview(mapped) as whole,
        whole[: int(size)] as data,
    ):
        copy = memoryview(bytes(data))
        for name, checksum in (("zlib", zlib.crc32), ("fastest", fastest_crc32())):
            found |= speeds(f"{name}_mmap", checksum, data) | speeds(f"{name}_bytes", checksum, copy)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
