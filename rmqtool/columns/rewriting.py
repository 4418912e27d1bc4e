"""Whole records on their way to another place: packed back to back, single fields of all of them overwritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rmqtool.columns.checksums import CRC32
from rmqtool.columns.gather import Bytes, Ints, Mask, windows
from rmqtool.columns.records import Records
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.properties import CRC_BLOCK_LENGTH, NAME_VALUE_SEPARATOR, encode_property_crc
from rmqtool.formats.property_names import PROPERTY_CRC32

_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_CRC_MASK = 0x7FFFFFFF
# The beginning of a property checksum, which seals the record before it.
_SEAL = f"{PROPERTY_CRC32}{NAME_VALUE_SEPARATOR}".encode("ascii")


@dataclass(slots=True)
class Packed:
    """Records back to back in a buffer of their own: row i begins at ``starts[i]``.

    The places of the fields after the hosts depend on ``host_bits``. The records that are ``is_sealed`` end with a
    checksum of themselves, which is wrong as soon as a field changes; ``seal`` computes it again.
    ``last_store_timestamp`` (ms) is that of the last record that was packed, in a ``part`` too.
    """

    data: Bytes
    starts: Ints
    sizes: Ints
    host_bits: Ints
    is_sealed: Mask
    last_store_timestamp: int

    def __len__(self) -> int:
        return len(self.starts)

    def part(self, begin: int, end: int) -> Packed:
        """Return the records from row ``begin`` to before row ``end``; they share the buffer with these."""
        first = int(self.starts[begin])
        last = int(self.starts[end - 1] + self.sizes[end - 1])
        rows = slice(begin, end)
        return Packed(
            self.data[first:last],
            self.starts[rows] - first,
            self.sizes[rows],
            self.host_bits[rows],
            self.is_sealed[rows],
            self.last_store_timestamp,
        )

    def put(self, name: str, values: Any, rows: Ints | None = None) -> None:
        """Write a number field of all records, or of some rows: ``values`` has one number for each of them."""
        every = np.arange(len(self)) if rows is None else rows
        bits = self.host_bits[every]
        for which, layout in PREFIXES.items():
            chosen = np.flatnonzero(bits == which)
            if len(chosen):
                where, dtype = layout.field(name), dict(layout.dtype())[name]
                stored = np.ascontiguousarray(np.asarray(values)[chosen].astype(dtype)).view(f"V{where.size}")
                windows(self.data, where.size)[self.starts[every[chosen]] + where.offset] = stored

    def seal(self) -> None:
        """Compute the checksums of sealed records again, after fields were changed."""
        data: Any = self.data.data
        for row in np.flatnonzero(self.is_sealed).tolist():
            begin = int(self.starts[row])
            end = begin + int(self.sizes[row])
            at = end - CRC_BLOCK_LENGTH
            self.data[at:end] = np.frombuffer(encode_property_crc(CRC32(data[begin:at]) & _CRC_MASK), np.uint8)


def pack(records: Records) -> Packed:
    """Return the bytes of ``records``, at least one, in their order, in a buffer that may be changed."""
    sizes = records.column("total_size").astype(np.int64)
    ends = records.file_offsets + sizes
    breaks = np.flatnonzero(records.file_offsets[1:] != ends[:-1]) + 1
    begins = records.file_offsets[np.append(0, breaks)].tolist()
    lasts = ends[np.append(breaks, len(ends)) - 1].tolist()
    # Neighbours are copied together. np.concatenate copies even a single piece, so the buffer can be changed.
    data = np.concatenate([records.data[begin:end] for begin, end in zip(begins, lasts, strict=True)])
    return Packed(
        data,
        np.cumsum(sizes) - sizes,
        sizes,
        records.column("sys_flag").astype(np.int64) & _HOST_BITS,
        _are_sealed(records, ends),
        int(records.column("store_timestamp")[-1]),
    )


def _are_sealed(records: Records, ends: Ints) -> Mask:
    """Return which records end with a property checksum, by its name; its digits are not looked at."""
    found = records.properties_lengths >= CRC_BLOCK_LENGTH
    rows = np.flatnonzero(found)
    if len(rows):
        names = windows(records.data, len(_SEAL))[ends[rows] - CRC_BLOCK_LENGTH].view(f"S{len(_SEAL)}")
        found[rows] = names == _SEAL
    return found
