"""Columns of message records: every fixed field, and the places of body, topic and properties.

The structural checks are those of ``formats.decode_record``, for all records at once. The columns end before the first
record that it would not call a message, and the reason is returned. Checksums and places are masks beside the columns:
the caller judges them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqtool.columns.checksums import Crc32, crc32_each
from rmqtool.columns.compiled import WRONG_CRC, WRONG_PROPERTY_CRC, decoded
from rmqtool.columns.gather import Bytes, Ints, Mask, as_bytes, gather, windows
from rmqtool.columns.pieces import Coded, coded_texts
from rmqtool.columns.starts import Declined
from rmqtool.formats import layouts
from rmqtool.formats.bridges import QUARANTINE
from rmqtool.formats.codes import MESSAGE_MAGIC_V1, MESSAGE_MAGIC_V2, TRANSACTION_MASK, SysFlag, TransactionType
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, PREFIXES, Blank, Message, Nothing, decode_record
from rmqtool.formats.flaws import Flaw
from rmqtool.formats.layout import Buffer
from rmqtool.formats.properties import CRC_BLOCK_LENGTH, CRC_DIGITS, NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.formats.property_names import PROPERTY_CRC32

# The fixed part of a record with two IPv4 hosts, and with two IPv6 hosts.
_SHORT_PREFIX = layouts.MESSAGE_PREFIX_V4V4
_WIDE_PREFIX = layouts.MESSAGE_PREFIX_V6V6
_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_SHORT_DTYPE, _WIDE_DTYPE = (np.dtype(prefix.dtype()) for prefix in (_SHORT_PREFIX, _WIDE_PREFIX))
# Fields that are only compared stay in the byte order of the file, and so do the values they are compared with.
_NATIVE_DTYPE = _SHORT_DTYPE.newbyteorder("=")
_NATIVE_V1, _NATIVE_V2, _NATIVE_HOST_BITS = (
    np.array([value], _SHORT_DTYPE[name]).view(_NATIVE_DTYPE[name])[0]
    for name, value in (("magic", MESSAGE_MAGIC_V1), ("magic", MESSAGE_MAGIC_V2), ("sys_flag", _HOST_BITS))
)
_LENGTH_SIZE = layouts.SHORT.size
_LENGTH = np.dtype(layouts.SHORT.dtype()[0][1])
# A record keeps 31 bits of the checksum.
_CRC_MASK = 0x7FFFFFFF


class Columns(dict[str, Any]):
    """Columns by name, each made when it is first asked for."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[str], Any], known: dict[str, Any] | None = None) -> None:
        super().__init__(known or {})
        self.make = make

    def __missing__(self, name: str) -> Any:
        found = self[name] = self.make(name)
        return found


@dataclass(slots=True)
class Records:
    """Columns of whole message records: row i is the record at ``file_offsets[i]`` of ``data``.

    ``columns`` are the number fields of the prefix. ``checked`` has the bits ``WRONG_...`` for the checks that were
    made; their results are the column ``wrong``.
    """

    data: Bytes
    file_offsets: Ints
    columns: Columns = field(repr=False)
    body_offsets: Ints
    topic_offsets: Ints
    topic_lengths: Ints
    properties_offsets: Ints
    properties_lengths: Ints
    checked: int = 0
    _prefixes: npt.NDArray[np.void] | None = field(default=None, repr=False)
    # Results that other modules computed from the records, by name, kept so that they are computed once.
    made: dict[str, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.file_offsets)

    @property
    def prefixes(self) -> npt.NDArray[np.void]:
        """The fixed fields as stored. If one record has an IPv6 host, all addresses have room for sixteen bytes."""
        if self._prefixes is None:
            self._prefixes, _ = _gather_prefixes(self.data, self.file_offsets, len(self.data) - self.file_offsets)
        return self._prefixes

    def column(self, name: str) -> Any:
        """Return a number field of the prefix as a contiguous array in the machine's byte order."""
        return self.columns[name]

    def is_right(self, check: int) -> Mask | None:
        """Return which records pass a check that was made when they were decoded; None where it was not made."""
        return self.columns["wrong"] & check == 0 if self.checked & check else None

    @property
    def topics(self) -> Coded:
        """The topics as numbers of the distinct ones, computed once."""
        if "topics" not in self.made:
            self.made["topics"] = coded_texts(self.data, self.topic_offsets, self.topic_lengths)
        topics: Coded = self.made["topics"]
        return topics

    @property
    def body_lengths(self) -> Ints:
        """The lengths of the stored bodies in bytes, as 64-bit numbers so that sums do not overflow."""
        lengths: Ints = self.column("body_length").astype(np.int64, copy=False)
        return lengths

    def select(self, rows: Ints | Mask | slice) -> Records:
        """Return the columns of some rows, in the order of ``rows``; results in ``made`` are not taken over."""
        columns = self.columns
        return Records(
            self.data,
            self.file_offsets[rows],
            Columns(lambda name: columns[name][rows]),
            self.body_offsets[rows],
            self.topic_offsets[rows],
            self.topic_lengths[rows],
            self.properties_offsets[rows],
            self.properties_lengths[rows],
            self.checked,
            None if self._prefixes is None else self._prefixes[rows],
        )


