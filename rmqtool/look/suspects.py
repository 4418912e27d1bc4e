"""Suspects: the bytes of a damaged record that changed, as far as that can be told.

A checksum tells that some of the bytes it covers changed, or the checksum itself, not which. Three things tell more. If
one byte changed and no other, CRC-32 does tell where: the difference of the two checksums, taken back byte by byte, is
the changed bits at their place, and almost nowhere else. Bytes can be of a kind that does not belong there: zeros where
a page was not written, the beginning of another record, bytes that are not text in a text. And of the fields that say
how long the parts of a record are, one can be wrong alone: with another value there the record is whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from rmqtool.formats import layouts
from rmqtool.formats.codes import HOST_BITS, MESSAGE_MAGIC_V1, RECORD_MAGICS
from rmqtool.formats.commit_log import MIN_RECORD_SIZE, PREFIXES, Message, check_record, decode_record
from rmqtool.formats.java import crc31
from rmqtool.formats.layout import Layout

# Bytes among which one changed byte is looked for, and two: among more, a coincidence becomes likely.
_MOST_FOR_ONE, _MOST_FOR_TWO = 1 << 16, 1 << 9
# Bytes of a record whose lengths are tried.
MOST_TRIED = 1 << 16
# How a byte changes the state of a CRC-32; the top byte of each entry is another.
_TABLE = [zlib.crc32(bytes([byte])) ^ zlib.crc32(b"\0") for byte in range(256)]
_BY_TOP = {entry >> 24: byte for byte, entry in enumerate(_TABLE)}
_TOP_BIT = 1 << 31
# Fewer zeros than this are in sound records, too. A text has no zeros.
_ZEROS, _ZEROS_IN_TEXT = re.compile(rb"\0{32,}"), re.compile(rb"\0+")
_NOT_TEXT = re.compile(rb"[^\t\n\r\x20-\x7e]+")
_MAGIC_AT = layouts.RECORD_START.field("magic").offset
_RECORD_MAGIC = re.compile(
    b"|".join(re.escape(layouts.RECORD_START.pack(0, magic)[_MAGIC_AT:]) for magic in RECORD_MAGICS)
)
_PAGES = (4096, 512)
# The kind and the name of the regions of such bytes.
SUSPECT = "suspect"


class Suspect(NamedTuple):
    """Bytes that changed, counted from the beginning of what was looked at, and what is known about them."""

    at: int
    length: int
    words: str


def find_suspects(data: bytes, stored: int, base: int = 0) -> list[Suspect]:
    """Return the bytes of ``data`` that changed since its checksum was ``stored``; none if it cannot be told.

    ``base`` is the file offset of ``data``.
    """
    found = list(_iter_changed(data, stored, 1)) if len(data) <= _MOST_FOR_ONE else []
    found = found or find_foreign(data, base)
    if not found and len(data) <= _MOST_FOR_TWO:
        found = list(_iter_changed(data, stored, 2))
    return _apart(found or _not_text(data))


def _iter_changed(data: bytes, stored: int, length: int) -> Iterator[Suspect]:
    """Yield where ``length`` adjacent bytes, if nothing else changed, explain that the checksum is not ``stored``."""
    difference = zlib.crc32(data) ^ stored
    # Upstream clears the top bit of a checksum.
    for first in (difference, difference ^ _TOP_BIT):
        state = first
        for at in range(len(data) - 1, -1, -1):
            byte = _BY_TOP[state >> 24]
            state = (state ^ _TABLE[byte]) << 8 & 0xFFFFFFFF | byte
            if state >> 8 * length == 0 and at + length <= len(data):
                changes = bytes(state >> shift & 0xFF for shift in range(0, 8 * length, 8))
                now = data[at : at + length]
                if all(changes):
                    yield Suspect(at, length, _was(bytes(a ^ b for a, b in zip(now, changes, strict=True))))


def find_in_checksum(data: bytes, stored: bytes) -> str | None:
    """Return which byte of a checksum changed, if one alone explains that it is not the checksum of ``data``."""
    right = layouts.INT.pack(crc31(data))
    places = [at for at, (before, now) in enumerate(zip(right, stored, strict=True)) if before != now]
    return f"byte {places[0]} of the checksum {_was(right[places[0] : places[0] + 1])}" if len(places) == 1 else None


def _was(before: bytes) -> str:
    spelled = f" {before.decode('ascii')!r}" if all(0x20 <= byte < 0x7F for byte in before) else ""
    return f"was {before.hex(' ')}{spelled}, if nothing else changed"


def find_foreign(data: bytes, base: int) -> list[Suspect]:
    """Return the zeros and the beginnings of records in ``data`` that do not belong there."""
    rest = data.replace(b"\0", b"")
    is_text = bool(rest) and not _NOT_TEXT.search(rest)
    found = []
    for match in (_ZEROS_IN_TEXT if is_text else _ZEROS).finditer(data):
        at, end = match.span()
        words = f"{end - at} zeros" if end - at > 1 else "a zero"
        found.append(Suspect(at, end - at, words + (_pages(base + at, base + end) or _page(base + end, "up to"))))
    for match in _RECORD_MAGIC.finditer(data, 2 * _MAGIC_AT):
        at = match.start() - _MAGIC_AT
        words = "another record begins here: its bytes were written over these"
        found.append(Suspect(at, layouts.RECORD_START.size, words + _page(base + at, "from")))
    return _apart(found)


def _pages(at: int, end: int) -> str:
    """Return which whole pages are between two file offsets; else that a page begins at the first one."""
    for size in _PAGES:
        first, after = -(-at // size) * size, end // size * size
        if first < after:
            return f"; in pages of {size} bytes, {first} to {after - 1} were not written"
    return _page(at, "from")


def _apart(found: list[Suspect]) -> list[Suspect]:
    """Return suspects in order, without those that overlap an earlier one."""
    kept: list[Suspect] = []
    for one in sorted(found):
        if not kept or one.at >= kept[-1].at + kept[-1].length:
            kept.append(one)
    return kept


def _page(at: int, where: str) -> str:
    """Return that a page begins at a file offset; nothing if none does."""
    size = next((size for size in _PAGES if at and at % size == 0), None)
    return "" if size is None else f" {where} {at}, where a page of {size} bytes begins: a page was not written"


def _not_text(data: bytes) -> list[Suspect]:
    """Return the bytes that are not text, of data that is text otherwise."""
    found = [match.span() for match in _NOT_TEXT.finditer(data)]
    if not found or 2 * sum(end - at for at, end in found) > len(data):
        return []
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        at, end = found[0][0], found[-1][1]
        return [Suspect(at, end - at, "not text, unlike the bytes around; the change may be longer")]
    return []


class Reading(NamedTuple):
    """Another value of a field: the field's name as upstream spells it, its place, its layout, the value."""

    name: str
    at: int
    layout: Layout[Any]
    value: int

    def spelled(self, value: int) -> int | str:
        """Return a value of the field as a region shows it."""
        return f"{value & 0xFFFFFFFF:#010x}" if self.name == "magic" else value


