"""Checkpoint pages: ``checkpoint`` and ``config/timercheck``.

They have 4096 bytes each: big-endian 64-bit numbers, then zeros.

``checkpoint``, written by a broker after a flush::

    0   8  store time up to which the commit log is on disk, ms    24  8  the master's flushed offset, from 5.0.0
    8   8  the same of the consume queues                          32  8  confirmed offset, from 5.1.1
    16  8  end time of the newest full index file

``timercheck``::

    0   8  time up to which the timer has delivered, ms            24  8  the master's offset of the timer topic
    8   8  position up to which the timer log is on disk           32  8  data version: state version
    16  8  queue offset in the timer topic that is read next       40  8  data version: time, ms
                                                                   48  8  data version: counter

Older versions leave the later fields zero. A file that is shorter than its fields reads as zeros after its end, as a
mapped page does. Upstream: ``StoreCheckpoint``, ``TimerCheckpoint``.
"""

from __future__ import annotations

from typing import TypeVar

from rmqtool.formats import layouts
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.java import int64
from rmqtool.formats.layout import Buffer, Layout

# A broker maps one page, and writes and syncs the whole of it.
PAGE_SIZE = 4096

# A broker's recovery begins this many ms before the times in the checkpoint. upstream: StoreCheckpoint.getMinTimestamp
SLACK_MS = 3000

Page = TypeVar("Page", layouts.StoreCheckpoint, layouts.TimerCheckpoint)


def _decode(layout: Layout[Page], data: Buffer) -> Page:
    return layout.decode(bytes(data[: layout.size]).ljust(layout.size, b"\0"))


def decode_checkpoint(data: Buffer) -> layouts.StoreCheckpoint:
    """Return the fields of a checkpoint; ``data`` that ends early is read as if zeros followed."""
    return _decode(layouts.STORE_CHECKPOINT, data)


def encode_checkpoint(checkpoint: layouts.StoreCheckpoint) -> bytes:
    """Return the page of a checkpoint: the fields, then zeros up to ``PAGE_SIZE``."""
    return layouts.STORE_CHECKPOINT.encode(checkpoint).ljust(PAGE_SIZE, b"\0")


def decode_timer_checkpoint(data: Buffer) -> layouts.TimerCheckpoint:
    """Return the fields of a timer checkpoint; ``data`` that ends early is read as if zeros followed."""
    return _decode(layouts.TIMER_CHECKPOINT, data)


def encode_timer_checkpoint(checkpoint: layouts.TimerCheckpoint) -> bytes:
    """Return the page of a timer checkpoint: the fields, then zeros up to ``PAGE_SIZE``."""
    return layouts.TIMER_CHECKPOINT.encode(checkpoint).ljust(PAGE_SIZE, b"\0")


def min_timestamp(checkpoint: layouts.StoreCheckpoint) -> int:
    """Return the store time (ms) from which a broker dispatches again after a crash.

    It is never negative. The time of the index is left out: a broker adds it only where its settings make recovery look
    at the index.
    """
    return max(0, int64(min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - SLACK_MS))


def check_checkpoint(data: Buffer) -> Flaw | None:
    """Return what is wrong with the page, or None; its times are not compared with the store."""
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