def decode_records(
    data: Buffer, file_offsets: Ints, end: int | None = None, *, checks: int = 0
) -> tuple[Records, Declined | None]:
    """Return the columns of the records before the first that is not a whole message, and why; None if all are whole.

    Bytes from ``end`` on are not read. ``file_offsets`` may be in any order, but not negative. ``checks`` are the bits
    ``WRONG_...`` that the caller will ask for: the kernel makes these checks while the bytes are in the caches. Without
    the kernel they are not made.
    """
    piece = as_bytes(data)[:end]
    end = len(piece)
    columns = decoded(piece, file_offsets, checks)
    if columns is not None:
        found = _records_of(as_bytes(data), columns, checks)
        return found, _why_it_ended(data, file_offsets, len(found), end)
    # Each step reads a length only where the one before was sound: the rows from the first bad one on are cut off.
    left = end - file_offsets
    starts = _before_first(left >= MIN_RECORD_SIZE, file_offsets)
    prefixes, sizes = _gather_prefixes(piece, starts, left)
    starts = starts[: len(prefixes)]
    ends = starts + sizes
    topic_sizes = _topic_sizes(prefixes)
    body_offsets = starts + _prefix_sizes(prefixes)
    body_lengths = prefixes["body_length"].astype(np.int64)
    topic_offsets = body_offsets + body_lengths + topic_sizes
    good = (body_lengths >= 0) & (topic_offsets + _LENGTH_SIZE <= ends)
    topic_offsets = _before_first(good, topic_offsets)
    topic_lengths = _topic_lengths(piece, topic_offsets, topic_sizes)
    properties_offsets = topic_offsets + topic_lengths + _LENGTH_SIZE
    good = (topic_lengths >= 0) & (properties_offsets <= ends[: len(topic_offsets)])
    properties_offsets = _before_first(good, properties_offsets)
    properties_lengths = _length_before(piece, properties_offsets)
    ends = ends[: len(properties_offsets)]
    properties_lengths = _before_first(properties_offsets + properties_lengths == ends, properties_lengths)
    whole = slice(len(properties_lengths))
    prefixes = prefixes[whole]
    found = Records(
        as_bytes(data),
        file_offsets[whole],
        Columns(lambda name: prefixes[name].astype(prefixes.dtype[name].newbyteorder("="))),
        body_offsets[whole],
        topic_offsets[whole],
        topic_lengths[whole],
        properties_offsets[whole],
        properties_lengths,
        _prefixes=prefixes,
    )
    return found, _why_it_ended(data, file_offsets, len(found), end)


def _records_of(data: Bytes, columns: dict[str, Any], checks: int) -> Records:
    """Return the columns that the kernel decoded. It made all of them, so any other name is a KeyError."""

    def no_such(name: str) -> Any:
        raise KeyError(name)

    return Records(
        data,
        columns["file_offset"],
        Columns(no_such, columns),
        columns["body_offset"],
        columns["topic_offset"],
        columns["topic_length"],
        columns["properties_offset"],
        columns["properties_length"],
        checks,
    )


def _before_first(good: Mask, column: Any) -> Any:
    """Return the rows of ``column`` before the first bad one."""
    return column if good.all() else column[: int(np.argmin(good))]


