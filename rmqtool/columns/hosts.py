"""Hosts and offset message ids of many records as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rmqtool.columns.gather import Bytes, Ints, Mask, gather
from rmqtool.columns.pieces import Coded, coded_bytes
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
_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_PLACE = _PREFIX.field("physical_offset")
# An address and, after it, a port.
_SHORT, _LONG = (length + layouts.INT.size for length in (IPV4_LENGTH, IPV6_LENGTH))
# The two hexadecimal digits of each byte as one number of 16 bits, so that one lookup gives both.
_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().upper().encode("ascii"), np.uint16)


def _is_v6(records: Records, which: Which) -> Mask:
    found: Mask = records.column("sys_flag") & int(_V6_BITS[which]) != 0
    return found


def _places(records: Records, which: Which) -> Ints:
    """Return where each address begins; the port is after it."""
    found: Ints = records.file_offsets + _PREFIX.field(f"{which}_ip").offset
    if which == "store_host":
        found += _is_v6(records, "born_host") * (_LONG - _SHORT)
    return found


def coded_hosts(records: Records, which: Which) -> Coded:
    """Return the hosts as a coded column, whose values are texts for people: ``ip:port``."""
    lengths = np.where(_is_v6(records, which), _LONG, _SHORT)
    codes, raw = coded_bytes(records.data, _places(records, which), lengths)
    return Coded(codes, [_format(value) for value in raw])


def _format(value: bytes) -> str:
    (port,) = layouts.INT.unpack_from(value, len(value) - layouts.INT.size)
    return format_host(value[: -layouts.INT.size], port)


def offset_msg_ids(records: Records) -> pa.LargeStringArray:
    """Return the offset message ids: store host and physical offset, 32 hexadecimal digits (56 with IPv6)."""
    is_v6 = _is_v6(records, "store_host")
    short = _ids(records, _SHORT)
    return pc.if_else(pa.array(is_v6), _ids(records, _LONG), short) if is_v6.any() else short


def _ids(records: Records, length: int) -> pa.LargeStringArray:
    """Return the offset message ids of records whose store hosts have ``length`` bytes."""
    hosts = gather(records.data, _places(records, "store_host"), length)
    places = gather(records.data, records.file_offsets + _PLACE.offset, _PLACE.size)
    return hex_texts(np.concatenate((hosts, places), axis=1))


def hex_texts(rows: Bytes) -> pa.LargeStringArray:
    """Return the bytes of each row as upper-case hexadecimal digits."""
    digits = _HEX_PAIRS[rows]
    offsets = np.arange(len(rows) + 1) * 2 * rows.shape[1]
    return pa.Array.from_buffers(pa.large_utf8(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
