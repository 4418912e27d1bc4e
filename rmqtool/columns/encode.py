"""Whole records, many at once: new ones encoded as a slab of bytes, stored ones packed and changed for another place.

A slab is filled column by column and joined once. Slabs of some MiB are best: the memory of a larger one is new pages
each time, that of a smaller one is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rmqtool.columns.checksums import CRC32, Crc32
from rmqtool.columns.compiled import slab
from rmqtool.columns.gather import Bytes, Ints, Mask, windows
from rmqtool.columns.records import Records
from rmqtool.formats import layouts
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, SysFlag
from rmqtool.formats.commit_log import PREFIXES
from rmqtool.formats.properties import CRC_BLOCK_LENGTH, NAME_VALUE_SEPARATOR, encode_property_crc
from rmqtool.formats.property_names import PROPERTY_CRC32

Numbers: TypeAlias = npt.NDArray[np.integer] | int
# An address of 4 or 16 bytes, and a port.
Host: TypeAlias = tuple[bytes, int]

_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
# A record keeps 31 bits of the checksum.
_CRC_MASK = 0x7FFFFFFF


@dataclass(slots=True)
class Outgoing:
    """Messages to encode, by columns; a number in place of an array holds for all of them.

    ``tails`` have the bytes after the body of each record: topic and properties, each after its length. Hosts are
    address and port; the host bits of ``sys_flags`` say which are IPv6. A single born host holds for all messages.
    Without ``body_crcs`` (31 bits) they are computed.
    """

    bodies: Sequence[bytes]
    tails: Sequence[bytes]
    queue_ids: Numbers
    queue_offsets: Numbers
    born_timestamps: Numbers
    store_timestamps: Numbers
    born_hosts: Sequence[Host]
    store_host: Host
    magics: Numbers = MESSAGE_MAGIC_V1
    flags: Numbers = 0
    sys_flags: Numbers = 0
    reconsume_times: Numbers = 0
    prepared_transaction_offsets: Numbers = 0
    body_crcs: Ints | None = None

    def __len__(self) -> int:
        return len(self.bodies)


class Slab(NamedTuple):
    """Encoded records back to back, and the place of each in the log."""

    data: bytes | bytearray
    physical_offsets: Ints
    sizes: Ints


def record_sizes(outgoing: Outgoing) -> Ints:
    """Return the size that each record will have: prefix by its host bits, body, tail."""
    prefixes = np.zeros(_HOST_BITS + 1, np.int64)
    for bits, layout in PREFIXES.items():
        prefixes[bits] = layout.size
    sizes: Ints = prefixes[outgoing.sys_flags & np.int64(_HOST_BITS)] + _lengths(outgoing.bodies)
    return sizes + _lengths(outgoing.tails)


def _lengths(texts: Sequence[bytes]) -> Ints:
    return np.fromiter(map(len, texts), np.int64, len(texts))


def encode_records(outgoing: Outgoing, physical_offset: int, crc32: Crc32 | None = None) -> Slab:
    """Return the records of ``outgoing`` back to back, the first at ``physical_offset`` of the log.

    ``crc32`` replaces the function that computes checksums of bodies. Property checksums are not computed: a tail that
    ends with one stays as it is.
    """
    if outgoing.body_crcs is None and crc32 is None and (made := _compiled(outgoing, physical_offset)) is not None:
        return made
    count = len(outgoing)
    sizes = record_sizes(outgoing)
    places = physical_offset + np.cumsum(sizes) - sizes
    crcs = outgoing.body_crcs
    if crcs is None:
        of = crc32 or CRC32
        crcs = np.fromiter([of(body) for body in outgoing.bodies], np.int64, count) & _CRC_MASK
    # Prefix, body and tail of each record in turn, for one join.
    parts: list[bytes] = [b""] * (3 * count)
    columns = _prefix_columns(outgoing, sizes, places, crcs)
    host_bits = np.broadcast_to(outgoing.sys_flags & np.int64(_HOST_BITS), count)
    for bits, layout in PREFIXES.items():
        rows = np.flatnonzero(host_bits == bits)
        if len(rows):
            prefixes = np.empty(len(rows), layout.dtype())
            for name, column in columns.items():
                prefixes[name] = column[rows] if isinstance(column, np.ndarray) else column
            _put_hosts(prefixes, outgoing, rows)
            # One copy of all prefixes, cut at their common size: faster than a copy of each.
            heads = prefixes.tobytes()
            cut = [heads[at : at + layout.size] for at in range(0, len(heads), layout.size)]
            if len(rows) == count:
                parts[0::3] = cut
            else:
                for row, head in zip(rows.tolist(), cut, strict=True):
                    parts[3 * row] = head
    parts[1::3] = outgoing.bodies
    parts[2::3] = outgoing.tails
    return Slab(b"".join(parts), places, sizes)


def _compiled(outgoing: Outgoing, physical_offset: int) -> Slab | None:
    """Return the slab of ``encode_records``, made by the kernel; None without it.

    The kernel takes the host bits from the lengths of the addresses.
    """
    numbers = (
        *(outgoing.magics, outgoing.queue_ids, outgoing.flags, outgoing.queue_offsets, outgoing.sys_flags),
        *(outgoing.born_timestamps, outgoing.store_timestamps),
        *(outgoing.reconsume_times, outgoing.prepared_transaction_offsets),
    )
    port = layouts.INT.packer.pack
    hosts = [address + port(number) for address, number in (*outgoing.born_hosts, outgoing.store_host)]
    made = slab(list(outgoing.bodies), list(outgoing.tails), numbers, hosts, physical_offset)
    if made is None:
        return None
    data, sizes = made
    return Slab(data, physical_offset + np.cumsum(sizes) - sizes, sizes)


def _prefix_columns(outgoing: Outgoing, sizes: Ints, places: Ints, crcs: Ints) -> dict[str, Numbers]:
    """Return the number fields of all prefixes by name. The hosts, with their ports, are added by ``_put_hosts``."""
    return {
        "total_size": sizes,
        "magic": outgoing.magics,
        "body_crc": crcs,
        "queue_id": outgoing.queue_ids,
        "flag": outgoing.flags,
        "queue_offset": outgoing.queue_offsets,
        "physical_offset": places,
        "sys_flag": outgoing.sys_flags,
        "born_timestamp": outgoing.born_timestamps,
        "store_timestamp": outgoing.store_timestamps,
        "reconsume_times": outgoing.reconsume_times,
        "prepared_transaction_offset": outgoing.prepared_transaction_offsets,
        "body_length": _lengths(outgoing.bodies),
    }


def _put_hosts(prefixes: npt.NDArray[np.void], outgoing: Outgoing, rows: Ints) -> None:
    """Fill the hosts of some rows into their prefixes, which all have addresses of the same lengths."""
    born = outgoing.born_hosts
    of_rows = born if len(born) == 1 else [born[row] for row in rows.tolist()]
    for which, hosts in (("born_host", of_rows), ("store_host", [outgoing.store_host])):
        address = prefixes[f"{which}_ip"]
        address[:] = np.frombuffer(b"".join(host[0] for host in hosts), address.dtype)
        prefixes[f"{which}_port"] = [host[1] for host in hosts]


# The beginning of a property checksum, which seals the record before it.
_SEAL = f"{PROPERTY_CRC32}{NAME_VALUE_SEPARATOR}".encode("ascii")


@dataclass(slots=True)
class Packed:
    """Records back to back in a buffer of their own: row i begins at ``starts[i]``.

    The places of the fields after the hosts depend on ``host_bits``. The records that are ``is_sealed`` end with a
    checksum of themselves, which is wrong as soon as a field changes; ``seal`` computes it again.
    ``last_store_timestamp`` (ms) is that of the last record that was packed, even in a ``part`` without that record.
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
        """Return the records from row ``begin`` to before ``end``, at least one; they share the buffer with these."""
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
