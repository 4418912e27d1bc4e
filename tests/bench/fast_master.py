"""A master that sends its log as fast as the connection takes it, in a process of its own.

    python -m tests.bench.fast_master MEGABYTES

It prints the port of its broker when it is ready. Its log is one segment of records, sent again and again with other
physical offsets in the headers of frames; a mirror never looks into records while it follows.
"""

from __future__ import annotations

import asyncio
import struct
import sys

from tests.support.builders import record
from tests.support.scripted_master import KEYS, ScriptedMaster

SEGMENT = 1 << 30
BATCH = 32 << 10


class FastMaster(ScriptedMaster):
    """Sends a log of a given size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        one = record(b"x" * 1000, b"T", KEYS)
        self.batch = (one * (BATCH // len(one) + 1))[:BATCH]

    def _state(self) -> dict[str, str]:
        return {"brokerVersionDesc": "V5_3_3", "commitLogMinOffset": "0", "commitLogMaxOffset": str(self.size)}

    def _settings(self) -> str:
        return super()._settings().replace(f"CommitLog={1 << 16}", f"CommitLog={SEGMENT}")

    async def _send_from(self, at: int, writer: asyncio.StreamWriter, left: int | None) -> None:
        while at < self.size:
            frames = []
            for _ in range(32):
                end = min(self.size, at + BATCH, at - at % SEGMENT + SEGMENT)
                frames += [struct.pack(">qi", at, end - at), self.batch[: end - at]]
                at = end
            writer.write(b"".join(frames))
            await writer.drain()
        while not writer.is_closing():
            writer.write(struct.pack(">qi", at, 0))
            await asyncio.sleep(0.05)


async def _main(megabytes: int) -> None:
    master = FastMaster(megabytes << 20)
    await master.start()
    print(master.address, flush=True)
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
