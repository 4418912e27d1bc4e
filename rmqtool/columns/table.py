"""The table of columns that the kernel fills: one buffer, column after column, the widest first."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# The list of native/table.h. A test compares the two.
_LONGS = (
    *("file_offset", "physical_offset", "queue_offset", "born_timestamp", "store_timestamp"),
    *("prepared_transaction_offset", "body_offset", "topic_offset", "properties_offset"),
    *("body_length", "topic_length", "properties_length"),
)
_INTS = (
    *("total_size", "magic", "body_crc", "queue_id", "flag", "sys_flag"),
    *("born_host_port", "store_host_port", "reconsume_times"),
)
COLUMNS: tuple[tuple[str, Any], ...] = (
    *((name, np.int64) for name in _LONGS),
    *((name, np.uint32 if name == "magic" else np.int32) for name in _INTS),
    ("wrong", np.uint8),
)
ROW_SIZE = sum(np.dtype(kind).itemsize for _, kind in COLUMNS)

# Failed checks of a structurally whole record, as bits of the column ``wrong``.
WRONG_CRC, WRONG_PLACE, WRONG_TIME, WRONG_PROPERTY_CRC = 1, 2, 4, 8


def new_table(capacity: int) -> npt.NDArray[np.uint8]:
    """Return a buffer for ``capacity`` rows; its bytes are undefined."""
    return np.empty(capacity * ROW_SIZE, np.uint8)


def columns_of(table: npt.NDArray[np.uint8], capacity: int, rows: int) -> dict[str, Any]:
    """Return the columns of the first ``rows`` rows by name, as views; each column has room for ``capacity`` rows."""
    found, at = {}, 0
    for name, kind in COLUMNS:
        size = np.dtype(kind).itemsize
        found[name] = table[at : at + rows * size].view(kind)
        at += capacity * size
    return found