def _gather_prefixes(piece: Bytes, starts: Ints, left: Ints) -> tuple[npt.NDArray[np.void], Ints]:
    """Return the prefixes of the records at ``starts``, and their sizes, before the first that cannot be a message.

    That is one without the magic of a message, with a size below the smallest, or with one above the bytes that are
    ``left`` from its start on. If any of the prefixes has an IPv6 host, all have room for two, as ``_widen`` makes
    them.
    """
    if not len(starts):
        return np.empty(0, _SHORT_DTYPE), np.empty(0, np.int64)
    # As bare bytes: numpy copies structures field by field.
    prefixes = windows(piece, _SHORT_PREFIX.size)[starts].view(_SHORT_DTYPE)
    sizes = prefixes["total_size"].astype(np.int64)
    good = _are_messages(prefixes) & (sizes >= MIN_RECORD_SIZE) & (sizes <= left[: len(starts)])
    prefixes, sizes = _before_first(good, prefixes), _before_first(good, sizes)
    if (prefixes.view(_NATIVE_DTYPE)["sys_flag"] & _NATIVE_HOST_BITS).any():
        return _widen(piece, starts, prefixes), sizes
    return prefixes, sizes


def _are_messages(prefixes: npt.NDArray[np.void]) -> Mask:
    """Return which prefixes have the magic of a message.

    Version 2 is rare: it is compared only if one is not version 1.
    """
    magic = prefixes.view(_NATIVE_DTYPE)["magic"]
    found: Mask = magic == _NATIVE_V1
    if not found.all():
        found |= magic == _NATIVE_V2
    return found


def _topic_sizes(prefixes: npt.NDArray[np.void]) -> Ints | int:
    """Return the size of each topic's length field: 1, or 2 in version 2; one number if no record has version 2."""
    is_long = prefixes.view(prefixes.dtype.newbyteorder("="))["magic"] == _NATIVE_V2
    return np.where(is_long, _LENGTH_SIZE, 1) if is_long.any() else 1


def _prefix_sizes(prefixes: npt.NDArray[np.void]) -> Ints | int:
    """Return the stored size of each prefix, which depends on the host bits; one number if all hosts are IPv4."""
    if prefixes.dtype == _SHORT_DTYPE:
        return _SHORT_PREFIX.size
    sizes = np.empty(_HOST_BITS + 1, np.int64)
    for bits, layout in PREFIXES.items():
        sizes[bits] = layout.size
    found: Ints = sizes[prefixes["sys_flag"] & _HOST_BITS]
    return found


