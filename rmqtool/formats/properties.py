"""Properties of a record: ``name 0x01 value 0x02 name 0x01 value 0x02 ...`` in UTF-8.

Nothing is escaped or counted. Writers up to 4.9.0 and from 5.2.0 end the last pair with 0x02, those between do not, so
one store can have both forms. The order of pairs is that of the writer's hash map.

0x01 and 0x02 are never part of a longer UTF-8 sequence, so a block can be split before or after it is decoded. Some
blocks cannot be made again from a map: an empty value, a name that occurs twice, a missing separator. ``iter_pieces``
keeps all of them.

Upstream: ``MessageDecoder.string2messageProperties`` and ``messageProperties2String``, ``MessageConst``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from rmqtool.formats.java import INT_MAX, decode_text, hash_map_order
from rmqtool.formats.property_names import KEYS, PROPERTY_CRC32, TAGS, UNIQ_KEY

# 0x01 ends a name, 0x02 ends a value; after the last value 0x02 may be missing. As text, and as bytes.
NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
_NAME_VALUE = b"\x01"
_PROPERTY = b"\x02"

# The length field in the record is a signed short.
MAX_PROPERTIES_LENGTH = 32767

# Initial bins of upstream's map: of one that a client filled, and of one that a 5.x broker decoded from a text. They
# give the two orders of pairs that one store can have.
BUILT_BINS = 16
DECODED_BINS = 128

# The largest checksum of 31 bits has ten digits; smaller ones get leading zeros.
CRC_DIGITS = 10
CRC_BLOCK_LENGTH = len(PROPERTY_CRC32) + 1 + CRC_DIGITS + 1


class PieceKind(StrEnum):
    """How decoding takes a piece: only a PAIR becomes a property."""

    PAIR = "pair"
    NOTHING = "nothing"
    NO_SEPARATOR = "no separator"
    EMPTY_NAME = "empty name"
    EMPTY_VALUE = "empty value"


class Piece(NamedTuple):
    """One piece of a block, without its 0x02.

    Offsets are within the block. Without a separator the whole piece is the name, and the value is empty.
    """

    kind: PieceKind
    name_offset: int
    name_length: int
    value_offset: int
    value_length: int

    @property
    def length(self) -> int:
        return self.value_offset + self.value_length - self.name_offset

    def name(self, block: bytes) -> str:
        return decode_text(block[self.name_offset : self.name_offset + self.name_length])

    def value(self, block: bytes) -> str:
        return decode_text(block[self.value_offset : self.value_offset + self.value_length])


def iter_pieces(block: bytes) -> Iterator[Piece]:
    """Yield all pieces of a block, also those that decoding ignores. Pieces and their 0x02 cover the block."""
    at = 0
    while at < len(block):
        end = block.find(_PROPERTY, at)
        end = len(block) if end < 0 else end
        separator = block.find(_NAME_VALUE, at, end)
        if separator < 0:
            kind = PieceKind.NOTHING if at == end else PieceKind.NO_SEPARATOR
            yield Piece(kind, at, end - at, end, 0)
        else:
            if separator == at:
                kind = PieceKind.EMPTY_NAME
            else:
                kind = PieceKind.EMPTY_VALUE if separator + 1 == end else PieceKind.PAIR
            yield Piece(kind, at, separator - at, separator + 1, end - separator - 1)
        at = end + 1


def decode_properties(block: bytes) -> dict[str, str]:
    """Return the properties as brokers and clients from 4.9.1 on see them.

    A pair counts if its name and its value are not empty. The first 0x01 separates them, so a value can contain more.
    If a name occurs twice, the last value counts.
    """
    return read_properties(decode_text(block))


def read_properties(text: str) -> dict[str, str]:
    """Return the properties of a block that is a text already, as in a request."""
    found = {}
    for piece in text.split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def is_terminated(block: bytes) -> bool:
    """Return whether 0x02 ends the last pair."""
    return block.endswith(_PROPERTY)


def join_properties(left: bytes, right: bytes) -> bytes:
    """Return two blocks as one, with 0x02 between them where the left one does not end with it."""
    if left and right and not is_terminated(left):
        return left + _PROPERTY + right
    return left + right


def order_properties(properties: Mapping[str, str], bins: int) -> dict[str, str]:
    """Return ``properties`` in the order in which a hash map of ``bins`` initial bins writes them."""
    return {name: properties[name] for name in hash_map_order(properties, bins)}


class PropertyCrc(NamedTuple):
    """The value of a property checksum, and the bytes of its block."""

    value: int
    length: int


def find_property_crc(block: bytes) -> PropertyCrc | None:
    """Return the checksum at the end of a block, or None without one.

    Brokers from 5.2 on write it if enabledAppendPropCRC is set. Its ten decimal digits are stored last digit first.
    """
    digits = block[-1 - CRC_DIGITS : -1]
    if block[-CRC_BLOCK_LENGTH:] != _crc_block(digits) or not digits.isdigit():
        return None
    return PropertyCrc(int(digits[::-1]), CRC_BLOCK_LENGTH)


def encode_property_crc(value: int) -> bytes:
    """Return the checksum block for ``value``: ten decimal digits, the last digit first.

    Raises ValueError for a value of more than 31 bits.
    """
    if not 0 <= value <= INT_MAX:
        raise ValueError(f"{value} is not a checksum of 31 bits")
    return _crc_block(f"{value:0{CRC_DIGITS}d}"[::-1].encode("ascii"))


def _crc_block(digits: bytes) -> bytes:
    return PROPERTY_CRC32.encode("ascii") + _NAME_VALUE + digits + _PROPERTY


def split_property_crc(block: bytes) -> tuple[bytes, PropertyCrc | None]:
    """Return the block without its checksum, and the checksum; the block as it is and None if it has no checksum."""
    found = find_property_crc(block)
    return (block, None) if found is None else (block[: -found.length], found)


def tags(properties: Mapping[str, str]) -> str | None:
    return properties.get(TAGS)


def keys(properties: Mapping[str, str]) -> str | None:
    """Return the user's keys as stored: one text, keys separated by blanks; None without keys."""
    return properties.get(KEYS)


def key_tokens(properties: Mapping[str, str]) -> list[str]:
    """Return the user's keys as the index takes them: split at each blank, duplicates kept."""
    return [token for token in properties.get(KEYS, "").split(" ") if token]


def uniq_key(properties: Mapping[str, str]) -> str | None:
    """Return the client's unique id, or None.

    In records of a client batch the name can occur twice; the last one counts.
    """
    return properties.get(UNIQ_KEY)