class WrongField(NamedTuple):
    """The field of a record that is wrong alone: its name, its value, words, and the record with the right value."""

    name: str
    stored: int | str
    words: str
    message: Message
    data: bytes


def find_wrong_field(data: bytes, physical_offset: int | None) -> WrongField | None:
    """Return the one field that says how a record is built with another value of which ``data`` is a whole record.

    None if no such field is wrong alone.
    """
    if not MIN_RECORD_SIZE <= len(data) <= MOST_TRIED:
        return None
    for reading in _iter_readings(data):
        name, at, layout, value = reading
        tried = data[:at] + layout.pack(value) + data[at + layout.size :]
        message = decode_record(tried)
        if not isinstance(message, Message) or message.total_size != len(data):
            continue
        if not any(check_record(message, tried, 0, physical_offset)):
            sums = " and its checksum right" if message.raw_body else ""
            words = f"with {reading.spelled(value)} here the record is whole{sums}"
            return WrongField(name, reading.spelled(layout.unpack_from(data, at)[0]), words, message, tried)
    return None


def _iter_readings(data: bytes) -> Iterator[Reading]:
    """Yield the values that could be right, if the others are, of the fields that say how a record is built."""
    shortest = layouts.MESSAGE_PREFIX_V4V4
    values = shortest.decode(data)
    yield Reading("totalSize", shortest.field("total_size").offset, layouts.INT, len(data))
    for magic in RECORD_MAGICS:
        # Integers of a layout are signed.
        yield Reading("magic", shortest.field("magic").offset, layouts.INT, magic - (1 << 32))
    for bits in PREFIXES:
        yield Reading("sysFlag", shortest.field("sys_flag").offset, layouts.INT, values.sys_flag & ~HOST_BITS | bits)
    prefix = PREFIXES[values.sys_flag & HOST_BITS]
    if values.magic in RECORD_MAGICS and len(data) >= prefix.size:
        for length in _body_lengths(data[prefix.size :], values.body_crc):
            yield Reading("bodyLength", prefix.field("body_length").offset, layouts.INT, length)
        topic_at = prefix.size + prefix.decode(data).body_length
        if prefix.size <= topic_at:
            yield from _iter_texts(data, topic_at, layouts.BYTE if values.magic == MESSAGE_MAGIC_V1 else layouts.SHORT)


def _iter_texts(data: bytes, topic_at: int, layout: Layout[Any]) -> Iterator[Reading]:
    """Yield other lengths of the properties, and of the topic, whose length is at ``topic_at``."""
    first, most = topic_at + layout.size, len(data) - layouts.SHORT.size
    if first > most:
        return
    (stored,) = layout.unpack_from(data, topic_at)
    for length in range(1, most - first + 1):
        left = most - first - length
        (said,) = layouts.SHORT.unpack_from(data, first + length)
        if length == stored and left < 1 << 15:
            yield Reading("propertiesLength", first + length, layouts.SHORT, left)
        if said == left and length < 1 << (8 * layout.size - 1):
            yield Reading("topicLength", topic_at, layout, length)


def _body_lengths(data: bytes, stored: int) -> Iterator[int]:
    """Yield the lengths with which a body at the beginning of ``data`` has the checksum ``stored``."""
    state = 0
    for length in range(1, len(data) + 1):
        state = zlib.crc32(data[length - 1 : length], state)
        if state & ~_TOP_BIT == stored:
            yield length
