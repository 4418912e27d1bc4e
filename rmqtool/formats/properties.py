"""Property text of a record: ``name 0x01 value 0x02 ...``, by upstream's rules of tolerance.

Upstream: ``MessageDecoder.string2messageProperties`` and ``messageProperties2String``, ``MessageConst``.
Nothing in the text is escaped or counted. Whether 0x02 follows the last pair depends on the writer's version (present
up to 4.9.0 and from 5.2.0), so both forms occur in one store. The order of pairs is that of the writer's hash map.

Decoding works on the bytes: 0x01 and 0x02 are never part of a longer UTF-8 sequence, so splitting before or after the
conversion to text is the same. A block that cannot be regenerated from a map (an empty value, a name twice, no
separator) survives through its pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from rmqtool.formats.java import INT_MAX, decode_text, hash_map_order
from rmqtool.formats.property_names import KEYS, PROPERTY_CRC32, TAGS, UNIQ_KEY

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
_NAME_VALUE = b"\x01"
_PROPERTY = b"\x02"

# The length field is a signed short.
MAX_PROPERTIES_LENGTH = 32767

# Initial bins of the map a text was written from: one built by put-property calls, and one a 5.x broker got by
# decoding a text. The two orders meet in one store.
BUILT_BINS = 16
DECODED_BINS = 128

CRC_DIGITS = 10
CRC_BLOCK_LENGTH = len(PROPERTY_CRC32) + 1 + CRC_DIGITS + 1


class PieceKind(StrEnum):
    """What decoding makes of a piece between two 0x02."""

    PAIR = "pair"
    NOTHING = "nothing"
    NO_SEPARATOR = "no separator"
    EMPTY_NAME = "empty name"
    EMPTY_VALUE = "empty value"


class Piece(NamedTuple):
    """One piece of a block, its separator 0x02 not counted; only a PAIR becomes a property.

    Offsets are within the block. Without a separator the whole piece is the name, and the value is empty at its end.
    """

    kind: PieceKind
    name_offset: int
    name_length: int
    value_offset: int
    value_length: int

    @property
    def length(self) -> int:
        """The bytes of the piece."""
        return self.value_offset + self.value_length - self.name_offset

    def name(self, block: bytes) -> str:
        """The name, as text."""
        return decode_text(block[self.name_offset : self.name_offset + self.name_length])

    def value(self, block: bytes) -> str:
        """The value, as text."""
        return decode_text(block[self.value_offset : self.value_offset + self.value_length])


def iter_pieces(block: bytes) -> Iterator[Piece]:
    """Yield every piece of a block, also those that decoding drops. Pieces and their 0x02 tile the block."""
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

    A pair counts when its name and its value are not empty. The first 0x01 separates them, so a value may contain
    more. Of a name that occurs twice the last value is seen.
    """
    found = {}
    for piece in decode_text(block).split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            found[name] = value
    return found


def is_terminated(block: bytes) -> bool:
    """Return whether 0x02 stands behind the last pair."""
    return block.endswith(_PROPERTY)


def join_properties(left: bytes, right: bytes) -> bytes:
    """Return two blocks as one: 0x02 is put between them where the left one lacks it."""
    if left and right and not is_terminated(left):
        return left + _PROPERTY + right
    return left + right


def order_properties(properties: Mapping[str, str], bins: int) -> dict[str, str]:
    """Return ``properties`` in the order in which a hash map of ``bins`` initial bins writes them."""
    return {name: properties[name] for name in hash_map_order(properties, bins)}


class PropertyCrc(NamedTuple):
    """The checksum block at the end of a property text, and its length."""

    value: int
    length: int


def find_property_crc(block: bytes) -> PropertyCrc | None:
    """Return the checksum block that ends a property text (5.2 and later, off by default), None without one."""
    digits = block[-1 - CRC_DIGITS : -1]
    if block[-CRC_BLOCK_LENGTH:] != _crc_block(digits) or not digits.isdigit():
        return None
    return PropertyCrc(int(digits[::-1]), CRC_BLOCK_LENGTH)


def encode_property_crc(value: int) -> bytes:
    """Return the checksum block for ``value``: ten decimal digits, the least significant first."""
    if not 0 <= value <= INT_MAX:
        raise ValueError(f"{value} is not a checksum of 31 bits")
    return _crc_block(f"{value:0{CRC_DIGITS}d}"[::-1].encode("ascii"))


def _crc_block(digits: bytes) -> bytes:
    return PROPERTY_CRC32.encode("ascii") + _NAME_VALUE + digits + _PROPERTY


def split_property_crc(block: bytes) -> tuple[bytes, PropertyCrc | None]:
    """Return the text before the checksum block, and the block."""
    found = find_property_crc(block)
    return (block, None) if found is None else (block[: -found.length], found)


def tags(properties: Mapping[str, str]) -> str | None:
    """Return the tag."""
    return properties.get(TAGS)


def keys(properties: Mapping[str, str]) -> str | None:
    """Return the user's keys as stored, one text."""
    return properties.get(KEYS)


def key_tokens(properties: Mapping[str, str]) -> list[str]:
    """Return the user's keys one by one, as the index takes them: split at single spaces, duplicates kept."""
    return [token for token in properties.get(KEYS, "").split(" ") if token]


def uniq_key(properties: Mapping[str, str]) -> str | None:
    """Return the client's unique id; with a name stored twice (client batches) that is the last one."""
    return properties.get(UNIQ_KEY)
