"""Hosts and offset message ids of many records as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rmqtool.columns.gather import Bytes, Mask
from rmqtool.columns.pieces import Coded, coded
from rmqtool.columns.records import Records
from rmqtool.formats import layouts
from rmqtool.formats.codes import SysFlag
from rmqtool.formats.hosts import IPV4_LENGTH, IPV6_LENGTH, format_host

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    from rmqtool.columns.arrow import pa, pc

Which = Literal["born_host", "store_host"]

_V6_BITS = {"born_host": SysFlag.BORN_HOST_V6, "store_host": SysFlag.STORE_HOST_V6}
# The two hexadecimal digits of each byte as one number of 16 bits, so that one lookup gives both.
_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().upper().encode("ascii"), np.uint16)


def _field_bytes(records: Records, name: str) -> Bytes:
    """Return the stored bytes of a field as the rows of a matrix."""
    column = np.ascontiguousarray(records.prefixes[name])
    return column.view(np.uint8).reshape(len(records), -1)


def _is_v6(records: Records, which: Which) -> Mask:
    found: Mask = records.column("sys_flag") & int(_V6_BITS[which]) != 0
    return found


def coded_hosts(records: Records, which: Which) -> Coded:
    """Return the hosts as a coded column, whose values are texts for people: ``ip:port``."""
    # The bytes that tell two hosts apart: address, port, and whether the address is IPv6.
    parts = (
        _field_bytes(records, f"{which}_ip"),
        _field_bytes(records, f"{which}_port"),
        _is_v6(records, which).view(np.uint8)[:, None],
    )
    rows = np.concatenate(parts, axis=1)
    if len(rows) and (rows == rows[0]).all():
        return Coded(np.zeros(len(rows), np.int32), [_format(rows[0].tobytes())])
    column = pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])
    found = coded(column)
    return Coded(found.codes, [_format(value) for value in found.values])


def _format(value: bytes) -> str:
    """Return ``ip:port`` of a row: the address, padded to 16 bytes if any is IPv6, the port (4), 1 for IPv6 (1)."""
    address, is_v6 = value[: -layouts.INT.size - 1], value[-1]
    (port,) = layouts.INT.unpack_from(value, len(address))
    return format_host(address[: IPV6_LENGTH if is_v6 else IPV4_LENGTH], port)


def offset_msg_ids(records: Records) -> pa.LargeStringArray:
    """Return the offset message ids: store host and physical offset, 32 hexadecimal digits (56 with IPv6)."""
    fields = [_field_bytes(records, name) for name in ("store_host_ip", "store_host_port", "physical_offset")]
    is_v6 = _is_v6(records, "store_host")
    if not is_v6.any():
        return hex_texts(np.concatenate((fields[0][:, :IPV4_LENGTH], *fields[1:]), axis=1))
    long = hex_texts(np.concatenate(fields, axis=1))
    short = hex_texts(np.concatenate((fields[0][:, :IPV4_LENGTH], *fields[1:]), axis=1))
    return pc.if_else(pa.array(is_v6), long, short)


def hex_texts(rows: Bytes) -> pa.LargeStringArray:
    """Return the bytes of each row as upper-case hexadecimal digits."""
    digits = _HEX_PAIRS[rows]
    offsets = np.arange(len(rows) + 1) * 2 * rows.shape[1]
    return pa.Array.from_buffers(pa.large_utf8(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
