"""What the compiled kernel gives for many records, as arrays. Each function answers None where it is not there.

This is the one module between the columns and the kernel: it makes the arrays that are filled. What each function is
the twin of stands beside the call in the module that asks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rmqtool import kernel
from rmqtool.columns.gather import Bytes, Ints
from rmqtool.columns.table import columns_of, new_table
from rmqtool.formats.commit_log import MIN_RECORD_SIZE

# A walk may need so much more room than there are records.
_WALKS = 64


def walked(data: memoryview | Bytes, at: int) -> tuple[Ints, int] | None:
    """Return where records start from ``at`` on, by magic and size, and where that ends."""
    native = kernel.NATIVE
    if native is None or not 0 <= at <= len(data):
        return None
    # Memory that is never written is never there: the room for the smallest records costs nothing.
    starts = np.empty((len(data) - at) // MIN_RECORD_SIZE + _WALKS, np.int64)
    found, at = native.walk(data, at, starts)
    return starts[:found], at


def decoded(data: Bytes, file_offsets: Ints, checks: int) -> dict[str, Any] | None:
    """Return the columns of the records at some offsets, up to the first that is no whole message."""
    native = kernel.NATIVE
    if native is None:
        return None
    capacity = len(file_offsets)
    table = new_table(capacity)
    rows = native.decode(data, np.ascontiguousarray(file_offsets, np.int64), table, 0, checks)
    return columns_of(table, capacity, rows)


def checksums(data: Bytes, offsets: Ints, lengths: Ints) -> npt.NDArray[np.uint32] | None:
    """Return the CRC-32 of the piece of ``data`` at each offset."""
    native = kernel.NATIVE
    if native is None:
        return None
    found = np.empty(len(offsets), np.uint32)
    offsets, lengths = np.ascontiguousarray(offsets, np.int64), np.ascontiguousarray(lengths, np.int64)
    native.crc32_each(data, offsets, lengths, found)
    return found