def _widen(piece: Bytes, starts: Ints, short: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Return prefixes with room for IPv6 addresses, each copied field by field from its own layout."""
    host_bits = short["sys_flag"] & _HOST_BITS
    wide = np.zeros(len(short), _WIDE_DTYPE)
    bytes_of = wide.view(np.uint8).reshape(-1, _WIDE_PREFIX.size)
    for bits, layout in PREFIXES.items():
        rows = np.flatnonzero(host_bits == bits)
        stored = gather(piece, starts[rows], layout.size)
        for to, at in zip(_WIDE_PREFIX.fields, layout.fields, strict=True):
            bytes_of[rows, to.offset : to.offset + at.size] = stored[:, at.offset : at.offset + at.size]
    return wide


def _topic_lengths(piece: Bytes, topic_offsets: Ints, topic_sizes: Ints | int) -> Ints:
    """Return the lengths of the topics, signed as in Java: all as one byte, then those of version 2 again as two.

    ``topic_sizes`` can have more rows than ``topic_offsets``, which end before the first bad record.
    """
    lengths = piece[topic_offsets - 1].view(np.int8).astype(np.int64)
    if not isinstance(topic_sizes, int):
        long = np.flatnonzero(topic_sizes[: len(topic_offsets)] != 1)
        lengths[long] = _length_before(piece, topic_offsets[long])
    return lengths


def _length_before(piece: Bytes, file_offsets: Ints) -> Ints:
    """Return the signed two-byte lengths that end at ``file_offsets``."""
    if not len(file_offsets):
        return np.empty(0, np.int64)
    stored = windows(piece, _LENGTH_SIZE)[file_offsets - _LENGTH_SIZE]
    return stored.view(_LENGTH).astype(np.int64)


def _why_it_ended(data: Buffer, file_offsets: Ints, whole: int, end: int) -> Declined | None:
    """Return why the record after the first ``whole`` is not a message, or None if all are."""
    if whole == len(file_offsets):
        return None
    at = int(file_offsets[whole])
    what = decode_record(data, at, end)
    match what:
        case Flaw():
            return Declined(what.message, at)
        case Blank():
            return Declined("the blank record at the end of the segment", at)
        case Nothing():
            return Declined("no record was ever written here", at)
        case Message():
            raise AssertionError(f"the record at {at} is whole")


def body_crcs(records: Records, crc32: Crc32 | None = None) -> npt.NDArray[np.int32]:
    """Return the checksum of each stored body, 31 bits as in a record."""
    return _as_held(crc32_each(records.data, records.body_offsets, records.body_lengths, crc32))


def _as_held(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Return checksums as records have them: without the top bit, as an ``int``."""
    return (crcs & _CRC_MASK).astype(np.int32)


def have_right_crc(records: Records, crc32: Crc32 | None = None) -> Mask:
    """Return which records have the right checksum of their body, or an empty body, whose checksum brokers ignore."""
    if crc32 is None and (known := records.is_right(WRONG_CRC)) is not None:
        return known
    found: Mask = body_crcs(records, crc32) == records.column("body_crc")
    found |= records.body_lengths == 0
    return found


def lie_in_place(records: Records, first_physical_offset: int) -> Mask:
    """Return which records are at the physical offset they name; ``first_physical_offset`` is that of byte 0."""
    found: Mask = records.column("physical_offset") == records.file_offsets + first_physical_offset
    return found


def are_bridges(records: Records) -> Mask:
    """Return which records are placeholders over damage (``formats.bridges.is_bridge``)."""
    # A bridge is a rolled-back record, so the topics of all others need not be read.
    found: Mask = records.column("sys_flag") & TRANSACTION_MASK == int(TransactionType.ROLLBACK)
    if found.any():
        found[found] = records.select(found).topics.each(lambda topic: topic == QUARANTINE, np.bool_)
    return found


def have_zeros(records: Records) -> Mask:
    """Return which records, in the order of the buffer, have a zero byte in topic or properties.

    Such bytes may be unwritten: zeros are not usual in these texts, and the checksum of the body does not cover them.
    """
    topics = _have_zeros(records.data, records.topic_offsets, records.topic_lengths)
    return topics | _have_zeros(records.data, records.properties_offsets, records.properties_lengths)


def _have_zeros(data: Bytes, offsets: Ints, lengths: Ints) -> Mask:
    """Return which pieces of ``data`` have a zero; they are ascending and do not overlap."""
    bounds = np.stack((offsets, offsets + lengths), axis=1).ravel()
    bounds = bounds[bounds < len(data)]  # the last piece may end with the data, or be empty there
    least = np.full(len(offsets), 1, np.uint8)
    least[: (len(bounds) + 1) // 2] = np.minimum.reduceat(data, bounds)[::2]
    found: Mask = (least == 0) & (lengths > 0)
    return found


def have_right_property_crc(records: Records, crc32: Crc32 | None = None) -> Mask:
    """Return which records have no checksum block at the end of their properties, or one that is right."""
    if crc32 is None and (known := records.is_right(WRONG_PROPERTY_CRC)) is not None:
        return known
    good = np.ones(len(records), np.bool_)
    block_offsets = records.properties_offsets + records.properties_lengths - CRC_BLOCK_LENGTH
    rows = np.flatnonzero(records.properties_lengths >= CRC_BLOCK_LENGTH)
    if not len(rows):
        return good
    # The name of the property has 8 bytes, so it is compared as a number, which is faster than comparing bytes.
    name = np.frombuffer(PROPERTY_CRC32.encode("ascii"), np.uint64)
    names = windows(records.data, name.itemsize)[block_offsets if len(rows) == len(good) else block_offsets[rows]]
    named = names.view(name.dtype) == name
    if not named.any():
        return good
    rows = rows[named]
    blocks = gather(records.data, block_offsets[rows], CRC_BLOCK_LENGTH)[:, name.itemsize :]
    digits = blocks[:, 1:-1] - np.uint8(ord("0"))
    framed = (blocks[:, 0] == ord(NAME_VALUE_SEPARATOR)) & (blocks[:, -1] == ord(PROPERTY_SEPARATOR))
    whole = framed & (digits <= 9).all(axis=1)
    rows = rows[whole]
    # The last digit is stored first, so digit i counts 10**i.
    stored = digits[whole].astype(np.int64) @ 10 ** np.arange(CRC_DIGITS)
    covered = records.file_offsets[rows]
    crcs = crc32_each(records.data, covered, block_offsets[rows] - covered, crc32)
    good[rows] = _as_held(crcs) == stored
    return good
