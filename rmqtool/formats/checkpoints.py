"""Pages of 4096 bytes with a few 64-bit numbers: ``checkpoint`` and ``config/timercheck``.

``checkpoint`` (0 to 40): the log is flushed up to this store time, the queues are, the end of the newest full index
file, the master's flushed offset (from 5.0.0), the confirmed offset (from 5.1.1). ``timercheck`` (0 to 56): last time
read, flushed position of the timer log, next offset of the timer topic, the master's, then a data version of three
numbers. Zeros fill the page.

Older versions leave the later fields zero. A file that is shorter than its fields reads as zeros after its end, as a
mapped page does. Upstream: ``StoreCheckpoint``, ``TimerCheckpoint``.
"""

from __future__ import annotations

from typing import TypeVar

from rmqtool.formats import layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import int64
from rmqtool.formats.layout import Buffer, Layout

PAGE_SIZE = 4096

# Recovery steps back this far from the times in the checkpoint.
SLACK_MS = 3000

Page = TypeVar("Page", layouts.StoreCheckpoint, layouts.TimerCheckpoint)


def _decode(layout: Layout[Page], data: Buffer) -> Page:
    return layout.decode(bytes(data[: layout.size]).ljust(layout.size, b"\0"))


def decode_checkpoint(data: Buffer) -> layouts.StoreCheckpoint:
    """Return the fields of ``checkpoint``."""
    return _decode(layouts.STORE_CHECKPOINT, data)


def encode_checkpoint(checkpoint: layouts.StoreCheckpoint) -> bytes:
    """Return the page of a checkpoint."""
    return layouts.STORE_CHECKPOINT.encode(checkpoint).ljust(PAGE_SIZE, b"\0")


def decode_timer_checkpoint(data: Buffer) -> layouts.TimerCheckpoint:
    """Return the fields of ``timercheck``."""
    return _decode(layouts.TIMER_CHECKPOINT, data)


def encode_timer_checkpoint(checkpoint: layouts.TimerCheckpoint) -> bytes:
    """Return the page of a timer checkpoint."""
    return layouts.TIMER_CHECKPOINT.encode(checkpoint).ljust(PAGE_SIZE, b"\0")


def min_timestamp(checkpoint: layouts.StoreCheckpoint) -> int:
    """Return the time from which a broker replays after a crash."""
    return max(0, int64(min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - SLACK_MS))


def check_checkpoint(data: Buffer) -> Flaw | None:
    """Return what is wrong with the page itself, whatever its times."""
    if len(data) != PAGE_SIZE:
        return Flaw("CP-BAD", f"{len(data)} bytes, a checkpoint has {PAGE_SIZE}", 0, len(data))
    rest = bytes(data[layouts.STORE_CHECKPOINT.size :])
    if rest.strip(b"\0"):
        at = layouts.STORE_CHECKPOINT.size + len(rest) - len(rest.lstrip(b"\0"))
        return Flaw("CP-BAD", "bytes after the last field are not zero", at, len(rest.strip(b"\0")))
    negative = [name for name, value in decode_checkpoint(data)._asdict().items() if value < 0]
    if negative:
        return Flaw("CP-BAD", f"negative: {', '.join(negative)}", 0, layouts.STORE_CHECKPOINT.size)
    return None
